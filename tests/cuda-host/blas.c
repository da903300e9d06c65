/* A stand-in for cuBLAS: products by OpenBLAS; those of bf16 in plain loops that add in f32. */
#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cublas_v2.h"
#include "host.h"
#include "product.h"

struct cublasContext {
	cudaStream_t stream;
};

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
	if (cuda_host_fails())
		return CUBLAS_STATUS_ALLOC_FAILED;
	*handle = calloc(1, sizeof **handle);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
	free(handle);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
	handle->stream = stream;
	return cuda_host_fails() ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
	(void)handle;
	cuda_host_must_be_device("cublasSetWorkspace", workspace, bytes);
	return cuda_host_fails() ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
	return status == CUBLAS_STATUS_SUCCESS          ? "CUBLAS_STATUS_SUCCESS" :
	       status == CUBLAS_STATUS_ALLOC_FAILED     ? "CUBLAS_STATUS_ALLOC_FAILED" :
	       status == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" :
							  "CUBLAS_STATUS_INVALID_VALUE";
}

static size_t bytes_of(cudaDataType t)
{
	return t == CUDA_R_64F ? 8 : t == CUDA_R_32F ? 4 : 2;
}

static float real_of(const char *p, cudaDataType t, long long i)
{
	uint32_t bits;
	float v;

	if (t == CUDA_R_32F)
		return ((const float *)p)[i];
	bits = (uint32_t)((const uint16_t *)p)[i] << 16;
	memcpy(&v, &bits, sizeof v);
	return v;
}

