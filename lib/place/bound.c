/* A step time that no plan can go below. The largest of
 *
 *   load    total work over total speed. For nodes of unlike kinds that is a linear program (fractions of each
 *           group on each node, least largest load); any prices y >= 0 with sum 1 bound it from below,
 *               T >= sum over groups of min over nodes of y(d) t(g,d)          (weak duality)
 *           and a few steps of multiplicative updates make the prices good.
 *   chain   an op runs its M micro-batches one after the other on one node: it cannot begin before the least
 *           chain of ops to it, and the least chain from it follows its last:
 *               head(i) + min over d of T(i,d) + tail(i)
 *   group   what is bound together takes its time on its best node.
 *
 * Costs are those that are stated: kappa in, weights not. Messages are free here. */
#include <math.h>
#include <stdlib.h>
#include "place/place.h"

/* t(g,d) without weights. */
static double stated_s(const struct dlb_problem *p, int g, int d)
{
	return p->time_s[(size_t)g * (size_t)p->cluster->n_nodes + (size_t)d] / p->ranked_scale[d] * p->stated_scale[d];
}

static double load_bound(const struct dlb_problem *p)
{
	int n = p->cluster->n_nodes;
	double *y = dlb_xcalloc((size_t)n, sizeof *y), *load = dlb_xcalloc((size_t)n, sizeof *load), best = 0;
	for (int d = 0; d < n; d++) {			/* speed: one over the time of all that can run there */
		double s = 0;
		for (int g = 0; g < p->n_groups; g++)
			s += isfinite(stated_s(p, g, d)) ? stated_s(p, g, d) : 0;
		y[d] = s > 0 ? 1 / s : 0;
	}
	double looks = (double)p->n_groups * n;		/* any round's prices certify; very large problems get fewer */
	int rounds = looks * 40 <= 4e8 ? 40 : looks * 4 >= 4e8 ? 4 : (int)(4e8 / looks);
	for (int round = 0; round < rounds; round++) {
		double sum = 0, bound = 0, most = 0;
		for (int d = 0; d < n; d++) {
			sum += y[d];
			load[d] = 0;
		}
		for (int d = 0; d < n && sum > 0; d++)
			y[d] /= sum;
		for (int g = 0; g < p->n_groups; g++) {
			double least = INFINITY;
			int at = -1;
			for (int d = 0; d < n; d++) {
				double t = stated_s(p, g, d);
				if (isfinite(t) && y[d] * t < least) {
					least = y[d] * t;
					at = d;
				}
			}
			if (at >= 0) {
				bound += least;
				load[at] += stated_s(p, g, at);
			}
		}
		best = bound > best ? bound : best;
		for (int d = 0; d < n; d++)
			most = load[d] > most ? load[d] : most;
		for (int d = 0; d < n && most > 0; d++)	/* who is loaded more gets dearer */
			y[d] *= exp(0.5 / (1 + round) * (load[d] / most - 0.5));
	}
	free(y);
	free(load);
	return best;
}

static double best_kind_s(const struct dlb_problem *p, int op, double n)
{
	double best = INFINITY;
	if (dlb_graph_is_view(p->graph, op))
		return 0;
	for (int d = 0; d < p->cluster->n_nodes; d++) {
		double s = dlb_cost_op_s(p->cost, op, d, n) * p->stated_scale[d];
		best = s < best ? s : best;
	}
	return isfinite(best) ? best : 0;
}

static double chain_bound(const struct dlb_problem *p)
{
	const struct dlb_graph *g = p->graph;
	int M = p->micro_batches;
	double large = (double)dlb_micro_batch_size(p->batch, M, 0), small = (double)dlb_micro_batch_size(p->batch, M, M - 1);
	double n_large = p->batch % M ? (double)(p->batch % M) : M, best = 0;
	double *head = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *head), *tail = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *tail);
	double *first = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *first), *last = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *last);
	for (int i = 0; i < g->n_ops; i++) {
		first[i] = best_kind_s(p, i, large);
		last[i] = small == large ? first[i] : best_kind_s(p, i, small);
		if (g->op[i].phase == DLB_UPDATE)
			last[i] = first[i];
	}
	for (int i = 0; i < g->n_ops; i++) {
		for (int k = 0; k < g->op[i].n_in; k++) {
			int t = g->op[i].in[k], from = t < 0 || dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;
			if (from >= 0 && head[from] + first[from] > head[i])
				head[i] = head[from] + first[from];
		}
	}
	for (int i = g->n_ops - 1; i >= 0; i--) {
		bool update = g->op[i].phase == DLB_UPDATE;
		double all = update ? first[i] : n_large * first[i] + (M - n_large) * last[i];
		if (head[i] + all + tail[i] > best)
			best = head[i] + all + tail[i];
		for (int k = 0; k < g->op[i].n_in; k++) {
			int t = g->op[i].in[k], from = t < 0 || dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;
			if (from >= 0 && tail[i] + last[i] > tail[from])
				tail[from] = tail[i] + last[i];
		}
	}
	free(head);
	free(tail);
	free(first);
	free(last);
	return best;
}

double dlb_lower_bound_s(const struct dlb_problem *p)
{
	if (p->objective != DLB_STEP) {
		struct dlb_port port;
		dlb_port_init(&port, p, false);
		double s = dlb_port_bound_s(&port, p->objective == DLB_LATENCY);
		dlb_port_release(&port);
		return s;
	}
	double best = load_bound(p), chain = chain_bound(p);
	best = chain > best ? chain : best;
	for (int g = 0; g < p->n_groups; g++) {
		double least = INFINITY;
		for (int d = 0; d < p->cluster->n_nodes; d++)
			if (stated_s(p, g, d) < least)
				least = stated_s(p, g, d);
		if (isfinite(least) && least > best)
			best = least;
	}
	return best * (1 - 1e-9);			/* sums here and in the simulator round differently */
}
