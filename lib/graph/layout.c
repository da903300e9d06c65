/* Chooses one physical layout for each activation. The forward graph is changed before differentiation, so
 * gradients follow, and both nodes of a transferred tensor know its layout.
 *
 * Convolutions, pools and batch normalizations run at half speed or less on plain (N,C,H,W) memory, and as
 * fast as in any blocked format on channels-last (N,H,W,C). So their activations are channels-last.
 * Elementwise operators keep the layout of their input. Operators that depend on the order of elements
 * (Flatten, Reshape, ...) get plain memory through a Layout op. With one channel or one pixel both layouts
 * have the same bytes: a LayoutView, which costs nothing. A Transpose of a channels-last tensor to
 * (N,H,W,C), or back, is a TransposeView, which costs nothing either (ConvNeXt, Swin). f64 is computed by
 * plain loops and stays plain. */
#include <stdlib.h>
#include <string.h>
#include "graph/passes.h"
#include "graph/rewrite.h"

/* tensor `other` is `tensor` in layout `to` */
struct border { int tensor; enum dlb_layout to; int other; };
struct borders {
	struct border *b;
	int n, cap;
	int *order, n_order;		/* old and new op ids in their new order */
};

static const char *layout_name(enum dlb_layout l)
{
	return l == DLB_PLAIN ? "plain" : "channels-last";
}

/* Tensor t in layout `to`: adds a Layout op, once per tensor. -1 with err. */
static int converted(struct dlb_graph *g, struct borders *s, int t, enum dlb_layout to, struct dlb_error *err)
{
	if (t < 0 || g->tensor[t].n_dims < 3 || g->tensor[t].layout == to)
		return t;
	for (int i = 0; i < s->n; i++)
		if (s->b[i].tensor == t && s->b[i].to == to)
			return s->b[i].other;
		else if (s->b[i].other == t && g->tensor[s->b[i].tensor].layout == to)
			return s->b[i].tensor;
	const char *base = dlb_arena_printf(&g->arena, "%s.%s", g->tensor[t].name, layout_name(to));
	const struct dlb_attr attr = { .name = "to", .type = DLB_ATTR_STR, .s = layout_name(to) };
	const char *type = dlb_layouts_coincide(&g->tensor[t]) ? "LayoutView" : "Layout";
	const struct dlb_op_spec change = { .name = base, .type = type, .domain = "dlb", DLB_OPERANDS(t),
				       .attr = &attr, .n_attr = 1 };
	const int op = g->n_ops, other = dlb_graph_add_forward(g, &change, err);
	if (other < 0)
		return -1;
	g->tensor[other].layout = to;
	DLB_GROW(s->b, s->n, s->cap);
	s->b[s->n++] = (struct border){ t, to, other };
	s->order[s->n_order++] = op;
	return other;
}

/* Does the tensor take part in layouts? It must have n_dims dimensions and be no weight or constant: those
 * keep the layout of the model's file, and kernels read them by strides. */
static bool has_layout(const struct dlb_graph *g, int t, int n_dims)
{
	return t >= 0 && g->tensor[t].n_dims >= 3 && g->tensor[t].n_dims == n_dims &&
	       g->tensor[t].kind != DLB_T_WEIGHT && g->tensor[t].kind != DLB_T_CONSTANT &&
	       g->tensor[t].kind != DLB_T_BUFFER;
}

static bool same_dims(const struct dlb_tensor *a, const struct dlb_tensor *b)
{
	if (a->n_dims != b->n_dims)
		return false;
	for (int i = 0; i < a->n_dims; i++)
		if (a->dim[i].mul != b->dim[i].mul || a->dim[i].add != b->dim[i].add)
			return false;
	return true;
}

/* The layout of elementwise op `o`: channels-last if one of its full-size operands is. */
static enum dlb_layout passed_on(const struct dlb_graph *g, const struct dlb_op *o)
{
	const int n_dims = o->n_out && o->out[0] >= 0 ? g->tensor[o->out[0]].n_dims : 0;

	for (int k = 0; k < o->n_in; k++)
		if (has_layout(g, o->in[k], n_dims) && g->tensor[o->in[k]].layout == DLB_CHANNELS_LAST)
			return DLB_CHANNELS_LAST;
	return DLB_PLAIN;
}

/* Tensor t in channels-last: t itself, or the other side of a Layout op; -1: none. */
static int channels_last(const struct dlb_graph *g, const struct borders *s, int t)
{
	if (g->tensor[t].layout == DLB_CHANNELS_LAST)
		return t;
	for (int i = 0; i < s->n; i++)
		if (s->b[i].other == t && g->tensor[s->b[i].tensor].layout == DLB_CHANNELS_LAST)
			return s->b[i].tensor;
		else if (s->b[i].tensor == t && s->b[i].to == DLB_CHANNELS_LAST)
			return s->b[i].other;
	return -1;
}

