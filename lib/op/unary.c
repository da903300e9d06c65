/* Elementwise operators with one input, and their gradients.
 *
 * A row gives the ONNX type, the function in map_list.h, whether the gradient reads x or y, the gradient's
 * function (dy first) and the attributes for alpha and beta. Each row defines two classes: NAME, and NAMEGrad
 * in domain dlb with inputs {dy, x or y} and the same attributes. */
#include "op/op_util.h"

#include <string.h>

struct unary_op {
	const char *name;
	enum dlb_map_fn fn, grad;
	bool by_y;			/* the gradient reads y, not x */
	const char *alpha, *beta;	/* attributes, NULL: none */
	double alpha_value, beta_value;	/* defaults of the attributes */
};

#define UNARY(ROW) \
	ROW(Relu, relu, relu_grad, true, NULL, 0, NULL, 0, "activation", 1, FOLLOWS) \
	ROW(LeakyRelu, leaky_relu, leaky_relu_grad, false, "alpha", 0.01, NULL, 0, "activation", 2, FOLLOWS) \
	ROW(ThresholdedRelu, thresholded_relu, thresholded_relu_grad, false, "alpha", 1, NULL, 0, "activation", 1, FOLLOWS) \
	ROW(Elu, elu, elu_grad, false, "alpha", 1, NULL, 0, "activation", 10, FOLLOWS) \
	ROW(Selu, selu, selu_grad, false, "alpha", 1.67326319217681884765625, "gamma", 1.05070102214813232421875, "activation", 10, FOLLOWS) \
	ROW(Celu, celu, celu_grad, false, "alpha", 1, NULL, 0, "activation", 10, FOLLOWS) \
	ROW(Sigmoid, sigmoid, sigmoid_grad, true, NULL, 0, NULL, 0, "activation", 10, FOLLOWS) \
	ROW(HardSigmoid, hard_sigmoid, hard_sigmoid_grad, false, "alpha", 0.2, "beta", 0.5, "activation", 4, FOLLOWS) \
	ROW(HardSwish, hard_swish, hard_swish_grad, false, NULL, 0, NULL, 0, "activation", 5, FOLLOWS) \
	ROW(Softplus, softplus, softplus_grad, false, NULL, 0, NULL, 0, "activation", 20, NEVER) \
	ROW(Softsign, softsign, softsign_grad, false, NULL, 0, NULL, 0, "activation", 3, FOLLOWS) \
	ROW(Tanh, tanh, tanh_grad, true, NULL, 0, NULL, 0, "activation", 10, FOLLOWS) \
	ROW(Erf, erf, erf_grad, false, NULL, 0, NULL, 0, "elementwise", 20, FOLLOWS) \
	ROW(Exp, exp, mul, true, NULL, 0, NULL, 0, "elementwise", 10, NEVER) \
	ROW(Log, log, div, false, NULL, 0, NULL, 0, "elementwise", 10, NEVER) \
	ROW(Sqrt, sqrt, sqrt_grad, true, NULL, 0, NULL, 0, "elementwise", 4, NEVER) \
	ROW(Reciprocal, reciprocal, reciprocal_grad, true, NULL, 0, NULL, 0, "elementwise", 4, NEVER) \
	ROW(Abs, abs, abs_grad, false, NULL, 0, NULL, 0, "elementwise", 1, FOLLOWS) \
	ROW(Sin, sin, sin_grad, false, NULL, 0, NULL, 0, "elementwise", 20, FOLLOWS) \
	ROW(Cos, cos, cos_grad, false, NULL, 0, NULL, 0, "elementwise", 20, FOLLOWS) \
	ROW(Tan, tan, tan_grad, true, NULL, 0, NULL, 0, "elementwise", 20, NEVER) \
	ROW(Asin, asin, asin_grad, false, NULL, 0, NULL, 0, "elementwise", 20, NEVER) \
	ROW(Acos, acos, acos_grad, false, NULL, 0, NULL, 0, "elementwise", 20, NEVER) \
	ROW(Atan, atan, atan_grad, false, NULL, 0, NULL, 0, "elementwise", 20, NEVER) \
	ROW(Sinh, sinh, sinh_grad, false, NULL, 0, NULL, 0, "elementwise", 20, NEVER) \
	ROW(Cosh, cosh, cosh_grad, false, NULL, 0, NULL, 0, "elementwise", 20, NEVER) \
	ROW(Asinh, asinh, asinh_grad, false, NULL, 0, NULL, 0, "elementwise", 20, NEVER) \
	ROW(Acosh, acosh, acosh_grad, false, NULL, 0, NULL, 0, "elementwise", 20, NEVER) \
	ROW(Atanh, atanh, atanh_grad, false, NULL, 0, NULL, 0, "elementwise", 20, NEVER) \
	ROW(Mish, mish, mish_grad, false, NULL, 0, NULL, 0, "activation", 15, FOLLOWS) \
	ROW(Swish, swish, swish_grad, false, "alpha", 1, NULL, 0, "activation", 12, FOLLOWS) \
	ROW(Shrink, shrink, shrink_grad, false, "lambd", 0.5, "bias", 0, "activation", 2, FOLLOWS)

static const struct unary_op rows[] = {
#define ROW(n, f, g, y, a, av, b, bv, work, flop, bf) { #n, DLB_MAP_##f, DLB_MAP_##g, y, a, b, av, bv },
	UNARY(ROW)
#undef ROW
};

