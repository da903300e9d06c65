/* Rewrites that find normalizations and activations: each form of a pattern is found, near misses are not, and no
 * result changes (rewrite_cases.h). */
#include "rewrite_cases.h"

static const char *const kept[] = {
#include "rewrite_norm_kept.inc"
};

/* -- LayerNormalization -- */

enum {
	LN_POW,
	LN_MUL,
	LN_BIAS_FIRST,
	LN_TWO_AXES,
	LN_PLAIN,
	LN_SCALE_ONLY,
	LN_RECIPROCAL,
	LN_TWICE,
	LN_CAST,
	LN_WIDE_SCALE /* the scale stays a Mul */,
	LN_GOOD,
	LN_NO_EPSILON = LN_GOOD,
	LN_AXIS,
	LN_CUBE,
	LN_OTHER_AXIS,
	LN_ESCAPES,
	LN_OUTPUT,
	LN_KINDS
};

static int mean_of(struct dlb_graph *g, int x, int kind)
{
	const int axis = kind == LN_AXIS ? 1 : 2;
	return kind == LN_TWO_AXES ? INTS("ReduceMean", x, "axes", -2, -1)
		: kind == LN_AXIS ? INTS("ReduceMean", x, "axes", axis) : INTS("ReduceMean", x, "axes", -1);
}

static int cast(struct dlb_graph *g, int x, int kind)
{
	return kind == LN_CAST ? with_int(g, "Cast", x, -1, "to", dlb_dtype_to_onnx(DLB_F64)) : x;
}

static int layer_norm(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	x = OP("Mul", x, W("in", 4, 6));
	const int d = OP("Sub", cast(g, x, kind), mean_of(g, x, kind));
	const int e = kind == LN_TWICE ? OP("Sub", x, mean_of(g, x, kind)) : d;
	const int square = kind == LN_MUL ? OP("Mul", e, e) :
					    OP("Pow", cast(g, e, kind), C(kind == LN_CUBE ? 4 : 2));
	const int var = kind == LN_OTHER_AXIS ? INTS("ReduceMean", square, "axes", 1) :
						mean_of(g, square, kind);
	const int spread = OP("Sqrt", kind == LN_NO_EPSILON ? OP("Abs", var) : OP("Add", var, C(1e-5)));
	int y = kind == LN_RECIPROCAL ? OP("Mul", OP("Reciprocal", spread), d) : OP("Div", d, spread);
	if (kind == LN_ESCAPES)
		y = OP("Add", y, OP("Mul", square, C(0.25)));
	if (kind == LN_OUTPUT)
		output(g, var);
	if (kind == LN_PLAIN)
		return OP("Tanh", y);
	y = kind == LN_TWO_AXES || kind == LN_WIDE_SCALE ? OP("Mul", y, W("scale", 4, 6)) :
							   OP("Mul", y, W("scale", 6));
	if (kind == LN_SCALE_ONLY)
		return y;
	const int bias = kind == LN_TWO_AXES ? W("bias", 4, 6) : W("bias", 6);
	return kind == LN_BIAS_FIRST ? OP("Add", bias, y) : OP("Add", y, bias);
}

/* -- GroupNormalization -- */

enum {
	GN_PLAIN,
	GN_LEADING,
	GN_UNSQUEEZED,
	GN_BIAS_FIRST,
	GN_FOUR,
	GN_GOOD,
	GN_SCALED = GN_GOOD,
	GN_SHIFTED,
	GN_ROW,
	GN_READ,
	GN_SPLIT,
	GN_KINDS
};

