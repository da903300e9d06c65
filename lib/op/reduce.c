/* Reductions over axes, given by an attribute, or by an input since opset 13 (ReduceSum) and 18; none given
 * means all axes, unless noop_with_empty_axes. ReduceGrad (dy, shape; axes, keepdims, mean) broadcasts the
 * gradient of a sum or mean along its axes;
 * ReduceExtremeGrad (dy, x, y) gives it in equal parts to the elements that equal y; ReduceProdGrad (dy, x)
 * multiplies it by the product of the other elements, so zeros need no special case. Reductions of bf16 give
 * f32, since they are long sums. */
#include "op/op_util.h"

#include <float.h>
#include <string.h>

/* kept: output shape with reduced dimensions of 1 */
struct reduction { int64_t axes; bool keep; struct dlb_desc kept; };

static int parse(const struct dlb_op_io *io, struct reduction *r, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t all = ((int64_t)1 << x->n_dims) - 1;

	r->keep = dlb_io_int(io, "keepdims", 1) != 0;
	r->axes = dlb_io_axes(io, 1, x->n_dims, dlb_io_int(io, "noop_with_empty_axes", 0) ? 0 : all, err);
	if (r->axes < 0)
		return -1;
	r->kept = dlb_desc_make(x->dtype == DLB_BF16 ? DLB_F32 : x->dtype, x->n_dims, x->dim);
	for (int i = 0; i < x->n_dims; i++)
		if (r->axes >> i & 1)
			r->kept.dim[i] = 1;
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct reduction r;
	struct dlb_desc y = { 0 };

	if (parse(io, &r, err))
		return -1;
	y.dtype = r.kept.dtype;
	for (int i = 0; i < r.kept.n_dims; i++)
		if (r.keep || !(r.axes >> i & 1))
			y.dim[y.n_dims++] = r.kept.dim[i];
	io->out[0] = y;
	return 0;
}

static const struct { const char *name; enum dlb_reduce_fn fn;
} rows[] = {
	{ "ReduceSum", DLB_REDUCE_FN_SUM },    { "ReduceMean", DLB_REDUCE_FN_MEAN },
	{ "ReduceMax", DLB_REDUCE_FN_MAX },    { "ReduceMin", DLB_REDUCE_FN_MIN },
	{ "ReduceProd", DLB_REDUCE_FN_PROD },  { "ReduceSumSquare", DLB_REDUCE_FN_SUMSQ },
	{ "ReduceL2", DLB_REDUCE_FN_SUMSQ },   { "ReduceL1", DLB_REDUCE_FN_SUM },
	{ "ReduceLogSum", DLB_REDUCE_FN_SUM }, { "ReduceLogSumExp", DLB_REDUCE_FN_SUM },
};

static enum dlb_reduce_fn fn_of(const struct dlb_op_class *cls)
{
	for (int i = 0; i < DLB_LEN(rows); i++)
		if (!strcmp(rows[i].name, cls->name))
			return rows[i].fn;
	dlb_bug("no row for '%s'", cls->name);
}

static double flops(const struct dlb_op_io *io)
{
	return (double)dlb_desc_count(&io->in[0]);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	struct dlb_chain *c;
	struct reduction r;

	if (parse(io, &r, err))
		return -1;
	c = dlb_chain_new(be, err);
	if (r.axes)
		dlb_chain_reduce(c, fn_of(io->cls), (unsigned)r.axes, DLB_IN(0), &io->in[0], DLB_OUT(0),
				 &r.kept);
	else if (fn_of(io->cls) == DLB_REDUCE_FN_SUMSQ) {
		const struct dlb_desc *x = &io->in[0];

		dlb_chain_map(c, DLB_MAP(square, 1), DLB_REFS(DLB_IN(0)), &x, DLB_OUT(0), &r.kept);
	} else {
		dlb_chain_cast(c, DLB_IN(0), &io->in[0], DLB_OUT(0), &r.kept);
	}
	return dlb_chain_finish(c, k);
}

/* A map of x, a sum, a map of the sum: L1, L2, LogSum. LogSumExp subtracts the maximum first:
 *     log sum exp x = m + log sum exp(x - m). */