/* Does the Transpose move channels from axis 1 to the end (to_end), or back? */
static bool moves_channels(const struct dlb_op *o, int n_dims, bool to_end)
{
	const int64_t *perm;

	if (dlb_attr_ints(o->attr, o->n_attr, "perm", &perm) != n_dims || perm[0] != 0)
		return false;
	for (int i = 1; i < n_dims; i++)
		if (perm[i] != (to_end ? i + 1 < n_dims ? i + 1 : 1 : i > 1 ? i - 1 : n_dims - 1))
			return false;
	return true;
}

/* Turns a Transpose into a TransposeView if possible. With fewer than four dimensions it stays, since
 * products can read through it. */
static bool views_channels(struct dlb_graph *g, const struct borders *s, int op)
{
	struct dlb_op *o = &g->op[op];
	const int t = strcmp(o->type, "Transpose") || *o->domain || o->phase != DLB_FORWARD ? -1 : o->in[0];

	if (t < 0 || g->tensor[t].n_dims < 4 || !has_layout(g, t, g->tensor[t].n_dims) ||
	    dlb_layouts_coincide(&g->tensor[t]))
		return false;
	const int last = channels_last(g, s, t);
	const bool to_end = last >= 0 && moves_channels(o, g->tensor[t].n_dims, true);
	if (!to_end && (g->tensor[t].layout != DLB_PLAIN || !moves_channels(o, g->tensor[t].n_dims, false)))
		return false;
	o->type = "TransposeView";
	o->domain = "dlb";
	o->kind = dlb_op_kind_find(o->type, o->domain);
	o->in[0] = to_end ? last : t;
	g->tensor[o->out[0]].layout = to_end ? DLB_PLAIN : DLB_CHANNELS_LAST;
	return true;
}

static int choose(struct dlb_graph *g, struct borders *s, int op, struct dlb_error *err)
{
	if (views_channels(g, s, op)) {
		s->order[s->n_order++] = op;
		return 0;
	}
	const struct dlb_op_class *cls = dlb_op_class_of(g->op[op].kind);
	const enum dlb_op_layout preference = cls ? cls->layout : DLB_LAYOUT_PLAIN_ONLY;
	const int n_in = g->op[op].n_in, out0 = g->op[op].n_out ? g->op[op].out[0] : -1;
	int *in = g->op[op].in;
	const int n_dims = out0 >= 0 ? g->tensor[out0].n_dims : 0;
	enum dlb_layout layout = DLB_PLAIN;

	if (preference == DLB_LAYOUT_WANTS_CHANNELS_LAST && n_in && in[0] >= 0 &&
	    g->tensor[in[0]].n_dims >= 3)
		layout = DLB_CHANNELS_LAST;
	else if (preference == DLB_LAYOUT_ANY)
		layout = passed_on(g, &g->op[op]);
	for (int k = 0; k < n_in; k++) {
		if (in[k] < 0)
			continue;
		const bool moves = preference == DLB_LAYOUT_WANTS_CHANNELS_LAST ? k == 0
			: preference == DLB_LAYOUT_ANY ? has_layout(g, in[k], n_dims) : true;
		const int t = moves ? converted(g, s, in[k], layout, err) : in[k];
		if (t < 0)
			return -1;
		in[k] = t;
	}
	for (int k = 0; k < g->op[op].n_out; k++) {
		const int t = g->op[op].out[k];
		if (t < 0 || g->tensor[t].n_dims < 3 || g->tensor[t].kind == DLB_T_BUFFER)
			continue;
		/* further outputs (a mask, positions) have the layout of the first if they have its shape */
		g->tensor[t].layout = k == 0 || same_dims(&g->tensor[t], &g->tensor[out0]) ? layout :
											     DLB_PLAIN;
	}
	s->order[s->n_order++] = op;
	return 0;
}

int dlb_graph_choose_layout(struct dlb_graph *g, struct dlb_error *err)
{
	const int n_ops = g->n_ops;
	int n_operands = g->n_outputs, rc = 0;

	if (g->dtype != DLB_F32)
		return 0;
	for (int i = 0; i < n_ops; i++)
		n_operands += g->op[i].n_in;
	struct borders s = { .order = dlb_xcalloc((size_t)(n_ops + n_operands) + 1, sizeof *s.order) };
	for (int i = 0; i < n_ops && !rc; i++)
		rc = choose(g, &s, i, err);
	/* the model's outputs are plain, as ONNX defines them */
	for (int i = 0; i < g->n_outputs && !rc; i++) {
		const int t = converted(g, &s, g->output[i], DLB_PLAIN, err);
		rc = t < 0 ? -1 : 0;
		if (!rc && g->tensor[t].kind != DLB_T_CONSTANT)
			g->output[i] = t;
	}
	if (!rc) {
		dlb_graph_reorder(g, s.order, s.n_order);
		dlb_graph_fill_work(g, 0);
		dlb_graph_set_homes(g);
	}
	free(s.order);
	free(s.b);
	return rc;
}
