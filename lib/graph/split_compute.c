/* Rules for splitting ops that compute: the indices that each loops over, and the changes of a shard's
 * attributes. */
#include <string.h>
#include "graph/split_rules.h"

/* -- loops -- */

/* Loops over every dimension of the output; operands are aligned at the right, and size 1 broadcasts. */
static int elementwise(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *y = &g->tensor[o->out[0]];

	for (int a = 0; a < y->n_dims; a++) {
		dlb_loop_clear(&l[a], y->dim[a].mul && !a ? "batch" : "channel");
		for (int i = 0; i < o->n_in + o->n_out; i++) {
			const struct dlb_tensor *t = dlb_split_operand(g, o, i);
			const int at = t ? a - (y->n_dims - t->n_dims) : -1;
			*dlb_loop_axis(&l[a], o, i) = at < 0 || (dlb_split_is_one(t->dim[at]) &&
								 !dlb_split_is_one(y->dim[a])) ?
							      -1 :
							      at;
		}
	}
	return y->n_dims;
}

/* A shard uses its part of the whole tensor's mask. Channels-last memory may be cut along samples and
 * channels only. */
static int dropout(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int n = elementwise(g, o, l);

	if (dlb_attr_find(o->attr, o->n_attr, "slice")) /* a part of a part is not one slice */
		return n > 0 && g->tensor[o->in[0]].dim[0].mul ? 1 : 0;
	return g->tensor[o->in[0]].layout == DLB_CHANNELS_LAST && n > 2 ? 2 : n;
}

/* Loops over the first n dimensions. */
static int leading(const struct dlb_graph *g, const struct dlb_op *o, int n, struct dlb_loop *l)
{
	for (int a = 0; a < n; a++) {
		dlb_loop_clear(&l[a], a ? "channel" : "batch");
		l[a].in[0] = a;
		for (int k = 0; k < o->n_out; k++)
			l[a].out[k] = o->out[k] >= 0 && g->tensor[o->out[k]].n_dims > a ? a : -1;
	}
	return n;
}

static int layer_norm(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	return leading(g, o, dlb_split_axis_attr(g, o, -1), l);
}

/* Loops over samples and heads of (batch, heads, rows, width), if all samples read one table. */
static int rotary(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *table = &g->tensor[o->in[1]];
	const int64_t *axis;
	const bool axes = dlb_attr_ints(o->attr, o->n_attr, "axesX", &axis) == 4;

	if (g->tensor[o->in[0]].n_dims != 4 || o->n_in > 3 || table->n_dims != 3 ||
	    !dlb_split_is_one(table->dim[0]))
		return 0;
	dlb_loop_clear(&l[0], "batch");
	l[0].in[0] = l[0].out[0] = axes ? (int)axis[0] : 0;
	dlb_loop_clear(&l[1], "head");
	l[1].in[0] = l[1].out[0] = axes ? (int)axis[1] : 1;
	return 2;
}

/* Before opset 13, Softmax treats all dimensions from the axis on as one. */
static int softmax(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int n = g->tensor[o->in[0]].n_dims;
	const int axis = dlb_split_axis_attr(g, o, o->opset < 13 ? 1 : -1);
	int k = leading(g, o, axis, l);

	for (int a = axis + 1; a < n && o->opset >= 13; a++, k++) {
		dlb_loop_clear(&l[k], "channel");
		l[k].in[0] = l[k].out[0] = a;
	}
	return k;
}

/* Loops over batch and channels; further outputs (a mask, indices) are cut like the first. */
static int pool(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	return leading(g, o, 2, l);
}

/* Loops over samples only. */
static int samples(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]];

	return x->n_dims > 0 && x->dim[0].mul == 1 ? leading(g, o, 1, l) : 0;
}

/* Whether another forward op updates running statistics of o too, which then must stay whole. */
static bool shares_statistics(const struct dlb_graph *g, const struct dlb_op *o)
{
	for (int i = 1; i < o->n_in; i++)
		for (int r = o->in[i] < 0 ? 0 : g->reader_start[o->in[i]];
		     o->in[i] >= 0 && r < g->reader_start[o->in[i] + 1]; r++) {
			const struct dlb_op *other = &g->op[g->reader[r]];

			if (g->tensor[o->in[i]].kind == DLB_T_BUFFER && other != o &&
			    other->phase == DLB_FORWARD)
				return true;
		}
	return false;
}

/* Loops over channels only, since statistics are computed per channel over all samples; over samples too if
 * the statistics are given. */
