/* A product of the stand-ins for cuBLAS and cuBLASLt: columns lie ld numbers apart, products of a batch s. */
#ifndef CUDA_HOST_PRODUCT_H
#define CUDA_HOST_PRODUCT_H
#include <stdbool.h>

#include "cublas_v2.h"

struct product {
	cublasOperation_t ta, tb;
	int m, n, k, lda, ldb, ldc, batch;
	double alpha, beta;
	const char *a, *b;
	char *c;
	const char *bias; /* a number for each row of c, in its type; NULL: none */
	long long sa, sb, sc;
	cudaDataType type_a, type_b, type_c;
	bool tf32;
};
/* Queues it. Aborts if an operand is not in device memory. */
void cuda_host_multiply(cudaStream_t stream, const struct product *p);
#endif
