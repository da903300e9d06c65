/* The order of a plan: see order.h. */
#include <math.h>
#include <string.h>
#include "place/fit.h"
#include "place/make.h"
#include "place/order.h"
#include "place/recompute.h"
#include "plan/schedule.h"
#include "plan/timeline.h"

/* Lists limits of micro-batches in flight, the fastest first: the schedule's own limit, as 0, and larger ones
 * if these fill bubbles. Returns their number. least_s: the makespan of the fastest order; if the schedule
 * has only one limit, a makespan of below_s or more is not exact. plan: not ordered yet, or ordered with the
 * schedule's limit; it is left in the order of one of the limits. */
static int wanted_limits(const struct dlb_problem *p, struct dlb_plan *plan, double below_s, int limit[3],
			 double *least_s)
{
	const bool one = !dlb_schedule_fills(p->schedule), is_ordered = plan->makespan_s > 0;
	double s[3] = { is_ordered ? plan->makespan_s :
				     dlb_fit_order_below(p, plan, 0, one ? below_s : INFINITY) };
	int n = 1, most = plan->most_in_flight, M = p->micro_batches;
	int more[2] = { 2 * most - 1 < M ? 2 * most - 1 : M, M };
	limit[0] = 0;
	for (int i = 0; i < 2 && !one; i++) {
		if (more[i] <= most || (i && more[1] == more[0]))
			continue;
		double t = dlb_fit_order(p, plan, more[i]);
		int k = n++;
		for (; k > 0 && t < s[k - 1] * (1 - 1e-6); k--) {
			s[k] = s[k - 1];
			limit[k] = limit[k - 1];
		}
		s[k] = t;
		limit[k] = more[i];
	}
	*least_s = s[0];
	return n;
}

/* Compiles the ordered plan. If it does not fit, compiles it with each update as soon as its gradient is
 * ready; in a search only if the plan could fit then. Returns whether it fits, or -1 with err. */
static int compile_limit(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, bool search,
			 struct dlb_program *program, struct dlb_error *err)
{
	for (;;) {
		if (dlb_fit_compile(p, plan, draft, program, err))
			return -1;
		if (dlb_fit_in_memory(p, program, false))
			return 1;
		if (!dlb_schedule_can_update_first(plan) || (search && !dlb_fit_could(p, plan, program)))
			return 0;
		dlb_program_release(program);
		plan->updates_first = true;
		dlb_fit_order(p, plan, plan->in_flight);
	}
}

/* Whether a plan that does not fit may fit with a limit below `most`. Tries the order with the least memory:
 * one micro-batch in flight, and each update as early as possible. If nodes have several parts, this order
 * need not have the least memory, and the answer is yes. program: replaced. -1 with err. */
static int could_fit(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, int most,
		     struct dlb_program *program, struct dlb_error *err)
{
	if (most < 2 || !dlb_schedule_bounded(p->schedule) || dlb_schedule_in_parts(p->schedule))
		return 1;
	dlb_program_release(program);
	plan->updates_first = dlb_schedule_can_update_first(plan);
	dlb_fit_order(p, plan, 1);
	return dlb_fit_compile(p, plan, draft, program, err) ? -1 : dlb_fit_in_memory(p, program, false);
}

/* The makespan of the order with each update as early as possible, exact if it is below below_s; INFINITY:
 * there is no such order. Leaves that order in plan. */
static double updates_first_s(const struct dlb_problem *p, struct dlb_plan *plan, int limit, double below_s)
{
	if (!dlb_schedule_can_update_first(plan))
		return INFINITY;
	plan->updates_first = true;
	const double s = dlb_fit_order_below(p, plan, limit, below_s);
	plan->updates_first = false;
	return s;
}

/* Whether some order with the limit has a makespan below below_s: the present one, whose makespan is order_s,
 * or else the one with each update as early as possible. plan keeps the present order. */
static bool any_below(const struct dlb_problem *p, struct dlb_plan *plan, int limit, double order_s,
		      double below_s)
{
	if (order_s < below_s)
		return true;
	if (!(updates_first_s(p, plan, limit, below_s) < below_s))
		return false;
	dlb_fit_order(p, plan, limit);
	return true;
}

/* As dlb_order_compile, without a new choice of ops that run again; tries falling limits until one fits. If
 * none fits, the plan has the lowest limit. least_s: the makespan of the fastest limit; a makespan of below_s
 * or more need not be exact. */
