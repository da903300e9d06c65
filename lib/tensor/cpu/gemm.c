/* Matrix products: y = alpha op(a) op(w) + beta c.
 *
 * float32 uses oneDNN's matmul; a weight is packed in matmul's preferred layout, by each run (once) or when
 * the run's weight version changes. Batches at irregular offsets use sgemm, one matrix at a time; float64
 * uses OpenBLAS, and so does float32 where it is faster. A plain bias is added by the primitive, or OpenBLAS
 * adds the product to rows of it; another c is added afterwards.
 *
 * bf16 uses the same matmul, which sums in f32. An operand that is f32 in memory is rounded first,
 * a weight when it is packed. Cases that the primitive does not support (batches at irregular
 * offsets, alpha, another c, a processor without bf16 in oneDNN) run in f32: operands are converted
 * first and the result is rounded once. */
#include <cblas.h>
#include <stdlib.h>

#include "tensor/cpu/library.h"
#include "tensor/cpu/narrow.h"

/* Packing moves a weight twice and saves a tenth of the product: not worth it for fewer rows than this. */
enum { PACK_ROWS = 512 };

struct gemm_kernel {
	struct dlb_kernel k;
	struct cpu *c;
	struct dlb_gemm_desc d;
	struct cpu_prim prim;
	struct cpu_packed packed;
	struct cpu_staged a;		/* rounded to bf16 */
	bool bias, after;		/* bias: the product's kernel adds c; after: alpha and c are applied later */
};

void dlb_cpu_sgemm(const struct cpu_matmul *p, const float *a, const float *w, float *y)
{
	if (dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_w ? 'T' : 'N', p->m, p->n, p->k, (float)p->alpha, a,
		       p->lda, w, p->ldw, p->add, y, p->ldy) != dnnl_success)
		dlb_bug("sgemm %d x %d x %d", p->m, p->n, p->k);
}

#define BLAS(name, T, gemm) \
void name(const struct cpu_matmul *p, const T *a, const T *w, T *y) \
{ \
	for (int i = 0; i < p->m; i += DLB_CPU_OPENBLAS_ROWS) \
		gemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans, \
		     p->trans_w ? CblasTrans : CblasNoTrans, \
		     p->m - i < DLB_CPU_OPENBLAS_ROWS ? p->m - i : DLB_CPU_OPENBLAS_ROWS, p->n, p->k, \
		     (T)p->alpha, a + (p->trans_a ? (int64_t)i : (int64_t)i * p->lda), p->lda, w, p->ldw, \
		     p->add, y + (int64_t)i * p->ldy, p->ldy); \
}
BLAS(dlb_cpu_dgemm, double, cblas_dgemm)
BLAS(dlb_cpu_openblas_sgemm, float, cblas_sgemm)

/* y = alpha y + beta c over all batches. */
#define AFTER(T) \
static void after_##T(const struct dlb_gemm_desc *d, T *y, const T *c) \
{ \
	T alpha = (T)d->alpha, beta = (T)d->beta; \
	for (int64_t i = 0; i < d->n_batch * d->m; i++, y += d->n) { \
		const T *row = c ? c + i % d->m * d->c_row : NULL; \
		if (!row) \
			for (int64_t j = 0; j < d->n; j++) \
				y[j] *= alpha; \
		else if (d->c_col == 0) \
			for (int64_t j = 0; j < d->n; j++) \
				y[j] = alpha * y[j] + beta * row[0]; \
		else \
			for (int64_t j = 0; j < d->n; j++) \
				y[j] = alpha * y[j] + beta * row[j * d->c_col]; \
	} \
}
AFTER(float)
AFTER(double)

static void run_dnnl(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct gemm_kernel *g = (struct gemm_kernel *)k;
	const uint64_t version = g->d.w_is_weight ? r->weight_version : 0;
	void *w = dlb_cpu_packed_get(g->c, &g->packed, r->in[1], version, r->scratch);
	void *const ptr[] = { dlb_cpu_stage_in(g->c, &g->a, r->in[0], r->scratch), w, r->out[0],
			      g->bias ? r->in[2] : NULL };

	dlb_cpu_prim_run(g->c, &g->prim, ptr, r->scratch);
	if (g->after)
		after_float(&g->d, r->out[0], g->d.has_c ? r->in[2] : NULL);
}

/* Fills the rows of y with the bias, to which the product is then added. */
static void fill_rows(const struct dlb_gemm_desc *d, void *y, const void *bias)
{
	const size_t row = (size_t)d->n * dlb_dtype_bytes(d->dtype);

	for (int64_t i = 0; i < d->m; i++)
		memcpy((char *)y + (size_t)i * row, bias, row);
}

