/* Sums of gradients, and the sum of their squares in double. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/sums.h"
}

template <typename T> static __device__ inline void accumulate(const struct cuda_sums &s)
{
	T *to = (T *)s.p.out[0];
	const T *x = (const T *)s.p.in[0];

	for (EACH(i, s.count))
		to[i] += x[i];
}

/* One block sums each part, so that the order depends on the count alone. */
template <typename T> static __device__ inline void square_sum(const struct cuda_sums &s)
{
	for (EACH_ROW(part, s.parts)) {
		const int64_t from = part * s.chunk, n = s.count - from < s.chunk ? s.count - from : s.chunk;
		const T *x = (const T *)s.p.in[0] + from;
		double sum = 0;

		for (EACH_OF_ROW(i, n))
			sum += (double)x[i] * (double)x[i];
		sum = block_sum(sum);
		if (threadIdx.x == 0)
			((double *)s.p.scratch)[1 + part] = sum;
	}
}

KERNEL(accumulate_f32, cuda_sums) { accumulate<float>(a); }
KERNEL(accumulate_f64, cuda_sums) { accumulate<double>(a); }
BLOCK_KERNEL(square_sum_f32, cuda_sums) { square_sum<float>(a); }
BLOCK_KERNEL(square_sum_f64, cuda_sums) { square_sum<double>(a); }
BLOCK_KERNEL(square_sum_join, cuda_sums)
{
	double *scratch = (double *)a.p.scratch;

	for (EACH_ROW(r, 1)) {
		double sum = 0;

		for (EACH_OF_ROW(i, a.parts))
			sum += scratch[1 + i];
		sum = block_sum(sum);
		if (threadIdx.x == 0)
			scratch[r] = sum;
	}
}
