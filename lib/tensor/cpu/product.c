/* Batched matrix products over strided memory: oneDNN's matmul if it has a kernel for the strides, else sgemm
 * (dgemm for float64) per matrix. bf16 uses oneDNN, or is converted to f32. */
#include <cblas.h>
#include <stdlib.h>

#include "tensor/cpu/library.h"
#include "tensor/cpu/narrow.h"

struct product_kernel {
	struct dlb_kernel k;
	struct cpu *c;
	struct dlb_product_desc d;
	struct cpu_prim prim;
	int64_t n_batch, m, n, lda, ldw, ldy;
	bool ta, tw;
};

static void run_dnnl(struct dlb_kernel *k, const struct dlb_run *r)
{
	struct product_kernel *p = (struct product_kernel *)k;
	void *const ptr[] = { r->in[0], r->in[1], r->out[0] };

	dlb_cpu_prim_run(p->c, &p->prim, ptr, r->scratch);
}

#define RUN_BLAS(T, gemm) \
static void run_blas_##T(struct dlb_kernel *k, const struct dlb_run *r) \
{ \
	const struct product_kernel *p = (struct product_kernel *)k; \
	const struct dlb_product_desc *d = &p->d; \
	const int n_batch_dims = d->n_dims - 2; \
	struct dlb_nest nest = { .n_dims = n_batch_dims, .n_operands = 3 }; \
	int64_t pos[DLB_MAX_DIMS] = { 0 }, at[DLB_NEST_OPERANDS] = { 0 }; \
	for (int i = 0; i < n_batch_dims; i++) { \
		nest.dim[i] = d->dim[i]; \
		nest.stride[0][i] = d->a[i]; \
		nest.stride[1][i] = d->w[i]; \
		nest.stride[2][i] = d->y[i]; \
	} \
	const struct cpu_matmul one = { .m = (int)p->m, \
					.n = (int)p->n, \
					.k = (int)d->k, \
					.lda = (int)p->lda, \
					.ldw = (int)p->ldw, \
					.ldy = (int)p->ldy, \
					.trans_a = p->ta, \
					.trans_w = p->tw, \
					.alpha = d->alpha }; \
	do { \
		gemm(&one, (const T *)r->in[0] + at[0], (const T *)r->in[1] + at[1], \
		     (T *)r->out[0] + at[2]); \
	} while (dlb_nest_step(&nest, n_batch_dims, pos, at)); \
}
RUN_BLAS(float, dlb_cpu_sgemm)
RUN_BLAS(double, dlb_cpu_dgemm)

static void run_empty(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct product_kernel *p = (struct product_kernel *)k;

	if (p->n_batch > 0 && p->m > 0 && p->n > 0)	/* k = 0: y is zero, dense in some order */
		memset(r->out[0], 0, (size_t)(p->n_batch * p->m * p->n) * dlb_dtype_bytes(p->d.dtype));
}

static void product_free(struct dlb_kernel *k)
{
	dlb_cpu_prim_release(&((struct product_kernel *)k)->prim);
	free(k);
}

static int prepare_dnnl(struct product_kernel *p)
{
	const struct dlb_product_desc *d = &p->d;
	const int n = d->n_dims;
	const dnnl_data_type_t type = d->dtype == DLB_BF16 ? dnnl_bf16 : dnnl_f32;
	dnnl_memory_desc_t a, w, y;
	dnnl_dims_t dim = { 0 }, stride = { 0 };
	dnnl_primitive_desc_t pd;
	dnnl_matmul_desc_t od;
	const struct { dnnl_memory_desc_t *md; const int64_t *stride; int64_t rows, columns; } of[] = {
		{ &a, d->a, p->m, d->k }, { &w, d->w, d->k, p->n }, { &y, d->y, p->m, p->n },
	};

	/* three dimensions are passed as four, because oneDNN supports more orders of four */
	const int lead = n == 3;
	for (int k = 0; k < 3; k++) {
		for (int i = 0; i < n; i++) {
			dim[lead + i] = i == n - 2 ? of[k].rows : i == n - 1 ? of[k].columns : d->dim[i];
			stride[lead + i] = of[k].stride[i];
		}
		if (lead) {
			dim[0] = 1;
			stride[0] = 0;
			for (int i = 1; i <= n; i++)
				stride[0] = dim[i] * stride[i] > stride[0] ? dim[i] * stride[i] : stride[0];
		}
		if (dnnl_memory_desc_init_by_strides(of[k].md, lead + n, dim, type, stride) != dnnl_success)
			return DLB_NO_KERNEL;
	}
	if (dnnl_matmul_desc_init(&od, &a, &w, NULL, &y) != dnnl_success ||
	    dlb_cpu_pd_scaled(p->c, &od, (float)d->alpha, &pd))
		return DLB_NO_KERNEL;
	const int rc = dlb_cpu_prim(p->c, pd, &p->prim);
	dnnl_primitive_desc_destroy(pd);
	if (rc)
		return rc;
	dlb_cpu_prim_arg(p->c, &p->prim, DNNL_ARG_SRC, &a);
	dlb_cpu_prim_arg(p->c, &p->prim, DNNL_ARG_WEIGHTS, &w);
	dlb_cpu_prim_arg(p->c, &p->prim, DNNL_ARG_DST, &y);
	p->k.scratch_bytes = p->prim.scratch_bytes;
	return 0;
}

