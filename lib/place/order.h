/* The order of a plan: that of its schedule with the fastest limit of micro-batches in flight that fits the
 * nodes' memory, and with ops that run again where memory asks for them. Private to lib/place. */
#ifndef DLB_PLACE_ORDER_H
#define DLB_PLACE_ORDER_H
#include "place/place.h"

/* Orders and compiles the plan; where ops may run again, takes the faster of the plan without any and of
 * one with some, which only add to the makespan. If neither fits, the plan has some (in a search it may
 * have none). below_s: of a search, NULL: of none. A search gets any plan that does not fit if none with a
 * makespan below that does; 1, and no program: no order has such a makespan. -1 with err. */
int dlb_order_compile(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, const double *below_s,
		      struct dlb_program *program, struct dlb_error *err);
/* The simulated ranked step of a program that fits; INFINITY: it does not. */
double dlb_order_value_s(const struct dlb_problem *p, const struct dlb_program *program);
/* Whether p->ordered has that placement. */
bool dlb_order_is_placed(const struct dlb_problem *p, const int *placement);
/* Gives plan the order of p->ordered. False: that one is of another placement, schedule or batch. */
bool dlb_order_take(const struct dlb_problem *p, struct dlb_plan *plan);
/* Whether the schedule orders the plan as it is ordered already. */
bool dlb_order_stays(const struct dlb_problem *p, const struct dlb_plan *plan);
#endif
