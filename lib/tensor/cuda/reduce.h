/* Arguments of reduce.cu. */
#ifndef DLB_TENSOR_CUDA_REDUCE_H
#define DLB_TENSOR_CUDA_REDUCE_H
#include "tensor/cuda/columns.h"

/* The elements of one result are cut into `parts` of `chunk`; each part gives a value of 8 bytes in scratch,
 * [part][result], and reduce_join_TYPE joins them. With one part the results are written directly.
 * kept: operands in, out; reduced: operand in. width: threads that share a result.
 *
 * reduce_columns_TYPE of the input, then reduce_columns_join_TYPE of the output: sums and means over the rows of a
 * matrix, with the chunks' sums in scratch. aligned: the input is aligned. */
struct cuda_reduce {
	struct cuda_operands p;
	struct cuda_nest kept, reduced;
	int fn, width;			/* enum dlb_reduce_fn */
	int64_t parts, chunk;
	struct cuda_columns m;
	bool aligned;
};
#endif
