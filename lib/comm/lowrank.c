/* Gradients as P and Q: state, buffers and the three passes. Formulas: lowrank.h; calls: compressor.c. */
#include <stdlib.h>
#include <string.h>
#include "comm/compressor.h"
#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "util/mem.h"

struct dlb_compress_state *dlb_compress_state_new(void)
{
	return dlb_xcalloc(1, sizeof(struct dlb_compress_state));
}

static void free_state(struct dlb_low_rank_state *t)
{
	free(t->residual);
	free(t->basis);
	free(t->next);
	free(t->seen);
	free(t);
}

void dlb_compress_state_free(struct dlb_compress_state *k)
{
	for (int i = 0; k && i < k->n; i++)
		free_state(k->low_rank[i]);
	if (k)
		free(k->low_rank);
	free(k);
}

struct dlb_low_rank_state *dlb_low_rank_state_of(struct dlb_compress_state *k,
						 const struct dlb_compress_choice *c,
						 const struct dlb_sum_tensor *a, int most)
{
	const int64_t p = dlb_compress_p_length(c, a), q = dlb_compress_q_length(c, a);
	const bool adapts = c->how == DLB_COMPRESS_CHOLESKY;
	size_t back = (size_t)(most * dlb_skinny_stride(q));
	struct dlb_low_rank_state *t;

	for (int i = 0; i < k->n; i++)
		if (k->low_rank[i]->id == a->id) {
			k->low_rank[i]->name = a->name; /* the compressor that had it before may be gone */
			return k->low_rank[i];
		}
	t = dlb_xcalloc(1, sizeof *t);
	*t = (struct dlb_low_rank_state){ .id = a->id,
					  .most = most,
					  .adapts = adapts,
					  .transposed = dlb_compress_transposed(c, a),
					  .rows = a->rows,
					  .cols = a->cols,
					  .p_length = p,
					  .q_length = q,
					  .name = a->name };
	t->residual = dlb_xcalloc((size_t)(a->rows * a->cols), sizeof *t->residual);
	t->basis = dlb_xcalloc(back, sizeof *t->basis);
	t->next = dlb_xcalloc(back, sizeof *t->next);
	t->seen = dlb_xcalloc((size_t)most + 1, sizeof *t->seen);
	dlb_lowrank_first_q(t->basis, q, most, (uint64_t)a->id);
	if (adapts)
		dlb_sketch_init(t);
	DLB_GROW(k->low_rank, k->n, k->cap);
	k->low_rank[k->n++] = t;
	return t;
}

bool dlb_compress_state_tensor(struct dlb_compress_state *k, int i, struct dlb_local_tensor *s)
{
	struct dlb_low_rank_state *t;
	int at = 0;

	while (at < k->n && i >= 2 + k->low_rank[at]->adapts)
		i -= 2 + k->low_rank[at++]->adapts;
	if (at >= k->n)
		return false;
	t = k->low_rank[at];
	if (i == 0)
		*s = (struct dlb_local_tensor){ t->name, "error", t->residual, t->rows * t->cols,
						true,    DLB_F32, false };
	else if (i == 1)
		*s = (struct dlb_local_tensor){ t->name,  "basis",
						t->basis, t->most * dlb_skinny_stride(t->q_length),
						false,    DLB_F32,
						false };
	else
		*s = (struct dlb_local_tensor){ t->name, "width", &t->width, 1, false, DLB_F32, false };
	return true;
}

bool dlb_compress_state_blocks(struct dlb_compress_state *k, int i, int *id,
			       struct dlb_compress_block block[DLB_COMPRESS_BLOCKS])
{
	struct dlb_low_rank_state *t = i < k->n ? k->low_rank[i] : NULL;

