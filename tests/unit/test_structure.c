/* Branches, loops and sequences: their folded graphs are computed and differentiated; refused ones. Every
 * graph has one input x (N, 2), or (N, 4) for those along an axis. */
#include <math.h>
#include "check.h"
#include "run_graph.h"
#include "graph/order.h"
#include "graph/passes.h"

static struct dlb_backend be;
static int n_checked;

/* -- building -- */

static int tensor(struct dlb_graph *g, const char *name, enum dlb_tensor_kind kind)
{
	const int t = dlb_graph_add_tensor(g, name, kind);

	return t;
}

static int numbers(struct dlb_graph *g, const char *name, enum dlb_dtype dtype, int n, const double *v,
		   bool initial)
{
	const int t = tensor(g, name, DLB_T_CONSTANT);
	struct dlb_tensor *x = &g->tensor[t];
	void *data = dlb_arena_array(&g->arena, (size_t)(n < 0 ? 1 : n) + 1, 8);

	for (int i = 0; i < (n < 0 ? 1 : n); i++)
		dlb_value_set(data, dtype, i, v[i]);
	x->dtype = dtype;
	x->n_dims = n < 0 ? 0 : 1;
	x->dim[0] = (struct dlb_dim){ 0, n < 0 ? 0 : n };
	x->data = data;
	x->initial = initial;
	return t;
}

static int whole(struct dlb_graph *g, const char *name, double v)
{
	return numbers(g, name, DLB_I64, -1, &v, false);
}
static int truth(struct dlb_graph *g, const char *name, double v)
{
	return numbers(g, name, DLB_BOOL, -1, &v, false);
}

static struct dlb_attr integer(const char *name, int64_t v)
{
	return (struct dlb_attr){ .name = name, .type = DLB_ATTR_INT, .i = v };
}

static int op(struct dlb_graph *g, const char *type, const int *in, int n_in, const int *out, int n_out,
	      const struct dlb_attr *attr, int n_attr)
{
	char name[40];

	snprintf(name, sizeof name, "%s_%d", type, g->n_ops);
	return dlb_graph_add_op(g, DLB_FORWARD,
				&(struct dlb_op_spec){ .name = name,
						       .type = type,
						       .in = in,
						       .n_in = n_in,
						       .out = out,
						       .n_out = n_out,
						       .attr = attr,
						       .n_attr = n_attr });
}

#define IN(...) (const int[]){ __VA_ARGS__ }, (int)(sizeof(int[]){ __VA_ARGS__ } / sizeof(int))

/* One op with one output of its own name. */
static int apply(struct dlb_graph *g, const char *type, const char *out, const int *in, int n_in)
{
	const int t = tensor(g, out, DLB_T_ACTIVATION);

	op(g, type, in, n_in, &t, 1, NULL, 0);
	return t;
}

static int start(struct dlb_graph *g, int columns)
{
	dlb_graph_init(g);
	g->opset = 13;
	g->input = dlb_arena_array(&g->arena, 4, sizeof *g->input);
	g->output = dlb_arena_array(&g->arena, 4, sizeof *g->output);
	const int x = tensor(g, "x", DLB_T_INPUT);
	g->tensor[x].n_dims = 2;
	g->tensor[x].dim[0] = (struct dlb_dim){ 1, 0 };
	g->tensor[x].dim[1] = (struct dlb_dim){ 0, columns };
	g->input[g->n_inputs++] = x;
	return x;
}

static void give(struct dlb_graph *g, int t) { g->output[g->n_outputs++] = t; }

/* A body whose first n_formal inputs the vertex supplies; `capture` adds captured tensors. */
static struct dlb_body *body(struct dlb_graph *g, int *index, int first_capture)
{
	struct dlb_body *b = dlb_graph_add_body(g, index);

	b->first_capture = first_capture;
	b->g.input = dlb_arena_array(&b->g.arena, 16, sizeof(int));
	b->g.output = dlb_arena_array(&b->g.arena, 16, sizeof(int));
	return b;
}