/* Finds if a matrix is stored by rows (*trans false) or columns (true), and its leading
 * dimension; false: neither stride is 1. */
static bool lies(const int64_t *stride, int n, int64_t rows, int64_t columns, bool *trans, int64_t *ld)
{
	const int64_t row = stride[n - 2], column = stride[n - 1];

	*trans = column != 1;
	*ld = *trans ? column : row;
	if (*trans && row != 1 && rows > 1)
		return false;
	const int64_t least = *trans ? rows : columns;
	*ld = *ld > least ? *ld : least;
	return *ld <= INT32_MAX;
}

/* Number of elements from the first to the last of an operand. */
static int64_t extent(const int64_t *dim, const int64_t *stride, int n, int64_t rows, int64_t columns)
{
	int64_t last = (rows - 1) * stride[n - 2] + (columns - 1) * stride[n - 1];
	bool any = rows > 0 && columns > 0;

	for (int i = 0; i < n - 2; i++) {
		last += (dim[i] - 1) * stride[i];
		any = any && dim[i] > 0;
	}
	return any ? last + 1 : 0;
}

static int prepare_f32(struct dlb_backend *b, const void *ctx, int64_t rows, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_product_desc d = *(const struct dlb_product_desc *)ctx;

	(void)rows;
	d.dtype = DLB_F32;
	return dlb_cpu_product(b, &d, k, err);
}

static int bf16_by_f32(struct dlb_backend *b, const struct dlb_product_desc *d, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const int n = d->n_dims;
	const int64_t rows = d->dim[n - 2], columns = d->dim[n - 1];
	const struct narrow_desc narrow = {
		.rows = 1,
		.block = 1,
		.n_in = 2,
		.n_out = 1,
		.prepare = prepare_f32,
		.ctx = d,
		.in = { { .dtype = DLB_BF16, .count = extent(d->dim, d->a, n, rows, d->k) },
			{ .dtype = DLB_BF16, .count = extent(d->dim, d->w, n, d->k, columns) } },
		.out = { { .dtype = DLB_BF16, .count = extent(d->dim, d->y, n, rows, columns) } }
	};

	return dlb_cpu_narrow(b, &narrow, k, err);
}

int dlb_cpu_product(struct dlb_backend *b, const struct dlb_product_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err)
{
	struct product_kernel *p;
	const int n = d->n_dims;
	bool ty = false, ok, bf16 = d->dtype == DLB_BF16;

	if ((d->dtype != DLB_F32 && d->dtype != DLB_F64 && !bf16) || n < 3)
		return DLB_NO_KERNEL;
	p = dlb_xcalloc(1, sizeof *p);
	p->c = cpu_of(b);
	p->d = *d;
	p->m = d->dim[n - 2];
	p->n = d->dim[n - 1];
	p->n_batch = 1;
	for (int i = 0; i < n - 2; i++)
		p->n_batch *= d->dim[i];
	p->k = (struct dlb_kernel){ .free = product_free, .impl = "blas" };
	ok = lies(d->a, n, p->m, d->k, &p->ta, &p->lda) && lies(d->w, n, d->k, p->n, &p->tw, &p->ldw) &&
		lies(d->y, n, p->m, p->n, &ty, &p->ldy) && !ty;
	if (!ok || p->m > INT32_MAX || p->n > INT32_MAX || d->k > INT32_MAX) {
		product_free(&p->k);
		return ok ? dlb_fail(err, NULL, "a matrix product of %lld x %lld x %lld is too large",
				     (long long)d->dim[n - 2], (long long)d->dim[n - 1], (long long)d->k) :
			    DLB_NO_KERNEL;
	}
	p->k.run = d->dtype == DLB_F32 ? run_blas_float : run_blas_double;
	if (!p->n_batch || !p->m || !p->n || !d->k) {
		p->k.run = run_empty;
		p->k.impl = "loop";
	} else if ((d->dtype == DLB_F32 || bf16) && prepare_dnnl(p) == 0) {
		p->k.run = run_dnnl;
		p->k.impl = "dnnl";
	} else if (bf16) {
		product_free(&p->k);
		return bf16_by_f32(b, d, k, err);
	}
	if (p->k.run == run_dnnl || p->k.run == run_blas_float)
		dlb_cpu_dnnl_note(&p->k, p->k.run == run_dnnl && p->prim.has_code, p->m, p->n, d->k,
				  b->n_threads);
	*k = &p->k;
	return 0;
}
