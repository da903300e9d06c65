/* Products by cuBLAS, which is column-major: y = op(a) op(w) in rows is y^T = op(w)^T op(a)^T in columns. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/biased.h"
#include "tensor/cuda/places.h"
#include "util/mem.h"

static cudaDataType type_of(enum dlb_dtype t)
{
	return t == DLB_F64 ? CUDA_R_64F : t == DLB_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasComputeType_t compute_of(const struct cuda_matmul *p)
{
	return p->type == DLB_F64 ? CUBLAS_COMPUTE_64F :
	       p->tf32            ? CUBLAS_COMPUTE_32F_FAST_TF32 :
				    CUBLAS_COMPUTE_32F;
}

void dlb_cuda_matmul(struct cuda *c, const struct cuda_matmul *p, const void *a, const void *w, void *y)
{
	const float alpha = (float)p->alpha, beta = (float)p->beta;
	const bool is_double = p->type == DLB_F64;

	if (!p->m || !p->n || !p->k || !p->batch)
		return;
	dlb_cuda_note_blas(c, "cublasGemmStridedBatchedEx",
			   cublasGemmStridedBatchedEx(c->blas, p->trans_w ? CUBLAS_OP_T : CUBLAS_OP_N,
						      p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)p->n,
						      (int)p->m, (int)p->k,
						      is_double ? (const void *)&p->alpha : &alpha, w,
						      type_of(p->type), (int)p->ldw, p->w_batch, a,
						      type_of(p->type), (int)p->lda, p->a_batch,
						      is_double ? (const void *)&p->beta : &beta, y,
						      type_of(p->y_type), (int)p->ldy, p->y_batch,
						      (int)p->batch, compute_of(p), CUBLAS_GEMM_DEFAULT));
}

void dlb_cuda_matmul_at(struct cuda *c, const struct cuda_matmul *p, const void *const *a,
			const void *const *w, void *const *y, int64_t n)
{
	const float alpha = (float)p->alpha, beta = (float)p->beta;
	const bool is_double = p->type == DLB_F64;

	if (!p->m || !p->n || !p->k || !n)
		return;
	dlb_cuda_note_blas(c, "cublasGemmBatchedEx",
			   cublasGemmBatchedEx(c->blas, p->trans_w ? CUBLAS_OP_T : CUBLAS_OP_N,
					       p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)p->n, (int)p->m,
					       (int)p->k, is_double ? (const void *)&p->alpha : &alpha, w,
					       type_of(p->type), (int)p->ldw, a, type_of(p->type),
					       (int)p->lda, is_double ? (const void *)&p->beta : &beta, y,
					       type_of(p->y_type), (int)p->ldy, (int)n, compute_of(p),
					       CUBLAS_GEMM_DEFAULT));
}

bool dlb_cuda_matmul_fits(const struct cuda_matmul *p)
{
	const int64_t most[] = { p->m, p->n, p->k, p->lda, p->ldw, p->ldy, p->batch };

	for (int i = 0; i < DLB_LEN(most); i++)
		if (most[i] > INT_MAX)
			return false;
	return p->type == DLB_F32 || p->type == DLB_F64 || p->type == DLB_BF16;
}

/* ---- gemm ---- */
/* A copy of an operand by kernel k, in scratch at `at`: a cast, or a copy with padded rows because matrix
 * units read its rows slowly. k NULL: the operand is used as it is. */
struct detour {
	struct dlb_kernel *k;
	size_t at;
};
struct gemm_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_matmul p;
	int64_t n_batch, *a_off, *w_off;	/* [n_batch] offsets, a product each; NULL: a stride */
	struct detour a, w, y; /* a, w: to bf16; y: from the type of the sum */
	struct dlb_kernel *addend;		/* y = beta c, to which the product is added; NULL: none */
	size_t bytes, y_bytes;			/* of an element of a and w, of y */
	struct cuda_biased *biased; /* replaces addend and product; NULL: these are used */
	struct detour bias; /* c, rounded to bf16 */
	void *aligned[4]; /* copies of unaligned a, w, c and y; NULL before the first */
};

/* Returns the operand at p, or its copy in scratch if x makes one. */
static void *cast_in(const struct detour *x, void *p, char *scratch)
{
	void *const in[1] = { p }, *const out[1] = { scratch + x->at };

	if (!x->k)
		return p;
	x->k->run(x->k, &(struct dlb_run){ .in = in, .out = out });
	return out[0];
}

