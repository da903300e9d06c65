/* Elementwise operators with several inputs and NumPy's broadcasting: arithmetic, comparison, choice. */
#include "op/op_util.h"

#include <math.h>
#include <string.h>

static const struct { const char *name; enum dlb_map_fn fn;
} rows[] = {
	{ "Add", DLB_MAP_add },
	{ "Sub", DLB_MAP_sub },
	{ "Mul", DLB_MAP_mul },
	{ "Div", DLB_MAP_div },
	{ "Equal", DLB_MAP_equal },
	{ "Less", DLB_MAP_less },
	{ "LessOrEqual", DLB_MAP_less_or_equal },
	{ "Greater", DLB_MAP_greater },
	{ "GreaterOrEqual", DLB_MAP_greater_or_equal },
	{ "And", DLB_MAP_and },
	{ "Or", DLB_MAP_or },
	{ "Xor", DLB_MAP_xor },
	{ "Where", DLB_MAP_where },
	{ "DivGradB", DLB_MAP_div_grad_b },
	{ "DivOrZero", DLB_MAP_div_or_zero },
	{ "PowGrad", DLB_MAP_pow_grad },
	{ "PowGradP", DLB_MAP_pow_grad_p },
	{ "PReluGrad", DLB_MAP_prelu_grad },
	{ "PReluGradSlope", DLB_MAP_prelu_grad_slope },
	{ "MaxGrad", DLB_MAP_max_grad },
	{ "MinGrad", DLB_MAP_min_grad },
	{ "Sum", DLB_MAP_add },
	{ "Mean", DLB_MAP_add },
	{ "Max", DLB_MAP_max },
	{ "Min", DLB_MAP_min },
};

static enum dlb_map_fn fn_of(const struct dlb_op_class *cls)
{
	for (int i = 0; i < DLB_LEN(rows); i++)
		if (!strcmp(rows[i].name, cls->name))
			return rows[i].fn;
	dlb_bug("no row for '%s'", cls->name);
}

/* In opset 6, attributes align the second operand of Add, Sub, Mul, Div: broadcast=1 with axis. Only forms
 * that NumPy's rule covers are accepted. */
static int infer(struct dlb_op_io *io, struct dlb_error *err)
{
	if (io->opset < 7 && dlb_attr_find(io->attr, io->n_attr, "axis") && !io->cls->domain) {
		int64_t axis = dlb_io_int(io, "axis", 0);

		if (axis != io->in[0].n_dims - io->in[1].n_dims && axis != -io->in[1].n_dims)
			return dlb_op_fail(io, err,
					   "attribute 'axis' asks for broadcasting in the middle, which only "
					   "opset 6 has; convert the model to opset 7 or later");
	}
	enum dlb_dtype type;

	if (dlb_mixed_types(io, 0, io->n_in, &type, err) || dlb_infer_broadcast(io, err))
		return -1;
	io->out[0].dtype = type;
	return 0;
}

static int infer_compare(struct dlb_op_io *io, struct dlb_error *err)
{
	if (infer(io, err))
		return -1;
	io->out[0].dtype = DLB_BOOL;
	return 0;
}

static int infer_where(struct dlb_op_io *io, struct dlb_error *err)
{
	if (io->in[0].dtype != DLB_BOOL)
		return dlb_op_fail(io, err, "the condition is of type %s, not bool",
				   dlb_dtype_name(io->in[0].dtype));
	enum dlb_dtype type;

	if (dlb_mixed_types(io, 1, 2, &type, err) || dlb_infer_broadcast(io, err))
		return -1;
	io->out[0].dtype = type;
	return 0;
}

/* PRelu's slope broadcasts to x only; before opset 7 a one-dimensional slope is per channel, dimension 1. */
static struct dlb_desc slope_of(const struct dlb_op_io *io, int i)
{
	const struct dlb_desc *x = &io->in[0];
	struct dlb_desc s = io->in[i];

	if (s.n_dims == 1 && s.dim[0] > 1 && x->n_dims > 2 && s.dim[0] == x->dim[1] && io->opset < 7) {
		s = dlb_desc_make(s.dtype, x->n_dims - 1,
				  (int64_t[DLB_MAX_DIMS]){ s.dim[0], 1, 1, 1, 1, 1, 1 });
	}
	return s;
}

static int infer_prelu(struct dlb_op_io *io, struct dlb_error *err)
{
	struct dlb_desc s = slope_of(io, 1), all;

	if (dlb_param_types(io, 0, 1, 1, err))
		return -1;
	if (dlb_broadcast(&io->in[0], &s, &all) || !dlb_desc_same_shape(&all, &io->in[0]))
		return dlb_op_fail(io, err, "the slope does not broadcast to the input");
	return dlb_infer_same(io, err);
}