/* The row of a class, from its name with or without "Grad". */
static const struct unary_op *row_of(const struct dlb_op_class *cls)
{
	size_t n = strlen(cls->name);

	if (cls->domain)
		n -= strlen("Grad");
	for (int i = 0; i < DLB_LEN(rows); i++)
		if (strlen(rows[i].name) == n && !strncmp(rows[i].name, cls->name, n))
			return &rows[i];
	dlb_bug("no row for '%s'", cls->name);
}

static double attr(const struct dlb_op_io *io, const char *name, double otherwise)
{
	return name ? dlb_io_real(io, name, otherwise) : otherwise;
}

static int kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		  struct dlb_error *err)
{
	const struct unary_op *r = row_of(io->cls);

	return dlb_kernel_map(be, io,
			      &(struct dlb_map){ .fn = r->fn, .n_in = 1,
						 .alpha = attr(io, r->alpha, r->alpha_value),
						 .beta = attr(io, r->beta, r->beta_value) }, k, err);
}

static int grad_kernel(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
		       struct dlb_error *err)
{
	const struct unary_op *r = row_of(io->cls);

	return dlb_kernel_map(be, io,
			      &(struct dlb_map){ .fn = r->grad, .n_in = 2,
						 .alpha = attr(io, r->alpha, r->alpha_value),
						 .beta = attr(io, r->beta, r->beta_value) }, k, err);
}

static int gradient(struct dlb_builder *b, struct dlb_error *err)
{
	const struct unary_op *r = row_of(b->io.cls);
	char type[64];
	int in[2] = { b->dout[0], r->by_y ? b->out[0] : b->in[0] };

	(void)err;
	if (!b->need[0])
		return 0;
	snprintf(type, sizeof type, "%sGrad", r->name);
	return dlb_b_gradient(b, &(struct dlb_op_spec){ .type = type,
							.in = in,
							.n_in = 2,
							.attr = b->io.attr,
							.n_attr = b->io.n_attr });
}

#define FLOPS(n, f) \
	static double flops_##n(const struct dlb_op_io *io) \
	{ \
		return f * (double)dlb_desc_count(&io->out[0]); \
	}
#define ROW(n, f, g, y, a, av, b, bv, w, flop, bf) \
	FLOPS(n, flop) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .n_in = { 1, 1 }, \
						 .n_out = { 1, 1 }, \
						 .layout = DLB_LAYOUT_ANY, \
						 .bf16 = DLB_BF16_##bf, \
						 .overwrite = 1, \
						 .work = w, \
						 .infer = dlb_infer_same, \
						 .flops = flops_##n, \
						 .gradient = gradient, \
						 .kernel = kernel }; \
	const struct dlb_op_class dlb_op_##n##Grad = { .name = #n "Grad", \
						       .domain = "dlb", \
						       .n_in = { 2, 2 }, \
						       .n_out = { 1, 1 }, \
						       .layout = DLB_LAYOUT_ANY, \
						       .overwrite = 3, \
						       .work = w, \
						       .infer = dlb_infer_alike, \
						       .flops = flops_##n, \
						       .kernel = grad_kernel };
UNARY(ROW)
#undef ROW

/* -- without a gradient, or with a simple one -- */

static int gradient_neg(struct dlb_builder *b, struct dlb_error *err)
{
	(void)err;
	b->din[0] = b->need[0] ? dlb_b_op1(b, "Neg", b->dout[0]) : -1;
	return b->need[0] && b->din[0] < 0 ? -1 : 0;
}

#define PLAIN(n, f, grad) \
	static int kernel_##n(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k, \
			      struct dlb_error *err) \
	{ \
		return dlb_kernel_map(be, io, DLB_MAP(f, 1), k, err); \
	} \
	const struct dlb_op_class dlb_op_##n = { .name = #n, \
						 .n_in = { 1, 1 }, \
						 .n_out = { 1, 1 }, \
						 .layout = DLB_LAYOUT_ANY, \
						 .bf16 = DLB_BF16_FOLLOWS, \
						 .overwrite = 1, \
						 .work = "elementwise", \
						 .infer = dlb_infer_same, \
						 .gradient = grad, \
						 .kernel = kernel_##n };
PLAIN(Neg, neg, gradient_neg)
PLAIN(Sign, sign, NULL)
PLAIN(Floor, floor, NULL)
PLAIN(Ceil, ceil, NULL)
PLAIN(Round, round, NULL)
PLAIN(Not, not, NULL)

/* -- tests of floats: IsNaN, IsInf -- */

static int infer_test(struct dlb_op_io *io, struct dlb_error *err)
{
	if (!dlb_dtype_is_float(io->in[0].dtype))
		return dlb_op_fail(io, err, "the input is of type %s, not a float",
				   dlb_dtype_name(io->in[0].dtype));
	io->out[0] = io->in[0];
	io->out[0].dtype = DLB_BOOL;
	return 0;
}

static int kernel_is_nan(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	return dlb_kernel_map(be, io, DLB_MAP(is_nan, 1), k, err);
}

static int kernel_is_inf(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_kernel **k,
			 struct dlb_error *err)
{
	return dlb_kernel_map(be, io,
			      &(struct dlb_map){ .fn = DLB_MAP_is_inf, .n_in = 1,
						 .alpha = dlb_io_int(io, "detect_negative", 1) != 0,
						 .beta = dlb_io_int(io, "detect_positive", 1) != 0 }, k, err);
}

#define TEST(n, kern) \
	const struct dlb_op_class dlb_op_##n = { .name = #n, .n_in = { 1, 1 }, .n_out = { 1, 1 }, .layout = DLB_LAYOUT_ANY, \
		.work = "elementwise", .infer = infer_test, .kernel = kern };
TEST(IsNaN, kernel_is_nan)
TEST(IsInf, kernel_is_inf)
