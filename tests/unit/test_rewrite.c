/* Rewrites that fuse: each form of a pattern is found, near misses are not, and the loss and every gradient
 * equal those of the original graph (in f64, to 1e-11); rewrites that are switched off are not applied. */
#include <math.h>
#include "graph/graph.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"
#include "graph/rewrites.h"
#include "check.h"
#include "run_graph.h"
#include "util/rng.h"
#include "by_hand.h"

static struct dlb_backend be;
static const uint64_t seed = 20260202;
static uint64_t drawn;
static int n_checked;

/* -- graphs made by hand -- */

static int constant(struct dlb_graph *g, const char *name, const int64_t *dim, int n, bool initial)
{
	return drawn_constant(g, name, dim, n, initial, seed, &drawn);
}
#define W(name, ...) constant(g, name, (const int64_t[]){ __VA_ARGS__ }, \
			      (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), true)

static int scalar(struct dlb_graph *g, double v)
{
	char name[40];
	snprintf(name, sizeof name, "scalar%d", g->n_tensors);
	const int t = constant(g, name, NULL, 0, false);
	*(double *)g->tensor[t].data = v;
	return t;
}
#define C(v) scalar(g, v)

#define OP(type, ...) op(g, type, (const int[]){ __VA_ARGS__ }, (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int)), NULL, 0)

static int with_ints(struct dlb_graph *g, const char *type, int x, const char *name, const int64_t *v, int n)
{
	const struct dlb_attr a = { .name = name, .type = DLB_ATTR_INTS, .ints = v, .n = n };
	return op(g, type, &x, 1, &a, 1);
}
#define INTS(type, x, name, ...) with_ints(g, type, x, name, (const int64_t[]){ __VA_ARGS__ }, \
					   (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))

static int with_int(struct dlb_graph *g, const char *type, int x, int w, const char *name, int64_t v)
{
	const struct dlb_attr a = { .name = name, .type = DLB_ATTR_INT, .i = v };
	const int in[2] = { x, w };
	return op(g, type, in, w < 0 ? 1 : 2, &a, 1);
}

static int start(struct dlb_graph *g, int opset, const int64_t *dim, int n)
{
	begin_graph(g, opset);
	return sample_input(g, DLB_F64, dim, n);
}

static void output(struct dlb_graph *g, int t)
{
	g->output[g->n_outputs++] = t;
}

/* A constant of dimensions; a dimension 0 stands for per_sample times the batch. */
static int shape(struct dlb_graph *g, int64_t per_sample, int n, const int64_t *dim)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	int64_t mul[5] = { 0 }, add[5] = { 0 };
	for (int i = 0; i < n; i++)
		*(dim[i] ? &add[i] : &mul[i]) = dim[i] ? dim[i] : per_sample;
	return dlb_graph_add_constant(g, "to", &d, add, mul);
}
#define SHAPE(per_sample, ...) shape(g, per_sample, (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), \
				     (const int64_t[]){ __VA_ARGS__ })
#define RESHAPE(x, per_sample, ...) OP("Reshape", x, SHAPE(per_sample, __VA_ARGS__))

/* -- comparison of both graphs -- */

typedef int build_fn(struct dlb_graph *g, int x, int variant);

static int64_t applied(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_rewritten; i++)
		if (!strcmp(g->rewritten[i].name, name))
			return g->rewritten[i].count;
	return -1;
}

static void make(struct dlb_graph *g, build_fn *build, int variant, const int64_t *dim, int n,
		 const char *off)
{
	struct dlb_error err = { .what = "" };
	drawn = 0;
	const int x = start(g, 13 + variant % 2 * 4, dim, n), y = build(g, x, variant);
	/* outputs that a variant has named already come after: the loss belongs to the first */
	for (int i = g->n_outputs++; i > 0; i--)
		g->output[i] = g->output[i - 1];
	g->output[0] = y;
	if ((off && dlb_graph_no_rewrite(g, off, &err)) || dlb_graph_fold(g, 3, &be, &err) ||
	    dlb_graph_find_parameters(g, &err) || dlb_graph_attach_loss(g, "mse", &err) ||
	    dlb_graph_rewrite(g, &err) || dlb_graph_choose_layout(g, &err) ||
	    dlb_graph_differentiate(g, &err) || dlb_graph_check(g, &err) ||
	    dlb_graph_check_runnable(g, 3, &err) || dlb_graph_check_runnable(g, 5, &err))
		test_die(&err);
}

static int gradient_of(const struct dlb_graph *g, const char *weight)
{
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].phase == DLB_UPDATE && !strcmp(g->tensor[g->op[i].in[0]].name, weight))
			return g->op[i].in[1];
	return -1;
}

static void fill(struct test_run *r)
{
	const struct dlb_graph *g = r->g;
	for (int i = 0; i < g->n_inputs; i++) {
		const struct dlb_desc d = dlb_tensor_desc(&g->tensor[g->input[i]], r->n);
		for (int64_t k = 0; k < dlb_desc_count(&d); k++)
			((double *)r->value[g->input[i]])[k] = dlb_philox_normal(seed, 2 + (uint64_t)i,
										 (uint64_t)k);
	}
	test_run_phase(r, DLB_BACKWARD);
}

