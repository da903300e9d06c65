/* Operators of the physical layout (domain dlb).
 *
 * Layout moves the bytes of a tensor from its layout to the one in attribute "to". LayoutView changes only
 * the name of the layout, where both layouts have the same bytes: one channel (N,1,H,W) or one pixel
 * (N,C,1,1). TransposeView is a Transpose between channels-last (N,C,...) and plain (N,...,C), which have the
 * same bytes, too; lib/graph/layout.c replaces such Transposes by it. Its attribute perm is Transpose's:
 * 0,2,..,1 (channels to the end) or 0,n-1,1,.. (channels to the front). Views cost nothing. */
#include "op/op_util.h"

#include <string.h>

/* -- Layout and LayoutView -- */

static int layout_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const char *to = dlb_io_str(io, "to", "plain");

	io->out[0] = io->in[0];
	if (!strcmp(to, "plain"))
		io->out[0].layout = DLB_PLAIN;
	else if (!strcmp(to, "channels-last") && io->in[0].n_dims >= 3)
		io->out[0].layout = DLB_CHANNELS_LAST;
	else
		return dlb_op_fail(io, err, "layout '%s' is not possible for %d dimensions", to,
				   io->in[0].n_dims);
	return 0;
}

static int layout_view_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];

	if (x->n_dims >= 3 && x->dim[1] != 1 && dlb_desc_range(x, 2, x->n_dims) != 1)
		return dlb_op_fail(io, err,
				   "the layouts are not the same bytes: several channels and several pixels");
	return layout_infer(io, err);
}

static int layout_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	int64_t from[DLB_MAX_DIMS], to[DLB_MAX_DIMS];

	dlb_desc_strides(x, from);
	dlb_desc_strides(&io->out[0], to);
	return dlb_kernel_strided(be,
				  &(struct dlb_strided){ .in = x,
							 .out = &io->out[0],
							 .n_dims = x->n_dims,
							 .dim = x->dim,
							 .in_stride = from,
							 .out_stride = to },
				  k, err);
}

static int layout_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_attr a = dlb_make_str("to", b->io.in[0].layout == DLB_PLAIN ? "plain" : "channels-last");

	(void)err;
	return dlb_b_gradient(b, DLB_SPEC_ATTR(b->io.cls->name, &a, 1, b->dout[0]));
}

/* -- TransposeView -- */

static bool moves_channels(const int64_t *perm, int n, bool to_end)
{
	bool ok = n >= 3 && perm[0] == 0;

	for (int i = 1; i < n && ok; i++)
		ok = perm[i] == (to_end ? i + 1 < n ? i + 1 : 1 : i > 1 ? i - 1 : n - 1);
	return ok;
}

static int transpose_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];
	const int64_t *perm;
	const int n = dlb_attr_ints(io->attr, io->n_attr, "perm", &perm);
	const bool to_end = n == x->n_dims && moves_channels(perm, n, true);
	/* both layouts have the same bytes */
	const bool both = n >= 3 && n == x->n_dims && (x->dim[1] == 1 || dlb_desc_range(x, 2, n) == 1);
	int64_t dim[DLB_MAX_DIMS];

	if (n != x->n_dims || (!to_end && !moves_channels(perm, n, false)))
		return dlb_op_fail(io, err, "attribute 'perm' does not move the channels of %d dimensions",
				   x->n_dims);
	if (x->layout != (to_end ? DLB_CHANNELS_LAST : DLB_PLAIN) && !(to_end && both))
		return dlb_op_fail(io, err, "the input does not lie %s", to_end ? "channels-last" : "plain");
	for (int i = 0; i < n; i++)
		dim[i] = x->dim[perm[i]];
	io->out[0] = dlb_desc_make(x->dtype, n, dim);
	io->out[0].layout = to_end ? DLB_PLAIN : DLB_CHANNELS_LAST;
	return 0;
}

static int transpose_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const int64_t *perm;
	const int n = dlb_attr_ints(b->io.attr, b->io.n_attr, "perm", &perm);
	int64_t back[DLB_MAX_DIMS];

	(void)err;
	for (int i = 0; i < n; i++)
		back[perm[i]] = i;
	const struct dlb_attr a = dlb_make_ints("perm", back, n);
	return dlb_b_gradient(b, DLB_SPEC_ATTR("TransposeView", &a, 1, b->dout[0]));
}

const struct dlb_op_class dlb_op_Layout = { .name = "Layout",
					    .domain = "dlb",
					    .n_in = { 1, 1 },
					    .n_out = { 1, 1 },
					    .bf16 = DLB_BF16_FOLLOWS,
					    .layout = DLB_LAYOUT_ANY,
					    .work = "move",
					    .infer = layout_infer,
					    .flops = dlb_no_flops,
					    .gradient = layout_gradient,
					    .kernel = layout_kernel };
#define RENAMES(n, inf, grad) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .domain = "dlb", \
						 .n_in = { 1, 1 }, \
						 .n_out = { 1, 1 }, \
						 .layout = DLB_LAYOUT_ANY, \
						 .bf16 = DLB_BF16_FOLLOWS, \
						 .flags = DLB_OP_VIEW | DLB_OP_RENAMES_LAYOUT, \
						 .work = "move", \
						 .infer = inf, \
						 .flops = dlb_no_flops, \
						 .gradient = grad, \
						 .kernel = dlb_kernel_view };
RENAMES(LayoutView, layout_view_infer, layout_gradient)
RENAMES(TransposeView, transpose_infer, transpose_gradient)