static int formal(struct dlb_body *b, const char *name)
{
	const int t = tensor(&b->g, name, DLB_T_INPUT);

	b->g.input[b->g.n_inputs++] = t;
	b->n_formal++;
	return t;
}

static int capture(struct dlb_body *b, const char *name)
{
	const int t = tensor(&b->g, name, DLB_T_INPUT);

	b->g.input[b->g.n_inputs++] = t;
	return t;
}

static void must(int rc, const struct dlb_error *err)
{
	if (rc)
		test_die(err);
}

static int named(const struct dlb_graph *g, const char *name)
{
	const int t = test_tensor(g, name);

	assert(IS(t, >=, 0));
	return t;
}

static void fold(struct dlb_graph *g)
{
	struct dlb_error err = { .what = "" };

	must(dlb_graph_fold(g, 2, &be, &err), &err);
	must(dlb_graph_check(g, &err), &err);
	for (int i = 0; i < g->n_ops; i++)
		assert(IS(g->op[i].kind, >=, 0));
	assert(!g->n_bodies);
	dlb_graph_index(g);
	n_checked++;
}

/* The model must be refused, with these words in the message. */
static void refused(struct dlb_graph *g, const char *where, const char *says)
{
	struct dlb_error err = { .what = "" };

	if (!dlb_graph_fold(g, 2, &be, &err) || !strstr(err.where, where) || !strstr(err.what, says)) {
		fprintf(stderr, "want '%s: %s', got '%s: %s'\n", where, says, err.where, err.what);
		abort();
	}
	/* where: the vertex with its operator and opset, or the model's output; and a cure */
	if (!err.hint[0] || (!strstr(err.where, "' (opset ") && strncmp(says, "the output", 10))) {
		fprintf(stderr, "short of vertex, opset or cure: %s: %s; %s\n", err.where, err.what,
			err.hint);
		abort();
	}
	dlb_graph_release(g);
	n_checked++;
}

/* Output k at 2 samples of x = 1, 2, 3 ...; `count` values. */
static void computes(struct dlb_graph *g, int k, int count, const double *want)
{
	struct test_run r;

	test_run_init(&r, g, &be, 2);
	for (int i = 0; i < (int)(test_bytes(&r, g->input[0]) / 4); i++)
		((float *)r.value[g->input[0]])[i] = (float)(i + 1);
	test_run_phase(&r, DLB_FORWARD);
	const struct dlb_desc d = dlb_tensor_desc(&g->tensor[g->output[k]], 2);
	assert(IS(dlb_desc_count(&d), ==, count));
	for (int i = 0; i < count; i++)
		if (fabs(dlb_value_real(r.value[g->output[k]], d.dtype, i) - want[i]) >
		    1e-5 * (1 + fabs(want[i]))) {
			fprintf(stderr, "%s[%d] is %g, not %g\n", g->tensor[g->output[k]].name, i,
				dlb_value_real(r.value[g->output[k]], d.dtype, i), want[i]);
			abort();
		}
	test_run_release(&r);
	n_checked++;
}
#define COMPUTES(g, k, ...) \
	computes(g, k, (int)(sizeof(double[]){ __VA_ARGS__ } / 8), (const double[]){ __VA_ARGS__ })

/* -- Loop -- */

/* s = x; up to `trips` times: each = s * w; s = each; continue while i < last. With w = 2 that is x 2^n. */
static int power_loop(struct dlb_graph *g, double trips, double last)
{
	const double two = 2;
	const int x = start(g, 2), w = numbers(g, "w", DLB_F32, 1, &two, true), m = whole(g, "m", trips),
		  go = truth(g, "go", 1), end = whole(g, "end", last);
	int index;
	struct dlb_body *b = body(g, &index, 3);
	const int i = formal(b, "i"), c = formal(b, "c"), s = formal(b, "s"), bw = capture(b, "w"),
		  be_ = capture(b, "end");
	(void)c;
	const int next = apply(&b->g, "Less", "next", IN(i, be_)),
		  each = apply(&b->g, "Mul", "each", IN(s, bw));
	const int same = apply(&b->g, "Identity", "same", IN(each));
	b->g.output[0] = next, b->g.output[1] = each, b->g.output[2] = same;
	b->g.n_outputs = 3;
	const struct dlb_attr a = integer("body", index);
	const int out[2] = { tensor(g, "y", DLB_T_ACTIVATION), tensor(g, "all", DLB_T_ACTIVATION) };
	op(g, "Loop", IN(m, go, x, w, end), out, 2, &a, 1);
	give(g, out[0]);
	give(g, out[1]);
	return x;
}

