/* Makes a plan from a placement: order, program, verification, prediction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/bound.h"
#include "place/drafts.h"
#include "place/fit.h"
#include "place/make.h"
#include "place/moves.h"
#include "place/place.h"
#include "place/problem.h"
#include "place/recompute.h"
#include "place/replicas.h"
#include "plan/offload.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/timeline.h"
#include "util/hash.h"

static void share_out(const struct dlb_plan *from, struct dlb_plan *plan)
{
	size_t R = (size_t)from->n_replicas, n = (size_t)plan->n_nodes;
	int *flat = dlb_xcalloc(R * n, sizeof *flat);
	for (size_t r = 0; r < R; r++)
		memcpy(flat + r * n, from->replica[r], n * sizeof *flat);
	dlb_plan_set_replicas(plan, from->n_replicas, flat);
	free(flat);
	plan->sharing = from->sharing;
	if (from->power) {
		plan->power = dlb_arena_array(&plan->arena, R, sizeof *plan->power);
		memcpy(plan->power, from->power, R * sizeof *plan->power);
	}
}

static void set_up(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan)
{
	dlb_plan_init(plan, p->graph->n_ops, p->cluster->n_nodes);
	plan->graph = p->graph;
	plan->batch = p->batch;
	plan->micro_batches = p->micro_batches;
	plan->schedule = p->schedule->name;
	plan->staleness = p->staleness;
	plan->seed = p->seed;
	plan->in_place = !p->not_in_place;
	plan->clip = p->clip;
	plan->inverse_every = p->inverse_every;
	plan->n_shares = p->n_shares;
	plan->sharing.zero = p->zero;
	memcpy(plan->placement, placement, (size_t)plan->n_ops * sizeof *placement);
	if (p->replicas)
		share_out(p->replicas, plan);
	if (p->recompute)
		plan->recompute = *p->recompute;
	if (p->offload)
		plan->offload = *p->offload;
	plan->state_dtype = p->state_dtype;
	if (p->drop)
		dlb_recompute_named(p, plan);
	dlb_plan_hash(plan);
}

/* Whether the plan is only to be compared with others. */
static bool is_compared(const struct dlb_problem *p) { return p->draft || p->compared; }

/* Pins and excluded nodes are respected. dlb_plan_check checks that a node has a kernel for its ops. */
static int check_constraints(const struct dlb_problem *p, const int *placement, struct dlb_error *err)
{
	for (int i = 0; i < p->graph->n_ops; i++) {
		int d = placement[i];
		if (p->excluded && p->excluded[d])
			return dlb_fail_no(err, NULL,
					   "no plan fits: op '%s' stands on node %d, which is left out",
					   p->graph->op[i].name, d);
		if (p->pin && p->pin[i] >= 0 && p->pin[i] != d)
			return dlb_fail_no(err, NULL,
					   "no plan fits: op '%s' stands on node %d and is pinned to node %d",
					   p->graph->op[i].name, d, p->pin[i]);
	}
	return 0;
}

/* ---- under the port model: no program, no time-line ---- */

static double port_value_s(const struct dlb_problem *p, const int *at, bool weighted, double *load)
{
	struct dlb_port port;
	dlb_port_init(&port, p, weighted);
	double value = dlb_port_lack_bytes(&port, at, NULL) > 0 ? INFINITY : 0;
	if (value == 0) {
		value = dlb_port_throughput_s(&port, at, load);
		if (p->objective == DLB_LATENCY)
			value = dlb_port_latency_s(&port, at, NULL);
	}
	dlb_port_release(&port);
	return value;
}

static int fail_port(const struct dlb_problem *p, const int *at, struct dlb_error *err)
{
	struct dlb_port port;
	int d;
	dlb_port_init(&port, p, false);
	double lack = dlb_port_lack_bytes(&port, at, &d);
	dlb_port_release(&port);
	if (isinf(lack))
		return dlb_fail_no(err, NULL, "no plan fits: an op stands where it has no kernel");
	if (lack > 0)
		return dlb_fail_no(err, NULL,
				   "no plan fits: node %d (%s) needs %.4g MB of %.4g MB: it lacks %.4g MB", d,
				   p->cluster->kind[p->cluster->node[d].kind].name,
				   (p->memory_bytes[d] + lack) / 1e6, p->memory_bytes[d] / 1e6, lack / 1e6);
	return dlb_fail_no(err, NULL, "no plan fits: calls of nodes would wait for one another");
}

