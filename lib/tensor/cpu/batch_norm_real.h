/* Batch normalization for type T; included by batch_norm.c. Scratch is six arrays of `columns`
 * doubles, used as T where that is enough. Activations have type E in memory: X(e) converts E to T,
 * Y(t) T to E; everything else is T. */

/* Updates the running statistics and writes the saved ones, from mean and biased variance of n elements. */
static void S(bn_statistics)(const struct bn_kernel *b, const struct dlb_run *r, int64_t c, double n,
			     double mean, double var)
{
	double m = b->d.momentum, v = b->d.unbiased && n > 1 ? var * n / (n - 1) : var;

	if (r->out[1])
		((T *)r->out[1])[c] = (T)(((T *)r->in[3])[c] * m + mean * (1 - m));
	if (r->out[2])
		((T *)r->out[2])[c] = (T)(((T *)r->in[4])[c] * m + v * (1 - m));
	if (r->out[3])
		((T *)r->out[3])[c] = (T)mean;
	if (r->out[4])
		((T *)r->out[4])[c] = (T)(1 / sqrt(var + b->d.epsilon));
}

/* Lower limit of the output: 0 with Relu. */
static T S(bn_least)(const struct bn_kernel *b)
{
	return b->d.relu ? 0 : -(T)INFINITY;
}

/* y = (x - mean) scale + bias; columns repeat every c channels. */
static void S(bn_apply_rows)(const struct bn_kernel *b, const E *x, E *y, const T *mean, const T *scale,
			     const T *bias)
{
	const T least = S(bn_least)(b);

	for (int64_t i = 0; i < b->rows; i++)
#pragma omp simd
		for (int64_t j = 0; j < b->columns; j++) {
			T v = (X(x[i * b->columns + j]) - mean[j]) * scale[j] + bias[j];

			y[i * b->columns + j] = Y(v < least ? least : v);
		}
}

static void S(bn_coefficients)(const struct bn_kernel *b, const struct dlb_run *r, int64_t j, double mean,
			       double invstd, T *m, T *s, T *bias)
{
	int64_t c = j % b->c;

	m[j] = (T)mean;
	s[j] = (T)(invstd * ((const T *)r->in[1])[c]);
	bias[j] = ((const T *)r->in[2])[c];
}

/* Mean and sum of squared deviations of each channel, in parts 0 and 1; returns the
 * number of elements per channel. */
static double S(bn_moments_rows)(const struct bn_kernel *b, const struct dlb_run *r)
{
	const E *x = r->in[0];
	double *mean = part(b, r, 0), *m2 = part(b, r, 1), all = 0;
	T *sum = (T *)part(b, r, 2), *dev = (T *)part(b, r, 3), *bm = (T *)part(b, r, 4);
	int64_t w = b->columns;

	for (int64_t j = 0; j < w; j++)
		mean[j] = m2[j] = 0;
	for (int64_t i0 = 0; i0 < b->rows; i0 += BN_ROWS) {
		int64_t len = b->rows - i0 < BN_ROWS ? b->rows - i0 : BN_ROWS;
		const E *x0 = x + i0 * w;
		double before = (double)i0, total = (double)(i0 + len);

		for (int64_t j = 0; j < w; j++)
			sum[j] = dev[j] = 0;
		for (int64_t i = 0; i < len; i++)
#pragma omp simd
			for (int64_t j = 0; j < w; j++)
				sum[j] += X(x0[i * w + j]);
		for (int64_t j = 0; j < w; j++)
			bm[j] = sum[j] / (T)len;
		for (int64_t i = 0; i < len; i++)
#pragma omp simd
			for (int64_t j = 0; j < w; j++) {
				T e = X(x0[i * w + j]) - bm[j];

				dev[j] += e * e;
			}
#pragma omp simd
		for (int64_t j = 0; j < w; j++) {
			double delta = (double)bm[j] - mean[j];

			mean[j] += delta * ((double)len / total);
			m2[j] += (double)dev[j] + delta * delta * (before * (double)len / total);
		}
	}
	for (int64_t c = 0; c < b->c; c++) {		/* combine the columns of each channel */
		double n = (double)b->rows;

		all = n;
		for (int64_t j = c + b->c; j < w; j += b->c) {
			double delta = mean[j] - mean[c];

			mean[c] += delta * (n / (all + n));
			m2[c] += m2[j] + delta * delta * (all * n / (all + n));
			all += n;
		}
	}
	return all;
}

