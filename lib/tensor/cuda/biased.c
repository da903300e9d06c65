/* Products with a bias of each column, by cuBLASLt: see biased.h. */
#include <cublasLt.h>
#include <stdlib.h>

#include "tensor/cuda/biased.h"
#include "util/mem.h"

struct cuda_biased {
	struct cuda *c;
	cublasLtMatmulDesc_t op;
	cublasLtMatrixLayout_t a, w, y;
	cublasLtMatmulAlgo_t algo;
	float alpha;
	size_t workspace;
	cublasStatus_t status; /* of the first call that failed */
};

static cudaDataType type_of(enum dlb_dtype t) { return t == DLB_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

/* A handle of cuBLAS is also one of cuBLASLt. */
static cublasLtHandle_t handle_of(const struct cuda *c) { return (cublasLtHandle_t)c->blas; }

#define SET(kind, of, name, value) \
	cublasLtMatmul##kind##SetAttribute(of, CUBLASLT_MATMUL_##name, &(value), sizeof(value))
#define DONE(x, call) (((x)->status = (call)) == CUBLAS_STATUS_SUCCESS)

/* Makes the layout of a row-major matrix for cuBLASLt, which is column-major. */
static cublasStatus_t make_layout(cublasLtMatrixLayout_t *l, enum dlb_dtype type, bool transposed,
				  int64_t rows, int64_t cols, int64_t ld)
{
	return cublasLtMatrixLayoutCreate(l, type_of(type), (uint64_t)(transposed ? rows : cols),
					  (uint64_t)(transposed ? cols : rows), ld);
}

static bool describe(struct cuda_biased *x, const struct cuda_matmul *p)
{
	const int32_t trans_w = p->trans_w ? CUBLAS_OP_T : CUBLAS_OP_N,
		      trans_a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
	const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
	const void *const bias = (const void *)(uintptr_t)CUDA_ALIGN; /* a placeholder: tells the alignment */

	return DONE(x, cublasLtMatmulDescCreate(&x->op,
						p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
						CUDA_R_32F)) &&
	       DONE(x, SET(Desc, x->op, DESC_TRANSA, trans_w)) &&
	       DONE(x, SET(Desc, x->op, DESC_TRANSB, trans_a)) &&
	       DONE(x, SET(Desc, x->op, DESC_EPILOGUE, epilogue)) &&
	       DONE(x, SET(Desc, x->op, DESC_BIAS_POINTER, bias)) &&
	       DONE(x, make_layout(&x->w, p->type, p->trans_w, p->k, p->n, p->ldw)) &&
	       DONE(x, make_layout(&x->a, p->type, p->trans_a, p->m, p->k, p->lda)) &&
	       DONE(x, make_layout(&x->y, p->y_type, false, p->m, p->n, p->ldy));
}

/* The first algorithm of cuBLASLt's heuristics: the same at each start. */
static bool choose(struct cuda_biased *x)
{
	const uint64_t room = CUDA_BLAS_WORKSPACE;
	const uint32_t align = CUDA_ALIGN; /* excludes algorithms that need more */
	cublasLtMatmulPreference_t may = NULL;
	cublasLtMatmulHeuristicResult_t found;
	int n = 0;
	const bool yes = DONE(x, cublasLtMatmulPreferenceCreate(&may)) &&
			 DONE(x, SET(Preference, may, PREF_MAX_WORKSPACE_BYTES, room)) &&
			 DONE(x, SET(Preference, may, PREF_MIN_ALIGNMENT_A_BYTES, align)) &&
			 DONE(x, SET(Preference, may, PREF_MIN_ALIGNMENT_B_BYTES, align)) &&
			 DONE(x, SET(Preference, may, PREF_MIN_ALIGNMENT_C_BYTES, align)) &&
			 DONE(x, SET(Preference, may, PREF_MIN_ALIGNMENT_D_BYTES, align)) &&
			 DONE(x, cublasLtMatmulAlgoGetHeuristic(handle_of(x->c), x->op, x->w, x->a, x->y,
								x->y, may, 1, &found, &n)) &&
			 n > 0 && DONE(x, found.state);

	if (may)
		cublasLtMatmulPreferenceDestroy(may);
	if (yes) {
		x->algo = found.algo;
		x->workspace = found.workspaceSize;
	}
	return yes;
}

int dlb_cuda_biased_new(struct cuda *c, const struct cuda_matmul *p, struct cuda_biased **out,
			struct dlb_error *err)
{
	struct cuda_biased *x;
	int rc = DLB_NO_KERNEL;

	if ((p->type != DLB_F32 && p->type != DLB_BF16) || p->y_type != p->type || p->batch != 1 || !p->m ||
	    !p->n || !p->k)
		return rc;
	x = dlb_xcalloc(1, sizeof *x);
	x->c = c;
	x->alpha = (float)p->alpha;
	if (describe(x, p) && choose(x)) {
		*out = x;
		return 0;
	}
	if (x->status != CUBLAS_STATUS_SUCCESS && x->status != CUBLAS_STATUS_NOT_SUPPORTED)
		rc = dlb_fail(err, NULL, "device cuda:%d: cannot prepare a product by cuBLASLt: %s",
			      c->device, cublasGetStatusString(x->status));
	dlb_cuda_biased_free(x);
	return rc;
}

void dlb_cuda_biased_free(struct cuda_biased *x)
{
	if (!x)
		return;
	if (x->op)
		cublasLtMatmulDescDestroy(x->op);
	if (x->a)
		cublasLtMatrixLayoutDestroy(x->a);
	if (x->w)
		cublasLtMatrixLayoutDestroy(x->w);
	if (x->y)
		cublasLtMatrixLayoutDestroy(x->y);
	free(x);
}

void dlb_cuda_biased_run(struct cuda_biased *x, const void *a, const void *w, const void *bias, void *y)
{
	const float beta = 0;
	const cublasStatus_t told = SET(Desc, x->op, DESC_BIAS_POINTER, bias);

	dlb_cuda_note_blas(x->c, "cublasLtMatmulDescSetAttribute", told);
	if (told != CUBLAS_STATUS_SUCCESS)
		return;
	dlb_cuda_note_blas(x->c, "cublasLtMatmul",
			   cublasLtMatmul(handle_of(x->c), x->op, &x->alpha, w, x->w, a, x->a, &beta, y, x->y,
					  y, x->y, &x->algo, x->c->blas_workspace, x->workspace,
					  x->c->stream));
}