static int kernel_prelu(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			struct dlb_error *err)
{
	struct dlb_map_desc d = {
		.fn = DLB_MAP_prelu, .n_in = 2, .in = { io->in[0], slope_of(io, 1) }, .out = io->out[0]
	};

	return be->ops->map(be, &d, k, err);
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	return dlb_kernel_map(be, io, &(struct dlb_map){ .fn = fn_of(io->cls), .n_in = io->n_in }, k, err);
}

/* -- gradients -- */

/* Sets din[i] to g summed to the input's shape. */
static void give(struct dlb_builder *b, int i, int g)
{
	b->din[i] = dlb_b_unbroadcast(b, g, b->in[i]);
}

static int done(const struct dlb_builder *b)
{
	for (int i = 0; i < b->io.n_in; i++)
		if (b->in[i] >= 0 && b->need[i] && b->din[i] < 0)
			return -1;
	return 0;
}

static int gradient_add(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	for (int i = 0; i < b->io.n_in; i++)
		if (b->need[i])
			give(b, i, b->dout[0]);
	return done(b);
}

static int gradient_sub(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	if (b->need[0])
		give(b, 0, b->dout[0]);
	if (b->need[1])
		give(b, 1, dlb_b_op1(b, "Neg", dlb_b_unbroadcast(b, b->dout[0], b->in[1])));
	return done(b);
}

static int gradient_mul(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	for (int i = 0; i < 2; i++)
		if (b->need[i])
			give(b, i, dlb_b_op2(b, "Mul", b->dout[0], b->in[1 - i]));
	return done(b);
}

static int gradient_div(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	if (b->need[0])
		give(b, 0, dlb_b_op2(b, "Div", b->dout[0], b->in[1]));
	if (b->need[1])
		give(b, 1, dlb_b_op3(b, "DivGradB", b->dout[0], b->out[0], b->in[1]));
	return done(b);
}

static int gradient_pow(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	int p = b->in[1];

	if (b->io.in[1].dtype != b->io.in[0].dtype) {		/* x^2 with an integer exponent */
		struct dlb_attr to = dlb_make_int("to", dlb_dtype_to_onnx(b->io.in[0].dtype));

		p = dlb_b_op(b, DLB_SPEC_ATTR("Cast", &to, 1, p), NULL, -1);
	}
	if (b->need[0])
		give(b, 0, dlb_b_op3(b, "PowGrad", b->dout[0], b->in[0], p));
	if (b->need[1])
		give(b, 1, dlb_b_op3(b, "PowGradP", b->dout[0], b->out[0], b->in[0]));
	return done(b);
}

static int gradient_prelu(struct dlb_builder *b, struct dlb_error *err)
{
	struct dlb_desc s = slope_of(&b->io, 1);

	if (!dlb_desc_same_shape(&s, &b->io.in[1]))
		return dlb_op_fail(
			&b->io, err,
			"no gradient for opset 6's slope per channel; convert the model to opset 7");
	if (b->need[0])
		give(b, 0, dlb_b_op3(b, "PReluGrad", b->dout[0], b->in[0], b->in[1]));
	if (b->need[1])
		give(b, 1, dlb_b_op2(b, "PReluGradSlope", b->dout[0], b->in[0]));
	return done(b);
}

static int gradient_where(struct dlb_builder *b, struct dlb_error *err)
{
	int zero = dlb_b_const_real(b, 0, b->io.in[1].dtype);

	(void)err;
	if (b->need[1])
		give(b, 1, dlb_b_op3(b, "Where", b->in[0], b->dout[0], zero));
	if (b->need[2])
		give(b, 2, dlb_b_op3(b, "Where", b->in[0], zero, b->dout[0]));
	return done(b);
}

/* For two inputs: the larger gets the gradient, both get half if equal. No known exporter writes more
 * inputs. */
static int gradient_extreme(struct dlb_builder *b, struct dlb_error *err)
{
	const char *type = !strcmp(b->io.cls->name, "Max") ? "MaxGrad" : "MinGrad";

	if (b->io.n_in == 1) {
		give(b, 0, b->dout[0]);
		return done(b);
	}
	if (b->io.n_in > 2)
		return dlb_op_fail(&b->io, err, "no gradient for more than 2 inputs");
	for (int i = 0; i < 2; i++)
		if (b->need[i])
			give(b, i, dlb_b_op3(b, type, b->dout[0], b->in[i], b->in[1 - i]));
	return done(b);
}

