/* Arguments of copy.cu. */
#ifndef DLB_TENSOR_CUDA_COPY_H
#define DLB_TENSOR_CUDA_COPY_H
#include "tensor/cuda/kernels.h"

enum { COPY_TILE = 32 };
/* Operands of the nests: out, in. Iterations of `apart` address different elements of out; those of
 * `again` may address one several times, so one thread does them in order.
 * copy_tile_BYTES: no `again` loops; inside `apart` there is a transpose of a x b elements. out is contiguous
 * along b, in along a; the other strides are out_a and in_b. */
struct cuda_copy {
	struct cuda_operands p;
	struct cuda_nest apart, again;
	int64_t in_offset, out_offset;
	int in, out;			/* enum dlb_dtype */
	bool accumulate;
	int64_t a, b, out_a, in_b;
};
#endif