static void S(bn_train_rows)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct bn_kernel *b = (struct bn_kernel *)k;
	double *mean = part(b, r, 0), *var = part(b, r, 1), n;
	T *m = (T *)part(b, r, 2), *s = (T *)part(b, r, 3), *bias = (T *)part(b, r, 4);

	if (b->d.half == DLB_BN_REST) {
		const double *sums = r->in[5];

		n = sums[0];
		for (int64_t c = 0; c < b->c; c++)
			var[c] = bn_variance(b, sums, c, &mean[c]);
	} else {
		n = S(bn_moments_rows)(b, r);
		for (int64_t c = 0; c < b->c; c++)
			var[c] = n > 0 ? var[c] / n : 0;
	}
	if (b->d.half == DLB_BN_SUMS) {
		for (int64_t c = 0; c < b->c; c++)
			bn_set_moments(b, r->out[0], c, n, mean[c], var[c]);
		return;
	}
	for (int64_t c = 0; c < b->c; c++)
		S(bn_statistics)(b, r, c, n, mean[c], var[c]);
	for (int64_t j = 0; j < b->columns; j++)
		S(bn_coefficients)
		(b, r, j, mean[j % b->c], 1 / sqrt(var[j % b->c] + b->d.epsilon), m, s, bias);
	S(bn_apply_rows)(b, r->in[0], r->out[0], m, s, bias);
}

static void S(bn_infer_rows)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct bn_kernel *b = (struct bn_kernel *)k;
	T *m = (T *)part(b, r, 0), *s = (T *)part(b, r, 1), *bias = (T *)part(b, r, 2);

	for (int64_t j = 0; j < b->columns; j++)
		S(bn_coefficients)
		(b, r, j, ((const T *)r->in[3])[j % b->c],
		 1 / sqrt((double)((const T *)r->in[4])[j % b->c] + b->d.epsilon), m, s, bias);
	S(bn_apply_rows)(b, r->in[0], r->out[0], m, s, bias);
}

/* Inverse standard deviation for the gradient: saved, or from the running variance. */
static double S(bn_invstd)(const struct bn_kernel *b, const struct dlb_run *r, int64_t c)
{
	double v = ((const T *)r->in[4])[c];

	return b->d.dir == DLB_BN_GRAD ? v : 1 / sqrt(v + b->d.epsilon);
}

/* sum dy and sum dy (x - mean) of each channel, in parts 0 and 1. Blocks sum in T and are combined in double.
 * With Relu, dy counts only where y > 0. */
static inline void S(bn_grad_sums_rows)(const struct bn_kernel *b, const struct dlb_run *r, const T *mean,
					const bool relu)
{
	const E *dy = r->in[0], *x = r->in[1], *y = relu ? r->in[5] : dy;
	double *sum = part(b, r, 0), *dot = part(b, r, 1);
	T *bs = (T *)part(b, r, 2), *bd = (T *)part(b, r, 3);
	int64_t w = b->columns;

	for (int64_t j = 0; j < w; j++)
		sum[j] = dot[j] = 0;
	for (int64_t i0 = 0; i0 < b->rows; i0 += BN_ROWS) {
		int64_t len = b->rows - i0 < BN_ROWS ? b->rows - i0 : BN_ROWS;

		for (int64_t j = 0; j < w; j++)
			bs[j] = bd[j] = 0;
		for (int64_t i = i0; i < i0 + len; i++)
#pragma omp simd
			for (int64_t j = 0; j < w; j++) {
				T g = relu && !(X(y[i * w + j]) > 0) ? 0 : X(dy[i * w + j]);

				bs[j] += g;
				bd[j] += g * (X(x[i * w + j]) - mean[j]);
			}
#pragma omp simd
		for (int64_t j = 0; j < w; j++) {
			sum[j] += bs[j];
			dot[j] += bd[j];
		}
	}
	for (int64_t c = 0; c < b->c; c++)
		for (int64_t j = c + b->c; j < w; j += b->c) {
			sum[c] += sum[j];
			dot[c] += dot[j];
		}
}

/* Gradients of scale and bias of this batch, even if the sums for dx are over several batches. */
static void S(bn_grad_parameters)(const struct bn_kernel *b, const struct dlb_run *r, int64_t c, double sum,
				  double dot)
{
	if (r->out[1])
		((T *)r->out[1])[c] = (T)(dot * S(bn_invstd)(b, r, c));
	if (r->out[2])
		((T *)r->out[2])[c] = (T)sum;
}

/* dbias = sum dy; dscale = invstd sum dy (x - mean); dx = scale invstd (dy - dbias/n - (x - mean) invstd
 * dscale/n), without the last two terms if the statistics are constants. */