static void multiply(const struct gemm_kernel *g, const void *a, const void *w, void *y)
{
	if (!g->a_off && !g->w_off) {
		dlb_cuda_matmul(g->c, &g->p, a, w, y);
		return;
	}
	for (int64_t b = 0; b < g->n_batch; b++)
		dlb_cuda_matmul(g->c, &g->p,
				(const char *)a + (size_t)(g->a_off ? g->a_off[b] : b * g->p.a_batch) * g->bytes,
				(const char *)w + (size_t)(g->w_off ? g->w_off[b] : b * g->p.w_batch) * g->bytes,
				(char *)y + (size_t)(b * g->p.y_batch) * g->y_bytes);
}

static void biased_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct gemm_kernel *g = (struct gemm_kernel *)k;
	struct cuda *c = g->c;
	const size_t size = g->bytes, y_bytes = (size_t)(g->p.m * g->p.ldy) * size;
	void *const to = g->y.k ? (char *)r->scratch + g->y.at : r->out[0];
	void *const a = dlb_cuda_align(c, &g->aligned[0], cast_in(&g->a, r->in[0], r->scratch),
				       (size_t)(g->p.m * g->p.k) * size, true),
		    *const w = dlb_cuda_align(c, &g->aligned[1], cast_in(&g->w, r->in[1], r->scratch),
					      (size_t)(g->p.k * g->p.n) * size, true),
		    *const bias = dlb_cuda_align(c, &g->aligned[2], cast_in(&g->bias, r->in[2], r->scratch),
						 (size_t)g->p.n * size, true),
		    *const y = dlb_cuda_align(c, &g->aligned[3], to, y_bytes, false);

	if (!a || !w || !bias || !y)
		return;
	dlb_cuda_biased_run(g->biased, a, w, bias, y);
	if (y != to)
		dlb_cuda_note(c, "cudaMemcpyAsync",
			      cudaMemcpyAsync(to, y, y_bytes, cudaMemcpyDeviceToDevice, c->stream));
	if (g->y.k)
		g->y.k->run(g->y.k, &(struct dlb_run){ .in = &to, .out = r->out });
}

static void gemm_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct gemm_kernel *g = (const struct gemm_kernel *)k;
	void *const y[1] = { g->y.k ? (char *)r->scratch + g->y.at : r->out[0] };

	if (g->addend)
		g->addend->run(g->addend, &(struct dlb_run){ .in = r->in + 2, .out = y });
	else if (!g->p.k)
		dlb_cuda_note(g->c, "cudaMemsetAsync",
			      cudaMemsetAsync(y[0], 0, (size_t)(g->n_batch * g->p.y_batch) * g->y_bytes,
					      g->c->stream));
	multiply(g, cast_in(&g->a, r->in[0], r->scratch), cast_in(&g->w, r->in[1], r->scratch), y[0]);
	if (g->y.k)
		g->y.k->run(g->y.k, &(struct dlb_run){ .in = y, .out = r->out });
}

static void gemm_free(struct dlb_kernel *k)
{
	struct gemm_kernel *g = (struct gemm_kernel *)k;

	dlb_kernel_free(g->addend);
	dlb_kernel_free(g->a.k);
	dlb_kernel_free(g->w.k);
	dlb_kernel_free(g->y.k);
	dlb_kernel_free(g->bias.k);
	dlb_cuda_biased_free(g->biased);
	for (int i = 0; i < DLB_LEN(g->aligned); i++)
		if (g->aligned[i])
			cudaFree(g->aligned[i]);
	free(g->a_off);
	free(g->w_off);
	free(g);
}

static int64_t *copy_offsets(const int64_t *off, int64_t n)
{
	int64_t *p = off ? dlb_xcalloc((size_t)n + 1, sizeof *p) : NULL;

	if (off && n)
		memcpy(p, off, (size_t)n * sizeof *p);
	return p;
}

/* Elements of an operand of n matrices of `size` elements. */
static int64_t extent(int64_t size, int64_t batch, const int64_t *off, int64_t n)
{
	int64_t most = n > 0 ? (n - 1) * batch : 0;

	for (int64_t i = 0; off && i < n; i++)
		most = i && most > off[i] ? most : off[i];
	return n > 0 ? most + size : 0;
}

