/* Functions that gradient functions call to add backward ops (struct dlb_builder in op/op.h). Every op is
 * inferred when it is added, at three batch sizes like forward ops, so shapes of gradients follow the batch
 * too. After the first failure, all later calls do nothing and return -1. */
#include <assert.h>
#include <string.h>
#include "graph/autodiff.h"

enum { BACKWARD_OPSET = 17 };	/* opset of added ops, whatever the model's */

const struct dlb_desc *dlb_b_desc(struct dlb_builder *b, int tensor)
{
	struct dlb_autodiff *ad = b->graph;
	struct dlb_desc *d = dlb_arena_alloc(&ad->a, sizeof *d);

	d->n_dims = -1;
	if (tensor >= 0)
		*d = dlb_tensor_desc(&ad->g->tensor[tensor], dlb_graph_reference(ad->g));
	return d;
}

int dlb_b_op(struct dlb_builder *b, const struct dlb_op_spec *s, int *out, int like)
{
	struct dlb_autodiff *ad = b->graph;
	struct dlb_graph *g = ad->g;
	const int n_out = s->n_out ? s->n_out : 1;
	int *ids = dlb_arena_array(&ad->a, (size_t)n_out, sizeof *ids);
	struct dlb_op_spec own = *s;

	for (int k = 0; k < n_out && out; k++)
		out[k] = -1;
	if (ad->failed)
		return -1;
	const char *name = dlb_graph_op_name(g, dlb_arena_printf(&ad->a, "%s.%s", g->op[b->op].name,
								 s->type));
	for (int k = 0; k < n_out; k++)
		ids[k] = dlb_graph_add_tensor(g,
					      dlb_graph_tensor_name(g, k ? dlb_arena_printf(&ad->a, "%s.%d",
											    name, k) :
									   name),
					      DLB_T_GRADIENT);
	own.name = name;
	own.domain = dlb_op_kind_find(s->type, "") >= 0 ? "" : "dlb";
	own.out = ids;
	own.n_out = n_out;
	own.opset = BACKWARD_OPSET;
	const int op = dlb_graph_add_op(g, DLB_BACKWARD, &own);
	g->op[op].of = b->op;
	for (int k = 0; k < n_out; k++)
		g->tensor[ids[k]].producer = op;
	if (dlb_graph_infer_new(g, op, b->err)) {
		ad->failed = true;
		return -1;
	}
	if (like >= 0 && g->tensor[ids[0]].n_dims >= 3 && g->tensor[ids[0]].n_dims == g->tensor[like].n_dims)
		g->tensor[ids[0]].layout = g->tensor[like].layout;
	for (int k = 0; k < n_out && out; k++)
		out[k] = ids[k];
	return ids[0];
}

int dlb_b_gradient(struct dlb_builder *b, const struct dlb_op_spec *s)
{
	if (!b->need[0])
		return 0;
	b->din[0] = dlb_b_op(b, s, NULL, b->in[0]);
	return b->din[0] < 0 ? -1 : 0;
}

int dlb_b_op1(struct dlb_builder *b, const char *type, int in0)
{
	return dlb_b_op(b, DLB_SPEC(type, in0), NULL, -1);
}

int dlb_b_op2(struct dlb_builder *b, const char *type, int in0, int in1)
{
	const int in[2] = { in0, in1 };

	return dlb_b_op(b, &(struct dlb_op_spec){ .type = type, .in = in, .n_in = 2 }, NULL, -1);
}

int dlb_b_op3(struct dlb_builder *b, const char *type, int in0, int in1, int in2)
{
	const int in[3] = { in0, in1, in2 };

	return dlb_b_op(b, &(struct dlb_op_spec){ .type = type, .in = in, .n_in = 3 }, NULL, -1);
}

static int add_constant(struct dlb_builder *b, const struct dlb_desc *d, const void *data, const int64_t *mul)
{
	struct dlb_autodiff *ad = b->graph;

	if (ad->failed)
		return -1;
	return dlb_graph_add_constant(ad->g, dlb_arena_printf(&ad->a, "%s.constant", ad->g->op[b->op].name),
				      d, data, mul);
}

int dlb_b_const_ints(struct dlb_builder *b, const int64_t *v, int n)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };

	return add_constant(b, &d, v, NULL);
}

int dlb_b_const_real(struct dlb_builder *b, double v, enum dlb_dtype t)
{
	const struct dlb_desc d = { .dtype = t };
	char data[16];

	dlb_value_set(data, t, 0, v);
	return add_constant(b, &d, data, NULL);
}