static int gradient_mean(struct dlb_builder *b, struct dlb_error *err)
{
	int scale = dlb_b_const_real(b, 1.0 / b->io.n_in, b->io.in[0].dtype);
	int g = dlb_b_op2(b, "Mul", b->dout[0], scale);

	(void)err;
	for (int i = 0; i < b->io.n_in; i++)
		if (b->need[i])
			give(b, i, g);
	return done(b);
}

/* -- any number of inputs -- */

static int kernel_fold(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	enum dlb_map_fn fn = fn_of(io->cls);
	bool mean = !strcmp(io->cls->name, "Mean");
	struct dlb_chain *c = dlb_chain_new(be, err);
	const struct dlb_desc *y = &io->out[0];

	if (io->n_in == 1)
		dlb_chain_copy(c, DLB_IN(0), DLB_OUT(0), y);
	for (int i = 1; i < io->n_in; i++) {
		int from = i == 1 ? DLB_IN(0) : DLB_OUT(0);
		const struct dlb_desc *d[2] = { i == 1 ? &io->in[0] : y, &io->in[i] };

		dlb_chain_map(c, &(struct dlb_map){ .fn = fn, .n_in = 2 }, DLB_REFS(from, DLB_IN(i)), d,
			      DLB_OUT(0), y);
	}
	if (mean && io->n_in > 1)
		dlb_chain_map(c,
			      &(struct dlb_map){ .fn = DLB_MAP_linear, .n_in = 1, .alpha = 1.0 / io->n_in },
			      DLB_REFS(DLB_OUT(0)), &y, DLB_OUT(0), y);
	return dlb_chain_finish(c, k);
}

static double flops_fold(const struct dlb_op_io *io)
{
	return (double)(io->n_in - 1) * (double)dlb_desc_count(&io->out[0]);
}

/* -- Pow: the exponent may be of another type; common constant exponents become products and roots -- */

static const struct { double p; enum dlb_map_fn pow, grad; bool of_ints;
} exponents[] = {
	{ 2, DLB_MAP_square, DLB_MAP_square_grad, true },
	{ 3, DLB_MAP_cube, DLB_MAP_cube_grad, true },
	{ 0.5, DLB_MAP_sqrt, DLB_MAP_root_grad, false },
	{ -1, DLB_MAP_reciprocal, DLB_MAP_inverse_grad, false },
};

/* The row for exponent input i, or -1; x and y: shapes of base and result. */
static int exponent_of(const struct dlb_op_io *io, int i, const struct dlb_desc *x, const struct dlb_desc *y)
{
	if (!io->value || !io->value[i] || dlb_desc_count(&io->in[i]) != 1 || !dlb_desc_same_shape(x, y))
		return -1;
	for (int e = 0; e < DLB_LEN(exponents); e++)
		if (dlb_value_real(io->value[i], io->in[i].dtype, 0) == exponents[e].p &&
		    (exponents[e].of_ints || dlb_dtype_is_float(x->dtype)))
			return e;
	return -1;
}

static int infer_pow(struct dlb_op_io *io, struct dlb_error *err)
{
	return dlb_infer_broadcast(io, err);
}

static int kernel_pow(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	const struct dlb_desc *x = &io->in[0], *p = &io->in[1], *y = &io->out[0];
	struct dlb_chain *c = dlb_chain_new(be, err);
	struct dlb_desc cast_p = *p, cast_x = *x, cast_y = *y;
	const struct dlb_desc *d[2] = { &cast_x, &cast_p };
	int rx = DLB_IN(0), rp = DLB_IN(1), ry = DLB_OUT(0);
	int e = exponent_of(io, 1, x, y);
	enum dlb_dtype in = x->dtype;

	if (e >= 0) {
		dlb_chain_map(c, &(struct dlb_map){ .fn = exponents[e].pow, .n_in = 1 }, DLB_REFS(rx), &x, ry,
			      y);
		return dlb_chain_finish(c, k);
	}
	if (p->dtype != x->dtype && !dlb_dtype_is_float(x->dtype) && dlb_dtype_is_float(p->dtype))
		in = p->dtype;				/* an integer to a real power:
							 * computed in real, then truncated */
	if (p->dtype != in) {
		cast_p.dtype = in;
		rp = dlb_chain_temp(c, &cast_p);
		dlb_chain_cast(c, DLB_IN(1), p, rp, &cast_p);
	}
	if (x->dtype != in) {
		cast_x.dtype = cast_y.dtype = in;
		rx = dlb_chain_temp(c, &cast_x);
		ry = dlb_chain_temp(c, &cast_y);
		dlb_chain_cast(c, DLB_IN(0), x, rx, &cast_x);
	}
	dlb_chain_map(c, DLB_MAP(pow, 2), DLB_REFS(rx, rp), d, ry, &cast_y);
	if (ry != DLB_OUT(0))
		dlb_chain_cast(c, ry, &cast_y, DLB_OUT(0), y);
	return dlb_chain_finish(c, k);
}

