/* Gradients as P and Q: see lowrank.h for the formulas, compressor.h for who calls. */
#include <stdlib.h>
#include <string.h>
#include "comm/compressor.h"
#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "util/mem.h"

void dlb_thin_new(struct dlb_compressor *k)
{
	int64_t most = 0;

	k->thin = dlb_xcalloc((size_t)k->n_addends + 1, sizeof *k->thin);
	for (int i = 0; i < k->n_addends; i++) {
		const struct dlb_addend *a = &k->addend[i];
		int r = dlb_compress_rank(&k->choice, a);
		struct dlb_thin *t = &k->thin[k->n_thin];
		size_t back = (size_t)(r * dlb_skinny_stride(a->cols));

		if (!r)
			continue;
		k->n_thin++;
		*t = (struct dlb_thin){ .addend = i, .rank = r };
		t->error = dlb_xcalloc((size_t)(a->rows * a->cols), sizeof *t->error);
		t->basis = dlb_xcalloc(back, sizeof *t->basis);
		t->next = dlb_xcalloc(back, sizeof *t->next);
		t->mine = k->choice.local_error ? dlb_xcalloc(back, sizeof *t->mine) : NULL;
		t->p = dlb_xcalloc((size_t)(a->rows * r), sizeof *t->p);
		t->q = dlb_xcalloc((size_t)(a->cols * r), sizeof *t->q);
		dlb_lowrank_first_q(t->basis, a->cols, r, (uint64_t)a->id);
		dlb_fused_add(&k->p, t->p, a->rows * r, -1, DLB_TRAFFIC_GRADIENT);
		dlb_fused_add(&k->q, t->q, a->cols * r, -1, DLB_TRAFFIC_GRADIENT);
		dlb_fused_add(&k->warm, a->x, a->rows * a->cols, -1, DLB_TRAFFIC_GRADIENT);
		most = a->rows * r > most ? a->rows * r : most;
	}
	k->work = dlb_xcalloc((size_t)most + 1, sizeof *k->work);
}

void dlb_thin_free(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_thin; i++) {
		free(k->thin[i].error);
		free(k->thin[i].basis);
		free(k->thin[i].next);
		free(k->thin[i].mine);
		free(k->thin[i].p);
		free(k->thin[i].q);
	}
	free(k->thin);
	free(k->work);
}

void dlb_thin_project(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_thin; i++) {
		const struct dlb_thin *t = &k->thin[i];
		const struct dlb_addend *a = &k->addend[t->addend];

		dlb_skinny()->project(a->rows, a->cols, t->rank, a->x, t->error, t->basis, t->p);
		if (!dlb_all_finite(t->p, a->rows * t->rank))		/* as it is when any number of x is not */
			dlb_compressor_note(k, k->not_finite, t->addend);
	}
}

/* Between (rank, stride) in memory and (rank, cols) on the wire. */
static void repack(const struct dlb_thin *t, int64_t cols, float *padded, bool out)
{
	int64_t stride = dlb_skinny_stride(cols);

	for (int r = 0; r < t->rank; r++) {
		float *wire = t->q + r * cols, *own = padded + r * stride;

		memcpy(out ? own : wire, out ? wire : own, (size_t)cols * sizeof *own);
	}
}

void dlb_thin_back(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_thin; i++) {
		const struct dlb_thin *t = &k->thin[i];
		const struct dlb_addend *a = &k->addend[t->addend];
		uint64_t key = dlb_lowrank_key((uint64_t)a->id, (uint64_t)k->step);

		if (dlb_orthonormal_f32(t->p, a->rows, t->rank, key, k->work, NULL) < 0) {
			k->verdict.not_finite = a->name;	/* finite on every rank, but not their sum */
			k->verdict.rank = -1;
			return;
		}
		dlb_skinny()->project_back(a->rows, a->cols, t->rank, a->x, t->p, t->next);
		if (t->mine)
			memcpy(t->mine, t->next, (size_t)(t->rank * dlb_skinny_stride(a->cols)) * sizeof *t->mine);
		repack(t, a->cols, t->next, false);
	}
}

void dlb_thin_restore(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_thin; i++)
		if (!dlb_all_finite(k->thin[i].q, k->addend[k->thin[i].addend].cols * k->thin[i].rank)) {
			k->verdict.not_finite = k->addend[k->thin[i].addend].name;
			k->verdict.rank = -1;
			return;
		}
	for (int i = 0; i < k->n_thin; i++) {
		struct dlb_thin *t = &k->thin[i];
		const struct dlb_addend *a = &k->addend[t->addend];
		float *last = t->basis;

		repack(t, a->cols, t->next, true);
		if (t->mine) {				/* what was not sent from here; then the sum */
			dlb_skinny()->restore(a->rows, a->cols, t->rank, a->x, t->error, t->p, t->mine, 1);
			dlb_skinny()->restore(a->rows, a->cols, t->rank, a->x, NULL, t->p, t->next, 0);
		} else {
			dlb_skinny()->restore(a->rows, a->cols, t->rank, a->x, t->error, t->p, t->next, 1.0f / (float)k->ranks.n);
		}
		t->basis = t->next;
		t->next = last;
	}
}
