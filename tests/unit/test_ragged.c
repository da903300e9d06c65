/* Lengths that depend on values: rows that a mask selects, computed with padding, give the same losses and
 * gradients as the network that computes all rows and multiplies by the mask; gradients are also compared
 * with central differences. Ops that would read padding are refused. Small graphs with x of (N, 3). */
#include <math.h>
#include "check.h"
#include "run_graph.h"
#include "by_hand.h"
#include "graph/passes.h"

static struct dlb_backend be;
static int n_compared;

/* -- building -- */

#define IN(...) (const int[]){ __VA_ARGS__ }, (int)(sizeof (int[]){ __VA_ARGS__ } / sizeof(int))

static struct dlb_attr number(const char *name, int64_t v)
{
	return (struct dlb_attr){ .name = name, .type = DLB_ATTR_INT, .i = v };
}

static int with(struct dlb_graph *g, const char *type, const int *in, int n_in, const char *name, int64_t v)
{
	const struct dlb_attr a = number(name, v);
	return op(g, type, in, n_in, &a, 1);
}

static int plain(struct dlb_graph *g, const char *type, const int *in, int n_in)
{
	return op(g, type, in, n_in, NULL, 0);
}

static int constant(struct dlb_graph *g, enum dlb_dtype type, int n, const double *v)
{
	char name[40];
	snprintf(name, sizeof name, "c%d", g->n_tensors);
	const int t = dlb_graph_add_tensor(g, name, DLB_T_CONSTANT);
	void *data = dlb_arena_array(&g->arena, (size_t)(n < 0 ? 1 : n) + 1, 8);
	for (int i = 0; i < (n < 0 ? 1 : n); i++)
		dlb_value_set(data, type, i, v[i]);
	g->tensor[t].dtype = type;
	g->tensor[t].n_dims = n < 0 ? 0 : 1;
	g->tensor[t].dim[0].add = n < 0 ? 0 : n;
	g->tensor[t].data = data;
	return t;
}

#define INTS(g, ...) constant(g, DLB_I64, (int)(sizeof (double[]){ __VA_ARGS__ } / 8), (const double[]){ __VA_ARGS__ })
#define INT(g, v) constant(g, DLB_I64, -1, (const double[]){ v })
#define REAL(g, v) constant(g, DLB_F64, -1, (const double[]){ v })

/* Column k of x, (N), above 0. */
static int above(struct dlb_graph *g, int x, int k)
{
	return plain(g, "Greater", IN(with(g, "Gather", IN(x, INT(g, k)), "axis", 1), REAL(g, 0)));
}

/* Indices of true elements of mask: (count, dims). */
static int where(struct dlb_graph *g, int mask)
{
	return plain(g, "Transpose", IN(plain(g, "NonZero", IN(mask))));
}

static int as_column(struct dlb_graph *g, int mask)
{
	return plain(g, "Unsqueeze", IN(mask, INTS(g, 1)));
}

struct net { struct dlb_graph g; int x, h, v; };

/* h = tanh(x w), (N, 4); v is (4, 3). */
static void start(struct net *n, int64_t wired)
{
	uint64_t drawn = 0;
	begin_graph(&n->g, 20);
	n->x = sample_input(&n->g, DLB_F64, (int64_t[]){ 0, 3 }, 2);
	if (wired)
		n->g.tensor[n->x].dim[0] = (struct dlb_dim){ 0, wired };
	const int w = drawn_constant(&n->g, "w", (int64_t[]){ 3, 4 }, 2, true, 5, &drawn);
	n->v = drawn_constant(&n->g, "v", (int64_t[]){ 4, 3 }, 2, true, 5, &drawn);
	n->h = plain(&n->g, "Tanh", IN(plain(&n->g, "MatMul", IN(n->x, w))));
}

static int expert(struct net *n, int rows)
{
	return plain(&n->g, "Tanh", IN(plain(&n->g, "MatMul", IN(rows, n->v))));
}

