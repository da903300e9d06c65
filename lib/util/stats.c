/* Median, quantiles and errors: see stats.h. */
#include "util/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util/mem.h"

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double dlb_quantile(const double *x, int n, double q)
{
	double *y, at, result;
	int i;

	if (n <= 0)
		return 0;
	y = dlb_xmalloc((size_t)n * sizeof *y);
	memcpy(y, x, (size_t)n * sizeof *y);
	qsort(y, (size_t)n, sizeof *y, by_value);
	at = (q < 0 ? 0 : q > 1 ? 1 : q) * (n - 1);
	i = (int)at;
	result = i + 1 < n && at > i ? y[i] + (at - i) * (y[i + 1] - y[i]) : y[i];
	free(y);
	return result;
}

double dlb_median(const double *x, int n)
{
	return dlb_quantile(x, n, 0.5);
}

double dlb_mean(const double *x, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += x[i];
	return n > 0 ? sum / n : 0;
}

/* For normal noise the standard error of the median is sqrt(pi/2) sigma / sqrt(n); sigma = 1.4826 MAD. */
double dlb_median_se(const double *x, int n)
{
	double *d, m, mad;

	if (n <= 0)
		return 0;
	m = dlb_median(x, n);
	d = dlb_xmalloc((size_t)n * sizeof *d);
	for (int i = 0; i < n; i++)
		d[i] = fabs(x[i] - m);
	mad = dlb_median(d, n);
	free(d);
	return 1.2533141373155003 * 1.4826022185056018 * mad / sqrt(n);
}
