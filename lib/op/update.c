/* Update (domain dlb): one optimizer step on one weight. Inputs are {weight, gradient} and, for a K-FAC layer
 * (optim/kfac.h), for each op that reads the weight its input and the gradient of its output. There are no
 * outputs. dlb-run chooses the optimizer, whose state is not in the graph: the executor prepares the kernel
 * itself, by the back end's update. */
#include "op/op_util.h"

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (!dlb_desc_same_shape(&io->in[0], &io->in[1]) || io->in[0].dtype != io->in[1].dtype)
		return dlb_op_fail(io, err, "the gradient does not have the weight's shape and type");
	return 0;
}

/* For sgd: w -= lr g. Recomputed when the optimizer is known. */
static double flops(const struct dlb_op_io *io)
{
	return 2.0 * (double)dlb_desc_count(&io->in[0]);
}

static double bytes(const struct dlb_op_io *io)
{
	return 3.0 * (double)dlb_desc_bytes(&io->in[0]);
}

const struct dlb_op_class dlb_op_Update = { .name = "Update",
					    .domain = "dlb",
					    .n_in = { 2, 2 + 2 * 32 },
					    .n_out = { 0, 0 },
					    .layout = DLB_LAYOUT_ANY,
					    .flags = DLB_OP_NO_FOLD,
					    .work = "update",
					    .infer = infer,
					    .flops = flops,
					    .bytes = bytes };
