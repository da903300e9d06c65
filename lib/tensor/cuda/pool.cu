/* Max and average pooling. A gradient is gathered: each input element adds up the windows that cover it, in
 * the order of the outputs, so nothing adds atomically. */
#include <math.h>
#include "tensor/cuda/device.cuh"
#include "tensor/cuda/groups.cuh"
extern "C" {
#include "tensor/cuda/pool.h"
}

/* Indices of an element of the result, and offsets of its sample and channel in x and y. */
struct pool_place {
	int64_t at[POOL_DIMS], plane_x, plane_y;
};
static __device__ inline pool_place place_of(const struct cuda_pool &a, int64_t i)
{
	pool_place p;

	for (int j = 0; j < POOL_DIMS; j++)
		p.at[a.order[j]] = split(&i, a.dim[a.order[j]]);
	p.plane_x = p.at[0] * a.x[0] + p.at[1] * a.x[1];
	p.plane_y = p.at[0] * a.y[0] + p.at[1] * a.y[1];
	return p;
}

static __device__ inline int64_t inside(const int64_t stride[POOL_DIMS], const int64_t at[3])
{
	return at[0] * stride[2] + at[1] * stride[3] + at[2] * stride[4];
}

/* Smallest k >= 0 with from + k by >= to. */
static __device__ inline int64_t first_from(int64_t from, int64_t by, int64_t to)
{
	return from >= to ? 0 : quotient(to - from + by - 1, by);
}

/* Kernel positions [lo, hi) of output coordinate o inside the input; start: the input under position 0. */
struct pool_span {
	int64_t start, lo, hi;
};
static __device__ inline pool_span span_of(const struct cuda_pool &a, int d, int64_t o)
{
	pool_span s;

	s.start = o * a.step[d] - a.pad[d];
	s.lo = first_from(s.start, a.dil[d], 0);
	s.hi = first_from(s.start, a.dil[d], a.in[d]);
	s.hi = s.hi < a.size[d] ? s.hi : a.size[d];
	if (s.lo >= s.hi)
		s.lo = s.hi = 0;
	return s;
}

/* The factor of dimension d in the divisor of an average. */
static __device__ inline double divisor(const struct cuda_pool &a, int d, pool_span s)
{
	int64_t n = s.hi > s.lo ? s.hi - s.lo : 1;

	if (a.include_pad) {
		n = first_from(s.start, a.dil[d], a.in[d] + a.pad_end[d]);
		n = n < a.size[d] ? n : a.size[d];
	}
	return (double)n;
}

/* The window of output element p: calls visit(offset in x, position in the window) in order. */
template <typename Visit>
static __device__ inline void visit_window(const struct cuda_pool &a, const pool_place &p,
					   const pool_span s[3], Visit visit)
{
	for (int64_t d = s[0].lo; d < s[0].hi; d++)
		for (int64_t h = s[1].lo; h < s[1].hi; h++)
			for (int64_t w = s[2].lo; w < s[2].hi; w++) {
				const int64_t x[3] = { s[0].start + d * a.dil[0], s[1].start + h * a.dil[1],
						       s[2].start + w * a.dil[2] };

				visit(p.plane_x + inside(a.x, x), (d * a.size[1] + h) * a.size[2] + w);
			}
}

/* NaN wins; the first of equals wins. A window of nothing but padding: -inf at position 0. */
template <typename E, typename POS> static __device__ void max_forward(const struct cuda_pool &a)
{
	typedef typename computes<E>::type T;
	const E *x = (const E *)a.p.in[0];

	for (EACH(i, a.count)) {
		const pool_place p = place_of(a, i);
		const pool_span s[3] = { span_of(a, 0, p.at[2]), span_of(a, 1, p.at[3]),
					 span_of(a, 2, p.at[4]) };
		const bool none = s[0].lo >= s[0].hi || s[1].lo >= s[1].hi || s[2].lo >= s[2].hi;
		const int64_t y = p.plane_y + inside(a.y, p.at + 2);
		T most = (T)-INFINITY;
		int64_t at = none ? 0 : (s[0].lo * a.size[1] + s[1].lo) * a.size[2] + s[2].lo;

		visit_window(a, p, s, [&](int64_t from, int64_t here) {
			const T v = load(x[from]);

			if (v > most || v != v) {
				most = v;
				at = here;
			}
		});
		store((E *)a.p.out[0] + y, most);
		if (a.p.out[1])
			((POS *)a.p.out[1])[y] = (POS)at;
	}
}

