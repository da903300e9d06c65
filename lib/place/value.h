/* The value of a placement, by which searches compare candidates. */
#ifndef DLB_PLACE_VALUE_H
#define DLB_PLACE_VALUE_H
#include "place/place.h"

/* The ranked value alone, for searches; INFINITY: does not fit or cannot run. */
double dlb_place_value_s(const struct dlb_problem *p, const int *placement);
/* The same if only values below `below_s` matter. A plan whose makespan (dlb_place_order_s) is not below gets
 * any value that is not below: its step is no shorter. Much cheaper where memory is short. */
double dlb_place_value_below_s(const struct dlb_problem *p, const int *placement, double below_s);
/* The ranked value of a plan, with its replicas and shares. program: compiled from the plan in the order of
 * p->ordered, and fits; if the schedule still gives this order, this program is simulated; NULL: none. */
double dlb_place_plan_s(const struct dlb_problem *p, const struct dlb_plan *plan,
			const struct dlb_program *program);
/* A cheap approximation of that value: the makespan of the ordered items, without link sharing and memory
 * limits. */
double dlb_place_order_s(const struct dlb_problem *p, const int *placement);
/* The largest shortage of memory of a node, in bytes: 0 if all fits, INFINITY if an op's node has no
 * kernel for it. */
double dlb_place_lack_bytes(const struct dlb_problem *p, const int *placement);
#endif
