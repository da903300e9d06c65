/* A lower bound on the step of every plan: the largest of
 *
 *   load    total work over total speed. For nodes of several kinds it is a linear program (fractions of
 *           each group on each node that minimize the largest load). Any prices y >= 0 with sum 1 bound it
 *           from below,
 *               T >= sum over groups of min over nodes of y(d) t(g,d)          (weak duality)
 *           and multiplicative updates improve the prices. With memory limits (port model), the fractions of groups
 *           must also fit: with prices m >= 0 for all the memory of a node,
 *               T >= sum over groups of min over nodes of y(d) t(g,d) + m(d) bytes(g) / room(d)  -  sum over nodes of m(d)
 *   chain   an op runs its M micro-batches one after the other on one node. The shortest chain of ops to it
 *           comes before the first, the shortest chain from it after the last:
 *               head(i) + min over d of T(i,d) + tail(i)
 *           (not under asynchronous schedules, where steps overlap)
 *   group   a group of colocated ops takes its time on its best node.
 *
 * Costs include kappa but not node weights. Messages cost nothing here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/bound.h"
#include "place/place.h"
#include "place/problem.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/tensors.h"

/* Nodes with equal times (and equal scale or room, if given) form a class. Their loads can be averaged, so
 * they have one price. Times are in rows, one column per node, or per count[node] equal nodes (NULL: 1).
 * Columns are compared by hash, then by value. */
struct classes { int n, *node, *count; };
static void find_classes(const double *t, const double *more, int n_groups, const int *count, int n,
			 struct classes *c)
{
	uint64_t *hash = dlb_xcalloc((size_t)n + 1, sizeof *hash);
	int *same = dlb_xcalloc((size_t)n + 1, sizeof *same);
	*c = (struct classes){ 0, dlb_xcalloc((size_t)n + 1, sizeof *c->node),
			       dlb_xcalloc((size_t)n + 1, sizeof *c->count) };
	for (int d = 0; d < n; d++)
		memcpy(&hash[d], more ? &more[d] : &(double){ 1 }, sizeof *hash);
	for (int g = 0; g < n_groups; g++) {
		for (int d = 0; d < n; d++) {
			uint64_t bits;
			memcpy(&bits, &t[(size_t)g * (size_t)n + (size_t)d], sizeof bits);
			hash[d] = (hash[d] ^ bits) * UINT64_C(0x9e3779b97f4a7c15) ^ hash[d] >> 29;
		}
	}
	for (int d = 0; d < n; d++)			/* the first node of each hash */
		for (same[d] = 0; hash[same[d]] != hash[d];)
			same[d]++;
	for (int g = 0; g < n_groups; g++) {		/* separates nodes whose hashes alone are equal */
		const double *row = &t[(size_t)g * (size_t)n];
		for (int d = 0; d < n; d++)
			if (row[d] != row[same[d]])
				same[d] = d;
	}
	for (int d = 0; d < n; d++) {
		if (same[d] == d)
			c->node[c->n++] = d;
		for (int k = 0; k < c->n; k++)
			c->count[k] += c->node[k] == same[d] ? count ? count[d] : 1 : 0;
	}
	free(hash);
	free(same);
}

static void release_classes(struct classes *c)
{
	free(c->node);
	free(c->count);
}

/* share[g][k] = bytes(g) / (count(k) room(k)), group g's share of the memory of class k; NULL: memory does
 * not bind. */
struct prices { size_t n; double *y, *m, *load, *full, *mean, *mean_full; };

/* The bound at given prices; load and full: the time and memory used by the minimizing assignment. */
static double at_prices(const struct prices *p, const double *t, const double *share, const int *count,
			int n_groups)
{
	double bound = 0;
	memset(p->load, 0, p->n * sizeof *p->load);
	memset(p->full, 0, p->n * sizeof *p->full);
	for (int g = 0; g < n_groups; g++) {
		const double *row = &t[(size_t)g * p->n], *part = share ? &share[(size_t)g * p->n] : NULL;
		double least = INFINITY;
		size_t at = p->n;
		for (size_t k = 0; k < p->n; k++) {
			double price = p->y[k] / count[k] * row[k] + (part ? p->m[k] * part[k] : 0);
			/* without a kernel the price is infinite, or NaN if y is 0: never less */
			if (price < least) {
				least = price;
				at = k;
			}
		}
		if (at == p->n)
			continue;
		bound += least;
		p->load[at] += row[at] / count[at];
		if (part)
			p->full[at] += part[at];
	}
	for (size_t k = 0; k < p->n && share; k++)
		bound -= p->m[k];
	return bound;
}

