/* Finds the Split behind a weight. See fused_weight.h. */
#include "graph/fused_weight.h"
#include "graph/pattern.h"

/* The only forward op that reads t; -1: none, or several. */
static int only_reader(const struct dlb_graph *g, int t)
{
	int found = -1;

	for (int k = g->reader_start[t]; k < g->reader_start[t + 1]; k++) {
		if (g->op[g->reader[k]].phase != DLB_FORWARD)
			continue;
		if (found >= 0)
			return -1;
		found = g->reader[k];
	}
	return found;
}

static int64_t columns_of(const struct dlb_graph *g, int t)
{
	const struct dlb_tensor *x = &g->tensor[t];

	return x->n_dims > 0 && !x->dim[x->n_dims - 1].mul ? x->dim[x->n_dims - 1].add : -1;
}

/* Is op i the product of another tensor with the transpose of w? */
static bool multiplies(const struct dlb_graph *g, int i, int w)
{
	return dlb_is_op(g, i, "Gemm") && g->op[i].in[1] == w && g->op[i].in[0] != w &&
	       columns_of(g, g->op[i].out[0]) == g->tensor[w].dim[0].add;
}

/* Does op i keep the columns of t together? A view does, and the sum with a bias. */
static bool keeps_columns(const struct dlb_graph *g, int i, int t)
{
	return (dlb_is_view(g, i) || dlb_is_op(g, i, "Add")) &&
	       columns_of(g, g->op[i].out[0]) == columns_of(g, t);
}

int dlb_fused_weights(const struct dlb_graph *g, int w, int64_t rows[DLB_MOST_FUSED])
{
	int i = g->tensor[w].n_dims == 2 && !g->tensor[w].dim[0].mul ? only_reader(g, w) : -1, t;
	int64_t all = 0;

	if (i < 0 || !multiplies(g, i, w))
		return 1;
	do {
		t = g->op[i].out[0];
		i = only_reader(g, t);
	} while (i >= 0 && keeps_columns(g, i, t));
	if (!dlb_is_op(g, i, "Split") || g->op[i].n_out < 2 || g->op[i].n_out > DLB_MOST_FUSED)
		return 1;
	for (int k = 0; k < g->op[i].n_out; k++) {
		rows[k] = columns_of(g, g->op[i].out[k]);
		all += rows[k] > 0 ? rows[k] : INT32_MIN;
	}
	return all == g->tensor[w].dim[0].add ? g->op[i].n_out : 1;
}