	if (!t)
		return false;
	*id = t->id;
	block[0] = (struct dlb_compress_block){ t->residual,
						(size_t)(t->rows * t->cols) * sizeof *t->residual };
	block[1] = (struct dlb_compress_block){ t->basis, (size_t)(t->most * dlb_skinny_stride(t->q_length)) *
								  sizeof *t->basis };
	block[2] = (struct dlb_compress_block){ &t->width, sizeof t->width };
	block[3] = (struct dlb_compress_block){ t->seen, ((size_t)t->most + 1) * sizeof *t->seen };
	return true;
}

void dlb_compress_state_drop(struct dlb_compress_state *k, int i)
{
	free_state(k->low_rank[i]);
	for (k->n--; i < k->n; i++)
		k->low_rank[i] = k->low_rank[i + 1];
}

bool dlb_compress_state_ranks(const struct dlb_compress_state *k, int i, struct dlb_ranks_seen *r)
{
	const struct dlb_low_rank_state *t = i < k->n ? k->low_rank[i] : NULL;
	int64_t all = 0, so_far = 0;

	if (!t)
		return false;
	*r = (struct dlb_ranks_seen){ .id = t->id, .bound = t->most };
	for (int rank = 0; rank <= t->most; rank++)
		all += t->seen[rank];
	for (int rank = t->most; rank >= 0; rank--) {
		if (!t->seen[rank])
			continue;
		r->most = r->most ? r->most : rank;
		r->least = rank;
		so_far += t->seen[rank];
		r->median = 2 * so_far >= all && !r->median ? rank : r->median;
	}
	return true;
}

/* Whether P is sent column by column: then the numbers of a block have similar sizes. */
static bool by_column(const struct dlb_compressor *k) { return dlb_wire_unit(k->choice.thin_wire) > 1; }

void dlb_low_rank_new(struct dlb_compressor *k)
{
	int64_t most = 0, transposed = 0, folded = 0;

	k->low_rank = dlb_xcalloc((size_t)k->n_tensors + 1, sizeof *k->low_rank);
	for (int i = 0; i < k->n_tensors; i++) {
		const struct dlb_sum_tensor *a = &k->tensor[i];
		int r = dlb_compress_rank(&k->choice, a);
		const int64_t p = dlb_compress_p_length(&k->choice, a),
			      q = dlb_compress_q_length(&k->choice, a);
		struct dlb_low_rank *t = &k->low_rank[k->n_low_rank];
		const size_t back = (size_t)(r * dlb_skinny_stride(q)),
			     p_room = (size_t)dlb_wire_room(k->choice.thin_wire, p * r),
			     q_room = (size_t)dlb_wire_room(k->choice.thin_wire, q * r);

		if (!r)
			continue;
		k->n_low_rank++;
		*t = (struct dlb_low_rank){ .tensor = i, .most = r, .width = r, .rank = r };
		t->state = dlb_low_rank_state_of(k->state, &k->choice, a, r);
		t->mine = k->choice.local_error ? dlb_xcalloc(back, sizeof *t->mine) : NULL;
		t->p = dlb_xcalloc((size_t)(p * r), sizeof *t->p);
		t->p_sent = by_column(k) ? dlb_xcalloc(p_room, sizeof *t->p) : t->p;
		t->q = dlb_xcalloc(q_room, sizeof *t->q);
		dlb_fusion_add(&k->p, t->p_sent, p * r, -1, DLB_TRAFFIC_GRADIENT);
		dlb_fusion_add(&k->q, t->q, q * r, -1, DLB_TRAFFIC_GRADIENT);
		if (k->choice.start)
			dlb_fusion_add(&k->warm, a->x, a->rows * a->cols, -1, DLB_TRAFFIC_GRADIENT);
		const int64_t work = dlb_compress_work(&k->choice, a, r);
		most = work > most ? work : most;
		if (t->state->transposed && dlb_transposed_words(a, r) > transposed)
			transposed = dlb_transposed_words(a, r);
		if (a->middle && a->rows * a->cols > folded)
			folded = a->rows * a->cols;
	}
	k->q.keeps_lost = k->choice.local_error && k->choice.thin_wire != DLB_WIRE_PLAIN;
	k->work = dlb_xcalloc((size_t)most + 1, sizeof *k->work);
	k->transposed = dlb_xcalloc((size_t)transposed + 1, sizeof *k->transposed);
	k->folded = dlb_xcalloc((size_t)folded + 1, sizeof *k->folded);
}

