/* Moves a Gather or Slice of some rows towards the inputs, through ops that compute rows independently, so
 * that the other rows are not computed. A classifier that reads one token of the last block then computes the
 * products of that block for one token, and its attention for one query:
 *
 *     x (N,T,E)  MatMul  Add  Gelu  MatMul  Add  Gather(token 0)   ->   x  Slice(token 0)  MatMul  Add  Gelu  MatMul  Add
 *
 * A backward pass over the graph finds the rows that the readers of each tensor want. If all readers want the
 * same rows, or rows within one range, and the producer has a rule, it computes that range only; those of its
 * operands that are computed whole are sliced. Rows merged into a larger dimension by a Reshape are followed,
 * and sliced between two Reshapes. */
#include <stdlib.h>
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

/* Rows [first, first + count) of the `of` rows along dimension `dim`. The dimension may hold `inner` elements
 * per row, and repeat all rows several times. count 0: the whole tensor. */
struct row_range { int dim; int64_t of, first, count; struct dlb_size inner; };
enum { WANTED_BY_NONE, WANTED_ROWS, WANTED_WHOLE };

struct row_cut { int tensor, result; struct row_range rows; };
struct narrowing {
	struct dlb_graph *g;
	char *wanted;			/* per tensor */
	struct row_range *rows;		/* per tensor, where WANTED_ROWS */
	char *narrow, *saves;		/* per op: it computes only rows[] of its output; doing so saves
					 * work */
	struct row_cut *cut;		/* slices that were added */
	int n_cuts;
};

/* -- rules: the rows of each operand that an op needs for rows y of its output -- */

/* Sets need[k] for each operand (count 0: whole). Returns false if there is no rule for these rows. */
typedef bool rule_fn(const struct dlb_graph *g, const struct dlb_op *o, const struct row_range *y,
		     struct row_range *need);

static int n_dims(const struct dlb_graph *g, int t)
{
	return g->tensor[t].n_dims;
}

/* Broadcasting as in numpy: dimensions correspond from the last one. */
static bool broadcast(const struct dlb_graph *g, const struct dlb_op *o, const struct row_range *y,
		      struct row_range *need)
{
	const struct dlb_tensor *out = &g->tensor[o->out[0]];

	for (int k = 0; k < o->n_in; k++) {
		if (o->in[k] < 0)
			continue;
		const struct dlb_tensor *x = &g->tensor[o->in[k]];
		const int d = y->dim - (out->n_dims - x->n_dims);
		if (d < 0 || (!x->dim[d].mul && x->dim[d].add == 1))
			continue;
		if (x->dim[d].mul != out->dim[y->dim].mul || x->dim[d].add != out->dim[y->dim].add)
			return false;
		need[k] = *y;
		need[k].dim = d;
	}
	return true;
}

/* Operand 0 has the shape of the output; the rows must lie along a dimension before `axis`, since the
 * dimensions from `axis` on belong together. */
static bool rows_before(const struct dlb_graph *g, const struct dlb_op *o, const struct row_range *y,
			struct row_range *need)
{
	const int n = n_dims(g, o->in[0]);
	const int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", -1);

	need[0] = *y;
	return y->dim < (axis < 0 ? axis + n : axis) &&
	       (o->opset >= 13 || strstr(o->type, "Softmax") == NULL);
}

static bool matmul(const struct dlb_graph *g, const struct dlb_op *o, const struct row_range *y,
		   struct row_range *need)
{
	const int n = n_dims(g, o->out[0]), a = n_dims(g, o->in[0]), b = n_dims(g, o->in[1]);

	if (a < 2 || b < 2 || y->dim == n - 1)
		return false;
	if (y->dim < n - 2)
		return broadcast(g, o, y, need);
	need[0] = *y;
	need[0].dim = a - 2;
	return true;
}

static bool gemm(const struct dlb_graph *g, const struct dlb_op *o, const struct row_range *y,
		 struct row_range *need)
{
	const struct dlb_tensor *c = o->n_in > 2 && o->in[2] >= 0 ? &g->tensor[o->in[2]] : NULL;

	if (y->dim != 0 || (c && c->n_dims == 2 && (c->dim[0].mul || c->dim[0].add != 1)))
		return false;
	need[0] = *y;
	need[0].dim = dlb_attr_int(o->attr, o->n_attr, "transA", 0) != 0;
	return true;
}

