/* Sums of listed elements along each dimension. Lists of an element are walked by one thread in the order
 * that struct dlb_taps_desc gives, so no atomics are needed. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/taps.h"
}

/* The lists of an element of y: taps from first[l] on, n[l] of them; total: combinations. base: the offset in
 * x by the dimensions without lists. */
struct lists { int64_t first[DLB_MAX_DIMS], n[DLB_MAX_DIMS], total, base; };

static __device__ inline lists lists_of(const struct cuda_taps &a, int64_t i)
{
	const int64_t *table = (const int64_t *)a.p.in[2];
	lists s = {};

	s.total = 1;
	for (int d = a.n_dims - 1; d >= 0; d--) {
		const int l = a.list[d];
		int64_t rest, pos;

		divide(i, a.dim[d], &rest, &pos);
		i = rest;
		if (l < 0) {
			s.base += pos * a.stride[d];
			continue;
		}
		s.first[l] = pos ? table[a.end_at[l] + pos - 1] : 0;
		s.n[l] = table[a.end_at[l] + pos] - s.first[l];
		s.total *= s.n[l];
	}
	return s;
}

/* Position and weight of combination c of the taps; those of the last list vary fastest. */
static __device__ inline struct dlb_tap combined(const struct cuda_taps &a, const lists &s, int64_t c)
{
	const struct dlb_tap *table = (const struct dlb_tap *)a.p.in[2];
	struct dlb_tap t = { s.base, 1 };

	for (int l = a.n_lists - 1; l >= 0; l--) {
		int64_t rest, i;

		divide(c, s.n[l], &rest, &i);
		const struct dlb_tap one = table[a.tap_at[l] + s.first[l] + i];

		c = rest;
		t.from += one.from;
		t.w *= one.w;
	}
	return t;
}

template <typename T> static __device__ void move(const struct cuda_taps &a)
{
	const T *x = (const T *)a.p.in[0], *value = (const T *)a.p.in[1];
	T *y = (T *)a.p.out[0];

	for (EACH(i, a.count)) {
		const lists s = lists_of(a, i);

		y[i] = s.total ? x[combined(a, s, 0).from] : value ? *value : (T)0;
	}
}

template <typename X, typename Y, typename S> static __device__ void sum(const struct cuda_taps &a)
{
	const X *x = (const X *)a.p.in[0];
	const Y *value = (const Y *)a.p.in[1];
	Y *y = (Y *)a.p.out[0];

	for (EACH(i, a.count)) {
		const lists s = lists_of(a, i);
		S total = 0;

		for (int64_t c = 0; c < s.total; c++) {
			const struct dlb_tap t = combined(a, s, c);

			total += (S)t.w * (S)x[t.from];
		}
		y[i] = s.total ? (Y)total : value ? *value : (Y)0;
	}
}

KERNEL(taps_move_1, cuda_taps) { move<uint8_t>(a); }
KERNEL(taps_move_2, cuda_taps) { move<uint16_t>(a); }
KERNEL(taps_move_4, cuda_taps) { move<uint32_t>(a); }
KERNEL(taps_move_8, cuda_taps) { move<uint64_t>(a); }
KERNEL(taps_f32_f32_f32, cuda_taps) { sum<float, float, float>(a); }
KERNEL(taps_f32_f32_f64, cuda_taps) { sum<float, float, double>(a); }
KERNEL(taps_f32_f64_f64, cuda_taps) { sum<float, double, double>(a); }
KERNEL(taps_f64_f32_f64, cuda_taps) { sum<double, float, double>(a); }
KERNEL(taps_f64_f64_f64, cuda_taps) { sum<double, double, double>(a); }