template <typename E> static __device__ void average_forward(const struct cuda_pool &a)
{
	typedef typename computes<E>::type T;
	const E *x = (const E *)a.p.in[0];

	for (EACH(i, a.count)) {
		const pool_place p = place_of(a, i);
		const pool_span s[3] = { span_of(a, 0, p.at[2]), span_of(a, 1, p.at[3]),
					 span_of(a, 2, p.at[4]) };
		const T scale = (T)(1 / (divisor(a, 0, s[0]) * divisor(a, 1, s[1]) * divisor(a, 2, s[2])));
		T sum = 0;

		visit_window(a, p, s, [&](int64_t from, int64_t) { sum += load(x[from]); });
		store((E *)a.p.out[0] + p.plane_y + inside(a.y, p.at + 2), sum * scale);
	}
}

/* Output coordinates [lo, hi) whose windows may cover input coordinate x, without regard to dilation. */
struct pool_range {
	int64_t lo, hi;
};
static __device__ inline pool_range range_of(const struct cuda_pool &a, int d, int64_t x)
{
	const int64_t at = x + a.pad[d];
	pool_range r;

	r.lo = first_from(0, a.step[d], at - (a.size[d] - 1) * a.dil[d]);
	r.hi = quotient(at, a.step[d]) + 1;
	r.hi = r.hi < a.out[d] ? r.hi : a.out[d];
	return r;
}

/* The windows that cover input element p: calls visit(output coordinates, position in the window) in the
 * order of the outputs. o, here: the coordinates and the position so far, of the dimensions before d. */
template <int d, typename Visit>
static __device__ inline void visit_windows(const struct cuda_pool &a, const pool_place &p, int64_t o[3],
					    int64_t here, Visit visit)
{
	const pool_range r = range_of(a, d, p.at[2 + d]);

	for (o[d] = r.lo; o[d] < r.hi; o[d]++) {
		const int64_t from = p.at[2 + d] + a.pad[d] - o[d] * a.step[d], k = quotient(from, a.dil[d]);

		if (from < 0 || k * a.dil[d] != from)
			continue;
		if constexpr (d == 2)
			visit(o, here * a.size[d] + k);
		else
			visit_windows<d + 1>(a, p, o, here * a.size[d] + k, visit);
	}
}

template <typename E, typename POS> static __device__ void max_backward(const struct cuda_pool &a)
{
	const E *dy = (const E *)a.p.in[0];
	const POS *pos = (const POS *)a.p.in[1];

	for (EACH(i, a.count)) {
		const pool_place p = place_of(a, i);
		typename computes<E>::type sum = 0;
		int64_t o[3];

		visit_windows<0>(a, p, o, 0, [&](const int64_t *to, int64_t here) {
			const int64_t y = p.plane_y + inside(a.y, to);

			if ((int64_t)pos[y] == here)
				sum += load(dy[y]);
		});
		store((E *)a.p.out[0] + p.plane_x + inside(a.x, p.at + 2), sum);
	}
}

template <typename E> static __device__ void average_backward(const struct cuda_pool &a)
{
	typedef typename computes<E>::type T;
	const E *dy = (const E *)a.p.in[0];

	for (EACH(i, a.count)) {
		const pool_place p = place_of(a, i);
		T sum = 0;
		int64_t o[3];

		visit_windows<0>(a, p, o, 0, [&](const int64_t *to, int64_t) {
			double by = 1;

			for (int d = 0; d < 3; d++)
				by *= divisor(a, d, span_of(a, d, to[d]));
			sum += load(dy[p.plane_y + inside(a.y, to)]) * (T)(1 / by);
		});
		store((E *)a.p.out[0] + p.plane_x + inside(a.x, p.at + 2), sum);
	}
}

#define POOLS(E, name) \
	KERNEL(pool_max_u8_##name, cuda_pool) { max_forward<E, uint8_t>(a); } \
	KERNEL(pool_max_i32_##name, cuda_pool) { max_forward<E, int32_t>(a); } \
	KERNEL(pool_max_grad_u8_##name, cuda_pool) { max_backward<E, uint8_t>(a); } \
	KERNEL(pool_max_grad_i32_##name, cuda_pool) { max_backward<E, int32_t>(a); } \
	KERNEL(pool_average_##name, cuda_pool) { average_forward<E>(a); } \
	KERNEL(pool_average_grad_##name, cuda_pool) { average_backward<E>(a); }
POOLS(float, f32)
POOLS(double, f64)
POOLS(bf16, bf16)
