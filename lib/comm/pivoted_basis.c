/* Basis and rank of a sketch: see lowrank.h. Sums run in a fixed order, in double: the same p gives the same
 * bits on every rank. */
#include <math.h>
#include <stdlib.h>
#include "comm/cholesky.h"
#include "comm/lowrank.h"
#include "util/mem.h"

/* g = p^T p / trace; returns the trace. Squares may leave the range of float; the quotients do not. */
static double scaled_gram(const float *p, int64_t n, int width, float *g)
{
	double *sum = dlb_xcalloc((size_t)width * (size_t)width + 1, sizeof *sum), trace = 0;

	for (int64_t i = 0; i < n; i++)
		for (int a = 0; a < width; a++)
			for (int b = 0; b <= a; b++)
				sum[a * width + b] += (double)p[i * width + a] * (double)p[i * width + b];
	for (int a = 0; a < width; a++)
		trace += sum[a * width + a];
	for (int a = 0; a < width; a++)
		for (int b = 0; b <= a; b++)
			g[a * width + b] = g[b * width + a] = trace > 0 ?
								      (float)(sum[a * width + b] / trace) :
								      0;
	free(sum);
	return trace;
}

int dlb_pivoted_basis(float *p, int64_t n, int width, const struct dlb_basis_choice *c, double *work)
{
	float g[DLB_MOST_RANK * DLB_MOST_RANK], l[DLB_MOST_RANK * DLB_MOST_RANK];
	int pivot[DLB_MOST_RANK], rank;
	double trace = scaled_gram(p, n, width, g);
	const struct dlb_pivot_stop stop = { .trace = c->tolerance, .most = c->most < n ? c->most : (int)n };
	struct dlb_pivoted f = { .l = l, .ld = width, .pivot = pivot };

	if (!isfinite(trace))
		return -1;
	rank = dlb_pivoted_cholesky(width, g, &stop, &f);
	rank = rank < 1 ? 1 : rank;
	for (int64_t i = 0; i < n; i++)
		for (int k = 0; k < rank; k++)
			work[i * rank + k] = (double)p[i * width + pivot[k]];
	if (dlb_orthonormal(work, n, rank, c->key, DLB_TAU_F32, NULL, NULL) < 0)
		return -1;
	for (int64_t i = 0; i < n * rank; i++)
		p[i] = (float)work[i];
	return rank;
}
