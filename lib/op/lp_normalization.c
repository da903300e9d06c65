/* LpNormalization: y = x / n, where n is the L1 or L2 norm along an axis; 0 where n is 0.
 * Its gradient reads x and y:
 *     dx = (dy - v sum(dy y)) / n,  v = y for L2, sign(x) for L1 */
#include "op/op_util.h"

struct lp_norm { int p, axis; struct dlb_desc norm; };	/* norm: x's shape, with 1 along the axis */

static int parse(const struct dlb_op_io *io, struct lp_norm *l, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];

	l->p = (int)dlb_io_int(io, "p", 2);
	if (l->p != 1 && l->p != 2)
		return dlb_op_fail(io, err, "attribute 'p' is %d, not 1 or 2", l->p);
	l->axis = dlb_axis(io, dlb_io_int(io, "axis", -1), x->n_dims, err);
	if (l->axis < 0)
		return -1;
	l->norm = *x;
	l->norm.dim[l->axis] = 1;
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct lp_norm l;

	if (!dlb_dtype_is_float(io->in[0].dtype))
		return dlb_op_fail(io, err, "the input is of type %s, not a float",
				   dlb_dtype_name(io->in[0].dtype));
	for (int i = 1; i < io->n_in; i++)
		if (dlb_same_shapes(io, 0, i, err))
			return -1;
	if (dlb_same_types(io, 0, io->n_in, err) || parse(io, &l, err))
		return -1;
	return dlb_infer_same(io, err);
}

/* The norm of x (a reference) in a new temporary; `wide`: a temporary with x's shape. */
static int norm_of(struct dlb_chain *c, const struct lp_norm *l, int x, int wide, const struct dlb_desc *d)
{
	const struct dlb_desc *n = &l->norm;
	const int norm = dlb_chain_temp(c, n);

	if (l->p == 1) {
		dlb_chain_map(c, DLB_MAP(abs, 1), DLB_REFS(x), &d, wide, d);
		dlb_chain_reduce(c, DLB_REDUCE_FN_SUM, 1u << l->axis, wide, d, norm, n);
	} else {
		dlb_chain_reduce(c, DLB_REDUCE_FN_SUMSQ, 1u << l->axis, x, d, norm, n);
		dlb_chain_map(c, DLB_MAP(sqrt, 1), DLB_REFS(norm), &n, norm, n);
	}
	return norm;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	struct lp_norm l;

	if (parse(io, &l, err))
		return -1;
	struct dlb_chain *c = dlb_chain_new(be, err);
	const struct dlb_desc *d[2] = { x, &l.norm };
	const int norm = norm_of(c, &l, DLB_IN(0), DLB_OUT(0), x);

	dlb_chain_map(c, DLB_MAP(div_or_zero, 2), DLB_REFS(DLB_IN(0), norm), d, DLB_OUT(0), &io->out[0]);
	return dlb_chain_finish(c, k);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("LpNormalizationGrad", b->io.attr, b->io.n_attr, b->dout[0],
					       b->in[0], b->out[0]));
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[1];
	struct lp_norm l;

	if (parse(io, &l, err))
		return -1;
	struct dlb_chain *c = dlb_chain_new(be, err);
	const struct dlb_desc *two[2] = { x, x }, *with_norm[2] = { x, &l.norm };
	const int wide = dlb_chain_temp(c, x), sum = dlb_chain_temp(c, &l.norm),
		  norm = norm_of(c, &l, DLB_IN(1), wide, x);
	int v = DLB_IN(2);

	dlb_chain_map(c, DLB_MAP(mul, 2), DLB_REFS(DLB_IN(0), DLB_IN(2)), two, wide, x);
	dlb_chain_reduce(c, DLB_REDUCE_FN_SUM, 1u << l.axis, wide, x, sum, &l.norm);
	if (l.p == 1) {
		dlb_chain_map(c, DLB_MAP(sign, 1), DLB_REFS(DLB_IN(1)), &x, wide, x);
		v = wide;
	}
	dlb_chain_map(c, DLB_MAP(mul, 2), DLB_REFS(v, sum), with_norm, wide, x);
	dlb_chain_map(c, DLB_MAP(sub, 2), DLB_REFS(DLB_IN(0), wide), two, wide, x);
	dlb_chain_map(c, DLB_MAP(div_or_zero, 2), DLB_REFS(wide, norm), with_norm, DLB_OUT(0), &io->out[0]);
	return dlb_chain_finish(c, k);
}

static double flops(const struct dlb_op_io *io)
{
	return 4.0 * (double)dlb_desc_count(&io->in[0]);
}

const struct dlb_op_class dlb_op_LpNormalization = { .name = "LpNormalization",
						     .n_in = { 1, 1 },
						     .n_out = { 1, 1 },
						     .work = "norm",
						     .infer = infer,
						     .flops = flops,
						     .gradient = gradient,
						     .kernel = kernel };
const struct dlb_op_class dlb_op_LpNormalizationGrad = { .name = "LpNormalizationGrad",
							 .domain = "dlb",
							 .n_in = { 3, 3 },
							 .n_out = { 1, 1 },
							 .work = "norm",
							 .infer = infer,
							 .flops = flops,
							 .kernel = grad_kernel };
