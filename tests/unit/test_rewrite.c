/* Rewrites of views, parts, rows and products, as in rewrite_cases.h; rewrites that are switched off are not applied;
 * names of new ops and tensors. */
#include "rewrite_cases.h"

static const char *const kept[] = {
#include "rewrite_kept.inc"
};

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
	UNBIND_OUTPUT,
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
	if (kind == UNBIND_OUTPUT)
		output(g, x);
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
	LIN_STAYS,
	LIN_FLAT = LIN_STAYS, /* two dimensions without Transpose and bias: a product already */
	LIN_CONSTANT, /* without a weight that could be kept packed */
	LIN_KINDS
};

static int linear(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	const bool plain = kind == LIN_PLAIN || kind >= LIN_GOOD,
		   flat = kind == LIN_TWO_DIMS || kind == LIN_FLAT;
	if (kind == LIN_CONSTANT)
		return OP("Mul", OP("MatMul", x, constant(g, "c", (int64_t[]){ 6, 5 }, 2, false)), W("w", 5));
	if (flat)
		x = with_int(g, "Flatten", x, -1, "axis", 1);
	const int k = flat ? 24 : 6;
	const int w = plain ? W("w", k, 5) : INTS("Transpose", W("w", 5, k), "perm", 1, 0);
	const int y = OP("MatMul", x, w);
	if (kind == LIN_OUTPUT)
		output(g, y);
	if (kind == LIN_NO_BIAS || kind == LIN_FLAT)
		return OP("Tanh", y);
	const int b = kind == LIN_ROW_BIAS ? W("b", 1) : kind == LIN_MATRIX_BIAS ? W("b", 4, 5) : W("b", 5);
	return kind == LIN_T_BIAS_FIRST ? OP("Add", b, y) : OP("Add", y, b);
}

/* -- ops that change nothing -- */

enum {
	SAME_TRANSPOSE,
	SAME_RESHAPE,
	SAME_GOOD,
	SAME_SQUARE = SAME_GOOD, /* of equal shape, but the order of elements differs */
	SAME_NO_PERM,
	SAME_KINDS
};

/* x is (N, 4, 6). */
static int unchanged(struct dlb_graph *g, int x, int variant)
{
	const int kind = variant / 2;
	if (kind == SAME_TRANSPOSE || kind == SAME_RESHAPE)
		return OP("Mul",
			  kind == SAME_RESHAPE ? RESHAPE(OP("Tanh", x), 1, 0, 4, 6) :
						 INTS("Transpose", OP("Tanh", x), "perm", 0, 1, 2),
			  W("w", 6));
	const int square = OP("MatMul", W("s", 6, 4), OP("Tanh", x)), w = W("w", 6);
	if (kind == SAME_NO_PERM) /* reverses all dimensions */
		return OP("Add", OP("Mul", square, w), OP("Transpose", W("v", 6, 6)));
	return OP("Mul", INTS("Transpose", square, "perm", 0, 2, 1), w);
}

/* -- folding, switches, names -- */

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

int main(int argc, char **argv)
{
	static const int64_t dim[] = { 0, 4, 6 };

	test_backend(&be);
	names();
	unique_names();
	masks_fold();
	switches();
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
	for (int kind = 0; kind < 2 * LIN_KINDS; kind++)
		check("linear", linear, kind, dim, 3,
		      kind / 2 < LIN_STAYS); /* at least the product with a weight */
	for (int kind = 0; kind < 2 * SAME_KINDS; kind++)
		check("no-ops", unchanged, kind, dim, 3, kind / 2 < SAME_GOOD);
	be.ops->close(&be);
	printf("%d numbers compared\n", n_checked);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