/* The expert on all rows, with `otherwise` where the mask (N) is false. */
static int dense(struct net *n, int mask, int otherwise)
{
	return plain(&n->g, "Where", IN(as_column(&n->g, mask), expert(n, n->h), otherwise));
}

/* -- networks, each written by selecting rows and by computing all of them -- */

static int index_add(struct net *n, bool select)
{
	struct dlb_graph *g = &n->g;
	const int mask = above(g, n->x, 0), zeros = plain(g, "Mul", IN(n->x, REAL(g, 0)));
	const struct dlb_attr add = { .name = "reduction", .type = DLB_ATTR_STR, .s = "add" };
	if (!select)
		return dense(n, mask, zeros);
	const int at = where(g, mask);
	return op(g, "ScatterND", IN(zeros, at, expert(n, plain(g, "GatherND", IN(n->h, at)))), &add, 1);
}

static int by_elements(struct net *n, bool select)
{
	struct dlb_graph *g = &n->g;
	const int mask = above(g, n->x, 0), zeros = plain(g, "Mul", IN(n->x, REAL(g, 0)));
	const struct dlb_attr add[] = { { .name = "reduction", .type = DLB_ATTR_STR, .s = "add" },
					number("axis", 0) };
	if (!select)
		return dense(n, mask, zeros);
	const int at = where(g, mask), flat = plain(g, "Squeeze", IN(at, INTS(g, 1)));
	const int wide = plain(g, "Expand", IN(at, INTS(g, 1, 3)));
	return op(g, "ScatterElements",
		  IN(zeros, wide, expert(n, with(g, "Gather", IN(n->h, flat), "axis", 0))), add, 2);
}

/* y[mask] = expert(h[mask]) as PyTorch's exporter writes it: the elements of a mask of all columns, and the
 * count as a shape. */
static int index_put(struct net *n, bool select)
{
	struct dlb_graph *g = &n->g;
	const int mask = above(g, n->x, 1);
	if (!select)
		return dense(n, mask, n->x);
	const int flat = plain(g, "Squeeze", IN(where(g, mask), INTS(g, 1)));
	const int at = as_column(g, plain(g, "Expand",
					  IN(flat, plain(g, "Shape", IN(plain(g, "Max", IN(flat)))))));
	const int rows = expert(n, plain(g, "GatherND", IN(n->h, at)));
	const int all = where(g, plain(g, "Expand", IN(as_column(g, mask), plain(g, "Shape", IN(n->x)))));
	const int ones = with(g, "Cast", IN(plain(g, "Reshape", IN(mask, INTS(g, -1)))), "to",
			      dlb_dtype_to_onnx(DLB_I64));
	const int count = with(g, "ReduceSum", IN(ones), "keepdims", 1);
	const int shape = with(g, "Concat", IN(count, INTS(g, 3)), "axis", 0);
	return plain(g, "ScatterND",
		     IN(n->x, all,
			plain(g, "Reshape", IN(plain(g, "Expand", IN(rows, shape)), INTS(g, -1)))));
}

/* masked_scatter: as many elements of the rows as there are indices. */
static int masked_scatter(struct net *n, bool select)
{
	struct dlb_graph *g = &n->g;
	const int mask = above(g, n->x, 0);
	if (!select)
		return dense(n, mask, n->x);
	const int rows = expert(n, plain(g, "GatherND", IN(n->h, where(g, mask))));
	const int all = where(g, plain(g, "Expand", IN(as_column(g, mask), plain(g, "Shape", IN(n->x)))));
	const int count = with(g, "Gather", IN(plain(g, "Shape", IN(all)), INTS(g, 0)), "axis", 0);
	const int some = plain(g, "Slice",
			       IN(plain(g, "Reshape", IN(rows, INTS(g, -1))), INTS(g, 0), count, INTS(g, 0)));
	return plain(g, "ScatterND", IN(n->x, all, some));
}

