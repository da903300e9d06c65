/* Migration from one placement to another: its cost, and plans with a limited number of moved ops.
 *
 * Weights with their optimizer states, and buffers, move from their old home to the new one. Each node
 * sends and receives one tensor at a time; nodes work in parallel:
 *
 *     seconds = max over nodes of the sum over tensors that leave or come of latency + bytes / bandwidth
 *
 * These seconds, divided by the steps that the plan will serve, are part of the ranked value. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/moves.h"
#include "place/place.h"
#include "place/value.h"
#include "plan/tensors.h"

double dlb_place_moved_bytes(const struct dlb_problem *p, int tensor, int home)
{
	const struct dlb_graph *g = p->graph;

	return dlb_tensor_bytes(&g->tensor[tensor], 1) *
	       (g->op[home].phase == DLB_UPDATE ?
			1 + p->n_state * dlb_state_ratio(p->state_dtype) + p->keeps_residuals :
			1);
}

double dlb_place_migration_s(const struct dlb_problem *p, const int *placement)
{
	const struct dlb_graph *g = p->graph;
	double most = 0, *busy_s = dlb_xcalloc((size_t)p->cluster->n_nodes, sizeof *busy_s);
	for (int t = 0; p->before && t < g->n_tensors; t++) {
		int kind = g->tensor[t].kind;
		int home = kind == DLB_T_WEIGHT || kind == DLB_T_BUFFER ? dlb_graph_home(g, t) : -1;
		if (home < 0 || placement[home] == p->before[home])
			continue;
		double bytes = dlb_place_moved_bytes(p, t, home);
		double s = dlb_cost_xfer_s(p->cost, bytes, p->before[home], placement[home]);
		busy_s[p->before[home]] += s;
		busy_s[placement[home]] += s;
	}
	for (int d = 0; d < p->cluster->n_nodes; d++)
		most = busy_s[d] > most ? busy_s[d] : most;
	free(busy_s);
	return most;
}

/* ---- no more than max_moves ops ---- */

struct limiter {
	const struct dlb_problem *p;
	const int *want;			/* [op] its node in the algorithm's placement */
	int *group, n;				/* groups that `want` moves, in topological order */
	int *now, *trial, *best;		/* [op] */
	double best_s;
	int64_t left;				/* ops that may still move */
	int budget;				/* evaluations left */
};

static int size_of(const struct dlb_problem *p, int group)
{
	return p->group_start[group + 1] - p->group_start[group];
}

static void put(const struct dlb_problem *p, int group, const int *from, int *placement)
{
	for (int k = p->group_start[group]; k < p->group_start[group + 1]; k++)
		placement[p->group_op[k]] = from[p->group_op[k]];
}

static bool may_stay(const struct dlb_problem *p, int group)
{
	int d = p->before[p->group_op[p->group_start[group]]];
	for (int k = p->group_start[group]; k < p->group_start[group + 1]; k++)
		if (p->before[p->group_op[k]] != d)
			return false;
	return isfinite(dlb_time_s(p, group, d));
}

static void look(struct limiter *l)
{
	size_t size = (size_t)l->p->graph->n_ops * sizeof *l->trial;
	if (l->budget-- <= 0)
		return;
	double s = dlb_place_value_s(l->p, l->trial);
	if (s < l->best_s) {
		l->best_s = s;
		memcpy(l->best, l->trial, size);
	}
}

/* Tries runs of the wanted moves in topological order, each as long as the limit allows (a border shifts),
 * then adds single moves to the best placement, one after another. */
static void choose_moves(struct limiter *l)
{
	const struct dlb_problem *p = l->p;
	size_t size = (size_t)p->graph->n_ops * sizeof *l->trial;
	memcpy(l->trial, l->now, size);
	look(l);
	int step = l->n / 48 + 1;
	for (int first = 0; first < l->n; first += step) {
		int64_t left = l->left;
		memcpy(l->trial, l->now, size);
		for (int i = first; i < l->n && size_of(p, l->group[i]) <= left; i++) {
			left -= size_of(p, l->group[i]);
			put(p, l->group[i], l->want, l->trial);
		}
		look(l);
	}
	for (bool better = true; better && l->budget > 0;) {
		double was = l->best_s;
		int64_t moved = 0;
		memcpy(l->now, l->best, size);
		for (int i = 0; i < l->n; i++) {
			int op = p->group_op[p->group_start[l->group[i]]];
			moved += l->now[op] != p->before[op] ? size_of(p, l->group[i]) : 0;
		}
		for (int i = 0; i < l->n && l->budget > 0; i++) {
			int op = p->group_op[p->group_start[l->group[i]]];
			if (l->now[op] == l->want[op] || moved + size_of(p, l->group[i]) > l->left)
				continue;
			memcpy(l->trial, l->now, size);
			put(p, l->group[i], l->want, l->trial);
			look(l);
		}
		better = l->best_s < was;
	}
}

int dlb_place_limit_moves(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	enum { LOOKS = 400, WORK = 1500000 };
	size_t n_ops = (size_t)p->graph->n_ops;
	int64_t wanted = 0, forced = 0, items = (int64_t)p->graph->n_ops * p->micro_batches;
	if (!p->before || p->max_moves < 0)
		return 0;
	struct limiter l = { .p = p,
			     .want = placement,
			     .best_s = INFINITY,
			     .budget = WORK / items > LOOKS ? LOOKS :
				       WORK / items < 24    ? 24 :
							      (int)(WORK / items) };
	l.group = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *l.group);
	l.now = dlb_xmalloc((n_ops + 1) * sizeof *l.now);
	l.trial = dlb_xmalloc((n_ops + 1) * sizeof *l.trial);
	l.best = dlb_xmalloc((n_ops + 1) * sizeof *l.best);
	memcpy(l.now, p->before, n_ops * sizeof *l.now);
	for (int g = 0; g < p->n_groups; g++) {
		int n = 0;
		for (int k = p->group_start[g]; k < p->group_start[g + 1]; k++)
			n += placement[p->group_op[k]] != p->before[p->group_op[k]];
		wanted += n;
		if (!may_stay(p, g)) {			/* node excluded, or group pinned to another */
			forced += n;
			put(p, g, placement, l.now);
		} else if (n) {
			l.group[l.n++] = g;
		}
	}
	int rc = 0;
	l.left = p->max_moves - forced;
	if (l.left < 0) {
		rc = dlb_fail_no(err, NULL, "no plan fits: %lld ops have to move, %lld may",
				 (long long)forced, (long long)p->max_moves);
	} else if (wanted > p->max_moves) {
		choose_moves(&l);
		if (isfinite(l.best_s))
			memcpy(placement, l.best, n_ops * sizeof *placement);
		else
			rc = dlb_fail_no(err, NULL, "no plan fits that moves at most %lld ops",
					 (long long)p->max_moves);
	}
	free(l.group);
	free(l.now);
	free(l.trial);
	free(l.best);
	return rc;
}
