/* Sums, and other results that depend on an order, over entries that name the same row: without atomics, in
 * the order of the entries. */
#ifndef DLB_TENSOR_CUDA_ORDERED_CUH
#define DLB_TENSOR_CUDA_ORDERED_CUH
#include "tensor/cuda/device.cuh"

/* The threads of a block call this together, for entry `own` of n entries. key(i) is the row that entry i names.
 * If `own` is the first entry of its row, calls apply(i) in every thread for each entry i of that row, in order;
 * otherwise the block of the first one does. */
template <typename Key, typename Apply>
static __device__ inline void in_order(int64_t own, int64_t n, Key key, Apply apply)
{
	__shared__ bool same[CUDA_THREADS];
	const int64_t row = key(own);
	int earlier = 0;

	for (EACH_OF_ROW(i, own))
		earlier |= key(i) == row;
	if (block_max(earlier))
		return;
	for (int64_t begin = own; begin < n; begin += CUDA_THREADS) {
		const int64_t i = begin + threadIdx.x;

		__syncthreads();
		same[threadIdx.x] = i < n && key(i) == row;
		__syncthreads();
		for (int t = 0; t < CUDA_THREADS; t++)
			if (same[t])
				apply(begin + t);
	}
}
#endif