static int batch_norm(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	if (shares_statistics(g, o))
		return 0;
	dlb_loop_clear(&l[0], "channel");
	l[0].in[0] = l[0].out[0] = 1;
	for (int i = 1; i < o->n_in; i++)
		l[0].in[i] = 0;
	for (int k = 1; k < o->n_out; k++)
		l[0].out[k] = 0;
	if (!g->training) {
		dlb_loop_clear(&l[1], "batch");
		l[1].in[0] = l[1].out[0] = 0;
	}
	return g->tensor[o->in[0]].n_dims > 1 ? 1 + !g->training : 0;
}

static int transpose(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int64_t *perm;
	const int n = g->tensor[o->in[0]].n_dims, m = dlb_attr_ints(o->attr, o->n_attr, "perm", &perm);

	for (int a = 0; a < n; a++) {
		dlb_loop_clear(&l[a], "channel");
		l[a].out[0] = a;
		l[a].in[0] = m ? (int)perm[a] : n - 1 - a;
	}
	return n;
}

/* The name of a loop over an index that has no name in the operator. */
static const char *rows_name(struct dlb_dim d) { return d.mul ? "batch" : "rows"; }

/* y (M, N) = op(A) op(B) + C */
static int gemm(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int ta = dlb_attr_int(o->attr, o->n_attr, "transA", 0) != 0,
		  tb = dlb_attr_int(o->attr, o->n_attr, "transB", 0) != 0;
	const struct dlb_tensor *c = o->n_in > 2 && o->in[2] >= 0 ? &g->tensor[o->in[2]] : NULL;

	dlb_loop_clear(&l[0], "output");
	l[0].in[1] = !tb;
	l[0].out[0] = 1;
	if (c && c->n_dims > 0 && !dlb_split_is_one(c->dim[c->n_dims - 1]))
		l[0].in[2] = c->n_dims - 1;
	dlb_loop_clear(&l[1], "input");
	l[1].in[0] = !ta;
	l[1].in[1] = tb;
	dlb_loop_clear(&l[2], rows_name(g->tensor[o->out[0]].dim[0]));
	l[2].in[0] = ta;
	l[2].out[0] = 0;
	if (c && c->n_dims == 2 && !dlb_split_is_one(c->dim[0]))
		l[2].in[2] = 0;
	return 3;
}

/* y (.., M, N) = A (.., M, K) B (.., K, N), batches broadcast. */
static int matmul(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *a = &g->tensor[o->in[0]], *b = &g->tensor[o->in[1]],
				*y = &g->tensor[o->out[0]];
	int n = 3;

	if (a->n_dims < 2 || b->n_dims < 2)
		return 0;
	dlb_loop_clear(&l[0], "output");
	l[0].in[1] = b->n_dims - 1;
	l[0].out[0] = y->n_dims - 1;
	dlb_loop_clear(&l[1], "input");
	l[1].in[0] = a->n_dims - 1;
	l[1].in[1] = b->n_dims - 2;
	dlb_loop_clear(&l[2], rows_name(y->dim[y->n_dims - 2]));
	l[2].in[0] = a->n_dims - 2;
	l[2].out[0] = y->n_dims - 2;
	for (int d = 0; d < y->n_dims - 2; d++, n++) {
		const int at = d - (y->n_dims - a->n_dims), bt = d - (y->n_dims - b->n_dims);
		dlb_loop_clear(&l[n], y->dim[d].mul == 1 ? "batch" : "head");
		l[n].in[0] = at < 0 || (dlb_split_is_one(a->dim[at]) && !dlb_split_is_one(y->dim[d])) ? -1 :
													at;
		l[n].in[1] = bt < 0 || (dlb_split_is_one(b->dim[bt]) && !dlb_split_is_one(y->dim[d])) ? -1 :
													bt;
		l[n].out[0] = d;
	}
	return n;
}

/* Like matmul, but read and written through permutations: attention's products, whose
 * batches are samples and heads. */
