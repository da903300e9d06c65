/* Arguments of copy.cu. */
#ifndef DLB_TENSOR_CUDA_COPY_H
#define DLB_TENSOR_CUDA_COPY_H
#include "tensor/cuda/runs.h"

enum { COPY_TILE = 32 };
/* Operands of the nests: out, in. Iterations of `apart` address different elements of out; those of
 * `again` may address one several times, so one thread does them in order.
 * copy_runs_X, copy_tile_X: no `again` loops. copy_runs_X: by runs of `apart`; all others by elements.
 * copy_tile_X: inside `apart` there is a transpose of a x b elements. out is contiguous
 * along b, in along a; the other strides are out_a and in_b. */
struct cuda_copy {
	struct cuda_operands p;
	struct cuda_runs apart;
	struct cuda_nest again;
	int64_t in_offset, out_offset;
	int in, out;			/* enum dlb_dtype */
	bool accumulate;
	int64_t a, b, out_a, in_b;
};
#endif
