/* TransposeView (domain dlb): a Transpose between channels-last (N,C,...) and plain (N,...,C). Both have the
 * same bytes, so it is a view and costs nothing. lib/graph/layout.c replaces such Transposes by it. Attribute
 * perm is Transpose's: 0,2,..,1 (channels to the end) or 0,n-1,1,.. (channels to the front). */
#include "op/op_util.h"

static bool moves_channels(const int64_t *perm, int n, bool to_end)
{
	bool ok = n >= 3 && perm[0] == 0;

	for (int i = 1; i < n && ok; i++)
		ok = perm[i] == (to_end ? i + 1 < n ? i + 1 : 1 : i > 1 ? i - 1 : n - 1);
	return ok;
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
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

static int gradient(struct dlb_builder *b, struct dlb_error *err)
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

const struct dlb_op_class dlb_op_TransposeView = { .name = "TransposeView",
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