#define RUN_BLAS(name, T, gemm) \
static void name(struct dlb_kernel *k, const struct dlb_run *r) \
{ \
	const struct gemm_kernel *g = (struct gemm_kernel *)k; \
	const struct dlb_gemm_desc *d = &g->d; \
	const T *a = r->in[0], *w = r->in[1]; \
	T *y = r->out[0]; \
	const struct cpu_matmul p = { .m = (int)d->m, \
				      .n = (int)d->n, \
				      .k = (int)d->k, \
				      .lda = (int)(d->trans_a ? d->m : d->k), \
				      .ldw = (int)(d->trans_w ? d->k : d->n), \
				      .ldy = (int)d->n, \
				      .trans_a = d->trans_a, \
				      .trans_w = d->trans_w, \
				      .add = g->bias, \
				      .alpha = 1 }; \
	if (g->bias) \
		fill_rows(d, y, r->in[2]); \
	for (int64_t b = 0; b < d->n_batch; b++) \
		gemm(&p, a + (d->a_off ? d->a_off[b] : b * d->a_batch), \
		     w + (d->w_off ? d->w_off[b] : b * d->w_batch), y + b * d->m * d->n); \
	if (g->after) \
		after_##T(d, y, d->has_c ? r->in[2] : NULL); \
}
RUN_BLAS(run_blas_float, float, dlb_cpu_sgemm)
RUN_BLAS(run_blas_double, double, dlb_cpu_dgemm)
RUN_BLAS(run_openblas, float, dlb_cpu_openblas_sgemm)

/* Sizes at which OpenBLAS is faster than oneDNN without AVX-512, by products of 16 to 1024 rows, 128 to 3072
 * columns and 256 to 8192 terms on one thread of an AMD Zen (GFLOP/s):
 *   a by columns          65 to 82, oneDNN 33 to 81: it reads columns 4 KB apart at half of the speed
 *   w by rows, far apart  50 to 79, oneDNN 30 to 64: where it reads w in place, and rows are a multiple of 2 KB
 *                         apart
 *   large                 69 to 82, oneDNN 63 to 78: 1024 columns and 512 terms or more
 *   w by columns, long    66 to 83, oneDNN 60 to 82: 1024 terms or more
 * Elsewhere it is slower: 46 to 82, oneDNN 50 to 88. */
static bool openblas_is_faster_at(const struct dlb_gemm_desc *d)
{
	enum { FAR = 512, LEAST_ROWS = 16, COLUMNS = 1024, ROWS = 256, TERMS = 512, LONG = 1024 };
	const bool far = !d->trans_w && d->n % FAR == 0 && d->m >= LEAST_ROWS &&
			 dlb_cpu_dnnl_is_in_place(d->m, d->n);
	const bool large = d->n >= COLUMNS && d->m >= ROWS && d->k >= TERMS;

	return d->trans_a || far || large || (d->trans_w && d->m >= ROWS && d->n >= ROWS && d->k >= LONG);
}

/* OpenBLAS is used only where it knows the processor, and on one thread: its own threads would stand in the
 * way of libgomp's. */
static bool openblas_is_faster(const struct gemm_kernel *g, int n_threads, const_dnnl_primitive_desc_t pd)
{
	const char *impl = NULL;

	if (!openblas_is_faster_at(&g->d) || g->d.n_batch != 1 || g->d.dtype != DLB_F32 || n_threads > 1 ||
	    !dlb_cpu_openblas_is_known())
		return false;
	return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &impl) == dnnl_success &&
	       !strncmp(impl, "gemm:", 5);
}

/* Handles k = 0, where y is beta c or 0, and an empty result. */
static void run_empty(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_gemm_desc *d = &((struct gemm_kernel *)k)->d;
	size_t bytes = (size_t)(d->n_batch * d->m * d->n) * dlb_dtype_bytes(d->dtype);

	if (!bytes)
		return;
	memset(r->out[0], 0, bytes);
	if (d->dtype == DLB_F32)
		after_float(d, r->out[0], d->has_c ? r->in[2] : NULL);
	else
		after_double(d, r->out[0], d->has_c ? r->in[2] : NULL);
}

static void gemm_free(struct dlb_kernel *k)
{
	struct gemm_kernel *g = (struct gemm_kernel *)k;

	dlb_cpu_prim_release(&g->prim);
	dlb_cpu_prim_release(&g->a.move);
	dlb_cpu_packed_release(&g->packed);
	free((void *)g->d.a_off);
	free((void *)g->d.w_off);
	free(g);
}

/* Describes an operand with dimensions {batch, rows, columns} or {rows, columns};
 * a batch stride of 0 broadcasts. */
