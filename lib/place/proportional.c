/* proportional: cuts the forward order into contiguous parts, each node's load in proportion to its weight
 * times speed, with the node order and cuts of the least simulated step.
 *
 * For one order of nodes, bisection on the time of the slowest part finds the cuts that minimize it: each
 * node is filled as far as the time allows. That balances loads; the step also includes messages and the
 * filling and draining of the pipeline,
 *
 *     estimate = slowest part + (sum of the others) / M + 2 messages of a micro-batch at each cut
 *
 * so the best cuts by that estimate are simulated, and the best of them is improved: borders move by 1, 2,
 * 4 ... units while the simulated step gets shorter. For two nodes all cuts are estimated. Orders of
 * nodes: all for up to four, else by id, reversed, and by speed both ways. Simulations are limited by
 * count, not by time, so that a run is reproducible.
 *
 * interleaved: the same with several parts per node, assigned to the nodes in turn. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/contiguous.h"
#include "place/make.h"
#include "place/place.h"
#include "place/recompute.h"
#include "place/value.h"

/* WORK: (op, micro-batch) pairs simulated, fewer beyond MANY_OPS. MOST, LEAST, OF_DRAFT: simulator calls.
 * PROGRAMS: the number of programs, compiled to choose ops that run again, that cost as much as one call. */
enum { WORK = 1500000, MANY_OPS = 2000, MOST = 600, LEAST = 12, OF_DRAFT = 6, PROGRAMS = 3 };

struct partition { double value; int *node, *start; };	/* n_parts nodes, n_parts + 1 borders */
struct partition_search {
	const struct dlb_problem *p;
	struct dlb_units u;
	/* n_ids: nodes with any kernel; n: parts, a multiple of it */
	int n_ids, n;
	int *ids;
	int budget, least; /* calls left; the part of them that programs may not use up */
	bool any_size;					/* ignore memory */
	int *placement;
	struct partition best;
	struct partition *list; int n_list, cap_list;		/* candidates by estimate */
};

static double unit_s(const struct partition_search *s, int unit, int node)
{
	return dlb_unit_s(&s->u, s->p, unit, node);
}

static double simulate(struct partition_search *s, const int *node, const int *start)
{
	const struct dlb_recompute_memo *memo = s->p->memo;
	const int64_t before = memo ? memo->n_compiled : 0;
	if (s->budget-- <= 0)
		return INFINITY;
	s->least--;
	dlb_units_place(&s->u, s->p, s->n, start, node, s->placement);
	const double value = dlb_place_value_below_s(s->p, s->placement, s->best.value);
	const int64_t spent = memo ? (memo->n_compiled - before) / PROGRAMS : 0,
		      least = s->least > 0 ? s->least : 0;
	if (spent && s->budget > least)
		s->budget = s->budget - spent > least ? s->budget - (int)spent : (int)least;
	return value;
}

static void keep(struct partition_search *s, const int *node, const int *start, double value)
{
	if (!(value < s->best.value))
		return;
	s->best.value = value;
	memmove(s->best.node, node, (size_t)s->n * sizeof(int));
	memmove(s->best.start, start, ((size_t)s->n + 1) * sizeof(int));
}

static void candidate(struct partition_search *s, const int *node, const int *start)
{
	struct partition c = { dlb_units_step_s(&s->u, s->p, s->n, start, node), NULL, NULL };
	if (!isfinite(c.value))
		return;
	c.node = dlb_xmalloc((size_t)s->n * sizeof(int));
	c.start = dlb_xmalloc(((size_t)s->n + 1) * sizeof(int));
	memcpy(c.node, node, (size_t)s->n * sizeof(int));
	memcpy(c.start, start, ((size_t)s->n + 1) * sizeof(int));
	DLB_GROW(s->list, s->n_list, s->cap_list);
	s->list[s->n_list++] = c;
}

/* order: of nodes; parts are assigned to them in turn. */
static void balance(struct partition_search *s, const int *order)
{
	int *node = dlb_xcalloc((size_t)s->n, sizeof(int));
	for (int k = 0; k < s->n; k++)
		node[k] = order[k % s->n_ids];
	int *start = dlb_xcalloc((size_t)s->n + 1, sizeof(int));
	const struct dlb_parts parts = { s->n, node, s->any_size };
	const double least_s = dlb_units_balance(&s->u, s->p, &parts, start);
	if (isfinite(least_s)) {
		candidate(s, node, start);
		/* the same slowest part, with the slack in the first parts */
		if (dlb_units_fill(&s->u, s->p, &parts, least_s, true, start))
			candidate(s, node, start);
	}
	free(node);
	free(start);
}

/* ---- orders of nodes ---- */

static void all_cuts_of_two(struct partition_search *s)
{
	for (int turn = 0; turn < 2; turn++) {
		int node[2] = { s->ids[turn], s->ids[1 - turn] };
		for (int i = 1; i < s->u.n; i++) {
			int start[3] = { 0, i, s->u.n };
			candidate(s, node, start);
		}
	}
}

static void permute(struct partition_search *s, int *node, int k)
{
	if (k == s->n_ids) {
		balance(s, node);
		return;
	}
	for (int i = k; i < s->n_ids; i++) {
		int a = node[k];
		node[k] = node[i];
		node[i] = a;
		permute(s, node, k + 1);
		node[i] = node[k];
		node[k] = a;
	}
}

struct speed { double s; int node; };
static int by_speed(const void *a, const void *b)
{
	const struct speed *x = a, *y = b;
	return x->s != y->s ? (x->s > y->s ? 1 : -1) : x->node - y->node;
}

