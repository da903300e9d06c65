/* NextToken (domain dlb): the labels of a language model, of shape (..., T), from the
 * tokens at the same positions:
 *     y[..., i] = x[..., i + 1],  y[..., T - 1] = "ignore_index" (default -100), which the loss ignores
 * The logits keep their T positions, so no tensor of their size is sliced or padded. */
#include "op/op_util.h"
#include "op/tap_list.h"

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (io->in[0].dtype != DLB_I64 && io->in[0].dtype != DLB_I32)
		return dlb_op_fail(io, err, "labels are of type %s; i32 or i64 is needed",
				   dlb_dtype_name(io->in[0].dtype));
	if (io->in[0].n_dims < 1)
		return dlb_op_fail(io, err, "labels without a dimension of positions");
	return dlb_infer_same(io, err);
}

/* A copy of elements, each from the next position, and of the index that is ignored at the last one. */
static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0], one = dlb_desc_scalar(x->dtype);
	const int64_t rows = dlb_desc_range(x, 0, x->n_dims - 1), n = x->dim[x->n_dims - 1];
	struct dlb_taps_desc d = { .in = x->dtype, .out = x->dtype, .sum = x->dtype, .move = true,
				   .n_dims = 2, .x = { rows, n }, .y = { rows, n } };
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_tap_list next = { 0 };
	struct dlb_kernel *sub = NULL;
	int64_t ignored = 0;
	int rc;

	dlb_value_set(&ignored, x->dtype, 0, (double)dlb_io_int(io, "ignore_index", -100));
	dlb_tap_list_start(&next, n);
	for (int64_t i = 0; i + 1 < n; i++)
		dlb_tap_list_add(&next, i, i + 1, 1);
	dlb_tap_list_end(&next);
	d.tap[1] = next.tap;
	d.end[1] = next.end;
	rc = be->ops->taps(be, &d, &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(0), dlb_chain_constant(c, &ignored, &one)), 2,
		      DLB_REFS(DLB_OUT(0)), 1);
	dlb_tap_list_release(&next);
	return dlb_chain_finish(c, k);
}

const struct dlb_op_class dlb_op_NextToken = { .name = "NextToken",
					       .domain = "dlb",
					       .n_in = { 1, 1 },
					       .n_out = { 1, 1 },
					       .work = "move",
					       .infer = infer,
					       .kernel = kernel };