static void test_loop(void)
{
	struct dlb_error err = { .what = "" };
	struct dlb_graph g;

	power_loop(&g, 10, 2); /* the condition ends it: i = 0, 1 continue, i = 2 does not */
	fold(&g);
	COMPUTES(&g, 0, 8, 16, 24, 32);
	COMPUTES(&g, 1, 2, 4, 6, 8, 4, 8, 12, 16, 8, 16, 24, 32);
	assert(SAME(g.tensor[g.output[0]].name, "y") && SAME(g.tensor[g.output[1]].name, "all"));
	assert(IS(g.tensor[g.output[1]].dim[0].add, ==, 3) && IS(g.tensor[g.output[1]].dim[1].mul, ==, 1));

	/* d sum(y) / dw = 3 w^2 sum(x) = 12 * 10, through all three iterations */
	dlb_graph_release(&g);
	power_loop(&g, 3, 100);
	g.n_outputs = 1;
	fold(&g);
	const int seed = dlb_graph_add_tensor(&g, "cotangent", DLB_T_SEED);
	g.tensor[seed].n_dims = 2;
	g.tensor[seed].dim[0] = (struct dlb_dim){ 1, 0 };
	g.tensor[seed].dim[1] = (struct dlb_dim){ 0, 2 };
	int w = named(&g, "w"), grad;
	must(dlb_graph_differentiate_from(&g, g.output[0], seed, &w, 1, &grad, &err), &err);
	struct test_run r;
	test_run_init(&r, &g, &be, 2);
	for (int i = 0; i < 4; i++) {
		((float *)r.value[g.input[0]])[i] = (float)(i + 1);
		((float *)r.value[named(&g, "cotangent")])[i] = 1;
	}
	test_run_phase(&r, DLB_BACKWARD);
	assert(IS(fabsf(*(float *)r.value[grad] - 120), <, 1e-3f));
	test_run_release(&r);
	dlb_graph_release(&g);

	power_loop(&g, 0, 2); /* no iteration: the initial state */
	g.n_outputs = 1;
	g.op[0].n_out = 1;
	fold(&g);
	COMPUTES(&g, 0, 1, 2, 3, 4);
	dlb_graph_release(&g);

	power_loop(&g, 0, 2);
	refused(&g, "Loop_0", "makes no iteration, and the shape of its output 'same' is not stated");
	power_loop(&g, 1e18, 1e18);
	refused(&g, "Loop_0", "unrolls into more than");
	power_loop(&g, 1e18, 1e18); /* nor may a body without vertices, which copies its inputs */
	struct dlb_graph *b = &g.body[0]->g;
	b->n_ops = 0;
	b->output[0] = b->input[1];
	b->output[1] = b->input[2];
	b->n_outputs = 2;
	g.n_outputs = g.op[0].n_out = 1;
	refused(&g, "Loop_0", "unrolls into more than");
	power_loop(&g, 3, 2);
	g.op[0].n_in--; /* one captured tensor is missing */
	refused(&g, "Loop_0", "has no graph 'body'");
	power_loop(&g, 3, 2);
	g.op[0].attr[0].i = 7;
	refused(&g, "Loop_0", "has no graph 'body'");
	power_loop(&g, 3, 2);
	g.body[0]->g.n_outputs = 1;
	refused(&g, "Loop_0", "has 1 outputs, 2 are needed");
	power_loop(&g, 3, 2);
	g.body[0]->n_formal = 4;
	refused(&g, "Loop_0", "'body' of Loop has 4 inputs, not 3");
}

/* -- If, in a loop -- */

