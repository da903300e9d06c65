/* Elements by indices: GatherElements, ScatterElements, GatherND, ScatterND.
 *
 * Each is a list of pairs (element of the table, element of the updates or output); they differ in how
 * a pair is found. Gradients use the same pairs reversed: GatherElementsGrad, GatherNDGrad (dy,
 * indices, shape) add to zeros; for ScatterElements and ScatterND, x gets dy with zeros at the overwritten
 * elements, and the updates get dy gathered at the indices. */
#include "op/op_util.h"

#include <string.h>

static const char *const how_name[DLB_N_INDEX_HOWS] = { "none", "add", "mul", "min", "max" };

static bool is_nd(const struct dlb_op_io *io)
{
	return strstr(io->cls->name, "ND") != NULL;
}

/* Checks the indices, input i, for table x. */
static int parse(const struct dlb_op_io *io, const struct dlb_desc *x, int i, struct dlb_index_desc *d,
		 struct dlb_error *err)
{
	const struct dlb_desc *at = &io->in[i];
	const char *how = dlb_io_str(io, "reduction", "none");

	*d = (struct dlb_index_desc){
		.dtype = x->dtype, .index = at->dtype, .nd = is_nd(io), .x = *x, .at = *at, .width = 1
	};
	if (at->dtype != DLB_I64 && at->dtype != DLB_I32)
		return dlb_op_fail(io, err, "indices are of type %s", dlb_dtype_name(at->dtype));
	while (d->how < DLB_N_INDEX_HOWS && strcmp(how, how_name[d->how]))
		d->how++;
	if (d->how == DLB_N_INDEX_HOWS)
		return dlb_op_fail(io, err, "attribute 'reduction' is '%s', not none, add, mul, min or max",
				   how);
	if (!d->nd) {
		d->axis = dlb_axis(io, dlb_io_int(io, "axis", 0), x->n_dims, err);
		if (d->axis < 0)
			return -1;
		for (int k = 0; k < x->n_dims; k++)
			if (at->n_dims != x->n_dims || (k != d->axis && at->dim[k] > x->dim[k]))
				return dlb_op_fail(io, err, "the indices' shape does not fit the input's");
		return 0;
	}
	d->batch = (int)dlb_io_int(io, "batch_dims", 0);
	d->depth = at->n_dims ? (int)at->dim[at->n_dims - 1] : 0;
	if (at->n_dims < 1 || d->batch < 0 || d->batch >= at->n_dims || d->depth < 0 ||
	    d->batch + d->depth > x->n_dims)
		return dlb_op_fail(io, err, "indices of depth %d, batch_dims %d do not fit %d dimensions",
				   d->depth, d->batch, x->n_dims);
	for (int k = 0; k < d->batch; k++)
		if (at->dim[k] != x->dim[k])
			return dlb_op_fail(io, err, "input and indices differ in batch dimension %d", k);
	d->width = dlb_desc_range(x, d->batch + d->depth, x->n_dims);
	return 0;
}

/* The shape of the gathered output, or of the updates. */
static struct dlb_desc picked(const struct dlb_index_desc *d)
{
	struct dlb_desc y = dlb_desc_make(d->dtype, d->at.n_dims, d->at.dim);

	if (d->nd) {
		y.n_dims--;
		for (int k = d->batch + d->depth; k < d->x.n_dims && y.n_dims < DLB_MAX_DIMS; k++)
			y.dim[y.n_dims++] = d->x.dim[k];
	}
	return y;
}

/* -- gathers -- */

static int gather_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_index_desc d;

	if (parse(io, &io->in[0], 1, &d, err))
		return -1;
	if (d.nd && d.at.n_dims - 1 + d.x.n_dims - d.batch - d.depth > DLB_MAX_DIMS)
		return dlb_op_fail(io, err, "more than %d dimensions", DLB_MAX_DIMS);
	io->out[0] = picked(&d);
	return 0;
}

static int gather_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	struct dlb_index_desc d;

	if (parse(io, &io->in[0], 1, &d, err))
		return -1;
	d.fn = DLB_INDEX_TAKE;
	return be->ops->index(be, &d, k, err);
}