static inline void S(bn_grad_rows_of)(const struct bn_kernel *b, const struct dlb_run *r, const bool relu)
{
	const E *dy = r->in[0], *x = r->in[1], *y = relu ? r->in[5] : dy;
	E *dx = r->out[0];
	double *sum = part(b, r, 0), *dot = part(b, r, 1), n = (double)(b->n * b->s);
	T *bs = (T *)part(b, r, 2), *bd = (T *)part(b, r, 3), *mean = (T *)part(b, r, 4),
	  *scale = (T *)part(b, r, 5);
	int64_t w = b->columns;

	for (int64_t j = 0; j < w; j++)
		mean[j] = ((const T *)r->in[3])[j % b->c];
	if (b->d.half != DLB_BN_REST)
		S(bn_grad_sums_rows)(b, r, mean, relu);
	if (b->d.half == DLB_BN_SUMS) {
		for (int64_t c = 0; c < b->c; c++)
			bn_set_grad_sums(b, r->out[0], c, n, sum[c], dot[c]);
		return;
	}
	for (int64_t c = 0; c < b->c; c++) {
		struct bn_grad_sums s = { .n = n, .own_sum = sum[c], .own_dot = dot[c] };

		if (b->d.half == DLB_BN_REST) {
			s = bn_get_grad_sums(b, r->in[5 + relu], c);
			n = s.n, sum[c] = s.sum, dot[c] = s.dot;
		}
		S(bn_grad_parameters)(b, r, c, s.own_sum, s.own_dot);
	}
	if (!dx)
		return;
	/* factors of each column, for the loop below */
	for (int64_t j = w - 1; j >= 0; j--) {
		int64_t c = j % b->c;
		double invstd = S(bn_invstd)(b, r, c);
		bool batch = b->d.dir == DLB_BN_GRAD;

		scale[j] = (T)(invstd * ((const T *)r->in[2])[c]);
		bs[j] = (T)(batch ? sum[c] / n : 0);
		bd[j] = (T)(batch ? dot[c] * invstd * invstd / n : 0);
	}
	for (int64_t i = 0; i < b->rows; i++)
#pragma omp simd
		for (int64_t j = 0; j < w; j++) {
			int64_t at = i * w + j;
			T g = relu && !(X(y[at]) > 0) ? 0 : X(dy[at]);

			dx[at] = Y(scale[j] * (g - bs[j] - (X(x[at]) - mean[j]) * bd[j]));
		}
}

static void S(bn_grad_rows)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct bn_kernel *b = (struct bn_kernel *)k;

	if (b->d.relu)
		S(bn_grad_rows_of)(b, r, true);
	else
		S(bn_grad_rows_of)(b, r, false);
}

#ifndef ROWS_ONLY
#include "tensor/cpu/sums_real.h"

/* ---- row-major: one channel is b->n planes of b->s elements ---- */
static void S(bn_apply_planes)(const struct bn_kernel *b, const struct dlb_run *r, int64_t c, double mean,
			       double invstd)
{
	T m = (T)mean, s = (T)(invstd * ((const T *)r->in[1])[c]), bias = ((const T *)r->in[2])[c],
	  least = S(bn_least)(b);

	for (int64_t i = 0; i < b->n; i++) {
		const T *x = (const T *)r->in[0] + (i * b->c + c) * b->s;
		T *y = (T *)r->out[0] + (i * b->c + c) * b->s;

#pragma omp simd
		for (int64_t j = 0; j < b->s; j++) {
			T v = (x[j] - m) * s + bias;

			y[j] = v < least ? least : v;
		}
	}
}

/* Returns the biased variance of channel c; *mean_out: its mean. */
static double S(bn_moments_planes)(const struct bn_kernel *b, const struct dlb_run *r, int64_t c,
				   double *mean_out)
{
	double n = (double)(b->n * b->s), mean = 0, var = 0;

	for (int64_t i = 0; i < b->n; i++)
		mean += S(sum)((const T *)r->in[0] + (i * b->c + c) * b->s, b->s);
	mean = n > 0 ? mean / n : 0;
	for (int64_t i = 0; i < b->n; i++) {
		const T *x = (const T *)r->in[0] + (i * b->c + c) * b->s;
		double lane[LANES] = { 0 };
		int64_t j = 0;

		for (; j + LANES <= b->s; j += LANES)
#pragma omp simd
			for (int l = 0; l < LANES; l++)
				lane[l] += (x[j + l] - mean) * (x[j + l] - mean);
		for (int l = 0; j + l < b->s; l++)
			lane[l] += (x[j + l] - mean) * (x[j + l] - mean);
		for (int l = 0; l < LANES; l++)
			var += lane[l];
	}
	*mean_out = mean;
	return n > 0 ? var / n : 0;
}