static void same(const char *what, const struct test_run *a, int s, const struct test_run *b, int t)
{
	const struct dlb_desc d = dlb_tensor_desc(&a->g->tensor[s], a->n),
			      e = dlb_tensor_desc(&b->g->tensor[t], b->n);
	assert(dlb_desc_same_shape(&d, &e));
	for (int64_t i = 0; i < dlb_desc_count(&d); i++) {
		const double u = ((double *)a->value[s])[i], v = ((double *)b->value[t])[i];
		if (!(fabs(u - v) <= 1e-11 + 1e-11 * fabs(v))) {
			fprintf(stderr, "%s, %s[%lld]: fused %.17g, spelt out %.17g\n", what,
				b->g->tensor[t].name, (long long)i, u, v);
			abort();
		}
		n_checked++;
	}
}

static void compare(const char *what, const struct dlb_graph *fused, const struct dlb_graph *spelt, int64_t n)
{
	struct test_run a, b;
	int weights = 0;

	test_run_init(&a, fused, &be, n);
	test_run_init(&b, spelt, &be, n);
	fill(&a);
	fill(&b);
	same(what, &a, fused->loss, &b, spelt->loss);
	for (int t = 0; t < spelt->n_tensors; t++) {
		if (spelt->tensor[t].kind == DLB_T_BUFFER)
			same(what, &a, test_tensor(fused, spelt->tensor[t].name), &b, t);
		if (spelt->tensor[t].kind != DLB_T_WEIGHT)
			continue;
		const int s = gradient_of(fused, spelt->tensor[t].name);
		assert(IS(s, >=, 0));
		same(what, &a, s, &b, gradient_of(spelt, spelt->tensor[t].name));
		weights++;
	}
	assert(IS(weights, >, 0));
	for (int i = 0; i < spelt->n_outputs; i++)
		same(what, &a, fused->output[i], &b, spelt->output[i]);
	test_run_release(&a);
	test_run_release(&b);
}

/* Builds the variant with the rewrite and without any; it must apply `times` times, and change no result. */
static void check(const char *rewrite, build_fn *build, int variant, const int64_t *dim, int n, int64_t times)
{
	struct dlb_graph fused, spelt, without;
	char what[80];

	snprintf(what, sizeof what, "%s, variant %d", rewrite, variant);
	make(&fused, build, variant, dim, n, NULL);
	make(&spelt, build, variant, dim, n, "all");
	make(&without, build, variant, dim, n, rewrite);
	if (applied(&fused, rewrite) != times) {
		fprintf(stderr, "%s: applied %lld times, not %lld\n", what,
			(long long)applied(&fused, rewrite), (long long)times);
		abort();
	}
	assert(IS(applied(&without, rewrite), ==, -1) && IS(spelt.n_rewritten, ==, 0));
	compare(what, &fused, &spelt, 3);
	compare(what, &fused, &spelt, 5);
	dlb_graph_release(&fused);
	dlb_graph_release(&spelt);
	dlb_graph_release(&without);
}

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

/* -- RotaryEmbedding -- */

enum {
	ROPE_LLAMA,
	ROPE_LAST_FIRST,
	ROPE_SPLIT,
	ROPE_GOOD,
	ROPE_UNEQUAL = ROPE_GOOD,
	ROPE_NEGATED,
	ROPE_PER_SAMPLE,
	ROPE_ESCAPES,
	ROPE_TRAINED,
	ROPE_KINDS
};

static int half(struct dlb_graph *g, int x, int64_t from, int64_t to)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { 1 } };
	const int64_t axis = 3;
	return OP("Slice", x, dlb_graph_add_constant(g, "from", &d, &from, NULL),
		  dlb_graph_add_constant(g, "to", &d, &to, NULL),
		  dlb_graph_add_constant(g, "axis", &d, &axis, NULL));
}

/* A table of (1, 1, 4, 6) with rows of two equal halves; unequal: except one number. */
static int table(struct dlb_graph *g, const char *name, bool trained, bool unequal)
{
	const int t = constant(g, name, (const int64_t[]){ 1, 1, 4, 6 }, 4, trained);
	double *v = (double *)g->tensor[t].data;
	for (int i = 0; i < 24; i++)
		v[i] = v[i / 6 * 6 + i % 3] + (unequal && i == 17);
	return t;
}

/* x (N, 4, 6): two heads of 6, in (N, 2, 4, 6). */
static int rope(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	x = INTS("Transpose", RESHAPE(OP("MatMul", x, W("in", 6, 12)), 1, 0, 4, 2, 6), "perm", 0, 2, 1, 3);
	const int c = kind == ROPE_PER_SAMPLE ? OP("Tanh", x) :
						table(g, "cos", kind == ROPE_TRAINED, kind == ROPE_UNEQUAL);
	const int s = table(g, "sin", false, false);
	int low, high;
	if (kind == ROPE_SPLIT) {
		const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { 2 } };
		const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = 3 };
		const int in[2] = { x,
				    dlb_graph_add_constant(g, "parts", &d, (const int64_t[]){ 3, 3 }, NULL) };
		low = dlb_graph_add_tensor(g, "low", DLB_T_ACTIVATION);
		high = dlb_graph_add_tensor(g, "high", DLB_T_ACTIVATION);
		dlb_graph_add_op(g, DLB_FORWARD,
				 &(struct dlb_op_spec){ .name = "halves", .type = "Split", .in = in,
							.n_in = 2, .out = (const int[]){ low, high },
							.n_out = 2, .attr = &axis, .n_attr = 1 });
	} else {
		low = half(g, x, 0, 3);
		high = half(g, x, 3, INT64_MAX);
	}
	const int parts[2] = { kind == ROPE_NEGATED ? high : OP("Neg", high),
			       kind == ROPE_NEGATED ? OP("Neg", low) : low };
	const struct dlb_attr last = { .name = "axis", .type = DLB_ATTR_INT, .i = -1 };
	const int turned = op(g, "Concat", parts, 2, &last, 1);
	const int a = kind == ROPE_LAST_FIRST ? OP("Mul", c, x) : OP("Mul", x, c);
	const int b = kind == ROPE_LAST_FIRST ? OP("Mul", s, turned) : OP("Mul", turned, s);
	const int y = kind == ROPE_LAST_FIRST ? OP("Add", b, a) : OP("Add", a, b);
	return kind == ROPE_ESCAPES ? OP("Mul", y, turned) : OP("Tanh", y);
}

