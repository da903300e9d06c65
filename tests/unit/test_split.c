/* Splitting ops: parts of tensors; the table of rules; the loss and every weight's gradient of a split graph,
 * in f64, equal those of the whole graph to 1e-11, also at other batch sizes; undoing differentiation; an op
 * that is too large for every node. */
#include <math.h>
#include "cost/auto_split.h"
#include "graph/graph.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/slice.h"
#include "graph/split.h"
#include "check.h"
#include "run_graph.h"
#include "util/rng.h"
#include "by_hand.h"

static struct dlb_backend be;
static const uint64_t seed = 20261121;
static uint64_t drawn;
static int n_checked, n_graphs;

#define W(name, ...) \
	drawn_constant(g, name, (const int64_t[]){ __VA_ARGS__ }, \
		       (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), true, seed, \
		       &drawn)
#define OP(type, ...) op(g, type, (const int[]){ __VA_ARGS__ }, (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int)), NULL, 0)

static int ints(struct dlb_graph *g, const char *name, const int64_t *v, int n)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	return dlb_graph_add_constant(g, name, &d, v, NULL);
}
#define I(...) ints(g, "ints", (const int64_t[]){ __VA_ARGS__ }, (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))

static int with(struct dlb_graph *g, const char *type, int x, int w, const struct dlb_attr *a, int n)
{
	const int in[2] = { x, w };
	return op(g, type, in, w < 0 ? 1 : 2, a, n);
}

/* -- graphs -- */

static int dense(struct dlb_graph *g)
{
	const int x = sample_input(g, DLB_F64, (const int64_t[]){ 0, 9 }, 2);
	const struct dlb_attr tb = { .name = "transB", .type = DLB_ATTR_INT, .i = 1 };
	const int h = OP("Relu", op(g, "Gemm", (const int[]){ x, W("w1", 14, 9), W("b1", 14) }, 3, &tb, 1));
	const int k = OP("Tanh", OP("Gemm", h, W("w2", 14, 11), W("b2", 11)));
	return OP("Gemm", k, W("w3", 11, 7));
}

static int images(struct dlb_graph *g)
{
	const int64_t pad[] = { 1, 1, 1, 1 }, kernel[] = { 2, 2 };
	const struct dlb_attr pads = { .name = "pads", .type = DLB_ATTR_INTS, .ints = pad, .n = 4 };
	const struct dlb_attr grouped[2] = { pads, { .name = "group", .type = DLB_ATTR_INT, .i = 6 } };
	const struct dlb_attr two = { .name = "kernel_shape", .type = DLB_ATTR_INTS, .ints = kernel, .n = 2 };
	const int x = sample_input(g, DLB_F64, (const int64_t[]){ 0, 4, 6, 6 }, 4);
	const int a = OP("Relu",
			 op(g, "Conv", (const int[]){ x, W("w1", 6, 4, 3, 3), W("b1", 6) }, 3, &pads, 1));
	const int b = with(g, "Conv", a, W("w2", 12, 1, 3, 3), grouped, 2);
	const int p = with(g, "MaxPool", OP("Relu", b), -1, &two, 1);
	const int c = OP("Relu", with(g, "Conv", p, W("w3", 5, 12, 3, 3), &pads, 1));
	return OP("Gemm", OP("Flatten", OP("GlobalAveragePool", c)), W("w4", 5, 3));
}

static int attention(struct dlb_graph *g)
{
	const int64_t to_heads[] = { 0, 2, 1, 3 }, to_keys[] = { 0, 2, 3, 1 };
	const struct dlb_attr heads = { .name = "perm", .type = DLB_ATTR_INTS, .ints = to_heads, .n = 4 };
	const struct dlb_attr keys = { .name = "perm", .type = DLB_ATTR_INTS, .ints = to_keys, .n = 4 };
	const struct dlb_attr last = { .name = "axis", .type = DLB_ATTR_INT, .i = -1 };
	const int x = sample_input(g, DLB_F64, (const int64_t[]){ 0, 5, 8 }, 3);
	const int qkv = OP("Add", W("b", 36), OP("MatMul", x, W("w", 8, 36)));
	int part[3];

	for (int i = 0; i < 3; i++)
		part[i] = dlb_graph_add_tensor(g, (const char *[]){ "q", "k", "v" }[i], DLB_T_ACTIVATION);
	const int in[2] = { qkv, I(12, 12, 12) };
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "split", .type = "Split", .in = in, .n_in = 2,
						.out = part, .n_out = 3, .attr = &last, .n_attr = 1 });
	for (int i = 0; i < 3; i++)
		part[i] = with(g, "Transpose", OP("Reshape", part[i], I(0, 5, 3, 4)), -1,
			       i == 1 ? &keys : &heads, 1);
	const int y = OP("MatMul", with(g, "Softmax", OP("MatMul", part[0], part[1]), -1, &last, 1), part[2]);
	const int joined = OP("Reshape", with(g, "Transpose", y, -1, &heads, 1), I(0, 5, 12));
	return OP("Add", x, OP("MatMul", joined, W("o", 12, 8)));
}

