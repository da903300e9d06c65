/* Kernels that this back end does not have yet: a plan keeps their ops on nodes of another back end. */
#include "tensor/cuda/cuda.h"

#define MISSING(name) \
PREPARE(name) \
{ \
	(void)b, (void)d, (void)k, (void)err; \
	return DLB_NO_KERNEL; \
}
MISSING(gemm)
MISSING(product)
MISSING(conv)
MISSING(pool)
MISSING(norm)
MISSING(attention)
MISSING(cell)
