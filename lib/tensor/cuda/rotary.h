/* Arguments of rotary.cu. */
#ifndef DLB_TENSOR_CUDA_ROTARY_H
#define DLB_TENSOR_CUDA_ROTARY_H
#include "tensor/cuda/kernels.h"

/* rotary_TYPE   in {x, cos, sin, ids|NULL}   out {y}: a thread per pair, or element that is copied */
struct cuda_rotary { struct cuda_operands p; struct dlb_rotary_desc d; };
#endif