/* ---- rows that do not begin at multiples of 16 bytes ---- */
/* The fastest kernels of bf16 read and write 16 bytes at a time, so rows of other lengths are several times slower
 * (cuBLAS 13). An operand with such rows is copied where its elements are used often enough to pay for that. */
enum { PIECE = 8, LEAST_USES = 256, LEAST_ELEMENTS = 1 << 16 };

static int64_t padded(int64_t ld) { return (ld + PIECE - 1) / PIECE * PIECE; }

/* The operand's row length, padded if that pays. Each element is used `uses` times. */
static int64_t row_length(const struct dlb_gemm_desc *d, int64_t rows, int64_t ld, int64_t uses)
{
	const bool pays = d->dtype == DLB_BF16 && d->n_batch == 1 && !d->a_off && !d->w_off &&
			  uses >= LEAST_USES && rows * ld >= LEAST_ELEMENTS;

	return pays ? padded(ld) : ld;
}

/* Pads the rows of p. A y that is computed in f32 first is not padded. */
static void pad(const struct dlb_gemm_desc *d, struct cuda_matmul *p)
{
	p->lda = row_length(d, d->trans_a ? d->k : d->m, p->lda, d->n);
	p->ldw = row_length(d, d->trans_w ? d->n : d->k, p->ldw, d->m);
	if (p->y_type == DLB_BF16)
		p->ldy = row_length(d, d->m, p->ldy, d->k);
}

/* Makes x a copy of rows to rows of bf16, through scratch for
 * `kept` elements. */
static int make_rows(struct dlb_backend *b, struct gemm_kernel *g, struct detour *x,
		     const struct cuda_row_copy *d, int64_t kept, struct dlb_error *err)
{
	x->at = g->k.scratch_bytes;
	g->k.scratch_bytes += ((size_t)kept * dlb_dtype_bytes(DLB_BF16) + 255) & ~(size_t)255;
	return dlb_cuda_rows(b, d, &x->k, err);
}

/* Makes x a copy of `count` elements from f32 to bf16, with scratch for the side of type `kept`. */
static int make_cast(struct dlb_backend *b, struct gemm_kernel *g, struct detour *x, int64_t count,
		     enum dlb_dtype kept, struct dlb_error *err)
{
	x->at = g->k.scratch_bytes;
	g->k.scratch_bytes += ((size_t)count * dlb_dtype_bytes(kept) + 255) & ~(size_t)255;
	return dlb_cuda_cast(b, count, DLB_F32, DLB_BF16, &x->k, err);
}

/* y = beta c, broadcast, in the type of the sum. */
static int make_addend(struct dlb_backend *b, const struct dlb_gemm_desc *d, enum dlb_dtype type,
		       struct dlb_kernel **k, struct dlb_error *err)
{
	const struct dlb_map_desc map = {
		.fn = DLB_MAP_linear,
		.n_in = 1,
		.in = { { .dtype = type, .n_dims = 2, .dim = { d->c_row ? d->m : 1, d->c_col ? d->n : 1 } } },
		.out = { .dtype = type, .n_dims = 3, .dim = { d->n_batch, d->m, d->n } },
		.alpha = d->beta,
	};

	return dlb_cuda_map(b, &map, k, err);
}

/* The parts around the product: casts of f32 operands of a product of bf16, and c, which is added in f32. */
static int make_parts(struct dlb_backend *b, const struct dlb_gemm_desc *d, struct gemm_kernel *g,
		      struct dlb_error *err)
{
	const bool is_bf16 = d->dtype == DLB_BF16, rounds = is_bf16 && !d->y_f32 && d->has_c && !g->biased;
	const int64_t a_ld = d->trans_a ? d->m : d->k, a_rows = d->trans_a ? d->k : d->m,
		      w_ld = d->trans_w ? d->k : d->n, w_rows = d->trans_w ? d->n : d->k;
	int rc = 0;

