/* Rules for splitting attention: by samples, or by heads of K and V with the heads of Q that they serve. */
#include "graph/split_rules.h"

/* Attention's inputs and outputs (op/attention.c). */
enum { ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_MASK, ATTENTION_LENGTHS = 6, ATTENTION_SAVED = 4 };

/* The dimension of operand i, with four dimensions, that counts samples (0) or heads (1). */
static int attention_axis(const struct dlb_op *o, int i, int which)
{
	static const char *const names[] = { "axesQ", "axesK", "axesV", "axesY" };
	const int name = i == o->n_in ? 3 : i <= ATTENTION_V ? i : -1;
	const int64_t *axis;

	return name >= 0 && dlb_attr_ints(o->attr, o->n_attr, names[name], &axis) > which ? (int)axis[which] :
											    which;
}

/* The axis of operand i that counts heads, or in which heads are adjacent; -1: it has no such axis, or one of
 * size 1 for all heads. Outputs are numbered from n_in on, so output 0 has number ATTENTION_MASK if there is
 * no mask. */
static int heads_axis(const struct dlb_op *o, int i, const struct dlb_tensor *t)
{
	const bool input = i < o->n_in;

	if (input && i == ATTENTION_LENGTHS)
		return -1;
	if (input && i == ATTENTION_MASK)
		return t->n_dims < 3 || dlb_split_is_one(t->dim[t->n_dims - 3]) ? -1 : t->n_dims - 3;
	return i == o->n_in + ATTENTION_SAVED ? 1 : t->n_dims == 4 ? attention_axis(o, i, 1) : 2;
}

/* Number of heads of operand i: of Q, or of K and V, each of which serves one or more heads of Q. */
static int64_t heads_of(const struct dlb_graph *g, const struct dlb_op *o, int i, const char *attr)
{
	const struct dlb_tensor *t = &g->tensor[o->in[i]];

	return t->n_dims == 4 ? t->dim[attention_axis(o, i, 1)].add :
				dlb_attr_int(o->attr, o->n_attr, attr, 0);
}

static int64_t kv_heads(const struct dlb_graph *g, const struct dlb_op *o)
{
	return heads_of(g, o, ATTENTION_K, "kv_num_heads");
}

/* Loops over samples and, if K and V have several heads, over heads of K and V with the heads of Q that they
 * serve. */
static int attention_loops(const struct dlb_graph *g, const struct dlb_op *o, struct dlb_loop *l)
{
	const int n = kv_heads(g, o) > 1 ? 2 : 1;

	for (int a = 0; a < n; a++) {
		dlb_loop_clear(&l[a], a ? "head" : "batch");
		for (int i = 0; i < o->n_in + o->n_out; i++) {
			const struct dlb_tensor *t = dlb_split_operand(g, o, i);

			const int samples = t && t->n_dims == 4 ? attention_axis(o, i, 0) : 0;
			*dlb_loop_axis(&l[a], o, i) = !t ? -1 :
						      a  ? heads_axis(o, i, t) :
						      t->n_dims > 0 && t->dim[samples].mul ? samples :
											     -1;
		}
	}
	return n;
}

/* A unit must be one or more heads of K and V. */
static bool attention(const struct dlb_graph *g, const struct dlb_op *o, int i, struct dlb_split_axis cut,
		      int64_t units, struct dlb_op_split *s)
{
	if (units && (heads_of(g, o, ATTENTION_Q, "q_num_heads") % units || kv_heads(g, o) % units))
		return false;
	struct dlb_loop l[2];
	const int n = attention_loops(g, o, l);

	for (int k = 0; k < n; k++)
		if (*dlb_loop_axis(&l[k], o, i) == cut.axis && (k == 1) == (units > 0))
			return dlb_split_operand(g, o, i)->dim[cut.axis].add == units * cut.unit &&
			       dlb_split_loop(g, o, &l[k], i, cut, units, s);
	return false;
}

static int fix_attention(struct dlb_graph *g, int op, struct dlb_shard *s, struct dlb_error *err)
{
	static const char *const names[] = { "q_num_heads", "kv_num_heads" };

	(void)g;
	(void)op;
	(void)err;
	for (int k = 0; k < DLB_LEN(names) && s->share.units; k++)
		if (dlb_attr_find(s->attr, s->n_attr, names[k]))
			dlb_shard_set_int(s, names[k],
					  dlb_attr_int(s->attr, s->n_attr, names[k], 0) / s->share.units *
						  s->share.count);
	return 0;
}

const struct dlb_split_rule dlb_split_attention[] = {
	{ .type = "Attention",
	  .alone = true,
	  .bias = -1,
	  .loops = attention_loops,
	  .groups = kv_heads,
	  .carry = attention,
	  .fix = fix_attention },
	{ .type = "StridedAttention",
	  .alone = true,
	  .bias = -1,
	  .loops = attention_loops,
	  .groups = kv_heads,
	  .carry = attention },
	{ .type = NULL },
};
