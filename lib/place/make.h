/* The plan of a placement, and its value. */
#ifndef DLB_PLACE_MAKE_H
#define DLB_PLACE_MAKE_H
#include "place/place.h"

/* Makes `plan` from a placement: orders by the schedule, compiles, verifies, simulates. *ranked is the
 * simulated step under the weights, by which candidates are compared; plan->value_s the stated one. */
int dlb_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan, double *ranked,
		  struct dlb_error *err);
/* Makes a plan again with all effort, which was made of p or of a copy of it with `compared`. 0; -1 with err,
 * and the plan is as before. */
int dlb_plan_remake(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err);
/* The ranked value alone, for searches; INFINITY: does not fit or cannot run. */
double dlb_place_value_s(const struct dlb_problem *p, const int *placement);
/* The same where only values below `below_s` count: of a plan whose makespan (dlb_place_order_s) is not below, which is
 * no more than its step, any value that is not below. Much cheaper where memory is short. */
double dlb_place_value_below_s(const struct dlb_problem *p, const int *placement, double below_s);
/* The same of a plan, with its replicas and shares. program: of the plan as p->ordered, which fits; it is
 * simulated as it is where the schedule gives the same order still; NULL: there is none. */
double dlb_place_plan_s(const struct dlb_problem *p, const struct dlb_plan *plan,
			const struct dlb_program *program);
/* A cheap approximation of that value: the makespan of the ordered items, without link sharing and memory
 * limits. */
double dlb_place_order_s(const struct dlb_problem *p, const int *placement);
/* The largest shortage of memory of a node, in bytes: 0 if all fits, INFINITY if an op's node has no
 * kernel for it. */
double dlb_place_lack_bytes(const struct dlb_problem *p, const int *placement);
#endif
