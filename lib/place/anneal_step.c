/* Local search by simulated step.
 *
 * Compiling and simulating a program costs ten times as much as ordering its items, and the order's
 * makespan is close to the step: it counts messages, but not the sharing of links. So moves are judged by
 * that makespan. The best order is simulated at intervals, and only a shorter simulated step counts.
 * Ordering in turn costs a hundred times as much as estimating a move in O(degree) (estimate.h). A move is
 * not ordered if its estimate, or the estimate with the true longest path, is too long even after the recent
 * error of estimates is subtracted.
 *
 * A proposal moves a unit (a forward op with its backward ops: parting them costs messages), a run of
 * units that are neighbours in the order (a border shifts), a single group, or two units at once. The new
 * node mostly holds a neighbour of the unit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/contiguous.h"
#include "place/estimate.h"
#include "place/problem.h"
#include "place/recompute.h"
#include "place/search.h"
#include "place/value.h"
#include "util/clock.h"

/* In orderings: SIMULATE, the cost of a simulation; AGAIN, of each program compiled to choose ops to run
 * again */
enum { CHECK = 48, MOST_RUN = 24, SIMULATE = 12, AGAIN = 4 };
/* one in BLIND proposals is ordered regardless of its estimate */
enum { BLIND = 32 };
static const double SLACK = 2, LEARN = 0.05;

struct step_anneal {
	const struct dlb_problem *p;
	struct dlb_step_search *s;
	struct dlb_units u;
	int *unit_start, *unit_group;		/* groups of a unit */
	int *near_start, *near;			/* groups that a group shares a tensor with */
	int *at;				/* [group] */
	int *placement;				/* [op], scratch */
	double *used;				/* [node] bytes, estimated */
	/* the start does not fit by the estimate: the simulation decides */
	bool any_size;
	/* factor on memory limits; falls when an estimate of memory was too low */
	double margin;
	int *changed, *before, n;		/* groups of the proposal, and where they were */
	double value;
	double pending_s; int *pending;		/* best order since the last simulation; INFINITY: none */
	struct dlb_estimate e; bool estimates;
	double slack_s;				/* mean of recent overestimates */
};

static int below(struct step_anneal *a, int n)
{
	return n < 1 ? 0 : (int)dlb_rng_below(&a->s->rng, (uint64_t)n);
}

static void place_ops(const struct step_anneal *a, const int *at)
{
	for (int i = 0; i < a->p->graph->n_ops; i++)
		a->placement[i] = at[a->p->group_of[i]];
}

static double order_s(struct step_anneal *a)
{
	place_ops(a, a->at);
	a->s->budget -= (int64_t)a->p->graph->n_ops * a->p->micro_batches;
	return dlb_place_order_s(a->p, a->placement);
}

/* The value of placement `at`, exact if it is below below_s. Choosing ops that run again costs many compiled
 * programs. */
static double simulated_s(struct step_anneal *a, const int *at, double below_s)
{
	const struct dlb_recompute_memo *memo = a->p->memo;
	const int64_t before = memo ? memo->n_compiled : 0;
	place_ops(a, at);
	double s = dlb_place_value_below_s(a->p, a->placement, below_s);
	a->s->budget -= AGAIN * (memo ? memo->n_compiled - before : 0) * a->p->graph->n_ops *
			a->p->micro_batches;
	return s;
}

/* Simulates the best order since the last simulation. */
static void confirm(struct step_anneal *a)
{
	if (isinf(a->pending_s))
		return;
	/* without a limit, an infinite value shows that the placement does not fit */
	const bool chosen = a->p->recompute && a->p->recompute->chosen;
	double s = simulated_s(a, a->pending, chosen ? a->s->best_s : INFINITY);
	a->s->budget -= SIMULATE * (int64_t)a->p->graph->n_ops * a->p->micro_batches;
	if (isinf(s))
		a->margin *= 0.97;
	a->pending_s = INFINITY;
	if (s >= a->s->best_s)
		return;
	a->s->best_s = s;
	memcpy(a->s->best, a->pending, (size_t)a->p->n_groups * sizeof *a->pending);
}

static bool able(const struct step_anneal *a, int group, int node)
{
	return isfinite(dlb_time_s(a->p, group, node));
}