/* The same in one op, two heads of keys and values for four of queries; causal. */
static int attention_op(struct dlb_graph *g)
{
	const struct dlb_attr last = { .name = "axis", .type = DLB_ATTR_INT, .i = -1 };
	const struct dlb_attr how[3] = { { .name = "q_num_heads", .type = DLB_ATTR_INT, .i = 4 },
					 { .name = "kv_num_heads", .type = DLB_ATTR_INT, .i = 2 },
					 { .name = "is_causal", .type = DLB_ATTR_INT, .i = 1 } };
	const int x = sample_input(g, DLB_F64, (const int64_t[]){ 0, 5, 8 }, 3),
		  kv = OP("MatMul", x, W("kv", 8, 12));
	const int q = OP("Add", OP("MatMul", x, W("q", 8, 12)), W("bq", 12)), in[2] = { kv, I(6, 6) };
	int part[2];

	for (int i = 0; i < 2; i++)
		part[i] = dlb_graph_add_tensor(g, (const char *[]){ "k", "v" }[i], DLB_T_ACTIVATION);
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "split", .type = "Split", .in = in, .n_in = 2,
						.out = part, .n_out = 2, .attr = &last, .n_attr = 1 });
	const int y = op(g, "Attention", (const int[]){ q, part[0], part[1], OP("Tanh", W("mask", 4, 5, 5)) },
			 4, how, 3);
	return OP("Add", x, OP("MatMul", y, W("o", 12, 8)));
}

/* x (batch, rows, heads, 3), of which two elements of each head are turned. */
static int turned_by_rows(struct dlb_graph *g, int x)
{
	static const int64_t rows[] = { 0, 2, 1, 3 };
	static const double table[2][5] = { { 1, .9, .6, .2, -.3 }, { 0, .4, .8, .98, .95 } };
	const struct dlb_desc d = { .dtype = DLB_F64, .n_dims = 3, .dim = { 1, 5, 1 } };
	const struct dlb_attr how[2] = { { .name = "axesX", .type = DLB_ATTR_INTS, .ints = rows, .n = 4 },
					 { .name = "rotary_embedding_dim", .type = DLB_ATTR_INT, .i = 2 } };

	return op(g, "RotaryEmbedding",
		  (const int[]){ x, dlb_graph_add_constant(g, "cos", &d, table[0], NULL),
				 dlb_graph_add_constant(g, "sin", &d, table[1], NULL) }, 3, how, 2);
}

/* The same over operands by rows, as the rewrite makes it: heads are the third dimension of all operands but
 * K. */
static int strided_attention(struct dlb_graph *g)
{
	static const int64_t rows[] = { 0, 2, 1, 3 }, turned[] = { 0, 2, 1, 3 };
	const struct dlb_attr perm = { .name = "perm", .type = DLB_ATTR_INTS, .ints = turned, .n = 4 };
	const struct dlb_attr how[4] = { { .name = "axesQ", .type = DLB_ATTR_INTS, .ints = rows, .n = 4 },
					 { .name = "axesV", .type = DLB_ATTR_INTS, .ints = rows, .n = 4 },
					 { .name = "axesY", .type = DLB_ATTR_INTS, .ints = rows, .n = 4 },
					 { .name = "is_causal", .type = DLB_ATTR_INT, .i = 1 } };
	const int x = sample_input(g, DLB_F64, (const int64_t[]){ 0, 5, 8 }, 3);
	const int q = turned_by_rows(
		g, OP("Reshape", OP("Add", OP("MatMul", x, W("q", 8, 12)), W("bq", 12)), I(0, 5, 4, 3)));
	const int k = with(g, "Transpose", OP("Reshape", OP("MatMul", x, W("k", 8, 6)), I(0, 5, 2, 3)), -1,
			   &perm, 1);
	const int v = OP("Reshape", OP("MatMul", x, W("v", 8, 6)), I(0, 5, 2, 3));
	const int mask = OP("Tanh", W("mask", 4, 5, 5)), y = dlb_graph_add_tensor(g, "y", DLB_T_ACTIVATION);

	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "attention", .type = "StridedAttention",
						.domain = "dlb", DLB_OPERANDS(q, k, v, mask), .out = &y,
						.n_out = 1, .attr = how, .n_attr = 4 });
	return OP("Add", x, OP("MatMul", OP("Reshape", y, I(0, 5, 12)), W("o", 12, 8)));
}