enum { ROUNDS = 3000, ROUNDS_OF_POOL = 40 };

/* Any prices certify the bound. Update steps shrink as 1/sqrt(round) and use running means of load, which
 * converge. best_y (may be NULL): the prices of the best bound. */
static double price_bound(const double *t, const double *share, int n_groups, const int *count, int n_classes,
			  int most_rounds, double *best_y)
{
	enum { FEW = 4 };
	double best = 0;
	size_t n = (size_t)n_classes;
	double *room = dlb_xcalloc(6 * n, sizeof *room);
	struct prices p = { n, room, room + n, room + 2 * n, room + 3 * n, room + 4 * n, room + 5 * n };
	double looks = (double)n_groups * n_classes;
	/* speed: one over the time of all groups with a kernel there */
	for (size_t k = 0; k < n; k++) {
		double s = 0;
		for (int g = 0; g < n_groups; g++)
			s += isfinite(t[(size_t)g * n + k]) ? t[(size_t)g * n + k] : 0;
		p.y[k] = s > 0 ? count[k] / s : 0;
	}
	int rounds = looks * most_rounds <= 4e7 ? most_rounds : looks * FEW >= 4e7 ? FEW : (int)(4e7 / looks);
	if (n == 1)					/* one price: nothing to update */
		rounds = 1;
	for (int round = 0; round < rounds; round++) {
		double sum = 0, total = 0, rate = 0.4 / sqrt(1 + round);
		for (size_t k = 0; k < n; k++)
			sum += p.y[k];
		for (size_t k = 0; k < n && sum > 0; k++)
			p.y[k] /= sum;			/* price of the class; each node has y / count */
		const double bound = at_prices(&p, t, share, count, n_groups);
		if (best_y && (bound > best || !round))
			memcpy(best_y, p.y, n * sizeof *best_y);
		best = fmax(best, bound);
		for (size_t k = 0; k < n; k++) {
			p.mean[k] += (p.load[k] - p.mean[k]) / (round < 8 ? round + 1 : 8);
			p.mean_full[k] += (p.full[k] - p.mean_full[k]) / (round < 8 ? round + 1 : 8);
			total += p.mean[k] / (double)n;
		}
		/* raises the price of classes loaded above the mean */
		for (size_t k = 0; k < n && total > 0; k++) {
			double step = rate * (p.mean[k] / total - 1);
			p.y[k] *= exp(step > 1 ? 1 : step < -1 ? -1 : step);
		}
		/* raises the price of memory used beyond its size */
		for (size_t k = 0; k < n && share; k++)
			p.m[k] = fmax(0, p.m[k] + rate * best * (p.mean_full[k] - 1));
	}
	free(room);
	return best;
}

/* count[node]: equal nodes (NULL: 1). scale[node] multiplies times (NULL: 1). bytes[group] and room[node],
 * or both NULL; one of scale and room is NULL. */
static double load_bound(const double *time_s, const double *scale, const double *bytes, const double *room,
			 int n_groups, const int *count, int n_nodes)
{
	struct classes c;
	find_classes(time_s, scale ? scale : room, n_groups, count, n_nodes, &c);
	size_t n = (size_t)n_groups * (size_t)c.n + 1;
	double *t = dlb_xmalloc(n * sizeof *t), *share = bytes ? dlb_xcalloc(n, sizeof *share) : NULL;
	for (size_t g = 0; g < (size_t)n_groups; g++) {
		for (int k = 0; k < c.n; k++) {
			int d = c.node[k];
			size_t at = g * (size_t)c.n + (size_t)k;
			t[at] = time_s[g * (size_t)n_nodes + (size_t)d] * (scale ? scale[d] : 1);
			if (bytes && bytes[g] > room[d])
				t[at] = INFINITY;
			else if (bytes && room[d] > 0)
				share[at] = bytes[g] / room[d] / c.count[k];
		}
	}
	double s = price_bound(t, share, n_groups, c.count, c.n, ROUNDS, NULL);
	for (int g = 0; g < n_groups; g++) {		/* a group takes its time on its best node */
		double least = INFINITY;
		for (int k = 0; k < c.n; k++)
			least = fmin(least, t[(size_t)g * (size_t)c.n + (size_t)k]);
		if (isfinite(least) && least > s)
			s = least;
	}
	free(t);
	free(share);
	release_classes(&c);
	return s;
}

