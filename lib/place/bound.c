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
#include <string.h>
#include "place/place.h"

/* Nodes alike in every time (and scale, where there is one) are one class: their loads can be evened out, so they
 * have one price. Times lie in rows of nodes, so that columns are compared row by row: first by hash, then for sure. */
struct classes { int n, *node, *count; };
static void find_classes(const double *t, const double *scale, int n_groups, int n, struct classes *c)
{
	uint64_t *hash = dlb_xcalloc((size_t)n + 1, sizeof *hash);
	int *same = dlb_xcalloc((size_t)n + 1, sizeof *same);
	*c = (struct classes){ 0, dlb_xcalloc((size_t)n + 1, sizeof *c->node), dlb_xcalloc((size_t)n + 1, sizeof *c->count) };
	for (int d = 0; d < n; d++)
		memcpy(&hash[d], scale ? &scale[d] : &(double){ 1 }, sizeof *hash);
	for (int g = 0; g < n_groups; g++) {
		for (int d = 0; d < n; d++) {
			uint64_t bits;
			memcpy(&bits, &t[(size_t)g * (size_t)n + (size_t)d], sizeof bits);
			hash[d] = (hash[d] ^ bits) * UINT64_C(0x9e3779b97f4a7c15) ^ hash[d] >> 29;
		}
	}
	for (int d = 0; d < n; d++)			/* the first of its hash */
		for (same[d] = 0; hash[same[d]] != hash[d];)
			same[d]++;
	for (int g = 0; g < n_groups; g++) {		/* two that only have their hash in common are told apart */
		const double *row = &t[(size_t)g * (size_t)n];
		for (int d = 0; d < n; d++)
			if (row[d] != row[same[d]])
				same[d] = d;
	}
	for (int d = 0; d < n; d++) {
		if (same[d] == d)
			c->node[c->n++] = d;
		for (int k = 0; k < c->n; k++)
			c->count[k] += c->node[k] == same[d];
	}
	free(hash);
	free(same);
}

static void release_classes(struct classes *c)
{
	free(c->node);
	free(c->count);
}

/* Any prices certify. Steps shrink as 1/sqrt(round); loads are taken as a running mean, which settles. */
static double price_bound(const double *t, int n_groups, const int *count, int n_classes)
{
	enum { ROUNDS = 3000, FEW = 4 };
	double best = 0;
	size_t n = (size_t)n_classes;
	double *y = dlb_xcalloc(n, sizeof *y), *load = dlb_xcalloc(n, sizeof *load), *mean = dlb_xcalloc(n, sizeof *mean);
	double looks = (double)n_groups * n_classes;
	for (size_t k = 0; k < n; k++) {		/* speed: one over the time of all that can run there */
		double s = 0;
		for (int g = 0; g < n_groups; g++)
			s += isfinite(t[(size_t)g * n + k]) ? t[(size_t)g * n + k] : 0;
		y[k] = s > 0 ? count[k] / s : 0;
	}
	int rounds = looks * ROUNDS <= 4e7 ? ROUNDS : looks * FEW >= 4e7 ? FEW : (int)(4e7 / looks);
	if (n == 1)					/* one price: nothing to choose */
		rounds = 1;
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
				double price = y[k] / count[k] * row[k];
				if (price < least) {		/* infinite where it cannot be, or NaN at price 0: never less */
					least = price;
					at = k;
				}
			}
			if (at < n) {
				bound += least;
				load[at] += row[at] / count[at];
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
	free(y);
	free(load);
	free(mean);
	return best;
}

/* scale[node] (NULL: 1) multiplies times. */
static double load_bound(const double *time_s, const double *scale, int n_groups, int n_nodes)
{
	struct classes c;
	find_classes(time_s, scale, n_groups, n_nodes, &c);
	double *t = dlb_xmalloc(((size_t)n_groups * (size_t)c.n + 1) * sizeof *t);
	for (size_t g = 0; g < (size_t)n_groups; g++)
		for (int k = 0; k < c.n; k++)
			t[g * (size_t)c.n + (size_t)k] = time_s[g * (size_t)n_nodes + (size_t)c.node[k]] * (scale ? scale[c.node[k]] : 1);
	double s = price_bound(t, n_groups, c.count, c.n);
	for (int g = 0; g < n_groups; g++) {		/* a group takes its time on its best node */
		double least = INFINITY;
		for (int k = 0; k < c.n; k++)
			least = fmin(least, t[(size_t)g * (size_t)c.n + (size_t)k]);
		if (isfinite(least) && least > s)
			s = least;
	}
	free(t);
	release_classes(&c);
	return s;
}

double dlb_load_bound_s(const double *time_s, int n_groups, int n_nodes)
{
	return load_bound(time_s, NULL, n_groups, n_nodes);
}

static double stated_load_bound_s(const struct dlb_problem *p)
{
	size_t D = (size_t)p->cluster->n_nodes;
	double *scale = dlb_xcalloc(D + 1, sizeof *scale);
	for (size_t d = 0; d < D; d++)
		scale[d] = p->stated_scale[d] / p->ranked_scale[d];
	double s = load_bound(p->time_s, scale, p->n_groups, (int)D);
	free(scale);
	return s;
}

/* One of each sort of node: the same kind, speed and kappa. */
static int *find_sorts(const struct dlb_problem *p, int *n)
{
	const struct dlb_cluster *c = p->cluster;
	int *node = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *node);
	*n = 0;
	for (int d = 0; d < c->n_nodes; d++) {
		int k = 0;
		while (k < *n && (c->node[node[k]].kind != c->node[d].kind || c->node[node[k]].speed != c->node[d].speed ||
				  p->stated_scale[node[k]] != p->stated_scale[d]))
			k++;
		if (k == *n)
			node[(*n)++] = d;
	}
	return node;
}

static double best_s(const struct dlb_problem *p, const int *sort, int n_sorts, int op, double n)
{
	double best = INFINITY;
	if (dlb_graph_is_view(p->graph, op))
		return 0;
	for (int k = 0; k < n_sorts; k++) {
		double s = dlb_cost_op_s(p->cost, op, sort[k], n) * p->stated_scale[sort[k]];
		best = s < best ? s : best;
	}
	return isfinite(best) ? best : 0;
}

static double chain_bound(const struct dlb_problem *p)
{
	const struct dlb_graph *g = p->graph;
	int M = p->micro_batches, n_sorts, *sort = find_sorts(p, &n_sorts);
	double large = (double)dlb_micro_batch_size(p->batch, M, 0), small = (double)dlb_micro_batch_size(p->batch, M, M - 1);
	double n_large = p->batch % M ? (double)(p->batch % M) : M, best = 0;
	double *head = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *head), *tail = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *tail);
	double *first = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *first), *last = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *last);
	for (int i = 0; i < g->n_ops; i++) {
		first[i] = best_s(p, sort, n_sorts, i, large);
		last[i] = small == large ? first[i] : best_s(p, sort, n_sorts, i, small);
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
	free(sort);
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
	double best = stated_load_bound_s(p), chain = p->schedule && p->schedule->async ? 0 : chain_bound(p);
	best = chain > best ? chain : best;
	return best * (1 - 1e-9);			/* sums here and in the simulator round differently */
}
