/* The value of a placement: see value.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/drafts.h"
#include "place/fit.h"
#include "place/make.h"
#include "place/moves.h"
#include "place/order.h"
#include "place/port_plan.h"
#include "place/problem.h"
#include "place/value.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "util/hash.h"

/* The simulated step of the plan, in the order of p->ordered (as_ordered) or of the schedule. below_s: see
 * order.h; it is the result if no order is below it. exact: receives whether the result is the same for any
 * below_s; may be NULL. */
static double judged_s(const struct dlb_problem *p, struct dlb_plan *plan, bool as_ordered, double below_s,
		       bool *exact)
{
	struct dlb_program program;
	double value = INFINITY;
	int rc = -1;

	if (!as_ordered)
		rc = dlb_order_compile(p, plan, true, &below_s, &program, NULL);
	else if (dlb_order_take(p, plan))
		rc = dlb_fit_compile(p, plan, true, &program, NULL);
	if (rc == 0) {
		value = dlb_order_value_s(p, &program);
		dlb_program_release(&program);
	} else if (rc > 0) {
		value = below_s;
	}
	if (exact)
		*exact = isinf(below_s) || (rc == 0 && isfinite(value));
	return value;
}

/* The same in the order of the schedule, with a cache of values. */
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

	dlb_plan_set_up(p, placement, &plan);
	value = as_ordered || !p->drafts ? judged_s(p, &plan, as_ordered, below_s, NULL) :
					   known_s(p, &plan, below_s);
	dlb_plan_release(&plan);
	return value + dlb_place_migration_share_s(p, placement);
}

double dlb_place_value_s(const struct dlb_problem *p, const int *placement)
{
	return dlb_place_value_below_s(p, placement, INFINITY);
}

double dlb_place_value_below_s(const struct dlb_problem *p, const int *placement, double below_s)
{
	if (p->objective != DLB_STEP) {
		int *at = dlb_place_groups_at(p, placement);
		double s = dlb_port_value_s(p, at, true, NULL);
		free(at);
		return s + dlb_place_migration_share_s(p, placement);
	}
	for (int i = 0; i < p->graph->n_ops; i++)
		if (isinf(dlb_time_s(p, p->group_of[i], placement[i])))
			return INFINITY;
	double value = ranked_s(p, placement, false, below_s);
	return dlb_order_is_placed(p, placement) ? fmin(value, ranked_s(p, placement, true, below_s)) : value;
}

double dlb_place_plan_s(const struct dlb_problem *p, const struct dlb_plan *plan,
			const struct dlb_program *program)
{
	struct dlb_problem q = *p;
	q.replicas = plan->n_replicas > 1 ? plan : NULL;
	if (program && dlb_order_stays(&q, plan))
		return dlb_order_value_s(&q, program) + dlb_place_migration_share_s(&q, plan->placement);
	return dlb_place_value_s(&q, plan->placement);
}

double dlb_place_order_s(const struct dlb_problem *p, const int *placement)
{
	struct dlb_plan plan;
	dlb_plan_set_up(p, placement, &plan);
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
	dlb_plan_set_up(p, placement, &plan);
	dlb_fit_order(p, &plan, 0);
	if (dlb_plan_check(&plan, p->cost, NULL) == 0 &&
	    dlb_order_compile(p, &plan, dlb_problem_is_compared(p), NULL, &program, NULL) == 0) {
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