static int sum(struct net *n, bool select)
{
	struct dlb_graph *g = &n->g;
	const int mask = above(g, n->x, 0);
	const int rows = select ? expert(n, plain(g, "GatherND", IN(n->h, where(g, mask)))) :
				  dense(n, mask, REAL(g, 0));
	return plain(g, "Add", IN(n->x, with(g, "ReduceSum", IN(rows, INTS(g, 0)), "keepdims", 1)));
}

static int mean(struct net *n, bool select)
{
	struct dlb_graph *g = &n->g;
	const int mask = above(g, n->x, 0);
	if (select)
		return plain(g, "Add",
			     IN(n->x, with(g, "ReduceMean",
					   IN(expert(n, plain(g, "GatherND", IN(n->h, where(g, mask)))),
					      INTS(g, 0, 1)),
					   "keepdims", 1)));
	const int total = with(g, "ReduceSum", IN(dense(n, mask, REAL(g, 0)), INTS(g, 0, 1)), "keepdims", 1);
	const int count = with(g, "ReduceSum",
			       IN(with(g, "Cast", IN(mask), "to", dlb_dtype_to_onnx(DLB_F64))), "keepdims",
			       0);
	return plain(g, "Add", IN(n->x, plain(g, "Div", IN(total, plain(g, "Mul", IN(count, REAL(g, 3)))))));
}

/* A selection among selected rows. */
static int nested(struct net *n, bool select)
{
	struct dlb_graph *g = &n->g;
	const int mask = above(g, n->x, 0);
	if (!select)
		return dense(n, plain(g, "And", IN(mask, above(g, n->x, 1))),
			     plain(g, "Mul",
				   IN(n->x, as_column(g, with(g, "Cast", IN(mask), "to",
							      dlb_dtype_to_onnx(DLB_F64))))));
	const int at = where(g, mask), rows = plain(g, "GatherND", IN(n->x, at)),
		  in = plain(g, "GatherND", IN(n->h, at));
	const int again = where(g, above(g, rows, 1));
	const int mixed = plain(g, "ScatterND",
				IN(rows, again, expert(n, plain(g, "GatherND", IN(in, again)))));
	return plain(g, "ScatterND", IN(plain(g, "Mul", IN(n->x, REAL(g, 0))), at, mixed));
}

/* Two of four experts per token: the weight of the token's slot, and at most as many rows as tokens. */
static int routed(struct net *n, bool select)
{
	struct dlb_graph *g = &n->g;
	const int values = dlb_graph_add_tensor(g, "best", DLB_T_ACTIVATION),
		  which = dlb_graph_add_tensor(g, "which", DLB_T_ACTIVATION);
	const struct dlb_attr add = { .name = "reduction", .type = DLB_ATTR_STR, .s = "add" };
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "topk", .type = "TopK",
						DLB_OPERANDS(n->h, INTS(g, 2)),
						.out = (int[]){ values, which }, .n_out = 2 });
	const int chosen = plain(g, "Equal", IN(which, INT(g, 1))),
		  zeros = plain(g, "Mul", IN(n->x, REAL(g, 0)));
	if (!select) {
		const int weight = plain(g, "Where", IN(chosen, values, REAL(g, 0)));
		return plain(g, "Mul",
			     IN(expert(n, n->h),
				with(g, "ReduceSum", IN(weight, INTS(g, 1)), "keepdims", 1)));
	}
	const int at = where(g, chosen), row = plain(g, "Slice", IN(at, INTS(g, 0), INTS(g, 1), INTS(g, 1)));
	const int weight = as_column(g, plain(g, "GatherND", IN(values, at)));
	const int u = plain(g, "Mul", IN(expert(n, plain(g, "GatherND", IN(n->h, row))), weight));
	return op(g, "ScatterND", IN(zeros, row, u), &add, 1);
}

