/* Pivoted Cholesky, left-looking: reads only the diagonal of a and the columns taken. See cholesky.h. */
#include <math.h>
#include <stdlib.h>
#include "comm/cholesky.h"
#include "util/mem.h"

int dlb_pivoted_cholesky(int n, const float *a, const struct dlb_pivot_stop *stop, struct dlb_pivoted *f)
{
	float *const l = f->l;
	int *const pivot = f->pivot;
	const int ld = f->ld, most = stop->most;
	double *left = dlb_xmalloc(((size_t)n + 1) * sizeof *left);	/* diagonal of the remainder */
	int rank = 0;

	f->rest = f->least = 0;
	for (int i = 0; i < n; i++) {
		left[i] = (double)a[(int64_t)i * n + i];
		pivot[i] = i;
		for (int k = 0; k < most; k++)
			l[(int64_t)i * ld + k] = 0;
		f->rest += left[i];
	}
	for (; rank < most && rank < n && f->rest > stop->trace; rank++) {
		int best = rank, p;
		double root;

		for (int i = rank + 1; i < n; i++)
			if (left[pivot[i]] > left[pivot[best]])
				best = i;
		if (!(left[pivot[best]] > stop->tolerance) || !(left[pivot[best]] > 0))
			break;
		p = pivot[best];
		pivot[best] = pivot[rank];
		pivot[rank] = p;
		root = sqrt(left[p]);
		l[(int64_t)p * ld + rank] = (float)root;
		for (int i = rank + 1; i < n; i++) {
			float *row = l + (int64_t)pivot[i] * ld, *top = l + (int64_t)p * ld;
			double v = (double)a[(int64_t)pivot[i] * n + p];

			for (int k = 0; k < rank; k++)
				v -= (double)row[k] * (double)top[k];
			row[rank] = (float)(v / root);
			left[pivot[i]] -= v / root * (v / root);
		}
		f->rest = 0;
		for (int i = rank + 1; i < n; i++)
			f->rest += left[pivot[i]];
	}
	f->rest = 0;
	for (int i = rank; i < n; i++) {
		f->rest += left[pivot[i]];
		if (i == rank || left[pivot[i]] < f->least)
			f->least = left[pivot[i]];
	}
	free(left);
	return rank;
}
