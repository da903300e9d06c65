/* The common parts of the arguments of our kernels, for the host's C and the device's code.
 *
 * Every kernel takes one struct by value, at most 4 KB, which begins with its operands. All pointers into device
 * memory are among the operands. The structs are in NAME.h beside NAME.c and NAME.cu. */
#ifndef DLB_TENSOR_CUDA_KERNELS_H
#define DLB_TENSOR_CUDA_KERNELS_H
#include "tensor/backend.h"

/* Most operands; threads of a block. If a kernel's arguments depend on the step, its input CUDA_VALUES_IN is
 * the address at which a replay reads them (CUDA_VALUES in cuda.h); NULL: they are in the struct. */
enum { CUDA_IN = 10, CUDA_OUT = 6, CUDA_THREADS = 256, CUDA_VALUES_IN = CUDA_IN - 1 };
struct cuda_operands {
	const void *in[CUDA_IN];
	void *out[CUDA_OUT];
	void *scratch;
};
/* Loops [0, n_dims) over n_operands with strides in elements, outermost first; count: iterations. */
struct cuda_nest {
	int n_dims, n_operands;
	int64_t count, dim[DLB_MAX_DIMS], stride[4][DLB_MAX_DIMS];
};
#endif