bool dlb_b_follows(const struct dlb_builder *b, int tensor, int i)
{
	const struct dlb_autodiff *ad = b->graph;

	return ad->g->tensor[tensor].dim[i].mul != 0;
}

int dlb_b_const_shape(struct dlb_builder *b, int tensor)
{
	struct dlb_autodiff *ad = b->graph;
	int64_t add[DLB_MAX_DIMS], mul[DLB_MAX_DIMS];
	bool follows = false;

	if (ad->failed || tensor < 0)
		return -1;
	const struct dlb_tensor *t = &ad->g->tensor[tensor];
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { t->n_dims } };
	for (int i = 0; i < t->n_dims; i++) {
		add[i] = t->dim[i].add;
		mul[i] = t->dim[i].mul;
		follows |= mul[i] != 0;
	}
	const struct dlb_samples samples = t->samples;
	const int c = add_constant(b, &d, add, follows ? mul : NULL);
	if (c >= 0 && follows)
		ad->g->tensor[c].samples = samples;
	return c;
}

static bool same_dim(struct dlb_dim a, struct dlb_dim b)
{
	return a.mul == b.mul && a.add == b.add;
}

int dlb_b_unbroadcast(struct dlb_builder *b, int grad, int like)
{
	struct dlb_autodiff *ad = b->graph;

	if (ad->failed || grad < 0 || like < 0)
		return -1;
	const struct dlb_tensor from = ad->g->tensor[grad], to = ad->g->tensor[like];
	const int lead = from.n_dims - to.n_dims;	/* dimensions that broadcasting prepended */
	int64_t axes[DLB_MAX_DIMS];
	int n = 0;

	for (int i = 0; i < from.n_dims; i++)
		if (i < lead || !same_dim(from.dim[i], to.dim[i - lead]))
			axes[n++] = i;
	const bool keeps = n > lead;		/* some summed dimensions stay, with size 1 */
	if (n) {
		const int in[2] = { grad, dlb_b_const_ints(b, axes, n) };
		const struct dlb_attr keep = { .name = "keepdims", .type = DLB_ATTR_INT, .i = keeps };
		grad = dlb_b_op(b,
				&(struct dlb_op_spec){ .type = "ReduceSum", .in = in, .n_in = 2,
						       .attr = &keep, .n_attr = 1 }, NULL, like);
	}
	if (lead > 0 && keeps)
		grad = dlb_b_op2(b, "Reshape", grad, dlb_b_const_shape(b, like));
	return grad;
}

int dlb_b_extra_output(struct dlb_builder *b, int index)
{
	struct dlb_autodiff *ad = b->graph;
	struct dlb_graph *g = ad->g;
	struct dlb_op *o = &g->op[b->op];

	if (ad->failed)
		return -1;
	if (index < o->n_out && o->out[index] >= 0)
		return o->out[index];
	if (index >= o->n_out) {
		int *out = dlb_arena_array(&g->arena, (size_t)index + 1, sizeof *out);
		for (int k = 0; k <= index; k++)
			out[k] = k < o->n_out ? o->out[k] : -1;
		o->out = out;
		o->n_out = index + 1;
	}
	const char *name = dlb_arena_printf(&ad->a, "%s.saved%d", o->name, index);
	const int t = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, name), DLB_T_ACTIVATION);
	o->out[index] = t;
	g->tensor[t].producer = b->op;
	/* infers again, but keeps the chosen layouts */
	enum dlb_layout *layout = dlb_arena_array(&ad->a, (size_t)o->n_out, sizeof *layout);
	for (int k = 0; k < o->n_out; k++)
		layout[k] = o->out[k] >= 0 ? g->tensor[o->out[k]].layout : DLB_PLAIN;
	if (dlb_graph_infer(g, b->op, dlb_graph_reference(g), NULL, b->err)) {
		ad->failed = true;
		return -1;
	}
	for (int k = 0; k < o->n_out; k++)
		if (o->out[k] >= 0 && o->out[k] != t)
			g->tensor[o->out[k]].layout = layout[k];
	if (g->tensor[t].n_dims >= 3)
		g->tensor[t].layout = layout[0];
	DLB_GROW(ad->extra, ad->n_extra, ad->cap_extra);
	ad->extra[ad->n_extra++] = t;
	b->out = o->out;
	return t;
}

int dlb_b_dout_or_zeros(struct dlb_builder *b, int k)
{
	if (b->dout[k] >= 0)
		return b->dout[k];
	const int out = dlb_b_extra_output(b, k);
	return out < 0 ? -1 :
			 dlb_b_op2(b, "Expand", dlb_b_const_real(b, 0, dlb_b_desc(b, out)->dtype),
				   dlb_b_const_shape(b, out));
}
