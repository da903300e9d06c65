/* Graphs to be split: one operator, in one of its variants, between products with weights, so that its
 * operands have features, rows and samples to be cut. Its type, attributes and shapes are those that a rule
 * of lib/graph/split_*.c tells apart. */
#ifndef DLB_TESTS_SPLIT_CASES_H
#define DLB_TESTS_SPLIT_CASES_H
#include <ctype.h>
#include "graph/graph.h"
#include "graph/passes.h"
#include "by_hand.h"
#include "run_graph.h"

static struct dlb_backend be;
static const uint64_t seed = 20261201;
static uint64_t drawn;

/* "axis=1 perm=1,0,2 mode=linear alpha=0.5 one=3,": an int, ints, a string, a real, one of ints. */
static inline int read_attrs(struct dlb_graph *g, const char *s, struct dlb_attr *a)
{
	int n = 0;

	while (*s) {
		const size_t name = strcspn(s, "="), len = strcspn(s + name + 1, " ");
		const char *v = s + name + 1;
		a[n].name = dlb_arena_printf(&g->arena, "%.*s", (int)name, s);
		if (memchr(v, ',', len)) {
			int64_t *ints = dlb_arena_array(&g->arena, 16, sizeof *ints);
			a[n].type = DLB_ATTR_INTS;
			for (const char *p = v; p < v + len; p += *p == ',')
				ints[a[n].n++] = strtoll(p, (char **)&p, 10);
			a[n].ints = ints;
		} else if (memchr(v, '.', len)) {
			a[n].type = DLB_ATTR_REAL;
			a[n].f = strtod(v, NULL);
		} else if (isdigit((unsigned char)*v) || *v == '-') {
			a[n].type = DLB_ATTR_INT;
			a[n].i = strtoll(v, NULL, 10);
		} else {
			a[n].type = DLB_ATTR_STR;
			a[n].s = dlb_arena_printf(&g->arena, "%.*s", (int)len, v);
		}
		n++;
		s = v + len + (v[len] == ' ');
	}
	return n;
}

/* Adds an op with n_out outputs, of which the first is returned and the others follow; operand -1: none. */
static inline int add_op(struct dlb_graph *g, const char *type, const char *attrs, int n_out, const int *in,
			 int n_in)
{
	struct dlb_attr a[8] = { { .name = NULL } };
	int out[4], n = read_attrs(g, attrs, a);
	char name[40];

	for (int k = 0; k < n_out; k++) {
		snprintf(name, sizeof name, "%s%d%c", type, g->n_ops, k ? 'a' + k : 0);
		out[k] = dlb_graph_add_tensor(g, dlb_arena_strdup(&g->arena, name), DLB_T_ACTIVATION);
	}
	snprintf(name, sizeof name, "%s%d", type, g->n_ops);
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = name,
						.type = type,
						.in = in,
						.n_in = n_in,
						.out = out,
						.n_out = n_out,
						.attr = a,
						.n_attr = n });
	return out[0];
}
#define LIST(...) (const int[]){ __VA_ARGS__ }, (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int))
#define A(type, attrs, ...) add_op(g, type, attrs, 1, LIST(__VA_ARGS__))
#define OP(type, ...) A(type, "", __VA_ARGS__)

/* A weight with a new name that begins with `name`. */
static inline int weight(struct dlb_graph *g, const char *name, const int64_t *dim, int n)
{
	return drawn_constant(g, dlb_arena_printf(&g->arena, "%s%d", name, g->n_tensors), dim, n, true, seed,
			      &drawn);
}
#define DIMS(...) \
	(const int64_t[]){ __VA_ARGS__ }, (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))
#define W(name, ...) weight(g, name, DIMS(__VA_ARGS__))

static inline int ints(struct dlb_graph *g, const int64_t *v, int n) { return whole_numbers(g, v, n); }
#define I(...) ints(g, DIMS(__VA_ARGS__))

static inline int real(struct dlb_graph *g, double v) { return add_constant(g, DLB_F64, NULL, 0, &v); }

/* A second value of the same shape as x (N, 4, 12). */
static inline int other(struct dlb_graph *g) { return OP("MatMul", g->input[0], W("other", 6, 12)); }
static int64_t classes = 5; /* of an output */

