/* Relu in the pass that makes what it is applied to: in an Add, in a batch normalization, and
 * in a convolution by the kernel library's own means.
 * Relu's gradient works from its output, so nothing else has to be kept. */
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

int dlb_rewrite_add_relu(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_match m = { .g = g, .root = i };
		const int add = dlb_is_op(g, i, "Relu") ? dlb_match_op(&m, g->op[i].in[0], "Add") : -1;
		if (add < 0 || g->op[add].n_in != 2 || !dlb_dtype_is_float(g->tensor[g->op[i].out[0]].dtype) ||
		    g->op[add].opset < 7 || !dlb_match_closed(&m))
			continue;
		const int in[2] = { g->op[add].in[0], g->op[add].in[1] };
		if (dlb_match_fuse(&m, "AddRelu", "dlb", in, 2, NULL, 0, add, count, err))
			return -1;
	}
	return 0;
}

/* The operands and attributes of op i, and Relu as its activation, become the root's; outputs of i that nobody reads stay
 * absent ones: before opset 14 their number tells training from use. */
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
	if (dlb_match_fuse(m, o.type, o.domain, o.in, o.n_in, attr, o.n_attr + 1, i, count, err))
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