static void push(struct step_anneal *a, int group, int node)
{
	if (a->at[group] == node || !able(a, group, node))
		return;
	for (int i = 0; i < a->n; i++)
		if (a->changed[i] == group)
			return;
	a->changed[a->n] = group;
	a->before[a->n++] = a->at[group];
	a->used[a->at[group]] -= dlb_group_bytes(a->p, group);
	a->used[node] += dlb_group_bytes(a->p, group);
	a->at[group] = node;
}

static void undo(struct step_anneal *a)
{
	while (a->n) {
		int g = a->changed[--a->n];
		a->used[a->at[g]] -= dlb_group_bytes(a->p, g);
		a->used[a->before[a->n]] += dlb_group_bytes(a->p, g);
		a->at[g] = a->before[a->n];
	}
}

static void push_unit(struct step_anneal *a, int unit, int node)
{
	for (int k = a->unit_start[unit]; k < a->unit_start[unit + 1]; k++)
		push(a, a->unit_group[k], node);
}

static int node_of_unit(const struct step_anneal *a, int unit)
{
	return a->at[a->unit_group[a->unit_start[unit]]];
}

/* A random node that holds a neighbour of the group; the group's own if there is none. */
static int near_node(struct step_anneal *a, int group)
{
	int n = a->near_start[group + 1] - a->near_start[group];
	for (int tries = 0; tries < 4 && n; tries++) {
		int d = a->at[a->near[a->near_start[group] + below(a, n)]];
		if (d != a->at[group])
			return d;
	}
	return a->at[group];
}

static void propose(struct step_anneal *a)
{
	int kind = below(a, 100), unit = below(a, a->u.n), group = below(a, a->p->n_groups);
	int n_nodes = a->p->cluster->n_nodes, any = below(a, n_nodes);
	a->n = 0;
	if (kind < 30) {
		int g = a->unit_group[a->unit_start[unit] +
				      below(a, a->unit_start[unit + 1] - a->unit_start[unit])];
		push_unit(a, unit, below(a, 4) ? near_node(a, g) : any);
	} else if (kind < 60) {				/* a run, up to a border and over it */
		int from = node_of_unit(a, unit), step = below(a, 2) ? 1 : -1, to = unit;
		while (to >= 0 && to < a->u.n && node_of_unit(a, to) == from && abs(to - unit) < MOST_RUN)
			to += step;
		if (to < 0 || to >= a->u.n || abs(to - unit) >= MOST_RUN)
			return;
		int node = node_of_unit(a, to);
		for (int k = unit; k != to; k += step)
			push_unit(a, k, node);
	} else if (kind < 80) {
		push(a, group, below(a, 3) ? near_node(a, group) : any);
	} else if (kind < 90) {
		int other = below(a, a->u.n), x = node_of_unit(a, unit), y = node_of_unit(a, other);
		push_unit(a, unit, y);
		push_unit(a, other, x);
	} else {					/* a run to any node */
		int length = 1 + below(a, MOST_RUN);
		for (int k = unit; k < a->u.n && k < unit + length; k++)
			push_unit(a, k, any);
	}
}

static bool fits(const struct step_anneal *a)
{
	int64_t moved = 0;
	for (int i = 0; !a->any_size && i < a->n; i++) {
		int d = a->at[a->changed[i]];
		if (a->used[d] > a->p->memory_bytes[d] * a->margin)
			return false;
	}
	if (!a->p->before || a->p->max_moves < 0)
		return true;
	for (int i = 0; i < a->p->graph->n_ops; i++)
		moved += a->at[a->p->group_of[i]] != a->p->before[i];
	return moved <= a->p->max_moves;
}

static bool over(const struct step_anneal *a)
{
	return dlb_step_search_over(a->s);
}

bool dlb_step_search_over(const struct dlb_step_search *s)
{
	return (s->deadline_s > 0 ? dlb_clock_s() >= s->deadline_s : s->budget <= 0) ||
	       s->best_s <= s->bound_s;
}

