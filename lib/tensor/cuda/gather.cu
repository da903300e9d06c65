/* Rows taken from tables, and the sum of their gradients. */
#include "tensor/cuda/ordered.cuh"
extern "C" {
#include "tensor/cuda/gather.h"
}

/* The table's row for index i, negative indices counted from the end; -1: not in this table. */
static __device__ inline int64_t row_of(const struct cuda_gather &a, int64_t i)
{
	int64_t r = a.d.index == DLB_I64 ? ((const int64_t *)a.p.in[1])[i] : ((const int32_t *)a.p.in[1])[i];

	r = r < 0 ? r + a.d.of : r;
	return r >= a.d.first && r - a.d.first < a.d.rows ? r - a.d.first : -1;
}

template <typename T> static __device__ void take(const struct cuda_gather &a)
{
	const T *x = (const T *)a.p.in[0];
	T *y = (T *)a.p.out[0];

	for (EACH(i, a.d.outer * a.d.n_index * a.d.width)) {
		const int64_t column = i % a.d.width, taken = i / a.d.width;
		const int64_t row = row_of(a, taken % a.d.n_index), outer = taken / a.d.n_index;

		y[i] = row < 0 ? (T)0 : x[(outer * a.d.rows + row) * a.d.width + column];
	}
}

/* A block for each index of each table. */
template <typename T> static __device__ void add(const struct cuda_gather &a)
{
	const T *dy = (const T *)a.p.in[0];

	for (EACH_ROW(i, a.d.outer * a.d.n_index)) {
		const int64_t outer = i / a.d.n_index, own = i % a.d.n_index, row = row_of(a, own);
		T *to = (T *)a.p.out[0] + (outer * a.d.rows + row) * a.d.width;

		if (row < 0 || row + a.d.first == a.d.padding)
			continue;
		in_order(own, a.d.n_index, [&](int64_t j) { return row_of(a, j); }, [&](int64_t j) {
			for (EACH_OF_ROW(c, a.d.width))
				to[c] += dy[(outer * a.d.n_index + j) * a.d.width + c];
		});
	}
}

/* In any order: bits differ between runs. */
template <typename T> static __device__ void add_fast(const struct cuda_gather &a)
{
	const T *dy = (const T *)a.p.in[0];
	T *dx = (T *)a.p.out[0];

	for (EACH(i, a.d.outer * a.d.n_index * a.d.width)) {
		const int64_t column = i % a.d.width, taken = i / a.d.width;
		const int64_t row = row_of(a, taken % a.d.n_index), outer = taken / a.d.n_index;

		if (row >= 0 && row + a.d.first != a.d.padding)
			atomicAdd(&dx[(outer * a.d.rows + row) * a.d.width + column], dy[i]);
	}
}

KERNEL(gather_1, cuda_gather) { take<uint8_t>(a); }
KERNEL(gather_2, cuda_gather) { take<uint16_t>(a); }
KERNEL(gather_4, cuda_gather) { take<uint32_t>(a); }
KERNEL(gather_8, cuda_gather) { take<uint64_t>(a); }
BLOCK_KERNEL(gather_grad_f32, cuda_gather) { add<float>(a); }
BLOCK_KERNEL(gather_grad_f64, cuda_gather) { add<double>(a); }
KERNEL(gather_grad_fast_f32, cuda_gather) { add_fast<float>(a); }
KERNEL(gather_grad_fast_f64, cuda_gather) { add_fast<double>(a); }
