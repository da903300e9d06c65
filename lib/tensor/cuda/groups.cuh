/* Joins among the threads of a block that share a column, beside group_join (device.cuh) for those that share a
 * row. `wide`: a power of two up to CUDA_THREADS. All threads of the block call these together. */
#ifndef DLB_TENSOR_CUDA_GROUPS_CUH
#define DLB_TENSOR_CUDA_GROUPS_CUH
#include "tensor/cuda/device.cuh"

/* Among the threads with the same threadIdx.x % wide (the lanes of one column). */
template <typename T, typename Join> static __device__ inline T column_join(T mine, int wide, Join join)
{
	__shared__ T part[CUDA_THREADS];
	const int t = (int)threadIdx.x;

	__syncthreads(); /* the last result may still be read */
	part[t] = mine;
	for (int half = CUDA_THREADS / 2; half >= wide; half /= 2) {
		__syncthreads();
		if (t < half)
			part[t] = join(part[t], part[t + half]);
	}
	__syncthreads();
	return part[t % wide];
}

struct two_sums {
	double a, b;
};
struct add_two {
	__device__ two_sums operator()(two_sums x, two_sums y) const { return { x.a + y.a, x.b + y.b }; }
};

/* i / by; 32 bits are faster. Neither is negative. */
static __device__ inline int64_t quotient(int64_t i, int64_t by)
{
	return (uint64_t)(i | by) <= UINT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)by) : i / by;
}

/* Takes the last index of several from *i: returns *i % n and divides *i by n. */
static __device__ inline int64_t split(int64_t *i, int64_t n)
{
	const int64_t q = quotient(*i, n), r = *i - q * n;

	*i = q;
	return r;
}
#endif