static void find_near(struct step_anneal *a)
{
	const struct dlb_graph *g = a->p->graph;
	size_t n = (size_t)a->p->n_groups;
	int *fill = dlb_xcalloc(n + 1, sizeof *fill);
	a->near_start = dlb_xcalloc(n + 2, sizeof *a->near_start);
	for (int turn = 0; turn < 2; turn++) {		/* count, then fill */
		for (int t = 0; t < g->n_tensors; t++) {
			int from = g->tensor[t].producer;
			for (int r = g->reader_start[t]; from >= 0 && r < g->reader_start[t + 1]; r++) {
				int x = a->p->group_of[from], y = a->p->group_of[g->reader[r]];
				if (x == y)
					continue;
				if (turn) {
					a->near[a->near_start[x] + fill[x]++] = y;
					a->near[a->near_start[y] + fill[y]++] = x;
				} else {
					a->near_start[x + 1]++;
					a->near_start[y + 1]++;
				}
			}
		}
		for (size_t i = 0; i < n && !turn; i++)
			a->near_start[i + 1] += a->near_start[i];
		if (!turn)
			a->near = dlb_xcalloc((size_t)a->near_start[n] + 1, sizeof *a->near);
	}
	free(fill);
}

static void find_units(struct step_anneal *a)
{
	size_t n = (size_t)a->p->n_groups;
	dlb_units_init(&a->u, a->p);
	int *fill = dlb_xcalloc((size_t)a->u.n + 1, sizeof *fill);
	a->unit_start = dlb_xcalloc((size_t)a->u.n + 2, sizeof *a->unit_start);
	a->unit_group = dlb_xcalloc(n + 1, sizeof *a->unit_group);
	for (size_t g = 0; g < n; g++)
		a->unit_start[a->u.of_group[g] + 1]++;
	for (int k = 0; k < a->u.n; k++)
		a->unit_start[k + 1] += a->unit_start[k];
	for (size_t g = 0; g < n; g++)
		a->unit_group[a->unit_start[a->u.of_group[g]] + fill[a->u.of_group[g]]++] = (int)g;
	free(fill);
}

static void init(struct step_anneal *a, const struct dlb_problem *p, struct dlb_step_search *s, int *from)
{
	size_t n = (size_t)p->n_groups;
	*a = (struct step_anneal){ .p = p, .s = s, .at = from, .margin = 1, .pending_s = INFINITY };
	find_units(a);
	find_near(a);
	a->placement = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof *a->placement);
	a->used = dlb_xcalloc((size_t)p->cluster->n_nodes, sizeof *a->used);
	a->changed = dlb_xcalloc(n + 1, sizeof *a->changed);
	a->before = dlb_xcalloc(n + 1, sizeof *a->before);
	a->pending = dlb_xcalloc(n + 1, sizeof *a->pending);
	for (size_t g = 0; g < n; g++)
		a->used[from[g]] += dlb_group_bytes(p, (int)g);
	for (int d = 0; d < p->cluster->n_nodes; d++)
		a->any_size |= a->used[d] > p->memory_bytes[d];
}

static void release(struct step_anneal *a)
{
	void *all[] = { a->unit_start, a->unit_group, a->near_start, a->near,   a->placement,
			a->used,       a->changed,    a->before,     a->pending };
	for (int i = 0; i < DLB_LEN(all); i++)
		free(all[i]);
	dlb_units_release(&a->u);
}

/* Whether the proposal is worth ordering by its estimate. Some proposals are ordered regardless, so that
 * the error of low and high estimates is learnt. */
static bool promises(struct step_anneal *a, double limit_s, double *guess_s)
{
	*guess_s = NAN;
	if (!a->estimates)
		return true;
	bool blind = below(a, BLIND) == 0;
	double most = limit_s + SLACK * a->slack_s - a->value;
	if (!blind && dlb_estimate_change_s(&a->e, a->changed, a->before, a->n) > most)
		return false;
	double change = dlb_estimate_walk_s(&a->e, a->changed, a->before, a->n);
	*guess_s = a->value + change;
	return blind || change <= most;
}

static void learn(struct step_anneal *a, double guess_s, double value_s)
{
	if (isfinite(guess_s))
		a->slack_s += LEARN * (fmax(guess_s - value_s, 0) - a->slack_s);
}

