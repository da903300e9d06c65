/* Arguments of places.cu. */
#ifndef DLB_TENSOR_CUDA_PLACES_H
#define DLB_TENSOR_CUDA_PLACES_H
#include "tensor/cuda/kernels.h"

/* places: scratch[o][i] = the address of operand o (out[0], in[0], in[1]) in iteration i of the nest, whose offsets are
 * in elements of `bytes`. */
struct cuda_places {
	struct cuda_operands p;
	struct cuda_nest nest;
	int64_t bytes;
};
#endif