/* Scores of 20 words with a loss that reads the parts of the scores directly. */
static int labelled(struct dlb_graph *g)
{
	const int x = sample_input(g, DLB_F64, (const int64_t[]){ 0, 5, 6 }, 3);
	const int y = OP("MatMul", OP("Tanh", OP("MatMul", x, W("w1", 6, 9))), W("w2", 9, 20));
	return OP("Reshape", y, I(-1, 20));
}

/* Two rows of six units, in a tensor of as many dimensions as there may be. To take parts or join them, the
 * rows would need a dimension of their own, so this tensor stays whole. */
static int eight_dims(struct dlb_graph *g)
{
	const int64_t channels[] = { 1 };
	const struct dlb_attr second = { .name = "axis", .type = DLB_ATTR_INT, .i = 1 };
	const struct dlb_attr axes = { .name = "axes", .type = DLB_ATTR_INTS, .ints = channels, .n = 1 };
	const int x = sample_input(g, DLB_F64, (const int64_t[]){ 0, 9 }, 2);
	const int both = with(g, "Concat", OP("MatMul", x, W("a", 9, 6)), OP("MatMul", x, W("b", 9, 6)),
			      &second, 1);
	const int t = OP("Tanh", OP("Reshape", both, I(0, 12, 1, 1, 1, 1, 1, 1)));
	const int mean = OP("Flatten", with(g, "ReduceMean", t, -1, &axes, 1));

	return OP("Add", OP("MatMul", OP("Flatten", t), W("c", 12, 5)), mean);
}

/* Scores of each sample for each other one: a product whose second operand has a column per sample. */
static int pairs(struct dlb_graph *g)
{
	const int64_t columns[] = { 1 };
	const struct dlb_attr axes = { .name = "axes", .type = DLB_ATTR_INTS, .ints = columns, .n = 1 };
	const int x = sample_input(g, DLB_F64, (const int64_t[]){ 0, 9 }, 2);
	const int k = OP("Tanh", OP("MatMul", x, W("w", 9, 6)));
	const int scores = OP("Tanh", OP("MatMul", OP("MatMul", x, W("q", 9, 6)), OP("Transpose", k)));
	return with(g, "ReduceMean", scores, -1, &axes, 1);
}

/* The table is read by the words and, transposed, by the product at the end. */
static int words(struct dlb_graph *g)
{
	const int x = sample_input(g, DLB_I64, (const int64_t[]){ 0, 4 }, 2);
	const int table = W("table", 10, 6);
	return OP("MatMul", OP("Tanh", OP("Gather", table, x)), OP("Transpose", table));
}

typedef int build_fn(struct dlb_graph *g);

static void make(struct dlb_graph *g, build_fn *build)
{
	struct dlb_error err = { .what = "" };

	begin_graph(g, 17);
	drawn = 0;
	const int y = build(g);
	g->output[g->n_outputs++] = y;
	const bool labels = build == labelled;
	if (dlb_graph_fold(g, 3, &be, &err) || dlb_graph_find_parameters(g, &err) ||
	    dlb_graph_attach_loss(g, labels ? "cross-entropy" : "mse", &err) || dlb_graph_rewrite(g, &err) ||
	    dlb_graph_choose_layout(g, &err) || dlb_graph_differentiate(g, &err))
		test_die(&err);
	dlb_graph_index(g);
}

/* -- comparison of both graphs -- */

static void fill(struct test_run *r)
{
	const struct dlb_graph *g = r->g;

	for (int i = 0; i < g->n_inputs; i++) {
		const struct dlb_tensor *x = &g->tensor[g->input[i]];
		const struct dlb_desc d = dlb_tensor_desc(x, r->n);
		for (int64_t k = 0; k < dlb_desc_count(&d); k++)
			dlb_value_set(r->value[g->input[i]], x->dtype, k,
				      dlb_dtype_is_float(x->dtype) ?
					      dlb_philox_normal(seed, 2 + (uint64_t)i, (uint64_t)k) :
					      (double)((k * 7 + 3) % 10));
	}
	test_run_phase(r, DLB_BACKWARD);
}