/* Two groups of x (N, 4, 6). */
static int group_norm(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	const struct dlb_attr epsilon = { .name = "epsilon", .type = DLB_ATTR_REAL, .f = 1e-3 };
	const int ones = constant(g, "ones", (int64_t[]){ 2 }, 1, false),
		  zeros = constant(g, "zeros", (int64_t[]){ 2 }, 1, false);

	for (int i = 0; i < 2; i++) {
		((double *)g->tensor[ones].data)[i] = kind == GN_SCALED ? 1 + i : 1;
		((double *)g->tensor[zeros].data)[i] = kind == GN_SHIFTED;
	}
	x = OP("Mul", x, W("in", 4, 6));
	if (kind == GN_FOUR)
		x = RESHAPE(x, 1, 0, 4, 2, 3);
	/* or one group per half sample */
	const int groups = kind == GN_SPLIT ? RESHAPE(x, 2, 0, 2, 6) : RESHAPE(x, 1, 0, 2, 12);
	const int norm = op(g, "InstanceNormalization", (const int[]){ groups, ones, zeros }, 3, &epsilon, 1);
	const int y = kind == GN_FOUR ? RESHAPE(norm, 1, 0, 4, 2, 3) : RESHAPE(norm, 1, 0, 4, 6);
	const int scale = kind == GN_UNSQUEEZED ? RESHAPE(W("scale", 4), 1, 4, 1) :
			  kind == GN_LEADING    ? W("scale", 1, 4, 1) :
			  kind == GN_FOUR       ? W("scale", 4, 1, 1) :
			  kind == GN_ROW        ? W("scale", 6) :
						  W("scale", 4, 1);
	const int bias = kind == GN_FOUR ? W("bias", 1, 4, 1, 1) : W("bias", 4, 1),
		  scaled = OP("Mul", y, scale);

	if (kind == GN_READ)
		output(g, y);
	return kind == GN_BIAS_FIRST ? OP("Add", bias, scaled) : OP("Add", scaled, bias);
}

/* -- RMSNormalization -- */

enum {
	RMS_RECIPROCAL,
	RMS_MUL,
	RMS_DIV,
	RMS_ONE_BY,
	RMS_POW,
	RMS_WEIGHT_LAST,
	RMS_PLAIN,
	RMS_TWO_AXES,
	RMS_GOOD,
	RMS_OTHER_X = RMS_GOOD,
	RMS_CUBE,
	RMS_SUM,
	RMS_AXIS,
	RMS_ESCAPES,
	RMS_OUTPUT,
	RMS_KINDS
};

static int rms_norm(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	x = OP("Mul", x, W("in", 4, 6));
	const int of = kind == RMS_OTHER_X ? OP("Tanh", x) : x;
	const int square = kind == RMS_MUL ? OP("Mul", of, of) : OP("Pow", of, C(kind == RMS_CUBE ? 4 : 2));
	const int mean = kind == RMS_SUM      ? OP("Exp", square) :
			 kind == RMS_TWO_AXES ? INTS("ReduceMean", square, "axes", 1, 2) :
						INTS("ReduceMean", square, "axes", kind == RMS_AXIS ? 1 : -1);
	const int sum = OP("Add", mean, C(1e-5)), root = kind == RMS_POW ? -1 : OP("Sqrt", sum);
	int y;
	if (kind == RMS_DIV)
		y = OP("Div", x, root);
	else if (kind == RMS_POW)
		y = OP("Mul", x, OP("Pow", sum, C(-0.5)));
	else
		y = OP("Mul", x, kind == RMS_ONE_BY ? OP("Div", C(1), root) : OP("Reciprocal", root));
	if (kind == RMS_ESCAPES)
		y = OP("Add", y, mean);
	if (kind == RMS_OUTPUT)
		output(g, root);
	if (kind == RMS_PLAIN)
		return OP("Tanh", y);
	const int w = kind == RMS_TWO_AXES ? W("w", 4, 6) : W("w", 6);
	return OP("Tanh", kind == RMS_WEIGHT_LAST ? OP("Mul", y, w) : OP("Mul", w, y));
}

/* -- Swish, SwiGLU -- */

enum {
	SWISH_X,
	SWISH_FIRST,
	SWISH_ALPHA,
	SWISH_GATED,
	SWISH_GATED_LAST,
	SWISH_GOOD,
	SWISH_OTHER = SWISH_GOOD,
	SWISH_ESCAPES,
	SWISH_KINDS
};

