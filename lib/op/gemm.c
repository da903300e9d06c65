/* Gemm, MatMul and MatMulT: products of matrices.
 *
 * MatMulT (domain dlb) is MatMul with the last two dimensions of the operands read transposed
 * (transA, transB); with flatten=1 the leading dimensions of both are merged into the rows: (.., M, K) and
 * (.., M, N) with transA give K x N, the gradient of a weight, as one product. The gradients of all three
 * consist of Gemm and MatMulT, so no matrix is transposed in memory.
 *
 * With one bf16 factor and one f32 factor (a weight), the product is computed in bf16 and its
 * result is bf16, unless attribute "dtype" is f32, as for the gradient of an f32 factor. A bias
 * beside bf16 factors is f32. */
#include "op/op_util.h"

#include <stdlib.h>
#include <string.h>

/* -- Gemm -- */

struct gemm_dims { int64_t m, n, k; bool ta, tb; };

static int gemm_shape(const struct dlb_op_io *io, struct gemm_dims *s, struct dlb_error *err)
{
	const struct dlb_desc *a = &io->in[0], *b = &io->in[1];
	char x[128], y[128];

	s->ta = dlb_io_int(io, "transA", 0) != 0;
	s->tb = dlb_io_int(io, "transB", 0) != 0;
	if (a->n_dims != 2 || b->n_dims != 2)
		return dlb_op_fail(io, err, "operands must be matrices, not %s and %s",
				   dlb_desc_str(a, x, sizeof x), dlb_desc_str(b, y, sizeof y));
	s->m = a->dim[s->ta];
	s->k = a->dim[!s->ta];
	s->n = b->dim[!s->tb];
	if (b->dim[s->tb] != s->k)
		return dlb_op_fail(io, err, "%s and %s do not fit together%s%s", dlb_desc_str(a, x, sizeof x),
				   dlb_desc_str(b, y, sizeof y), s->ta ? ", transA" : "",
				   s->tb ? ", transB" : "");
	return 0;
}

/* The type in which factors are multiplied, and the result's type. */
static int product_types(const struct dlb_op_io *io, enum dlb_dtype *in, enum dlb_dtype *out,
			 struct dlb_error *err)
{
	if (dlb_mixed_types(io, 0, 2, in, err))
		return -1;
	*out = *in == DLB_BF16 && dlb_io_int(io, "dtype", 0) == dlb_dtype_to_onnx(DLB_F32) ? DLB_F32 : *in;
	return 0;
}

static void set_types(const struct dlb_op_io *io, struct dlb_gemm_desc *d)
{
	enum dlb_dtype out;

	if (product_types(io, &d->dtype, &out, NULL) || d->dtype != DLB_BF16)
		return;
	d->a_f32 = io->in[0].dtype == DLB_F32;
	d->w_f32 = io->in[1].dtype == DLB_F32;
	d->y_f32 = out == DLB_F32;
}

static int gemm_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	enum dlb_dtype in, out;
	struct dlb_desc all;
	struct gemm_dims s;

	if (gemm_shape(io, &s, err) || product_types(io, &in, &out, err))
		return -1;
	if (dlb_io_has(io, 2) && io->in[2].dtype != in && !(in == DLB_BF16 && io->in[2].dtype == DLB_F32))
		return dlb_op_fail(io, err, "the factors are of type %s and C of %s", dlb_dtype_name(in),
				   dlb_dtype_name(io->in[2].dtype));
	io->out[0] = dlb_desc_make(out, 2, (int64_t[]){ s.m, s.n });
	if (dlb_io_has(io, 2) &&
	    (dlb_broadcast(&io->out[0], &io->in[2], &all) || !dlb_desc_same_shape(&all, &io->out[0])))
		return dlb_op_fail(io, err, "input C does not broadcast to %lld x %lld", (long long)s.m,
				   (long long)s.n);
	return 0;
}

static double gemm_flops(const struct dlb_op_io *io)
{
	struct gemm_dims s = { .m = 0 };

	if (gemm_shape(io, &s, NULL))
		return 0;
	return 2.0 * (double)s.m * (double)s.n * (double)s.k;
}