static void operand(dnnl_memory_desc_t *md, const struct dlb_gemm_desc *d, dnnl_data_type_t type,
		    int64_t rows, int64_t cols, bool trans, int64_t batch)
{
	dnnl_dims_t dims = { batch ? d->n_batch : 1, rows, cols };
	dnnl_dims_t strides = { batch ? batch : rows * cols, trans ? 1 : cols, trans ? rows : 1 };
	int skip = d->n_batch == 1;

	dnnl_memory_desc_init_by_strides(md, 3 - skip, dims + skip, type, strides + skip);
}

static size_t most(size_t a, size_t b)
{
	return a > b ? a : b;
}

static int prepare_dnnl(struct gemm_kernel *g, int n_threads)
{
	const struct dlb_gemm_desc *d = &g->d;
	const dnnl_data_type_t type = d->dtype == DLB_BF16 ? dnnl_bf16 : dnnl_f32;
	dnnl_memory_desc_t a, from, plain, w, y, bias;
	dnnl_dims_t ones = { 1, 1, d->n };
	int skip = d->n_batch == 1, rc;
	dnnl_matmul_desc_t od;
	dnnl_primitive_desc_t pd;

	operand(&from, d, d->a_f32 ? dnnl_f32 : type, d->m, d->k, d->trans_a, d->a_batch);
	operand(&a, d, type, d->m, d->k, d->trans_a, d->a_batch);
	operand(&plain, d, d->w_f32 ? dnnl_f32 : type, d->k, d->n, d->trans_w, d->w_batch);
	operand(&w, d, type, d->k, d->n, d->trans_w, d->w_batch);
	operand(&y, d, d->y_f32 ? dnnl_f32 : type, d->m, d->n, false, d->m * d->n);
	if (d->w_is_weight && d->n_batch == 1 && (d->m >= PACK_ROWS || type != dnnl_f32)) {
		dnnl_dims_t dims = { d->k, d->n };

		dnnl_memory_desc_init_by_tag(&w, 2, dims, type, dnnl_format_tag_any);
	}
	if (g->bias)
		dnnl_memory_desc_init_by_tag(&bias, 3 - skip, ones + skip, dnnl_f32,
					     skip ? dnnl_ab : dnnl_abc);
	if (dnnl_matmul_desc_init(&od, &a, &w, g->bias ? &bias : NULL, &y) != dnnl_success)
		return DLB_NO_KERNEL;
	rc = dlb_cpu_pd(g->c, &od, NULL, &pd);
	if (rc)
		return rc;
	if (openblas_is_faster(g, n_threads, pd)) {
		dnnl_primitive_desc_destroy(pd);
		g->k.run = run_openblas;
		return DLB_NO_KERNEL;
	}
	rc = dlb_cpu_prim(g->c, pd, &g->prim);
	if (!rc) {
		w = *dlb_cpu_md(pd, dnnl_query_weights_md, 0);
		dlb_cpu_prim_arg(g->c, &g->prim, DNNL_ARG_SRC, &a);
		dlb_cpu_prim_arg(g->c, &g->prim, DNNL_ARG_WEIGHTS, &w);
		dlb_cpu_prim_arg(g->c, &g->prim, DNNL_ARG_DST, &y);
		if (g->bias)
			dlb_cpu_prim_arg(g->c, &g->prim, DNNL_ARG_BIAS, &bias);
		rc = dlb_cpu_packed(g->c, &plain, &w, !d->once, &g->packed);
	}
	if (!rc)
		rc = dlb_cpu_staged(g->c, &from, &a, &a, &g->a);
	dnnl_primitive_desc_destroy(pd);
	if (rc) {
		dlb_cpu_prim_release(&g->prim);
		dlb_cpu_packed_release(&g->packed);
		return rc;
	}
	g->k.scratch_bytes = most(g->prim.scratch_bytes,
				  most(g->packed.reorder.scratch_bytes, g->a.move.scratch_bytes));
	if (g->a.move.prim) {
		g->a.at = cpu_round64(g->k.scratch_bytes);
		g->k.scratch_bytes = g->a.at + g->a.bytes;
	}
	if (d->once && g->packed.bytes) {
		g->packed.at = cpu_round64(g->k.scratch_bytes);
		g->k.scratch_bytes = g->packed.at + g->packed.bytes;
	} else {
		g->k.packed_bytes = g->packed.bytes;
	}
	return 0;
}

static const int64_t *copy_offsets(const int64_t *off, int64_t n)
{
	int64_t *p;

	if (!off)
		return NULL;
	p = dlb_xmalloc((size_t)(n > 0 ? n : 1) * sizeof *p);
	memcpy(p, off, (size_t)n * sizeof *p);
	return p;
}