/* As in older versions of transformers: one_hot(which).permute(2, 1, 0)[expert], (slots, tokens). */
static int permuted(struct net *n, bool select)
{
	struct dlb_graph *g = &n->g;
	const int64_t turn[] = { 2, 1, 0 };
	const struct dlb_attr perm = { .name = "perm", .type = DLB_ATTR_INTS, .ints = turn, .n = 3 };
	const struct dlb_attr add = { .name = "reduction", .type = DLB_ATTR_STR, .s = "add" };
	if (!select)
		return routed(n, false);
	const int values = dlb_graph_add_tensor(g, "best", DLB_T_ACTIVATION),
		  which = dlb_graph_add_tensor(g, "which", DLB_T_ACTIVATION);
	dlb_graph_add_op(g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "topk", .type = "TopK",
						DLB_OPERANDS(n->h, INTS(g, 2)),
						.out = (int[]){ values, which }, .n_out = 2 });
	const int hot = plain(g, "Equal",
			      IN(plain(g, "Unsqueeze", IN(which, INTS(g, -1))), INTS(g, 0, 1, 2, 3)));
	const int turned = op(g, "Transpose", IN(with(g, "Cast", IN(hot), "to", dlb_dtype_to_onnx(DLB_I64))),
			      &perm, 1);
	const int at = where(g, with(g, "Gather", IN(turned, INT(g, 1)), "axis", 0));
	const int slot = with(g, "Gather", IN(at, INTS(g, 0)), "axis", 1),
		  row = with(g, "Gather", IN(at, INTS(g, 1)), "axis", 1);
	const int weight = as_column(g, plain(g, "GatherND",
					      IN(values, with(g, "Concat", IN(row, slot), "axis", 1))));
	const int u = plain(g, "Mul", IN(expert(n, plain(g, "GatherND", IN(n->h, row))), weight));
	return op(g, "ScatterND", IN(plain(g, "Mul", IN(n->x, REAL(g, 0))), row, u), &add, 1);
}

static int (*const nets[])(struct net *n, bool select) = { index_add,      by_elements, index_put,
							   masked_scatter, sum,         mean,
							   nested,         routed,      permuted };

/* -- comparing -- */

static void build(struct net *n, int (*net)(struct net *, bool), bool select, int64_t wired)
{
	struct dlb_error err = { .what = "" };
	start(n, wired);
	const int z = net(n, select);
	n->g.output[n->g.n_outputs++] = plain(&n->g, "Mul", IN(z, plain(&n->g, "Sigmoid", IN(z))));
	if (dlb_graph_fold(&n->g, 4, &be, &err) || dlb_graph_find_parameters(&n->g, &err) ||
	    dlb_graph_attach_loss(&n->g, "sum", &err) || dlb_graph_differentiate(&n->g, &err))
		test_die(&err);
}

/* Loss, and gradients of w and v one after the other (24), of samples x, with `more` added to element k of
 * the weights. */
static double run(struct net *n, const double *x, int64_t samples, double grad[24], int k, double more)
{
	struct test_run r;
	test_run_init(&r, &n->g, &be, samples);
	memcpy(r.value[n->g.input[0]], x, (size_t)samples * 3 * sizeof *x);
	if (k >= 0)
		((double *)r.value[test_tensor(&n->g, k < 12 ? "w" : "v")])[k % 12] += more;
	test_run_phase(&r, grad ? DLB_BACKWARD : DLB_FORWARD);
	const double loss = dlb_value_real(r.value[n->g.loss], n->g.tensor[n->g.loss].dtype, 0);
	for (int i = 0; i < n->g.n_ops && grad; i++)
		if (n->g.op[i].phase == DLB_UPDATE)
			memcpy(grad + (strcmp(n->g.tensor[n->g.op[i].in[0]].name, "w") ? 12 : 0),
			       r.value[n->g.op[i].in[1]], 12 * sizeof *grad);
	test_run_release(&r);
	return loss;
}

static bool near(double a, double b, double tol)
{
	return fabs(a - b) <= tol * (1 + fabs(b)) || (isnan(a) && isnan(b));
}