/* Integer products are not trained, but ONNX has them (test data, tokenizers): a plain loop on the host. */
struct int_gemm { struct dlb_gemm_desc d; enum dlb_dtype c_type; };

static int64_t scaled(int64_t v, double by)
{
	int64_t r = 0;

	dlb_value_set(&r, DLB_I64, 0, (double)v * by);
	return by == 1 ? v : r;
}

static void int_gemm_run(const void *ctx, const struct dlb_run *r)
{
	const struct int_gemm *g = ctx;
	const struct dlb_gemm_desc *d = &g->d;

	for (int64_t b = 0; b < d->n_batch; b++)
		for (int64_t i = 0; i < d->m; i++)
			for (int64_t j = 0; j < d->n; j++) {
				uint64_t sum = 0;		/* wraps */

				for (int64_t l = 0; l < d->k; l++) {
					int64_t x = b * d->a_batch +
						    (d->trans_a ? l * d->m + i : i * d->k + l);
					int64_t w = b * d->w_batch +
						    (d->trans_w ? j * d->k + l : l * d->n + j);

					sum += (uint64_t)dlb_value_int(r->in[0], d->dtype, x) *
					       (uint64_t)dlb_value_int(r->in[1], d->dtype, w);
				}
				if (d->alpha != 1)
					sum = (uint64_t)scaled((int64_t)sum, d->alpha);
				if (d->has_c)
					sum += (uint64_t)scaled(dlb_value_int(r->in[2], d->dtype,
									      i * d->c_row + j * d->c_col),
								d->beta);
				dlb_value_set_int(r->out[0], d->dtype, b * d->m * d->n + i * d->n + j,
						  (int64_t)sum);
			}
}

static int gemm_prepare(struct dlb_backend *be, const struct dlb_gemm_desc *d, struct dlb_kernel **k,
			struct dlb_error *err)
{
	struct int_gemm g = { .d = *d };

	if (dlb_dtype_is_float(d->dtype))
		return be->ops->gemm(be, d, k, err);
	if (d->a_off || d->w_off)
		return DLB_NO_KERNEL;
	return be->ops->host(be, int_gemm_run, &g, sizeof g, 0, k, err);
}

static int gemm_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_gemm_desc d = { .n_batch = 1, .alpha = dlb_io_real(io, "alpha", 1),
				   .beta = dlb_io_real(io, "beta", 1), .w_is_weight = dlb_io_weight(io, 1),
				   .once = io->once };
	struct gemm_dims s;

	if (gemm_shape(io, &s, err))
		return -1;
	set_types(io, &d);
	d.m = s.m;
	d.n = s.n;
	d.k = s.k;
	d.trans_a = s.ta;
	d.trans_w = s.tb;
	if (dlb_io_has(io, 2)) {
		const struct dlb_desc *c = &io->in[2];
		int64_t rows = c->n_dims == 2 ? c->dim[0] : 1, cols = c->n_dims ? c->dim[c->n_dims - 1] : 1;

		d.has_c = true;
		d.c_col = cols > 1;
		d.c_row = rows > 1 ? cols : 0;
	} else {
		d.beta = 0;
	}
	return gemm_prepare(be, &d, k, err);
}

/* Adds the attribute that makes the product of x and y, the gradient of `like`, f32 if `like` is; returns
 * the number of attributes. */
static int add_type(struct dlb_builder *b, int x, int y, int like, struct dlb_attr *a)
{
	if (dlb_b_desc(b, like)->dtype != DLB_F32 ||
	    (dlb_b_desc(b, x)->dtype != DLB_BF16 && dlb_b_desc(b, y)->dtype != DLB_BF16))
		return 0;
	*a = dlb_make_int("dtype", dlb_dtype_to_onnx(DLB_F32));
	return 1;
}

