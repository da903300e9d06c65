/* Arguments of pool.cu. */
#ifndef DLB_TENSOR_CUDA_POOL_H
#define DLB_TENSOR_CUDA_POOL_H
#include "tensor/cuda/kernels.h"

/* pool_max_POS_TYPE, pool_max_grad_POS_TYPE, pool_average_TYPE, pool_average_grad_TYPE: a thread per element of
 * the result, with offsets of 32 bits; pool_far_...: of 64; pool_runs_...: a thread per run of POOL_RUN
 * neighbouring channels, which are innermost, where all operands begin at multiples of 16 bytes. Dimensions of x
 * and y: sample, channel, depth, height, width; missing ones are 1. Operands are those of struct dlb_pool_desc. */
enum { POOL_DIMS = 5, POOL_RUN = 8 };
struct cuda_pool {
	struct cuda_operands p;
	int64_t count; /* elements or runs of the result */
	int64_t dim[POOL_DIMS]; /* of the result; channels in runs */
	bool channels_last;
	int64_t x[POOL_DIMS], y[POOL_DIMS]; /* strides */
	int64_t in[3], out[3], size[3], step[3], pad[3], pad_end[3], dil[3];
	bool include_pad;
};
#endif