void dlb_low_rank_free(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_low_rank; i++) {
		free(k->low_rank[i].mine);
		if (k->low_rank[i].p_sent != k->low_rank[i].p)
			free(k->low_rank[i].p_sent);
		free(k->low_rank[i].p);
		free(k->low_rank[i].q);
	}
	free(k->low_rank);
	free(k->work);
	free(k->transposed);
	free(k->folded);
}

/* Sets the lengths of fusion buffer P, or of Q (back). Its part i belongs to low-rank tensor i. */
static void resize(const struct dlb_compressor *k, struct dlb_fusion_buffer *f, bool back)
{
	bool other = false;

	for (int i = 0; i < k->n_low_rank; i++) {
		const struct dlb_low_rank *t = &k->low_rank[i];
		const int64_t n = dlb_wire_units(f->wire, back ? t->state->q_length * t->rank :
								 t->state->p_length * t->width);

		other |= f->pack.part[i].n != n;
		f->pack.part[i].n = n;
	}
	if (other)
		dlb_fusion_resize(f);
}

/* ---- the three passes over a tensor ----
 *
 * For a transposed tensor P = X^T W, Q = X P^ and X^ = Q P^^T: the same passes with P and Q exchanged. Each
 * then needs the other's layout, made in k->transposed. */

/* by_row (n, r) = transpose of columns (r, stride). */
static void to_rows(const float *columns, int64_t stride, int64_t n, int r, float *by_row)
{
	for (int c = 0; c < r; c++)
		for (int64_t i = 0; i < n; i++)
			by_row[i * r + c] = columns[c * stride + i];
}

/* columns (r, stride), zero beyond n, = transpose of by_row. */
static void from_rows(const float *by_row, int64_t n, int r, float *columns, int64_t stride)
{
	memset(columns, 0, (size_t)(r * stride) * sizeof *columns);
	for (int c = 0; c < r; c++)
		for (int64_t i = 0; i < n; i++)
			columns[c * stride + i] = by_row[i * r + c];
}

/* Copies x from the order of its tensor to that of its matrix, or back. */
static void fold(const struct dlb_compressor *k, const struct dlb_sum_tensor *a, bool back)
{
	const int64_t inner = a->middle ? a->cols / a->middle : 0, m = back ? a->lead : a->middle,
		      n = back ? a->middle : a->lead, plane = m * n * inner;

	if (!a->middle)
		return;
	for (int64_t at = 0; at < a->rows * a->cols; at += plane)
		for (int64_t i = 0; i < m; i++)
			for (int64_t j = 0; j < n; j++) {
				const float *from = a->x + at + (i * n + j) * inner;
				float *to = k->folded + at + (j * m + i) * inner;

				for (int64_t e = 0; e < inner; e++)
					to[e] = from[e];
			}
	memcpy(a->x, k->folded, (size_t)(a->rows * a->cols) * sizeof *a->x);
}

/* x += residual (may be NULL), P = x basis, with t->width columns */
static void sketch(const struct dlb_compressor *k, struct dlb_low_rank *t, const struct dlb_sum_tensor *a,
		   const float *residual)
{
	const struct dlb_skinny *s = dlb_skinny();
	t->width = t->state->adapts ? (int)t->state->width : t->most;
	const struct dlb_skinny_shape shape = { a->rows, a->cols, t->width };
	float *w = k->transposed, *pt = w + t->width * a->rows;

	if (!t->state->transposed) {
		s->project(&shape, a->x, residual, t->state->basis, t->p);
		return;
	}
	if (residual)
		s->project(&(struct dlb_skinny_shape){ a->rows, a->cols, 0 }, a->x, residual, NULL, NULL);
	to_rows(t->state->basis, dlb_skinny_stride(a->rows), a->rows, t->width, w);
	s->project_back(&shape, a->x, w, pt);
	to_rows(pt, dlb_skinny_stride(a->cols), a->cols, t->width, t->p);
}