/* -- the guard of attention's Softmax -- */

enum {
	GUARD_CAUSAL,
	GUARD_NO_MASK,
	GUARD_OPEN,
	GUARD_SHUT = GUARD_OPEN,
	GUARD_INPUT,
	GUARD_ONE,
	GUARD_KINDS
};

static int guarded(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2, mask = constant(g, "mask", (const int64_t[]){ 4, 4 }, 2, false);
	for (int i = 0; i < 16; i++)
		((double *)g->tensor[mask].data)[i] = i % 4 > i / 4 || (kind == GUARD_SHUT && i / 4 == 2) ?
							      -INFINITY :
							      0;
	int s = OP("MatMul", OP("Mul", x, W("in", 4, 6)), INTS("Transpose", OP("Tanh", x), "perm", 0, 2, 1));
	if (kind == GUARD_INPUT)
		s = OP("Tanh", s);
	if (kind != GUARD_NO_MASK)
		s = OP("Add", s, mask);
	const int y = with_int(g, "Softmax", s, -1, "axis", -1);
	return OP("MatMul", OP("Where", OP("IsNaN", y), C(kind == GUARD_ONE ? 1 : 0), y), x);
}

/* -- Transposes and Reshapes in a row -- */

enum {
	VIEWS_KEY,
	VIEWS_UNDONE,
	VIEWS_BEFORE,
	VIEWS_WIDE,
	VIEWS_GOOD,
	VIEWS_READ = VIEWS_GOOD,
	VIEWS_ONE,
	VIEWS_KINDS
};

/* x (N, 4, 6) in heads of 2; a dimension 0 stands for the batch. */
static int views(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	x = OP("Mul", x, W("in", 4, 6));
	const int four = RESHAPE(x, 1, 0, 4, 2, 3);
	if (kind == VIEWS_KEY) {		/* (N,2,4,3) (2N,4,3) (2N,3,4) (N,2,3,4) */
		const int k = INTS("Transpose",
				   RESHAPE(INTS("Transpose", four, "perm", 0, 2, 1, 3), 2, 0, 4, 3), "perm",
				   0, 2, 1);
		return OP("Tanh", RESHAPE(k, 1, 0, 2, 3, 4));
	}
	if (kind == VIEWS_UNDONE)		/* (4,N,6) (4,N,2,3) (N,4,2,3) */
		return OP("Tanh",
			  INTS("Transpose", RESHAPE(INTS("Transpose", x, "perm", 1, 0, 2), 1, 4, 0, 2, 3),
			       "perm", 1, 0, 2, 3));
	if (kind == VIEWS_BEFORE) {		/* (4,2N,3) (2N,4,3) (N,2,4,3) */
		const int t = OP("Tanh", INTS("Transpose", x, "perm", 1, 0, 2));
		return OP("Tanh",
			  RESHAPE(INTS("Transpose", RESHAPE(t, 2, 4, 0, 3), "perm", 1, 0, 2), 1, 0, 2, 4, 3));
	}
	if (kind == VIEWS_WIDE)	/* (N,2,4,3) (N,3,2,4) (N,6,4): the rest must be copied together */
		return OP("Tanh", RESHAPE(INTS("Transpose", INTS("Transpose", four, "perm", 0, 2, 1, 3),
					       "perm", 0, 3, 1, 2),
					  1, 0, 6, 4));
	const int t = INTS("Transpose", four, "perm", 0, 2, 1, 3),
		  u = INTS("Transpose", t, "perm", 0, 1, 3, 2);
	return kind == VIEWS_READ ?
		       OP("Add", OP("Tanh", t), INTS("Transpose", OP("Tanh", u), "perm", 0, 1, 3, 2)) :
		       OP("Tanh", RESHAPE(t, 1, 0, 24));
}

/* -- parts taken index by index -- */

enum {
	UNBIND_GATHER,
	UNBIND_TURNED,
	UNBIND_SLICE,
	UNBIND_SQUEEZE,
	UNBIND_PLAIN,
	UNBIND_KEPT,
	UNBIND_GOOD,
	UNBIND_TWICE = UNBIND_GOOD,
	UNBIND_MISSING,
	UNBIND_READ,
	UNBIND_WIDE,
	UNBIND_KINDS
};

/* A constant integer, of n_dims (0 or 1). */
static int number(struct dlb_graph *g, int64_t v, int n_dims)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = n_dims, .dim = { 1 } };
	return dlb_graph_add_constant(g, "number", &d, &v, NULL);
}

static int pick(struct dlb_graph *g, int x, int axis, int64_t index, int kind)
{
	if (kind == UNBIND_GATHER || kind == UNBIND_TURNED || kind == UNBIND_PLAIN || kind >= UNBIND_TWICE)
		return with_int(g, "Gather", x, number(g, index, 0), "axis", axis);
	const int y = OP("Slice", x, number(g, index == 0 ? -2 : index, 1), number(g, index + 1, 1),
			 number(g, axis, 1));
	return kind == UNBIND_SQUEEZE ? OP("Squeeze", y, number(g, axis, 1)) : y;
}

