/* Arguments of gather.cu. */
#ifndef DLB_TENSOR_CUDA_GATHER_H
#define DLB_TENSOR_CUDA_GATHER_H
#include "tensor/cuda/kernels.h"

/* gather_BYTES       in {x, index}   out {y}, for elements of 1, 2, 4 or 8 bytes
 * gather_grad_TYPE   in {dy, index}  out {dx}, zeroed before; a row is a run of d.width elements
 * gather_grad_fast_TYPE              the same, added in any order
 * gather_grad_sorted_TYPE            the same as gather_grad_TYPE, for many indices, after these four:
 * gather_count, gather_base, gather_list, gather_rank   sort the indices by row; see struct gather_sorted in
 *                                    gather.cu for the scratch, of which the first
 *                                    dlb_cuda_gather_zeroed bytes are zeroed before
 * aligned: rows of dy and dx begin at multiples of 16 bytes. */
struct cuda_gather {
	struct cuda_operands p;
	struct dlb_gather_desc d;
	bool aligned;
};
static inline size_t dlb_cuda_gather_zeroed(const struct dlb_gather_desc *d)
{
	return (size_t)(d->outer * d->rows + 1) * sizeof(int32_t);
}
static inline size_t dlb_cuda_gather_scratch(const struct dlb_gather_desc *d)
{
	return dlb_cuda_gather_zeroed(d) +
	       (size_t)(d->outer * d->rows + 3 * d->outer * d->n_index) * sizeof(int32_t);
}
#endif