static int swish(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	x = OP("Mul", x, W("in", 4, 6));
	const int f = OP("Sigmoid", kind == SWISH_ALPHA ? OP("Mul", x, C(1.7)) :
				    kind == SWISH_OTHER ? OP("Tanh", x) :
							  x);
	const int y = kind == SWISH_FIRST ? OP("Mul", f, x) : OP("Mul", x, f);
	if (kind == SWISH_ESCAPES)
		return OP("Add", y, f);
	if (kind == SWISH_GATED)
		return OP("Tanh", OP("Mul", y, OP("Add", x, W("b", 6))));
	if (kind == SWISH_GATED_LAST)
		return OP("Tanh", OP("Mul", OP("Add", x, W("b", 4, 6)), y));
	return OP("Mul", OP("Tanh", y), W("b", 6));			/* of another shape: no gate */
}

/* -- GELU -- */

enum {
	GELU_ERF,
	GELU_ERF_HALF_FIRST,
	GELU_ERF_HALF_SUM,
	GELU_ERF_MUL,
	GELU_OF_PRODUCT,
	GELU_TANH,
	GELU_TANH_CUBE,
	GELU_TANH_FACTORED,
	GELU_TIMES, /* a further factor stays */
	GELU_GOOD,
	GELU_SEVEN = GELU_GOOD,
	GELU_ROOT,
	GELU_TWO,
	GELU_OTHER_X,
	GELU_CUBIC,
	GELU_ESCAPES,
	GELU_OUTPUT,
	GELU_KINDS
};

static int gelu_inner(struct dlb_graph *g, int x, int kind)
{
	const double root = 0.79788456080286535588;
	if (kind == GELU_TANH_FACTORED)
		return OP("Mul", OP("Mul", x, C(root)),
			  OP("Add", OP("Mul", OP("Mul", x, C(0.044715)), x), C(1)));
	const int cube = kind == GELU_TANH_CUBE ? OP("Mul", OP("Mul", x, x), x) : OP("Pow", x, C(3));
	return OP("Mul", OP("Add", x, OP("Mul", cube, C(kind == GELU_CUBIC ? 0.0447 : 0.044715))), C(root));
}

static int gelu(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	const bool tanh = kind == GELU_TANH || kind == GELU_TANH_CUBE || kind == GELU_TANH_FACTORED ||
			  kind == GELU_CUBIC;
	x = OP(kind == GELU_OF_PRODUCT ? "Mul" : "Add", x, W("in", 4, 6));
	const int other = kind == GELU_OTHER_X ? OP("Tanh", x) : x;
	int f;
	if (tanh)
		f = OP("Tanh", gelu_inner(g, x, kind));
	else if (kind == GELU_ERF_MUL)
		f = OP("Erf", OP("Mul", x, C(0.70710678118654752440)));
	else
		f = OP("Erf", OP("Div", x, C(kind == GELU_ROOT ? 1.4 : 1.41421356237309504880)));
	const int sum = OP("Add", f, C(kind == GELU_TWO ? 2 : 1)), half = C(kind == GELU_SEVEN ? 0.7 : 0.5);
	if (kind == GELU_OUTPUT)
		output(g, sum);
	if (kind == GELU_ESCAPES)
		return OP("Add", OP("Mul", OP("Mul", x, sum), half), f);
	if (kind == GELU_ERF_HALF_FIRST || tanh)
		return OP("Mul", OP("Mul", x, half), sum);
	if (kind == GELU_TIMES)
		return OP("Mul", OP("Mul", OP("Mul", x, half), sum), W("w", 6));
	if (kind == GELU_ERF_HALF_SUM)
		return OP("Mul", x, OP("Mul", sum, half));
	return OP("Mul", OP("Mul", other, sum), half);
}

/* -- Relu -- */