/* A product of the backward pass: op(a) op(b) * alpha, as a Gemm without C. */
static int product(struct dlb_builder *b, int x, bool tx, int y, bool ty, double alpha, int like)
{
	struct dlb_attr a[4] = { dlb_make_int("transA", tx), dlb_make_int("transB", ty),
				 dlb_make_real("alpha", alpha) };
	int n = alpha == 1 ? 2 : 3;

	n += add_type(b, x, y, like, &a[n]);
	return dlb_b_op(b, DLB_SPEC_ATTR("Gemm", a, n, x, y), NULL, like);
}

/* y = alpha op(A) op(B) + beta C:  dop(A) = alpha dy op(B)^T,  dop(B) = alpha op(A)^T dy,  dC = beta dy. */
static int gemm_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	double alpha = dlb_io_real(&b->io, "alpha", 1), beta = dlb_io_real(&b->io, "beta", 1);
	bool ta = dlb_io_int(&b->io, "transA", 0) != 0, tb = dlb_io_int(&b->io, "transB", 0) != 0;
	int dy = b->dout[0], x = b->in[0], w = b->in[1];

	(void)err;
	if (b->need[0])
		b->din[0] = ta ? product(b, w, tb, dy, true, alpha, x) :
				 product(b, dy, false, w, !tb, alpha, x);
	if (b->need[1])
		b->din[1] = tb ? product(b, dy, true, x, ta, alpha, w) :
				 product(b, x, !ta, dy, false, alpha, w);
	if (b->io.n_in > 2 && b->in[2] >= 0 && b->need[2]) {
		int g = dlb_b_unbroadcast(b, dy, b->in[2]);

		b->din[2] = beta == 1 ? g :
					dlb_b_op2(b, "Mul", g, dlb_b_const_real(b, beta, b->io.in[0].dtype));
		if (b->din[2] < 0)
			return -1;
	}
	return (b->need[0] && b->din[0] < 0) || (b->need[1] && b->din[1] < 0) ? -1 : 0;
}

/* -- MatMul, MatMulT -- */

struct matmul {
	struct gemm_dims s;
	int n_dims;			/* of the batches' broadcast shape */
	int64_t dim[DLB_MAX_DIMS], n_batch;
	struct dlb_desc a, b;		/* with a dimension of 1 added before or after a vector */
	bool flatten;
};

static int product_shape(const struct dlb_op_io *io, struct matmul *p, struct dlb_error *err)
{
	struct dlb_desc *a = &p->a, *b = &p->b, ba, bb, batch;
	char x[128], y[128];

	memset(p, 0, sizeof *p);
	*a = io->in[0];
	*b = io->in[1];
	p->s.ta = dlb_io_int(io, "transA", 0) != 0;
	p->s.tb = dlb_io_int(io, "transB", 0) != 0;
	p->flatten = dlb_io_int(io, "flatten", 0) != 0;
	if (a->n_dims < 1 || b->n_dims < 1)
		return dlb_op_fail(io, err, "a scalar is no matrix");
	if (a->n_dims == 1)
		*a = dlb_desc_make(a->dtype, 2, (int64_t[]){ 1, a->dim[0] });
	if (b->n_dims == 1)
		*b = dlb_desc_make(b->dtype, 2, (int64_t[]){ b->dim[0], 1 });
	if (p->flatten) {
		*a = dlb_desc_make(a->dtype, 2,
				   (int64_t[]){ dlb_desc_range(a, 0, a->n_dims - 1), a->dim[a->n_dims - 1] });
		*b = dlb_desc_make(b->dtype, 2,
				   (int64_t[]){ dlb_desc_range(b, 0, b->n_dims - 1), b->dim[b->n_dims - 1] });
	}
	p->s.m = a->dim[a->n_dims - 2 + p->s.ta];
	p->s.k = a->dim[a->n_dims - 1 - p->s.ta];
	p->s.n = b->dim[b->n_dims - 1 - p->s.tb];
	ba = dlb_desc_make(a->dtype, a->n_dims - 2, a->dim);
	bb = dlb_desc_make(a->dtype, b->n_dims - 2, b->dim);
	if (b->dim[b->n_dims - 2 + p->s.tb] != p->s.k || dlb_broadcast(&ba, &bb, &batch))
		return dlb_op_fail(io, err, "%s and %s do not fit together",
				   dlb_desc_str(&io->in[0], x, sizeof x),
				   dlb_desc_str(&io->in[1], y, sizeof y));
	p->n_dims = batch.n_dims;
	memcpy(p->dim, batch.dim, sizeof p->dim);
	p->n_batch = dlb_checked_count(batch.dim, batch.n_dims);
	return p->n_batch < 0 ? dlb_op_fail(io, err, "the output is too large") : 0;
}

