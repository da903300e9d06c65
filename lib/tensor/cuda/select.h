/* Arguments of select.cu. */
#ifndef DLB_TENSOR_CUDA_SELECT_H
#define DLB_TENSOR_CUDA_SELECT_H
#include "tensor/cuda/kernels.h"

/* Operands are those of struct dlb_select_desc.
 * select_top_TYPE     a block per line, which finds one element after the other
 * select_rank_TYPE    a thread per element of x, which counts those before it
 * select_best_TYPE, select_best_group_TYPE   ARG and HARDMAX: a thread, or `width` of them, per line
 * select_one_hot_BYTES                       a thread per element of y */
struct cuda_select { struct cuda_operands p; struct dlb_select_desc d; int width; };
#endif