static int order_kept(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, const double *below_s,
		      struct dlb_program *program, double *least_s, struct dlb_error *err)
{
	int limit[3], n = wanted_limits(p, plan, below_s ? *below_s : INFINITY, limit, least_s), less = 0,
		      now = limit[0];
	const bool compared = below_s || dlb_problem_is_compared(p);
	if (plan->in_flight != now)
		dlb_fit_order(p, plan, now);
	if (below_s && !any_below(p, plan, now, *least_s, *below_s))
		return 1;
	for (int i = 0;;) {
		if (i == 0 || now == 0)
			less = plan->most_in_flight;
		const int done = compile_limit(p, plan, draft, below_s != NULL, program, err);
		if (done)
			return done < 0 ? -1 : 0;
		if (p->scarce)
			*p->scarce = true;
		if (below_s && !i && !dlb_fit_could(p, plan, program))
			return 0;
		const int could = compared && !i ? could_fit(p, plan, draft, less, program, err) : 1;
		if (could < 1)
			return could;
		if (i >= n - 1) {
			if (i == n - 1 && limit[i] > 0 && limit[i] < less)
				less = limit[i];
			less = less > 4 ? less * 3 / 4 : less - 1;
			if (less < 1 || !dlb_schedule_bounded(p->schedule))
				return 0;
		}
		now = ++i < n ? limit[i] : less;
		plan->updates_first = false;
		const double order_s = dlb_fit_order_below(p, plan, now, below_s ? *below_s : INFINITY);
		if (below_s && !any_below(p, plan, now, order_s, *below_s))
			return 0;
		dlb_program_release(program);
	}
}

double dlb_order_value_s(const struct dlb_problem *p, const struct dlb_program *program)
{
	double s;

	return dlb_fit_in_memory(p, program, false) &&
			       !dlb_program_step_s(program, p->cost, p->ranked_scale, &s, NULL) ?
		       s :
		       INFINITY;
}

enum { MOST_LIMITS = 24 };

/* Chooses ops that run again for an order with a limit of micro-batches in flight (0: the schedule's own).
 * Returns as dlb_recompute_choose. */
static int choose_at(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, int limit,
		     double below_s, struct dlb_error *err)
{
	plan->again = NULL;
	plan->updates_first = false;
	dlb_fit_order(p, plan, limit);
	plan->updates_first = dlb_schedule_can_update_first(plan);
	return dlb_recompute_choose(p, plan, limit, draft, below_s, err);
}

/* Lists the limits of micro-batches in flight to try, from the schedule's own, as 0, down to 1. Returns their
 * number. */
static int falling_limits(const struct dlb_problem *p, struct dlb_plan *plan, int limit[MOST_LIMITS])
{
	int n = 1, least;

	limit[0] = 0;
	plan->again = NULL;
	plan->updates_first = false;
	dlb_fit_order(p, plan, 0);
	least = dlb_schedule_bounded(p->schedule) ? plan->most_in_flight : 1;
	for (; least > 1 && n < MOST_LIMITS; n++)
		limit[n] = least = n == MOST_LIMITS - 1 ? 1 : least > 4 ? least * 3 / 4 : least - 1;
	return n;
}

/* Chooses ops that run again, with the highest limit of micro-batches in flight that fits, found by
 * bisection. The schedule's own limit is tried first, then 1. For plans that are only compared a bound and 1
 * come first, since most plans that do not fit do not fit with 1 either. Returns as dlb_recompute_choose. */
static int choose_again(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, bool compared,
			double below_s, struct dlb_error *err)
{
	int limit[MOST_LIMITS], slow = 0, at = -1;
	const bool bounds = compared && !dlb_schedule_in_parts(p->schedule);
	const int n = falling_limits(p, plan, limit), first = bounds ? n - 1 : 0;
	int fits = n, lacks = -1; /* first limit known to fit, last known not to fit */
	bool *again = NULL; /* ops that run again with limit[fits] */

	if (bounds) {
		plan->updates_first = dlb_schedule_can_update_first(plan);
		const int may = dlb_recompute_may_fit(p, plan, limit[n - 1], err);
		if (may < 1)
			return may;
	}
	for (int turn = 0; fits - lacks > 1; turn++) {
		at = turn == 0 ? first : turn == 1 ? n - 1 - first : (fits + lacks) / 2;
		const int done = choose_at(p, plan, draft, limit[at], below_s, err);
		if (done < 0)
			return done;
		slow |= done == 2 ? done : 0;
		again = done == 1 ? plan->again : again;
		/* slow with the lowest limit: a higher one may fit and be faster */
		if (done == 1 || (done == 2 && at == n - 1))
			fits = at;
		else
			lacks = at;
	}
	if (!again)
		return slow;
	if (at != fits) {
		plan->again = again;
		plan->updates_first = dlb_schedule_can_update_first(plan);
		dlb_fit_order(p, plan, limit[fits]);
	}
	return 1;
}

