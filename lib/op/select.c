/* Selection by value: TopK, ArgMax, ArgMin, Hardmax, OneHot. Of equal values the lowest index is
 * chosen (by ArgMax and ArgMin the highest with select_last_index). TopK's gradient adds dy at
 * the indices of its values. */
#include "op/op_util.h"

#include <string.h>

static int split_axis(const struct dlb_op_io *io, int64_t otherwise, struct dlb_select_desc *s, int *axis,
		      struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0];

	*axis = dlb_axis(io, dlb_io_int(io, "axis", otherwise), x->n_dims, err);
	if (*axis < 0)
		return -1;
	*s = (struct dlb_select_desc){ .dtype = x->dtype, .outer = dlb_desc_range(x, 0, *axis), .n = x->dim[*axis],
		.inner = dlb_desc_range(x, *axis + 1, x->n_dims), .m = 1 };
	return 0;
}

static double flops(const struct dlb_op_io *io)
{
	return (double)dlb_desc_count(&io->in[0]);
}

/* -- TopK: k is an attribute before opset 10 -- */

static int topk_shape(const struct dlb_op_io *io, struct dlb_select_desc *s, int *axis, struct dlb_error *err)
{
	int64_t k = dlb_io_int(io, "k", -1);
	int n = dlb_io_ints(io, 1, "k", &k, 1, err);

	if (n < 0 || split_axis(io, -1, s, axis, err))
		return -1;
	if (k < 0 || k > s->n)
		return dlb_op_fail(io, err, "k is %lld, the axis has %lld elements", (long long)k,
				   (long long)s->n);
	s->m = k;
	s->largest = dlb_io_int(io, "largest", 1) != 0;
	return 0;
}

static int topk_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_select_desc s;
	int axis;

	if (topk_shape(io, &s, &axis, err))
		return -1;
	for (int i = 0; i < io->n_out; i++) {
		io->out[i] = dlb_desc_make(i ? DLB_I64 : io->in[0].dtype, io->in[0].n_dims, io->in[0].dim);
		io->out[i].dim[axis] = s.m;
	}
	return 0;
}

static int topk_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_chain *c;
	struct dlb_kernel *sub = NULL;
	struct dlb_select_desc s;
	int axis, rc;

	if (topk_shape(io, &s, &axis, err))
		return -1;
	c = dlb_chain_new(be, err);
	rc = be->ops->select(be, &s, &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(0)), 1,
		      DLB_REFS(dlb_io_wants(io, 0) ? DLB_OUT(0) : DLB_NOTHING,
			       dlb_io_wants(io, 1) ? DLB_OUT(1) : DLB_NOTHING),
		      2);
	return dlb_chain_finish(c, k);
}

static int topk_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_attr axis = dlb_make_int("axis", dlb_io_int(&b->io, "axis", -1));

	(void)err;
	if (!b->need[0] || b->dout[0] < 0)
		return 0;
	return dlb_b_gradient(b, DLB_SPEC_ATTR("GatherElementsGrad", &axis, 1, b->dout[0],
					       dlb_b_extra_output(b, 1), dlb_b_const_shape(b, b->in[0])));
}

/* -- ArgMax, ArgMin -- */

static int arg_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc y = { .dtype = DLB_I64 };
	bool keep = dlb_io_int(io, "keepdims", 1) != 0;
	struct dlb_select_desc s;
	int axis;

	if (split_axis(io, 0, &s, &axis, err))
		return -1;
	if (s.n < 1)
		return dlb_op_fail(io, err, "the axis is empty");
	for (int i = 0; i < io->in[0].n_dims; i++)
		if (i != axis || keep)
			y.dim[y.n_dims++] = i == axis ? 1 : io->in[0].dim[i];
	io->out[0] = y;
	return 0;
}

static int arg_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	struct dlb_select_desc s;
	int axis;

	if (split_axis(io, 0, &s, &axis, err))
		return -1;
	s.fn = DLB_SELECT_ARG;
	s.largest = !strcmp(io->cls->name, "ArgMax");
	s.last = dlb_io_int(io, "select_last_index", 0) != 0;
	return be->ops->select(be, &s, k, err);
}

