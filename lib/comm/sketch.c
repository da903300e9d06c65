/* Gradients whose rank adapts. Formulas: lowrank.h; calls: lowrank.c.
 *
 * A step's sketch P = sum M W has the rank of the last step plus some columns, so that the rank can grow. W's
 * columns are at right angles: those of the last Q, then random ones. P's columns are then as long as the
 * directions of M that they stand for, and nearly at right angles: a few bits for each number tell them
 * apart. W's columns are divided by powers of two near the lengths of the last Q's, so that P's columns have
 * similar lengths on the wire, where several may share a scale. Pivoted Cholesky of P's Gram matrix chooses a
 * basis. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/compressor.h"
#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "util/mem.h"

enum { MOST_EXPONENT = 100 };
static int exponent_of(double length)
{
	const int e = isfinite(length) && length > 0 ? ilogb(length) : 0;

	return e > MOST_EXPONENT ? MOST_EXPONENT : e < -MOST_EXPONENT ? -MOST_EXPONENT : e;
}

/* Turns the first `width` columns of Q, rows of t->basis, into those of W. Each lies in the span of Q's
 * columns up to it; a column of zeros becomes random. work: q_length * width elements. */
static void make_columns(struct dlb_low_rank_state *t, int width, uint64_t key, double *work)
{
	const int64_t stride = dlb_skinny_stride(t->q_length);
	double length[DLB_MOST_RANK];

	for (int r = 0; r < width; r++)
		for (int64_t j = 0; j < t->q_length; j++)
			work[j * width + r] = (double)t->basis[r * stride + j];
	dlb_orthonormal(work, t->q_length, width, key, DLB_TAU_F32, length, NULL);
	for (int r = 0; r < width; r++) {
		length[r] = length[r] > 0 || !r ? length[r] : length[r - 1];
		const double by = ldexp(1, -exponent_of(length[r]));

		for (int64_t j = 0; j < t->q_length; j++)
			t->basis[r * stride + j] = (float)(work[j * width + r] * by);
	}
	t->width = (float)width;
}

/* Scales the columns of P as if the columns of W had length 1. */
static void lengthen(struct dlb_low_rank *t)
{
	const int64_t stride = dlb_skinny_stride(t->state->q_length);

	for (int r = 0; r < t->width; r++) {
		double square = 0;

		for (int64_t j = 0; j < t->state->q_length; j++)
			square += (double)t->state->basis[r * stride + j] *
				  (double)t->state->basis[r * stride + j];
		/* the root is a power of two, but for rounding */
		const float by = ldexpf(1, -exponent_of(1.25 * sqrt(square)));

		for (int64_t i = 0; i < t->state->p_length; i++)
			t->p[i * t->width + r] *= by;
	}
}

void dlb_sketch_init(struct dlb_low_rank_state *t)
{
	double *work = dlb_xmalloc((size_t)(t->q_length * t->most) * sizeof *work);

	make_columns(t, t->most, dlb_lowrank_key((uint64_t)t->id, 0), work);
	free(work);
}

int dlb_sketch_basis(const struct dlb_compressor *k, struct dlb_low_rank *t)
{
	const uint64_t key = dlb_lowrank_key((uint64_t)t->state->id, (uint64_t)k->step);
	const struct dlb_basis_choice c = { .tolerance = k->choice.tolerance, .most = t->most, .key = key };

	lengthen(t);
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
	make_columns(state, width, dlb_lowrank_key((uint64_t)state->id, ~(uint64_t)k->step), k->work);
}
