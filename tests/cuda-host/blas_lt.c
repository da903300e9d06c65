/* A stand-in for cuBLASLt: products with a bias, by blas.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cublasLt.h"
#include "host.h"
#include "product.h"

/* What the opaque descriptors hold. */
struct layout {
	int type;
	uint64_t rows, cols;
	int64_t ld;
};
struct operation {
	int compute, ta, tb;
	uint32_t epilogue;
	const char *bias;
};
struct preference {
	uint64_t workspace;
	uint32_t align[4];
};
enum { ALIGN = 16, WORKSPACE = 1024 };

static struct layout layout_of(cublasLtMatrixLayout_t l)
{
	struct layout x;

	memcpy(&x, l->data, sizeof x);
	return x;
}

static struct operation operation_of(cublasLtMatmulDesc_t d)
{
	struct operation x;

	memcpy(&x, d->data, sizeof x);
	return x;
}

#define CREATE(p) \
	do { \
		if (cuda_host_fails()) \
			return CUBLAS_STATUS_ALLOC_FAILED; \
		*(p) = calloc(1, sizeof **(p)); \
	} while (0)

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
					cudaDataType scale)
{
	const struct operation x = { .compute = (int)compute };

	CREATE(desc);
	if (scale != CUDA_R_32F)
		cuda_host_abort("cublasLtMatmulDescCreate", "factors are f32");
	memcpy((*desc)->data, &x, sizeof x);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
	free(desc);
	return CUBLAS_STATUS_SUCCESS;
}

/* Copies a value of `bytes` to one of `size`. */
static void take(const char *call, void *to, size_t size, const void *value, size_t bytes)
{
	if (bytes != size)
		cuda_host_abort(call, "the size of a value");
	memcpy(to, value, bytes);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
					      const void *value, size_t bytes)
{
	static const char call[] = "cublasLtMatmulDescSetAttribute";
	struct operation x = operation_of(desc);

	if (cuda_host_fails())
		return CUBLAS_STATUS_INVALID_VALUE;
	switch (name) {
	case CUBLASLT_MATMUL_DESC_TRANSA:
		take(call, &x.ta, sizeof x.ta, value, bytes);
		break;
	case CUBLASLT_MATMUL_DESC_TRANSB:
		take(call, &x.tb, sizeof x.tb, value, bytes);
		break;
	case CUBLASLT_MATMUL_DESC_EPILOGUE:
		take(call, &x.epilogue, sizeof x.epilogue, value, bytes);
		break;
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
		take(call, &x.bias, sizeof x.bias, value, bytes);
		break;
	default:
		cuda_host_abort(call, "an unknown attribute");
	}
	memcpy(desc->data, &x, sizeof x);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
					  uint64_t cols, int64_t ld)
{
	const struct layout x = { (int)type, rows, cols, ld };

	CREATE(layout);
	memcpy((*layout)->data, &x, sizeof x);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
	free(layout);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
	const struct preference x = { 0, { 256, 256, 256, 256 } };

	CREATE(preference);
	memcpy((*preference)->data, &x, sizeof x);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
	free(preference);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
						    cublasLtMatmulPreferenceAttributes_t name,
						    const void *value, size_t bytes)
{
	static const char call[] = "cublasLtMatmulPreferenceSetAttribute";
	struct preference x;

	if (cuda_host_fails())
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(&x, preference->data, sizeof x);
	if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
		take(call, &x.workspace, sizeof x.workspace, value, bytes);
	else if (name >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
		 name <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
		take(call, &x.align[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], sizeof *x.align,
		     value, bytes);
	else
		cuda_host_abort(call, "an unknown attribute");
	memcpy(preference->data, &x, sizeof x);
	return CUBLAS_STATUS_SUCCESS;
}

/* Sets the product of these descriptors; false: they do not fit. */
static bool product_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t la, cublasLtMatrixLayout_t lb,
		       cublasLtMatrixLayout_t lc, struct product *p)
{
	const struct operation x = operation_of(desc);
	const struct layout a = layout_of(la), b = layout_of(lb), c = layout_of(lc);

	*p = (struct product){ .ta = x.ta,
			       .tb = x.tb,
			       .m = (int)c.rows,
			       .n = (int)c.cols,
			       .k = (int)(x.ta ? a.rows : a.cols),
			       .lda = (int)a.ld,
			       .ldb = (int)b.ld,
			       .ldc = (int)c.ld,
			       .batch = 1,
			       .bias = x.bias,
			       .type_a = a.type,
			       .type_b = b.type,
			       .type_c = c.type,
			       .tf32 = x.compute == CUBLAS_COMPUTE_32F_FAST_TF32 };
	return x.epilogue == CUBLASLT_EPILOGUE_BIAS && (x.ta ? a.cols : a.rows) == c.rows &&
	       (x.tb ? b.rows : b.cols) == c.cols && (uint64_t)p->k == (x.tb ? b.cols : b.rows) &&
	       a.ld >= (int64_t)a.rows && b.ld >= (int64_t)b.rows && c.ld >= (int64_t)c.rows &&
	       a.type == b.type && a.type == c.type && a.type != CUDA_R_64F;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
					      cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
					      cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
					      cublasLtMatmulPreference_t preference, int requested,
					      cublasLtMatmulHeuristicResult_t found[], int *n)
{
	struct preference may;
	struct product p;

	(void)handle;
	(void)d;
	if (cuda_host_fails())
		return CUBLAS_STATUS_ALLOC_FAILED;
	memcpy(&may, preference->data, sizeof may);
	*n = 0;
	if (requested < 1)
		return CUBLAS_STATUS_INVALID_VALUE;
	if (!product_of(desc, a, b, c, &p))
		return CUBLAS_STATUS_NOT_SUPPORTED;
	found[0] = (cublasLtMatmulHeuristicResult_t){ .algo = { { WORKSPACE } },
						      .workspaceSize = WORKSPACE,
						      .state = CUBLAS_STATUS_SUCCESS };
	*n = may.workspace >= WORKSPACE;
	for (int i = 0; i < 4; i++)
		*n = *n && may.align[i] >= ALIGN;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
			      const void *a, cublasLtMatrixLayout_t la, const void *b,
			      cublasLtMatrixLayout_t lb, const void *beta, const void *c,
			      cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
			      const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
			      cudaStream_t stream)
{
	static const char call[] = "cublasLtMatmul";
	struct product p;

	(void)handle;
	(void)ld;
	if (cuda_host_fails())
		return CUBLAS_STATUS_EXECUTION_FAILED;
	if (!product_of(desc, la, lb, lc, &p) || !algo || algo->data[0] != WORKSPACE || bytes < WORKSPACE)
		cuda_host_abort(call, "the algorithm is not the heuristics'");
	if (c != d || ((uintptr_t)a | (uintptr_t)b | (uintptr_t)d | (uintptr_t)p.bias) % ALIGN)
		cuda_host_abort(call, "an operand's address");
	cuda_host_must_be_device(call, workspace, bytes);
	p.a = a;
	p.b = b;
	p.c = d;
	p.alpha = *(const float *)alpha;
	p.beta = *(const float *)beta;
	cuda_host_multiply(stream, &p);
	return CUBLAS_STATUS_SUCCESS;
}