/* Samples whose column 0 is above 0 never, sometimes, or always. */
static void compare(int which, int64_t wired)
{
	struct net selecting, all;
	double x[18], a[24], b[24];
	build(&selecting, nets[which], true, wired);
	build(&all, nets[which], false, wired);
	assert(IS(selecting.g.n_notes, ==, (nets[which] == mean ? 2 : 1)) &&
	       IS(selecting.g.fixed_batch, ==, (nets[which] == mean)));
	assert(HAS(selecting.g.note[selecting.g.n_notes - 1], "by value (first NonZero "));
	for (int sign = -1; sign <= 1; sign++)
		for (int64_t samples = 1; samples <= 6; samples++) {
			for (int64_t i = 0; i < samples * 3; i++) {
				x[i] = dlb_philox_normal(9, 1, (uint64_t)(i + 100 * sign + 200));
				x[i] = i % 3 < 2 && sign ? copysign(x[i], sign) : x[i];
			}
			const double got = run(&selecting, x, samples, a, -1, 0),
				     want = run(&all, x, samples, b, -1, 0);
			assert(near(got, want, 1e-13));
			for (int k = 0; k < 24; k++) {
				assert(near(a[k], b[k], 1e-12));
				const double up = run(&selecting, x, samples, NULL, k, 1e-5),
					     down = run(&selecting, x, samples, NULL, k, -1e-5);
				if (!isnan(got) && !near(a[k], (up - down) / 2e-5, 1e-7)) {
					fprintf(stderr,
						"network %d, %d samples, element %d: %.12g, differences say "
						"%.12g\n",
						which, (int)samples, k, a[k], (up - down) / 2e-5);
					abort();
				}
				n_compared++;
			}
		}
	dlb_graph_release(&selecting.g);
	dlb_graph_release(&all.g);
}

/* PaddedNonZero has room for this many rows per token. */
static void bound(struct dlb_graph *g, int64_t rows)
{
	int found = 0;
	for (int k = 0; k < g->n_ops; k++)
		if (!strcmp(g->op[k].type, "PaddedNonZero")) {
			const struct dlb_dim d = g->tensor[g->op[k].out[0]].dim[1];
			assert(IS(d.mul, ==, rows) && IS(d.add, ==, 0));
			found++;
		}
	assert(IS(found, ==, 1));
}

/* A list has at most as many rows as tokens for experts that a router chose, but may have more for those that
 * it did not choose. */
static void bounds(void)
{
	struct net n;
	struct dlb_error err = { .what = "" };
	for (int i = 0; i < 2; i++) {
		build(&n, i ? permuted : routed, true, 0);
		bound(&n.g, 1);
		dlb_graph_release(&n.g);
	}
	for (int off = 0; off < 2; off++) {
		const double values[2] = { off, 1 - off };
		start(&n, 0);
		const int best = dlb_graph_add_tensor(&n.g, "best", DLB_T_ACTIVATION),
			  which = dlb_graph_add_tensor(&n.g, "which", DLB_T_ACTIVATION);
		dlb_graph_add_op(&n.g, DLB_FORWARD,
				 &(struct dlb_op_spec){ .name = "topk", .type = "TopK",
							DLB_OPERANDS(n.h, INTS(&n.g, 2)),
							.out = (int[]){ best, which }, .n_out = 2 });
		const int hot = plain(&n.g, "OneHot",
				      IN(which, INT(&n.g, 4), constant(&n.g, DLB_I64, 2, values)));
		const int at = where(&n.g, with(&n.g, "Gather", IN(hot, INT(&n.g, 1)), "axis", 2));
		n.g.output[n.g.n_outputs++] = plain(&n.g, "ScatterND",
						    IN(best, at, plain(&n.g, "GatherND", IN(best, at))));
		if (dlb_graph_fold(&n.g, 4, &be, &err))
			test_die(&err);
		bound(&n.g, 1 + off);
		dlb_graph_release(&n.g);
	}
}

