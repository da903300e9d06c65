/* Rules for splitting operators: the tables of all rules, and how the cut of one operand becomes the cuts of all.
 * An index that all outputs have gives shards whose outputs are concatenated; an index that is summed over gives
 * shards whose outputs are added. */
#include <string.h>
#include "graph/split_rules.h"

const struct dlb_split_rule *const dlb_split_rules[] = {
	dlb_split_compute,
	dlb_split_move,
	dlb_split_attention,
	NULL,
};

const struct dlb_split_rule *dlb_split_rule_of(const struct dlb_op *o)
{
	if (o->kind < 0 || o->n_in > DLB_SPLIT_OPERANDS || o->n_out > DLB_SPLIT_OPERANDS || o->n_out < 1 ||
	    o->out[0] < 0)
		return NULL;
	for (int t = 0; dlb_split_rules[t]; t++)
		for (const struct dlb_split_rule *r = dlb_split_rules[t]; r->type; r++)
			if (!strcmp(r->type, o->type))
				return r;
	return NULL;
}

int64_t dlb_split_groups(const struct dlb_graph *g, const struct dlb_op *o)
{
	const struct dlb_split_rule *r = dlb_split_rule_of(o);

	return r && r->groups ? r->groups(g, o) : 1;
}

/* -- dimensions and operands -- */

static bool same_dim(struct dlb_dim a, struct dlb_dim b)
{
	return a.mul == b.mul && a.add == b.add;
}

bool dlb_split_is_one(struct dlb_dim d) { return !d.mul && d.add == 1; }

bool dlb_split_divides(struct dlb_dim d, int64_t units, int64_t unit)
{
	const int64_t row = units * unit;

	if (!units)
		return unit > 0 && d.mul == unit && !d.add;
	return row > 0 && (d.mul || d.add) && d.mul % row == 0 && d.add % row == 0;
}

struct dlb_dim dlb_split_dim(struct dlb_dim d, const struct dlb_split_share *s)
{
	return !s->units ? d : (struct dlb_dim){ d.mul / s->units * s->count, d.add / s->units * s->count };
}

const struct dlb_tensor *dlb_split_operand(const struct dlb_graph *g, const struct dlb_op *o, int i)
{
	const int t = i < o->n_in ? o->in[i] : o->out[i - o->n_in];

	return t < 0 ? NULL : &g->tensor[t];
}

int dlb_split_axis_attr(const struct dlb_graph *g, const struct dlb_op *o, int64_t otherwise)
{
	const int n = g->tensor[o->in[0]].n_dims;
	const int64_t a = dlb_attr_int(o->attr, o->n_attr, "axis", otherwise);

	return (int)(a < 0 ? a + n : a);
}

/* -- loops -- */

void dlb_loop_clear(struct dlb_loop *l, const char *name)
{
	l->name = name;
	for (int i = 0; i < DLB_SPLIT_OPERANDS; i++)
		l->in[i] = l->out[i] = -1;
}

int *dlb_loop_axis(struct dlb_loop *l, const struct dlb_op *o, int i)
{
	return i < o->n_in ? &l->in[i] : &l->out[i - o->n_in];
}

bool dlb_split_loop(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_loop *given,
		    int reference, struct dlb_split_axis cut, int64_t units, struct dlb_op_split *s)
{
	struct dlb_loop l = *given;
	const struct dlb_dim whole = dlb_split_operand(g, o, reference)->dim[cut.axis];
	bool in_output = false;

	memset(s, 0, sizeof *s);
	s->axis = l.name;
	for (int i = 0; i < o->n_in + o->n_out; i++) {
		struct dlb_split_axis *c = i < o->n_in ? &s->in[i] : &s->out[i - o->n_in];
		const struct dlb_tensor *t = dlb_split_operand(g, o, i);
		*c = (struct dlb_split_axis){ .axis = t ? *dlb_loop_axis(&l, o, i) : -1 };
		if (c->axis < 0)
			continue;
		const struct dlb_dim d = t->dim[c->axis];
		c->unit = units ? cut.unit : d.mul;
		if (units && !same_dim(d, whole)) {	/* groups of a convolution: input and output channels
							 * are proportional, not equal */
			if (d.mul || whole.mul || d.add * cut.unit % whole.add)
				return false;
			c->unit = d.add * cut.unit / whole.add;
		}
		if (!dlb_split_divides(d, units, c->unit))
			return false;
		in_output |= i >= o->n_in;
	}
	s->sum = !in_output;
	return true;
}

bool dlb_split_carry(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		     int64_t units, struct dlb_op_split *s)
{
	const struct dlb_split_rule *r = dlb_split_rule_of(o);
	struct dlb_loop l[DLB_SPLIT_OPERANDS];

	if (!r)
		return false;
	if (r->carry) {
		memset(s, 0, sizeof *s);
		for (int k = 0; k < DLB_SPLIT_OPERANDS; k++)
			s->in[k].axis = s->out[k].axis = -1;
		return r->carry(g, o, i, cut, units, s);
	}
	const int n = r->loops(g, o, l);
	for (int k = 0; k < n; k++)
		if (*dlb_loop_axis(&l[k], o, i) == cut.axis)
			return dlb_split_loop(g, o, &l[k], i, cut, units, s);
	return false;
}

/* Is input i the shape operand of a Reshape? That is made anew for each shard. */
static bool is_shape(const struct dlb_op *o, int i)
{
	return i == 1 && !strcmp(o->type, "Reshape");
}

bool dlb_split_by_samples(const struct dlb_graph *g, const struct dlb_op *o, const struct dlb_op_split *s)
{
	const struct dlb_op_class *cls = dlb_op_class_of(o->kind);

	for (int i = 0; i < o->n_in + o->n_out; i++) {
		const struct dlb_split_axis c = i < o->n_in ? s->in[i] : s->out[i - o->n_in];
		const struct dlb_tensor *t = dlb_split_operand(g, o, i);
		if (!t)
			continue;
		if (t->samples.parts || (t->data_mul && !is_shape(o, i)) ||
		    (c.axis > 0 && (t->layout != DLB_PLAIN || cls->flags & DLB_OP_RANDOM)))
			return false;
		for (int a = 0; a < t->n_dims; a++)
			if (a == c.axis ? !dlb_split_divides(t->dim[a], 0, c.unit) : t->dim[a].mul != 0)
				return false;
	}
	return !s->sum;
}

/* -- changes of a shard's attributes -- */

void dlb_shard_set_int(struct dlb_shard *s, const char *name, int64_t v)
{
	for (int i = 0; i < s->n_attr; i++)
		if (!strcmp(s->attr[i].name, name)) {
			s->attr[i].i = v;
			return;
		}
	s->attr[s->n_attr++] = (struct dlb_attr){ .name = name, .type = DLB_ATTR_INT, .i = v };
}

void dlb_shard_drop_attr(struct dlb_shard *s, const char *name)
{
	for (int i = 0; i < s->n_attr; i++)
		if (!strcmp(s->attr[i].name, name))
			s->attr[i--] = s->attr[--s->n_attr];
}
