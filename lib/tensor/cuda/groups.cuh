/* Joins among the threads of a block that share a column, beside group_join (device.cuh) for those that share a
 * row. `wide`: a power of two up to CUDA_THREADS. All threads of the block call these together. */
#ifndef DLB_TENSOR_CUDA_GROUPS_CUH
#define DLB_TENSOR_CUDA_GROUPS_CUH
#include "tensor/cuda/device.cuh"

/* Joins V values of each thread among the threads with the same threadIdx.x % wide (the lanes of a column), in
 * the order of a tree; the results are those of the threads [0, wide). */
template <int V, typename T, typename Join>
static __device__ inline void column_joins(T mine[V], int wide, Join join)
{
	__shared__ T part[V][CUDA_THREADS / 2];
	const int t = (int)threadIdx.x;

	for (int half = CUDA_THREADS / 2; half >= wide; half /= 2) {
		__syncthreads(); /* the last ones may still be read */
		if (t >= half && t < 2 * half)
			for (int k = 0; k < V; k++)
				part[k][t - half] = mine[k];
		__syncthreads();
		if (t < half)
			for (int k = 0; k < V; k++)
				mine[k] = join(mine[k], part[k][t]);
	}
}

struct two_sums {
	double a, b;
};
struct add_two {
	__device__ two_sums operator()(two_sums x, two_sums y) const { return { x.a + y.a, x.b + y.b }; }
};
#endif
