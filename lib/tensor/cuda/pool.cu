/* Max and average pooling. A gradient is gathered: each input element adds up the windows that cover it, in
 * the order of the outputs, so no atomics are needed.
 *
 * N: the type of offsets and coordinates, int32_t where all fit. V: neighbouring channels of a thread, which
 * share its window. */
#include <math.h>
#include "tensor/cuda/device.cuh"
#include "tensor/cuda/wide.cuh"
extern "C" {
#include "tensor/cuda/pool.h"
}

/* i / by; neither is negative. Most strides are 1, and need no division. */
static __device__ inline int32_t over(int32_t i, int32_t by)
{
	return by == 1 ? i : (int32_t)((uint32_t)i / (uint32_t)by);
}
static __device__ inline int64_t over(int64_t i, int64_t by) { return by == 1 ? i : quotient(i, by); }

/* Takes the last index of several from *i: returns *i % n and divides *i by n. */
template <typename N> static __device__ inline N take_index(N *i, N n)
{
	const N rest = over(*i, n), r = *i - rest * n;

	*i = rest;
	return r;
}

/* Indices of the first element of a run of the result, and offsets of its sample and channel in x and y. */
template <typename N> struct pool_place {
	N at[POOL_DIMS], plane_x, plane_y;
};
/* The ith run of the result. */
template <typename N, int V> static __device__ inline pool_place<N> place_of(const struct cuda_pool &a, N i)
{
	pool_place<N> p;

	/* if the order of dimensions came from memory, `at` would be in memory too instead of in registers */
	if (a.channels_last)
		p.at[1] = take_index(&i, (N)a.dim[1]) * V;
	for (int j = POOL_DIMS - 1; j > 1; j--)
		p.at[j] = take_index(&i, (N)a.dim[j]);
	if (!a.channels_last)
		p.at[1] = take_index(&i, (N)a.dim[1]);
	p.at[0] = i;
	p.plane_x = p.at[0] * (N)a.x[0] + p.at[1] * (N)a.x[1];
	p.plane_y = p.at[0] * (N)a.y[0] + p.at[1] * (N)a.y[1];
	return p;
}

template <typename N> static __device__ inline N inside(const int64_t stride[POOL_DIMS], const N at[3])
{
	return at[0] * (N)stride[2] + at[1] * (N)stride[3] + at[2] * (N)stride[4];
}

/* Smallest k >= 0 with from + k by >= to. */
template <typename N> static __device__ inline N first_from(N from, N by, N to)
{
	return from >= to ? 0 : over(to - from + by - 1, by);
}

/* Kernel positions [lo, hi) of output coordinate o inside the input; start: the input under position 0. */
template <typename N> struct pool_span {
	N start, lo, hi;
};
template <typename N> static __device__ inline pool_span<N> span_of(const struct cuda_pool &a, int d, N o)
{
	pool_span<N> s;

	s.start = o * (N)a.step[d] - (N)a.pad[d];
	s.lo = first_from<N>(s.start, (N)a.dil[d], 0);
	s.hi = first_from<N>(s.start, (N)a.dil[d], (N)a.in[d]);
	s.hi = s.hi < (N)a.size[d] ? s.hi : (N)a.size[d];
	if (s.lo >= s.hi)
		s.lo = s.hi = 0;
	return s;
}

/* The factor of dimension d in the divisor of an average. */
template <typename N> static __device__ inline double divisor(const struct cuda_pool &a, int d, pool_span<N> s)
{
	N n = s.hi > s.lo ? s.hi - s.lo : 1;

	if (a.include_pad) {
		n = first_from<N>(s.start, (N)a.dil[d], (N)(a.in[d] + a.pad_end[d]));
		n = n < (N)a.size[d] ? n : (N)a.size[d];
	}
	return (double)n;
}

/* The window of output element p: calls visit(offset in x, position in the window) in order. */
template <typename N, typename Visit>
static __device__ inline void visit_window(const struct cuda_pool &a, const pool_place<N> &p,
					   const pool_span<N> s[3], Visit visit)
{
	for (N d = s[0].lo; d < s[0].hi; d++)
		for (N h = s[1].lo; h < s[1].hi; h++) {
			const N x[3] = { s[0].start + d * (N)a.dil[0], s[1].start + h * (N)a.dil[1],
					 s[2].start };
			const N line = p.plane_x + inside(a.x, x), by = (N)(a.dil[2] * a.x[4]);
			const N here = (d * (N)a.size[1] + h) * (N)a.size[2];

			for (N w = s[2].lo; w < s[2].hi; w++)
				visit(line + w * by, here + w);
		}
}