/* y (N, .., width) before the loss */
static inline int last(struct dlb_graph *g, int y, int64_t width)
{
	return OP("MatMul", y, W("last", width, classes));
}
#define ROWS12(y) last(g, y, 12)
/* y (N, ..), of `count` elements per sample */
#define FLAT(y, count) last(g, A("Flatten", "axis=1", y), count)

/* All outputs of a Split, each behind a function that differs, put together along axis 1. */
static inline int split(struct dlb_graph *g, const char *attrs, int n, const int *in, int n_in, int64_t count)
{
	static const char *const f[] = { "Tanh", "Sigmoid", "Softplus" };
	const int first = add_op(g, "Split", attrs, n, in, n_in);
	int y[3];

	for (int k = 0; k < n; k++)
		y[k] = A("Flatten", "axis=1", OP(f[k], first + k));
	return last(g, add_op(g, "Concat", "axis=1", 1, y, n), count);
}

static inline int normalized(struct dlb_graph *g, int x, int channels, const char *attrs, bool twice)
{
	const int mean = W("mean", channels), var = W("var", channels), scale = W("scale", channels),
		  shift = W("shift", channels);
	double *v = (double *)g->tensor[var].data;

	for (int i = 0; i < channels; i++)
		v[i] = 1 + i;
	const int n_out = strstr(attrs, "training_mode=1") ? 3 : 1;
	const int y = OP("Relu",
			 add_op(g, "BatchNormalization", attrs, n_out, LIST(x, scale, shift, mean, var)));
	return !twice ? y : add_op(g, "BatchNormalization", attrs, n_out, LIST(y, scale, shift, mean, var));
}

/* x (N, 4, 12) as 3 heads of 4: queries, keys and values, with these attributes and mask (-1: none). */
static inline int attend(struct dlb_graph *g, int x, const char *attrs, int mask, int64_t keys)
{
	const int k = OP("MatMul", x, W("k", 12, keys)), v = OP("MatMul", x, W("v", 12, keys));

	const int in[4] = { OP("MatMul", x, W("q", 12, 12)), k, v, mask };

	return ROWS12(add_op(g, "Attention", attrs, 1, in, mask < 0 ? 3 : 4));
}