/* x (N, 4, 6) is two parts of (N, 4, 3), or of (N, 2, 6). */
static int unbind(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	const bool turned = kind == UNBIND_TURNED || kind == UNBIND_SLICE || kind == UNBIND_SQUEEZE;
	x = RESHAPE(OP("Mul", x, W("in", 6)), 1, 0, 4, 2, 3);
	if (kind == UNBIND_GATHER || kind >= UNBIND_TWICE)
		x = INTS("Transpose", x, "perm", 2, 0, 1, 3);
	else if (turned)
		x = INTS("Transpose", x, "perm", 2, 1, 0, 3);
	const int axis = kind == UNBIND_PLAIN || kind == UNBIND_KEPT ? 2 : 0;
	const int a = OP("Tanh", pick(g, x, axis, 0, kind)),
		  b = OP("Exp", pick(g, x, axis, kind == UNBIND_TWICE ? 0 : 1, kind));
	if (kind == UNBIND_MISSING)
		return a;
	if (kind == UNBIND_WIDE)
		return OP("Mul", a, OP("Mul", b, OP("Gather", x, number(g, 1, 1))));
	return kind == UNBIND_READ ? OP("Mul", OP("Mul", a, b), OP("Sigmoid", x)) : OP("Mul", a, b);
}

/* -- rows that a Gather or Slice keeps -- */

enum {
	ROWS_FIRST,
	ROWS_LAST,
	ROWS_SLICE,
	ROWS_TWO,
	ROWS_BLOCK,
	ROWS_MERGED,
	ROWS_TURNED,
	ROWS_ATTENTION,
	ROWS_GEMM,
	ROWS_MAPS,
	ROWS_COLUMN,
	ROWS_GOOD,
	ROWS_ADD = ROWS_GOOD,
	ROWS_VIEWS,
	ROWS_SUM,
	ROWS_OUTPUT,
	ROWS_APART,
	ROWS_ALL,
	ROWS_KINDS
};

static int keep(struct dlb_graph *g, int x, int axis, int64_t from, int64_t to)
{
	return OP("Slice", x, number(g, from, 1), number(g, to, 1), number(g, axis, 1));
}

/* x (N, 4, 6): products and ops between them; only some rows of dimension 1 are kept. */
static int rows(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	int y = x;

	if (kind == ROWS_ATTENTION) {			/* of one query */
		const int k = INTS("Transpose", OP("MatMul", x, W("k", 6, 6)), "perm", 0, 2, 1);
		const int p = with_int(g, "Softmax",
				       OP("Add", OP("MatMul", OP("MatMul", x, W("q", 6, 6)), k),
					  W("mask", 4, 4)),
				       -1, "axis", -1);
		y = OP("Add", x, OP("MatMul", OP("MatMul", p, OP("MatMul", x, W("v", 6, 6))), W("o", 6, 6)));
	} else if (kind == ROWS_TURNED) {
		y = INTS("Transpose", y, "perm", 1, 0, 2);
		y = OP("Tanh", OP("MatMul", RESHAPE(y, 4, 0, 6), W("w", 6, 6)));
		y = INTS("Transpose", RESHAPE(y, 1, 4, 0, 6), "perm", 1, 0, 2);
	} else if (kind == ROWS_MERGED || kind == ROWS_GEMM) {
		y = RESHAPE(y, 4, 0, 6);
		y = OP("Tanh", kind == ROWS_GEMM ? OP("Gemm", y, W("w", 6, 6), W("b", 6)) :
						   OP("MatMul", y, W("w", 6, 6)));
		y = RESHAPE(y, 1, 0, 4, 6);
	} else if (kind == ROWS_VIEWS) {
		y = RESHAPE(RESHAPE(x, 4, 0, 6), 1, 0, 4, 6);
		return OP("Mul", keep(g, y, 1, 1, 2), W("w", 6));
	} else if (kind == ROWS_MAPS) {
		y = OP("Tanh", OP("Mul", y, W("w", 6)));
	} else if (kind == ROWS_ADD) {
		const int z = OP("Mul", y, W("w", 6));
		return OP("Mul", keep(g, OP("Add", x, z), 1, 1, 2), OP("ReduceMean", z));
	} else {
		y = OP("Tanh", OP("Add", OP("MatMul", y, W("w", 6, 6)), W("b", 6)));
	}
	if (kind == ROWS_BLOCK)
		y = OP("Add", x,
		       OP("MatMul",
			  OP("Sigmoid", OP("MatMul", OP("Mul", y, W("scale", 4, 1)), W("up", 6, 12))),
			  W("down", 12, 6)));
	if (kind == ROWS_OUTPUT)
		output(g, y);
	switch (kind) {
	case ROWS_LAST: return with_int(g, "Gather", y, number(g, -1, 0), "axis", 1);
	case ROWS_SLICE: return keep(g, y, 1, 1, 3);
	case ROWS_TWO: return OP("Mul", keep(g, y, 1, 0, 1), keep(g, y, 1, 1, 2));
	case ROWS_SUM: return OP("Mul", keep(g, y, 1, 0, 1), INTS("ReduceMean", y, "axes", 1));
	case ROWS_COLUMN: return keep(g, y, 2, 1, 3);
	case ROWS_APART: return OP("Mul", keep(g, y, 1, 0, 1), keep(g, y, 1, 3, 4));
	case ROWS_ALL: return keep(g, y, 1, 0, 4);
	default: return with_int(g, "Gather", y, number(g, 1, 0), "axis", 1);
	}
}

