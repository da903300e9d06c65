/* Elements taken from a table, or put into it, by indices. Pairs that name the same element are applied in their
 * order: along an axis by one thread, which walks its line; for tuples of indices by the block of the first
 * such pair. */
#include "tensor/cuda/ordered.cuh"
extern "C" {
#include "tensor/cuda/index.h"
}

static __device__ inline int64_t number(const struct cuda_index &a, int64_t i, int64_t n)
{
	int64_t r = a.d.index == DLB_I64 ? ((const int64_t *)a.p.in[1])[i] : ((const int32_t *)a.p.in[1])[i];

	r = r < 0 ? r + n : r;
	return r >= 0 && r < n ? r : -1;
}

/* The first element of x that pair p names; -1: out of range. */
static __device__ int64_t element(const struct cuda_index &a, int64_t p)
{
	const struct dlb_index_desc &d = a.d;
	int64_t where = 0, step = 1, rest = p;

	if (d.nd) {
		int64_t batches = 1;

		for (int k = 0; k < d.batch; k++)
			batches *= d.at.dim[k];
		where = p / (a.pairs / batches);
		for (int k = 0; k < d.depth; k++) {
			const int64_t n = d.x.dim[d.batch + k], i = number(a, p * d.depth + k, n);

			if (i < 0)
				return -1;
			where = where * n + i;
		}
		return where * d.width;
	}
	for (int k = d.x.n_dims - 1; k >= 0; k--) {
		int64_t i = rest % d.at.dim[k];

		rest /= d.at.dim[k];
		if (k == d.axis)
			i = number(a, p, d.x.dim[k]);
		if (i < 0)
			return -1;
		where += i * step;
		step *= d.x.dim[k];
	}
	return where;
}

template <typename T> static __device__ void take(const struct cuda_index &a)
{
	const T *x = (const T *)a.p.in[0];
	T *y = (T *)a.p.out[0];

	for (EACH(i, a.pairs * a.d.width)) {
		const int64_t e = element(a, i / a.d.width);

		y[i] = e < 0 ? (T)0 : x[e + i % a.d.width];
	}
}

/* ---- ways to combine an element with an update; sums and products of integers wrap around ---- */
static __device__ inline float added(float a, float b) { return a + b; }
static __device__ inline double added(double a, double b) { return a + b; }
static __device__ inline int32_t added(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
static __device__ inline int64_t added(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static __device__ inline float multiplied(float a, float b) { return a * b; }
static __device__ inline double multiplied(double a, double b) { return a * b; }
static __device__ inline int32_t multiplied(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
static __device__ inline int64_t multiplied(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

struct replace { template <typename T> __device__ T operator()(int, T, T update) const { return update; } };
struct combine {
	template <typename T> __device__ T operator()(int how, T old, T update) const
	{
		switch (how) {
		case DLB_INDEX_ADD: return added(old, update);
		case DLB_INDEX_MULTIPLY: return multiplied(old, update);
		case DLB_INDEX_MIN: return old < update || old != old ? old : update;
		case DLB_INDEX_MAX: return old > update || old != old ? old : update;
		}
		return update;
	}
};

template <typename T, typename How> static __device__ void put_lines(const struct cuda_index &a, How how)
{
	const T *updates = (const T *)a.p.in[0];
	T *y = (T *)a.p.out[0];
	const int64_t length = a.d.at.dim[a.d.axis];

	for (EACH(line, a.lines))
		for (int64_t i = 0; i < length; i++) {
			const int64_t p = (line / a.inner * length + i) * a.inner + line % a.inner, e = element(a, p);

			if (e >= 0)
				y[e] = how(a.d.how, y[e], a.d.zeros ? (T)0 : updates[p]);
		}
}

template <typename T, typename How> static __device__ void put_tuples(const struct cuda_index &a, How how)
{
	const T *updates = (const T *)a.p.in[0];

	for (EACH_ROW(own, a.pairs)) {
		const int64_t e = element(a, own);
		T *y = (T *)a.p.out[0] + e;

		if (e < 0)
			continue;
		in_order(own, a.pairs, [&](int64_t p) { return element(a, p); }, [&](int64_t p) {
			for (EACH_OF_ROW(j, a.d.width))
				y[j] = how(a.d.how, y[j], a.d.zeros ? (T)0 : updates[p * a.d.width + j]);
		});
	}
}

#define BY_BYTES(T, bytes) \
KERNEL(index_take_##bytes, cuda_index) { take<T>(a); } \
KERNEL(index_put_##bytes, cuda_index) { put_lines<T>(a, replace()); } \
BLOCK_KERNEL(index_put_nd_##bytes, cuda_index) { put_tuples<T>(a, replace()); }
BY_BYTES(uint8_t, 1)
BY_BYTES(uint16_t, 2)
BY_BYTES(uint32_t, 4)
BY_BYTES(uint64_t, 8)
#define BY_TYPE(T, name) \
KERNEL(index_put_##name, cuda_index) { put_lines<T>(a, combine()); } \
BLOCK_KERNEL(index_put_nd_##name, cuda_index) { put_tuples<T>(a, combine()); }
BY_TYPE(float, f32)
BY_TYPE(double, f64)
BY_TYPE(int32_t, i32)
BY_TYPE(int64_t, i64)
