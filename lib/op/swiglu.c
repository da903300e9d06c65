/* SwiGLU (opset 28): a sigmoid(alpha a) b of a gate a and a value b, in one pass, and its
 * gradients, which read only a and b.
 * N. Shazeer, GLU Variants Improve Transformer, 2020. */
#include "op/op_util.h"

static double alpha(const struct dlb_op_io *io)
{
	return dlb_io_real(io, "alpha", 1);
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (!dlb_dtype_is_float(io->in[0].dtype))
		return dlb_op_fail(io, err, "the input is of type %s, not a float",
				   dlb_dtype_name(io->in[0].dtype));
	for (int i = 1; i < io->n_in; i++)
		if (dlb_same_shapes(io, 0, i, err))
			return -1;
	return dlb_same_types(io, 0, io->n_in, err) ? -1 : dlb_infer_same(io, err);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	return dlb_kernel_map(be, io,
			      &(struct dlb_map){ .fn = DLB_MAP_swiglu, .n_in = 2, .alpha = alpha(io) }, k,
			      err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const struct dlb_attr *a = b->io.attr;
	int n = b->io.n_attr;

	(void)err;
	if (b->need[0])
		b->din[0] = dlb_b_op(b, DLB_SPEC_ATTR("SwiGLUGrad", a, n, b->dout[0], b->in[0], b->in[1]),
				     NULL, b->in[0]);
	if (b->need[1])
		b->din[1] = dlb_b_op(b, DLB_SPEC_ATTR("SwiGLUGradValue", a, n, b->dout[0], b->in[0]), NULL,
				     b->in[1]);
	return (b->need[0] && b->din[0] < 0) || (b->need[1] && b->din[1] < 0) ? -1 : 0;
}

static int kernel_grad(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	return dlb_kernel_map(be, io,
			      &(struct dlb_map){ .fn = DLB_MAP_swiglu_grad, .n_in = 3, .alpha = alpha(io) },
			      k, err);
}

static int kernel_grad_value(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			     struct dlb_error *err)
{
	return dlb_kernel_map(be, io,
			      &(struct dlb_map){ .fn = DLB_MAP_swiglu_grad_value, .n_in = 2,
						 .alpha = alpha(io) }, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	return 13.0 * (double)dlb_desc_count(&io->out[0]);
}

static double flops_grad(const struct dlb_op_io *io)
{
	return 17.0 * (double)dlb_desc_count(&io->out[0]);
}

const struct dlb_op_class dlb_op_SwiGLU = { .name = "SwiGLU",
					    .n_in = { 2, 2 },
					    .n_out = { 1, 1 },
					    .layout = DLB_LAYOUT_ANY,
					    .bf16 = DLB_BF16_FOLLOWS,
					    .overwrite = 3,
					    .work = "activation",
					    .infer = infer,
					    .flops = flops,
					    .gradient = gradient,
					    .kernel = kernel };
const struct dlb_op_class dlb_op_SwiGLUGrad = { .name = "SwiGLUGrad",
						.domain = "dlb",
						.n_in = { 3, 3 },
						.n_out = { 1, 1 },
						.layout = DLB_LAYOUT_ANY,
						.overwrite = 7,
						.work = "activation",
						.infer = infer,
						.flops = flops_grad,
						.kernel = kernel_grad };
const struct dlb_op_class dlb_op_SwiGLUGradValue = { .name = "SwiGLUGradValue",
						     .domain = "dlb",
						     .n_in = { 2, 2 },
						     .n_out = { 1, 1 },
						     .layout = DLB_LAYOUT_ANY,
						     .overwrite = 3,
						     .work = "activation",
						     .infer = infer,
						     .flops = flops,
						     .kernel = kernel_grad_value };