/* If one row of a block is read, its products compute only that row. */
static void rows_are_few(void)
{
	static const int64_t dim[] = { 0, 4, 6 };
	struct dlb_graph g;
	int products = 0;

	make(&g, rows, 2 * ROWS_BLOCK, dim, 3, NULL);
	for (int i = 0; i < g.n_ops; i++) {
		if (g.op[i].phase != DLB_FORWARD || strcmp(dlb_op_work(g.op[i].type), "dense"))
			continue;
		const struct dlb_desc d = dlb_tensor_desc(&g.tensor[g.op[i].out[0]], 5);
		assert(IS(dlb_desc_count(&d), ==, 5 * d.dim[d.n_dims - 1]));
		products++;
	}
	assert(IS(products, ==, 3));
	dlb_graph_release(&g);
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
	if (kind == GELU_ERF_HALF_SUM)
		return OP("Mul", x, OP("Mul", sum, half));
	return OP("Mul", OP("Mul", other, sum), half);
}

/* -- Linear -- */

enum {
	LIN_T,
	LIN_T_BIAS_FIRST,
	LIN_PLAIN,
	LIN_NO_BIAS,
	LIN_TWO_DIMS,
	LIN_GOOD,
	LIN_ROW_BIAS = LIN_GOOD,
	LIN_MATRIX_BIAS,
	LIN_OUTPUT,
	LIN_KINDS
};

static int linear(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	const bool plain = kind == LIN_PLAIN || kind >= LIN_GOOD;
	if (kind == LIN_TWO_DIMS)
		x = with_int(g, "Flatten", x, -1, "axis", 1);
	const int k = kind == LIN_TWO_DIMS ? 24 : 6;
	const int w = plain ? W("w", k, 5) : INTS("Transpose", W("w", 5, k), "perm", 1, 0);
	const int y = OP("MatMul", x, w);
	if (kind == LIN_OUTPUT)
		output(g, y);
	if (kind == LIN_NO_BIAS)
		return OP("Tanh", y);
	const int b = kind == LIN_ROW_BIAS ? W("b", 1) : kind == LIN_MATRIX_BIAS ? W("b", 4, 5) : W("b", 5);
	return kind == LIN_T_BIAS_FIRST ? OP("Add", b, y) : OP("Add", y, b);
}

/* -- products -- */

enum {
	HEADS,
	HEADS_SCALED,
	HEADS_DIV,
	HEADS_BERT,
	HEADS_READ_TWICE,
	HEADS_GOOD,
	HEADS_PLAIN = HEADS_GOOD,
	HEADS_LAST,
	HEADS_BROADCAST,
	HEADS_KINDS
};

/* Attention of two heads over x (N, 4, 6). */
static int heads(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	int64_t four[4] = { 0, 4, 2, 3 };
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { 4 } };
	const int shape = dlb_graph_add_constant(g, "shape", &d, four, NULL);
	const int q4 = OP("Reshape", OP("Mul", x, W("q", 6)), shape),
		  k4 = OP("Reshape", OP("Mul", x, W("k", 6)), shape);
	const int v4 = OP("Reshape", OP("Mul", x, W("v", 6)), shape);
	if (kind == HEADS_PLAIN)		/* no Transpose to fuse */
		return OP("Tanh", OP("MatMul", OP("MatMul", OP("Tanh", x), W("w", 6, 4)), OP("Tanh", x)));
	if (kind == HEADS_LAST)			/* the fastest dimension becomes a batch */
		return OP("Tanh", OP("MatMul", INTS("Transpose", q4, "perm", 0, 3, 1, 2),
				     INTS("Transpose", v4, "perm", 0, 3, 2, 1)));
	if (kind == HEADS_BROADCAST)
		return OP("Tanh",
			  OP("MatMul", INTS("Transpose", q4, "perm", 0, 2, 1, 3),
			     OP("Tanh", INTS("Transpose", W("one", 1, 2, 5, 3), "perm", 0, 1, 3, 2))));
	if (kind == HEADS_BERT) {		/* batches second, the query scaled, the key transposed */
		const int q = OP("Div", INTS("Transpose", OP("Mul", x, W("q3", 6)), "perm", 1, 0, 2), C(2.5));
		const int k = INTS("Transpose", OP("Mul", x, W("k3", 6)), "perm", 1, 2, 0);
		return INTS("Transpose", OP("MatMul", q, k), "perm", 1, 0, 2);
	}
	const int q = INTS("Transpose", q4, "perm", 0, 2, 1, 3),
		  k = INTS("Transpose", k4, "perm", 0, 2, 3, 1);
	const int v = INTS("Transpose", v4, "perm", 0, 2, 1, 3);
	int s = OP("MatMul", q, k);
	if (kind == HEADS_SCALED)
		s = OP("Mul", C(0.5), s);
	if (kind == HEADS_DIV)
		s = OP("Div", s, C(4));
	s = with_int(g, "Softmax", s, -1, "axis", -1);
	int y = INTS("Transpose", OP("MatMul", s, v), "perm", 0, 2, 1, 3);
	if (kind == HEADS_READ_TWICE)
		y = OP("Add", y, INTS("Transpose", OP("Tanh", q), "perm", 0, 2, 1, 3));
	return y;
}

