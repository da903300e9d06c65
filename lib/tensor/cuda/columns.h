/* Sums over all elements of each channel, in a fixed order: blocks sum chunks of neighbouring channels, and
 * a second launch joins the chunks of each channel. Chunks depend on shapes alone. */
#ifndef DLB_TENSOR_CUDA_COLUMNS_H
#define DLB_TENSOR_CUDA_COLUMNS_H
#include "tensor/cuda/kernels.h"

/* Channel c has n planes of s elements: its element e is at ((e / s) * channels + c) * s + e % s. A block of
 * the first launch takes `chunk` elements of each of wide * each neighbouring channels; CUDA_THREADS / wide
 * threads share a group of `each` channels. A block of the second launch takes `join_wide` channels;
 * CUDA_THREADS / join_wide threads share a channel. */
enum { CUDA_RUN_BYTES = 16 };
struct cuda_columns {
	int64_t channels, s, rows; /* rows = n s */
	int each, wide, join_wide;
	int64_t groups, chunks, chunk; /* blocks of the first launch: groups * chunks */
	int64_t join_blocks; /* blocks of the second launch */
};
/* m.each is `run` (a power of two) if s is 1 and the number of channels is a multiple of it, else 1. */
struct cuda_columns dlb_cuda_columns(int64_t n, int64_t channels, int64_t s, int64_t run);
/* Elements that a thread reads at once. */
static inline int64_t dlb_cuda_run_of(enum dlb_dtype t)
{
	return CUDA_RUN_BYTES / (int64_t)dlb_dtype_bytes(t);
}
/* Whether these operands begin at multiples of CUDA_RUN_BYTES; NULL counts as aligned. */
bool dlb_cuda_aligned(const struct cuda_operands *p, int n_in, int n_out);
#endif