static int product(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	static const char *const names[3] = { "permA", "permB", "permY" };
	const int n = g->tensor[o->in[0]].n_dims;
	int perm[3][DLB_MAX_DIMS], m = 0;

	for (int k = 0; k < 3; k++) {
		const int64_t *v;
		const int given = dlb_attr_ints(o->attr, o->n_attr, names[k], &v);
		for (int i = 0; i < n; i++)
			perm[k][i] = given ? (int)v[i] : i;
	}
	int y[DLB_MAX_DIMS]; /* dimension i of the product -> axis of the output */
	for (int i = 0; i < n; i++)
		for (int k = 0; k < n; k++)
			if (perm[2][k] == i)
				y[i] = k;
	for (int d = n - 3; d >= 0; d--, m++) { /* heads are next to the matrices */
		const struct dlb_dim dim = g->tensor[o->in[0]].dim[perm[0][d]];
		dlb_loop_clear(&l[m], dim.mul == 1 ? "batch" : "head");
		l[m].in[0] = perm[0][d];
		l[m].in[1] = perm[1][d];
		l[m].out[0] = y[d];
	}
	dlb_loop_clear(&l[m], "output");
	l[m].in[1] = perm[1][n - 1];
	l[m++].out[0] = y[n - 1];
	dlb_loop_clear(&l[m], "input");
	l[m].in[0] = perm[0][n - 1];
	l[m++].in[1] = perm[1][n - 2];
	dlb_loop_clear(&l[m], "rows");
	l[m].in[0] = perm[0][n - 2];
	l[m++].out[0] = y[n - 2];
	return m;
}

static int64_t conv_groups(const struct dlb_graph *g, const struct dlb_op *o)
{
	(void)g;
	return dlb_attr_int(o->attr, o->n_attr, "group", 1);
}

/* With groups, input and output channels are split together by groups, like the batch of a
 * product, and not summed over. */
static int conv(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	int n = 1;

	dlb_loop_clear(&l[0], "output");
	l[0].in[1] = l[0].in[2] = 0;
	l[0].out[0] = 1;
	if (conv_groups(g, o) > 1) {
		l[0].in[0] = 1;
	} else {
		dlb_loop_clear(&l[n], "input");
		l[n].in[0] = l[n].in[1] = 1;
		n++;
	}
	dlb_loop_clear(&l[n], "batch");
	l[n].in[0] = l[n].out[0] = 0;
	return n + 1;
}

/* Loops over rows of the table (a shard gives zeros for rows that it does not have), its columns, and the
 * indices. */
static int gather(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]], *index = &g->tensor[o->in[1]];
	const int axis = dlb_split_axis_attr(g, o, 0);
	int n = 0;

	if (!axis && dlb_dtype_is_float(x->dtype)) {
		dlb_loop_clear(&l[n], "vocabulary");
		l[n++].in[0] = 0;
	}
	for (int a = 0; a < x->n_dims; a++) {
		if (a == axis)
			continue;
		dlb_loop_clear(&l[n], "output");
		l[n].in[0] = a;
		l[n++].out[0] = a < axis ? a : a - 1 + index->n_dims;
	}
	for (int a = 0; a < index->n_dims; a++) {
		dlb_loop_clear(&l[n], rows_name(index->dim[a]));
		l[n].in[1] = a;
		l[n++].out[0] = axis + a;
	}
	return n;
}

/* -- a loss of which each shard computes a part -- */

/* If scores are split by classes, each part computes three numbers per label (op/loss_parts.c)
 * instead of joining the scores. */
static bool cross_entropy(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
			  int64_t units, struct dlb_op_split *s)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]];

	if (i || o->n_in > 2 || o->n_out > 1 || !units || cut.axis != 1 || x->dim[1].mul ||
	    x->dim[1].add != units * cut.unit || x->layout != DLB_PLAIN ||
	    dlb_attr_real(o->attr, o->n_attr, "smoothing", 0) > 0)
		return false;
	s->in[0] = cut;
	s->axis = "vocabulary";
	return true;
}

/* -- changes of a shard's attributes -- */

/* Channels may be cut only between groups; a shard has its own number of groups. */
static int fix_conv(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const int64_t groups = conv_groups(g, &g->op[op]);

	if (groups > 1 && s->split->in[0].axis == 1) {
		if (groups % s->share.units || !g->tensor[g->op[op].out[0]].dim[1].add ||
		    g->tensor[g->op[op].out[0]].dim[1].add != s->share.units * s->split->out[0].unit)
			return dlb_vertex_fail(&g->op[op], err, "a number of shards that divides the groups",
					       "its %lld groups cannot be split into %lld units",
					       (long long)groups, (long long)s->share.units);
		dlb_shard_set_int(s, "group", groups / s->share.units * s->share.count);
	}
	if (s->split->sum)
		dlb_shard_drop_attr(s, "activation"); /* the activation is applied to the sum instead */
	return 0;
}

static int fix_gather(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const struct dlb_tensor *x = &g->tensor[g->op[op].in[0]];

	(void)err;
	if (s->split->sum) {
		dlb_shard_set_int(s, "first", s->share.first * s->split->in[0].unit);
		dlb_shard_set_int(s, "of", x->dim[0].add);
	}
	return 0;
}