/* Nodes run their ops in the graph's order, all micro-batches of an op in a row. */
static void port_orders(const struct dlb_problem *p, struct dlb_plan *plan)
{
	for (int i = 0; i < plan->n_ops; i++)
		plan->node[plan->placement[i]].n_order += p->graph->op[i].phase == DLB_UPDATE ?
								  1 :
								  p->micro_batches;
	for (int d = 0; d < plan->n_nodes; d++) {
		plan->node[d].order = dlb_arena_array(&plan->arena, (size_t)plan->node[d].n_order + 1,
						      sizeof *plan->node[d].order);
		plan->node[d].n_order = 0;
	}
	for (int i = 0; i < plan->n_ops; i++) {
		struct dlb_node_plan *np = &plan->node[plan->placement[i]];
		bool update = p->graph->op[i].phase == DLB_UPDATE;
		for (int m = 0; m < (update ? 1 : p->micro_batches); m++)
			np->order[np->n_order++] = (struct dlb_item){ i, update ? -1 : m };
	}
}

static int make_port_plan(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan,
			  double *ranked, struct dlb_error *err)
{
	int *at = dlb_place_groups_at(p, placement), rc = -1, n = 0;
	double *load = dlb_xcalloc((size_t)p->cluster->n_nodes, sizeof *load), sum = 0, most = 0;
	set_up(p, placement, plan);
	port_orders(p, plan);
	if (check_constraints(p, placement, err) || dlb_plan_check(plan, p->cost, err))
		goto out;
	double value = port_value_s(p, at, true, NULL);
	if (isinf(value)) {
		fail_port(p, at, err);
		goto out;
	}
	if (ranked)
		*ranked = value + dlb_place_migration_share_s(p, placement);
	plan->value_s = port_value_s(p, at, false, load);
	for (int g = 0; g < p->n_groups; g++)
		plan->node[at[g]].peak_bytes += dlb_group_bytes(p, g);
	for (int d = 0; d < plan->n_nodes; d++) {
		plan->node[d].busy_s = load[d];
		plan->node[d].wait_s = plan->value_s > load[d] ? plan->value_s - load[d] : 0;
		n += p->free_node[d];
		sum += load[d];
		most = load[d] > most ? load[d] : most;
	}
	plan->objective = dlb_objectives[p->objective];
	plan->imbalance = sum > 0 ? most / (sum / n) : 1;
	plan->bound_s = dlb_lower_bound_s(p);
	plan->gap = plan->bound_s > 0 ? plan->value_s / plan->bound_s - 1 : 0;
	rc = 0;
out:
	if (rc)
		dlb_plan_release(plan);
	free(at);
	free(load);
	return rc;
}

/* Limits of micro-batches in flight, the fastest first: the schedule's own, and larger ones if they fill
 * bubbles. least_s: the makespan of the fastest order. Leaves the order of one of them in plan. */