/* NaN wins; the first of equals wins. A window of padding alone gives -inf at position 0. */
template <typename E, typename POS, typename N, int V>
static __device__ void max_forward(const struct cuda_pool &a)
{
	typedef typename computes<E>::type T;
	const E *x = (const E *)a.p.in[0];

	for (EACH(i, a.count)) {
		const pool_place<N> p = place_of<N, V>(a, (N)i);
		const pool_span<N> s[3] = { span_of(a, 0, p.at[2]), span_of(a, 1, p.at[3]),
					    span_of(a, 2, p.at[4]) };
		const bool none = s[0].lo >= s[0].hi || s[1].lo >= s[1].hi || s[2].lo >= s[2].hi;
		const N y = p.plane_y + inside(a.y, p.at + 2);
		const N first = none ? 0 : (s[0].lo * (N)a.size[1] + s[1].lo) * (N)a.size[2] + s[2].lo;
		run<E, V> result;
		run<POS, V> at;
		T most[V];
		N best[V];

		for (int k = 0; k < V; k++) {
			most[k] = (T)-INFINITY;
			best[k] = first;
		}
		visit_window(a, p, s, [&](N from, N here) {
			const run<E, V> v = load_run<V, true>(x + from);

			for (int k = 0; k < V; k++) {
				const T e = load(v.v[k]);
				const bool more = e > most[k] || e != e;

				most[k] = more ? e : most[k];
				best[k] = more ? here : best[k];
			}
		});
		for (int k = 0; k < V; k++) {
			store(&result.v[k], most[k]);
			at.v[k] = (POS)best[k];
		}
		store_run<V, true>((E *)a.p.out[0] + y, result);
		if (a.p.out[1])
			store_run<V, true>((POS *)a.p.out[1] + y, at);
	}
}

template <typename E, typename N, int V> static __device__ void average_forward(const struct cuda_pool &a)
{
	typedef typename computes<E>::type T;
	const E *x = (const E *)a.p.in[0];

	for (EACH(i, a.count)) {
		const pool_place<N> p = place_of<N, V>(a, (N)i);
		const pool_span<N> s[3] = { span_of(a, 0, p.at[2]), span_of(a, 1, p.at[3]),
					    span_of(a, 2, p.at[4]) };
		const T scale = (T)(1 / (divisor(a, 0, s[0]) * divisor(a, 1, s[1]) * divisor(a, 2, s[2])));
		T sum[V] = {};
		run<E, V> y;

		visit_window(a, p, s, [&](N from, N) {
			const run<E, V> v = load_run<V, true>(x + from);

			for (int k = 0; k < V; k++)
				sum[k] += load(v.v[k]);
		});
		for (int k = 0; k < V; k++)
			store(&y.v[k], sum[k] * scale);
		store_run<V, true>((E *)a.p.out[0] + p.plane_y + inside(a.y, p.at + 2), y);
	}
}

/* Output coordinates [lo, hi) whose windows may cover input coordinate x, without regard to dilation. */
template <typename N> struct pool_range {
	N lo, hi;
};
template <typename N> static __device__ inline pool_range<N> range_of(const struct cuda_pool &a, int d, N x)
{
	const N at = x + (N)a.pad[d];
	pool_range<N> r;

	r.lo = first_from<N>(0, (N)a.step[d], at - (N)((a.size[d] - 1) * a.dil[d]));
	r.hi = over(at, (N)a.step[d]) + 1;
	r.hi = r.hi < (N)a.out[d] ? r.hi : (N)a.out[d];
	return r;
}

/* The windows that cover input element p: calls visit(output coordinates, position in the window) in the
 * order of the outputs. o, here: the output coordinates and the position in the window, of the dimensions
 * before d. */
