/* Rules for splitting ops that move elements: Reshape and other views, Split, Slice, Concat. Each carries the
 * cut of one operand to the others, and a shard has constants of its own for its shape, sizes, or bounds. */
#include <string.h>
#include "graph/split_rules.h"

/* -- carrying cuts -- */

/* Elements per index of axis a; -1: they follow the batch. */
static int64_t behind(const struct dlb_tensor *t, int a)
{
	int64_t n = 1;

	for (int i = a + 1; i < t->n_dims; i++)
		n = t->dim[i].mul ? -1 : n * t->dim[i].add;
	return n;
}

static bool fixed_behind(const struct dlb_tensor *t, int a)
{
	for (int i = a + 1; i < t->n_dims; i++)
		if (t->dim[i].mul)
			return false;
	return true;
}

/* Reshapes. A unit is `stride` elements long, so element e belongs to unit (e / stride) mod units. The axis
 * of the other shape is the one whose indices are whole units or equal parts of a unit. */
static bool reshape(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		    int64_t units, struct dlb_op_split *s)
{
	const struct dlb_tensor *from = dlb_split_operand(g, o, i),
				*to = dlb_split_operand(g, o, i ? 0 : o->n_in);

	if ((i && i != o->n_in) || !fixed_behind(from, cut.axis))
		return false;
	if (!strcmp(o->type, "Squeeze") && o->n_in < 2 && !dlb_attr_find(o->attr, o->n_attr, "axes"))
		return false; /* removes all dimensions of size 1 */
	const int64_t stride = cut.unit * behind(from, cut.axis);
	for (int a = to->n_dims - 1; a >= 0 && fixed_behind(to, a); a--) {
		const int64_t step = behind(to, a);
		if (step < 1 || stride % step || !dlb_split_divides(to->dim[a], units, stride / step))
			continue;
		const struct dlb_split_axis there = { a, stride / step };
		s->in[0] = i ? there : cut;
		s->out[0] = i ? cut : there;
		s->axis = "channel";
		return true;
	}
	return false;
}

/* Pieces along an axis: a cut of another axis cuts all pieces; a cut of the same axis is possible if each
 * piece has whole rows of units. */
static bool pieces(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_split_axis cut,
		   int64_t units, struct dlb_op_split *s, bool many_in)
{
	const int n = many_in ? o->n_in : o->n_out;

	for (int k = 0; k < n; k++) {
		const struct dlb_tensor *t = dlb_split_operand(g, o, many_in ? k : o->n_in + k);
		if (!t)
			continue;
		if (cut.axis >= t->n_dims || !dlb_split_divides(t->dim[cut.axis], units, cut.unit))
			return false;
		*(many_in ? &s->in[k] : &s->out[k]) = cut;
	}
	const struct dlb_tensor *whole = dlb_split_operand(g, o, many_in ? o->n_in : 0);
	if (!dlb_split_divides(whole->dim[cut.axis], units, cut.unit))
		return false;
	*(many_in ? &s->out[0] : &s->in[0]) = cut;
	s->axis = "channel";
	return true;
}

static bool split_op(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		     int64_t units, struct dlb_op_split *s)
{
	if (cut.axis == dlb_split_axis_attr(g, o, 0)) /* each piece contains parts of all shards */
		for (int k = 0; k < o->n_out; k++)
			if (o->out[k] < 0)
				return false;
	return (!i || i >= o->n_in) && pieces(g, o, cut, units, s, false);
}

static bool concat(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		   int64_t units, struct dlb_op_split *s)
{
	(void)i;
	return pieces(g, o, cut, units, s, true);
}

/* Integers from input i, or from the attribute if there is no such input; returns
 * their number, -1: unknown. */
static int integers(const struct dlb_graph *g, const struct dlb_op *o, int i, const char *name,
		    int64_t v[DLB_MAX_DIMS])
{
	const struct dlb_tensor *t = i < o->n_in && o->in[i] >= 0 ? &g->tensor[o->in[i]] : NULL;
	const int64_t *ints;
	int n;

	if (!t) {
		n = dlb_attr_ints(o->attr, o->n_attr, name, &ints);
		if (n <= DLB_MAX_DIMS && n)
			memcpy(v, ints, (size_t)n * sizeof *v);
		return n > DLB_MAX_DIMS ? -1 : n;
	}
	if (t->kind != DLB_T_CONSTANT || !t->data || t->data_mul || t->n_dims != 1 || t->dim[0].mul ||
	    t->dim[0].add > DLB_MAX_DIMS)
		return -1;
	n = (int)t->dim[0].add;
	for (int k = 0; k < n; k++)
		v[k] = dlb_value_int(t->data, t->dtype, k);
	return n;
}

/* The entry of a Slice's lists for `axis`, with start and end clamped to [0,
 * length]. -1: none, -2: unknown. */