/* -- attention -- */

enum {
	ATT_ROWS,
	ATT_HEADS,
	ATT_ROWS_FIRST,
	ATT_CAUSAL,
	ATT_MASK,
	ATT_BIAS,
	ATT_GROUPED,
	ATT_GROUPED_MASK,
	ATT_GUARDED,
	ATT_SHORT,
	ATT_CHOSEN,
	ATT_KEPT,
	ATT_GOOD,
	ATT_READ = ATT_GOOD,
	ATT_AXIS,
	ATT_MASK_ROW,
	ATT_FEW,
	ATT_FEW_CAUSAL,
	ATT_CHOSEN_ZERO,
	ATT_KEPT_LATER,
	ATT_KINDS
};
enum { KEYS = 192, CAUSAL_KEYS = 128 };

static int64_t att_keys(int kind)
{
	return kind == ATT_SHORT      ? CAUSAL_KEYS :
	       kind == ATT_FEW_CAUSAL ? CAUSAL_KEYS - 1 :
	       kind == ATT_FEW        ? KEYS - 1 :
					KEYS;
}

/* 0 up to the row's own position, -inf after it; or random numbers. */
static int causal(struct dlb_graph *g, int64_t n, bool lowest)
{
	const int t = constant(g, "mask", (int64_t[]){ 1, 1, n, n }, 4, false);
	double *v = (double *)g->tensor[t].data;

	for (int64_t i = 0; i < n * n; i++)
		v[i] = i % n <= i / n ? 0 : lowest ? -3.4028234663852886e38 : -INFINITY;
	return t;
}

/* Where, by a condition that is true after the row's own position. */
static int chosen(struct dlb_graph *g, int scores, int kind)
{
	const int later = with_int(g, "Cast", causal(g, KEYS, false), -1, "to", 9);

	return kind == ATT_CHOSEN      ? OP("Where", later, C(-INFINITY), scores) :
	       kind == ATT_KEPT        ? OP("Where", OP("Not", later), scores, C(-1e38)) :
	       kind == ATT_CHOSEN_ZERO ? OP("Where", later, C(0), scores) :
					 OP("Where", later, scores, C(-1e38));
}

/* (N, keys, heads 3) as heads; each head of K serves `times` heads of Q. */
static int by_heads(struct dlb_graph *g, int x, const char *name, int heads, int times)
{
	int y = INTS("Transpose", RESHAPE(OP("MatMul", x, W(name, 6, heads * 3)), 1, 0, KEYS, heads, 3),
		     "perm", 0, 2, 1, 3);

	if (times > 1) {
		y = RESHAPE(y, 1, 0, heads, 1, KEYS, 3);
		y = OP("Expand", y, SHAPE(1, 0, heads, times, KEYS, 3));
		y = RESHAPE(y, 1, 0, heads * times, KEYS, 3);
	}
	return y;
}

static int attention(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	const int64_t keys = g->tensor[x].dim[1].add;
	const bool grouped = kind == ATT_GROUPED || kind == ATT_GROUPED_MASK;

	int q, k, v;
	if (kind == ATT_ROWS_FIRST) {
		const int turned = INTS("Transpose", x, "perm", 1, 0, 2);
		q = INTS("Transpose", RESHAPE(OP("Mul", turned, W("q", 6)), 1, KEYS, 0, 2, 3), "perm", 1, 2,
			 0, 3);
		k = INTS("Transpose", RESHAPE(OP("Mul", turned, W("k", 6)), 1, KEYS, 0, 2, 3), "perm", 1, 2,
			 3, 0);
		v = INTS("Transpose", RESHAPE(OP("Mul", turned, W("v", 6)), 1, KEYS, 0, 2, 3), "perm", 1, 2,
			 0, 3);
	} else if (grouped || kind == ATT_HEADS) {
		q = OP("Tanh", by_heads(g, x, "q", 4, 1));
		k = grouped ? by_heads(g, x, "k", 2, 2) : OP("Tanh", by_heads(g, x, "k", 4, 1));
		v = grouped ? by_heads(g, x, "v", 2, 2) : OP("Tanh", by_heads(g, x, "v", 4, 1));
		k = INTS("Transpose", k, "perm", 0, 1, 3, 2);
	} else {
		q = INTS("Transpose", RESHAPE(OP("Mul", x, W("q", 6)), 1, 0, keys, 2, 3), "perm", 0, 2, 1, 3);
		k = INTS("Transpose", RESHAPE(OP("Mul", x, W("k", 6)), 1, 0, keys, 2, 3), "perm", 0, 2, 3, 1);
		v = INTS("Transpose", RESHAPE(OP("Mul", x, W("v", 6)), 1, 0, keys, 2, 3), "perm", 0, 2, 1, 3);
	}
	int s = OP("MatMul", OP("Mul", q, C(.5)), k);
	if (kind == ATT_CAUSAL || kind == ATT_GROUPED || kind == ATT_SHORT || kind == ATT_FEW_CAUSAL)
		s = OP("Add", s, causal(g, keys, kind == ATT_GROUPED));
	if (kind == ATT_MASK || kind == ATT_GROUPED_MASK)
		s = OP("Add", constant(g, "scores", (int64_t[]){ KEYS, KEYS }, 2, false), s);
	if (kind == ATT_BIAS || kind == ATT_GUARDED)
		s = OP("Add", s, W("bias", 2, KEYS, KEYS));
	if (kind == ATT_CHOSEN || kind == ATT_KEPT || kind == ATT_CHOSEN_ZERO || kind == ATT_KEPT_LATER)
		s = chosen(g, s, kind);
	if (kind == ATT_MASK_ROW)		/* one value for all keys */
		s = OP("Add", s, W("bias", 2, KEYS, 1));
	s = with_int(g, "Softmax", s, -1, "axis", kind == ATT_AXIS ? 2 : -1);
	if (kind == ATT_GUARDED)
		s = OP("Where", OP("IsNaN", s), C(0), s);
	const int y = INTS("Transpose", OP("MatMul", s, v), "perm", 0, 2, 1, 3);
	if (kind == ATT_READ)
		output(g, s);
	return kind == ATT_ROWS_FIRST ? INTS("Transpose", y, "perm", 1, 0, 2, 3) : y;
}

