/* Sums over all elements of each channel, in a fixed order: blocks sum chunks of neighbouring channels, and
 * a second launch joins the chunks of each channel. Chunks depend on shapes alone. */
#ifndef DLB_TENSOR_CUDA_COLUMNS_H
#define DLB_TENSOR_CUDA_COLUMNS_H
#include "tensor/cuda/kernels.h"

/* Channel c has n planes of s elements: its element e is at ((e / s) * channels + c) * s + e % s. A block
 * of the first launch takes `chunk` elements of `wide` neighbouring channels, CUDA_THREADS / wide threads
 * for each; a block of the second takes `join_wide` channels, CUDA_THREADS / join_wide threads for each. */
struct cuda_columns {
	int64_t channels, s, rows; /* rows = n s */
	int wide, join_wide;
	int64_t groups, chunks, chunk; /* blocks of the first launch: groups * chunks */
	int64_t join_blocks; /* blocks of the second launch */
};
struct cuda_columns dlb_cuda_columns(int64_t n, int64_t channels, int64_t s);
#endif
