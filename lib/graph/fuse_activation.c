/* Fuses Relu into the op before it: an Add, a BatchNormalization, or a Conv (by the kernel library); and
 * undoes the fusion. Relu's gradient is computed from its output, so no other tensor is kept. */
#include <stdlib.h>
#include <string.h>
#include "graph/fuse_activation.h"
#include "graph/pattern.h"
#include "graph/rewrites.h"
#include "graph/split.h"

int dlb_rewrite_add_relu(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_match m = { .g = g, .root = i };
		const int add = dlb_is_op(g, i, "Relu") ? dlb_match_op(&m, g->op[i].in[0], "Add") : -1;
		if (add < 0 || g->op[add].n_in != 2 ||
		    !dlb_dtype_is_float(g->tensor[g->op[i].out[0]].dtype) || g->op[add].opset < 7 ||
		    !dlb_match_closed(&m))
			continue;
		const int in[2] = { g->op[add].in[0], g->op[add].in[1] };
		if (dlb_match_fuse(&m,
				   &(struct dlb_op_spec){ .type = "AddRelu", .domain = "dlb", .in = in,
							  .n_in = 2 }, add, count, err))
			return -1;
	}
	return 0;
}

/* The root takes the operands and attributes of op i, with Relu as its activation. Outputs of i without
 * readers stay as absent ones: before opset 14 their number distinguishes training from inference. */
static int take_in(struct dlb_match *m, int i, int64_t *count, struct dlb_error *err)
{
	struct dlb_graph *g = m->g;
	const struct dlb_op o = g->op[i];
	struct dlb_attr *attr = dlb_arena_array(&g->arena, (size_t)o.n_attr + 1, sizeof *attr);
	int *out = dlb_arena_array(&g->arena, (size_t)o.n_out + 1, sizeof *out);

	if (o.n_attr)
		memcpy(attr, o.attr, (size_t)o.n_attr * sizeof *attr);
	attr[o.n_attr] = (struct dlb_attr){ .name = "activation", .type = DLB_ATTR_STR, .s = "Relu" };
	for (int k = 0; k < o.n_out; k++)
		out[k] = k ? -1 : g->op[m->root].out[0];
	if (dlb_match_fuse(m, &(struct dlb_op_spec){ .type = o.type, .domain = o.domain, .in = o.in,
						     .n_in = o.n_in, .attr = attr, .n_attr = o.n_attr + 1 },
			   i, count, err))
		return -1;
	g->op[m->root].out = out;
	g->op[m->root].n_out = o.n_out;
	g->op[m->root].opset = o.opset;
	return 0;
}

static int take_relu(struct dlb_graph *g, const char *type, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_match m = { .g = g, .root = i };
		const int op = dlb_is_op(g, i, "Relu") ? dlb_match_op(&m, g->op[i].in[0], type) : -1;
		if (op >= 0 && dlb_match_closed(&m) && take_in(&m, op, count, err))
			return -1;
	}
	return 0;
}

int dlb_rewrite_conv_relu(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	return take_relu(g, "Conv", count, err);
}

int dlb_rewrite_norm_relu(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	return take_relu(g, "BatchNormalization", count, err);
}

struct dlb_fused dlb_graph_fused(const struct dlb_op *o)
{
	static const struct { const char *type, *domain; struct dlb_fused of; } row[] = {
		{ "AddRelu", "dlb", { "Add", "Relu", "add-relu" } },
		{ "Conv", "", { "Conv", "Relu", "conv-relu" } },
		{ "BatchNormalization", "", { "BatchNormalization", "Relu", "norm-relu" } },
	};

	for (int i = 0; i < DLB_LEN(row); i++)
		if (o->phase == DLB_FORWARD && !strcmp(o->type, row[i].type) &&
		    !strcmp(o->domain, row[i].domain) &&
		    (*row[i].domain || !strcmp(dlb_attr_str(o->attr, o->n_attr, "activation", ""), "Relu")))
			return row[i].of;
	return (struct dlb_fused){ .type = NULL };
}

/* Undoes the fusion of op i: op i writes a new tensor, and a new Relu at the end of the graph reads it. */
static void part(struct dlb_graph *g, int i, struct dlb_fused f)
{
	const char *name = dlb_graph_op_name(g, dlb_arena_printf(&g->arena, "%s.relu", g->op[i].name));
	const int y = g->op[i].out[0];
	const int x = dlb_graph_add_tensor(g,
					   dlb_graph_tensor_name(g, dlb_arena_printf(&g->arena, "%s.before",
										     name)),
					   DLB_T_ACTIVATION);
	struct dlb_tensor *t = &g->tensor[x];
	const char *tensor_name = t->name;
	int *out = dlb_arena_array(&g->arena, (size_t)g->op[i].n_out, sizeof *out);
	struct dlb_attr *attr = dlb_arena_array(&g->arena, (size_t)g->op[i].n_attr + 1, sizeof *attr);
	int n_attr = 0;

	*t = g->tensor[y];
	t->name = tensor_name;
	t->kind = DLB_T_ACTIVATION;
	t->producer = i;
	memcpy(out, g->op[i].out, (size_t)g->op[i].n_out * sizeof *out);
	out[0] = x;
	for (int k = 0; k < g->op[i].n_attr; k++)
		if (strcmp(g->op[i].attr[k].name, "activation"))
			attr[n_attr++] = g->op[i].attr[k];
	const int relu = dlb_graph_add_op(g, DLB_FORWARD,
					  &(struct dlb_op_spec){ .name = name, .type = f.activation,
								 DLB_OPERANDS(x), .out = &y, .n_out = 1,
								 .opset = 14 });
	struct dlb_op *o = &g->op[i];
	g->tensor[y].producer = relu;
	if (strcmp(o->type, f.type)) {
		o->type = f.type;
		o->domain = "";
		o->opset = 14;
		o->kind = dlb_op_kind_find(o->type, o->domain);
	}
	o->out = out;
	o->attr = attr;
	o->n_attr = n_attr;
}

int dlb_graph_part_activations(struct dlb_graph *g, bool (*apart)(const void *ctx, const struct dlb_op *o),
			       const void *ctx, struct dlb_error *err)
{
	const bool trains = g->training && g->loss >= 0;
	int *order, n = 0, parted = 0;

	if (dlb_split_start(g, "rewritten", err))
		return -1;
	const int n_ops = g->n_ops;
	order = dlb_xcalloc((size_t)n_ops * 2 + 1, sizeof *order);
	for (int i = 0; i < n_ops; i++) {
		const struct dlb_fused f = dlb_graph_fused(&g->op[i]);
		order[n++] = i;
		if (!f.type || !apart(ctx, &g->op[i]))
			continue;
		order[n++] = g->n_ops;
		part(g, i, f);
		parted++;
		for (int k = 0; k < g->n_rewritten; k++)
			if (!strcmp(g->rewritten[k].name, f.rewrite) && g->rewritten[k].count)
				g->rewritten[k].count--;
	}
	dlb_graph_reorder(g, order, n);
	free(order);
	return dlb_split_finish(g, trains, err) ? -1 : parted;
}