static void branch(struct dlb_graph *g, int *index, const char *type)
{
	struct dlb_body *b = body(g, index, 1);
	const int x = capture(b, "s");

	b->g.output[b->g.n_outputs++] = apply(&b->g, type, "r", IN(x));
}

/* s = x; three times: s = i == 1 ? -s : s + s's own ... : Neg when i is 1, else Abs. */
static void test_nested(void)
{
	struct dlb_graph g;
	int index, then, otherwise;
	const int x = start(&g, 2), m = whole(&g, "m", 2), one = whole(&g, "one", 1);
	struct dlb_body *b = body(&g, &index, 3);
	const int i = formal(b, "i"), c = formal(b, "c"), s = formal(b, "s"), bone = capture(b, "one");
	const int is_one = apply(&b->g, "Equal", "is_one", IN(i, bone)),
		  keep = apply(&b->g, "Identity", "keep", IN(c));
	branch(&g, &then, "Neg");
	branch(&g, &otherwise, "Exp");
	g.body[otherwise]->first_capture = 2;
	const struct dlb_attr choice[2] = { integer("then_branch", then), integer("else_branch", otherwise) };
	const int r = tensor(&b->g, "r", DLB_T_ACTIVATION);
	op(&b->g, "If", IN(is_one, s, s), &r, 1, choice, 2);
	b->g.output[0] = keep, b->g.output[1] = r;
	b->g.n_outputs = 2;
	const struct dlb_attr a = integer("body", index);
	const int y = tensor(&g, "y", DLB_T_ACTIVATION);
	op(&g, "Loop", IN(m, -1, x, one), &y, 1, &a, 1);
	give(&g, y);
	fold(&g);
	COMPUTES(&g, 0, -exp(1), -exp(2), -exp(3), -exp(4));
	dlb_graph_release(&g);
}

static int if_on(struct dlb_graph *g, int condition, int x)
{
	int then, otherwise;

	branch(g, &then, "Neg");
	branch(g, &otherwise, "Abs");
	g->body[otherwise]->first_capture = 2;
	g->body[then]->first_capture = 1;
	const struct dlb_attr choice[2] = { integer("then_branch", then), integer("else_branch", otherwise) };
	const int r = tensor(g, "r", DLB_T_ACTIVATION);
	op(g, "If", IN(condition, x, x), &r, 1, choice, 2);
	return r;
}

static void test_undecided(void)
{
	struct dlb_graph g;
	int x = start(&g, 2), c;

	c = apply(&g, "Cast", "c", IN(x));
	const struct dlb_attr to = integer("to", 9);
	g.op[0].attr = dlb_attr_copy(&g.arena, &to, 1);
	g.op[0].n_attr = 1;
	give(&g, if_on(&g, c, x));
	refused(&g, "If_1",
		"the condition of If ('c') is not known before the run: it is computed from input 'x'");

	x = start(&g, 2); /* the number of samples depends on the batch */
	const int shape = apply(&g, "Shape", "shape", IN(x)), zero = whole(&g, "zero", 0);
	const int n = apply(&g, "Gather", "n", IN(shape, zero));
	int index;
	struct dlb_body *b = body(&g, &index, 3);
	formal(b, "i");
	const int keep = formal(b, "c"), s = formal(b, "s");
	b->g.output[0] = keep, b->g.output[1] = apply(&b->g, "Neg", "t", IN(s));
	b->g.n_outputs = 2;
	const struct dlb_attr a = integer("body", index);
	const int y = tensor(&g, "y", DLB_T_ACTIVATION);
	op(&g, "Loop", IN(n, -1, x), &y, 1, &a, 1);
	give(&g, y);
	refused(&g, "Loop_2", "the trip count of Loop follows the batch: 2 for 2 samples, 4 for 4");

	x = start(&g, 2);
	const double two[2] = { 1, 1 };
	give(&g, if_on(&g, numbers(&g, "c", DLB_BOOL, 2, two, false), x));
	refused(&g, "If_0", "has 2 values, not one");

	x = start(&g, 2);
	give(&g, if_on(&g, whole(&g, "c", 1), x));
	g.op[0].in[0] = -1;
	refused(&g, "If_0", "If has no condition");
}

/* -- Scan -- */