/* -- refusals -- */

static int rows_of(struct net *n)
{
	return plain(&n->g, "GatherND", IN(n->h, where(&n->g, above(&n->g, n->x, 0))));
}

static int by_softmax(struct net *n) { return with(&n->g, "Softmax", IN(rows_of(n)), "axis", 0); }
static int by_cumsum(struct net *n) { return plain(&n->g, "CumSum", IN(rows_of(n), INT(&n->g, 0))); }
static int by_max(struct net *n)
{
	return with(&n->g, "ReduceMax", IN(rows_of(n), INTS(&n->g, 0)), "keepdims", 1);
}
static int by_slice(struct net *n)
{
	return plain(&n->g, "Slice", IN(rows_of(n), INTS(&n->g, 1), INTS(&n->g, 1000), INTS(&n->g, 0)));
}
static int by_gather(struct net *n)
{
	return with(&n->g, "Gather", IN(rows_of(n), INTS(&n->g, 0)), "axis", 0);
}
static int by_length(struct net *n) { return plain(&n->g, "Add", IN(rows_of(n), n->h)); }
static int by_einsum(struct net *n)
{
	const struct dlb_attr a = { .name = "equation", .type = DLB_ATTR_STR, .s = "ij->j" };
	return op(&n->g, "Einsum", IN(rows_of(n)), &a, 1);
}
static int by_square(struct net *n)
{
	const int r = rows_of(n);
	return plain(&n->g, "MatMul", IN(plain(&n->g, "Transpose", IN(r)), r));
}
static int by_concat(struct net *n)
{
	const int r = rows_of(n);
	return with(&n->g, "Concat", IN(r, r), "axis", 0);
}
static int by_other(struct net *n)
{
	return plain(&n->g, "Add",
		     IN(rows_of(n), plain(&n->g, "GatherND", IN(n->h, where(&n->g, above(&n->g, n->x, 1))))));
}
static int by_value(struct net *n)
{
	const int r = rows_of(n),
		  count = with(&n->g, "Gather", IN(plain(&n->g, "Shape", IN(r)), INT(&n->g, 0)), "axis", 0);
	return plain(&n->g, "Div", IN(r, with(&n->g, "Cast", IN(count), "to", dlb_dtype_to_onnx(DLB_F64))));
}
static int by_sum(struct net *n) /* another length than the one that is counted */
{
	const int count = with(&n->g, "Gather", IN(plain(&n->g, "Shape", IN(rows_of(n))), INTS(&n->g, 0)),
			       "axis", 0),
		  more = plain(&n->g, "Add", IN(count, INTS(&n->g, 1)));
	return plain(&n->g, "Expand",
		     IN(REAL(&n->g, 1), with(&n->g, "Concat", IN(more, INTS(&n->g, 3)), "axis", 0)));
}
static int by_reshape(struct net *n)	/* reshapes to the shape of another selection */
{
	const int other = plain(&n->g, "GatherND", IN(n->h, where(&n->g, above(&n->g, n->x, 1))));
	return plain(&n->g, "Reshape", IN(rows_of(n), plain(&n->g, "Shape", IN(other))));
}
/* as TorchScript has it */
static int by_count(struct net *n) { return plain(&n->g, "Reshape", IN(rows_of(n), INTS(&n->g, 12))); }
static int by_split(struct net *n) { return with(&n->g, "Split", IN(rows_of(n)), "axis", 0); }
static int by_batch(struct net *n)
{
	const int table = drawn_constant(&n->g, "table", (int64_t[]){ 4, 4 }, 2, false, 5, &(uint64_t){ 50 });
	return plain(&n->g, "GatherND", IN(table, where(&n->g, above(&n->g, n->x, 0))));
}
static int by_scalar(struct net *n)
{
	return plain(&n->g, "NonZero", IN(with(&n->g, "ReduceSum", IN(n->h), "keepdims", 0)));
}
static int by_scatter(struct net *n)
{
	return plain(&n->g, "ScatterND", IN(n->h, where(&n->g, above(&n->g, n->x, 1)), rows_of(n)));
}
static int by_sequence(struct net *n)
{
	return with(&n->g, "ConcatFromSequence",
		    IN(with(&n->g, "SplitToSequence", IN(rows_of(n)), "axis", 0)), "axis", 0);
}
static int by_position(struct net *n)	/* the count is an index into a sequence */
{
	const int list = plain(&n->g, "SequenceConstruct", IN(n->h, n->x));
	return plain(&n->g, "SequenceAt",
		     IN(list, with(&n->g, "Gather", IN(plain(&n->g, "Shape", IN(rows_of(n))), INT(&n->g, 0)),
				   "axis", 0)));
}
static int by_nothing(struct net *n) { return rows_of(n); }

