/* Chooses the sums to add in pairs: see pair_sums.h. */
#include "cost/pair_sums.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "graph/split.h"

struct pair_sum_search {
	const struct dlb_cost *c;
	const struct dlb_graph *g;
	struct dlb_arena a;
	int *fastest;				/* node ids, fastest first */
	double *load;				/* [direction] seconds of transfers */
	int n_directions;
};

int *dlb_cost_fastest_nodes(const struct dlb_cost *c, struct dlb_arena *a)
{
	const int n = c->cluster->n_nodes;
	double *total = dlb_xcalloc((size_t)n + 1, sizeof *total);
	int *fastest = dlb_arena_array(a, (size_t)n + 1, sizeof *fastest);

	for (int i = 0; i < n; i++) {
		int at = i;
		for (int op = 0; op < c->n_ops; op++)
			total[i] += dlb_cost_op_s(c, op, i, (double)c->graph->batch);
		for (; at > 0 && total[fastest[at - 1]] > total[i]; at--)
			fastest[at] = fastest[at - 1];
		fastest[at] = i;
	}
	free(total);
	return fastest;
}

/* The forward op of op: op itself, or the op that it differentiates. */
static int forward_of(const struct dlb_graph *g, int op)
{
	return g->op[op].phase == DLB_FORWARD || g->op[op].of < 0 ? op : g->op[op].of;
}

static int node_of(const struct pair_sum_search *x, int shard)
{
	return x->fastest[shard % x->c->cluster->n_nodes];
}

/* Adds to the loads a transfer that starts together with those added before; returns its latency. */
static double send(struct pair_sum_search *x, double bytes, int from, int to)
{
	const struct dlb_cluster *cl = x->c->cluster;
	struct dlb_direction direction[DLB_MAX_ROUTE];
	struct dlb_way way;
	const int n = dlb_cluster_directions(cl, from, to, direction, &way);

	for (int i = 0; i < n; i++)
		x->load[direction[i].id] += bytes / cl->link[direction[i].link].bandwidth_Bps;
	return way.latency_s;
}

/* Seconds until all transfers in the loads have arrived; clears the loads. */
static double arrive(struct pair_sum_search *x, double latency)
{
	double most = 0;

	for (int l = 0; l < x->n_directions; l++) {
		most = fmax(most, x->load[l]);
		x->load[l] = 0;
	}
	return latency + most;
}

/* Seconds of the longest op of the shards, in the sum's phase, except the sum and the ops that compute its
 * parts. */
static double longest_besides(const struct pair_sum_search *x, int sum, const int *op, int n)
{
	const struct dlb_graph *g = x->g;
	double longest = 0;

	for (int i = 0; i < g->n_ops; i++) {
		bool part = i == sum || g->op[i].phase != g->op[sum].phase, same = false;
		for (int k = 0; k < n; k++) {
			part |= op[k] == i;
			same |= forward_of(g, op[k]) == forward_of(g, i);
		}
		if (same && !part)
			longest = fmax(longest,
				       dlb_cost_op_s(x->c, i,
						     node_of(x,
							     dlb_split_shard(g->op[forward_of(g, i)].name)),
						     (double)g->batch));
	}
	return longest;
}

/* Relative gain if a sum of n parts, computed by the ops op[n], is added in pairs: (seconds by one op -
 * seconds in pairs) / seconds by one op. */
static double gain(struct pair_sum_search *x, int sum, const int *op, int n)
{
	const struct dlb_graph *g = x->g;
	const double bytes = dlb_tensor_bytes(&g->tensor[g->op[sum].out[0]], g->batch);
	/* seconds per tensor read or written */
	const double add_s = dlb_cost_op_s(x->c, sum, node_of(x, 0), (double)g->batch) / (n + 1);
	int *count = dlb_xcalloc((size_t)n + 1, sizeof *count),
	    *shard = dlb_xcalloc((size_t)n + 1, sizeof *shard), K = 0, most = 1;
	double latency = 0, one = 0, pairs = 0;

	for (int i = 0; i < n; i++) {
		const int s = dlb_split_shard(g->op[forward_of(g, op[i])].name);
		int k = 0;
		while (k < K && shard[k] != s)
			k++;
		K += k == K;
		shard[k] = s;
		most = ++count[k] > most ? count[k] : most;
		latency = fmax(latency, send(x, bytes, node_of(x, s < 0 ? 0 : s), node_of(x, 0)));
	}
	one = arrive(x, latency) + add_s * (n + 1);
	if (most > 1)				/* each shard first adds its own parts */
		pairs += add_s * (most + 1);
	const double wait = longest_besides(x, sum, op, n) / 2;
	for (int step = 1; step < K; step *= 2) {
		latency = 0;
		for (int k = 0; k + step < K; k += 2 * step)
			latency = fmax(latency, send(x, bytes, node_of(x, k + step), node_of(x, k)));
		pairs += arrive(x, latency) + 3 * add_s + (2 * step < K ? wait : 0);
	}
	free(count);
	free(shard);
	return (one - pairs) / one;
}

static const double least_gain = 0.02;

int dlb_cost_choose_pairs(const struct dlb_cost *c, struct dlb_graph *g)
{
	struct pair_sum_search x = { .c = c, .g = g };
	int n_marked = 0;
	const bool routes = c->cluster->link_model == DLB_LINKS_ROUTES;

	x.fastest = dlb_cost_fastest_nodes(c, &x.a);
	x.n_directions = dlb_cluster_n_directions(c->cluster);
	x.load = dlb_arena_array(&x.a, (size_t)x.n_directions + 1, sizeof *x.load);
	for (int i = 0; i < g->n_ops && routes; i++) {
		const struct dlb_op *o = &g->op[i];
		int *op = dlb_arena_array(&x.a, (size_t)o->n_in + 1, sizeof *op), n_shards = 0;
		const bool sum = o->n_in > 2 && !strcmp(o->type, "Sum") && !*o->domain &&
			dlb_tensor_bytes(&g->tensor[o->out[0]], g->batch) >= DLB_SPLIT_PAIRS_BYTES;
		for (int k = 0; k < o->n_in && sum; k++) {
			op[k] = g->tensor[o->in[k]].producer;
			n_shards += op[k] >= 0 && dlb_split_of_shard(g, g->op[forward_of(g, op[k])].name);
		}
		if (!sum || n_shards < o->n_in || gain(&x, i, op, o->n_in) < least_gain)
			continue;
		for (int k = 0; k < o->n_in; k++) {
			struct dlb_was_split *w = dlb_split_of_shard(g, g->op[forward_of(g, op[k])].name);
			n_marked += !w->pairs;
			w->pairs = true;
		}
	}
	dlb_arena_release(&x.a);
	return n_marked;
}