static int kernel_mapped(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	const char *name = io->cls->name;
	bool lse = !strcmp(name, "ReduceLogSumExp"), l1 = !strcmp(name, "ReduceL1"),
	     l2 = !strcmp(name, "ReduceL2");
	struct reduction r;
	struct dlb_chain *c;

	if (parse(io, &r, err))
		return -1;
	c = dlb_chain_new(be, err);

	const struct dlb_desc *kept = &r.kept, *two[2] = { x, kept }, *both[2] = { kept, kept };
	int from = DLB_IN(0), most = -1;

	if (lse) {
		const double finite = x->dtype == DLB_F64 ? DBL_MAX : FLT_MAX;	/* inf - inf would be NaN */

		most = dlb_chain_temp(c, kept);
		from = dlb_chain_temp(c, x);
		dlb_chain_reduce(c, DLB_REDUCE_FN_MAX, (unsigned)r.axes, DLB_IN(0), x, most, kept);
		dlb_chain_map(c, &(struct dlb_map){ .fn = DLB_MAP_clip, .n_in = 1, .alpha = -finite,
						    .beta = finite }, DLB_REFS(most), both, most, kept);
		dlb_chain_map(c, DLB_MAP(sub, 2), DLB_REFS(DLB_IN(0), most), two, from, x);
		dlb_chain_map(c, DLB_MAP(exp, 1), DLB_REFS(from), two, from, x);
	} else if (l1) {
		from = dlb_chain_temp(c, x);
		dlb_chain_map(c, DLB_MAP(abs, 1), DLB_REFS(DLB_IN(0)), two, from, x);
	}
	dlb_chain_reduce(c, fn_of(io->cls), (unsigned)r.axes, from, x, DLB_OUT(0), kept);
	if (!l1)
		dlb_chain_map(c, &(struct dlb_map){ .fn = l2 ? DLB_MAP_sqrt : DLB_MAP_log, .n_in = 1 },
			      DLB_REFS(DLB_OUT(0)), both, DLB_OUT(0), kept);
	if (lse)
		dlb_chain_map(c, DLB_MAP(add, 2), DLB_REFS(DLB_OUT(0), most), both, DLB_OUT(0), kept);
	return dlb_chain_finish(c, k);
}

/* -- gradients -- */

/* Reshapes t, which has the output's shape, so that reduced dimensions are 1. */
static int keep_dims(struct dlb_builder *b, const struct reduction *r, int t)
{
	int64_t axes[DLB_MAX_DIMS];
	int n = 0;

	if (r->keep)
		return t;
	for (int i = 0; i < b->io.in[0].n_dims; i++)
		if (r->axes >> i & 1)
			axes[n++] = i;
	return n ? dlb_b_op2(b, "Unsqueeze", t, dlb_b_const_ints(b, axes, n)) : t;
}

static int spread(struct dlb_builder *b, const struct reduction *r, int dy, bool mean)
{
	struct dlb_attr a[2] = { { 0 } };
	int64_t axes[DLB_MAX_DIMS];
	int n = 0;

	for (int i = 0; i < b->io.in[0].n_dims; i++)
		if (r->axes >> i & 1)
			axes[n++] = i;
	a[0] = dlb_make_ints("axes", axes, n);
	a[1] = dlb_make_int("mean", mean);
	return dlb_b_op(b, DLB_SPEC_ATTR("ReduceGrad", a, 2, dy, dlb_b_const_shape(b, b->in[0])), NULL,
			b->in[0]);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const char *name = b->io.cls->name;
	enum dlb_dtype t = b->io.in[0].dtype;
	int dy = b->dout[0], y = b->out[0], x = b->in[0], g;
	struct reduction r;

	if (!b->need[0])
		return 0;
	if (parse(&b->io, &r, err))
		return -1;
	if (!strcmp(name, "ReduceSum") || !strcmp(name, "ReduceMean")) {
		g = spread(b, &r, dy, name[6] == 'M');
	} else if (!strcmp(name, "ReduceMax") || !strcmp(name, "ReduceMin")) {
		struct dlb_attr a = dlb_make_int("axes", r.axes);

		g = dlb_b_op(b, DLB_SPEC_ATTR("ReduceExtremeGrad", &a, 1, dy, x, y), NULL, x);
	} else if (!strcmp(name, "ReduceProd")) {
		struct dlb_attr a = dlb_make_int("axes", r.axes);

		g = dlb_b_op(b, DLB_SPEC_ATTR("ReduceProdGrad", &a, 1, dy, x), NULL, x);
	} else if (!strcmp(name, "ReduceL2")) {
		g = dlb_b_op2(b, "Mul", x, keep_dims(b, &r, dlb_b_op2(b, "DivOrZero", dy, y)));
	} else if (!strcmp(name, "ReduceL1")) {
		g = dlb_b_op2(b, "Mul", dlb_b_op1(b, "Sign", x), keep_dims(b, &r, dy));
	} else if (!strcmp(name, "ReduceSumSquare")) {
		g = dlb_b_op2(b, "Mul", x,
			      keep_dims(b, &r, dlb_b_op2(b, "Mul", dy, dlb_b_const_real(b, 2, t))));
	} else if (!strcmp(name, "ReduceLogSum")) {		/* dy / exp(y) */
		g = spread(b, &r, dlb_b_op2(b, "Div", dy, dlb_b_op1(b, "Exp", y)), false);
	} else {						/* dy exp(x - y) */
		int soft = dlb_b_op1(b, "Exp", dlb_b_op2(b, "Sub", x, keep_dims(b, &r, y)));

		g = dlb_b_op2(b, "Mul", soft, keep_dims(b, &r, dy));
	}
	b->din[0] = g;
	return g < 0 ? -1 : 0;
}

