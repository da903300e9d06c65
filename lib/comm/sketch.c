/* Gradients whose rank adapts. Formulas: lowrank.h; calls: lowrank.c.
 *
 * A step's sketch P = sum M W has the rank of the last step plus some columns, so that the rank can grow. W's
 * columns are orthonormal: those of the last Q, then random ones. P's columns are then as long as the
 * directions of M that they stand for, and nearly at right angles: a few bits for each number tell them
 * apart. Pivoted Cholesky of P's Gram matrix chooses a basis. */
#include <stdlib.h>
#include <string.h>
#include "comm/compressor.h"
#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "util/mem.h"

/* The first `width` columns of Q, rows of t->basis, become orthonormal, each in the span of those before it;
 * zeros become random. work: q_length * width elements. */
static void make_orthonormal(struct dlb_low_rank_state *t, int width, uint64_t key, double *work)
{
	const int64_t stride = dlb_skinny_stride(t->q_length);

	for (int r = 0; r < width; r++)
		for (int64_t j = 0; j < t->q_length; j++)
			work[j * width + r] = (double)t->basis[r * stride + j];
	dlb_orthonormal(work, t->q_length, width, key, DLB_TAU_F32, NULL, NULL);
	for (int r = 0; r < width; r++)
		for (int64_t j = 0; j < t->q_length; j++)
			t->basis[r * stride + j] = (float)work[j * width + r];
	t->width = (float)width;
}

void dlb_sketch_init(struct dlb_low_rank_state *t)
{
	double *work = dlb_xmalloc((size_t)(t->q_length * t->most) * sizeof *work);

	make_orthonormal(t, t->most, dlb_lowrank_key((uint64_t)t->id, 0), work);
	free(work);
}

int dlb_sketch_basis(const struct dlb_compressor *k, struct dlb_low_rank *t)
{
	const uint64_t key = dlb_lowrank_key((uint64_t)t->state->id, (uint64_t)k->step);
	const struct dlb_basis_choice c = { .tolerance = k->choice.tolerance, .most = t->most, .key = key };

	t->rank = dlb_pivoted_basis(t->p, t->state->p_length, t->width, &c, k->work);
	return t->rank;
}

void dlb_sketch_next(const struct dlb_compressor *k, struct dlb_low_rank *t)
{
	struct dlb_low_rank_state *state = t->state;
	const int64_t stride = dlb_skinny_stride(state->q_length);
	const int more = t->rank + 1 + t->rank / 8, width = more < state->most ? more : state->most;

	if (width > t->rank)
		memset(state->basis + t->rank * stride, 0,
		       (size_t)((width - t->rank) * stride) * sizeof *state->basis);
	make_orthonormal(state, width, dlb_lowrank_key((uint64_t)state->id, ~(uint64_t)k->step), k->work);
}
