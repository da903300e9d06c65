/* Median, quantiles and errors of small arrays. Each function works on a copy; n = 0 gives 0. */
#ifndef DLB_UTIL_STATS_H
#define DLB_UTIL_STATS_H
double dlb_median(const double *x, int n);
double dlb_quantile(const double *x, int n, double q);	/* linear between order statistics */
double dlb_mean(const double *x, int n);
/* Standard error of the median, from the median absolute deviation (1.253 * 1.4826 * MAD / sqrt n). */
double dlb_median_se(const double *x, int n);
#endif