static int wanted_limits(const struct dlb_problem *p, struct dlb_plan *plan, int limit[3], double *least_s)
{
	double s[3] = { dlb_fit_order(p, plan, 0) };
	int n = 1, most = plan->most_in_flight, M = p->micro_batches;
	int more[2] = { 2 * most - 1 < M ? 2 * most - 1 : M, M };
	limit[0] = 0;
	for (int i = 0; i < 2 && dlb_schedule_fills(p->schedule); i++) {
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

/* Compiles the ordered plan; where it does not fit, with each update as soon as its gradient is there, but
 * in a search only if it could fit. Returns whether it fits, -1 with err. */
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

/* Whether a plan that does not fit may with a lower limit than `most`: tries what needs the least memory, one
 * micro-batch in flight and each update as soon as it can be. program: replaced. -1 with err. */
static int could_fit(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, int most,
		     struct dlb_program *program, struct dlb_error *err)
{
	if (most < 2 || !dlb_schedule_bounded(p->schedule))
		return 1;
	dlb_program_release(program);
	plan->updates_first = dlb_schedule_can_update_first(plan);
	dlb_fit_order(p, plan, 1);
	return dlb_fit_compile(p, plan, draft, program, err) ? -1 : dlb_fit_in_memory(p, program, false);
}

/* The makespan with each update as soon as it can be; INFINITY: there is no such order. Leaves that order in
 * plan. */
static double updates_first_s(const struct dlb_problem *p, struct dlb_plan *plan, int limit)
{
	if (!dlb_schedule_can_update_first(plan))
		return INFINITY;
	plan->updates_first = true;
	const double s = dlb_fit_order(p, plan, limit);
	plan->updates_first = false;
	return s;
}

/* Whether an order with a limit has a makespan below below_s: the present one, of order_s, or that with each
 * update as soon as it can be, which is asked for only where the first does not. The present order stays. */
static bool any_below(const struct dlb_problem *p, struct dlb_plan *plan, int limit, double order_s,
		      double below_s)
{
	if (order_s < below_s)
		return true;
	if (!(updates_first_s(p, plan, limit) < below_s))
		return false;
	dlb_fit_order(p, plan, limit);
	return true;
}

/* Orders and compiles the plan with the fastest limit of micro-batches in flight that fits the nodes'
 * memory, with the ops that run again as they are; limits fall until one fits. If none fits, the plan has the
 * lowest. below_s: of a search, NULL: of none. A search gets any plan that does not fit if none with a makespan
 * below that does; 1, and no program: no order has such a makespan. least_s: of the fastest limit. */
static int order_kept(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, const double *below_s,
		      struct dlb_program *program, double *least_s, struct dlb_error *err)
{
	int limit[3], n = wanted_limits(p, plan, limit, least_s), less = 0, now = limit[0];
	const bool compared = below_s || is_compared(p);
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
		const double order_s = dlb_fit_order(p, plan, now);
		if (below_s && !any_below(p, plan, now, order_s, *below_s))
			return 0;
		dlb_program_release(program);
	}
}

/* The simulated step of a program that fits; INFINITY: it does not. */
static double fitting_s(const struct dlb_problem *p, const struct dlb_program *program)
{
	double s;

	return dlb_fit_in_memory(p, program, false) &&
			       !dlb_program_step_s(program, p->cost, p->ranked_scale, &s, NULL) ?
		       s :
		       INFINITY;
}

enum { MOST_LIMITS = 24 };

/* Chooses ops that run again, in an order with a limit of micro-batches in flight; 0: the schedule's own. As
 * dlb_recompute_choose. */
static int choose_at(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, int limit,
		     double below_s, struct dlb_error *err)
{
	plan->again = NULL;
	plan->updates_first = false;
	dlb_fit_order(p, plan, limit);
	plan->updates_first = dlb_schedule_can_update_first(plan);
	return dlb_recompute_choose(p, plan, limit, draft, below_s, err);
}

/* The limits of micro-batches in flight to try, from the schedule's own, as 0, down to 1. Returns their
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

/* Chooses ops that run again, with the highest limit of micro-batches in flight that fits: by bisection,
 * after the schedule's own and 1. Of plans to compare 1 comes first, after a bound: most of those that do not
 * fit do not with that either. As dlb_recompute_choose. */
static int choose_again(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, bool compared,
			double below_s, struct dlb_error *err)
{
	int limit[MOST_LIMITS], slow = 0, at = -1;
	const int n = falling_limits(p, plan, limit), first = compared ? n - 1 : 0;
	int fits = n, lacks = -1; /* the last known to fit, the first known not to */
	bool *again = NULL; /* of the one that fits */

	if (compared) {
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
		/* slow with the lowest limit: with others it may fit and be faster */
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

/* The same with ops that run again where memory asks for that: takes the faster of the plan without any and of one
 * with some, which only add to the makespan. If neither fits, the plan has some (in a search it may have none). */
static int order_and_compile(const struct dlb_problem *p, struct dlb_plan *plan, bool draft,
			     const double *below_s, struct dlb_program *program, struct dlb_error *err)
{
	double least_s;
	int done = order_kept(p, plan, draft, below_s, program, &least_s, err);

	if (done || !p->recompute || !p->recompute->chosen)
		return done;
	const struct dlb_plan kept = *plan;
	const double kept_s = fitting_s(p, program), need_s = below_s ? fmin(*below_s, kept_s) : INFINITY;
	if (kept_s < INFINITY && (least_s >= need_s || (!kept.in_flight && !kept.updates_first)))
		return 0;
	if (below_s && !dlb_fit_could(p, plan, program))
		return 0;
	dlb_program_release(program);
	done = choose_again(p, plan, draft, below_s || is_compared(p), need_s, err);
	if (done < 0)
		return -1;
	if (done == 2 && kept_s == INFINITY)
		return 1;
	if (done < 2) {
		if (dlb_fit_compile(p, plan, draft, program, err))
			return -1;
		if (kept_s == INFINITY || fitting_s(p, program) < kept_s)
			return 0;
		dlb_program_release(program);
	}
	plan->again = kept.again;
	plan->updates_first = kept.updates_first;
	dlb_fit_order(p, plan, kept.in_flight);
	return dlb_fit_compile(p, plan, draft, program, err);
}

/* Gives plan the order of p->ordered. False: that one is of another placement, schedule or batch. */
static bool take_order(const struct dlb_problem *p, struct dlb_plan *plan)
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

/* The simulated step of the plan, in the order of p->ordered or of the schedule. below_s: see order_kept; without a
 * program, below_s itself. exact, if not NULL: gets whether it is the same for any below_s. */
static double judged_s(const struct dlb_problem *p, struct dlb_plan *plan, bool as_ordered, double below_s,
		       bool *exact)
{
	struct dlb_program program;
	double value = INFINITY;
	int rc = -1;

	if (!as_ordered)
		rc = order_and_compile(p, plan, true, &below_s, &program, NULL);
	else if (take_order(p, plan))
		rc = dlb_fit_compile(p, plan, true, &program, NULL);
	if (rc == 0) {
		value = fitting_s(p, &program);
		dlb_program_release(&program);
	} else if (rc > 0) {
		value = below_s;
	}
	if (exact)
		*exact = isinf(below_s) || (rc == 0 && isfinite(value));
	return value;
}

/* The same in the order of the schedule; a value that was found before is not found again. */
static double known_s(const struct dlb_problem *p, struct dlb_plan *plan, double below_s)
{
	struct dlb_problem watched = *p;
	struct dlb_known_value x = { .key = dlb_hash_str(dlb_problem_key(p), plan->hash),
				     .below_s = below_s };
	const struct dlb_known_value *known = dlb_value_find(p, x.key, below_s);

	if (known) {
		x = *known;
	} else {
		watched.scarce = &x.scarce;
		x.value_s = judged_s(&watched, plan, false, below_s, &x.exact);
		dlb_value_keep(p, &x);
	}
	if (p->scarce)
		*p->scarce |= x.scarce;
	return x.value_s;
}

/* The simulated step under the weights: see judged_s. */
static double ranked_s(const struct dlb_problem *p, const int *placement, bool as_ordered, double below_s)
{
	struct dlb_plan plan;
	double value;

	set_up(p, placement, &plan);
	value = as_ordered || !p->drafts ? judged_s(p, &plan, as_ordered, below_s, NULL) :
					   known_s(p, &plan, below_s);
	dlb_plan_release(&plan);
	return value + dlb_place_migration_share_s(p, placement);
}

static bool is_placed_as_ordered(const struct dlb_problem *p, const int *placement)
{
	return p->ordered && p->ordered->n_ops == p->graph->n_ops &&
	       !memcmp(p->ordered->placement, placement, (size_t)p->graph->n_ops * sizeof *placement);
}

double dlb_place_value_s(const struct dlb_problem *p, const int *placement)
{
	return dlb_place_value_below_s(p, placement, INFINITY);
}

double dlb_place_value_below_s(const struct dlb_problem *p, const int *placement, double below_s)
{
	if (p->objective != DLB_STEP) {
		int *at = dlb_place_groups_at(p, placement);
		double s = port_value_s(p, at, true, NULL);
		free(at);
		return s + dlb_place_migration_share_s(p, placement);
	}
	for (int i = 0; i < p->graph->n_ops; i++)
		if (isinf(dlb_time_s(p, p->group_of[i], placement[i])))
			return INFINITY;
	double value = ranked_s(p, placement, false, below_s);
	return is_placed_as_ordered(p, placement) ? fmin(value, ranked_s(p, placement, true, below_s)) :
						    value;
}

/* Whether the schedule orders the plan as it is ordered already. */
static bool keeps_order(const struct dlb_problem *p, const struct dlb_plan *plan)
{
	struct dlb_plan x;
	int limit[3];
	double least_s;

	if (p->objective != DLB_STEP || plan->again || plan->updates_first)
		return false;
	set_up(p, plan->placement, &x);
	wanted_limits(p, &x, limit, &least_s);
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

double dlb_place_plan_s(const struct dlb_problem *p, const struct dlb_plan *plan,
			const struct dlb_program *program)
{
	struct dlb_problem q = *p;
	q.replicas = plan->n_replicas > 1 ? plan : NULL;
	if (program && keeps_order(&q, plan))
		return fitting_s(&q, program) + dlb_place_migration_share_s(&q, plan->placement);
	return dlb_place_value_s(&q, plan->placement);
}

double dlb_place_order_s(const struct dlb_problem *p, const int *placement)
{
	struct dlb_plan plan;
	set_up(p, placement, &plan);
	double s = dlb_schedule_order(&plan, p->cost, p->schedule, p->ranked_scale);
	dlb_plan_release(&plan);
	return s + dlb_place_migration_share_s(p, placement);
}

double dlb_place_lack_bytes(const struct dlb_problem *p, const int *placement)
{
	if (p->objective != DLB_STEP) {
		struct dlb_port port;
		int *at = dlb_place_groups_at(p, placement);
		dlb_port_init(&port, p, false);
		double lack = dlb_port_lack_bytes(&port, at, NULL);
		dlb_port_release(&port);
		free(at);
		return lack;
	}
	struct dlb_plan plan;
	struct dlb_program program;
	double most = INFINITY;
	set_up(p, placement, &plan);
	dlb_fit_order(p, &plan, 0);
	if (dlb_plan_check(&plan, p->cost, NULL) == 0 &&
	    order_and_compile(p, &plan, is_compared(p), NULL, &program, NULL) == 0) {
		most = 0;
		for (int d = 0; d < plan.n_nodes; d++) {
			const struct dlb_node_program *np = &dlb_program_of(&program, d)->node[d];
			double over = (double)np->arena_bytes + (double)np->scratch_bytes +
				      (double)np->state_bytes - p->memory_bytes[d];
			if (over > most)
				most = over;
		}
		dlb_program_release(&program);
	}
	dlb_plan_release(&plan);
	return most;
}

static void keep_memories(const struct dlb_problem *p, int d, const struct dlb_node_program *program,
			  struct dlb_plan *plan)
{
	const struct dlb_node *node = &p->cluster->node[d];
	struct dlb_node_plan *np = &plan->node[d];
	np->n_memories = program->use ? node->n_memories : 0;
	np->memory = dlb_arena_array(&plan->arena, (size_t)np->n_memories + 1, sizeof *np->memory);
	for (int i = 0; i < np->n_memories; i++) {
		np->memory[i].name = dlb_arena_strdup(&plan->arena, p->cluster->memory[node->memory[i]].name);
		memcpy(np->memory[i].bytes, program->use->bytes[i], sizeof np->memory[i].bytes);
	}
}

static void keep_spans(const struct dlb_timeline *t, struct dlb_plan *plan)
{
	plan->timeline = dlb_arena_array(&plan->arena, (size_t)plan->n_nodes, sizeof *plan->timeline);
	plan->n_spans = dlb_arena_array(&plan->arena, (size_t)plan->n_nodes, sizeof *plan->n_spans);
	for (int d = 0; d < plan->n_nodes; d++) {
		const size_t n = (size_t)t->n_spans[d];
		plan->n_spans[d] = t->n_spans[d];
		plan->timeline[d] = dlb_arena_array(&plan->arena, n + 1, sizeof **plan->timeline);
		if (n)
			memcpy(plan->timeline[d], t->span[d], n * sizeof **plan->timeline);
	}
}

static void keep_times(const struct dlb_problem *p, const struct dlb_program *g, const struct dlb_timeline *t,
		       struct dlb_plan *plan)
{
	double most = 0, sum = 0;
	int n = 0;
	plan->value_s = t->step_s;
	plan->fill_s = t->fill_s;
	plan->staleness_used = g->staleness;
	if (!is_compared(p))
		keep_spans(t, plan);
	for (int d = 0; d < plan->n_nodes; d++) {
		struct dlb_node_plan *np = &plan->node[d];
		np->busy_s = t->node[d].busy_s;
		np->wait_s = t->node[d].wait_s;
		const struct dlb_node_program *program = &dlb_program_of(g, d)->node[d];
		np->peak_bytes = (double)program->arena_bytes + (double)program->scratch_bytes +
				 (double)program->state_bytes;
		np->offloaded_bytes = dlb_program_offloaded_bytes(dlb_program_of(g, d), d, p->cluster, NULL);
		keep_memories(p, d, program, plan);
		if (!p->free_node[d])
			continue;
		n++;
		sum += np->busy_s;
		if (np->busy_s > most)
			most = np->busy_s;
	}
	plan->imbalance = sum > 0 ? most / (sum / n) : 1;
}

/* Simulates the stated step, with spans, and the ranked step, which differs only under node weights. */
static int simulate(const struct dlb_problem *p, const struct dlb_program *program, struct dlb_plan *plan,
		    double *ranked, struct dlb_error *err)
{
	struct dlb_timeline t;
	size_t n = (size_t)plan->n_nodes * sizeof *p->ranked_scale;
	bool weighted = memcmp(p->ranked_scale, p->stated_scale, n) != 0;
	if (ranked && weighted && dlb_program_step_s(program, p->cost, p->ranked_scale, ranked, err))
		return -1;
	if (dlb_program_simulate(program, p->cost,
				 &(struct dlb_simulate_choice){ .node_scale = p->stated_scale,
								.keep_spans = !is_compared(p) },
				 &t, err))
		return -1;
	if (ranked && !weighted)
		*ranked = t.step_s;
	keep_times(p, program, &t, plan);
	dlb_timeline_release(&t, plan->n_nodes);
	return 0;
}

/* With ops chosen to run again, the error says so. */
static int say_lack(const struct dlb_problem *p, const struct dlb_program *g, struct dlb_error *err)
{
	char more[DLB_LACK_TEXT];

	if (!p->recompute || !p->recompute->chosen || dlb_error_status(err) != 1 ||
	    !dlb_program_lack_text(g, p->cluster, more))
		return -1;
	return dlb_hint(err, "with ops that run again it fits with %s; try more micro-batches or nodes",
			more);
}

/* As order_and_compile. -1, with err, also where a plan to compare has no order below p->below_s. */
static int order_below(const struct dlb_problem *p, struct dlb_plan *plan, bool draft,
		       struct dlb_program *program, struct dlb_error *err)
{
	const double *below_s = is_compared(p) && p->below_s > 0 ? &p->below_s : NULL;
	const int rc = order_and_compile(p, plan, draft, below_s, program, err);

	return rc > 0 ? dlb_fail_no(err, NULL, "a step takes %.6g ms or more", p->below_s * 1e3) : rc;
}

/* In the order of p->ordered or of the schedule. */
static int make_plan(const struct dlb_problem *p, const int *placement, bool as_ordered,
		     struct dlb_plan *plan, double *ranked, struct dlb_error *err)
{
	struct dlb_program program;
	int rc = -1;
	set_up(p, placement, plan);
	const bool draft = is_compared(p) || dlb_fit_is_large(plan);
	if (check_constraints(p, placement, err))
		goto no_plan;
	if (!as_ordered)
		dlb_fit_order(p, plan, 0);
	else if (!take_order(p, plan))
		goto no_plan;
	if (dlb_plan_check(plan, p->cost, err) ||
	    (as_ordered ? dlb_fit_compile(p, plan, draft, &program, err) :
			  order_below(p, plan, draft, &program, err)))
		goto no_plan;
	if ((is_compared(p) ? dlb_program_verify_choices : dlb_program_verify)(&program, p->cost, err)) {
		say_lack(p, &program, err);
		goto out;
	}
	if (simulate(p, &program, plan, ranked, err))
		goto out;
	if (ranked)
		*ranked += dlb_place_migration_share_s(p, placement);
	if (!is_compared(p))
		plan->bound_s = p->replicas ? dlb_replicas_bound_s(p) : dlb_lower_bound_s(p);
	plan->gap = plan->bound_s > 0 ? plan->value_s / plan->bound_s - 1 : 0;
	rc = 0;
out:
	dlb_program_release(&program);
no_plan:
	if (rc)
		dlb_plan_release(plan);
	return rc;
}

int dlb_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan, double *ranked,
		  struct dlb_error *err)
{
	struct dlb_plan kept;
	double now_s, kept_s;
	if (p->objective != DLB_STEP)
		return make_port_plan(p, placement, plan, ranked, err);
	if (!is_placed_as_ordered(p, placement) || make_plan(p, placement, true, &kept, &kept_s, NULL))
		return make_plan(p, placement, false, plan, ranked, err);
	bool is_made = !make_plan(p, placement, false, plan, &now_s, NULL);
	if (is_made && now_s < kept_s * (1 - DLB_KEEP_GAIN)) {
		dlb_plan_release(&kept);
	} else {
		if (is_made)
			dlb_plan_release(plan);
		*plan = kept;
		now_s = kept_s;
	}
	if (ranked)
		*ranked = now_s;
	return 0;
}

/* Makes the plan again as a whole. With all effort, and without a limit, other ops may be chosen to run again
 * than for the plan that was compared: if that takes longer, the plan keeps the order that it has. */
static int remake(const struct dlb_problem *p, const struct dlb_plan *was, struct dlb_plan *plan,
		  struct dlb_error *err)
{
	struct dlb_problem ordered = *p;
	struct dlb_plan kept;

	if (dlb_plan_make(p, was->placement, plan, NULL, err))
		return -1;
	ordered.ordered = was;
	if (p->objective != DLB_STEP || plan->value_s <= was->value_s * (1 + 1e-9) ||
	    make_plan(&ordered, was->placement, true, &kept, NULL, NULL))
		return 0;
	if (kept.value_s < plan->value_s) {
		dlb_plan_release(plan);
		*plan = kept;
	} else {
		dlb_plan_release(&kept);
	}
	return 0;
}

int dlb_plan_remake(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err)
{
	struct dlb_problem whole = *p;
	struct dlb_plan was = *plan;
	whole.compared = whole.draft = false;
	whole.replicas = was.n_replicas > 1 ? &was : NULL;
	if (remake(&whole, &was, plan, err)) {
		*plan = was;
		return -1;
	}
	plan->winner = was.winner;
	plan->algorithm = was.algorithm;
	plan->algorithm_given = was.algorithm_given;
	plan->effort = was.effort;
	plan->moved_ops = was.moved_ops;
	plan->moved_bytes = was.moved_bytes;
	plan->n_advice = was.n_advice;
	plan->advice = dlb_arena_array(&plan->arena, (size_t)was.n_advice + 1, sizeof *plan->advice);
	if (was.n_advice)
		memcpy(plan->advice, was.advice, (size_t)was.n_advice * sizeof *plan->advice);
	dlb_plan_release(&was);
	return 0;
}
