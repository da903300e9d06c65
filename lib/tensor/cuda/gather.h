/* Arguments of gather.cu. */
#ifndef DLB_TENSOR_CUDA_GATHER_H
#define DLB_TENSOR_CUDA_GATHER_H
#include "tensor/cuda/kernels.h"

/* gather_BYTES       in {x, index}   out {y}, for elements of 1, 2, 4 or 8 bytes
 * gather_grad_TYPE   in {dy, index}  out {dx}, which is zeros before; a row is a run of d.width elements
 * gather_grad_fast_TYPE              the same, added in any order */
struct cuda_gather { struct cuda_operands p; struct dlb_gather_desc d; };
#endif
