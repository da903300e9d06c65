/* PEFT: HEFT with look-ahead. The optimistic cost table has the least time from the end of op i on node d
 * to the end of the step, if every later op runs on its best node and finds it idle:
 *
 *     OCT(i,d) = max over readers j of min over nodes w of OCT(j,w) + t(j,w) + (w = d ? 0 : c(i,j))
 *
 * with c the mean over pairs of nodes. Priority is the mean of OCT(i,.); the node is that of the least EFT
 * + OCT. Arabnejad, Barbosa, IEEE TPDS 25(3), 2014. A group has the row of its first op. */
#include <math.h>
#include <stdlib.h>
#include "place/eft.h"
#include "place/list.h"
#include "plan/replica.h"

struct oct_table {
	const struct dlb_problem *p;
	int64_t n;				/* samples of a micro-batch */
	double *rest;				/* [op][node] OCT(j,w) + t(j,w); INFINITY: no kernel */
	double *least;				/* [op] the minimum of its row */
};

/* OCT(i,.) from the rows of its readers. */
static void look_ahead(const struct oct_table *x, int i, double *oct)
{
	const struct dlb_graph *g = x->p->graph;
	int n_nodes = x->p->cluster->n_nodes;
	for (int d = 0; d < n_nodes; d++)
		oct[d] = 0;
	for (int k = 0; k < g->op[i].n_out; k++) {
		int t = g->op[i].out[k];
		if (t < 0 || g->tensor[t].producer != i)
			continue;
		double c = dlb_mean_xfer_s(x->p, dlb_tensor_bytes(&g->tensor[t], x->n));
		for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
			const double *rest = x->rest + (size_t)g->reader[r] * (size_t)n_nodes;
			/* at the best node; if that is d, rest[d] is less */
			double away = x->least[g->reader[r]] + c;
			for (int d = 0; d < n_nodes; d++)
				oct[d] = fmax(oct[d], fmin(rest[d], away));
		}
	}
}

int dlb_place_peft(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	size_t n_nodes = (size_t)p->cluster->n_nodes, n_ops = (size_t)p->graph->n_ops;
	struct oct_table x = { .p = p, .n = dlb_micro_batch_size(p->batch, p->micro_batches, 0) };
	x.rest = dlb_xcalloc(n_ops * n_nodes, sizeof *x.rest);
	x.least = dlb_xcalloc(n_ops, sizeof *x.least);
	double *oct = dlb_xcalloc(n_nodes, sizeof *oct),
	       *priority = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *priority);
	double *bias = dlb_xcalloc((size_t)p->n_groups * n_nodes + 1, sizeof *bias);
	for (int i = p->graph->n_ops - 1; i >= 0; i--) {
		int unit = p->group_of[i];
		bool first = p->group_op[p->group_start[unit]] == i;
		look_ahead(&x, i, oct);
		x.least[i] = INFINITY;
		for (size_t d = 0; d < n_nodes; d++) {
			double *rest = &x.rest[(size_t)i * n_nodes + d];
			*rest = oct[d] + dlb_cost_op_s(p->cost, i, (int)d, (double)x.n) * p->ranked_scale[d];
			x.least[i] = fmin(x.least[i], *rest);
			if (first) {
				bias[(size_t)unit * n_nodes + d] = oct[d];
				priority[unit] += oct[d] / (double)n_nodes;
			}
		}
	}
	int rc = dlb_list_schedule(p, priority, bias, true, placement, err);
	free(x.rest);
	free(x.least);
	free(oct);
	free(priority);
	free(bias);
	return rc;
}
