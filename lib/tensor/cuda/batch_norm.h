/* Arguments of batch_norm.cu. */
#ifndef DLB_TENSOR_CUDA_BATCH_NORM_H
#define DLB_TENSOR_CUDA_BATCH_NORM_H
#include "tensor/cuda/columns.h"

/* A run is up to three launches, whose operands are those of struct dlb_bn_desc:
 *     bn_moments_TYPE, bn_grad_sums_TYPE      chunks of the sums of each channel
 *     bn_train_TYPE, bn_infer_TYPE, bn_grad_TYPE   results of channels, coefficients of elements
 *     bn_apply_TYPE, bn_grad_apply_TYPE       elements
 * Scratch: BN_COEFFICIENTS lists of `channels` coefficients with room for doubles, then the chunks. */
enum { BN_COEFFICIENTS = 4, BN_CHUNK = 3 * sizeof(double) };
struct cuda_bn {
	struct cuda_operands p;
	struct cuda_columns m;
	int64_t planes, plane, count; /* planes: of `plane` neighbours in a channel; count: all elements */
	int64_t pieces; /* blocks of the launch over elements, if m.each is more than 1 */
	bool aligned; /* x, dy, y, dx, coefficients and means are aligned */
	int dir, half; /* enum dlb_bn_dir, dlb_bn_half */
	bool relu, unbiased;
	double epsilon, momentum;
};
#endif
