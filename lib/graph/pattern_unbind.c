/* unbind as exporters write it: a tensor is split along a dimension, one index per part (such as Q, K and V
 * of one product):
 *
 *     x  Transpose  Gather(0), Gather(1), Gather(2)   ->   x  Split  Reshape (Transpose), thrice
 *
 * Slices of one index match too. The gradient is a Concat instead of a sum of one zero-padded tensor per
 * part. The Split reads x itself: the Transpose of the whole tensor is dropped, and products absorb the
 * remaining Transposes of parts. */
#include <string.h>
#include "graph/order.h"
#include "graph/pattern.h"
#include "graph/rewrites.h"

enum { MOST_PARTS = 16 };

/* Tensor t is split along `axis`. op[k] takes index k and drops the dimension, or op[k] is a view that drops
 * the dimension and the only reader of slice[k], a Slice that takes index k. t is `source` transposed by
 * perm. */
struct unbind {
	struct dlb_graph *g;
	int t, axis, n, op[MOST_PARTS], slice[MOST_PARTS];
	int source, transpose;		/* transpose -1: source is t itself */
	int64_t perm[DLB_MAX_DIMS];
};

/* -- matching -- */

/* Does op i take one index of tensor t? Sets *axis and *index. */
static bool takes_one(const struct dlb_graph *g, int i, int t, int *axis, int64_t *index)
{
	int64_t count;

	return g->op[i].in[0] == t && dlb_is_range(g, i, axis, index, &count) && count == 1 &&
		(dlb_is_op(g, i, "Slice") || g->tensor[g->op[i].in[1]].n_dims == 0);
}

/* Does y have the dimensions of x without `axis`? */
static bool drops(const struct dlb_tensor *x, const struct dlb_tensor *y, int axis)
{
	for (int k = 0, j = 0; k < x->n_dims && y->n_dims == x->n_dims - 1; k++)
		if (k != axis && (x->dim[k].mul != y->dim[j].mul || x->dim[k].add != y->dim[j++].add))
			return false;
	return y->n_dims == x->n_dims - 1;
}

/* The only reader of Slice i if it is a view that drops the dimension; -1: none. */
static int dropping(const struct unbind *u, int i)
{
	static const char *const views[] = { "Squeeze", "Reshape" };
	const struct dlb_graph *g = u->g;
	const int out = g->op[i].out[0],
		  reader = dlb_match_read_once(g, out) ? g->reader[g->reader_start[out]] : -1;

	for (int k = 0; k < DLB_LEN(views); k++)
		if (dlb_is_op(g, reader, views[k]) && g->op[reader].in[0] == out &&
		    drops(&g->tensor[u->t], &g->tensor[g->op[reader].out[0]], u->axis))
			return reader;
	return -1;
}

/* Does every reader of u->t take one index along the same axis, and is each index taken once? */
static bool match(struct unbind *u)
{
	const struct dlb_graph *g = u->g;
	const struct dlb_tensor *x = &g->tensor[u->t];
	const int first = g->reader_start[u->t], n = g->reader_start[u->t + 1] - first;

	if (n < 2 || n > MOST_PARTS || x->n_dims < 2 || dlb_graph_is_output(g, u->t) || u->t == g->loss ||
	    x->kind != DLB_T_ACTIVATION)
		return false;
	for (int k = 0; k < MOST_PARTS; k++)
		u->op[k] = u->slice[k] = -1;
	for (int r = 0; r < n; r++) {
		const int op = g->reader[first + r];
		int axis;
		int64_t index;
		if (!takes_one(g, op, u->t, &axis, &index) || (r && axis != u->axis) ||
		    x->dim[axis].add != n || u->op[index] >= 0)
			return false;
		u->axis = axis;
		const int view = dlb_is_op(g, op, "Slice") ? dropping(u, op) : -1;
		u->op[index] = view >= 0 ? view : op;
		u->slice[index] = view >= 0 ? op : -1;
	}
	u->n = n;
	return true;
}

/* Uses the operand of the Transpose that makes t as source, if nothing else reads t. */
static void find_source(struct unbind *u)
{
	const struct dlb_graph *g = u->g;
	const int op = g->tensor[u->t].producer, n = g->tensor[u->t].n_dims;
	const int64_t *perm;

	u->source = u->t;
	u->transpose = -1;
	for (int k = 0; k < n; k++)
		u->perm[k] = k;
	if (!dlb_is_op(g, op, "Transpose") ||
	    dlb_attr_ints(g->op[op].attr, g->op[op].n_attr, "perm", &perm) != n)
		return;
	memcpy(u->perm, perm, (size_t)n * sizeof *perm);
	u->source = g->op[op].in[0];
	u->transpose = op;
}

/* -- replacement -- */

