/* RotaryEmbedding as transformers writes it, over heads of width 2h, becomes the operator:
 *
 *     x * cos + Concat(-x[..., h:], x[..., :h]) * sin   ->   RotaryEmbedding(x, cos[..., :h], sin[..., :h])
 *
 * The tables are constants with one row per position, the same for all samples and heads, and both
 * halves of a row are equal.
 *
 * A Transpose of x moves behind the RotaryEmbedding, so that attention can read through the Transpose:
 *
 *     RotaryEmbedding(Transpose(x))   ->   Transpose(RotaryEmbedding(x, axesX = perm)) */
#include <string.h>
#include "graph/order.h"
#include "graph/pattern.h"
#include "graph/rewrites.h"

/* If t is x[..., 0 : h] or, with `second`, x[..., h : 2h], by a Slice or a Split in
 * two, returns x; else -1. */
static int half_of(struct dlb_match *m, int t, bool second)
{
	const struct dlb_graph *g = m->g;
	const int op = t < 0 ? -1 : g->tensor[t].producer;
	int axis;
	int64_t first, count;

	if (dlb_is_op(g, op, "Split")) {
		const struct dlb_op *o = &g->op[op];
		const int n = g->tensor[o->in[0]].n_dims;
		const int64_t along = dlb_attr_int(o->attr, o->n_attr, "axis", 0);
		if (o->n_out != 2 || o->out[second] != t || (along != -1 && along != n - 1) ||
		    !dlb_match_same_shape(g, o->out[0], o->out[1]))
			return -1;
		if (second)
			m->op[m->n++] = op;		/* recorded once: this half is visited first */
		return o->in[0];
	}
	if (dlb_match_op(m, t, "Slice") < 0 || !dlb_is_range(g, op, &axis, &first, &count))
		return -1;
	const struct dlb_tensor *x = &g->tensor[g->op[op].in[0]];
	return axis == x->n_dims - 1 && x->dim[axis].add == 2 * count && first == (second ? count : 0) ?
		       g->op[op].in[0] :
		       -1;
}

/* If t = Concat(-x[..., h:], x[..., :h]), returns x; else -1. */
static int rotated(struct dlb_match *m, int t)
{
	const struct dlb_graph *g = m->g;
	const int concat = dlb_match_op(m, t, "Concat");

	if (concat < 0 || g->op[concat].n_in != 2)
		return -1;
	const struct dlb_op *o = &g->op[concat];
	const int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", 0);
	const int neg = dlb_match_op(m, o->in[0], "Neg");
	const int x = neg < 0 ? -1 : half_of(m, g->op[neg].in[0], true);
	return x >= 0 && (axis == -1 || axis == g->tensor[x].n_dims - 1) && half_of(m, o->in[1], false) == x ?
		       x :
		       -1;
}

/* The first half of each row of constant t, as (1, rows, h), for x of (batch, heads, rows, 2h);
 * -1: t is no such table. */
static int half_table(struct dlb_graph *g, int t, int x)
{
	const struct dlb_tensor *table = &g->tensor[t], *of = &g->tensor[x];
	const struct dlb_desc d = dlb_tensor_desc(table, 1);
	const int n = table->n_dims;

	if (n < 2 || table->kind != DLB_T_CONSTANT || !table->data || table->data_mul ||
	    table->dtype != of->dtype || of->dim[2].mul || of->dim[3].mul || d.dim[n - 1] != of->dim[3].add ||
	    d.dim[n - 2] != of->dim[2].add || dlb_desc_count(&d) != d.dim[n - 1] * d.dim[n - 2])
		return -1;
	const int64_t rows = d.dim[n - 2], h = d.dim[n - 1] / 2;
	const size_t row = (size_t)h * dlb_dtype_bytes(table->dtype);
	char *half = dlb_arena_alloc(&g->arena, (size_t)rows * row);
	for (int64_t i = 0; i < rows; i++) {
		const char *at = (const char *)table->data + (size_t)i * 2 * row;
		if (memcmp(at, at + row, row))
			return -1;
		memcpy(half + (size_t)i * row, at, row);
	}
	const struct dlb_desc to = { .dtype = table->dtype, .n_dims = 3, .dim = { 1, rows, h } };
	return dlb_graph_add_constant(g, dlb_arena_printf(&g->arena, "%s.half", table->name), &to, half,
				      NULL);
}