static void set_real(char *p, cudaDataType t, long long i, float v)
{
	uint32_t bits;

	if (t == CUDA_R_32F) {
		((float *)p)[i] = v;
		return;
	}
	memcpy(&bits, &v, sizeof bits);
	((uint16_t *)p)[i] = v != v ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounded to TF32's 10 bits of fraction, to nearest even, as NVIDIA's matrix units read f32. */
static float tf32_of(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof bits);
	if (isfinite(v))
		bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* Row or column i of an operand: k numbers, each rounded as the product reads it. */
static void read_line(float *line, const char *from, cudaDataType t, long long first, long long stride,
		      long long k, bool tf32)
{
	for (long long l = 0; l < k; l++) {
		const float v = real_of(from, t, first + l * stride);

		line[l] = tf32 ? tf32_of(v) : v;
	}
}

/* n of them; along: ld numbers apart, the numbers of each next to each other. */
static float *read_lines(const char *from, cudaDataType t, long long n, long long k, long long ld, bool along,
			 bool tf32)
{
	float *lines = malloc((size_t)(n * k) * sizeof *lines);

	if (!lines)
		abort();
	for (long long i = 0; i < n; i++)
		read_line(lines + i * k, from, t, along ? i * ld : i, along ? 1 : ld, k, tf32);
	return lines;
}

/* Each sum in order of l. */
static void plain(const struct product *p, const char *a, const char *b, char *c)
{
	float *rows = read_lines(a, p->type_a, p->m, p->k, p->lda, p->ta, p->tf32),
	      *columns = read_lines(b, p->type_b, p->n, p->k, p->ldb, !p->tb, p->tf32);

	for (long long j = 0; j < p->n; j++)
		for (long long i = 0; i < p->m; i++) {
			const float *x = rows + i * p->k, *y = columns + j * p->k;
			float sum = 0;

			for (long long l = 0; l < p->k; l++)
				sum += x[l] * y[l];
			sum *= (float)p->alpha;
			if (p->beta != 0)
				sum += (float)p->beta * real_of(c, p->type_c, i + j * p->ldc);
			if (p->bias)
				sum += real_of(p->bias, p->type_c, i);
			set_real(c, p->type_c, i + j * p->ldc, sum);
		}
	free(rows);
	free(columns);
}

static void run(void *arg)
{
	const struct product *p = arg;
	const enum CBLAS_TRANSPOSE ta = p->ta ? CblasTrans : CblasNoTrans, tb = p->tb ? CblasTrans : CblasNoTrans;

	for (long long i = 0; i < p->batch; i++) {
		const char *a = p->a + i * p->sa * (long long)bytes_of(p->type_a),
			   *b = p->b + i * p->sb * (long long)bytes_of(p->type_b);
		char *c = p->c + i * p->sc * (long long)bytes_of(p->type_c);

		if (p->type_c == CUDA_R_64F)
			cblas_dgemm(CblasColMajor, ta, tb, p->m, p->n, p->k, p->alpha, (const double *)a, p->lda,
				    (const double *)b, p->ldb, p->beta, (double *)c, p->ldc);
		else if (!p->tf32 && !p->bias && p->type_a == CUDA_R_32F && p->type_b == CUDA_R_32F &&
			 p->type_c == CUDA_R_32F)
			cblas_sgemm(CblasColMajor, ta, tb, p->m, p->n, p->k, (float)p->alpha, (const float *)a,
				    p->lda, (const float *)b, p->ldb, (float)p->beta, (float *)c, p->ldc);
		else
			plain(p, a, b, c);
	}
}

/* The extent of a matrix of `rows` x `cols` in memory, columns ld apart. */
static void must_hold(const void *p, cudaDataType t, long long rows, long long cols, int ld, long long stride,
		      int batch)
{
	cuda_host_must_be_device("a product of cuBLAS", p,
				 (size_t)((batch - 1) * stride + (cols - 1) * ld + rows) * bytes_of(t));
}

static void check_operands(const struct product *p)
{
	must_hold(p->a, p->type_a, p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda, p->sa, p->batch);
	must_hold(p->b, p->type_b, p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb, p->sb, p->batch);
	must_hold(p->c, p->type_c, p->m, p->n, p->ldc, p->sc, p->batch);
	if (p->bias)
		must_hold(p->bias, p->type_c, p->m, 1, p->m, 0, 1);
}

void cuda_host_multiply(cudaStream_t stream, const struct product *p)
{
	check_operands(p);
	cuda_host_enqueue(stream, run, p, sizeof *p);
}

/* What both products check; takes the factors. */
static cublasStatus_t take(struct product *p, const void *alpha, const void *beta,
			   cublasComputeType_t compute)
{
	const bool is_double = compute == CUBLAS_COMPUTE_64F;

	if (cuda_host_fails())
		return CUBLAS_STATUS_EXECUTION_FAILED;
	if (p->m < 1 || p->n < 1 || p->k < 1 || p->batch < 1 || p->lda < (p->ta ? p->k : p->m) ||
	    p->ldb < (p->tb ? p->n : p->k) || p->ldc < p->m || is_double != (p->type_c == CUDA_R_64F))
		return CUBLAS_STATUS_INVALID_VALUE;
	p->alpha = is_double ? *(const double *)alpha : *(const float *)alpha;
	p->beta = is_double ? *(const double *)beta : *(const float *)beta;
	p->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
					  int m, int n, int k, const void *alpha, const void *A, cudaDataType Atype,
					  int lda, long long int strideA, const void *B, cudaDataType Btype, int ldb,
					  long long int strideB, const void *beta, void *C, cudaDataType Ctype, int ldc,
					  long long int strideC, int batchCount, cublasComputeType_t computeType,
					  cublasGemmAlgo_t algo)
{
	struct product p = { .ta = transa,
			     .tb = transb,
			     .m = m,
			     .n = n,
			     .k = k,
			     .lda = lda,
			     .ldb = ldb,
			     .ldc = ldc,
			     .batch = batchCount,
			     .a = A,
			     .b = B,
			     .c = C,
			     .sa = strideA,
			     .sb = strideB,
			     .sc = strideC,
			     .type_a = Atype,
			     .type_b = Btype,
			     .type_c = Ctype };
	const cublasStatus_t status = take(&p, alpha, beta, computeType);

	(void)algo;
	if (status == CUBLAS_STATUS_SUCCESS)
		cuda_host_multiply(handle->stream, &p);
	return status;
}

struct batch {
	struct product p;
	const void *const *a, *const *b;
	void *const *c;
	int n;
};

static void run_batch(void *arg)
{
	const struct batch *x = arg;

	for (int i = 0; i < x->n; i++) {
		struct product p = x->p;

		p.a = x->a[i];
		p.b = x->b[i];
		p.c = x->c[i];
		check_operands(&p);
		run(&p);
	}
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
				   int m, int n, int k, const void *alpha, const void *const Aarray[],
				   cudaDataType Atype, int lda, const void *const Barray[],
				   cudaDataType Btype, int ldb, const void *beta, void *const Carray[],
				   cudaDataType Ctype, int ldc, int batchCount,
				   cublasComputeType_t computeType, cublasGemmAlgo_t algo)
{
	static const char call[] = "cublasGemmBatchedEx";
	const size_t bytes = (size_t)batchCount * sizeof(void *);
	struct batch x = { .p = { .ta = transa,
				  .tb = transb,
				  .m = m,
				  .n = n,
				  .k = k,
				  .lda = lda,
				  .ldb = ldb,
				  .ldc = ldc,
				  .batch = 1,
				  .type_a = Atype,
				  .type_b = Btype,
				  .type_c = Ctype },
			   .a = Aarray,
			   .b = Barray,
			   .c = Carray,
			   .n = batchCount };
	const cublasStatus_t status = take(&x.p, alpha, beta, computeType);

	(void)algo;
	if (status != CUBLAS_STATUS_SUCCESS || batchCount < 1)
		return status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_INVALID_VALUE;
	cuda_host_must_be_device(call, Aarray, bytes);
	cuda_host_must_be_device(call, Barray, bytes);
	cuda_host_must_be_device(call, Carray, bytes);
	cuda_host_enqueue(handle->stream, run_batch, &x, sizeof x);
	return CUBLAS_STATUS_SUCCESS;
}