static bool transpose(const struct dlb_graph *g, const struct dlb_op *o, const struct row_range *y,
		      struct row_range *need)
{
	const int64_t *perm;
	const int n = dlb_attr_ints(o->attr, o->n_attr, "perm", &perm);

	need[0] = *y;
	need[0].dim = n ? (int)perm[y->dim] : n_dims(g, o->in[0]) - 1 - y->dim;
	return true;
}

/* Elements per index of dimension d. */
static bool behind(const struct dlb_tensor *t, int d, struct dlb_size *s)
{
	*s = (struct dlb_size){ 1, 0 };
	for (int i = d + 1; i < t->n_dims; i++) {
		struct dlb_size one;
		if (!dlb_size_of(t->dim[i], &one) || one.c > INT64_MAX / s->c)
			return false;
		*s = (struct dlb_size){ s->c * one.c, s->e + one.e };
	}
	return true;
}

/* Reshapes: the dimension of the operand that contains the rows, each with all its elements. */
static bool view(const struct dlb_graph *g, const struct dlb_op *o, const struct row_range *y,
		 struct row_range *need)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]], *out = &g->tensor[o->out[0]];
	struct dlb_size row, step, dim;

	if (!behind(out, y->dim, &row) || y->inner.c > INT64_MAX / row.c)
		return false;
	row = (struct dlb_size){ row.c * y->inner.c, row.e + y->inner.e };	/* elements per row */
	for (int d = x->n_dims - 1; d >= 0; d--) {
		if (!behind(x, d, &step) || !dlb_size_of(x->dim[d], &dim) || !dlb_size_divides(step, row))
			return false;
		const struct dlb_size inner = dlb_size_quotient(row, step);
		if (inner.c > INT64_MAX / y->of)
			return false;
		if (!dlb_size_divides((struct dlb_size){ inner.c * y->of, inner.e }, dim))
			continue;
		need[0] = *y;
		need[0].dim = d;
		need[0].inner = inner;
		return true;
	}
	return false;
}

static const struct { const char *type; rule_fn *rule; bool product;
} rules[] = {
	{ "MatMul", matmul, true },
	{ "Gemm", gemm, true },
	{ "Reshape", view, false },
	{ "Squeeze", view, false },
	{ "Unsqueeze", view, false },
	{ "Flatten", view, false },
	{ "Transpose", transpose, false },
	{ "LayerNormalization", rows_before, false },
	{ "RMSNormalization", rows_before, false },
	{ "Softmax", rows_before, false },
	{ "LogSoftmax", rows_before, false },
	{ "Add", broadcast, false },
	{ "Sub", broadcast, false },
	{ "Mul", broadcast, false },
	{ "Div", broadcast, false },
	{ "Sum", broadcast, false },
	{ "Where", broadcast, false },
	{ "Pow", broadcast, false },
	{ "SwiGLU", broadcast, false },
	{ "Relu", broadcast, false },
	{ "LeakyRelu", broadcast, false },
	{ "Elu", broadcast, false },
	{ "Sigmoid", broadcast, false },
	{ "HardSigmoid", broadcast, false },
	{ "HardSwish", broadcast, false },
	{ "Swish", broadcast, false },
	{ "Mish", broadcast, false },
	{ "Gelu", broadcast, false },
	{ "Tanh", broadcast, false },
	{ "Erf", broadcast, false },
	{ "Exp", broadcast, false },
	{ "Sqrt", broadcast, false },
	{ "Reciprocal", broadcast, false },
	{ "Neg", broadcast, false },
	{ "Cast", broadcast, false },
	{ "Identity", broadcast, false },
	{ "IsNaN", broadcast, false },
	{ "Softplus", broadcast, false },
};

static int rule_of(const struct dlb_graph *g, int i)
{
	for (int r = 0; r < DLB_LEN(rules); r++)
		if (dlb_is_op(g, i, rules[r].type))
			return r;
	return -1;
}

static bool same_rows(const struct row_range *a, const struct row_range *b)
{
	return a->dim == b->dim && a->of == b->of && a->first == b->first && a->count == b->count &&
	       a->inner.c == b->inner.c && a->inner.e == b->inner.e;
}

/* -- the rows that readers want -- */

