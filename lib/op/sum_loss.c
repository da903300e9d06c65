/* SumLoss (domain dlb): the sum of x over all dimensions but the samples, averaged over the
 * samples; selected by `--loss sum`.
 * SumLossGrad (dy, x) -> dx is dy / n everywhere. */
#include "op/op_util.h"

static double per_sample(const struct dlb_desc *x)
{
	return x->n_dims && x->dim[0] ? 1.0 / (double)x->dim[0] : 1;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (!dlb_dtype_is_float(io->in[0].dtype))
		return dlb_op_fail(io, err, "a loss of type %s", dlb_dtype_name(io->in[0].dtype));
	io->out[0] = dlb_desc_scalar(io->in[0].dtype);
	return 0;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct dlb_desc x = dlb_desc_1d(io->in[0].dtype, dlb_desc_count(&io->in[0]));
	const struct dlb_desc one = dlb_desc_1d(x.dtype, 1), *d[1] = { &one };
	struct dlb_chain *c = dlb_chain_new(be, err);
	int sum = dlb_chain_temp(c, &one);

	dlb_chain_reduce(c, DLB_REDUCE_FN_SUM, 1, DLB_IN(0), &x, sum, &one);
	dlb_chain_map(c,
		      &(struct dlb_map){ .fn = DLB_MAP_linear, .n_in = 1, .alpha = per_sample(&io->in[0]) },
		      DLB_REFS(sum), d, DLB_OUT(0), &one);
	return dlb_chain_finish(c, k);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	return dlb_b_gradient(b, DLB_SPEC("SumLossGrad", b->dout[0], b->in[0]));
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	(void)err;
	io->out[0] = io->in[1];
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct dlb_desc x = dlb_desc_1d(io->in[1].dtype, dlb_desc_count(&io->in[1]));
	const struct dlb_desc one = dlb_desc_1d(x.dtype, 1), *d[1] = { &one };
	struct dlb_chain *c = dlb_chain_new(be, err);

	dlb_chain_map(c,
		      &(struct dlb_map){ .fn = DLB_MAP_linear, .n_in = 1, .alpha = per_sample(&io->in[1]) },
		      DLB_REFS(DLB_IN(0)), d, DLB_OUT(0), &x);
	return dlb_chain_finish(c, k);
}

const struct dlb_op_class dlb_op_SumLoss = { .name = "SumLoss",
					     .domain = "dlb",
					     .n_in = { 1, 1 },
					     .n_out = { 1, 1 },
					     .flags = DLB_OP_IS_LOSS,
					     .work = "loss",
					     .infer = infer,
					     .gradient = gradient,
					     .kernel = kernel };
const struct dlb_op_class dlb_op_SumLossGrad = { .name = "SumLossGrad",
						 .domain = "dlb",
						 .n_in = { 2, 2 },
						 .n_out = { 1, 1 },
						 .layout = DLB_LAYOUT_ANY,
						 .work = "loss",
						 .infer = grad_infer,
						 .kernel = grad_kernel };
