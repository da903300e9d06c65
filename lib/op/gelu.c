/* Gelu, exact (erf) or tanh by attribute "approximate", and its gradient, which reads only x.
 * D. Hendrycks, K. Gimpel, Gaussian Error Linear Units, 2016. */
#include "op/op_util.h"

#include <string.h>

static bool by_tanh(const struct dlb_op_io *io)
{
	return !strcmp(dlb_io_str(io, "approximate", "none"), "tanh");
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const char *how = dlb_io_str(io, "approximate", "none");

	if (strcmp(how, "none") && strcmp(how, "tanh"))
		return dlb_op_fail(io, err, "attribute 'approximate' is '%s', not none or tanh", how);
	if (!dlb_dtype_is_float(io->in[0].dtype))
		return dlb_op_fail(io, err, "the input is of type %s", dlb_dtype_name(io->in[0].dtype));
	return dlb_infer_same(io, err);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	return dlb_kernel_map(be, io,
			      &(struct dlb_map){ .fn = by_tanh(io) ? DLB_MAP_gelu_tanh : DLB_MAP_gelu,
						 .n_in = 1 }, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("GeluGrad", b->io.attr, b->io.n_attr, b->dout[0], b->in[0]));
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (dlb_same_types(io, 0, 2, err) || dlb_same_shapes(io, 0, 1, err))
		return -1;
	return infer(io, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const enum dlb_map_fn fn = by_tanh(io) ? DLB_MAP_gelu_tanh_grad : DLB_MAP_gelu_grad;

	return dlb_kernel_map(be, io, &(struct dlb_map){ .fn = fn, .n_in = 2 }, k, err);
}

static double flops(const struct dlb_op_io *io)
{
	return 20.0 * (double)dlb_desc_count(&io->out[0]);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return 35.0 * (double)dlb_desc_count(&io->out[0]);
}

const struct dlb_op_class dlb_op_Gelu = { .name = "Gelu",
					  .n_in = { 1, 1 },
					  .n_out = { 1, 1 },
					  .layout = DLB_LAYOUT_ANY,
					  .bf16 = DLB_BF16_FOLLOWS,
					  .overwrite = 1,
					  .work = "activation",
					  .infer = infer,
					  .flops = flops,
					  .gradient = gradient,
					  .kernel = kernel };
const struct dlb_op_class dlb_op_GeluGrad = { .name = "GeluGrad",
					      .domain = "dlb",
					      .n_in = { 2, 2 },
					      .n_out = { 1, 1 },
					      .layout = DLB_LAYOUT_ANY,
					      .overwrite = 3,
					      .work = "activation",
					      .infer = grad_infer,
					      .flops = grad_flops,
					      .kernel = grad_kernel };