static void near(const char *what, double u, double v)
{
	if (!(fabs(u - v) <= 1e-11 + 1e-11 * fabs(v))) {
		fprintf(stderr, "%s: split %.17g, whole %.17g\n", what, u, v);
		abort();
	}
	n_checked++;
}

/* Gradients of weights: each element of the whole gradient is in one of the parts. */
static void same_gradients(const char *what, const struct test_run *a, const struct test_run *b)
{
	int64_t in_parts = 0, in_whole = 0;

	for (int i = 0; i < a->g->n_ops; i++) {
		const struct dlb_op *o = &a->g->op[i];
		if (o->phase != DLB_UPDATE)
			continue;
		const struct dlb_tensor *w = &a->g->tensor[o->in[0]];
		const char *name = w->slice ? w->slice->of : w->name;
		int whole = -1;
		for (int k = 0; k < b->g->n_ops; k++)
			if (b->g->op[k].phase == DLB_UPDATE &&
			    !strcmp(b->g->tensor[b->g->op[k].in[0]].name, name))
				whole = b->g->op[k].in[1];
		assert(IS(whole, >=, 0));
		const struct dlb_desc d = dlb_tensor_desc(w, a->n);
		for (int64_t e = 0; e < dlb_desc_count(&d); e++, in_parts++) {
			const int64_t at = w->slice ? dlb_slice_index(w->slice, e) : e;
			near(what, ((double *)a->value[o->in[1]])[e], ((double *)b->value[whole])[at]);
		}
	}
	for (int i = 0; i < b->g->n_ops; i++)
		if (b->g->op[i].phase == DLB_UPDATE) {
			const struct dlb_desc d = dlb_tensor_desc(&b->g->tensor[b->g->op[i].in[0]], b->n);
			in_whole += dlb_desc_count(&d);
		}
	assert(IS(in_parts, ==, in_whole));
}

static int count(const struct dlb_graph *g, const char *type)
{
	int n = 0;

	for (int i = 0; i < g->n_ops; i++)
		n += g->op[i].phase == DLB_FORWARD && !strcmp(g->op[i].type, type);
	return n;
}

/* Splits as requested; the forward pass must have `concats` concatenations. */
static void check(const char *what, build_fn *build, const struct dlb_split_request *ask, int n_ask,
		  int n_split, int concats)
{
	static const int64_t sizes[] = { 3, 5, 1 };		/* 1: some shards by samples are empty */
	struct dlb_error err = { .what = "" };
	struct dlb_graph g, whole;

	make(&g, build);
	make(&whole, build);
	if (dlb_graph_split(&g, ask, n_ask, &err) || dlb_graph_check(&g, &err) || dlb_graph_index(&g))
		test_die(&err);
	const int joined = count(&g, "Concat") + count(&g, "SampleConcat");
	if (g.n_was_split != n_split || joined != concats) {
		fprintf(stderr, "%s: %d split, %d put together\n", what, g.n_was_split, joined);
		abort();
	}
	for (int i = 0; i < 3; i++) {
		struct test_run a, b;
		if (dlb_graph_check_runnable(&g, sizes[i], &err))
			test_die(&err);
		test_run_init(&a, &g, &be, sizes[i]);
		test_run_init(&b, &whole, &be, sizes[i]);
		fill(&a);
		fill(&b);
		near(what, *(double *)a.value[g.loss], *(double *)b.value[whole.loss]);
		same_gradients(what, &a, &b);
		test_run_release(&a);
		test_run_release(&b);
	}
	dlb_graph_release(&g);
	dlb_graph_release(&whole);
	n_graphs++;
}

static void one(const char *what, build_fn *build, const char *op_, int parts, const char *axis, int n_split,
		int concats)
{
	const struct dlb_split_request ask = { .op = op_, .parts = parts, .axis = axis, .why = "a test" };

	check(what, build, &ask, 1, n_split, concats);
}

