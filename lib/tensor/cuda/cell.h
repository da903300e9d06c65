/* Arguments of cell.cu. */
#ifndef DLB_TENSOR_CUDA_CELL_H
#define DLB_TENSOR_CUDA_CELL_H
#include "tensor/cuda/kernels.h"

/* cell_TYPE: a thread per unit. Operands are those of struct dlb_cell_desc. */
struct cuda_cell {
	struct cuda_operands p;
	struct dlb_cell_desc d;
};
#endif