/* -- ReduceGrad: dy, with or without the reduced dimensions, broadcast to a shape; divided for a mean -- */

static int grad_shape(const struct dlb_op_io *io, struct dlb_desc *x, struct dlb_desc *kept, double *count,
		      struct dlb_error *err)
{
	const int64_t *axes;
	int m = dlb_attr_ints(io->attr, io->n_attr, "axes", &axes);

	if (dlb_io_shape(io, 1, x, err))
		return -1;
	*kept = *x;
	*count = 1;
	for (int i = 0; i < m; i++) {
		if (axes[i] < 0 || axes[i] >= x->n_dims)
			return dlb_op_fail(io, err, "axis %lld is out of range", (long long)axes[i]);
		*count *= (double)x->dim[axes[i]];
		kept->dim[axes[i]] = 1;
	}
	if (dlb_desc_count(kept) != dlb_desc_count(&io->in[0]))
		return dlb_op_fail(io, err, "the gradient's shape is not that of the reduction");
	return 0;
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc kept;
	double count;

	return grad_shape(io, &io->out[0], &kept, &count, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_map_desc d = { .fn = DLB_MAP_linear, .n_in = 1, .alpha = 1 };
	double count;

	if (grad_shape(io, &d.out, &d.in[0], &count, err))
		return -1;
	if (dlb_io_int(io, "mean", 0))
		d.alpha = 1 / count;
	d.out = io->out[0];
	return be->ops->map(be, &d, k, err);
}

/* -- ReduceExtremeGrad -- */

static int extreme_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t axes = dlb_io_int(io, "axes", 0), kept = 1;

	for (int i = 0; i < io->in[1].n_dims; i++)
		kept *= axes >> i & 1 ? 1 : io->in[1].dim[i];
	if (dlb_same_types(io, 0, 3, err) || dlb_has_count(io, 0, kept, err) ||
	    dlb_has_count(io, 2, kept, err))
		return -1;
	io->out[0] = io->in[1];
	return 0;
}

static int extreme_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	int64_t axes = dlb_io_int(io, "axes", 0);
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_desc x = io->in[1], kept = dlb_desc_make(x.dtype, x.n_dims, x.dim), hit = x;
	int mask, real, sum;

	for (int i = 0; i < x.n_dims; i++)
		if (axes >> i & 1)
			kept.dim[i] = 1;
	hit.dtype = DLB_BOOL;
	mask = dlb_chain_temp(c, &hit);
	real = dlb_chain_temp(c, &x);
	sum = dlb_chain_temp(c, &kept);

	const struct dlb_desc *d_eq[2] = { &x, &kept }, *d_div[2] = { &kept, &kept };

	dlb_chain_map(c, DLB_MAP(equal, 2), DLB_REFS(DLB_IN(1), DLB_IN(2)), d_eq, mask, &hit);
	dlb_chain_cast(c, mask, &hit, real, &x);
	if (axes)
		dlb_chain_reduce(c, DLB_REDUCE_FN_SUM, (unsigned)axes, real, &x, sum, &kept);
	else
		dlb_chain_copy(c, real, sum, &x);
	dlb_chain_map(c, DLB_MAP(div, 2), DLB_REFS(DLB_IN(0), sum), d_div, sum, &kept);
	dlb_chain_map(c, DLB_MAP(mul, 2), DLB_REFS(real, sum), d_eq, DLB_OUT(0), &io->out[0]);
	return dlb_chain_finish(c, k);
}

/* -- ReduceProdGrad -- */

static int prod_grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t axes = dlb_io_int(io, "axes", 0), kept = 1;

	for (int i = 0; i < io->in[1].n_dims; i++)
		kept *= axes >> i & 1 ? 1 : io->in[1].dim[i];
	if (dlb_same_types(io, 0, 2, err) || dlb_has_count(io, 0, kept, err))
		return -1;
	io->out[0] = dlb_desc_make(io->in[1].dtype, io->in[1].n_dims, io->in[1].dim);
	return 0;
}

