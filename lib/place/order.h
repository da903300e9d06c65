/* The order of a plan: that of its schedule, with the fastest limit of micro-batches in flight that fits the
 * nodes' memory, and with ops that run again if memory requires them. Private to lib/place. */
#ifndef DLB_PLACE_ORDER_H
#define DLB_PLACE_ORDER_H
#include "place/place.h"

/* Orders and compiles the plan. If ops may run again, takes the faster of a plan without such ops and one
 * with them, which only lengthen the makespan. If neither fits, the plan has such ops (in a search it may
 * have none). below_s: a search's limit of the makespan; NULL: no search. A search gets some plan that does
 * not fit if no plan with a makespan below *below_s fits. 0; 1, without a program: no order has such a
 * makespan; -1 with err. */
int dlb_order_compile(const struct dlb_problem *p, struct dlb_plan *plan, bool draft, const double *below_s,
		      struct dlb_program *program, struct dlb_error *err);
/* The simulated ranked step of a program that fits; INFINITY: it does not. */
double dlb_order_value_s(const struct dlb_problem *p, const struct dlb_program *program);
/* Whether p->ordered has that placement. */
bool dlb_order_is_placed(const struct dlb_problem *p, const int *placement);
/* Gives plan the order of p->ordered. False: p->ordered has another placement, schedule or batch. */
bool dlb_order_take(const struct dlb_problem *p, struct dlb_plan *plan);
/* Whether the schedule gives the plan the order that it has already. */
bool dlb_order_stays(const struct dlb_problem *p, const struct dlb_plan *plan);
#endif