template <int d, typename N, typename Visit>
static __device__ inline void visit_windows(const struct cuda_pool &a, const pool_place<N> &p,
					    const pool_range<N> r[3], N o[3], N here, Visit visit)
{
	N from = p.at[2 + d] + (N)a.pad[d] - r[d].lo * (N)a.step[d];

	for (o[d] = r[d].lo; o[d] < r[d].hi; o[d]++, from -= (N)a.step[d]) {
		if (from < 0)
			continue;
		const N k = over(from, (N)a.dil[d]);

		if (k * (N)a.dil[d] != from)
			continue;
		if constexpr (d == 2)
			visit(o, here * (N)a.size[d] + k);
		else
			visit_windows<d + 1>(a, p, r, o, here * (N)a.size[d] + k, visit);
	}
}
template <typename N, typename Visit>
static __device__ inline void visit_all_windows(const struct cuda_pool &a, const pool_place<N> &p, Visit visit)
{
	const pool_range<N> r[3] = { range_of(a, 0, p.at[2]), range_of(a, 1, p.at[3]), range_of(a, 2, p.at[4]) };
	N o[3];

	visit_windows<0>(a, p, r, o, (N)0, visit);
}

template <typename E, typename POS, typename N, int V>
static __device__ void max_backward(const struct cuda_pool &a)
{
	const E *dy = (const E *)a.p.in[0];
	const POS *pos = (const POS *)a.p.in[1];

	for (EACH(i, a.count)) {
		const pool_place<N> p = place_of<N, V>(a, (N)i);
		typename computes<E>::type sum[V] = {};
		run<E, V> dx;

		visit_all_windows(a, p, [&](const N *to, N here) {
			const N y = p.plane_y + inside(a.y, to);
			const run<POS, V> at = load_run<V, true>(pos + y);
			const run<E, V> v = load_run<V, true>(dy + y);

			for (int k = 0; k < V; k++)
				if ((N)at.v[k] == here)
					sum[k] += load(v.v[k]);
		});
		for (int k = 0; k < V; k++)
			store(&dx.v[k], sum[k]);
		store_run<V, true>((E *)a.p.out[0] + p.plane_x + inside(a.x, p.at + 2), dx);
	}
}

template <typename E, typename N, int V> static __device__ void average_backward(const struct cuda_pool &a)
{
	typedef typename computes<E>::type T;
	const E *dy = (const E *)a.p.in[0];

	for (EACH(i, a.count)) {
		const pool_place<N> p = place_of<N, V>(a, (N)i);
		T sum[V] = {};
		double last = 1;
		T scale = 1;
		run<E, V> dx;

		visit_all_windows(a, p, [&](const N *to, N) {
			const run<E, V> v = load_run<V, true>(dy + p.plane_y + inside(a.y, to));
			double by = 1;

			for (int d = 0; d < 3; d++)
				by *= divisor(a, d, span_of(a, d, to[d]));
			if (by != last) { /* divisions are slow, and most windows have the same divisor */
				scale = (T)(1 / by);
				last = by;
			}
			for (int k = 0; k < V; k++)
				sum[k] += load(v.v[k]) * scale;
		});
		for (int k = 0; k < V; k++)
			store(&dx.v[k], sum[k]);
		store_run<V, true>((E *)a.p.out[0] + p.plane_x + inside(a.x, p.at + 2), dx);
	}
}

/* Separate kernels, since their numbers of registers differ. They give the same bits. */
#define FORMS(stem, f, ...) \
	KERNEL(pool_##stem, cuda_pool) { f<__VA_ARGS__, int32_t, 1>(a); } \
	KERNEL(pool_runs_##stem, cuda_pool) { f<__VA_ARGS__, int32_t, POOL_RUN>(a); } \
	KERNEL(pool_far_##stem, cuda_pool) { f<__VA_ARGS__, int64_t, 1>(a); }
#define POOLS(E, name) \
	FORMS(max_u8_##name, max_forward, E, uint8_t) \
	FORMS(max_i32_##name, max_forward, E, int32_t) \
	FORMS(max_grad_u8_##name, max_backward, E, uint8_t) \
	FORMS(max_grad_i32_##name, max_backward, E, int32_t) \
	FORMS(average_##name, average_forward, E) \
	FORMS(average_grad_##name, average_backward, E)
POOLS(float, f32)
POOLS(double, f64)
POOLS(bf16, bf16)