/* x (N, 4, 12) */
#define SEQUENCES(X) \
	X("bias", 17, ROWS12(OP("Add", x, W("b", 12)))) \
	X("bias before", 17, ROWS12(OP("Sub", W("b", 12), x))) \
	X("row bias", 17, ROWS12(OP("Add", x, W("b", 4, 1)))) \
	X("row bias, whole", 17, ROWS12(OP("Mul", x, W("b", 1, 4, 12)))) \
	X("one factor", 17, ROWS12(OP("Mul", x, W("b", 1)))) \
	X("broadcast to more dimensions", 17, \
	  FLAT(A("Transpose", "perm=1,0,2,3", OP("Add", x, W("b", 2, 1, 1, 1))), 96)) \
	X("two operands", 17, ROWS12(OP("Mul", x, OP("Tanh", other(g))))) \
	X("three operands", 17, ROWS12(OP("Sum", x, W("b", 12), OP("Tanh", other(g))))) \
	X("maximum", 17, ROWS12(OP("Max", x, W("b", 12)))) \
	X("minimum", 17, ROWS12(OP("Min", other(g), x))) \
	X("quotient", 17, ROWS12(OP("Div", x, OP("Exp", other(g))))) \
	X("power", 17, ROWS12(OP("Pow", OP("Exp", x), W("b", 12)))) \
	X("chosen", 17, ROWS12(OP("Where", OP("Greater", x, W("b", 12)), x, other(g)))) \
	X("clipped", 17, ROWS12(OP("Clip", x, real(g, -.4), real(g, .5)))) \
	X("residual", 17, ROWS12(OP("Relu", OP("Add", x, other(g))))) \
	X("gated", 17, ROWS12(OP("Mul", OP("Mul", x, OP("Sigmoid", x)), other(g)))) \
	X("dropout", 17, ROWS12(OP("Dropout", x, real(g, .3), truth(g)))) \
	X("dropout, samples inside", 17, \
	  ROWS12(A("Transpose", "perm=1,0,2", \
		   OP("Dropout", A("Transpose", "perm=1,0,2", x), real(g, .3), truth(g))))) \
	X("layer norm", 17, ROWS12(A("LayerNormalization", "axis=-1", x, W("s", 12), W("b", 12)))) \
	X("layer norm of rows", 17, ROWS12(A("LayerNormalization", "axis=1", x, W("s", 4, 12)))) \
	X("layer norm, default axis", 17, ROWS12(OP("LayerNormalization", x, W("s", 12)))) \
	X("layer norm of heads", 17, \
	  FLAT(OP("LayerNormalization", OP("Reshape", x, I(0, 4, 2, 6)), W("s", 6)), 48)) \
	X("rms norm", 23, ROWS12(A("RMSNormalization", "axis=-1", x, W("s", 12)))) \
	X("softmax", 17, ROWS12(A("Softmax", "axis=-1", x))) \
	X("softmax over rows", 17, ROWS12(A("Softmax", "axis=1", x))) \
	X("softmax, default axis", 17, ROWS12(OP("LogSoftmax", x))) \
	X("old softmax", 11, ROWS12(OP("Softmax", x))) \
	X("old softmax of columns", 11, ROWS12(A("LogSoftmax", "axis=2", x))) \
	X("softmax of heads", 13, FLAT(A("Softmax", "axis=2", OP("Reshape", x, I(0, 4, 2, 6))), 48)) \
	X("old softmax of heads", 11, FLAT(A("Softmax", "axis=2", OP("Reshape", x, I(0, 4, 2, 6))), 48)) \
	X("transposed", 17, last(g, A("Transpose", "perm=0,2,1", x), 4)) \
	X("samples inside", 17, ROWS12(A("Transpose", "perm=1,0,2", A("Transpose", "perm=1,0,2", x)))) \
	X("all turned", 17, last(g, A("Transpose", "perm=2,1,0", OP("Tanh", OP("Transpose", x))), 12)) \
	X("product of heads", 17, \
	  FLAT(OP("MatMul", heads(g, x), A("Transpose", "perm=0,1,3,2", heads(g, other(g)))), 48)) \
	X("product of heads with a weight", 17, FLAT(OP("MatMul", heads(g, x), W("h", 3, 4, 5)), 60)) \
	X("product of heads with one weight", 17, FLAT(OP("MatMul", heads(g, x), W("h", 1, 4, 5)), 60)) \
	X("weight before", 17, ROWS12(OP("MatMul", W("h", 6, 4), x))) \
	X("weights of rows before", 17, FLAT(OP("MatMul", W("h", 3, 2, 4), heads(g, x)), 24)) \
	X("gemm", 17, ROWS12(OP("Gemm", merged(g, x), W("h", 12, 12), W("b", 12)))) \
	X("gemm, transposed", 17, \
	  ROWS12(A("Gemm", "transB=1 alpha=0.5 beta=2.0", merged(g, x), W("h", 12, 12), W("b", 1, 12)))) \
	X("gemm, one bias", 17, ROWS12(A("Gemm", "transB=1", merged(g, x), W("h", 12, 12), W("b", 1)))) \
	X("gemm, both transposed", 17, \
	  last(g, \
	       OP("Transpose", A("Gemm", "transA=1 transB=1", W("h", 12, 8), merged(g, x), W("b", 8, 1))), \
	       8)) \
	X("gemm, rows of bias", 17, \
	  last(g, OP("Transpose", A("Gemm", "transB=1", W("h", 8, 12), merged(g, x), W("b", 8, 1))), 8)) \
	X("taken rows", 17, ROWS12(A("Gather", "axis=1", x, I(2, 0, 3, 3)))) \
	X("taken columns", 17, last(g, A("Gather", "axis=-1", x, I(5, 0, 11)), 3)) \
	X("taken from a table", 17, ROWS12(OP("Mul", x, OP("Gather", W("table", 9, 12), I(2, 8, 0, 1))))) \
	X("slice of columns", 17, last(g, OP("Slice", x, I(6), I(12), I(2)), 6)) \
	X("slice of first columns", 17, last(g, OP("Slice", x, I(0), I(6), I(-1)), 6)) \
	X("slice off the end", 17, last(g, OP("Slice", x, I(-6), I(100), I(-1)), 6)) \
	X("slice within", 17, last(g, OP("Slice", x, I(2), I(-4), I(2), I(1)), 6)) \
	X("slice of every second", 17, last(g, OP("Slice", x, I(0), I(12), I(2), I(2)), 6)) \
	X("slice of all axes", 17, last(g, OP("Slice", x, I(0, 1, 4), I(1000, 3, 12)), 8)) \
	X("slice of two axes", 17, last(g, OP("Slice", x, I(1, 6), I(3, 12), I(1, 2), I(1, 1)), 6)) \
	X("old slice", 9, last(g, A("Slice", "starts=6, ends=12, axes=2,", x), 6)) \
	X("old slice of rows", 9, last(g, A("Slice", "starts=1,0 ends=3,6 axes=1,2", x), 6)) \
	X("slice of a slice", 17, last(g, OP("Slice", wide(g, x), I(24), I(48), I(-1)), 24)) \
	X("two parts", 17, split(g, "axis=2", 2, LIST(x, I(6, 6)), 48)) \
	X("three parts of columns", 13, split(g, "axis=-1", 3, LIST(x), 48)) \
	X("unequal parts", 17, split(g, "axis=2", 2, LIST(x, I(4, 8)), 48)) \
	X("parts of rows", 17, split(g, "axis=1", 2, LIST(x, I(1, 3)), 48)) \
	X("old parts", 11, split(g, "axis=2 split=4,8", 2, LIST(x), 48)) \
	X("numbered parts", 18, split(g, "axis=2 num_outputs=3", 3, LIST(x), 48)) \
	X("parts of whole rows", 17, split(g, "axis=2", 3, LIST(wide(g, x), I(12, 12, 24)), 192)) \
	X("one after the other", 17, last(g, A("Concat", "axis=2", x, other(g)), 24)) \
	X("joined rows", 17, ROWS12(A("Concat", "axis=1", x, other(g), OP("Tanh", x)))) \
	X("joined, unequal", 17, \
	  last(g, A("Concat", "axis=-1", x, OP("Tanh", OP("MatMul", g->input[0], W("e", 6, 6)))), 18)) \
	X("joined and added", 17, last(g, OP("Add", A("Concat", "axis=2", x, other(g)), W("b", 24)), 24)) \
	X("heads", 17, FLAT(OP("Tanh", OP("Reshape", x, I(0, 4, 2, 6))), 48)) \
	X("three heads", 17, FLAT(OP("Tanh", OP("Reshape", x, I(0, 4, 3, 4))), 48)) \
	X("flattened", 17, last(g, OP("Tanh", OP("Reshape", x, I(0, 48))), 48)) \
	X("rows as samples", 17, ROWS12(OP("Tanh", OP("Reshape", x, I(-1, 12))))) \
	X("rows of rows", 17, \
	  ROWS12(OP("Reshape", OP("Tanh", OP("Reshape", x, I(0, 2, 2, 12))), I(0, 4, 12)))) \
	X("columns as rows", 17, last(g, OP("Tanh", OP("Reshape", x, I(0, 24, 2))), 2)) \
	X("flattened at 2", 17, ROWS12(OP("Tanh", A("Flatten", "axis=2", x)))) \
	X("more dimensions", 17, FLAT(OP("Tanh", OP("Unsqueeze", x, I(1, 4))), 48)) \
	X("more dimensions, old", 11, FLAT(OP("Tanh", A("Unsqueeze", "axes=2,", x)), 48)) \
	X("fewer dimensions", 17, ROWS12(OP("Squeeze", OP("Tanh", OP("Unsqueeze", x, I(1))), I(1)))) \
	X("fewer dimensions, old", 11, \
	  ROWS12(A("Squeeze", "axes=1,", OP("Tanh", A("Unsqueeze", "axes=1,", x))))) \
	X("fewer dimensions, all", 17, ROWS12(OP("Squeeze", OP("Tanh", OP("Unsqueeze", x, I(1)))))) \
	X("mean of rows", 17, ROWS12(A("ReduceMean", "axes=1, keepdims=0", x))) \
	X("sum of columns", 17, last(g, OP("ReduceSum", x, I(2)), 1)) \
	X("maximum of rows", 17, ROWS12(A("ReduceMax", "axes=1,", x))) \
	X("slopes", 17, ROWS12(OP("PRelu", x, W("slope", 12)))) \
	X("rotated", 23, FLAT(OP("RotaryEmbedding", heads(g, x), table(g, "cosine"), table(g, "sine")), 48)) \
	X("attention", 23, attend(g, x, "q_num_heads=3 kv_num_heads=3", -1, 12)) \
	X("attention, grouped", 23, attend(g, x, "q_num_heads=6 kv_num_heads=2 is_causal=1", -1, 4)) \
	X("attention, one key head", 23, attend(g, x, "q_num_heads=3 kv_num_heads=1", -1, 4)) \
	X("attention, mask of heads", 23, \
	  attend(g, x, "q_num_heads=2 kv_num_heads=2", W("mask", 2, 4, 4), 12)) \
	X("attention, one mask", 23, attend(g, x, "q_num_heads=2 kv_num_heads=2", W("mask", 1, 4, 4), 12)) \
	X("attention, flat mask", 23, attend(g, x, "q_num_heads=4 kv_num_heads=4", W("mask", 4, 4), 12)) \
	X("attention of heads", 23, \
	  FLAT(OP("Attention", heads(g, x), heads(g, other(g)), heads(g, OP("Tanh", x))), 48)) \
	UNARY(X, "Relu") \
	UNARY(X, "LeakyRelu") \
	UNARY(X, "Elu") UNARY(X, "Selu") UNARY(X, "Celu") UNARY(X, "Sigmoid") UNARY(X, "HardSigmoid") \
		UNARY(X, "HardSwish") UNARY(X, "Softplus") UNARY(X, "Tanh") UNARY(X, "Erf") UNARY(X, "Exp") \
			UNARY(X, "Abs") UNARY(X, "Neg") UNARY(X, "Identity") \
				X("Gelu", 20, ROWS12(OP("Gelu", x))) X("Log", 17, \
								       ROWS12(OP("Log", OP("Exp", x)))) \
					X("Sqrt", 17, ROWS12(OP("Sqrt", OP("Exp", x)))) \
						X("Reciprocal", 17, ROWS12(OP("Reciprocal", OP("Exp", x)))) \
							X("Cast", 17, ROWS12(A("Cast", "to=11", x))) \
								X("Swish", 24, \
								  ROWS12(A("Swish", "alpha=0.5", x)))