static void S(bn_train_planes)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct bn_kernel *b = (struct bn_kernel *)k;
	const double *sums = b->d.half == DLB_BN_REST ? r->in[5] : NULL;
	const double n = sums ? sums[0] : (double)(b->n * b->s);

	for (int64_t c = 0; c < b->c; c++) {
		double mean,
			var = sums ? bn_variance(b, sums, c, &mean) : S(bn_moments_planes)(b, r, c, &mean);

		if (b->d.half == DLB_BN_SUMS) {
			bn_set_moments(b, r->out[0], c, n, mean, var);
			continue;
		}
		S(bn_statistics)(b, r, c, n, mean, var);
		S(bn_apply_planes)(b, r, c, mean, 1 / sqrt(var + b->d.epsilon));
	}
}

static void S(bn_infer_planes)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct bn_kernel *b = (struct bn_kernel *)k;

	for (int64_t c = 0; c < b->c; c++)
		S(bn_apply_planes)(b, r, c, ((const T *)r->in[3])[c],
				   1 / sqrt((double)((const T *)r->in[4])[c] + b->d.epsilon));
}

/* sum dy and sum dy (x - mean) of channel c. */
static void S(bn_grad_sums_planes)(const struct bn_kernel *b, const struct dlb_run *r, int64_t c,
				   double *sum_out, double *dot_out)
{
	double sum = 0, dot = 0;
	const T mean = ((const T *)r->in[3])[c];

	for (int64_t i = 0; i < b->n; i++) {
		const int64_t at = (i * b->c + c) * b->s;
		const T *dy = (const T *)r->in[0] + at, *x = (const T *)r->in[1] + at;
		const T *y = b->d.relu ? (const T *)r->in[5] + at : NULL;
		double plane = y ? 0 : S(sum)(dy, b->s), lane[LANES] = { 0 };
		int64_t j = 0;

		for (int64_t l = 0; l < b->s && y; l++) {
			plane += y[l] > 0 ? dy[l] : 0;
			dot += y[l] > 0 ? (double)dy[l] * (x[l] - mean) : 0;
		}
		j = y ? b->s : 0;

		for (; j + LANES <= b->s; j += LANES)
#pragma omp simd
			for (int l = 0; l < LANES; l++)
				lane[l] += (double)dy[j + l] * (x[j + l] - mean);
		for (int l = 0; j + l < b->s; l++)
			lane[l] += (double)dy[j + l] * (x[j + l] - mean);
		sum += plane;
		for (int l = 0; l < LANES; l++)
			dot += lane[l];
	}
	*sum_out = sum;
	*dot_out = dot;
}

static void S(bn_grad_planes)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct bn_kernel *b = (struct bn_kernel *)k;
	double n = (double)(b->n * b->s);
	bool batch = b->d.dir == DLB_BN_GRAD;

	for (int64_t c = 0; c < b->c; c++) {
		struct bn_grad_sums sums = { .n = n };
		double invstd = S(bn_invstd)(b, r, c);
		T mean = ((const T *)r->in[3])[c], scale, s, d;

		if (b->d.half == DLB_BN_REST) {
			sums = bn_get_grad_sums(b, r->in[5 + b->d.relu], c);
		} else {
			S(bn_grad_sums_planes)(b, r, c, &sums.sum, &sums.dot);
			sums.own_sum = sums.sum, sums.own_dot = sums.dot;
		}
		if (b->d.half == DLB_BN_SUMS) {
			bn_set_grad_sums(b, r->out[0], c, sums.n, sums.sum, sums.dot);
			continue;
		}
		S(bn_grad_parameters)(b, r, c, sums.own_sum, sums.own_dot);
		scale = (T)(invstd * ((const T *)r->in[2])[c]);
		s = (T)(batch ? sums.sum / sums.n : 0);
		d = (T)(batch ? sums.dot * invstd * invstd / sums.n : 0);
		for (int64_t i = 0; i < b->n && r->out[0]; i++) {
			int64_t at = (i * b->c + c) * b->s;
			const T *dy = (const T *)r->in[0] + at, *x = (const T *)r->in[1] + at;
			const T *y = b->d.relu ? (const T *)r->in[5] + at : NULL;
			T *dx = (T *)r->out[0] + at;

#pragma omp simd
			for (int64_t j = 0; j < b->s; j++)
				dx[j] = scale * ((y && !(y[j] > 0) ? 0 : dy[j]) - s - (x[j] - mean) * d);
		}
	}
}
#endif
