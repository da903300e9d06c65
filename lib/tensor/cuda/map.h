/* Arguments of map.cu. */
#ifndef DLB_TENSOR_CUDA_MAP_H
#define DLB_TENSOR_CUDA_MAP_H
#include "tensor/cuda/runs.h"

/* map_TYPE: by element; map_FUNCTION_TYPE and, for all other functions, map_runs_TYPE: by runs. Operand 0
 * of the nest is out[0], operand i + 1 in[i]. */
struct cuda_map {
	struct cuda_operands p;
	struct cuda_runs runs;
	int fn;				/* enum dlb_map_fn */
	unsigned narrow; /* map*_bf16: bit o: operand o of the nest is bf16; the others are f32 */
	double alpha, beta;
};
#endif