/* Heads of K and V that serve several of Q are read where they lie: of four Transposes, that of Q before Tanh
 * is left. */
static void grouped_heads_in_place(void)
{
	struct dlb_graph g;
	int n = 0;

	make(&g, attention, 2 * ATT_GROUPED + 1, (const int64_t[]){ 0, att_keys(ATT_GROUPED), 6 }, 3, NULL);
	for (int i = 0; i < g.n_ops; i++)
		n += g.op[i].phase == DLB_FORWARD && !strcmp(g.op[i].type, "Transpose");
	assert(IS(n, ==, 1));
	dlb_graph_release(&g);
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

/* -- the rest -- */

/* A mask computed by a comparison from a float initializer, as in GPT's exports, is folded. */
static void masks_fold(void)
{
	struct dlb_graph graph, *g = &graph;
	struct dlb_error err = { .what = "" };
	const int x = start(g, 17, (int64_t[]){ 0, 4, 4 }, 3);
	const int mask = OP("Equal", W("buffer", 4, 4), C(0)),
		  y = OP("Where", mask, C(-1), OP("Mul", x, W("w", 4)));
	output(g, y);
	if (dlb_graph_fold(g, 3, &be, &err))
		test_die(&err);
	assert(IS(g->n_ops, ==, 2) && IS(applied(g, "constant-folding"), ==, 1) &&
	       IS(applied(g, "dead-vertices"), ==, 0));
	dlb_graph_release(g);
}

/* Folding and removal of dead vertices switched off: matrices of constants and dead vertices stay, shapes are
 * still folded. */
/* Its gradients are NaN: test only the match. */
static void shut_mask_keeps_guard(void)
{
	struct dlb_graph g;

	make(&g, guarded, 2 * GUARD_SHUT, (const int64_t[]){ 0, 4, 6 }, 3, NULL);
	assert(IS(applied(&g, "softmax-guard"), ==, 0));
	dlb_graph_release(&g);
}

static int switched(struct dlb_graph *g, int x, int variant)
{
	const int dead = OP("Exp", x),
		  half = OP("Mul", constant(g, "a", (int64_t[]){ 4, 6 }, 2, false), C(0.5));
	(void)variant;
	(void)dead;
	return OP("Mul", OP("Add", x, half), W("w", 6));
}

static int count_ops(const struct dlb_graph *g, const char *type)
{
	int n = 0;
	for (int i = 0; i < g->n_ops; i++)
		n += g->op[i].phase == DLB_FORWARD && !strcmp(g->op[i].type, type);
	return n;
}

static void switches(void)
{
	static const int64_t dim[] = { 0, 4, 6 };
	struct dlb_graph on, fold, dead;

	make(&on, switched, 0, dim, 3, NULL);
	make(&fold, switched, 0, dim, 3, "constant-folding");
	make(&dead, switched, 0, dim, 3, "dead-vertices");
	assert(IS(count_ops(&on, "Mul"), ==, 1) && !count_ops(&on, "Exp"));
	assert(IS(applied(&on, "constant-folding"), ==, 1) && IS(applied(&on, "dead-vertices"), ==, 1));
	assert(IS(count_ops(&fold, "Mul"), ==, 2) && IS(applied(&fold, "constant-folding"), ==, -1));
	assert(IS(count_ops(&dead, "Mul"), ==, 1) && IS(count_ops(&dead, "Exp"), ==, 1) &&
	       IS(applied(&dead, "dead-vertices"), ==, -1));
	compare("constant-folding off", &fold, &on, 3);
	compare("dead-vertices off", &dead, &on, 3);
	dlb_graph_release(&on);
	dlb_graph_release(&fold);
	dlb_graph_release(&dead);
}

static void names(void)
{
	struct dlb_graph g = { .n_ops = 0 };
	struct dlb_error err = { .what = "" };

	for (int i = 0; dlb_rewrites[i].name; i++) {
		assert(!dlb_graph_no_rewrite(&g, dlb_rewrites[i].name, &err) && !dlb_rewrite_is_on(&g, i));
		assert(*dlb_rewrites[i].summary && IS(i, <, DLB_MAX_REWRITES));
	}
	assert(IS(dlb_graph_no_rewrite(&g, "layernorm", &err), ==, -1) && HAS(err.hint, "layer-norm"));
}

static int add_named(struct dlb_graph *g, const char *base)
{
	const int t = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, base), DLB_T_ACTIVATION);

	return dlb_graph_add_op(g, DLB_FORWARD,
				&(struct dlb_op_spec){ .name = dlb_graph_op_name(g, base), .type = "Identity",
						       .out = &t, .n_out = 1 });
}

