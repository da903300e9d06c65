/* Arguments of loss.cu. */
#ifndef DLB_TENSOR_CUDA_LOSS_H
#define DLB_TENSOR_CUDA_LOSS_H
#include "tensor/cuda/kernels.h"

/* Rows are the n x inner samples; `width` threads share one. Scratch, in doubles:
 *   forward   losses of the rows, then their weights; loss_sum_TYPE adds them
 *   backward  the divisor of the gradient and the sum of all weights, by loss_divisor_TYPE */
struct cuda_loss {
	struct cuda_operands p;
	int64_t first, n, classes, inner, ignore;
	double smoothing;
	int n_parts, reduction;		/* enum dlb_reduction */
	int width;
	bool softmax, has_weight, has_ignore, label_is_i64;
};
#endif