/* Sets need[n_in] to the rows that op i needs of its operands; false: it needs all operands whole. */
static bool needs(const struct narrowing *n, int i, struct row_range *need)
{
	const struct dlb_graph *g = n->g;
	const struct dlb_op *o = &g->op[i];
	int axis;
	int64_t first, count;

	memset(need, 0, (size_t)o->n_in * sizeof *need);
	if (n->narrow[i])
		return rules[rule_of(g, i)].rule(g, o, &n->rows[o->out[0]], need);
	if (!dlb_is_range(g, i, &axis, &first, &count) || g->tensor[o->in[0]].dim[axis].add == count)
		return false;
	need[0] = (struct row_range){ .dim = axis,
				      .of = g->tensor[o->in[0]].dim[axis].add,
				      .first = first,
				      .count = count,
				      .inner = { 1, 0 } };
	return true;
}

/* Adds the rows that one more reader of tensor t wants: two ranges become the range that spans both. */
static void want(struct narrowing *n, int t, const struct row_range *r)
{
	struct row_range *have = &n->rows[t];

	if (!r->count || n->wanted[t] == WANTED_WHOLE) {
		n->wanted[t] = WANTED_WHOLE;
	} else if (n->wanted[t] == WANTED_BY_NONE) {
		n->wanted[t] = WANTED_ROWS;
		*have = *r;
	} else {
		struct row_range both = *r;
		const int64_t end = r->first + r->count > have->first + have->count ?
					    r->first + r->count :
					    have->first + have->count;
		both.first = r->first < have->first ? r->first : have->first;
		both.count = end - both.first;
		struct row_range as_have = *have;
		as_have.first = both.first;
		as_have.count = both.count;
		n->wanted[t] = same_rows(&both, &as_have) && both.count < both.of ? WANTED_ROWS :
										    WANTED_WHOLE;
		*have = both;
	}
}

/* Does dimension r->dim of x hold more than one index per row? */
static bool is_merged(const struct dlb_tensor *x, const struct row_range *r)
{
	return x->dim[r->dim].mul || x->dim[r->dim].add != r->of;
}

/* Can a Slice take these rows of x? Merged rows need Reshapes to dimensions that are
 * products of those of x. */
static bool can_cut(const struct dlb_tensor *x, const struct row_range *r)
{
	struct dlb_size s;

	for (int d = 0; d < x->n_dims && is_merged(x, r); d++)
		if (!dlb_size_of(x->dim[d], &s))
			return false;
	return true;
}

/* Are only some rows of output 0 of op i and none of its other outputs read, and is there a rule for these
 * rows? */
static bool can_narrow(const struct narrowing *n, int i, struct row_range *need)
{
	const struct dlb_graph *g = n->g;
	const struct dlb_op *o = &g->op[i];
	const int r = rule_of(g, i);

	if (r < 0 || n->wanted[o->out[0]] != WANTED_ROWS)
		return false;
	for (int k = 1; k < o->n_out; k++)
		if (o->out[k] >= 0 && n->wanted[o->out[k]] != WANTED_BY_NONE)
			return false;
	memset(need, 0, (size_t)o->n_in * sizeof *need);
	if (!rules[r].rule(g, o, &n->rows[o->out[0]], need))
		return false;
	for (int k = 0; k < o->n_in; k++)
		if (need[k].count && !can_cut(&g->tensor[o->in[k]], &need[k]))
			return false;
	return true;
}

/* Does computing fewer rows of op i save work? Yes if it is a product, if it does work and only one operand
 * is sliced, or if it follows such an op. An Add without a product before it would have two operands sliced
 * instead of its one result. */
static bool saves(const struct narrowing *n, int i, const struct row_range *need)
{
	const struct dlb_op *o = &n->g->op[i];
	int n_cut = 0;

	if (!n->narrow[i])
		return false;
	for (int k = 0; k < o->n_in; k++) {
		const int before = o->in[k] < 0 ? -1 : n->g->tensor[o->in[k]].producer;
		if (before >= 0 && n->saves[before])
			return true;
		n_cut += need[k].count > 0;
	}
	return rules[rule_of(n->g, i)].product || (n_cut == 1 && !dlb_is_view(n->g, i));
}