static void scan(struct dlb_graph *g)
{
	const double nothing[2] = { 0 };
	int index;
	const int x = start(g, 4), zero = numbers(g, "zero", DLB_F32, 1, nothing, false);
	struct dlb_body *b = body(g, &index, 2);
	const int s = formal(b, "s"), each = formal(b, "each"), sum = apply(&b->g, "Add", "sum", IN(s, each));
	b->g.output[0] = sum, b->g.output[1] = apply(&b->g, "Identity", "copy", IN(sum));
	b->g.n_outputs = 2;
	const int64_t one = 1;
	const struct dlb_attr attr[] = {
		integer("body", index),
		integer("num_scan_inputs", 1),
		{ .name = "scan_input_axes", .type = DLB_ATTR_INTS, .ints = &one, .n = 1 },
		{ .name = "scan_input_directions", .type = DLB_ATTR_INTS, .ints = &one, .n = 1 },
		{ .name = "scan_output_axes", .type = DLB_ATTR_INTS, .ints = &one, .n = 1 }
	};
	const int out[2] = { tensor(g, "y", DLB_T_ACTIVATION), tensor(g, "z", DLB_T_ACTIVATION) };
	op(g, "Scan", IN(zero, x), out, 2, attr, 5);
	give(g, out[0]);
	give(g, out[1]);
}

static void test_scan(void)
{
	struct dlb_graph g;

	scan(&g);
	fold(&g);
	COMPUTES(&g, 0, 10, 26);
	COMPUTES(&g, 1, 4, 7, 9, 10, 8, 15, 21, 26);
	dlb_graph_release(&g);

	scan(&g);
	g.op[0].attr[1].i = 7;
	refused(&g, "Scan_0", "Scan takes 7 inputs apart, of 2");
	scan(&g);
	g.op[0].in[1] = -1;
	refused(&g, "Scan_0", "of Scan is missing");
	scan(&g);
	g.body[0]->g.n_outputs = 1;
	refused(&g, "Scan_0", "Scan has 2 outputs, its body gives 1");
	scan(&g); /* the empty output would not lie along its axis, 1 */
	g.tensor[g.input[0]].dim[1].add = 0;
	struct dlb_graph *b = &g.body[0]->g;
	b->tensor[b->output[1]].n_dims = 1;
	b->tensor[b->output[1]].dim[0].add = 2;
	refused(&g, "Scan_0", "makes no iteration, and the shape of its output 'copy' is not stated");
	scan(&g);
	g.tensor[g.input[0]].dim[1].add = INT64_C(1) << 40;
	refused(&g, "Scan_0", "unrolls into more than");
}

/* -- Scan: directions, several inputs, and the batch of opset 8 -- */

/* s + each over the columns of a constant (2, 3), each sample by itself. */
static void scan_samples(struct dlb_graph *g, int64_t back)
{
	const double nothing[2] = { 0 }, v[6] = { 1, 2, 3, 4, 5, 6 };
	const struct dlb_attr attr[] = {
		integer("body", 0),
		integer("num_scan_inputs", 1),
		{ .name = "directions", .type = DLB_ATTR_INTS, .ints = &back, .n = 1 }
	};
	int index;

	start(g, 2);
	const int state = numbers(g, "state", DLB_F32, 2, nothing, false),
		  each = numbers(g, "each", DLB_F32, 6, v, false);
	g->tensor[each].n_dims = 2;
	g->tensor[each].dim[0].add = 2, g->tensor[each].dim[1].add = 3;
	struct dlb_body *b = body(g, &index, 3);
	const int s = formal(b, "s"), e = formal(b, "e"), sum = apply(&b->g, "Add", "sum", IN(s, e));
	b->g.output[0] = sum, b->g.output[1] = apply(&b->g, "Identity", "copy", IN(sum));
	b->g.n_outputs = 2;
	const int out[2] = { tensor(g, "y", DLB_T_ACTIVATION), tensor(g, "z", DLB_T_ACTIVATION) };
	op(g, "Scan", IN(-1, state, each), out, 2, attr, 3);
	g->op[0].opset = 8;
	give(g, out[0]);
	give(g, out[1]);
}