#define UNARY(X, type) X(type, 17, ROWS12(OP(type, x)))

/* x (N, 4, 12), between its products and one of three heads, which is split by heads */
#define HEADS(X) \
	X("softmax before heads", 17, scores(g, A("Softmax", "axis=-1", heads(g, x)))) \
	X("softmax over heads", 17, scores(g, A("Softmax", "axis=1", heads(g, x)))) \
	X("old softmax of rows of heads", 11, scores(g, A("Softmax", "axis=2", heads(g, x)))) \
	X("old softmax over heads", 11, scores(g, A("Softmax", "axis=1", heads(g, x)))) \
	X("normalized heads", 17, scores(g, A("LayerNormalization", "axis=-1", heads(g, x), W("s", 4)))) \
	X("normalized over heads", 17, scores(g, A("LayerNormalization", "axis=1", heads(g, x), W("s", 4)))) \
	X("rotated heads", 23, \
	  scores(g, OP("RotaryEmbedding", heads(g, x), table(g, "cosine"), table(g, "sine")))) \
	X("heads and a factor each", 17, scores(g, OP("Mul", heads(g, x), W("f", 3, 1, 1)))) \
	X("heads and factors of all", 17, scores(g, OP("Mul", W("f", 1, 1, 4), heads(g, x)))) \
	X("heads and a table", 17, scores(g, OP("Add", heads(g, x), W("f", 1, 3, 4, 4)))) \
	X("dropped heads", 17, scores(g, OP("Dropout", heads(g, x), real(g, .3), truth(g)))) \
	X("rows of heads", 17, scores(g, A("Gather", "axis=2", heads(g, x), I(3, 0, 0, 1)))) \
	X("columns of heads", 17, scores(g, A("Gather", "axis=-1", heads(g, x), I(3, 0, 0, 1)))) \
	X("swapped heads", 17, scores(g, A("Gather", "axis=1", heads(g, x), I(2, 0, 1)))) \
	X("halves of heads", 17, \
	  scores(g, A("Concat", "axis=-1", OP("Slice", heads(g, x), I(2), I(4), I(3)), \
		      OP("Tanh", OP("Slice", heads(g, x), I(0), I(2), I(3)))))) \
	X("turned heads", 17, scores(g, A("Transpose", "perm=0,1,3,2", OP("Tanh", heads(g, x))))) \
	X("heads in more dimensions", 17, \
	  scores(g, OP("Squeeze", OP("Tanh", OP("Unsqueeze", heads(g, x), I(2))), I(2)))) \
	X("heads behind an axis", 17, \
	  scores(g, OP("Reshape", OP("Tanh", OP("Reshape", heads(g, x), I(0, 1, 3, 16))), I(0, 3, 4, 4)))) \
	X("slices of eight axes", 9, \
	  scores(g, eighths(g, OP("Reshape", heads(g, x), I(0, 3, 1, 1, 1, 2, 2, 4))))) \
	X("heads in one axis", 17, \
	  scores(g, OP("Reshape", OP("Tanh", OP("Reshape", heads(g, x), I(0, 48))), I(0, 3, 4, 4)))) \
	X("heads of all samples", 17, \
	  scores(g, OP("Reshape", OP("Tanh", OP("Reshape", heads(g, x), I(-1, 4, 4))), I(-1, 3, 4, 4)))) \
	X("heads by a product of rows", 17, scores(g, OP("MatMul", W("p", 4, 4), heads(g, x)))) \
	X("slices", 17, sliced(g, x, SLICE_PLAIN)) \
	X("slices, axes from behind", 17, sliced(g, x, SLICE_STEPS)) \
	X("slices of all axes", 17, sliced(g, x, SLICE_ALL)) \
	X("old slices", 9, sliced(g, x, SLICE_OLD)) \
	X("slices from behind", 17, sliced(g, x, SLICE_BEHIND)) \
	X("slices beside heads", 17, sliced(g, x, SLICE_BESIDE)) \
	X("slices of rows too", 17, sliced(g, x, SLICE_ROWS)) \
	X("parts", 17, parted(g, "axis=2", LIST(threefold(g, x), I(12, 12, 12)))) \
	X("parts, axis from behind", 13, parted(g, "axis=-1", LIST(threefold(g, x)))) \
	X("parts, old", 11, parted(g, "axis=2 split=12,12,12", LIST(threefold(g, x)))) \
	X("parts, numbered", 18, parted(g, "axis=2 num_outputs=3", LIST(threefold(g, x)))) \
	X("parts beside heads", 17, \
	  parted(g, "axis=2", LIST(OP("MatMul", x, W("w", 12, 40)), I(12, 12, 16)))) \
	X("joined heads", 17, \
	  scores(g, heads(g, OP("Slice", A("Concat", "axis=2", x, other(g)), I(12), I(24), I(2))))) \
	X("joined in parts", 17, \
	  scores(g, heads(g, OP("Slice", A("Concat", "axis=2", OP("MatMul", x, W("half", 12, 6)), other(g)), \
				I(6), I(18), I(2)))))