static int kernel_pow_grad(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			   struct dlb_error *err)
{
	int e = exponent_of(io, 2, &io->in[1], &io->out[0]);

	return e < 0 ? kernel(be, io, k, err) : dlb_kernel_map(be, io,
							       &(struct dlb_map){ .fn = exponents[e].grad,
								       .n_in = 2 }, k, err);
}

static double flops_pow(const struct dlb_op_io *io)
{
	return 10.0 * (double)dlb_desc_count(&io->out[0]);
}

/* -- Mod -- */

static int kernel_mod(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		      struct dlb_error *err)
{
	return dlb_kernel_map(be, io,
			      &(struct dlb_map){ .fn = dlb_io_int(io, "fmod", 0) ? DLB_MAP_fmod : DLB_MAP_mod,
						 .n_in = 2 }, k, err);
}

/* -- Clip: bounds are attributes before opset 11, optional inputs since -- */

static int infer_clip(struct dlb_op_io *io, struct dlb_error *err)
{
	for (int i = 1; i < io->n_in; i++)
		if (io->in[i].n_dims >= 0 &&
		    (dlb_desc_count(&io->in[i]) != 1 || io->in[i].dtype != io->in[0].dtype))
			return dlb_op_fail(io, err, "a bound must be a scalar of type %s",
					   dlb_dtype_name(io->in[0].dtype));
	return dlb_infer_same(io, err);
}

/* Reads the bounds as numbers; false if they are only known at run time. */
static bool bounds(const struct dlb_op_io *io, int first, double b[2])
{
	static const char *const name[2] = { "min", "max" };

	b[0] = dlb_io_real(io, name[0], -HUGE_VAL);
	b[1] = dlb_io_real(io, name[1], HUGE_VAL);
	for (int i = 0; i < 2; i++) {
		if (!dlb_io_has(io, first + i))
			continue;
		if (!io->value || !io->value[first + i])
			return false;
		b[i] = dlb_value_real(io->value[first + i], io->in[first + i].dtype, 0);
	}
	return true;
}

static int kernel_clip(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	struct dlb_chain *c = dlb_chain_new(be, err);
	const struct dlb_desc *x = &io->in[0];
	double b[2];

	if (bounds(io, 1, b) && dlb_dtype_is_float(x->dtype)) {
		dlb_chain_map(c,
			      &(struct dlb_map){ .fn = DLB_MAP_clip, .n_in = 1, .alpha = b[0], .beta = b[1] },
			      DLB_REFS(DLB_IN(0)), &x, DLB_OUT(0), &io->out[0]);
		return dlb_chain_finish(c, k);
	}
	int from = DLB_IN(0);

	for (int i = 1; i <= 2; i++) {			/* max(x, least), then min(., most) */
		const struct dlb_desc *d[2] = { x, i < io->n_in ? &io->in[i] : NULL };

		if (!dlb_io_has(io, i))
			continue;
		dlb_chain_map(c, &(struct dlb_map){ .fn = i == 1 ? DLB_MAP_max : DLB_MAP_min, .n_in = 2 },
			      DLB_REFS(from, DLB_IN(i)), d, DLB_OUT(0), &io->out[0]);
		from = DLB_OUT(0);
	}
	if (from == DLB_IN(0))
		dlb_chain_copy(c, DLB_IN(0), DLB_OUT(0), x);
	return dlb_chain_finish(c, k);
}

static int gradient_clip(struct dlb_builder *b, struct dlb_error *err)
{
	double v[2];
	struct dlb_attr a[2];
	int n = 0;

	if (!bounds(&b->io, 1, v))
		return dlb_op_fail(&b->io, err, "no gradient for bounds that are not constant");
	if (!b->need[0])
		return 0;
	if (isfinite(v[0]))				/* documents have no infinite attributes */
		a[n++] = dlb_make_real("min", v[0]);
	if (isfinite(v[1]))
		a[n++] = dlb_make_real("max", v[1]);
	b->din[0] = dlb_b_op(b, DLB_SPEC_ATTR("ClipGrad", a, n, b->dout[0], b->in[0]), NULL, b->in[0]);
	return done(b);
}