static void graphs(void)
{
	/* the first by output, the second by input, the third by output: one concatenation */
	for (int k = 2; k <= 5; k++)
		one("dense", dense, "*", k, NULL, 3, 1);
	one("dense, input", dense, "*", 3, "input", 3, 0);
	one("dense, output", dense, "*", 3, "output", 3, 3);
	for (int k = 2; k <= 3; k++)
		one("images", images, "*Conv*", k, NULL, 3, 0);		/* channels, groups, and summed */
	one("images, output", images, "Conv*", 5, "output", 3, 2);	/* six groups over five shards */
	for (int k = 2; k <= 3; k++)
		one("attention", attention, "*", k, NULL, 4, 0);
	one("attention op", attention_op, "*", 2, NULL, 4, 0);
	one("strided attention", strided_attention, "*", 2, NULL, 5, 0);
	for (int k = 2; k <= 5; k++)
		one("words", words, "*", k, NULL, 2, 1);
	one("words, columns", words, "Gather*", 3, "output", 1, 2);
	/* by samples: from the inputs to the loss without concatenation */
	for (int k = 2; k <= 3; k++) {
		one("dense, samples", dense, "*", k, "batch", 5, 1);
		one("images, samples", images, "*", k, "batch", 6, 1);
		one("attention, samples", attention, "*", k, "batch", 6, 1);
		one("attention op, samples", attention_op, "*", k, "batch", 5, 1);
		one("strided attention, samples", strided_attention, "*", k, "batch", 8, 1);
		one("words, samples", words, "*", k, "batch", 3, 1);
	}
	/* both products with weights, Tanh, Transpose; the product of samples with samples reads all of them,
	 * so both of its operands are put together, and it and its readers stay whole */
	for (int k = 2; k <= 3; k++)
		one("pairs, samples", pairs, "*", k, "batch", 4, 2);
	one("images, a chain", images, "Conv*", 2, "batch", 3, 1);
	one("labelled", labelled, "*MatMul*", 2, NULL, 2, 0);		/* by output, and by input */
	for (int k = 2; k <= 5; k++)		/* at 5 the scores are too few */
		one("labelled, the scores", labelled, "*MatMul*", k, "output", 2, k * 8 <= 20 ? 1 : 2);
	/* the model's own concatenation, and one per product */
	one("eight dimensions", eight_dims, "*MatMul*", 2, NULL, 3, 4);
	one("words, the product", words, "*MatMul*", 3, NULL, 1, 2);
}

/* -- parts of tensors -- */

static void slices(void)
{
	const struct dlb_slice s = { .of = "w",
				     .n_dims = 3,
				     .dim = { 2, 12, 5 },
				     .axis = 1,
				     .units = 3,
				     .unit = 2,
				     .first = 1,
				     .count = 2 };
	float whole[120], part[80], back[120] = { 0 };
	struct dlb_desc d = { .n_dims = 3, .dim = { 2, 8, 5 } };

	for (int i = 0; i < 120; i++)
		whole[i] = (float)i;
	dlb_slice_take(&s, sizeof(float), whole, part);
	dlb_slice_put(&s, sizeof(float), part, back);
	for (int i = 0; i < 80; i++)
		assert(IS(part[i], ==, (float)dlb_slice_index(&s, i)));
	for (int i = 0; i < 120; i++)		/* columns 2..5 and 8..11 of each matrix */
		assert(IS(back[i], ==, (i / 5 % 12 % 6 >= 2 ? whole[i] : 0)));
	assert(dlb_slice_fits(&s, &d));
	d.dim[1] = 4;
	assert(!dlb_slice_fits(&s, &d));
	d.dim[1] = 8;
	struct dlb_slice bad = s;
	bad.first = 2;
	assert(!dlb_slice_fits(&bad, &d));
	bad = s;
	bad.unit = INT64_MAX;
	assert(!dlb_slice_fits(&bad, &d));
	bad = s;
	bad.count = 0;
	d.dim[1] = 0;
	assert(!dlb_slice_fits(&bad, &d)); /* the shape agrees, but it is no part */
}

/* Parts of a part: element i of the composed slice is where the part has the element that its own slice
 * names. */
static void composed(void)
{
	const struct dlb_slice part = {
		.n_dims = 3, .dim = { 2, 12, 5 }, .axis = 1, .units = 3, .unit = 2, .first = 1, .count = 2
	};

	for (int64_t unit = 1; unit <= 4; unit *= 2)
		for (int64_t first = 0; first < 4 / unit; first++)
			for (int64_t count = 1; first + count <= 4 / unit; count++) {
				const struct dlb_slice inner = { .n_dims = 3,
								 .dim = { 2, 8, 5 },
								 .axis = 1,
								 .units = 4 / unit,
								 .unit = unit,
								 .first = first,
								 .count = count };
				struct dlb_slice all = inner, wrong = inner;

				assert(dlb_slice_compose(&part, &all));
				for (int64_t i = 0; i < 2 * 2 * count * unit * 5; i++)
					assert(IS(dlb_slice_index(&all, i), ==,
						  dlb_slice_index(&part, dlb_slice_index(&inner, i))));
				wrong.units *= 2; /* one row instead of two */
				assert(!dlb_slice_compose(&part, &wrong));
			}
}

