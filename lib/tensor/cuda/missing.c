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
MISSING(softmax)
MISSING(norm)
MISSING(attention)
MISSING(dropout)
MISSING(cell)
MISSING(loss)

int dlb_cuda_batch_norm(struct dlb_backend *b, const struct dlb_bn_desc *d, struct dlb_kernel **k,
			struct dlb_error *err)
{
	(void)b, (void)d, (void)k, (void)err;
	return DLB_NO_KERNEL;
}