/* Number of elements from the first to the last one read, of an operand of n_batch matrices. */
static int64_t extent(int64_t matrix, int64_t step, const int64_t *off, int64_t n_batch)
{
	int64_t last = (n_batch - 1) * step;

	if (n_batch < 1 || matrix < 1)
		return 0;
	for (int64_t i = 0; off && i < n_batch; i++)
		last = i && off[i] <= last ? last : off[i];
	return last + matrix;
}

static int prepare_f32(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_gemm_desc d = *(const struct dlb_gemm_desc *)ctx;

	(void)rows;
	d.dtype = DLB_F32;
	d.a_f32 = d.w_f32 = d.y_f32 = false;
	return dlb_cpu_gemm(b, &d, k, err);
}

static int bf16_by_f32(struct dlb_backend *b, const struct dlb_gemm_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct narrow_desc n = {
		.rows = 1, .block = 1, .n_in = d->has_c ? 3 : 2, .n_out = 1, .prepare = prepare_f32, .ctx = d
	};

	n.in[0] = (struct narrow_operand){ .dtype = d->a_f32 ? DLB_F32 : DLB_BF16,
		.count = extent(d->m * d->k, d->a_batch, d->a_off, d->n_batch) };
	n.in[1] = (struct narrow_operand){ .dtype = d->w_f32 ? DLB_F32 : DLB_BF16,
		.count = extent(d->k * d->n, d->w_batch, d->w_off, d->n_batch) };
	n.in[2] = (struct narrow_operand){ .dtype = DLB_F32 };
	n.out[0] = (struct narrow_operand){ .dtype = d->y_f32 ? DLB_F32 : DLB_BF16,
					    .count = d->n_batch * d->m * d->n };
	return dlb_cpu_narrow(b, &n, k, err);
}

static void note_libraries(struct gemm_kernel *g, int n_threads)
{
	const struct dlb_gemm_desc *d = &g->d;

	if (g->k.run == run_dnnl || g->k.run == run_blas_float)
		dlb_cpu_dnnl_note(&g->k, g->k.run == run_dnnl && g->prim.has_code, d->m, d->n, d->k,
				  n_threads);
	else if (g->k.run != run_empty)
		g->k.library_bytes[DLB_CPU_OPENBLAS] =
			dlb_cpu_openblas_keeps(d->m, d->n, d->k, dlb_dtype_bytes(d->dtype));
}

int dlb_cpu_gemm(struct dlb_backend *b, const struct dlb_gemm_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	struct gemm_kernel *g;
	bool regular = !d->a_off && !d->w_off, plain_bias, bf16 = d->dtype == DLB_BF16;

	if (d->dtype != DLB_F32 && d->dtype != DLB_F64 && !bf16)
		return DLB_NO_KERNEL;
	if (d->m > INT32_MAX || d->n > INT32_MAX || d->k > INT32_MAX)
		return dlb_fail(err, NULL, "a matrix product of %lld x %lld x %lld is too large",
				(long long)d->m, (long long)d->n, (long long)d->k);
	g = dlb_xcalloc(1, sizeof *g);
	g->c = cpu_of(b);
	g->d = *d;
	g->d.a_off = copy_offsets(d->a_off, d->n_batch);
	g->d.w_off = copy_offsets(d->w_off, d->n_batch);
	if (regular && d->n_batch > 1 && !d->has_c && !d->trans_a && d->w_batch == 0 &&
	    d->a_batch == d->m * d->k && d->m * d->n_batch <= INT32_MAX) {
		g->d.m *= d->n_batch;			/* one weight for all batches: one tall product */
		g->d.n_batch = 1;
	}
	plain_bias = d->has_c && d->alpha == 1 && d->beta == 1 && d->c_row == 0 && d->c_col == 1;
	g->after = d->alpha != 1 || d->has_c;
	g->k = (struct dlb_kernel){ .free = gemm_free, .impl = "blas" };
	g->k.run = d->dtype == DLB_F32 ? run_blas_float : run_blas_double;
	if (d->m == 0 || d->n == 0 || d->k == 0 || d->n_batch == 0) {
		g->k.run = run_empty;
		g->k.impl = "loop";
	} else if (regular && (d->dtype == DLB_F32 || (bf16 && (plain_bias || !g->after)))) {
		g->bias = plain_bias;
		if (prepare_dnnl(g, b->n_threads) == 0) {
			g->k.run = run_dnnl;
			g->k.impl = "dnnl";
		} else if (g->k.run != run_openblas) {
			g->bias = false;
		}
		g->after = g->after && !g->bias;
	}
	if (bf16 && g->k.run != run_dnnl) {
		gemm_free(&g->k);
		return bf16_by_f32(b, d, k, err);
	}
	note_libraries(g, b->n_threads);
	*k = &g->k;
	return 0;
}