static int matmul_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	enum dlb_dtype in, out;
	struct matmul p;
	struct dlb_desc *y = &io->out[0];

	if (product_shape(io, &p, err) || product_types(io, &in, &out, err))
		return -1;
	if (p.n_dims + 2 > DLB_MAX_DIMS)
		return dlb_op_fail(io, err, "more than %d dimensions", DLB_MAX_DIMS);
	*y = dlb_desc_make(out, p.n_dims, p.dim);
	if (io->in[0].n_dims > 1)
		y->dim[y->n_dims++] = p.s.m;
	if (io->in[1].n_dims > 1)
		y->dim[y->n_dims++] = p.s.n;
	return 0;
}

static double matmul_flops(const struct dlb_op_io *io)
{
	struct matmul p;

	if (product_shape(io, &p, NULL))
		return 0;
	return 2.0 * (double)p.n_batch * (double)p.s.m * (double)p.s.n * (double)p.s.k;
}

/* Offsets of x's matrices for each index of the broadcast batch shape; true if they
 * are 0, step, 2 step, ... */
static bool offsets(const struct matmul *p, const struct dlb_desc *x, int64_t *off, int64_t *step)
{
	int64_t size = x->dim[x->n_dims - 1] * x->dim[x->n_dims - 2], stride[DLB_MAX_DIMS], s = size;
	int lead = p->n_dims - (x->n_dims - 2);
	bool regular = true;

	for (int i = p->n_dims - 1; i >= 0; i--) {
		int64_t d = i >= lead ? x->dim[i - lead] : 1;

		stride[i] = d > 1 ? s : 0;
		s *= d;
	}
	for (int64_t n = 0; n < p->n_batch; n++) {
		int64_t rest = n;

		off[n] = 0;
		for (int i = p->n_dims - 1; i >= 0; i--) {
			off[n] += rest % p->dim[i] * stride[i];
			rest /= p->dim[i];
		}
	}
	*step = p->n_batch > 1 ? off[1] : 0;
	for (int64_t n = 0; n < p->n_batch; n++)
		regular = regular && off[n] == n * *step;
	return regular;
}

static int matmul_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	struct matmul p;
	struct dlb_gemm_desc d = { .alpha = 1, .w_is_weight = dlb_io_weight(io, 1), .once = io->once };
	int64_t *a_off, *b_off;
	int rc;

	if (product_shape(io, &p, err))
		return -1;
	set_types(io, &d);
	d.m = p.s.m;
	d.n = p.s.n;
	d.k = p.s.k;
	d.trans_a = p.s.ta;
	d.trans_w = p.s.tb;
	d.n_batch = p.n_batch;
	/* one matrix on the right: one product for all rows */
	if (p.b.n_dims == 2 && !p.s.ta) {
		d.m *= d.n_batch;
		d.n_batch = 1;
	}
	if (d.n_batch == 1)
		return gemm_prepare(be, &d, k, err);
	a_off = dlb_xcalloc((size_t)p.n_batch, sizeof *a_off);
	b_off = dlb_xcalloc((size_t)p.n_batch, sizeof *b_off);
	if (!offsets(&p, &p.a, a_off, &d.a_batch))
		d.a_off = a_off;
	if (!offsets(&p, &p.b, b_off, &d.w_batch))
		d.w_off = b_off;
	rc = gemm_prepare(be, &d, k, err);
	free(a_off);
	free(b_off);
	return rc;
}

