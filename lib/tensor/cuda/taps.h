/* Arguments of taps.cu. */
#ifndef DLB_TENSOR_CUDA_TAPS_H
#define DLB_TENSOR_CUDA_TAPS_H
#include "tensor/cuda/kernels.h"

/* taps_move_BYTES, taps_IN_OUT_SUM   in {x, value|NULL, table}   out {y}: a thread per element
 * The table, in device memory, has the lists of n_lists dimensions: `end` from end_at[l] on in elements of 8
 * bytes, and the taps from tap_at[l] on in elements of 16 bytes, with positions multiplied by the stride of x.
 * Dimensions of y: size dim; list -1: each index takes one element; neighbours lie stride elements apart in
 * x. */
struct cuda_taps {
	struct cuda_operands p;
	int n_dims, n_lists;
	int list[DLB_MAX_DIMS];
	int64_t count, dim[DLB_MAX_DIMS], stride[DLB_MAX_DIMS], end_at[DLB_MAX_DIMS], tap_at[DLB_MAX_DIMS];
};
#endif