static void table(void)
{
	int n = 0;

	for (int t = 0; dlb_split_rules[t]; t++)
		for (const struct dlb_split_rule *r = dlb_split_rules[t]; r->type; r++, n++) {
			assert(dlb_op_kind_find(r->type, "") >= 0 || dlb_op_kind_find(r->type, "dlb") >= 0);
			assert(r->loops || r->carry);
			assert(!r->alone || r->loops);
		}
	assert(IS(n, >, 20));
}

/* Undoing and repeating differentiation gives the same ops. */
static void undifferentiated(void)
{
	static build_fn *const all[] = { dense, images, attention, words };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct dlb_error err = { .what = "" };
		struct dlb_graph g, was;
		make(&was, all[i]);
		make(&g, all[i]);
		dlb_graph_undifferentiate(&g);
		for (int k = 0; k < g.n_ops; k++)
			assert(IS(g.op[k].phase, ==, DLB_FORWARD));
		if (dlb_graph_differentiate(&g, &err))
			test_die(&err);
		assert(IS(g.n_ops, ==, was.n_ops) && IS(g.n_tensors, ==, was.n_tensors));
		for (int k = 0; k < g.n_ops; k++)
			assert(SAME(g.op[k].name, was.op[k].name) && SAME(g.op[k].type, was.op[k].type) &&
			       IS(g.op[k].of, ==, was.op[k].of) &&
			       IS(g.op[k].colocate, ==, was.op[k].colocate));
		dlb_graph_release(&g);
		dlb_graph_release(&was);
	}
}

static void asks(void)
{
	static const char *const bad[] = { "",    "=2",   "a",    "a=",     "a=x",
					   "a=1", "a=2x", "a=2:", "a=2:no", "a=99999" };
	struct dlb_arena a = { 0 };
	struct dlb_split_request ask;
	struct dlb_error err = { .what = "" };

	assert(!dlb_split_parse("a=b=3:head", &a, &ask, &err) && SAME(ask.op, "a=b") &&
	       IS(ask.parts, ==, 3) && SAME(ask.axis, "head"));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert(dlb_split_parse(bad[i], &a, &ask, &err));
	dlb_arena_release(&a);
}

/* Of three layers on 17 samples in f64, only the second needs more memory than any node has; over a slow link
 * no other split pays. It needs 165 weights and as many sums of gradients, 17 x 11 outputs and 17 x 14
 * inputs: 6040 bytes. A shard has all inputs: one of 2 needs 3972 bytes, more than nine tenths of the second
 * largest node; one of 3 needs 3283. */
static void too_large_for_a_node(void)
{
	static const char cluster[] = "cpu:1@4000B host cpu:1@5500B host cpu:2@4000B link=rack:1,1e3";
	struct dlb_error err = { .what = "" };
	struct dlb_split_list list = { .n = 0 };
	struct dlb_arena a = { 0 };
	struct dlb_graph g;
	struct dlb_cluster cl;
	struct dlb_doc doc;

	make(&g, dense);
	g.batch = 17;
	dlb_doc_init(&doc, "test");
	dlb_doc_set(&doc, "graph", dlb_graph_write(&g));
	if (dlb_cluster_parse(cluster, &cl, &err) || dlb_auto_split(&doc, NULL, &cl, 0, &a, &list, &err))
		test_die(&err);
	assert(IS(list.n, ==, 1) && SAME(list.ask[0].op, "Gemm2") && IS(list.ask[0].parts, ==, 3) &&
	       SAME(list.ask[0].why, "whole it needs 0.00604 MB, and no node has more than 0.0055 MB"));
	dlb_cluster_release(&cl);
	dlb_doc_release(&doc);
	dlb_graph_release(&g);
	dlb_arena_release(&a);
}

int main(void)
{
	test_backend(&be);
	slices();
	composed();
	table();
	asks();
	too_large_for_a_node();
	undifferentiated();
	graphs();
	be.ops->close(&be);
	printf("%d graphs split, %d numbers are those of the whole\n", n_graphs, n_checked);
	return 0;
}