/* Splits the source into parts of one index each. -1 with err. */
static int split(struct unbind *u, int *part, struct dlb_error *err)
{
	struct dlb_graph *g = u->g;
	const char *name = dlb_graph_op_name(g,
					     dlb_arena_printf(&g->arena, "%s.unbind", g->tensor[u->t].name));
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = u->perm[u->axis] };
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { u->n } };
	int64_t ones[MOST_PARTS];

	for (int k = 0; k < u->n; k++)
		ones[k] = 1;
	const int in[2] = { u->source,
			    dlb_graph_add_constant(g, dlb_arena_printf(&g->arena, "%s.parts", name), &d, ones,
						   NULL) };
	for (int k = 0; k < u->n; k++)
		part[k] = dlb_graph_add_tensor(g,
					       dlb_graph_tensor_name(g, dlb_arena_printf(&g->arena, "%s.%d",
											 name, k)),
					       DLB_T_ACTIVATION);
	/* opset: the first version with the operand `split` */
	const struct dlb_op_spec spec = { .name = name, .type = "Split", .in = in, .n_in = 2, .out = part,
					  .n_out = u->n, .attr = &axis, .n_attr = 1, .opset = 13 };
	const int op = dlb_graph_add_op(g, DLB_FORWARD, &spec);
	for (int k = 0; k < u->n; k++)
		g->tensor[part[k]].producer = op;
	return dlb_graph_infer_new(g, op, err);
}

/* Fills perm with the order of the source's dimensions in the result, without the split dimension. Returns
 * whether it is ascending. */
static bool rest(const struct unbind *u, int n, int64_t *perm)
{
	bool in_order = true;
	int at = 0;

	for (int k = 0; k < n; k++)
		if (k != u->axis) {
			perm[at] = u->perm[k] - (u->perm[k] > u->perm[u->axis]);
			in_order &= perm[at] == at;
			at++;
		}
	return in_order;
}

/* Op u->op[k] becomes a view of its part, or a Transpose of a view. */
static int put_part(struct unbind *u, int k, int part, struct dlb_error *err)
{
	struct dlb_graph *g = u->g;
	struct dlb_match m = { .g = g, .root = u->op[k] };
	const struct dlb_tensor result = g->tensor[g->op[m.root].out[0]], x = g->tensor[part];
	const char *name = g->op[m.root].name;
	struct dlb_dim dim[DLB_MAX_DIMS];
	int64_t perm[DLB_MAX_DIMS], ignored = 0;
	int t = part, n = 0;

	if (u->slice[k] >= 0)
		m.op[m.n++] = u->slice[k];
	/* keeps: the result has the split dimension, with size 1 */
	const bool keeps = result.n_dims == x.n_dims, in_order = rest(u, x.n_dims, perm);
	for (int i = 0; i < x.n_dims; i++)
		if (i != u->perm[u->axis])
			dim[n++] = x.dim[i];
	if (in_order) {
		const int in[2] = { part, dlb_match_shape(g, name, result.dim, result.n_dims) };
		return dlb_match_fuse(&m, &(struct dlb_op_spec){ .type = "Reshape", .in = in, .n_in = 2 }, -1,
				      &ignored, err);
	}
	if (!keeps) {
		const int in[2] = { part, dlb_match_shape(g, name, dim, n) };
		const char *own = dlb_arena_printf(&g->arena, "%s.part", name);
		t = dlb_graph_add_forward(g, &(struct dlb_op_spec){ .name = own, .type = "Reshape", .in = in,
								    .n_in = 2 }, err);
	}
	const struct dlb_attr order = { .name = "perm",
					.type = DLB_ATTR_INTS,
					.ints = keeps ? u->perm : perm,
					.n = keeps ? x.n_dims : n };
	return t < 0 ? -1 : dlb_match_fuse(&m, DLB_SPEC_ATTR("Transpose", &order, 1, t), -1, &ignored, err);
}

/* Replaces the ops that take parts; puts all new ops before the first of them. */
static int replace(struct unbind *u, struct dlb_added *added, int64_t *count, struct dlb_error *err)
{
	struct dlb_graph *g = u->g;
	const int n_ops = g->n_ops;
	int part[MOST_PARTS], first = n_ops;

	for (int k = 0; k < u->n; k++) {
		const int op = u->slice[k] >= 0 ? u->slice[k] : u->op[k];
		first = op < first ? op : first;
	}
	if (split(u, part, err))
		return -1;
	for (int k = 0; k < u->n; k++)
		if (put_part(u, k, part[k], err))
			return -1;
	added[first] = (struct dlb_added){ n_ops, g->n_ops - n_ops };
	if (u->transpose >= 0)
		g->op[u->transpose].n_in = g->op[u->transpose].n_out = 0;
	dlb_graph_index(g);
	(*count)++;
	return 0;
}

int dlb_rewrite_unbind(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	const int n_ops = g->n_ops, n_tensors = g->n_tensors;
	struct dlb_added *added = dlb_arena_array(&g->arena, (size_t)n_ops + 1, sizeof *added);

	memset(added, 0, (size_t)n_ops * sizeof *added);
	for (int t = 0; t < n_tensors; t++) {
		struct unbind u = { .g = g, .t = t };
		if (!match(&u))
			continue;
		find_source(&u);
		if (replace(&u, added, count, err))
			return -1;
	}
	if (*count)
		dlb_graph_place_added(g, added, n_ops);
	return 0;
}