static void test_scan_samples(void)
{
	const double one[1] = { 1 };
	struct dlb_graph g;

	for (int back = 0; back < 2; back++) {
		scan_samples(&g, back);
		fold(&g);
		COMPUTES(&g, 0, 6, 15);
		if (back)
			COMPUTES(&g, 1, 3, 5, 6, 6, 11, 15);
		else
			COMPUTES(&g, 1, 1, 3, 6, 4, 9, 15);
		assert(IS(g.tensor[g.output[1]].n_dims, ==, 2) &&
		       IS(g.tensor[g.output[1]].dim[0].add, ==, 2));
		dlb_graph_release(&g);
	}
	scan_samples(&g, 0);
	g.op[0].in[0] = numbers(&g, "lengths", DLB_I64, 1, one, false);
	refused(&g, "Scan_0", "sequence lengths of Scan (opset 8) are not supported");
	scan_samples(&g, 0);
	g.tensor[g.op[0].in[1]].dim[0].add = 1;
	refused(&g, "Scan_0", "inputs of Scan have 1 and 2 samples");
	scan_samples(&g, 0);
	g.op[0].attr[1].i = 0;
	refused(&g, "Scan_0", "Scan takes 0 inputs apart, of 2");
	scan_samples(&g, 0);
	g.op[0].attr[1].i = 3;
	refused(&g, "Scan_0", "Scan takes 3 inputs apart, of 2");
	scan_samples(&g, 0);
	g.op[0].in[2] = g.input[0]; /* a row for each sample of the batch */
	refused(&g, "Scan_0", "Scan goes along dimension 0 of 'x', which follows the batch");
}

/* Two inputs of Scan, columns of x and a constant, with results from the last column to the first. */
static void scan_pairs(struct dlb_graph *g, int length)
{
	const double v[4] = { 10, 20, 30, 40 };
	const int64_t axes[2] = { 1, 0 }, back[2] = { 0, 1 }, one = 1;
	const struct dlb_attr attr[] = {
		integer("body", 0),
		integer("num_scan_inputs", 2),
		{ .name = "scan_input_axes", .type = DLB_ATTR_INTS, .ints = axes, .n = 2 },
		{ .name = "scan_input_directions", .type = DLB_ATTR_INTS, .ints = back, .n = 2 },
		{ .name = "scan_output_axes", .type = DLB_ATTR_INTS, .ints = &one, .n = 1 },
		{ .name = "scan_output_directions", .type = DLB_ATTR_INTS, .ints = &one, .n = 1 }
	};
	int index;
	const int x = start(g, 4), w = numbers(g, "w", DLB_F32, length, v, false);
	struct dlb_body *b = body(g, &index, 2);
	const int p = formal(b, "p"), q = formal(b, "q");
	b->g.output[b->g.n_outputs++] = apply(&b->g, "Add", "both", IN(p, q));
	const int z = tensor(g, "z", DLB_T_ACTIVATION);
	op(g, "Scan", IN(x, w), &z, 1, attr, 6);
	give(g, z);
}

static void test_scan_pairs(void)
{
	struct dlb_graph g;

	scan_pairs(&g, 4);
	fold(&g);
	COMPUTES(&g, 0, 14, 23, 32, 41, 18, 27, 36, 45);
	dlb_graph_release(&g);
	scan_pairs(&g, 3);
	refused(&g, "Scan_0", "inputs of Scan are 4 and 3 long");
	scan_pairs(&g, 4);
	((int64_t *)g.op[0].attr[2].ints)[0] = 2;
	refused(&g, "Scan_0", "axis 2 of Scan is out of range for 2 dimensions");
	scan_pairs(&g, 4);
	((int64_t *)g.op[0].attr[2].ints)[0] = -3;
	refused(&g, "Scan_0", "axis -3 of Scan is out of range for 2 dimensions");
	scan_pairs(&g, 4);
	((int64_t *)g.op[0].attr[2].ints)[0] = -2;
	refused(&g, "Scan_0", "Scan goes along dimension 0 of 'x', which follows the batch");
	scan_pairs(&g, 4);
	g.body[0]->n_formal = 1;
	refused(&g, "Scan_0", "Scan has no graph 'body'");
	scan_pairs(&g, 4);
	((int64_t *)g.op[0].attr[2].ints)[0] = -1;
	((int64_t *)g.op[0].attr[4].ints)[0] = 0;
	fold(&g);
	COMPUTES(&g, 0, 14, 18, 23, 27, 32, 36, 41, 45);
	dlb_graph_release(&g);
}