static int residual(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	const int a = OP("Mul", x, W("a", 6)),
		  sum = OP("Add", a, kind == 1 ? W("bias", 6) : OP("Mul", x, W("b", 4, 6)));
	if (kind == 2)
		output(g, sum);
	const int y = OP("Relu", sum);
	return kind == 3 ? OP("Mul", y, OP("Tanh", sum)) : OP("Mul", y, W("c", 6));
}

static int convolution(struct dlb_graph *g, int x, int variant)
{
	static const int64_t k3[] = { 3 }, p1[] = { 1, 1 };
	const struct dlb_attr a[] = { { .name = "kernel_shape", .type = DLB_ATTR_INTS, .ints = k3, .n = 1 },
				      { .name = "pads", .type = DLB_ATTR_INTS, .ints = p1, .n = 2 } };
	const int kind = variant / 2, in[3] = { OP("Mul", x, W("in", 6)), W("w", 5, 4, 3), W("b", 5) };
	const int c = op(g, "Conv", in, kind == 1 ? 2 : 3, a, 2);
	if (kind == 2)
		output(g, c);
	return OP("Mul", OP("Relu", c), kind == 3 ? c : W("after", 6));
}

/* Batch statistics (even kinds) or running ones; in opset 13 the number of outputs means training. */
static int normalized(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2, mean = W("mean", 4), var = W("var", 4);
	const bool train = kind != 1;
	char name[40];
	for (int i = 0; i < 4; i++)
		((double *)g->tensor[var].data)[i] = 1 + i;
	const struct dlb_attr mode = { .name = "training_mode", .type = DLB_ATTR_INT, .i = train };
	const int in[5] = { OP("Mul", x, W("in", 6)), W("scale", 4), W("shift", 4), mean, var };
	int out[3];
	for (int k = 0; k < 3; k++) {
		snprintf(name, sizeof name, "norm%d", k);
		out[k] = dlb_graph_add_tensor(g, name, DLB_T_ACTIVATION);
	}
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "norm", .type = "BatchNormalization", .in = in,
						.n_in = 5, .out = out, .n_out = train ? 3 : 1, .attr = &mode,
						.n_attr = g->opset >= 14 });
	if (kind == 2)
		output(g, out[0]);
	const int y = OP("Relu", out[0]);
	return OP("Mul", y, kind == 3 ? OP("Tanh", out[0]) : W("after", 6));
}

int main(int argc, char **argv)
{
	static const int64_t dim[] = { 0, 4, 6 };

	test_backend(&be);
	for (int kind = 0; kind < 2 * LN_KINDS; kind++)		/* even: opset 13, odd: 17 */
		check("layer-norm", layer_norm, kind, dim, 3, kind / 2 < LN_GOOD);
	for (int kind = 0; kind < 2 * GN_KINDS; kind++)
		check("group-norm", group_norm, kind, dim, 3, kind / 2 < GN_GOOD);
	for (int kind = 0; kind < 2 * RMS_KINDS; kind++)
		check("rms-norm", rms_norm, kind, dim, 3, kind / 2 < RMS_GOOD);
	for (int kind = 0; kind < 2 * SWISH_KINDS; kind++) {
		check("swish", swish, kind, dim, 3, kind / 2 < SWISH_GOOD);
		check("swiglu", swish, kind, dim, 3, kind / 2 == SWISH_GATED || kind / 2 == SWISH_GATED_LAST);
	}
	for (int kind = 0; kind < 2 * GELU_KINDS; kind++)
		check("gelu", gelu, kind, dim, 3, kind / 2 < GELU_GOOD);
	for (int kind = 0; kind < 8; kind++)
		check("add-relu", residual, kind, dim, 3, kind / 2 < 2);
	for (int kind = 0; kind < 8; kind++)
		check("norm-relu", normalized, kind, dim, 3, kind / 2 < 2);
	for (int kind = 0; kind < 8; kind++)
		check("conv-relu", convolution, kind, dim, 3, kind / 2 < 2);
	be.ops->close(&be);
	printf("%d numbers compared\n", n_checked);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