/* next = Q^T: coefficients of x in the basis P */
static void coefficients(const struct dlb_compressor *k, struct dlb_low_rank *t,
			 const struct dlb_sum_tensor *a)
{
	const struct dlb_skinny *s = dlb_skinny();
	const struct dlb_skinny_shape shape = { a->rows, a->cols, t->rank };
	float *w = k->transposed, *pt = w + t->rank * a->rows;

	if (!t->state->transposed) {
		s->project_back(&shape, a->x, t->p, t->state->next);
		return;
	}
	from_rows(t->p, a->cols, t->rank, pt, dlb_skinny_stride(a->cols));
	s->project(&shape, a->x, NULL, pt, w);
	from_rows(w, a->rows, t->rank, t->state->next, dlb_skinny_stride(a->rows));
}

/* residual (may be NULL) = x - share * P qt; then x = P qt */
static void restore(const struct dlb_compressor *k, struct dlb_low_rank *t, const struct dlb_sum_tensor *a,
		    float *residual, const float *qt, float share)
{
	const struct dlb_skinny *s = dlb_skinny();
	const struct dlb_skinny_shape shape = { a->rows, a->cols, t->rank };
	float *w = k->transposed, *pt = w + t->rank * a->rows;

	if (!t->state->transposed) {
		s->restore(&shape, a->x, residual, t->p, qt, share);
		return;
	}
	from_rows(t->p, a->cols, t->rank, pt, dlb_skinny_stride(a->cols));
	to_rows(qt, dlb_skinny_stride(a->rows), a->rows, t->rank, w);
	s->restore(&shape, a->x, residual, w, pt, share);
}

/* Writes zeros from element n on to the end of the last unit. */
static void fill_up(const struct dlb_compressor *k, float *sent, int64_t n)
{
	memset(sent + n, 0, (size_t)(dlb_wire_room(k->choice.thin_wire, n) - n) * sizeof *sent);
}

void dlb_low_rank_project(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_low_rank; i++) {
		struct dlb_low_rank *t = &k->low_rank[i];
		const struct dlb_sum_tensor *a = &k->tensor[t->tensor];

		fold(k, a, false);
		sketch(k, t, a, t->state->residual);
		/* P is not finite if any element of x is not */
		if (!dlb_all_finite(t->p, t->state->p_length * t->width))
			dlb_compressor_flag(k, k->not_finite, t->tensor);
		if (by_column(k)) {
			const int64_t n = t->state->p_length;

			from_rows(t->p, n, t->width, t->p_sent, n);
			fill_up(k, t->p_sent, n * t->width);
		}
	}
	resize(k, &k->p, false);
}

/* Copies Q^T from (rank, stride) in memory to (rank, cols) on the wire, or back (out). */
static void repack(const struct dlb_low_rank *t, float *padded, bool out)
{
	const int64_t cols = t->state->q_length, stride = dlb_skinny_stride(cols);

	for (int r = 0; r < t->rank; r++) {
		float *wire = t->q + r * cols, *own = padded + r * stride;

		memcpy(out ? own : wire, out ? wire : own, (size_t)cols * sizeof *own);
	}
}

/* Turns the sum of P into a basis of t->rank columns; -1: it is not finite. */
static int find_basis(struct dlb_compressor *k, struct dlb_low_rank *t)
{
	const struct dlb_sum_tensor *a = &k->tensor[t->tensor];
	uint64_t key = dlb_lowrank_key((uint64_t)a->id, (uint64_t)k->step);

	return t->state->adapts ? dlb_sketch_basis(k, t) :
				  dlb_orthonormal_f32(t->p, t->state->p_length, t->rank, key, k->work, NULL);
}

