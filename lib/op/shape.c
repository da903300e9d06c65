/* Shapes as values, and tensors made from shapes: Shape, Size, Constant, ConstantOfShape,
 * Range, EyeLike; and Cast. */
#include "op/op_util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- Shape, Size -- */

static void shape_range(const struct dlb_op_io *io, int *from, int *to)
{
	int64_t n = io->in[0].n_dims, s = dlb_io_int(io, "start", 0), e = dlb_io_int(io, "end", n);

	s = s < 0 ? s + n : s;
	e = e < 0 ? e + n : e;
	*from = (int)(s < 0 ? 0 : s > n ? n : s);
	*to = (int)(e < *from ? *from : e > n ? n : e);
}

static int shape_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	int from, to;

	(void)err;
	shape_range(io, &from, &to);
	io->out[0] = dlb_desc_1d(DLB_I64, to - from);
	return 0;
}

static int shape_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			struct dlb_error *err)
{
	int from, to;

	shape_range(io, &from, &to);
	return be->ops->constant(be, io->in[0].dim + from, (size_t)(to - from) * sizeof(int64_t), k, err);
}

static int size_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	(void)err;
	io->out[0] = dlb_desc_scalar(DLB_I64);
	return 0;
}

static int size_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	int64_t n = dlb_desc_count(&io->in[0]);

	return be->ops->constant(be, &n, sizeof n, k, err);
}

/* -- Constant: value, value_float(s), value_int(s) -- */

static const struct dlb_attr *constant_value(const struct dlb_op_io *io, struct dlb_desc *d,
					     struct dlb_error *err)
{
	static const char *const name[] = { "value", "value_float", "value_int", "value_floats",
					    "value_ints" };

	for (int i = 0; i < DLB_LEN(name); i++) {
		const struct dlb_attr *a = dlb_attr_find(io->attr, io->n_attr, name[i]);

		if (!a)
			continue;
		if (a->type == DLB_ATTR_TENSOR)
			*d = a->desc;
		else if (a->type == DLB_ATTR_REAL)
			*d = dlb_desc_scalar(DLB_F32);
		else if (a->type == DLB_ATTR_INT)
			*d = dlb_desc_scalar(DLB_I64);
		else if (a->type == DLB_ATTR_REALS)
			*d = dlb_desc_1d(DLB_F32, a->n);
		else if (a->type == DLB_ATTR_INTS)
			*d = dlb_desc_1d(DLB_I64, a->n);
		else
			break;
		return a;
	}
	dlb_op_fail(io, err, "no value that is a tensor, a number or a list of numbers");
	return NULL;
}

static int constant_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	return constant_value(io, &io->out[0], err) ? 0 : -1;
}

static int constant_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			   struct dlb_error *err)
{
	struct dlb_desc d;
	const struct dlb_attr *a = constant_value(io, &d, err);
	int64_t n;
	float *v;
	int rc;

	if (!a)
		return -1;
	if (a->type == DLB_ATTR_TENSOR)
		return be->ops->constant(be, a->data, dlb_desc_bytes(&d), k, err);
	if (a->type == DLB_ATTR_INT || a->type == DLB_ATTR_INTS)
		return be->ops->constant(be, a->type == DLB_ATTR_INT ? &a->i : a->ints, dlb_desc_bytes(&d), k, err);
	n = dlb_desc_count(&d);
	v = dlb_xcalloc((size_t)n + 1, sizeof *v);
	for (int64_t i = 0; i < n; i++)
		v[i] = (float)(a->type == DLB_ATTR_REAL ? a->f : a->reals[i]);
	rc = be->ops->constant(be, v, dlb_desc_bytes(&d), k, err);
	free(v);
	return rc;
}

/* -- ConstantOfShape, EyeLike, Range -- */

static int fill_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	const struct dlb_attr *a = dlb_attr_find(io->attr, io->n_attr, "value");
	enum dlb_dtype t = a && a->type == DLB_ATTR_TENSOR ? a->desc.dtype : DLB_F32;
	if (a && a->type == DLB_ATTR_TENSOR && dlb_desc_count(&a->desc) != 1)
		return dlb_op_fail(io, err, "attribute 'value' has %lld elements, not 1",
				   (long long)dlb_desc_count(&a->desc));
	if (dlb_io_shape(io, 0, &io->out[0], err))
		return -1;
	io->out[0].dtype = t;
	return 0;
}

static double fill_value(const void *ctx, int64_t i)
{
	(void)i;
	return *(const double *)ctx;
}

static int fill_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct dlb_attr *a = dlb_attr_find(io->attr, io->n_attr, "value");
	const double v = a && a->type == DLB_ATTR_TENSOR && a->data ? dlb_value_real(a->data, a->desc.dtype, 0) :
								       0;

	return dlb_kernel_table(be, &io->out[0], fill_value, &v, k, err);
}