/* New names differ from all names in use, but may equal former names of ops and names of removed ops. */
static void unique_names(void)
{
	struct dlb_graph g, copy;

	dlb_graph_init(&g);
	for (int i = 0; i < 3; i++)
		assert(IS(add_named(&g, "a"), ==, i));
	assert(SAME(g.op[0].name, "a") && SAME(g.op[1].name, "a.2") && SAME(g.op[2].name, "a.3"));
	assert(SAME(g.tensor[2].name, "a.3"));
	dlb_graph_rename_op(&g, 1, dlb_graph_op_name(&g, "b"));
	assert(SAME(dlb_graph_op_name(&g, "a"), "a.2") && SAME(dlb_graph_op_name(&g, "b"), "b.2"));
	assert(SAME(dlb_graph_tensor_name(&g, "a"), "a.4") && SAME(dlb_graph_tensor_name(&g, "b"), "b"));
	/* two swap names; the second name was not counted before */
	add_named(&g, "c");
	const char *was = g.op[0].name;
	dlb_graph_rename_op(&g, 0, g.op[3].name);
	dlb_graph_rename_op(&g, 3, was);
	assert(SAME(dlb_graph_op_name(&g, "a"), "a.2") && SAME(dlb_graph_op_name(&g, "c"), "c.2"));
	dlb_graph_copy(&g, &copy);
	add_named(&copy, "d");
	assert(SAME(dlb_graph_op_name(&copy, "d"), "d.2") && SAME(dlb_graph_op_name(&g, "d"), "d"));
	dlb_graph_release(&copy);
	dlb_graph_reorder(&g, (const int[]){ 3, 1 }, 2);	/* "a" and "b" stay */
	assert(SAME(dlb_graph_op_name(&g, "c"), "c") && SAME(dlb_graph_op_name(&g, "a"), "a.2"));
	assert(SAME(dlb_graph_op_name(&g, "a.3"), "a.3") && SAME(dlb_graph_op_name(&g, "b"), "b.2"));
	dlb_graph_release(&g);
}

int main(void)
{
	static const int64_t dim[] = { 0, 4, 6 };

	test_backend(&be);
	names();
	unique_names();
	masks_fold();
	switches();
	for (int kind = 0; kind < 2 * LN_KINDS; kind++)		/* even: opset 13, odd: 17 */
		check("layer-norm", layer_norm, kind, dim, 3, kind / 2 < LN_GOOD);
	for (int kind = 0; kind < 2 * GELU_KINDS; kind++)
		check("gelu", gelu, kind, dim, 3, kind / 2 < GELU_GOOD);
	for (int kind = 0; kind < 2 * LIN_KINDS; kind++)
		check("linear", linear, kind, dim, 3, 1);	/* at least the product with a weight */
	for (int kind = 0; kind < 2 * RMS_KINDS; kind++)
		check("rms-norm", rms_norm, kind, dim, 3, kind / 2 < RMS_GOOD);
	for (int kind = 0; kind < 2 * GN_KINDS; kind++)
		check("group-norm", group_norm, kind, dim, 3, kind / 2 < GN_GOOD);
	for (int kind = 0; kind < 2 * SWISH_KINDS; kind++) {
		check("swish", swish, kind, dim, 3, kind / 2 < SWISH_GOOD);
		check("swiglu", swish, kind, dim, 3, kind / 2 == SWISH_GATED || kind / 2 == SWISH_GATED_LAST);
	}
	for (int kind = 0; kind < 2 * ROPE_KINDS; kind++)	/* the op, and the Transpose before it */
		check("rotary", rope, kind, dim, 3, kind / 2 < ROPE_GOOD ? 2 : 0);
	for (int kind = 0; kind < 2 * GUARD_KINDS; kind++)
		if (kind / 2 != GUARD_SHUT)
			check("softmax-guard", guarded, kind, dim, 3, kind / 2 < GUARD_OPEN);
	shut_mask_keeps_guard();
	for (int kind = 0; kind < 2 * VIEWS_KINDS; kind++)
		check("transposes", views, kind, dim, 3, kind / 2 < VIEWS_GOOD);
	for (int kind = 0; kind < 2 * UNBIND_KINDS; kind++)
		check("unbind", unbind, kind, dim, 3, kind / 2 < UNBIND_GOOD);
	rows_are_few();
	for (int kind = 0; kind < 2 * ROWS_KINDS; kind++)
		check("selected-rows", rows, kind, dim, 3,
		      kind / 2 >= ROWS_GOOD ? 0 :
		      kind / 2 == ROWS_TWO  ? 2 :
					      1);
	for (int kind = 0; kind < 2 * HEADS_KINDS; kind++)
		check("products", heads, kind, dim, 3,
		      kind / 2 >= HEADS_GOOD ? 0 :
		      kind / 2 == HEADS_BERT ? 1 :
					       2);
	for (int kind = 0; kind < 2 * ATT_KINDS; kind++)
		check("attention", attention, kind, (const int64_t[]){ 0, att_keys(kind / 2), 6 }, 3,
		      kind / 2 < ATT_GOOD);
	grouped_heads_in_place();
	for (int kind = 0; kind < 8; kind++)
		check("add-relu", residual, kind, dim, 3, kind / 2 < 2);
	for (int kind = 0; kind < 8; kind++)
		check("norm-relu", normalized, kind, dim, 3, kind / 2 < 2);
	for (int kind = 0; kind < 8; kind++)
		check("conv-relu", convolution, kind, dim, 3, kind / 2 < 2);
	be.ops->close(&be);
	printf("%d numbers compared\n", n_checked);
	return 0;
}
