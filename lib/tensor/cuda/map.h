/* Arguments of map.cu. */
#ifndef DLB_TENSOR_CUDA_MAP_H
#define DLB_TENSOR_CUDA_MAP_H
#include "tensor/cuda/kernels.h"

/* map_TYPE: operand 0 of the nest is out[0], operand i + 1 in[i]. */
struct cuda_map {
	struct cuda_operands p;
	struct cuda_nest nest;
	int fn;				/* enum dlb_map_fn */
	double alpha, beta;
};
#endif