/* -- loops without iterations, and what their outputs are -- */

static void test_no_iteration(void)
{
	const double no = 0;
	struct dlb_graph g;

	power_loop(&g, 0, 2);
	struct dlb_graph *b = &g.body[0]->g;
	struct dlb_tensor *same = &b->tensor[b->output[2]];
	same->n_dims = 2;
	same->dim[0].add = 3, same->dim[1].add = 5;
	same->dtype = DLB_F64;
	fold(&g);
	COMPUTES(&g, 0, 1, 2, 3, 4);
	const struct dlb_tensor *all = &g.tensor[g.output[1]];
	assert(IS(all->n_dims, ==, 3) && IS(all->dtype, ==, DLB_F64) && IS(all->dim[0].add, ==, 0) &&
	       IS(all->dim[1].add, ==, 3) && IS(all->dim[2].add, ==, 5));
	dlb_graph_release(&g);

	power_loop(&g, 3, 2); /* a condition that is false from the start */
	g.n_outputs = g.op[0].n_out = 1;
	g.op[0].in[1] = truth(&g, "stop", no);
	fold(&g);
	COMPUTES(&g, 0, 1, 2, 3, 4);
	dlb_graph_release(&g);

	power_loop(&g, 2, 100); /* without a condition, the body's is ignored */
	g.op[0].in[1] = -1;
	g.op[0].in[4] = whole(&g, "never", -1);
	fold(&g);
	COMPUTES(&g, 0, 4, 8, 12, 16);
	dlb_graph_release(&g);

	power_loop(&g, 2, 100);
	const int out[3] = { g.op[0].out[0], g.op[0].out[1], tensor(&g, "more", DLB_T_ACTIVATION) };
	g.op[0].out = dlb_arena_array(&g.arena, 3, sizeof *out);
	memcpy(g.op[0].out, out, sizeof out);
	g.op[0].n_out = 3;
	refused(&g, "Loop_0", "Loop has 3 outputs, its body gives 2");

	int x = start(&g, 2); /* what decides is a sequence, or not there */
	give(&g, if_on(&g, apply(&g, "SequenceConstruct", "q", IN(x)), x));
	refused(&g, "If_1", "the condition of If is a sequence");
	x = start(&g, 2);
	give(&g, if_on(&g, truth(&g, "c", 1), x));
	g.body[0]->first_capture = 0;
	refused(&g, "If_0", "If has no condition");
	x = start(&g, 2);
	give(&g, if_on(&g, truth(&g, "c", 1), x));
	g.body[0]->g.n_outputs = 0;
	refused(&g, "If_0", "'then_branch' of If has 0 outputs, 1 are needed");
	/* a result that is a sequence is not stacked */
	power_loop(&g, 2, 100);
	struct dlb_op *last = &g.body[0]->g.op[g.body[0]->g.n_ops - 1];
	last->type = "SequenceConstruct";
	refused(&g, "Loop_0", "output 'same' of a body is a sequence and cannot be stacked");
	for (int i = 0; i < 2; i++) { /* a branch takes the first or the second operand that it captures */
		x = start(&g, 2);
		give(&g, if_on(&g, truth(&g, "c", i), x));
		fold(&g);
		if (i)
			COMPUTES(&g, 0, -1, -2, -3, -4);
		else
			COMPUTES(&g, 0, 1, 2, 3, 4);
		dlb_graph_release(&g);
	}
}

/* -- bounds of Clip that are known at run time only -- */

