/* Arguments of softmax.cu. */
#ifndef DLB_TENSOR_CUDA_SOFTMAX_H
#define DLB_TENSOR_CUDA_SOFTMAX_H
#include "tensor/cuda/kernels.h"

/* Rows are the (outer, inner) pairs: softmax_TYPE gives each a thread, softmax_group_TYPE `width` threads.
 * softmax_row_TYPE, where inner is 1, reads rows once, `width` threads each (row_runs.cuh). */
struct cuda_softmax {
	struct cuda_operands p;
	int64_t outer, axis, inner;
	bool log, backward;
	int width;
};
#endif
