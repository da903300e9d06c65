/* Arguments of norm.cu. */
#ifndef DLB_TENSOR_CUDA_NORM_H
#define DLB_TENSOR_CUDA_NORM_H
#include "tensor/cuda/columns.h"

/* norm_TYPE, norm_grad_TYPE: `lanes` threads of a block per row. norm_sums_TYPE, norm_join_TYPE: dscale and
 * dbias, with chunks of sums in scratch. Operands are those of struct dlb_norm_desc. */
struct cuda_norm {
	struct cuda_operands p;
	struct cuda_columns m; /* of the gradient's sums */
	int64_t rows, width, count;
	int64_t channels; /* 0: scale and bias run along the row */
	int64_t row_channels, len; /* channels of a row, and elements of each */
	int lanes, run; /* run: neighbouring elements of a thread, all of one row; 1 if there are channels */
	bool rms, aligned; /* x, y, dy, dx, scale and bias are aligned */
	double epsilon;
};
#endif