static void some_orders(struct partition_search *s)
{
	struct speed *by = dlb_xcalloc((size_t)s->n_ids, sizeof *by);
	int *node = dlb_xcalloc((size_t)s->n_ids, sizeof(int));
	for (int k = 0; k < s->n_ids; k++) {
		by[k].node = s->ids[k];
		for (int i = 0; i < s->u.n; i++)
			if (isfinite(unit_s(s, i, s->ids[k])))
				by[k].s += unit_s(s, i, s->ids[k]);
	}
	qsort(by, (size_t)s->n_ids, sizeof *by, by_speed);
	for (int way = 0; way < 4; way++) {
		for (int k = 0; k < s->n_ids; k++) {
			int j = way % 2 ? s->n_ids - 1 - k : k;
			node[k] = way < 2 ? s->ids[j] : by[j].node;
		}
		balance(s, node);
	}
	free(by);
	free(node);
}

/* ---- search ---- */

static int by_value(const void *a, const void *b)
{
	const struct partition *x = a, *y = b;
	return (x->value > y->value) - (x->value < y->value);
}

/* Moves borders of the best cut while the simulated step gets shorter. */
static void improve(struct partition_search *s)
{
	int *start = dlb_xcalloc((size_t)s->n + 1, sizeof(int)),
	    *node = dlb_xcalloc((size_t)s->n, sizeof(int));
	bool better = true;
	while (better && s->budget > 0) {
		double was = s->best.value;
		for (int k = 1; k < s->n && s->budget > 0; k++) {
			for (int step = 1; step <= s->u.n / 4 + 1; step *= 2) {
				for (int sign = -1; sign <= 1; sign += 2) {
					memcpy(start, s->best.start, ((size_t)s->n + 1) * sizeof(int));
					memcpy(node, s->best.node, (size_t)s->n * sizeof(int));
					start[k] += sign * step;
					if (start[k] < start[k - 1] || start[k] > start[k + 1])
						continue;
					keep(s, node, start, simulate(s, node, start));
				}
			}
		}
		better = s->best.value < was;
	}
	free(start);
	free(node);
}

static int search(struct partition_search *s, int *placement, struct dlb_error *err)
{
	int *node = dlb_xcalloc((size_t)s->n_ids, sizeof(int));
	memcpy(node, s->ids, (size_t)s->n_ids * sizeof(int));
	for (int turn = 0; turn < 2 && !s->n_list; turn++) {
		/* nothing fits by the estimate of memory: the simulator decides */
		s->any_size = turn > 0;
		if (s->n == 2 && s->n_ids == 2)
			all_cuts_of_two(s);
		if (s->n_ids <= 4)
			permute(s, node, 0);
		else
			some_orders(s);
	}
	free(node);
	if (s->n_list)
		qsort(s->list, (size_t)s->n_list, sizeof *s->list, by_value);
	int first = s->budget * 2 / 3 > 1 ? s->budget * 2 / 3 : 1;	/* the rest is for improve() */
	for (int i = 0; i < s->n_list && i < first; i++)
		keep(s, s->list[i].node, s->list[i].start, simulate(s, s->list[i].node, s->list[i].start));
	if (!s->n_list)
		return dlb_fail_no(err, NULL,
				   "no plan fits: no contiguous cut has kernels for its ops on every node");
	if (s->p->below_s > 0 && s->best.value >= s->p->below_s)
		return dlb_fail_no(err, NULL, "no contiguous cut is faster");
	if (isinf(s->best.value))	/* dlb_plan_make reports the shortage */
		dlb_units_place(&s->u, s->p, s->n, s->list[0].start, s->list[0].node, placement);
	if (isinf(s->best.value))
		return 0;
	improve(s);
	dlb_units_place(&s->u, s->p, s->n, s->best.start, s->best.node, placement);
	return 0;
}

static int place_parts(const struct dlb_problem *p, int per_node, int *placement, struct dlb_error *err)
{
	struct partition_search s = { .p = p, .best.value = p->below_s > 0 ? p->below_s : INFINITY };
	int64_t items = (int64_t)p->graph->n_ops * p->micro_batches, calls = WORK / items;
	if (p->graph->n_ops > MANY_OPS)
		calls = calls * MANY_OPS / p->graph->n_ops;
	calls = dlb_search_share(p, calls < MOST ? calls : MOST);
	s.budget = p->draft ? OF_DRAFT : calls < LEAST ? LEAST : (int)calls;
	s.least = s.budget < LEAST ? s.budget : LEAST;
	s.ids = dlb_xcalloc((size_t)p->cluster->n_nodes, sizeof(int));
	for (int d = 0; d < p->cluster->n_nodes; d++)
		if (p->free_node[d])
			s.ids[s.n_ids++] = d;
	s.n = s.n_ids * per_node;
	s.placement = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof(int));
	s.best.node = dlb_xcalloc((size_t)s.n + 1, sizeof(int));
	s.best.start = dlb_xcalloc((size_t)s.n + 1, sizeof(int));
	dlb_units_init(&s.u, p);
	int rc = search(&s, placement, err);
	dlb_units_release(&s.u);
	for (int i = 0; i < s.n_list; i++) {
		free(s.list[i].node);
		free(s.list[i].start);
	}
	free(s.list);
	free(s.best.node);
	free(s.best.start);
	free(s.placement);
	free(s.ids);
	return rc;
}

int dlb_place_proportional(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	return place_parts(p, 1, placement, err);
}

int dlb_place_interleaved(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	return place_parts(p, p->chunks > 0 ? p->chunks : 2, placement, err);
}
