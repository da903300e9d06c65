/* CumSum and CumProd: running sums and products along an axis, including the current element or not
 * (exclusive), from the start or from the end (reverse). The gradient of a running sum is the running sum in
 * the other direction; CumProdGrad (dy, x, axis) is that of a running product. */
#include "op/op_util.h"

/* `input` holds the axis. */
static int parse(const struct dlb_op_io *io, int input, struct dlb_scan_desc *s, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t axis = 0;
	int a;

	if (dlb_io_ints(io, input, "axis", &axis, 1, err) < 0)
		return -1;
	a = dlb_axis(io, axis, x->n_dims, err);
	if (a < 0)
		return -1;
	*s = (struct dlb_scan_desc){ .dtype = x->dtype,
			       .outer = dlb_desc_range(x, 0, a),
			       .n = x->dim[a],
			       .inner = dlb_desc_range(x, a + 1, x->n_dims),
			       .exclusive = dlb_io_int(io, "exclusive", 0) != 0,
			       .reverse = dlb_io_int(io, "reverse", 0) != 0 };
	return 0;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_scan_desc s;

	if (parse(io, 1, &s, err))
		return -1;
	if (s.dtype == DLB_BOOL)
		return dlb_op_fail(io, err, "the input is of type bool, not a number");
	return dlb_infer_same(io, err);
}

static int scan(struct dlb_backend *be, const struct dlb_op_io *io, int axis, enum dlb_scan_fn fn,
		struct dlb_kernel **k, struct dlb_error *err)
{
	struct dlb_scan_desc s;

	if (parse(io, axis, &s, err))
		return -1;
	s.fn = fn;
	return be->ops->scan(be, &s, k, err);
}

static int sum_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	return scan(be, io, 1, DLB_SCAN_SUM, k, err);
}

static int product_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	return scan(be, io, 1, DLB_SCAN_PRODUCT, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	return (double)dlb_desc_count(&io->in[0]);
}

static int sum_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_attr a[2] = { dlb_make_int("exclusive", dlb_io_int(&b->io, "exclusive", 0)),
				 dlb_make_int("reverse", !dlb_io_int(&b->io, "reverse", 0)) };

	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("CumSum", a, 2, b->dout[0], b->in[1]));
}

static int product_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("CumProdGrad", b->io.attr, b->io.n_attr, b->dout[0], b->in[0],
					       b->in[1]));
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_scan_desc s;

	if (parse(io, 2, &s, err) || dlb_same_types(io, 0, 2, err) || dlb_same_shapes(io, 0, 1, err))
		return -1;
	return dlb_infer_same(io, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	return scan(be, io, 2, DLB_SCAN_PRODUCT_GRAD, k, err);
}

const struct dlb_op_class dlb_op_CumSum = { .name = "CumSum",
					    .n_in = { 2, 2 },
					    .n_out = { 1, 1 },
					    .work = "reduce",
					    .infer = infer,
					    .flops = flops,
					    .gradient = sum_gradient,
					    .kernel = sum_kernel };
const struct dlb_op_class dlb_op_CumProd = { .name = "CumProd",
					     .n_in = { 2, 2 },
					     .n_out = { 1, 1 },
					     .work = "reduce",
					     .infer = infer,
					     .flops = flops,
					     .gradient = product_gradient,
					     .kernel = product_kernel };
const struct dlb_op_class dlb_op_CumProdGrad = { .name = "CumProdGrad",
						 .domain = "dlb",
						 .n_in = { 3, 3 },
						 .n_out = { 1, 1 },
						 .work = "reduce",
						 .infer = grad_infer,
						 .flops = flops,
						 .kernel = grad_kernel };