/* x (N, 12, 6, 6) */
#define MAPS(X) \
	X("convolution", 17, FLAT(OP("Conv", x, W("c", 8, 12, 3, 3), W("b", 8)), 128)) \
	X("convolution without bias", 17, FLAT(A("Conv", "strides=2,2", x, W("c", 6, 12, 2, 2)), 54)) \
	X("convolution and relu", 17, FLAT(OP("Relu", OP("Conv", x, W("c", 8, 12, 3, 3), W("b", 8))), 128)) \
	X("two groups", 17, FLAT(A("Conv", "group=2", x, W("c", 8, 6, 3, 3), W("b", 8)), 128)) \
	X("three groups", 17, FLAT(A("Conv", "group=3", x, W("c", 6, 4, 3, 3), W("b", 6)), 96)) \
	X("a group per channel", 17, FLAT(A("Conv", "group=12", x, W("c", 24, 1, 3, 3)), 384)) \
	X("batch norm", 17, FLAT(normalized(g, x, 12, "training_mode=1", false), 432)) \
	X("batch norm, given", 17, FLAT(normalized(g, x, 12, "epsilon=0.001", false), 432)) \
	X("batch norm, shared", 17, FLAT(normalized(g, x, 12, "training_mode=1", true), 432)) \
	X("maximum pool", 17, FLAT(A("MaxPool", "kernel_shape=2,2 strides=2,2", x), 108)) \
	X("average pool", 17, FLAT(A("AveragePool", "kernel_shape=3,3", x), 192)) \
	X("mean of channels", 17, FLAT(OP("GlobalAveragePool", x), 12)) \
	X("maximum of channels", 17, FLAT(OP("GlobalMaxPool", x), 12)) \
	X("neighbours", 17, FLAT(A("LRN", "size=3", x), 432)) \
	X("instances", 17, FLAT(OP("InstanceNormalization", x, W("s", 12), W("b", 12)), 432)) \
	X("groups", 21, FLAT(A("GroupNormalization", "num_groups=3", x, W("s", 12), W("b", 12)), 432)) \
	X("padded", 17, FLAT(OP("Pad", x, I(0, 0, 1, 0, 0, 0, 0, 1)), 588)) \
	X("larger", 17, FLAT(A("Resize", "mode=nearest", x, -1, doubled(g)), 1728)) \
	X("depth to space", 17, FLAT(A("DepthToSpace", "blocksize=2", x), 432)) \
	X("space to depth", 17, FLAT(A("SpaceToDepth", "blocksize=2", x), 432)) \
	X("channel dropout", 17, FLAT(OP("Dropout", x, real(g, .3), truth(g)), 432)) \
	X("shuffled channels", 17, \
	  FLAT(OP("Reshape", A("Transpose", "perm=0,2,1,3,4", OP("Reshape", x, I(0, 3, 4, 6, 6))), \
		  I(0, 12, 6, 6)), \
	       432)) \
	X("joined channels", 17, FLAT(A("Concat", "axis=1", x, OP("Sigmoid", x)), 864))