void dlb_low_rank_back(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_low_rank; i++) {
		struct dlb_low_rank *t = &k->low_rank[i];
		const struct dlb_sum_tensor *a = &k->tensor[t->tensor];

		if (by_column(k))
			to_rows(t->p_sent, t->state->p_length, t->state->p_length, t->width, t->p);
		if (find_basis(k, t) < 0) {
			k->verdict.not_finite = a->name; /* finite on every rank, but their sum is not */
			k->verdict.rank = -1;
			return;
		}
		coefficients(k, t, a);
		if (t->mine)
			memcpy(t->mine, t->state->next,
			       (size_t)(t->rank * dlb_skinny_stride(t->state->q_length)) * sizeof *t->mine);
		repack(t, t->state->next, false);
		fill_up(k, t->q, t->state->q_length * t->rank);
	}
	resize(k, &k->q, true);
}

static bool sums_are_finite(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_low_rank; i++)
		if (!dlb_all_finite(k->low_rank[i].q, k->low_rank[i].state->q_length * k->low_rank[i].rank)) {
			k->verdict.not_finite = k->tensor[k->low_rank[i].tensor].name;
			k->verdict.rank = -1;
			return false;
		}
	return true;
}

/* mine -= the part of Q that this rank's rounding took from the sums; the rest of its own Q is in them. */
static void take_losses(struct dlb_compressor *k)
{
	dlb_fusion_unload_lost(&k->q);
	for (int i = 0; i < k->n_low_rank; i++) {
		const struct dlb_low_rank *t = &k->low_rank[i];
		const int64_t cols = t->state->q_length, stride = dlb_skinny_stride(cols);

		for (int r = 0; r < t->rank; r++)
			for (int64_t j = 0; j < cols; j++)
				t->mine[r * stride + j] -= t->q[r * cols + j];
	}
}

/* Keeps the Q of this step as the source of the next sketch. */
static void take_basis(const struct dlb_compressor *k, struct dlb_low_rank *t)
{
	float *last = t->state->basis;

	t->state->basis = t->state->next;
	t->state->next = last;
	if (t->state->adapts)
		dlb_sketch_next(k, t);
}

void dlb_low_rank_restore(struct dlb_compressor *k)
{
	if (!sums_are_finite(k))
		return;
	for (int i = 0; i < k->n_low_rank; i++)
		repack(&k->low_rank[i], k->low_rank[i].state->next, true);
	if (k->q.lost)
		take_losses(k);
	for (int i = 0; i < k->n_low_rank; i++) {
		struct dlb_low_rank *t = &k->low_rank[i];
		const struct dlb_sum_tensor *a = &k->tensor[t->tensor];

		if (t->mine) {				/* first the error of this rank, then the sum */
			restore(k, t, a, t->state->residual, t->mine, 1);
			restore(k, t, a, NULL, t->state->next, 0);
		} else {
			restore(k, t, a, t->state->residual, t->state->next, 1.0f / (float)k->ranks.n);
		}
		fold(k, a, true);
		take_basis(k, t);
		t->state->seen[t->rank]++;
	}
}

void dlb_low_rank_warm(struct dlb_compressor *k)
{
	for (int i = 0; i < k->n_low_rank; i++) {
		struct dlb_low_rank *t = &k->low_rank[i];
		const struct dlb_sum_tensor *a = &k->tensor[t->tensor];

		fold(k, a, false);
		sketch(k, t, a, NULL);
		/* a sum that is not finite: the update reports it */
		if (find_basis(k, t) >= 0) {
			coefficients(k, t, a);
			take_basis(k, t);
		}
		fold(k, a, true);
	}
}
