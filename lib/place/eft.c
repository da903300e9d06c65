/* Upward ranks: the longest path from an op to the end of the step (HEFT's priority). */
#include <math.h>
#include <stdlib.h>
#include "place/eft.h"
#include "place/place.h"
#include "plan/replica.h"

/* Half of the transfer time between the first and the last node, which are usually the farthest. */
double dlb_mean_xfer_s(const struct dlb_problem *p, double bytes)
{
	int n_nodes = p->cluster->n_nodes;
	return n_nodes > 1 ? dlb_cost_xfer_s(p->cost, bytes, 0, n_nodes - 1) * 0.5 : 0;
}

/* rank(i) = w(i) + max over readers j of (c(i,j) + rank(j)), with w and c means over nodes and pairs of
 * nodes; a group's rank is its first op's. Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002. */
void dlb_upward_rank_s(const struct dlb_problem *p, double *rank)
{
	const struct dlb_graph *g = p->graph;
	int n_nodes = p->cluster->n_nodes;
	int64_t n = dlb_micro_batch_size(p->batch, p->micro_batches, 0);
	double *up = dlb_xcalloc((size_t)g->n_ops + 1, sizeof(double));
	for (int i = g->n_ops - 1; i >= 0; i--) {
		double w = 0, most = 0;
		int able = 0;
		for (int d = 0; d < n_nodes; d++) {
			double s = dlb_cost_op_s(p->cost, i, d, (double)n);
			if (isfinite(s)) {
				w += s * p->ranked_scale[d];
				able++;
			}
		}
		for (int k = 0; k < g->op[i].n_out; k++) {
			int t = g->op[i].out[k];
			if (t < 0)
				continue;
			double c = dlb_mean_xfer_s(p, dlb_tensor_bytes(&g->tensor[t], n));
			for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
				if (up[g->reader[r]] + c > most)
					most = up[g->reader[r]] + c;
		}
		up[i] = (able ? w / able : 0) + most;
		if (p->group_op[p->group_start[p->group_of[i]]] == i)
			rank[p->group_of[i]] = up[i];
	}
	free(up);
}