int dlb_order_compile(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, const double *below_s,
		      struct dlb_program *program, struct dlb_error *err)
{
	double least_s;
	int done = order_kept(p, plan, draft, below_s, program, &least_s, err);

	if (done || !p->recompute || !p->recompute->chosen)
		return done;
	const struct dlb_plan kept = *plan;
	const double kept_s = dlb_order_value_s(p, program),
		     need_s = below_s ? fmin(*below_s, kept_s) : INFINITY;
	if (kept_s < INFINITY && (least_s >= need_s || (!kept.in_flight && !kept.updates_first)))
		return 0;
	if (below_s && !dlb_fit_could(p, plan, program))
		return 0;
	dlb_program_release(program);
	done = choose_again(p, plan, draft, below_s || dlb_problem_is_compared(p), need_s, err);
	if (done < 0)
		return -1;
	if (done == 2 && kept_s == INFINITY)
		return 1;
	if (done < 2) {
		if (dlb_fit_compile(p, plan, draft, program, err))
			return -1;
		if (kept_s == INFINITY || dlb_order_value_s(p, program) < kept_s)
			return 0;
		dlb_program_release(program);
	}
	plan->again = kept.again;
	plan->updates_first = kept.updates_first;
	dlb_fit_order(p, plan, kept.in_flight);
	return dlb_fit_compile(p, plan, draft, program, err);
}

bool dlb_order_take(const struct dlb_problem *p, struct dlb_plan *plan)
{
	const struct dlb_plan *from = p->ordered;
	if (!from || strcmp(from->hash, plan->hash) || strcmp(from->schedule, plan->schedule) ||
	    from->micro_batches != plan->micro_batches || from->batch != plan->batch ||
	    from->n_ops != plan->n_ops || from->n_nodes != plan->n_nodes)
		return false;
	plan->in_flight = from->in_flight;
	if (p->recompute && p->recompute->chosen && from->again) {
		plan->again = dlb_arena_array(&plan->arena, (size_t)plan->n_ops + 1, sizeof *plan->again);
		memcpy(plan->again, from->again, (size_t)plan->n_ops * sizeof *plan->again);
	}
	for (int d = 0; d < plan->n_nodes; d++) {
		const size_t n = (size_t)from->node[d].n_order;
		struct dlb_node_plan *np = &plan->node[d];
		np->n_order = (int)n;
		np->order = dlb_arena_array(&plan->arena, n + 1, sizeof *np->order);
		if (n)
			memcpy(np->order, from->node[d].order, n * sizeof *np->order);
	}
	return true;
}

bool dlb_order_is_placed(const struct dlb_problem *p, const int *placement)
{
	return p->ordered && p->ordered->n_ops == p->graph->n_ops &&
	       !memcmp(p->ordered->placement, placement, (size_t)p->graph->n_ops * sizeof *placement);
}

bool dlb_order_stays(const struct dlb_problem *p, const struct dlb_plan *plan)
{
	struct dlb_plan x;
	int limit[3];
	double least_s;

	if (p->objective != DLB_STEP || plan->again || plan->updates_first)
		return false;
	dlb_plan_set_up(p, plan->placement, &x);
	wanted_limits(p, &x, INFINITY, limit, &least_s);
	if (x.in_flight != limit[0])
		dlb_fit_order(p, &x, limit[0]);
	bool same = !strcmp(x.hash, plan->hash) && x.in_flight == plan->in_flight;
	for (int d = 0; d < plan->n_nodes && same; d++) {
		const struct dlb_node_plan *a = &x.node[d], *b = &plan->node[d];
		same = a->n_order == b->n_order;
		for (int i = 0; i < a->n_order && same; i++)
			same = a->order[i].op == b->order[i].op &&
			       a->order[i].micro_batch == b->order[i].micro_batch;
	}
	dlb_plan_release(&x);
	return same;
}