static int fix_dropout(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	int64_t *v = dlb_arena_array(&g->arena, 5, sizeof *v);

	(void)op;
	(void)err;
	if (!s->share.units) /* a share of samples needs no slice */
		return 0;
	memcpy(v,
	       (int64_t[]){ s->split->in[0].axis, s->share.units, s->split->in[0].unit, s->share.first,
			    s->share.count },
	       5 * sizeof *v);
	s->attr[s->n_attr++] = (struct dlb_attr){ .name = "slice", .type = DLB_ATTR_INTS, .ints = v, .n = 5 };
	return 0;
}

/* -- the table -- */

#define FOLLOWS(name, f) \
	{ \
		.type = name, .bias = -1, .loops = f \
	}
const struct dlb_split_rule dlb_split_compute[] = {
	{ .type = "Gemm", .alone = true, .bias = 2, .loops = gemm },
	{ .type = "MatMul", .alone = true, .bias = -1, .loops = matmul },
	{ .type = "Product", .alone = true, .bias = -1, .loops = product },
	{ .type = "Conv", .alone = true, .bias = 2, .loops = conv, .groups = conv_groups, .fix = fix_conv },
	{ .type = "Gather", .alone = true, .bias = -1, .loops = gather, .fix = fix_gather },
	{ .type = "SoftmaxCrossEntropyLoss",
	  .bias = -1,
	  .carry = cross_entropy,
	  .part = "CrossEntropyPart",
	  .join = "CrossEntropyJoin" },
	{ .type = "Dropout", .bias = -1, .loops = dropout, .fix = fix_dropout },
	FOLLOWS("Transpose", transpose),
	FOLLOWS("LayerNormalization", layer_norm),
	FOLLOWS("RMSNormalization", layer_norm),
	FOLLOWS("Softmax", softmax),
	FOLLOWS("LogSoftmax", softmax),
	FOLLOWS("BatchNormalization", batch_norm),
	FOLLOWS("MaxPool", pool),
	FOLLOWS("AveragePool", pool),
	FOLLOWS("GlobalAveragePool", pool),
	FOLLOWS("GlobalMaxPool", pool),
	FOLLOWS("Relu", elementwise),
	FOLLOWS("LeakyRelu", elementwise),
	FOLLOWS("Elu", elementwise),
	FOLLOWS("Selu", elementwise),
	FOLLOWS("Celu", elementwise),
	FOLLOWS("Sigmoid", elementwise),
	FOLLOWS("HardSigmoid", elementwise),
	FOLLOWS("HardSwish", elementwise),
	FOLLOWS("Softplus", elementwise),
	FOLLOWS("Tanh", elementwise),
	FOLLOWS("Gelu", elementwise),
	FOLLOWS("Erf", elementwise),
	FOLLOWS("Exp", elementwise),
	FOLLOWS("Log", elementwise),
	FOLLOWS("Sqrt", elementwise),
	FOLLOWS("Reciprocal", elementwise),
	FOLLOWS("Abs", elementwise),
	FOLLOWS("Neg", elementwise),
	FOLLOWS("AddRelu", elementwise),
	FOLLOWS("Add", elementwise),
	FOLLOWS("Sub", elementwise),
	FOLLOWS("Mul", elementwise),
	FOLLOWS("Div", elementwise),
	FOLLOWS("Pow", elementwise),
	FOLLOWS("Sum", elementwise),
	FOLLOWS("Max", elementwise),
	FOLLOWS("Min", elementwise),
	FOLLOWS("Clip", elementwise),
	FOLLOWS("Where", elementwise),
	FOLLOWS("Identity", elementwise),
	FOLLOWS("Cast", elementwise),
	FOLLOWS("Layout", elementwise),
	FOLLOWS("LayoutView", elementwise),
	FOLLOWS("TransposeView", transpose),
	FOLLOWS("RotaryEmbedding", rotary),
	FOLLOWS("Swish", elementwise),
	FOLLOWS("SwiGLU", elementwise),
	FOLLOWS("LRN", samples),
	FOLLOWS("InstanceNormalization", samples),
	FOLLOWS("GroupNormalization", samples),
	FOLLOWS("ReduceMean", samples),
	FOLLOWS("ReduceSum", samples),
	FOLLOWS("ReduceMax", samples),
	FOLLOWS("Pad", samples),
	FOLLOWS("Resize", samples),
	FOLLOWS("DepthToSpace", samples),
	FOLLOWS("SpaceToDepth", samples),
	FOLLOWS("PRelu", samples),
	{ .type = NULL },
};
