/* Removes ops that change nothing, and fuses LogSoftmax with NegativeLogLikelihoodLoss. */
#include <stdlib.h>
#include <string.h>
#include "graph/order.h"
#include "graph/pattern.h"
#include "graph/rewrites.h"

static bool keeps_order(const struct dlb_op *o)
{
	const int64_t *perm;
	const int n = dlb_attr_ints(o->attr, o->n_attr, "perm", &perm);

	for (int i = 0; i < n; i++)
		if (perm[i] != i)
			return false;
	return n > 0;
}

/* Is the only output of op i equal to its first input? */
static bool is_no_op(const struct dlb_graph *g, int i)
{
	static const char *const by_shape[] = { "Cast",    "Reshape",   "Expand",  "Slice",
						"Squeeze", "Unsqueeze", "Flatten", "Identity" };
	const struct dlb_op *o = &g->op[i];

	if (o->n_out != 1 || o->n_in < 1 || o->in[0] < 0 || !dlb_match_same_shape(g, o->in[0], o->out[0]))
		return false;
	if (dlb_is_op(g, i, "Transpose"))
		return keeps_order(o);
	if (dlb_is_op(g, i, "Slice")) {		/* with a negative step the shape may be equal too */
		double step = 1;
		const struct dlb_tensor *t = o->n_in > 4 && o->in[4] >= 0 ? &g->tensor[o->in[4]] : NULL;
		for (int64_t k = 0; t && t->n_dims == 1 && k < t->dim[0].add && step == 1; k++)
			step = t->kind == DLB_T_CONSTANT && t->data ? dlb_value_real(t->data, t->dtype, k) :
								      0;
		return step == 1;
	}
	for (int k = 0; k < DLB_LEN(by_shape); k++)
		if (dlb_is_op(g, i, by_shape[k]))
			return true;
	return false;
}

/* Replaces op o's operands that have a replacement (instead[t] >= 0) by the last of
 * the chain of replacements. */
static void read_instead(struct dlb_op *o, const int *instead)
{
	for (int k = 0; k < o->n_in; k++)
		while (o->in[k] >= 0 && instead[o->in[k]] >= 0)
			o->in[k] = instead[o->in[k]];
}

/* Each op is visited once, after those that it reads: visiting all readers for each
 * removed op would be quadratic. */
int dlb_rewrite_no_ops(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	int *instead = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *instead);

	(void)err;
	for (int t = 0; t < g->n_tensors; t++)
		instead[t] = -1;
	for (int i = 0; i < g->n_ops; i++) {
		read_instead(&g->op[i], instead);
		if (!is_no_op(g, i) || dlb_graph_is_output(g, g->op[i].out[0]) || g->op[i].out[0] == g->loss)
			continue;
		instead[g->op[i].out[0]] = g->op[i].in[0];
		g->op[i].n_in = g->op[i].n_out = 0;
		(*count)++;
	}
	for (int i = 0; i < g->n_ops; i++)
		read_instead(&g->op[i], instead);
	free(instead);
	dlb_graph_index(g);
	return 0;
}

/* NegativeLogLikelihoodLoss of LogSoftmax over axis 1 becomes SoftmaxCrossEntropyLoss
 * with the same attributes. */
int dlb_rewrite_cross_entropy(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_match m = { .g = g, .root = i };
		if (!dlb_is_op(g, i, "NegativeLogLikelihoodLoss"))
			continue;
		const int log = dlb_match_op(&m, g->op[i].in[0], "LogSoftmax");
		if (log < 0 || !dlb_match_closed(&m))
			continue;
		const struct dlb_op *o = &g->op[log];
		const int n_dims = g->tensor[o->in[0]].n_dims;
		const int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", o->opset >= 13 ? -1 : 1);
		if ((axis < 0 ? axis + n_dims : axis) != 1 || (o->opset < 13 && n_dims != 2))
			continue;
		const int in[3] = { o->in[0], g->op[i].in[1], g->op[i].n_in > 2 ? g->op[i].in[2] : -1 };
		if (dlb_match_fuse(&m,
				   &(struct dlb_op_spec){ .type = "SoftmaxCrossEntropyLoss", .in = in,
							  .n_in = in[2] < 0 ? 2 : 3, .attr = g->op[i].attr,
							  .n_attr = g->op[i].n_attr }, -1, count, err))
			return -1;
	}
	return 0;
}
