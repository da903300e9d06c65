/* Arguments of rows.cu. */
#ifndef DLB_TENSOR_CUDA_ROWS_H
#define DLB_TENSOR_CUDA_ROWS_H
#include "tensor/cuda/kernels.h"

enum {
	ROWS_PER_THREAD = 16,
	ROWS_PART = CUDA_THREADS * ROWS_PER_THREAD
}; /* elements of a block's part of a row */

/* rows_bf16, rows_f32_bf16: out[0][r][i] = in[0][r][i], rounded to bf16, for i < n; rows lie in_ld and out_ld
 * elements apart. Rows are cut into `parts` of ROWS_PART. */
struct cuda_rows {
	struct cuda_operands p;
	int64_t rows, n, in_ld, out_ld, parts;
};
#endif
