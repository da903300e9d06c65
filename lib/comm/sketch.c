/* Gradients whose rank adapts. Formulas: lowrank.h; calls: lowrank.c.
 *
 * A step's sketch P = sum M W has the rank of the last step plus some columns, so that the rank can grow. W's
 * columns have length 1: those of the last Q, then random ones. Pivoted Cholesky of P's Gram matrix chooses a
 * basis.
 *
 * With wire=f8, Q is sent in 8 bits (f8.h). Its columns are first multiplied by a power of two that brings
 * their length, estimated from P, to the range where these numbers are finest. Elements that are then too
 * large are sent as the largest number; the difference goes to the residual. P is not sent in 8 bits: its
 * columns have similar directions, and their differences would be lost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/compressor.h"
#include "comm/f8.h"
#include "comm/lowrank.h"
#include "tensor/skinny.h"
#include "util/mem.h"

enum { MOST_SHIFT = 100, SHORTER = 256 };

static bool in_8_bits(const struct dlb_compressor *k)
{
	return k->choice.q_wire == DLB_WIRE_F8;
}

/* Power of two that scales a column of this length to a length of 4 to 8. */
static int shift_of(double length)
{
	const int shift = length > 0 && isfinite(length) ? 2 - ilogb(length) : 0;

	return shift > MOST_SHIFT ? MOST_SHIFT : shift < -MOST_SHIFT ? -MOST_SHIFT : shift;
}

static void normalise(float *row, int64_t cols, double length)
{
	for (int64_t j = 0; j < cols; j++)
		row[j] = (float)((double)row[j] / length);
}

static double length_of(const float *row, int64_t n)
{
	double square = 0;

	for (int64_t j = 0; j < n; j++)
		square += (double)row[j] * (double)row[j];
	return sqrt(square);
}

void dlb_sketch_init(struct dlb_low_rank_state *t)
{
	const int64_t stride = dlb_skinny_stride(t->q_length);

	t->width = (float)t->most;
	for (int r = 0; r < t->most; r++)
		normalise(t->basis + r * stride, t->q_length, length_of(t->basis + r * stride, t->q_length));
}

int dlb_sketch_basis(const struct dlb_compressor *k, struct dlb_low_rank *t)
{
	const uint64_t key = dlb_lowrank_key((uint64_t)t->state->id, (uint64_t)k->step);
	const struct dlb_basis_choice c = { .tolerance = k->choice.tolerance, .most = t->most, .key = key };

	t->rank = dlb_pivoted_basis(t->p, t->state->p_length, t->width, &c, t->length, k->work);
	return t->rank;
}

void dlb_sketch_shift_q(const struct dlb_compressor *k, struct dlb_low_rank *t)
{
	const int64_t cols = t->state->q_length, stride = dlb_skinny_stride(cols);

	for (int r = 0; r < t->rank && in_8_bits(k); r++) {
		float *row = t->q + r * cols;

		t->shift[r] = shift_of(fmax(t->length[r], t->length[0] / SHORTER));
		const float by = ldexpf(1, t->shift[r]), back = ldexpf(1, -t->shift[r]);
		for (int64_t j = 0; j < cols; j++) {
			row[j] = dlb_f8_widen(dlb_f8_round(row[j] * by));
			if (t->mine)
				t->mine[r * stride + j] = row[j] * back;
		}
	}
}

void dlb_sketch_unshift_q(const struct dlb_compressor *k, struct dlb_low_rank *t)
{
	const int64_t cols = t->state->q_length;

	for (int r = 0; r < t->rank && in_8_bits(k); r++) {
		const float back = ldexpf(1, -t->shift[r]);

		for (int64_t j = 0; j < cols; j++)
			t->q[r * cols + j] *= back;
	}
}

/* row = a random column of length 1. */
static void draw(const struct dlb_compressor *k, const struct dlb_low_rank_state *t, int r, float *row)
{
	double *x = dlb_xmalloc((size_t)t->q_length * sizeof *x);

	dlb_splitmix_fill(x, t->q_length, 1,
			  dlb_lowrank_key((uint64_t)t->id, ~(uint64_t)k->step) + (uint64_t)r);
	for (int64_t j = 0; j < t->q_length; j++)
		row[j] = (float)x[j];
	normalise(row, t->q_length, length_of(row, t->q_length));
	free(x);
}

void dlb_sketch_next(const struct dlb_compressor *k, struct dlb_low_rank *t)
{
	struct dlb_low_rank_state *state = t->state;
	const int64_t stride = dlb_skinny_stride(state->q_length);
	const int more = t->rank + 1 + t->rank / 8, width = more < state->most ? more : state->most;

	for (int r = 0; r < width; r++) {
		float *row = state->basis + r * stride;
		const double length = r < t->rank ? length_of(row, state->q_length) : 0;

		if (length > 0)
			normalise(row, state->q_length, length);
		else
			draw(k, state, r, row);
	}
	state->width = (float)width;
}