/* Sizes and strides of x's dimensions, the kept ones before the reduced ones: the loops of a copy from x, or
 * back. Returns their number. */
static int kept_first(const struct dlb_desc *x, int64_t axes, int64_t *dim, int64_t *stride)
{
	int64_t all[DLB_MAX_DIMS];
	int n = 0;

	dlb_desc_strides(x, all);
	for (int reduced = 0; reduced < 2; reduced++)
		for (int i = 0; i < x->n_dims; i++)
			if ((axes >> i & 1) == reduced) {
				dim[n] = x->dim[i];
				stride[n++] = all[i];
			}
	return n;
}

/* Copies lines of reduced elements to contiguous memory, and the result back. */
static int prod_grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			    struct dlb_error *err)
{
	const int64_t axes = dlb_io_int(io, "axes", 0);
	int64_t dim[DLB_MAX_DIMS], stride[DLB_MAX_DIMS], packed[DLB_MAX_DIMS];
	const int n_dims = kept_first(&io->out[0], axes, dim, stride);
	const struct dlb_desc x = dlb_desc_make(io->out[0].dtype, n_dims, dim);
	const int64_t n = dlb_desc_count(&x), lines = dlb_desc_count(&io->in[0]);
	const struct dlb_scan_desc d = { .fn = DLB_SCAN_OTHERS,
					 .dtype = x.dtype,
					 .outer = lines,
					 .n = lines ? n / lines : 0,
					 .inner = 1 };
	struct dlb_strided s = { .in = &io->in[1], .out = &x, .n_dims = n_dims, .dim = dim,
				 .in_stride = stride, .out_stride = packed };
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_kernel *move = NULL, *scan = NULL, *back = NULL;
	const int from = dlb_chain_temp(c, &x), to = dlb_chain_temp(c, &x);
	int rc;

	dlb_desc_strides(&x, packed);
	rc = dlb_kernel_strided(be, &s, &move, err);
	dlb_chain_add(c, rc, move, DLB_REFS(DLB_IN(1)), 1, DLB_REFS(from), 1);
	rc = rc ? rc : be->ops->scan(be, &d, &scan, err);
	dlb_chain_add(c, rc, scan, DLB_REFS(DLB_IN(0), from), 2, DLB_REFS(to), 1);
	s = (struct dlb_strided){ .in = &x, .out = &io->out[0], .n_dims = n_dims, .dim = dim,
				  .in_stride = packed, .out_stride = stride };
	rc = rc ? rc : dlb_kernel_strided(be, &s, &back, err);
	dlb_chain_add(c, rc, back, DLB_REFS(to), 1, DLB_REFS(DLB_OUT(0)), 1);
	return dlb_chain_finish(c, k);
}

#define REDUCE(n, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { 1, 2 }, .n_out = { 1, 1 }, .work = "reduce", \
		.infer = infer, .flops = flops, .gradient = gradient, .kernel = kern };
REDUCE(ReduceSum, kernel)
REDUCE(ReduceMean, kernel)
REDUCE(ReduceMax, kernel)
REDUCE(ReduceMin, kernel)
REDUCE(ReduceProd, kernel)
REDUCE(ReduceSumSquare, kernel)
REDUCE(ReduceL1, kernel_mapped)
REDUCE(ReduceL2, kernel_mapped)
REDUCE(ReduceLogSum, kernel_mapped)
REDUCE(ReduceLogSumExp, kernel_mapped)
const struct dlb_op_class dlb_op_ReduceGrad = { .name = "ReduceGrad",
						.domain = "dlb",
						.n_in = { 2, 2 },
						.n_out = { 1, 1 },
						.work = "reduce",
						.infer = grad_infer,
						.kernel = grad_kernel };
const struct dlb_op_class dlb_op_ReduceProdGrad = { .name = "ReduceProdGrad",
						    .domain = "dlb",
						    .n_in = { 2, 2 },
						    .n_out = { 1, 1 },
						    .work = "reduce",
						    .infer = prod_grad_infer,
						    .kernel = prod_grad_kernel };
const struct dlb_op_class dlb_op_ReduceExtremeGrad = { .name = "ReduceExtremeGrad",
						       .domain = "dlb",
						       .n_in = { 3, 3 },
						       .n_out = { 1, 1 },
						       .work = "reduce",
						       .infer = extreme_infer,
						       .kernel = extreme_kernel };