void dlb_anneal_step(const struct dlb_problem *p, struct dlb_step_search *s, int *from, int64_t items,
		     double hot)
{
	struct step_anneal a;
	int64_t end = s->budget - items, start = s->budget;
	double ref = s->best_s;
	init(&a, p, s, from);
	a.value = order_s(&a);
	a.estimates = dlb_estimate_init(&a.e, p, from);
	double best_order_s = a.value;
	for (int64_t i = 0; s->budget > end && !over(&a); i++) {
		double done = (double)(start - s->budget) / (double)(items > 0 ? items : 1);
		double t = hot > 0 ? hot * pow(1e-4 / hot, done < 1 ? done : 1) * ref : 0,
		       u = dlb_rng_uniform(&s->rng);
		propose(&a);
		if (i % CHECK == CHECK - 1)
			confirm(&a);
		if (!a.n || !fits(&a)) {
			s->budget -= p->micro_batches;	/* so that the search ends even if nothing fits */
			undo(&a);
			continue;
		}
		double limit = a.value - t * log(u > 0 ? u : 1e-300), guess;
		if (!promises(&a, limit, &guess)) {
			s->budget -= a.n;
			undo(&a);
			continue;
		}
		double value = order_s(&a);
		learn(&a, guess, value);
		if (!(value <= limit)) {
			undo(&a);
			continue;
		}
		a.value = value;
		if (a.estimates)
			dlb_estimate_take(&a.e);
		if (value < best_order_s * (1 - 1e-9)) {
			best_order_s = a.pending_s = value;
			memcpy(a.pending, from, (size_t)p->n_groups * sizeof *from);
		}
	}
	confirm(&a);
	dlb_estimate_release(&a.e);
	release(&a);
}

/* ---- descent by simulated step ---- */

static bool look(struct step_anneal *a)
{
	a->s->budget -= SIMULATE * (int64_t)a->p->graph->n_ops * a->p->micro_batches;
	double s = fits(a) ? simulated_s(a, a->at, a->s->best_s) : INFINITY;
	if (s >= a->s->best_s * (1 - 1e-9)) {
		undo(a);
		return false;
	}
	a->s->best_s = s;
	memcpy(a->s->best, a->at, (size_t)a->p->n_groups * sizeof *a->at);
	a->n = 0;
	return true;
}

void dlb_refine_step(const struct dlb_problem *p, struct dlb_step_search *s, int64_t items)
{
	struct step_anneal a;
	int *from = dlb_xmalloc(((size_t)p->n_groups + 1) * sizeof *from), idle = 0;
	int64_t end = s->budget - items;
	memcpy(from, s->best, (size_t)p->n_groups * sizeof *from);
	init(&a, p, s, from);
	while (s->budget > end && !over(&a) && idle < 40 * (p->n_groups + 8)) {
		propose(&a);
		s->budget -= p->micro_batches;
		idle = a.n && look(&a) ? 0 : idle + 1;
	}
	release(&a);
	free(from);
}

/* ---- exhaustive search ---- */

static double placements(const struct dlb_problem *p)
{
	double all = 1;
	for (int g = 0; g < p->n_groups && all < 1e9; g++) {
		int n = 0;
		for (int d = 0; d < p->cluster->n_nodes; d++)
			n += isfinite(dlb_time_s(p, g, d));
		all *= n;
	}
	return all;
}

/* The first node, from `node` upwards, that can run group g; n_nodes: none. */
static int next_able(const struct step_anneal *a, int g, int node)
{
	while (node < a->p->cluster->n_nodes && !able(a, g, node))
		node++;
	return node;
}

bool dlb_exhaust_step(const struct dlb_problem *p, struct dlb_step_search *s, int most)
{
	if (placements(p) > most || s->best_s <= s->bound_s)
		return s->best_s <= s->bound_s;
	struct step_anneal a;
	int *at = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *at), g = 0;
	init(&a, p, s, at);
	for (int k = 0; k < p->n_groups; k++) {
		at[k] = next_able(&a, k, 0);
		if (at[k] == p->cluster->n_nodes)	/* no placement at all */
			g = p->n_groups;
	}
	while (g < p->n_groups) {
		a.any_size = true;			/* memory is checked by simulation, not by estimate */
		if (fits(&a)) {
			place_ops(&a, at);
			double v = dlb_place_value_below_s(p, a.placement, s->best_s);
			if (v < s->best_s) {
				s->best_s = v;
				memcpy(s->best, at, (size_t)p->n_groups * sizeof *at);
			}
		}
		for (g = 0; g < p->n_groups; g++) {
			at[g] = next_able(&a, g, at[g] + 1);
			if (at[g] < p->cluster->n_nodes)
				break;
			at[g] = next_able(&a, g, 0);
		}
	}
	release(&a);
	free(at);
	return true;
}