/* Scales of (N, channels, height, width). */
static inline int doubled(struct dlb_graph *g)
{
	static const float by[4] = { 1, 1, 2, 2 };
	return add_constant(g, DLB_F32, DIMS(4), by);
}

static inline int truth(struct dlb_graph *g)
{
	const bool yes = true;
	return add_constant(g, DLB_BOOL, NULL, 0, &yes);
}

/* x (N, 4, 12) as (N, 3, 4, 4): three heads of four columns. */
static inline int heads(struct dlb_graph *g, int x)
{
	return A("Transpose", "perm=0,2,1,3", OP("Reshape", x, I(0, 4, 3, 4)));
}

static inline int merged(struct dlb_graph *g, int x) { return OP("Reshape", x, I(-1, 12)); }
static inline int wide(struct dlb_graph *g, int x) { return OP("MatMul", x, W("wide", 12, 48)); }

/* The halves of y (N, 3, 1, 1, 1, 2, 2, 4), by slices of all of its axes. */
static inline int eighths(struct dlb_graph *g, int y)
{
	const int a = A("Slice", "starts=0,0,0,0,0,0,0,0 ends=1000,3,1,1,1,1,2,4", y),
		  b = A("Slice", "starts=0,0,0,0,0,1,0,0 ends=1000,3,1,1,1,2,2,4", y);

	return OP("Reshape", A("Concat", "axis=5", b, a), I(0, 3, 4, 4));
}

