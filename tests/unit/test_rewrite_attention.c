/* Rewrites that find attention and its parts: each form of a pattern is found, near misses are not, and no result
 * changes (rewrite_cases.h). */
#include "rewrite_cases.h"

static const char *const kept[] = {
#include "rewrite_attention_kept.inc"
};

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

/* Its gradients are NaN: test only the match. */
static void shut_mask_keeps_guard(void)
{
	struct dlb_graph g;

	make(&g, guarded, 2 * GUARD_SHUT, (const int64_t[]){ 0, 4, 6 }, 3, NULL);
	assert(IS(applied(&g, "softmax-guard"), ==, 0));
	dlb_graph_release(&g);
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
	ATT_ALMOST,
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
	if (kind == ATT_ALMOST) {
		const int mask = causal(g, keys, false);
		/* the last row but one sees the last key too */
		((double *)g->tensor[mask].data)[(keys - 1) * keys - 1] = 0;
		s = OP("Add", s, mask);
	}
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

int main(int argc, char **argv)
{
	static const int64_t dim[] = { 0, 4, 6 };

	test_backend(&be);
	for (int kind = 0; kind < 2 * ROPE_KINDS; kind++)	/* the op, and the Transpose before it */
		check("rotary", rope, kind, dim, 3, kind / 2 < ROPE_GOOD ? 2 : 0);
	for (int kind = 0; kind < 2 * GUARD_KINDS; kind++)
		if (kind / 2 != GUARD_SHUT)
			check("softmax-guard", guarded, kind, dim, 3, kind / 2 < GUARD_OPEN);
	shut_mask_keeps_guard();
	for (int kind = 0; kind < 2 * HEADS_KINDS; kind++)
		check("products", heads, kind, dim, 3,
		      kind / 2 >= HEADS_GOOD ? 0 :
		      kind / 2 == HEADS_BERT ? 1 :
					       2);
	for (int kind = 0; kind < 2 * ATT_KINDS; kind++)
		check("attention", attention, kind, (const int64_t[]){ 0, att_keys(kind / 2), 6 }, 3,
		      kind / 2 < ATT_GOOD);
	grouped_heads_in_place();
	be.ops->close(&be);
	printf("%d numbers compared\n", n_checked);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
