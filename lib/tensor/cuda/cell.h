/* Arguments of cell.cu. */
#ifndef DLB_TENSOR_CUDA_CELL_H
#define DLB_TENSOR_CUDA_CELL_H
#include "tensor/cuda/kernels.h"

/* cell_TYPE: a thread per unit and sample; with dp, a thread per unit, which loops over the samples. Operands
 * are those of struct dlb_cell_desc. step: the time step. */
struct cuda_cell {
	struct cuda_operands p;
	struct dlb_cell_desc d;
	bool gradient;
	int64_t step;
};
#endif