static const struct { int (*make)(struct net *n); const char *where, *what;
} refusals[] = {
	{ by_softmax, "Softmax", "its rows would be mixed with padding" },
	{ by_cumsum, "CumSum", "its rows would be mixed with padding" },
	{ by_max, "ReduceMax", "of reductions over it there are the sum and the mean" },
	{ by_slice, "Slice", "its rows are counted" },
	{ by_gather, "Gather", "rows are named by their number among those that count" },
	{ by_length, "Add", "it meets a tensor of a length of its own" },
	{ by_einsum, "Einsum", "what this vertex makes of padding is not known" },
	{ by_square, "MatMul", "its rows are added up" },
	{ by_concat, "Concat", "padding would stand between rows" },
	{ by_other, "Add", "it meets rows of another selection" },
	{ by_value, "Div", "it is read as a value" },
	{ by_sum, "Add", "it is read as a value" },
	{ by_reshape, "Reshape", "its rows would be cut up" },
	{ by_split, "Split", "its rows are counted" },
	{ by_count, "Reshape",
	  "the shapes agree at most for the length that it had when the model was exported" },
	{ by_batch, "GatherND",
	  "holds the batch of 4 that the model was exported with, and rows of it are named by where they "
	  "stand in 'Greater" },
	{ by_scalar, "NonZero",
	  "the input is one value that is not known before the run, and so is whether there is an output" },
	{ by_scatter, "ScatterND", "data, indices and updates are not of one selection" },
	{ by_sequence, "SplitToSequence", "it would decide what is run" },
	{ by_position, "SequenceAt", "it would decide what is run" },
	{ by_nothing, "GatherND", "the length of the output follows values, those of 'Greater" },
};

static void refuse(void)
{
	for (int i = 0; i < DLB_LEN(refusals); i++) {
		struct dlb_error err = { .what = "" };
		struct net n;
		start(&n, refusals[i].make == by_batch ? 4 : 0);
		n.g.output[n.g.n_outputs++] = refusals[i].make(&n);
		const int rc = dlb_graph_fold(&n.g, refusals[i].make == by_batch ? 8 : 4, &be, &err);
		if (rc != -1 || !strstr(err.where, refusals[i].where) ||
		    !strstr(err.what, refusals[i].what) || !*err.hint) {
			fprintf(stderr, "%s: %d, %s: %s; %s\n", refusals[i].where, rc, err.where, err.what,
				err.hint);
			abort();
		}
		if (refusals[i].make == by_batch) /* names the inputs */
			assert(SAME(err.hint,
				    "torch.onnx.export(..., dynamic_shapes={\"x\": {0: \"batch\"}}) "
				    "leaves the batch open"));
		dlb_graph_release(&n.g);
	}
}

int main(void)
{
	test_backend(&be);
	for (int i = 0; i < DLB_LEN(nets); i++) {
		compare(i, 0);
		compare(i, 4);
	}
	bounds();
	refuse();
	be.ops->close(&be);
	printf("ragged: %d gradients of %d networks, %d refusals\n", n_compared, DLB_LEN(nets),
	       DLB_LEN(refusals));
	return 0;
}
