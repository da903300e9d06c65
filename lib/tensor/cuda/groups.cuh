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
#endif