	if (g->p.lda != a_ld)
		rc = make_rows(b, g, &g->a,
			       &(struct cuda_row_copy){ d->a_f32 ? DLB_F32 : DLB_BF16, a_rows, a_ld, a_ld,
							g->p.lda },
			       a_rows * g->p.lda, err);
	else if (is_bf16 && d->a_f32)
		rc = make_cast(b, g, &g->a, extent(d->m * d->k, d->a_batch, d->a_off, d->n_batch), DLB_BF16, err);
	if (!rc && g->p.ldw != w_ld)
		rc = make_rows(b, g, &g->w,
			       &(struct cuda_row_copy){ d->w_f32 ? DLB_F32 : DLB_BF16, w_rows, w_ld, w_ld,
							g->p.ldw },
			       w_rows * g->p.ldw, err);
	else if (!rc && is_bf16 && d->w_f32)
		rc = make_cast(b, g, &g->w, extent(d->k * d->n, d->w_batch, d->w_off, d->n_batch), DLB_BF16, err);
	if (!rc && g->p.ldy != d->n)
		rc = make_rows(b, g, &g->y, &(struct cuda_row_copy){ DLB_BF16, d->m, d->n, g->p.ldy, d->n },
			       d->m * g->p.ldy, err);
	else if (!rc && rounds)
		rc = make_cast(b, g, &g->y, d->n_batch * d->m * d->n, DLB_F32, err);
	if (!rc && is_bf16 && g->biased)
		rc = make_cast(b, g, &g->bias, d->n, DLB_BF16, err);
	if (!rc && d->has_c && !g->biased)
		rc = make_addend(b, d, is_bf16 ? DLB_F32 : d->dtype, &g->addend, err);
	return rc;
}

/* If c is a bias of the columns, cuBLASLt adds it. For a y of bf16, c is rounded to bf16 first. */
static int make_biased(const struct dlb_gemm_desc *d, struct gemm_kernel *g, struct dlb_error *err)
{
	struct cuda_matmul p = g->p;
	int rc;

	if (!d->has_c || d->c_row || !d->c_col || d->beta != 1 || d->n_batch != 1 || d->y_f32 || d->a_off ||
	    d->w_off)
		return 0;
	p.y_type = d->dtype;
	pad(d, &p);
	rc = dlb_cuda_biased_new(g->c, &p, &g->biased, err);
	if (!rc) {
		g->k.run = biased_run;
		g->p = p;
	}
	return rc == DLB_NO_KERNEL ? 0 : rc;
}

PREPARE(gemm)
{
	const bool is_bf16 = d->dtype == DLB_BF16;
	struct gemm_kernel *g;
	struct cuda_matmul p = { .type = d->dtype,
				 .tf32 = b->numerics.tf32,
				 .y_type = is_bf16 && (d->y_f32 || d->has_c) ? DLB_F32 : d->dtype,
				 .m = d->m,
				 .n = d->n,
				 .k = d->k,
				 .trans_a = d->trans_a,
				 .trans_w = d->trans_w,
				 .lda = d->trans_a ? d->m : d->k,
				 .ldw = d->trans_w ? d->k : d->n,
				 .ldy = d->n,
				 .batch = d->a_off || d->w_off ? 1 : d->n_batch,
				 .a_batch = d->a_batch,
				 .w_batch = d->w_batch,
				 .y_batch = d->m * d->n,
				 .alpha = d->alpha,
				 .beta = d->has_c ? 1 : 0 };
	int rc;

	if (!dlb_cuda_matmul_fits(&p))
		return DLB_NO_KERNEL;
	pad(d, &p);
	g = dlb_xcalloc(1, sizeof *g);
	g->k = (struct dlb_kernel){ .run = gemm_run, .free = gemm_free, .impl = "cublas" };
	g->c = cuda_of(b);
	g->p = p;
	g->n_batch = d->n_batch;
	g->bytes = dlb_dtype_bytes(d->dtype);
	g->y_bytes = dlb_dtype_bytes(p.y_type);
	rc = make_biased(d, g, err);
	rc = rc ? rc : make_parts(b, d, g, err);
	if (rc) {
		gemm_free(&g->k);
		return rc;
	}
	g->a_off = copy_offsets(d->a_off, d->n_batch);
	g->w_off = copy_offsets(d->w_off, d->n_batch);
	*k = &g->k;
	return 0;
}

/* ---- product: one call of cuBLAS does the last batch dimension, and a loop of calls the dimensions before
 * it. If such calls would be too short to keep a device busy, one call does all, with the address of each
 * matrix ---- */
static const double short_flop = 1e9;
enum { LEAST_CALLS = 4 };

struct product_kernel {
	struct dlb_kernel k;
	struct cuda *c;
	struct cuda_matmul p;
	struct dlb_nest outer;			/* operands y, a, w */
	size_t bytes;
	struct cuda_places places; /* of all batch dimensions */
	cudaKernel_t f;
};