double dlb_load_bound_s(const double *time_s, const double *bytes, const double *room_bytes, int n_groups,
			int n_nodes)
{
	double all = 0, least = INFINITY;
	for (int g = 0; g < n_groups; g++)
		all += bytes[g];
	for (int d = 0; d < n_nodes; d++)
		least = fmin(least, room_bytes[d]);
	bool matters = all > least;			/* else all groups fit on any node */
	return load_bound(time_s, NULL, matters ? bytes : NULL, matters ? room_bytes : NULL, n_groups, NULL,
			  n_nodes);
}

double dlb_load_prices(const double *time_s, int n_groups, const int *count, int n_kinds, double *y)
{
	const double bound = price_bound(time_s, NULL, n_groups, count, n_kinds, ROUNDS, y);

	for (int k = 0; k < n_kinds; k++)		/* price of one node of the kind */
		y[k] /= count[k];
	return bound;
}

double dlb_pool_bound_s(const struct dlb_problem *p, const int *count)
{
	const size_t n_classes = (size_t)p->n_classes, n_groups = (size_t)p->n_groups;
	int *in = dlb_xcalloc(n_classes + 1, sizeof *in), *of = dlb_xcalloc(n_classes + 1, sizeof *of);
	size_t n = 0;
	for (size_t k = 0; k < n_classes; k++) {
		of[n] = (int)k;
		in[n] = count[k];
		n += count[k] > 0;
	}
	double *t = dlb_xcalloc(n_groups * n + 1, sizeof *t);
	for (size_t g = 0; g < n_groups; g++)
		for (size_t k = 0; k < n; k++)
			t[g * n + k] = p->time_s[g * n_classes + (size_t)of[k]];
	const double s = n ? price_bound(t, NULL, p->n_groups, in, (int)n, ROUNDS_OF_POOL, NULL) : 0;
	free(t);
	free(in);
	free(of);
	return s * (1 - 1e-9);
}

static double stated_load_bound_s(const struct dlb_problem *p)
{
	size_t D = (size_t)p->cluster->n_nodes;
	double *scale = dlb_xcalloc(D + 1, sizeof *scale);
	for (size_t d = 0; d < D; d++)
		scale[p->class_of[d]] = p->stated_scale[d] / p->ranked_scale[d];
	double s = load_bound(p->time_s, scale, NULL, NULL, p->n_groups, p->class_count, p->n_classes);
	free(scale);
	return s;
}

/* One node of each combination of kind, speed and kappa. */
static int *find_sorts(const struct dlb_problem *p, int *n)
{
	const struct dlb_cluster *c = p->cluster;
	int *node = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *node);
	*n = 0;
	for (int d = 0; d < c->n_nodes; d++) {
		int k = 0;
		while (k < *n && (c->node[node[k]].kind != c->node[d].kind ||
				  c->node[node[k]].speed != c->node[d].speed ||
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
	return isfinite(best) ? best * dlb_place_update_part(p, op) : 0;
}

static double chain_bound(const struct dlb_problem *p)
{
	const struct dlb_graph *g = p->graph;
	int M = p->micro_batches, n_sorts, *sort = find_sorts(p, &n_sorts);
	double large = (double)dlb_micro_batch_size(p->batch, M, 0),
	       small = (double)dlb_micro_batch_size(p->batch, M, M - 1);
	double n_large = p->batch % M ? (double)(p->batch % M) : M, best = 0;
	double *head = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *head),
	       *tail = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *tail);
	double *first = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *first),
	       *last = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *last);
	for (int i = 0; i < g->n_ops; i++) {
		first[i] = best_s(p, sort, n_sorts, i, large);
		last[i] = small == large ? first[i] : best_s(p, sort, n_sorts, i, small);
		if (g->op[i].phase == DLB_UPDATE)
			last[i] = first[i];
	}
	for (int i = 0; i < g->n_ops; i++) {
		for (int k = 0; k < g->op[i].n_in; k++) {
			int t = g->op[i].in[k],
			    from = t < 0 || dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;
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
			int t = g->op[i].in[k],
			    from = t < 0 || dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;
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

/* Some node prepares each sample of each fed tensor, beside the step before: the nodes together, at the speed of
 * the fastest kind. */
static double samples_bound(const struct dlb_problem *p)
{
	double sum = 0;

	for (int t = 0; p->cost->sample_s && t < p->graph->n_tensors; t++) {
		double least_s = INFINITY;

		for (int k = 0; k < p->cost->n_kinds; k++)
			least_s = fmin(least_s, p->cost->sample_s[k][t]);
		sum += least_s;
	}
	return sum * (double)p->batch / p->cluster->n_nodes;
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
	best = fmax(fmax(chain, best), samples_bound(p));
	return best * (1 - 1e-9);			/* sums here and in the simulator round differently */
}