static int product_t(struct dlb_builder *b, int x, bool tx, int y, bool ty, bool flatten, int like)
{
	struct dlb_attr a[4] = { dlb_make_int("transA", tx), dlb_make_int("transB", ty),
				 dlb_make_int("flatten", 1) };
	int n = flatten ? 3 : 2;

	n += add_type(b, x, y, like, &a[n]);
	return dlb_b_op(b, DLB_SPEC_ATTR("MatMulT", a, n, x, y), NULL, -1);
}

static int unsqueeze(struct dlb_builder *b, int t, int64_t axis)
{
	return dlb_b_op2(b, "Unsqueeze", t, dlb_b_const_ints(b, &axis, 1));
}

/* y = op(A) op(B), batches broadcast. A vector becomes a matrix with an added dimension of 1, which the
 * gradient removes. unbroadcast sums over broadcast batches. */
static int matmul_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	bool ta = dlb_io_int(&b->io, "transA", 0) != 0, tb = dlb_io_int(&b->io, "transB", 0) != 0;
	int na = b->io.in[0].n_dims, nb = b->io.in[1].n_dims;
	int dy = b->dout[0], x = b->in[0], w = b->in[1], g;

	if (dlb_io_int(&b->io, "flatten", 0))
		return dlb_op_fail(&b->io, err, "a gradient of a gradient is not available");
	if (nb == 1) {					/* (.., M) = (.., M, K) (K) */
		dy = unsqueeze(b, dy, -1);
		w = unsqueeze(b, w, 1);
	}
	if (na == 1) {					/* (.., N) = (K) (.., K, N) */
		dy = unsqueeze(b, dy, -2);
		x = unsqueeze(b, x, 0);
	}
	if (b->need[0]) {
		g = ta ? product_t(b, w, tb, dy, true, false, b->in[0]) :
			 product_t(b, dy, false, w, !tb, false, b->in[0]);
		b->din[0] = dlb_b_unbroadcast(b, g, b->in[0]);
		if (b->din[0] < 0)
			return -1;
	}
	if (!b->need[1])
		return 0;
	if (nb == 2 && na > 2 && !ta)			/* the rows of all batches in one product */
		g = tb ? product_t(b, dy, true, x, false, true, b->in[1]) :
			 product_t(b, x, true, dy, false, true, b->in[1]);
	else
		g = tb ? product_t(b, dy, true, x, ta, false, b->in[1]) :
			 product_t(b, x, !ta, dy, false, false, b->in[1]);
	if (nb == 1)
		g = dlb_b_op2(b, "Squeeze", g, dlb_b_const_ints(b, (int64_t[]){ -1 }, 1));
	b->din[1] = dlb_b_unbroadcast(b, g, b->in[1]);
	return b->din[1] < 0 ? -1 : 0;
}

const struct dlb_op_class dlb_op_Gemm = { .name = "Gemm",
					  .n_in = { 2, 3 },
					  .n_out = { 1, 1 },
					  .flags = DLB_OP_PACKS,
					  .bf16 = DLB_BF16_WEIGHTS,
					  .f32_in = 4,
					  .work = "dense",
					  .infer = gemm_infer,
					  .flops = gemm_flops,
					  .gradient = gemm_gradient,
					  .kernel = gemm_kernel };
const struct dlb_op_class dlb_op_MatMul = { .name = "MatMul",
					    .n_in = { 2, 2 },
					    .n_out = { 1, 1 },
					    .flags = DLB_OP_PACKS,
					    .bf16 = DLB_BF16_WEIGHTS,
					    .work = "dense",
					    .infer = matmul_infer,
					    .flops = matmul_flops,
					    .gradient = matmul_gradient,
					    .kernel = matmul_kernel };
const struct dlb_op_class dlb_op_MatMulT = { .name = "MatMulT",
					     .domain = "dlb",
					     .n_in = { 2, 2 },
					     .n_out = { 1, 1 },
					     .flags = DLB_OP_PACKS,
					     .work = "dense",
					     .infer = matmul_infer,
					     .flops = matmul_flops,
					     .gradient = matmul_gradient,
					     .kernel = matmul_kernel };