static int eye_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (io->in[0].n_dims != 2)
		return dlb_op_fail(io, err, "input has %d dimensions, not 2", io->in[0].n_dims);
	return dlb_infer_typed(io, "dtype", false, err);
}

struct eye { int64_t cols, offset; };

static double eye_value(const void *ctx, int64_t i)
{
	const struct eye *e = ctx;

	return i % e->cols - i / e->cols == e->offset;
}

static int eye_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	const struct eye e = { io->out[0].dim[1], dlb_io_int(io, "k", 0) };

	return dlb_kernel_table(be, &io->out[0], eye_value, &e, k, err);
}

static int range_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	double v[3], n;

	if (dlb_same_types(io, 0, 3, err))
		return -1;
	for (int i = 0; i < 3; i++) {
		if (!io->value || !io->value[i] || dlb_desc_count(&io->in[i]) != 1)
			return dlb_op_fail(io, err, "start, limit and delta must be constant scalars");
		v[i] = dlb_value_real(io->value[i], io->in[i].dtype, 0);
	}
	n = v[2] != 0 ? ceil((v[1] - v[0]) / v[2]) : -1;
	if (v[2] == 0 || !(n < 1e12))
		return dlb_op_fail(io, err, "from %g to %g by %g is no range", v[0], v[1], v[2]);
	io->out[0] = dlb_desc_1d(io->in[0].dtype, n > 0 ? (int64_t)n : 0);
	return 0;
}

struct range { double from, by; };

static double range_value(const void *ctx, int64_t i)
{
	const struct range *r = ctx;

	return r->from + (double)i * r->by;
}

static int range_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			struct dlb_error *err)
{
	struct range r;

	if (!io->value || !io->value[0] || !io->value[2])
		return dlb_op_fail(io, err, "start and delta must be constant scalars");
	r = (struct range){ dlb_value_real(io->value[0], io->in[0].dtype, 0),
			    dlb_value_real(io->value[2], io->in[2].dtype, 0) };
	return dlb_kernel_table(be, &io->out[0], range_value, &r, k, err);
}

/* -- Cast: an elementwise copy to another type -- */

static int cast_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	return dlb_infer_typed(io, "to", true, err);
}

static int cast_gradient(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_attr to = dlb_make_int("to", dlb_dtype_to_onnx(b->io.in[0].dtype));

	(void)err;
	if (!b->need[0] || !dlb_dtype_is_float(b->io.in[0].dtype) || !dlb_dtype_is_float(b->io.out[0].dtype))
		return 0;
	b->din[0] = b->dout[0];
	if (b->io.in[0].dtype != dlb_b_desc(b, b->dout[0])->dtype)
		b->din[0] = dlb_b_op(b, DLB_SPEC_ATTR("Cast", &to, 1, b->dout[0]), NULL, b->in[0]);
	return b->din[0] < 0 ? -1 : 0;
}

static int castlike_infer(struct dlb_op_io *io, struct dlb_error *err)
{
	(void)err;
	io->out[0] = io->in[0];
	io->out[0].dtype = io->in[1].dtype;
	return 0;
}

#define MAKER(n, least, most, f, inf, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { least, most }, .n_out = { 1, 1 }, .flags = f, \
		.work = "move", .infer = inf, .flops = dlb_no_flops, .kernel = kern };
MAKER(Shape, 1, 1, DLB_OP_HOST_INT | DLB_OP_SHAPE_ONLY, shape_infer, shape_kernel)
MAKER(Size, 1, 1, DLB_OP_HOST_INT | DLB_OP_SHAPE_ONLY, size_infer, size_kernel)
MAKER(Constant, 0, 0, 0, constant_infer, constant_kernel)
MAKER(ConstantOfShape, 1, 1, 0, fill_infer, fill_kernel)
MAKER(EyeLike, 1, 1, DLB_OP_SHAPE_ONLY, eye_infer, eye_kernel)
MAKER(Range, 3, 3, 0, range_infer, range_kernel)
const struct dlb_op_class dlb_op_Cast = { .name = "Cast",
					  .n_in = { 1, 1 },
					  .n_out = { 1, 1 },
					  .layout = DLB_LAYOUT_ANY,
					  .work = "move",
					  .infer = cast_infer,
					  .flops = dlb_no_flops,
					  .gradient = cast_gradient,
					  .kernel = dlb_kernel_view };
const struct dlb_op_class dlb_op_CastLike = { .name = "CastLike",
					      .n_in = { 2, 2 },
					      .n_out = { 1, 1 },
					      .layout = DLB_LAYOUT_ANY,
					      .work = "move",
					      .infer = castlike_infer,
					      .flops = dlb_no_flops,
					      .gradient = cast_gradient,
					      .kernel = dlb_kernel_view };