static int kernel_clip_grad(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			    struct dlb_error *err)
{
	return dlb_kernel_map(be, io,
			      &(struct dlb_map){ .fn = DLB_MAP_clip_grad, .n_in = 2,
						 .alpha = dlb_io_real(io, "min", -HUGE_VAL),
						 .beta = dlb_io_real(io, "max", HUGE_VAL) }, k, err);
}

#define BINARY(n, in, inf, grad, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .n_in = { in, in }, \
						 .n_out = { 1, 1 }, \
						 .layout = DLB_LAYOUT_ANY, \
						 .bf16 = DLB_BF16_MIXES, \
						 .overwrite = 7, \
						 .work = "elementwise", \
						 .infer = inf, \
						 .gradient = grad, \
						 .kernel = kern };
#define OURS(n, in) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .domain = "dlb", \
						 .n_in = { in, in }, \
						 .n_out = { 1, 1 }, \
						 .layout = DLB_LAYOUT_ANY, \
						 .overwrite = 7, \
						 .work = "elementwise", \
						 .infer = infer, \
						 .kernel = kernel };
#define FOLD(n, grad) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .n_in = { 1, -1 }, \
						 .n_out = { 1, 1 }, \
						 .layout = DLB_LAYOUT_ANY, \
						 .bf16 = DLB_BF16_MIXES, \
						 .overwrite = 3, \
						 .work = "elementwise", \
						 .infer = infer, \
						 .flops = flops_fold, \
						 .gradient = grad, \
						 .kernel = kernel_fold };
BINARY(Add, 2, infer, gradient_add, kernel)
BINARY(Sub, 2, infer, gradient_sub, kernel)
BINARY(Mul, 2, infer, gradient_mul, kernel)
BINARY(Div, 2, infer, gradient_div, kernel)
BINARY(PRelu, 2, infer_prelu, gradient_prelu, kernel_prelu)
BINARY(Mod, 2, infer, NULL, kernel_mod)
BINARY(Equal, 2, infer_compare, NULL, kernel)
BINARY(Less, 2, infer_compare, NULL, kernel)
BINARY(LessOrEqual, 2, infer_compare, NULL, kernel)
BINARY(Greater, 2, infer_compare, NULL, kernel)
BINARY(GreaterOrEqual, 2, infer_compare, NULL, kernel)
BINARY(And, 2, infer, NULL, kernel)
BINARY(Or, 2, infer, NULL, kernel)
BINARY(Xor, 2, infer, NULL, kernel)
BINARY(Where, 3, infer_where, gradient_where, kernel)
OURS(DivGradB, 3)
OURS(DivOrZero, 2)
OURS(PowGradP, 3)
OURS(PReluGrad, 3)
OURS(PReluGradSlope, 2)
OURS(MaxGrad, 3)
OURS(MinGrad, 3)
FOLD(Sum, gradient_add)
FOLD(Mean, gradient_mean)
FOLD(Max, gradient_extreme)
FOLD(Min, gradient_extreme)
const struct dlb_op_class dlb_op_Pow = { .name = "Pow",
					 .n_in = { 2, 2 },
					 .n_out = { 1, 1 },
					 .layout = DLB_LAYOUT_ANY,
					 .overwrite = 1,
					 .work = "elementwise",
					 .infer = infer_pow,
					 .flops = flops_pow,
					 .gradient = gradient_pow,
					 .kernel = kernel_pow };
const struct dlb_op_class dlb_op_PowGrad = { .name = "PowGrad",
					     .domain = "dlb",
					     .n_in = { 3, 3 },
					     .n_out = { 1, 1 },
					     .layout = DLB_LAYOUT_ANY,
					     .work = "elementwise",
					     .infer = infer,
					     .kernel = kernel_pow_grad };
const struct dlb_op_class dlb_op_Clip = { .name = "Clip",
					  .n_in = { 1, 3 },
					  .n_out = { 1, 1 },
					  .layout = DLB_LAYOUT_ANY,
					  .bf16 = DLB_BF16_FOLLOWS,
					  .overwrite = 1,
					  .work = "activation",
					  .infer = infer_clip,
					  .gradient = gradient_clip,
					  .kernel = kernel_clip };
const struct dlb_op_class dlb_op_ClipGrad = { .name = "ClipGrad",
					      .domain = "dlb",
					      .n_in = { 2, 2 },
					      .n_out = { 1, 1 },
					      .layout = DLB_LAYOUT_ANY,
					      .overwrite = 3,
					      .work = "activation",
					      .infer = dlb_infer_alike,
					      .kernel = kernel_clip_grad };
