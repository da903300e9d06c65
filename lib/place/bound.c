/* A step time that no plan can go below. The largest of
 *
 *   load    total work over total speed. For nodes of unlike kinds that is a linear program (fractions of each
 *           group on each node, least largest load); any prices y >= 0 with sum 1 bound it from below,
 *               T >= sum over groups of min over nodes of y(d) t(g,d)          (weak duality)
 *           and steps of multiplicative updates make the prices good.
 *   chain   an op runs its M micro-batches one after the other on one node: it cannot begin before the least
 *           chain of ops to it, and the least chain from it follows its last:
 *               head(i) + min over d of T(i,d) + tail(i)
 *           (not where steps overlap: under asynchronous schedules)
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

/* Nodes alike in every time are one class: their loads can be evened out, so they have one price. */
struct classes { int n, *node, *count; };
static void find_classes(const double *t, int n_groups, int n, struct classes *c)
{
	*c = (struct classes){ 0, dlb_xcalloc((size_t)n, sizeof *c->node), dlb_xcalloc((size_t)n, sizeof *c->count) };
	for (int d = 0; d < n; d++) {
		int k = 0;
		for (; k < c->n; k++) {
			bool same = true;
			for (int g = 0; g < n_groups && same; g++) {
				double x = t[(size_t)g * (size_t)n + (size_t)d], y = t[(size_t)g * (size_t)n + (size_t)c->node[k]];
				same = x == y || (isinf(x) && isinf(y));
			}
			if (same)
				break;
		}
		if (k == c->n)
			c->node[c->n++] = d;
		c->count[k]++;
	}
}

/* Any prices certify. Steps shrink as 1/sqrt(round); loads are taken as a running mean, which settles. */
double dlb_load_bound_s(const double *time_s, int n_groups, int n_nodes)
{
	enum { ROUNDS = 3000, FEW = 4 };
	struct classes c;
	double best = 0;
	find_classes(time_s, n_groups, n_nodes, &c);
	size_t n = (size_t)c.n;
	double *y = dlb_xcalloc(n, sizeof *y), *load = dlb_xcalloc(n, sizeof *load), *mean = dlb_xcalloc(n, sizeof *mean);
	double *t = dlb_xcalloc((size_t)n_groups * n + 1, sizeof *t), looks = (double)n_groups * c.n;
	for (int g = 0; g < n_groups; g++)
		for (size_t k = 0; k < n; k++)
			t[(size_t)g * n + k] = time_s[(size_t)g * (size_t)n_nodes + (size_t)c.node[k]];
	for (size_t k = 0; k < n; k++) {		/* speed: one over the time of all that can run there */
		double s = 0;
		for (int g = 0; g < n_groups; g++)
			s += isfinite(t[(size_t)g * n + k]) ? t[(size_t)g * n + k] : 0;
		y[k] = s > 0 ? c.count[k] / s : 0;
	}
	int rounds = looks * ROUNDS <= 4e7 ? ROUNDS : looks * FEW >= 4e7 ? FEW : (int)(4e7 / looks);
	for (int round = 0; round < rounds; round++) {
		double sum = 0, bound = 0, total = 0;
		for (size_t k = 0; k < n; k++) {
			sum += y[k];
			load[k] = 0;
		}
		for (size_t k = 0; k < n && sum > 0; k++)
			y[k] /= sum;			/* of the class: each of its nodes has y / count */
		for (int g = 0; g < n_groups; g++) {
			const double *row = &t[(size_t)g * n];
			double least = INFINITY;
			size_t at = n;
			for (size_t k = 0; k < n; k++) {
				double price = y[k] / c.count[k] * row[k];
				if (price < least) {		/* infinite where it cannot be, or NaN at price 0: never less */
					least = price;
					at = k;
				}
			}
			if (at < n) {
				bound += least;
				load[at] += row[at] / c.count[at];
			}
		}
		best = bound > best ? bound : best;
		for (size_t k = 0; k < n; k++) {
			mean[k] += (load[k] - mean[k]) / (round < 8 ? round + 1 : 8);
			total += mean[k] / (double)n;
		}
		for (size_t k = 0; k < n && total > 0; k++) {	/* who is loaded more gets dearer */
			double step = 0.4 / sqrt(1 + round) * (mean[k] / total - 1);
			y[k] *= exp(step > 1 ? 1 : step < -1 ? -1 : step);
		}
	}
	free(t);
	free(y);
	free(load);
	free(mean);
	free(c.node);
	free(c.count);
	return best;
}

static double load_bound(const struct dlb_problem *p)
{
	size_t D = (size_t)p->cluster->n_nodes;
	double *t = dlb_xcalloc((size_t)p->n_groups * D + 1, sizeof *t);
	for (int g = 0; g < p->n_groups; g++)
		for (size_t d = 0; d < D; d++)
			t[(size_t)g * D + d] = stated_s(p, g, (int)d);
	double s = dlb_load_bound_s(t, p->n_groups, (int)D);
	free(t);
	return s;
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
	double best = load_bound(p), chain = p->schedule && p->schedule->async ? 0 : chain_bound(p);
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