static void find(struct narrowing *n)
{
	struct dlb_graph *g = n->g;
	int most = 0;

	for (int i = 0; i < g->n_ops; i++)
		most = g->op[i].n_in > most ? g->op[i].n_in : most;
	struct row_range *need = dlb_xcalloc((size_t)most + 1, sizeof *need);
	for (int i = 0; i < g->n_outputs; i++)
		n->wanted[g->output[i]] = WANTED_WHOLE;
	if (g->loss >= 0)
		n->wanted[g->loss] = WANTED_WHOLE;
	for (int i = g->n_ops - 1; i >= 0; i--) {
		const struct dlb_op *o = &g->op[i];
		n->narrow[i] = o->n_out && can_narrow(n, i, need);
		needs(n, i, need);
		for (int k = 0; k < o->n_in; k++)
			if (o->in[k] >= 0)
				want(n, o->in[k], &need[k]);
	}
	for (int i = 0; i < g->n_ops; i++) {
		needs(n, i, need);
		n->narrow[i] &= n->saves[i] = saves(n, i, need);
	}
	free(need);
}

/* -- replacement -- */

static struct dlb_dim times(struct dlb_dim d, int64_t count, int64_t of)
{
	return (struct dlb_dim){ .mul = d.mul / of * count, .add = d.add / of * count };
}

static int reshape(struct dlb_graph *g, int t, const char *name, const struct dlb_dim *dim, int n,
		   struct dlb_error *err)
{
	const int in[2] = { t, dlb_match_shape(g, name, dim, n) };

	return dlb_graph_add_forward(g,
				     &(struct dlb_op_spec){ .name = name, .type = "Reshape", .in = in,
							    .n_in = 2 }, err);
}

/* The dimensions of x, which has merged rows, as (indices before the rows, rows, elements per row). */
static void take_apart(const struct dlb_tensor *x, const struct row_range *r, struct dlb_dim apart[3])
{
	struct dlb_size all = { 1, 0 }, step, one;

	for (int d = 0; d < x->n_dims; d++) {
		dlb_size_of(x->dim[d], &one);
		all = (struct dlb_size){ all.c * one.c, all.e + one.e };
	}
	behind(x, r->dim, &step);
	step = (struct dlb_size){ step.c * r->inner.c, step.e + r->inner.e };
	apart[0] = dlb_size_dim(dlb_size_quotient(all, (struct dlb_size){ step.c * r->of, step.e }));
	apart[1] = (struct dlb_dim){ .add = r->of };
	apart[2] = dlb_size_dim(step);
}

/* Adds a Slice for rows r of tensor t, between Reshapes if rows are merged. -1 with err. */
static int slice(struct dlb_graph *g, int t, const struct row_range *r, struct dlb_error *err)
{
	const struct dlb_tensor x = g->tensor[t];
	const bool merged = is_merged(&x, r);
	const char *name = dlb_arena_printf(&g->arena, "%s.rows", x.name);
	const struct dlb_desc one = { .dtype = DLB_I64, .n_dims = 1, .dim = { 1 } };
	const int64_t axis = merged ? 1 : r->dim, end = r->first + r->count;
	struct dlb_dim apart[3], dim[DLB_MAX_DIMS];

	if (merged) {
		take_apart(&x, r, apart);
		t = reshape(g, t, name, apart, 3, err);
	}
	if (t < 0)
		return -1;
	const int in[4] = { t, dlb_graph_add_constant(g, name, &one, &r->first, NULL),
			    dlb_graph_add_constant(g, name, &one, &end, NULL),
			    dlb_graph_add_constant(g, name, &one, &axis, NULL) };
	t = dlb_graph_add_forward(g,
				  &(struct dlb_op_spec){ .name = name, .type = "Slice", .in = in, .n_in = 4 },
				  err);
	if (t < 0 || !merged)
		return t;
	memcpy(dim, x.dim, sizeof dim);
	dim[r->dim] = times(dim[r->dim], r->count, r->of);
	return reshape(g, t, name, dim, x.n_dims, err);
}

/* Rows r of tensor t: t itself if it has no other rows, else a Slice, made once. -1 with err. */
static int take(struct narrowing *n, int t, struct row_range r, struct dlb_error *err)
{
	struct dlb_graph *g = n->g;
	const int before = g->tensor[t].producer;

	if (before >= 0 && n->narrow[before]) {		/* it computes n->rows[t] only */
		if (same_rows(&r, &n->rows[t]))
			return t;
		r.first -= n->rows[t].first;
		r.of = n->rows[t].count;
	}
	for (int i = 0; i < n->n_cuts; i++)
		if (n->cut[i].tensor == t && same_rows(&n->cut[i].rows, &r))
			return n->cut[i].result;
	const int result = slice(g, t, &r, err);
	if (result >= 0)
		n->cut[n->n_cuts++] = (struct row_cut){ t, result, r };
	return result;
}