static int gather_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const char *type = is_nd(&b->io) ? "GatherNDGrad" : "GatherElementsGrad";

	(void)err;
	if (!b->need[0])
		return 0;
	return dlb_b_gradient(b, DLB_SPEC_ATTR(type, b->io.attr, b->io.n_attr, b->dout[0], b->in[1],
					       dlb_b_const_shape(b, b->in[0])));
}

static int spread_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc y;
	struct dlb_index_desc d;

	if (dlb_io_shape(io, 2, &io->out[0], err) || parse(io, &io->out[0], 1, &d, err))
		return -1;
	y = picked(&d);
	if (!dlb_desc_same_shape(&y, &io->in[0]))
		return dlb_op_fail(io, err, "the gradient's shape is not that of the elements taken");
	return 0;
}

static int spread_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	struct dlb_index_desc d;

	if (parse(io, &io->out[0], 1, &d, err))
		return -1;
	d.fn = DLB_INDEX_PUT_ONTO_ZEROS;
	d.how = DLB_INDEX_ADD;
	return be->ops->index(be, &d, k, err);
}

/* -- scatters; our attribute "zeros": indexed elements become 0, and there are no updates -- */

static int scatter_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc u;
	struct dlb_index_desc d;

	if (parse(io, &io->in[0], 1, &d, err))
		return -1;
	u = picked(&d);
	if (io->n_in > 2 && (!dlb_desc_same_shape(&u, &io->in[2]) || io->in[2].dtype != d.dtype))
		return dlb_op_fail(io, err, "the updates' shape or type does not fit the indices");
	return dlb_infer_same(io, err);
}

static int scatter_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	struct dlb_index_desc d;

	if (parse(io, &io->in[0], 1, &d, err))
		return -1;
	d.fn = DLB_INDEX_PUT;
	d.zeros = io->n_in == 2;
	return be->ops->index(be, &d, k, err);
}

static int scatter_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	bool nd = is_nd(&b->io);
	const char *how = dlb_io_str(&b->io, "reduction", "none");
	struct dlb_attr axis = dlb_make_int("axis", dlb_io_int(&b->io, "axis", 0));

	if (strcmp(how, "none") && strcmp(how, "add"))
		return dlb_op_fail(&b->io, err, "no gradient for reduction '%s'; none and add have one", how);
	if (b->need[0])
		b->din[0] = !strcmp(how, "add") ? b->dout[0] :
			dlb_b_op(b, DLB_SPEC_ATTR(nd ? "ScatterNDClear" : "ScatterElementsClear", &axis,
						  nd ? 0 : 1, b->dout[0], b->in[1]), NULL, b->in[0]);
	if (b->need[2])
		b->din[2] = dlb_b_op(b, DLB_SPEC_ATTR(nd ? "GatherND" : "GatherElements", &axis, nd ? 0 : 1,
						      b->dout[0], b->in[1]), NULL, b->in[2]);
	return (b->need[0] && b->din[0] < 0) || (b->need[2] && b->din[2] < 0) ? -1 : 0;
}

#define ONNX(n, ins, inf, grad, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { ins, ins }, .n_out = { 1, 1 }, .work = "move", \
		.infer = inf, .flops = dlb_no_flops, .gradient = grad, .kernel = kern };
#define OURS(n, ins, inf, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .domain = "dlb", .n_in = { ins, ins }, .n_out = { 1, 1 }, \
		.work = "move", .infer = inf, .flops = dlb_no_flops, .kernel = kern };
ONNX(GatherElements, 2, gather_infer, gather_gradient, gather_kernel)
ONNX(GatherND, 2, gather_infer, gather_gradient, gather_kernel)
ONNX(ScatterElements, 3, scatter_infer, scatter_gradient, scatter_kernel)
ONNX(ScatterND, 3, scatter_infer, scatter_gradient, scatter_kernel)
OURS(GatherElementsGrad, 3, spread_infer, spread_kernel)
OURS(GatherNDGrad, 3, spread_infer, spread_kernel)
OURS(ScatterElementsClear, 2, scatter_infer, scatter_kernel)
OURS(ScatterNDClear, 2, scatter_infer, scatter_kernel)
