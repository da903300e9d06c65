/* Softmax for type T; included by softmax.c. */
#include "tensor/cpu/sums_real.h"

/* inner = 1: rows of `axis` elements. */
static void S(softmax_rows)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_softmax_desc *d = &((struct softmax_kernel *)k)->d;
	int64_t n = d->axis;

	for (int64_t o = 0; o < d->outer && n; o++) {
		const T *x = (const T *)r->in[0] + o * n;
		T *y = (T *)r->out[0] + o * n, m = S(largest)(x, n), f;
		double lane[LANES] = { 0 }, s = 0;
		int64_t i = 0;

		for (; i + LANES <= n; i += LANES)
#pragma omp simd
			for (int j = 0; j < LANES; j++) {
				T e = F(exp)(x[i + j] - m);

				y[i + j] = d->log ? x[i + j] : e;
				lane[j] += e;
			}
		for (int j = 0; i + j < n; j++) {
			T e = F(exp)(x[i + j] - m);

			y[i + j] = d->log ? x[i + j] : e;
			lane[j] += e;
		}
		for (int j = 0; j < LANES; j++)
			s += lane[j];
		if (d->log) {
			f = (T)log(s);
#pragma omp simd
			for (i = 0; i < n; i++)
				y[i] = y[i] - m - f;
		} else {
			f = (T)(1 / s);
#pragma omp simd
			for (i = 0; i < n; i++)
				y[i] *= f;
		}
	}
}

static void S(softmax_rows_grad)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_softmax_desc *d = &((struct softmax_kernel *)k)->d;
	int64_t n = d->axis;

	for (int64_t o = 0; o < d->outer; o++) {
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

/* inner > 1: each of `inner` neighbours is a row of its own; scratch keeps their maxima and sums. */
static void S(softmax_planes)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_softmax_desc *d = &((struct softmax_kernel *)k)->d;
	int64_t in = d->inner;
	T *m = r->scratch, *s = (T *)((char *)r->scratch + cpu_round64((size_t)in * sizeof(T)));

	for (int64_t o = 0; o < d->outer && d->axis; o++) {
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
				T v = x[a * in + i] - m[i], e = F(exp)(v);

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

static void S(softmax_planes_grad)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_softmax_desc *d = &((struct softmax_kernel *)k)->d;
	int64_t in = d->inner;
	T *s = r->scratch;

	for (int64_t o = 0; o < d->outer; o++) {
		const T *dy = (const T *)r->in[0] + o * d->axis * in, *y = (const T *)r->in[1] + o * d->axis * in;
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