/* Makes op i a Reshape of t to these dimensions. */
static int become_view(struct dlb_graph *g, int i, int t, const struct dlb_dim *dim, int n,
		       struct dlb_error *err)
{
	struct dlb_match m = { .g = g, .root = i };
	const int in[2] = { t, dlb_match_shape(g, g->op[i].name, dim, n) };
	int64_t ignored = 0;

	return dlb_match_fuse(&m, &(struct dlb_op_spec){ .type = "Reshape", .in = in, .n_in = 2 }, -1,
			      &ignored, err);
}

/* Makes op i compute rows y only, from rows need[] of its operands. */
static int narrow(struct narrowing *n, int i, const struct row_range *need, struct dlb_error *err)
{
	struct dlb_graph *g = n->g;
	const struct row_range *y = &n->rows[g->op[i].out[0]];

	for (int k = 0; k < g->op[i].n_in; k++)
		if (g->op[i].in[k] >= 0 && need[k].count) {
			const int t = take(n, g->op[i].in[k], need[k], err);
			if (t < 0)
				return -1;
			g->op[i].in[k] = t;
		}
	if (!dlb_is_view(g, i))
		return dlb_graph_infer_new(g, i, err);
	const struct dlb_tensor out = g->tensor[g->op[i].out[0]];
	struct dlb_dim dim[DLB_MAX_DIMS];
	memcpy(dim, out.dim, sizeof dim);
	dim[y->dim] = times(dim[y->dim], y->count, y->of);
	return become_view(g, i, g->op[i].in[0], dim, out.n_dims, err);
}

/* Rules use the original shapes, so the needs of all ops are collected before any change. */
static int apply(struct narrowing *n, int64_t *count, struct dlb_error *err)
{
	struct dlb_graph *g = n->g;
	const int n_ops = g->n_ops;
	struct dlb_added *added = dlb_xcalloc((size_t)n_ops + 1, sizeof *added);
	struct row_range **need = dlb_xcalloc((size_t)n_ops + 1, sizeof *need);
	int rc = 0;

	for (int i = 0; i < n_ops; i++) {
		need[i] = dlb_xcalloc((size_t)g->op[i].n_in + 1, sizeof **need);
		if (!needs(n, i, need[i]))
			memset(need[i], 0, (size_t)g->op[i].n_in * sizeof **need);
	}
	for (int i = 0; i < n_ops && !rc; i++) {
		added[i].first = g->n_ops;
		const int before = g->op[i].n_in && g->op[i].in[0] >= 0 ? g->tensor[g->op[i].in[0]].producer :
									  -1;
		if (n->narrow[i]) {
			rc = narrow(n, i, need[i], err);
		} else if (g->op[i].n_in && need[i][0].count && before >= 0 &&
			   n->narrow[before]) { /* the selecting op */
			const struct dlb_tensor out = g->tensor[g->op[i].out[0]];
			const int t = take(n, g->op[i].in[0], need[i][0], err);
			rc = t < 0 ? -1 : become_view(g, i, t, out.dim, out.n_dims, err);
			++*count;
		}
		added[i].n = g->n_ops - added[i].first;
	}
	if (!rc && *count)
		dlb_graph_place_added(g, added, n_ops);
	for (int i = 0; i < n_ops; i++)
		free(need[i]);
	free(need);
	free(added);
	return rc;
}

int dlb_rewrite_selected_rows(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	size_t n_operands = 0;

	for (int i = 0; i < g->n_ops; i++)
		n_operands += (size_t)g->op[i].n_in;
	struct narrowing n = { .g = g,
			       .wanted = dlb_xcalloc((size_t)g->n_tensors + 1, 1),
			       .rows = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *n.rows),
			       .narrow = dlb_xcalloc((size_t)g->n_ops + 1, 1),
			       .saves = dlb_xcalloc((size_t)g->n_ops + 1, 1),
			       .cut = dlb_xcalloc(n_operands + 1, sizeof *n.cut) };
	find(&n);
	const int rc = apply(&n, count, err);
	free(n.wanted);
	free(n.rows);
	free(n.narrow);
	free(n.saves);
	free(n.cut);
	return rc;
}
