/* Relu in the pass that makes what it is applied to: in an Add, and in a convolution by the kernel library's own means.
 * Relu's gradient works from its output, so nothing else has to be kept. */
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

int dlb_rewrite_add_activation(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
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

int dlb_rewrite_activation(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_match m = { .g = g, .root = i };
		const int conv = dlb_is_op(g, i, "Relu") ? dlb_match_op(&m, g->op[i].in[0], "Conv") : -1;
		if (conv < 0 || !dlb_match_closed(&m))
			continue;
		const struct dlb_op *o = &g->op[conv];
		struct dlb_attr *attr = dlb_arena_array(&g->arena, (size_t)o->n_attr + 1, sizeof *attr);
		if (o->n_attr)
			memcpy(attr, o->attr, (size_t)o->n_attr * sizeof *attr);
		attr[o->n_attr] = (struct dlb_attr){ .name = "activation", .type = DLB_ATTR_STR, .s = "Relu" };
		if (dlb_match_fuse(&m, "Conv", "", o->in, o->n_in, attr, o->n_attr + 1, conv, count, err))
			return -1;
	}
	return 0;
}
