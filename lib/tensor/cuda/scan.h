/* Arguments of scan.cu. */
#ifndef DLB_TENSOR_CUDA_SCAN_H
#define DLB_TENSOR_CUDA_SCAN_H
#include "tensor/cuda/kernels.h"

/* scan_TYPE        in {x}       out {y}: a thread per line
 * scan_line_TYPE   the same: a block per line, for few long lines
 * scan_grad_TYPE   in {dy, x}   out {dx}, scratch: a double per element: PRODUCT_GRAD, OTHERS; a thread
 *                  per line */
struct cuda_scan { struct cuda_operands p; struct dlb_scan_desc d; };
#endif
