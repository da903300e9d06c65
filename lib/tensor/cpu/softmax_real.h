/* Softmax for type T; included by softmax.c. */
#include "tensor/cpu/sums_real.h"

/* sum exp(x - m); the exponentials are a loop of their own, else they would not be vectorized. */
static double S(exp_sum)(const T *x, T m, int64_t n)
{
	double s = 0;
	T e[256];

	for (int64_t i = 0; i < n; i += 256) {
		int64_t len = n - i < 256 ? n - i : 256;

#pragma omp simd
		for (int64_t j = 0; j < len; j++)
			e[j] = F(exp_down)(x[i + j] - m);
		s += S(sum)(e, len);
	}
	return s;
}

/* inner = 1: rows of `axis` elements. */
static void S(softmax_rows)(const struct dlb_softmax_desc *d, const struct dlb_run *r, int64_t from,
			    int64_t end, void *scratch)
{
	int64_t n = d->axis;

	(void)scratch;
	for (int64_t o = from; o < end && n; o++) {
		const T *x = (const T *)r->in[0] + o * n;
		T *y = (T *)r->out[0] + o * n, m = S(largest)(x, n), f;

		if (d->log) {
			f = (T)log(S(exp_sum)(x, m, n));
#pragma omp simd
			for (int64_t i = 0; i < n; i++)
				y[i] = x[i] - m - f;
		} else {
#pragma omp simd
			for (int64_t i = 0; i < n; i++)
				y[i] = F(exp_down)(x[i] - m);
			f = (T)(1 / S(sum)(y, n));
#pragma omp simd
			for (int64_t i = 0; i < n; i++)
				y[i] *= f;
		}
	}
}

static void S(softmax_rows_grad)(const struct dlb_softmax_desc *d, const struct dlb_run *r, int64_t from,
				 int64_t end, void *scratch)
{
	int64_t n = d->axis;

	(void)scratch;
	for (int64_t o = from; o < end; o++) {
		const T *dy = (const T *)r->in[0] + o * n, *y = (const T *)r->in[1] + o * n;
		T *dx = (T *)r->out[0] + o * n;

		if (d->log) {
			T s = (T)S(sum)(dy, n);

#pragma omp simd
			for (int64_t i = 0; i < n; i++)
				dx[i] = dy[i] - F(exp)(y[i]) * s;
		} else {
			T s = (T)S(dot)(dy, y, n);

#pragma omp simd
			for (int64_t i = 0; i < n; i++)
				dx[i] = y[i] * (dy[i] - s);
		}
	}
}

/* inner > 1: each of `inner` neighbours is a row; scratch holds their maxima and sums. */
static void S(softmax_planes)(const struct dlb_softmax_desc *d, const struct dlb_run *r, int64_t from,
			      int64_t end, void *scratch)
{
	int64_t in = d->inner;
	T *m = scratch, *s = (T *)((char *)scratch + cpu_round64((size_t)in * sizeof(T)));

	for (int64_t o = from; o < end && d->axis; o++) {
		const T *x = (const T *)r->in[0] + o * d->axis * in;
		T *y = (T *)r->out[0] + o * d->axis * in;

		for (int64_t i = 0; i < in; i++) {
			m[i] = x[i];
			s[i] = 0;
		}
		for (int64_t a = 0; a < d->axis; a++)
#pragma omp simd
			for (int64_t i = 0; i < in; i++) {
				T v = x[a * in + i], w = m[i];

				m[i] = (v > w || v != v) ? v : w;
			}
		for (int64_t a = 0; a < d->axis; a++)
#pragma omp simd
			for (int64_t i = 0; i < in; i++) {
				T v = x[a * in + i] - m[i], e = F(exp_down)(v);

				s[i] += e;
				y[a * in + i] = d->log ? v : e;
			}
		for (int64_t i = 0; i < in; i++)
			s[i] = d->log ? F(log)(s[i]) : 1 / s[i];
		for (int64_t a = 0; a < d->axis; a++)
#pragma omp simd
			for (int64_t i = 0; i < in; i++) {
				T v = y[a * in + i];

				y[a * in + i] = d->log ? v - s[i] : v * s[i];
			}
	}
}

static void S(softmax_planes_grad)(const struct dlb_softmax_desc *d, const struct dlb_run *r, int64_t from,
				   int64_t end, void *scratch)
{
	int64_t in = d->inner;
	T *s = scratch;

	for (int64_t o = from; o < end; o++) {
		const T *dy = (const T *)r->in[0] + o * d->axis * in,
			*y = (const T *)r->in[1] + o * d->axis * in;
		T *dx = (T *)r->out[0] + o * d->axis * in;

		for (int64_t i = 0; i < in; i++)
			s[i] = 0;
		for (int64_t a = 0; a < d->axis; a++)
#pragma omp simd
			for (int64_t i = 0; i < in; i++)
				s[i] += d->log ? dy[a * in + i] : dy[a * in + i] * y[a * in + i];
		for (int64_t a = 0; a < d->axis; a++)
#pragma omp simd
			for (int64_t i = 0; i < in; i++) {
				T g = dy[a * in + i], v = y[a * in + i];

				dx[a * in + i] = d->log ? g - F(exp)(v) * s[i] : v * (g - s[i]);
			}
	}
}
