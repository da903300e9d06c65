/* SPD matrices through LAPACKE: see spd.h. The routines get column-major matrices, for which LAPACKE copies
 * nothing: our row-major lower triangle is the upper one, and a symmetric matrix is the same either way. */
#include <lapacke.h>
#include <math.h>

#include "tensor/spd.h"

enum { TILE = 32 };

static float *at(int n, float *a, bool reversed, int i, int j)
{
	return reversed ? &a[(int64_t)(n - 1 - i) * n + (n - 1 - j)] : &a[(int64_t)i * n + j];
}

void dlb_rfp_pack(int n, const float *a, bool reversed, float *rfp)
{
	int first = n - n / 2, down = n % 2 ? 0 : 1;
	int64_t stride = n + down;

	/* By symmetry (i, j) is read as (j, i), so that both sides are accessed sequentially. */
	for (int j = 0; j < first; j++) {
		float *to = rfp + j * stride + down;

		if (reversed)
			for (int i = j; i < n; i++)
				to[i] = a[(int64_t)(n - 1 - j) * n + (n - 1 - i)];
		else
			for (int i = j; i < n; i++)
				to[i] = a[(int64_t)j * n + i];
	}
	for (int i = first; i < n; i++) {
		float *to = rfp + (i - first + 1 - down) * stride - first;

		if (reversed)
			for (int j = first; j <= i; j++)
				to[j] = a[(int64_t)(n - 1 - i) * n + (n - 1 - j)];
		else
			for (int j = first; j <= i; j++)
				to[j] = a[(int64_t)i * n + j];
	}
}

/* Copies the triangle on one side of the diagonal to the other, tile by tile. */
static void mirror(int n, float *a, bool lower_is_filled)
{
	for (int bi = 0; bi < n; bi += TILE)
		for (int bj = 0; bj <= bi; bj += TILE)
			for (int i = bi; i < bi + TILE && i < n; i++)
				for (int j = bj; j < bj + TILE && j < i; j++)
					if (lower_is_filled)
						a[(int64_t)j * n + i] = a[(int64_t)i * n + j];
					else
						a[(int64_t)i * n + j] = a[(int64_t)j * n + i];
}

/* Writes only the triangle: element (i, j), i >= j, to a's (j, i), or to (n-1-j, n-1-i) if reversed. */
static void spread(int n, const float *rfp, bool reversed, float *a)
{
	int first = n - n / 2, down = n % 2 ? 0 : 1;
	int64_t stride = n + down;

	for (int j = 0; j < first; j++) {
		const float *from = rfp + j * stride + down;

		for (int i = j; i < n; i++)
			*at(n, a, reversed, j, i) = from[i];
	}
	for (int i = first; i < n; i++) {
		const float *from = rfp + (i - first + 1 - down) * stride - first;

		for (int j = first; j <= i; j++)
			*at(n, a, reversed, j, i) = from[j];
	}
}

void dlb_rfp_unpack(int n, const float *rfp, bool reversed, float *a)
{
	spread(n, rfp, reversed, a);
	mirror(n, a, reversed);
}

float dlb_asymmetry(int n, const float *a, float *largest, bool *finite)
{
	float off = 0, most = 0, zero = 0;		/* zero becomes NaN if an element is not finite */

	for (int bi = 0; bi < n; bi += TILE)
		for (int bj = 0; bj <= bi; bj += TILE)
			for (int i = bi; i < bi + TILE && i < n; i++)
				for (int j = bj; j < bj + TILE && j <= i; j++) {
					float x = a[(int64_t)i * n + j], y = a[(int64_t)j * n + i],
					      d = fabsf(x - y);

					zero += 0 * x + 0 * y;
					off = d > off ? d : off;
					x = fabsf(x);
					y = fabsf(y);
					x = x > y ? x : y;
					most = x > most ? x : most;
				}
	*largest = most;
	*finite = zero == 0;
	return off;
}

int dlb_rfp_factor(int n, float *s)
{
	return n ? LAPACKE_spftrf_work(LAPACK_COL_MAJOR, 'N', 'L', n, s) : 0;
}

void dlb_rfp_syrk(int n, int k, float alpha, const float *x, float beta, float *rfp)
{
	/* X by rows is X^T by columns. */
	if (n)
		LAPACKE_ssfrk_work(LAPACK_COL_MAJOR, 'N', 'L', 'T', n, k, alpha, x, k > 1 ? k : 1, beta, rfp);
}

void dlb_rfp_restore(int n, const float *l, float *a)
{
	if (!n)
		return;
	/* L(i, j) of the reversed matrix is U(n-1-i, n-1-j); by columns that is a[(n-1-j) n + n-1-i]. */
	spread(n, l, true, a);
	LAPACKE_slauum_work(LAPACK_COL_MAJOR, 'U', n, a, n);
	mirror(n, a, true);
}
