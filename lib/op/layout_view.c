/* LayoutView (domain dlb): changes the layout's name where both layouts have the same bytes: one channel
 * (N,1,H,W) or one pixel (N,C,1,1). It is a view and costs nothing, unlike Layout, which moves bytes. */
#include "op/op_util.h"

#include <string.h>

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	const char *to = dlb_io_str(io, "to", "plain");

	if (x->n_dims >= 3 && x->dim[1] != 1 && dlb_desc_range(x, 2, x->n_dims) != 1)
		return dlb_op_fail(io, err,
				   "the layouts are not the same bytes: several channels and several pixels");
	if (strcmp(to, "plain") && (strcmp(to, "channels-last") || x->n_dims < 3))
		return dlb_op_fail(io, err, "layout '%s' is not possible for %d dimensions", to, x->n_dims);
	io->out[0] = *x;
	io->out[0].layout = strcmp(to, "plain") ? DLB_CHANNELS_LAST : DLB_PLAIN;
	return 0;
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const struct dlb_attr to = dlb_make_str("to",
						b->io.in[0].layout == DLB_PLAIN ? "plain" : "channels-last");

	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("LayoutView", &to, 1, b->dout[0]));
}

const struct dlb_op_class dlb_op_LayoutView = { .name = "LayoutView",
						.domain = "dlb",
						.n_in = { 1, 1 },
						.n_out = { 1, 1 },
						.layout = DLB_LAYOUT_ANY,
						.bf16 = DLB_BF16_FOLLOWS,
						.flags = DLB_OP_VIEW | DLB_OP_RENAMES_LAYOUT,
						.work = "move",
						.infer = infer,
						.flops = dlb_no_flops,
						.gradient = gradient,
						.kernel = dlb_kernel_view };
