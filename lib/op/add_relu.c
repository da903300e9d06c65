/* AddRelu (domain dlb): Relu(a + b) with NumPy's broadcasting, in one pass, as at the end of a residual
 * block. The gradient uses the output, like Relu's, and is computed once for both operands. */
#include "op/op_util.h"

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	enum dlb_dtype type;

	if (dlb_mixed_types(io, 0, 2, &type, err) || dlb_infer_broadcast(io, err))
		return -1;
	io->out[0].dtype = type;
	return 0;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	return dlb_kernel_map(be, io, DLB_MAP(add_relu, 2), k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const int g = dlb_b_op2(b, "ReluGrad", b->dout[0], b->out[0]);

	(void)err;
	for (int i = 0; i < 2; i++)
		if (b->need[i] && (b->din[i] = dlb_b_unbroadcast(b, g, b->in[i])) < 0)
			return -1;
	return 0;
}

static double flops(const struct dlb_op_io *io)
{
	return 2.0 * (double)dlb_desc_count(&io->out[0]);
}

const struct dlb_op_class dlb_op_AddRelu = { .name = "AddRelu",
					     .domain = "dlb",
					     .n_in = { 2, 2 },
					     .n_out = { 1, 1 },
					     .layout = DLB_LAYOUT_ANY,
					     .bf16 = DLB_BF16_MIXES,
					     .overwrite = 3,
					     .work = "elementwise",
					     .infer = infer,
					     .flops = flops,
					     .gradient = gradient,
					     .kernel = kernel };
