/* Arguments of index.cu. */
#ifndef DLB_TENSOR_CUDA_INDEX_H
#define DLB_TENSOR_CUDA_INDEX_H
#include "tensor/cuda/kernels.h"

/* index_take_BYTES                   in {x, index}        out {y}
 * index_put_BYTES, index_put_TYPE    in {updates, index}  out {y}, which is initialised: a thread for each line
 *                                    along the axis
 * index_put_nd_BYTES, index_put_nd_TYPE  likewise: a block for each pair
 * BYTES: elements are set, whatever their type. */
struct cuda_index { struct cuda_operands p; struct dlb_index_desc d; int64_t pairs, lines, inner; };
#endif
