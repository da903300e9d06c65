/* Gather along an axis (embeddings), and its gradient: GatherGrad (dy, indices, shape; axis) adds each row of
 * dy to the row that it was read from, in the order of the indices.
 *
 * Our attributes "first" and "of" state that the table holds the rows from `first` on of a table of `of`
 * rows, to which the indices refer: missing rows give zeros, so the sum of the outputs of all parts is the
 * output of the whole. Our attribute "padding" is a row (of the whole table) that gets no gradient, like
 * torch.nn.Embedding's padding_idx. */
#include "op/op_util.h"

/* The output's shape for table x. */
static int taken(const struct dlb_op_io *io, const struct dlb_desc *x, const struct dlb_desc *index,
		 struct dlb_desc *out, struct dlb_error *err)
{
	int axis = dlb_axis(io, dlb_io_int(io, "axis", 0), x->n_dims, err);
	struct dlb_desc y = { .dtype = x->dtype };

	if (axis < 0)
		return -1;
	if (index->dtype != DLB_I32 && index->dtype != DLB_I64)
		return dlb_op_fail(io, err, "indices are of type %s; i32 or i64 is needed",
				   dlb_dtype_name(index->dtype));
	if (x->n_dims - 1 + index->n_dims > DLB_MAX_DIMS)
		return dlb_op_fail(io, err, "more than %d dimensions", DLB_MAX_DIMS);
	for (int i = 0; i < axis; i++)
		y.dim[y.n_dims++] = x->dim[i];
	for (int i = 0; i < index->n_dims; i++)
		y.dim[y.n_dims++] = index->dim[i];
	for (int i = axis + 1; i < x->n_dims; i++)
		y.dim[y.n_dims++] = x->dim[i];
	*out = y;
	return 0;
}

static struct dlb_gather_desc describe(const struct dlb_op_io *io, const struct dlb_desc *x,
				       const struct dlb_desc *index)
{
	int axis = (int)dlb_io_int(io, "axis", 0);

	axis = axis < 0 ? axis + x->n_dims : axis;
	return (struct dlb_gather_desc){ .dtype = x->dtype,
					 .index = index->dtype,
					 .outer = dlb_desc_range(x, 0, axis),
					 .rows = x->dim[axis],
					 .n_index = dlb_desc_count(index),
					 .width = dlb_desc_range(x, axis + 1, x->n_dims),
					 .padding = dlb_io_int(io, "padding", -1),
					 .first = dlb_io_int(io, "first", 0),
					 .of = dlb_io_int(io, "of", x->dim[axis]) };
}

static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (dlb_io_int(io, "first", 0) < 0 || dlb_io_int(io, "of", 0) < 0)
		return dlb_op_fail(io, err, "the rows of a part cannot be counted from below 0");
	if (taken(io, &io->in[0], &io->in[1], &io->out[0], err))
		return -1;
	const struct dlb_gather_desc g = describe(io, &io->in[0], &io->in[1]);
	if (dlb_attr_find(io->attr, io->n_attr, "padding") && (g.padding < 0 || g.padding >= g.of))
		return dlb_op_fail(io, err, "padding row %lld of a table of %lld rows", (long long)g.padding,
				   (long long)g.of);
	return 0;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct dlb_gather_desc d = describe(io, &io->in[0], &io->in[1]);

	return be->ops->gather(be, &d, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	static const char *const keep[] = { "first", "of", "padding" };
	struct dlb_attr a[4] = { dlb_make_int("axis", dlb_io_int(&b->io, "axis", 0)) };

	(void)err;
	if (!b->need[0])
		return 0;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("GatherGrad", a,
					       1 + dlb_keep_attrs(&b->io, keep, DLB_LEN(keep), a + 1),
					       b->dout[0], b->in[1], dlb_b_const_shape(b, b->in[0])));
}

static int grad_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc rows;

	if (dlb_io_shape(io, 2, &io->out[0], err) || taken(io, &io->out[0], &io->in[1], &rows, err))
		return -1;
	if (!dlb_desc_same_shape(&rows, &io->in[0]))
		return dlb_op_fail(io, err, "the gradient's shape is not that of the rows taken");
	return 0;
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_gather_desc d = describe(io, &io->out[0], &io->in[1]);

	d.backward = true;
	return be->ops->gather(be, &d, k, err);
}

static double grad_flops(const struct dlb_op_io *io)
{
	return (double)dlb_desc_count(&io->in[0]);
}

const struct dlb_op_class dlb_op_Gather = { .name = "Gather",
					    .n_in = { 2, 2 },
					    .n_out = { 1, 1 },
					    .bf16 = DLB_BF16_FOLLOWS,
					    .work = "move",
					    .infer = infer,
					    .flops = dlb_no_flops,
					    .gradient = gradient,
					    .kernel = kernel };
const struct dlb_op_class dlb_op_GatherGrad = { .name = "GatherGrad",
						.domain = "dlb",
						.n_in = { 3, 3 },
						.n_out = { 1, 1 },
						.work = "move",
						.infer = grad_infer,
						.flops = grad_flops,
						.kernel = grad_kernel };