/* y (N, 3, 4, 4) times as many keys, and its values. */
static inline int scores(struct dlb_graph *g, int y)
{
	const int k = A("Transpose", "perm=0,1,3,2", heads(g, other(g)));

	return FLAT(OP("MatMul", OP("Sigmoid", OP("MatMul", y, k)), y), 48);
}

/* Queries, keys and values (N, 4, 12) of three heads. */
static inline int of_three(struct dlb_graph *g, int q, int k, int v)
{
	const int p = OP("Sigmoid", OP("MatMul", heads(g, q), A("Transpose", "perm=0,1,3,2", heads(g, k))));
	const int y = A("Transpose", "perm=0,2,1,3", OP("MatMul", p, heads(g, v)));

	return ROWS12(OP("Reshape", y, I(0, 4, 12)));
}

static inline int threefold(struct dlb_graph *g, int x)
{
	return OP("Add", OP("MatMul", x, W("w", 12, 36)), W("b", 36));
}

enum { SLICE_PLAIN, SLICE_STEPS, SLICE_ALL, SLICE_OLD, SLICE_BEHIND, SLICE_BESIDE, SLICE_ROWS };

/* Queries, keys and values are slices of one product. */
static inline int sliced(struct dlb_graph *g, int x, int how)
{
	const int w = threefold(g, x);
	int y[3];

	for (int k = 0; k < 3; k++) {
		const int64_t from = 12 * k, to = from + 12;
		char old[64];

		snprintf(old, sizeof old, "starts=0,%d ends=4,%d axes=1,2", (int)from, (int)to);
		y[k] = how == SLICE_PLAIN  ? OP("Slice", w, I(from), I(to), I(2)) :
		       how == SLICE_STEPS  ? OP("Slice", w, I(from), I(to), I(-1), I(1)) :
		       how == SLICE_ALL    ? OP("Slice", w, I(0, 0, from), I(1000, 4, to)) :
		       how == SLICE_OLD    ? A("Slice", old, w) :
		       how == SLICE_BEHIND ? OP("Slice", w, I(from - 36), I(k == 2 ? 99 : to - 36), I(2)) :
		       how == SLICE_BESIDE ? OP("Slice", w, I(10 * k), I(10 * k + 12), I(2)) :
					     OP("Slice", w, I(0, from), I(4, to), I(1, 2));
	}
	return of_three(g, y[0], y[1], y[2]);
}

