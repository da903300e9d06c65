/* Arguments of sums.cu. */
#ifndef DLB_TENSOR_CUDA_SUMS_H
#define DLB_TENSOR_CUDA_SUMS_H
#include "tensor/cuda/kernels.h"

/* accumulate_TYPE: out[0][i] += in[0][i].
 * square_sum_TYPE: scratch[1 + p] = sum of squares of part p; then square_sum_join: scratch[0] = their
 * sum. */
struct cuda_sums {
	struct cuda_operands p;
	int64_t count, parts, chunk;
};
#endif