/* -- Hardmax: 1 at a line's largest element, else 0; before opset 13 a line is all from `axis` on -- */

static int hardmax_shape(const struct dlb_op_io *io, struct dlb_select_desc *s, struct dlb_error *err)
{
	int axis;

	if (!dlb_dtype_is_float(io->in[0].dtype))
		return dlb_op_fail(io, err, "the input is of type %s, not a float",
				   dlb_dtype_name(io->in[0].dtype));
	if (split_axis(io, io->opset < 13 ? 1 : -1, s, &axis, err))
		return -1;
	if (io->opset < 13) {
		s->n *= s->inner;
		s->inner = 1;
	}
	s->largest = true;
	return 0;
}

static int hardmax_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_select_desc s;

	return hardmax_shape(io, &s, err) ? -1 : dlb_infer_same(io, err);
}

static int hardmax_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	struct dlb_select_desc s;

	if (hardmax_shape(io, &s, err))
		return -1;
	s.fn = DLB_SELECT_HARDMAX;
	return be->ops->select(be, &s, k, err);
}

/* -- OneHot (indices, depth, values {off, on}) -- */

static int one_hot_axis(const struct dlb_op_io *io, struct dlb_error *err)
{
	int64_t axis = dlb_io_int(io, "axis", -1);
	int n = io->in[0].n_dims + 1;

	if (n > DLB_MAX_DIMS)
		return dlb_op_fail(io, err, "more than %d dimensions", DLB_MAX_DIMS);
	return dlb_axis(io, axis, n, err);
}

static int one_hot_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int axis = one_hot_axis(io, err);
	struct dlb_desc y = { .dtype = io->in[2].dtype };
	double depth;

	if (axis < 0)
		return -1;
	if (!io->value || !io->value[1] || dlb_desc_count(&io->in[1]) != 1 || dlb_desc_count(&io->in[2]) != 2)
		return dlb_op_fail(io, err,
				   "the depth must be one constant number, and there must be two values");
	depth = dlb_value_real(io->value[1], io->in[1].dtype, 0);
	if (!(depth >= 0 && depth < 1 << 30))
		return dlb_op_fail(io, err, "a depth of %g is not possible", depth);
	y.n_dims = io->in[0].n_dims + 1;
	for (int i = 0; i < y.n_dims; i++)
		y.dim[i] = i == axis ? (int64_t)depth : io->in[0].dim[i - (i > axis)];
	io->out[0] = y;
	return 0;
}

static int one_hot_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			  struct dlb_error *err)
{
	int axis = one_hot_axis(io, err);
	struct dlb_select_desc s = { .fn = DLB_SELECT_ONE_HOT, .index = io->in[0].dtype, .dtype = io->in[2].dtype };
	struct dlb_kernel *sub = NULL;
	struct dlb_chain *c;
	int rc;

	if (axis < 0)
		return -1;
	s.outer = dlb_desc_range(&io->out[0], 0, axis);
	s.n = io->out[0].dim[axis];
	s.inner = dlb_desc_range(&io->out[0], axis + 1, io->out[0].n_dims);
	c = dlb_chain_new(be, err);
	rc = be->ops->select(be, &s, &sub, err);
	dlb_chain_add(c, rc, sub, DLB_REFS(DLB_IN(0), DLB_IN(2)), 2, DLB_REFS(DLB_OUT(0)), 1);
	return dlb_chain_finish(c, k);
}

#define SELECT(n, ins, most, outs, inf, grad, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { ins, most }, .n_out = { 1, outs }, .work = "other", \
		.infer = inf, .flops = flops, .gradient = grad, .kernel = kern };
SELECT(TopK, 1, 2, 2, topk_infer, topk_gradient, topk_kernel)
SELECT(ArgMax, 1, 1, 1, arg_infer, NULL, arg_kernel)
SELECT(ArgMin, 1, 1, 1, arg_infer, NULL, arg_kernel)
SELECT(Hardmax, 1, 1, 1, hardmax_infer, NULL, hardmax_kernel)
SELECT(OneHot, 3, 3, 1, one_hot_infer, NULL, one_hot_kernel)