static void test_clip(void)
{
	const double two = 2;
	const struct dlb_attr attr = integer("keepdims", 0);
	struct dlb_graph g;
	const int x = start(&g, 2), w = numbers(&g, "w", DLB_F32, 1, &two, true),
		  low = tensor(&g, "low", DLB_T_ACTIVATION);

	op(&g, "ReduceMax", IN(w), &low, 1, &attr, 1);
	give(&g, apply(&g, "Clip", "y", IN(x, low)));
	fold(&g);
	COMPUTES(&g, 0, 2, 2, 3, 4);
	dlb_graph_release(&g);
}

/* -- sequences -- */

static int sequence_of(struct dlb_graph *g, int x)
{
	const int a = apply(g, "Neg", "a", IN(x)), b = apply(g, "Abs", "b", IN(x));
	const int q = apply(g, "SequenceConstruct", "q", IN(a, b));

	return apply(g, "SequenceInsert", "q3", IN(q, x, whole(g, "first", 0))); /* x, -x, |x| */
}

static void test_sequence(void)
{
	struct dlb_graph g;
	int x = start(&g, 2), q = sequence_of(&g, x);

	give(&g, apply(&g, "SequenceAt", "y", IN(q, whole(&g, "back", -2))));
	give(&g, apply(&g, "SequenceLength", "n", IN(apply(&g, "SequenceErase", "q2", IN(q)))));
	fold(&g);
	COMPUTES(&g, 0, -1, -2, -3, -4);
	COMPUTES(&g, 1, 2);
	dlb_graph_release(&g);

	x = start(&g, 4); /* pieces of 3 and 1 columns, the second one at both ends */
	const double sizes[2] = { 3, 1 };
	const struct dlb_attr axis = integer("axis", 1);
	const int parts = tensor(&g, "parts", DLB_T_ACTIVATION), y = tensor(&g, "y", DLB_T_ACTIVATION);
	op(&g, "SplitToSequence", IN(x, numbers(&g, "sizes", DLB_I64, 2, sizes, false)), &parts, 1, &axis, 1);
	const int last = apply(&g, "SequenceAt", "last", IN(parts, whole(&g, "one", 1)));
	op(&g, "ConcatFromSequence",
	   IN(apply(&g, "SequenceInsert", "more", IN(parts, last, whole(&g, "front", 0)))), &y, 1, &axis, 1);
	give(&g, y);
	fold(&g);
	COMPUTES(&g, 0, 4, 1, 2, 3, 4, 8, 5, 6, 7, 8);
	dlb_graph_release(&g);

	x = start(&g, 2);
	give(&g, sequence_of(&g, x));
	refused(&g, "q3", "the output is a sequence of tensors");
	x = start(&g, 2);
	give(&g, apply(&g, "SequenceAt", "y", IN(sequence_of(&g, x), whole(&g, "far", 3))));
	refused(&g, "SequenceAt_4", "position 3 of SequenceAt is out of range for 3 tensors");
	x = start(&g, 2);
	give(&g, apply(&g, "SequenceErase", "y", IN(apply(&g, "SequenceEmpty", "none", NULL, 0))));
	refused(&g, "SequenceErase_1", "is out of range for 0 tensors");
	x = start(&g, 2);
	give(&g, apply(&g, "Relu", "y", IN(sequence_of(&g, x))));
	refused(&g, "Relu_4", "an input of Relu is a sequence");
	x = start(&g, 2);
	give(&g, apply(&g, "SequenceLength", "y", IN(x)));
	refused(&g, "SequenceLength_0", "its first input is no sequence");
	x = start(&g, 2); /* along the batch: as many pieces as samples */
	const int rows = apply(&g, "SplitToSequence", "rows", IN(x));
	give(&g, apply(&g, "SequenceLength", "y", IN(rows)));
	refused(&g, "SplitToSequence_0", "which follows the batch");
}

int main(void)
{
	test_backend(&be);
	test_loop();
	test_nested();
	test_undecided();
	test_scan();
	test_scan_samples();
	test_scan_pairs();
	test_no_iteration();
	test_clip();
	test_sequence();
	be.ops->close(&be);
	printf("structure: %d checks of branches, loops and sequences\n", n_checked);
	return 0;
}
