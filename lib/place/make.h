/* The plan of a placement. */
#ifndef DLB_PLACE_MAKE_H
#define DLB_PLACE_MAKE_H
#include "place/place.h"

/* Makes `plan` from a placement: orders by the schedule, compiles, verifies, simulates. *ranked is the
 * simulated step under the weights, by which candidates are compared; plan->value_s the stated one. */
int dlb_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan, double *ranked,
		  struct dlb_error *err);
/* Makes the complete plan, with all effort, from a plan that was made of p or of a copy of p with
 * `compared`. 0; -1 with err, and the plan is unchanged. */
int dlb_plan_remake(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err);
/* ---- private to lib/place ---- */

/* Initializes a plan of p with the placement, without orders. */
void dlb_plan_set_up(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan);
/* Checks that the placement respects pins and excluded nodes. -1 with err. (dlb_plan_check checks that
 * nodes have kernels for their ops.) */
int dlb_plan_check_constraints(const struct dlb_problem *p, const int *placement, struct dlb_error *err);
#endif