static void product_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct product_kernel *x = (const struct product_kernel *)k;
	const int64_t n = dlb_nest_count(&x->outer, x->outer.n_dims);
	int64_t pos[DLB_MAX_DIMS] = { 0 }, at[DLB_NEST_OPERANDS] = { 0 };

	for (int64_t i = 0; i < n; i++) {
		dlb_cuda_matmul(x->c, &x->p, (const char *)r->in[0] + at[1] * (int64_t)x->bytes,
				(const char *)r->in[1] + at[2] * (int64_t)x->bytes,
				(char *)r->out[0] + at[0] * (int64_t)x->bytes);
		dlb_nest_step(&x->outer, x->outer.n_dims, pos, at);
	}
}

static void product_run_at(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct product_kernel *x = (struct product_kernel *)k;
	const int64_t n = x->places.nest.count;
	void **const place = r->scratch;

	dlb_cuda_operands(&x->places.p, r, 2, 1);
	dlb_cuda_launch(x->c, x->f, &x->places, n);
	dlb_cuda_matmul_at(x->c, &x->p, (const void *const *)(place + n),
			   (const void *const *)(place + 2 * n), place, n);
}

/* Merges the calls into one over all batch dimensions (that of cuBLAS is the last), if they are many and
 * short. */
static int gather_calls(struct product_kernel *x, struct dlb_error *err)
{
	struct dlb_nest all = x->outer;
	const struct cuda_matmul *p = &x->p;
	const double flop = 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batch;
	const int last = all.n_dims;

	if (dlb_nest_count(&x->outer, last) < LEAST_CALLS || flop >= short_flop)
		return 0;
	all.dim[last] = p->batch;
	all.stride[0][last] = p->y_batch;
	all.stride[1][last] = p->a_batch;
	all.stride[2][last] = p->w_batch;
	all.n_dims++;
	x->places = (struct cuda_places){ .nest = dlb_cuda_nest(&all), .bytes = (int64_t)x->bytes };
	x->f = dlb_cuda_find(x->c, "places", err);
	x->k.run = product_run_at;
	x->k.scratch_bytes = 3 * (size_t)x->places.nest.count * sizeof(void *);
	return x->f ? 0 : -1;
}

/* Whether an operand of rows x cols elements lies in memory by columns. *ld: elements between these columns,
 * or between its rows. */
static bool is_transposed(const int64_t *stride, int64_t rows, int64_t cols, int64_t *ld)
{
	const bool transposed = stride[1] != 1 && cols > 1;

	*ld = transposed ? stride[1] : stride[0];
	*ld = *ld < (transposed ? rows : cols) ? (transposed ? rows : cols) : *ld;
	return transposed;
}

PREPARE(product)
{
	const int m = d->n_dims - 2, n = d->n_dims - 1, inner = d->n_dims - 3;
	struct product_kernel *x;
	struct cuda_matmul p = { .type = d->dtype,
				 .tf32 = b->numerics.tf32,
				 .y_type = d->dtype,
				 .m = d->dim[m],
				 .n = d->dim[n],
				 .k = d->k,
				 .batch = d->dim[inner],
				 .a_batch = d->a[inner],
				 .w_batch = d->w[inner],
				 .y_batch = d->y[inner],
				 .alpha = d->alpha };

	p.trans_a = is_transposed(d->a + m, p.m, p.k, &p.lda);
	p.trans_w = is_transposed(d->w + m, p.k, p.n, &p.ldw);
	is_transposed(d->y + m, p.m, p.n, &p.ldy);
	if (!dlb_cuda_matmul_fits(&p) || !p.k)
		return DLB_NO_KERNEL;
	x = dlb_xcalloc(1, sizeof *x);
	x->k = (struct dlb_kernel){ .run = product_run, .free = dlb_cuda_kernel_free, .impl = "cublas" };
	x->c = cuda_of(b);
	x->p = p;
	x->bytes = dlb_dtype_bytes(d->dtype);
	x->outer = (struct dlb_nest){ .n_dims = inner, .n_operands = 3 };
	for (int i = 0; i < inner; i++) {
		x->outer.dim[i] = d->dim[i];
		x->outer.stride[0][i] = d->y[i];
		x->outer.stride[1][i] = d->a[i];
		x->outer.stride[2][i] = d->w[i];
	}
	if (gather_calls(x, err)) {
		free(x);
		return -1;
	}
	*k = &x->k;
	return 0;
}