static int slice_entry(const struct dlb_graph *g, const struct dlb_op *o, int axis, int64_t *from,
		       int64_t *to)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]];
	int64_t start[DLB_MAX_DIMS], end[DLB_MAX_DIMS], axes[DLB_MAX_DIMS], step[DLB_MAX_DIMS];
	const int n = integers(g, o, 1, "starts", start), m = integers(g, o, 2, "ends", end);
	const int na = integers(g, o, 3, "axes", axes), ns = integers(g, o, 4, "steps", step);

	if (n < 0 || m != n || (na && na != n) || (ns && ns != n))
		return -2;
	for (int k = 0; k < n; k++) {
		const int64_t a = na ? axes[k] < 0 ? axes[k] + x->n_dims : axes[k] : k;
		if (a != axis)
			continue;
		const int64_t d = x->dim[axis].add;
		if (x->dim[axis].mul || (ns && step[k] != 1))
			return -2;
		*from = start[k] < 0 ? start[k] + d : start[k];
		*to = end[k] < 0 ? end[k] + d : end[k] > d ? d : end[k];
		return *from < 0 || *to > d || *from >= *to ? -2 : k;
	}
	return -1;
}

static bool slice(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		  int64_t units, struct dlb_op_split *s)
{
	const struct dlb_tensor *x = &g->tensor[o->in[0]], *y = &g->tensor[o->out[0]];
	int64_t from = 0, to = 0;

	if (i && i != o->n_in)
		return false;
	const int entry = slice_entry(g, o, cut.axis, &from, &to);
	if (entry < -1 || (entry >= 0 && from % (units * cut.unit)))
		return false;
	s->in[0] = s->out[0] = cut;
	s->axis = "channel";
	return dlb_split_divides(x->dim[cut.axis], units, cut.unit) &&
	       dlb_split_divides(y->dim[cut.axis], units, cut.unit);
}

/* -- operands of a shard -- */

/* A constant, whose batch-dependent values count the samples of this share. */
static int constant(struct dlb_graph *g, const char *op, const struct dlb_split_share *s, const int64_t *v,
		    const int64_t *mul, int n)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	bool follows = false;

	for (int i = 0; i < n && mul; i++)
		follows |= mul[i] != 0;
	const int t = dlb_graph_add_constant(g, dlb_arena_printf(&g->arena, "%s.constant", op), &d, v,
					     follows ? mul : NULL);
	if (follows && !s->units)
		g->tensor[t].samples = (struct dlb_samples){ s->index, s->parts };
	return t;
}

static int fix_reshape(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const struct dlb_tensor *y = &g->tensor[g->op[op].out[0]];
	int64_t add[DLB_MAX_DIMS], mul[DLB_MAX_DIMS];

	(void)err;
	for (int i = 0; i < y->n_dims; i++) {
		const struct dlb_dim d = i == s->split->out[0].axis ? dlb_split_dim(y->dim[i], &s->share) :
								      y->dim[i];
		add[i] = d.add;
		mul[i] = d.mul;
	}
	dlb_shard_drop_attr(s, "shape");
	s->n_in = 2;
	s->in[1] = constant(g, g->op[op].name, &s->share, add, mul, y->n_dims);
	return 0;
}

static int fix_split(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const struct dlb_op *o = &g->op[op];
	const int axis = dlb_split_axis_attr(g, o, 0);
	int64_t size[DLB_SPLIT_OPERANDS];

	(void)err;
	if (axis != s->split->in[0].axis)
		return 0;
	for (int k = 0; k < o->n_out; k++)
		size[k] = dlb_split_dim(g->tensor[o->out[k]].dim[axis], &s->share).add;
	dlb_shard_drop_attr(s, "split");
	dlb_shard_drop_attr(s, "num_outputs");
	s->n_in = 2;
	s->in[1] = constant(g, o->name, &s->share, size, NULL, o->n_out);
	return 0;
}

static int fix_slice(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	const struct dlb_op *o = &g->op[op];
	int64_t start[DLB_MAX_DIMS], end[DLB_MAX_DIMS], from, to;
	const int entry = slice_entry(g, o, s->split->in[0].axis, &from, &to);
	const int n = integers(g, o, 1, "starts", start);

	(void)err;
	if (entry < 0)
		return 0;
	integers(g, o, 2, "ends", end);
	start[entry] = from / s->share.units * s->share.count;
	end[entry] = to / s->share.units * s->share.count;
	if (o->n_in > 2) {
		s->in[1] = constant(g, o->name, &s->share, start, NULL, n);
		s->in[2] = constant(g, o->name, &s->share, end, NULL, n);
		return 0;
	}
	for (int i = 0; i < s->n_attr; i++)
		if (!strcmp(s->attr[i].name, "starts") || !strcmp(s->attr[i].name, "ends")) {
			int64_t *copy = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *copy);
			memcpy(copy, *s->attr[i].name == 's' ? start : end, (size_t)n * sizeof *copy);
			s->attr[i].ints = copy;
		}
	return 0;
}

const struct dlb_split_rule dlb_split_move[] = {
	{ .type = "Reshape", .bias = -1, .carry = reshape, .fix = fix_reshape },
	{ .type = "Flatten", .bias = -1, .carry = reshape },
	{ .type = "Squeeze", .bias = -1, .carry = reshape },
	{ .type = "Unsqueeze", .bias = -1, .carry = reshape },
	{ .type = "Split", .bias = -1, .carry = split_op, .fix = fix_split },
	{ .type = "Slice", .bias = -1, .carry = slice, .fix = fix_slice },
	{ .type = "Concat", .bias = -1, .carry = concat },
	{ .type = NULL },
};