/* Is operand k of Add i x * cos, and the other operand rotated(x) * sin? Sets in[] = {x, cos, sin}. */
static bool match(struct dlb_match *m, int i, int k, int in[3])
{
	const struct dlb_graph *g = m->g;
	const int plain = dlb_match_op(m, g->op[i].in[k], "Mul"),
		  turned = dlb_match_op(m, g->op[i].in[1 - k], "Mul");

	if (plain < 0 || turned < 0 || plain == turned)
		return false;
	for (int j = 0; j < 2; j++) {
		struct dlb_match with = *m;
		in[0] = rotated(&with, g->op[turned].in[j]);
		in[1] = in[0] < 0 ? -1 : dlb_match_other(&with, plain, in[0]);
		in[2] = g->op[turned].in[1 - j];
		if (in[1] >= 0 && g->tensor[in[0]].n_dims == 4 &&
		    dlb_match_same_shape(g, in[0], g->op[i].out[0]) && dlb_match_closed(&with)) {
			*m = with;
			return true;
		}
	}
	return false;
}

/* Is the root a RotaryEmbedding that reads a Transpose of four dimensions, which no other op reads? */
static bool reads_transposed(struct dlb_match *m, const int64_t **perm)
{
	const struct dlb_graph *g = m->g;
	const struct dlb_op *o = &g->op[m->root];

	if (!dlb_is_op(g, m->root, "RotaryEmbedding") || g->tensor[o->in[0]].n_dims != 4 ||
	    dlb_attr_ints(o->attr, o->n_attr, "axesX", perm) > 0)
		return false;
	const int op = dlb_match_op(m, o->in[0], "Transpose");
	return op >= 0 && dlb_attr_ints(g->op[op].attr, g->op[op].n_attr, "perm", perm) == 4 &&
	       (*perm)[3] == 3 && dlb_match_closed(m);
}

/* The root becomes the Transpose, after a new RotaryEmbedding of the Transpose's operand. */
static int swap(struct dlb_match *m, const int64_t *perm, struct dlb_error *err)
{
	struct dlb_graph *g = m->g;
	const struct dlb_op *o = &g->op[m->root];
	const struct dlb_attr move = { .name = "perm", .type = DLB_ATTR_INTS, .ints = perm, .n = 4 };
	struct dlb_attr *attr = dlb_arena_array(&g->arena, (size_t)o->n_attr + 1, sizeof *attr);
	int in[4], turned;
	int64_t ignored = 0;

	memcpy(in, o->in, (size_t)o->n_in * sizeof *in);
	in[0] = g->op[m->op[0]].in[0];
	if (o->n_attr)
		memcpy(attr, o->attr, (size_t)o->n_attr * sizeof *attr);
	attr[o->n_attr] = (struct dlb_attr){ .name = "axesX", .type = DLB_ATTR_INTS, .ints = perm, .n = 4 };
	turned = dlb_graph_add_forward(g,
				       &(struct dlb_op_spec){ .name = o->name,
							      .type = o->type,
							      .in = in,
							      .n_in = o->n_in,
							      .attr = attr,
							      .n_attr = o->n_attr + 1 },
				       err);
	if (turned < 0)
		return -1;
	g->op[g->n_ops - 1].opset = g->op[m->root].opset;
	return dlb_match_fuse(m,
			      &(struct dlb_op_spec){
				      .type = "Transpose", DLB_OPERANDS(turned), .attr = &move, .n_attr = 1 },
			      -1, &ignored, err);
}

static int move_transposes(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	const int n_ops = g->n_ops;
	struct dlb_added *added = dlb_arena_array(&g->arena, (size_t)n_ops + 1, sizeof *added);
	int64_t moved = 0;

	memset(added, 0, (size_t)n_ops * sizeof *added);
	for (int i = 0; i < n_ops; i++) {
		struct dlb_match m = { .g = g, .root = i };
		const int64_t *perm;
		if (!reads_transposed(&m, &perm))
			continue;
		added[i] = (struct dlb_added){ g->n_ops, 1 };
		if (swap(&m, perm, err))
			return -1;
		moved++;
	}
	if (moved)
		dlb_graph_place_added(g, added, n_ops);
	*count += moved;
	return 0;
}

int dlb_rewrite_rotary(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0 && g->dtype != DLB_BF16; i--)
		for (int k = 0; k < 2 && dlb_is_op(g, i, "Add") && g->op[i].n_in == 2; k++) {
			struct dlb_match m = { .g = g, .root = i };
			int in[3];
			if (!match(&m, i, k, in) || (in[1] = half_table(g, in[1], in[0])) < 0 ||
			    (in[2] = half_table(g, in[2], in[0])) < 0)
				continue;
			if (dlb_match_fuse(&m,
					   &(struct dlb_op_spec){ .type = "RotaryEmbedding", .in = in,
								  .n_in = 3 }, -1, count, err))
				return -1;
			g->op[i].opset = 23;		/* the first version with the operator */
		}
	if (*count)
		dlb_graph_index(g);
	return move_transposes(g, count, err);
}