/* Queries, keys and values are what a Split gives; what is more than 12 columns of values is not read. */
static inline int parted(struct dlb_graph *g, const char *attrs, const int *in, int n_in)
{
	const int q = add_op(g, "Split", attrs, 3, in, n_in);

	return of_three(g, q, q + 1, OP("Slice", q + 2, I(0), I(12), I(2)));
}

/* An angle for each of four rows and two pairs. */
static inline int table(struct dlb_graph *g, const char *name)
{
	return drawn_constant(g, name, DIMS(1, 4, 2), false, seed, &drawn);
}

struct split_case {
	const char *name;
	int opset;
	bool maps;
};

static const struct split_case cases[] = {
#define NAME_IT(what, version, ...) { what, version, false },
	SEQUENCES(NAME_IT) HEADS(NAME_IT)
#undef NAME_IT
#define NAME_IT(what, version, ...) { what, version, true },
		MAPS(NAME_IT)
#undef NAME_IT
};

/* The output of case i. */
static inline int build(struct dlb_graph *g, const struct split_case *c)
{
	const int64_t dim[2][4] = { { 0, 4, 6 }, { 0, 3, 8, 8 } };
	const int input = sample_input(g, DLB_F64, dim[c->maps], c->maps ? 4 : 3);
	const int x = c->maps ? OP("Conv", input, W("first", 12, 3, 3, 3)) :
				OP("MatMul", input, W("first", 6, 12));
	int i = 0;

#define BUILD_IT(what, version, ...) \
	if (c == &cases[i++]) \
		return __VA_ARGS__;
	SEQUENCES(BUILD_IT)
	HEADS(BUILD_IT)
	MAPS(BUILD_IT)
#undef BUILD_IT
	abort();
}

static const char *loss = "mse"; /* "none": an inference graph */

static inline void make(struct dlb_graph *g, const struct split_case *c)
{
	struct dlb_error err = { .what = "" };

	begin_graph(g, c->opset);
	g->batch = 12;
	g->training = strcmp(loss, "none") != 0;
	drawn = 0;
	g->output[g->n_outputs++] = build(g, c);
	if (dlb_graph_fold(g, 3, &be, &err) || dlb_graph_find_parameters(g, &err) ||
	    dlb_graph_attach_loss(g, loss, &err) || dlb_graph_rewrite(g, &err) ||
	    dlb_graph_choose_layout(g, &err) || (g->training && dlb_graph_differentiate(g, &err))) {
		fprintf(stderr, "%s: ", c->name);
		test_die(&err);
	}
	dlb_graph_index(g);
}
#endif
