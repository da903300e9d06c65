/* Products with a bias of each column, which cuBLASLt adds before it writes a sum:
 *     y (m, n) = alpha op(a) op(w) + bias (n)
 * Sums are f32, and y is rounded once. The bias has the type of y, f32 or bf16. */
#ifndef DLB_TENSOR_CUDA_BIASED_H
#define DLB_TENSOR_CUDA_BIASED_H
#include "tensor/cuda/cuda.h"

struct cuda_biased;
/* p's beta is ignored. DLB_NO_KERNEL: cuBLASLt does not take these types, sizes or number of products. */
int dlb_cuda_biased_new(struct cuda *c, const struct cuda_matmul *p, struct cuda_biased **out,
			struct dlb_error *err);
/* Operands lie at multiples of CUDA_ALIGN bytes. */
void dlb_cuda_biased_run(struct cuda_biased *x, const void *a, const void *w, const void *bias, void *y);
void dlb_cuda_biased_free(struct cuda_biased *x); /* NULL accepted */
#endif
