/* Orders and compiles candidates, and compares them with the nodes' memory. */
#ifndef DLB_PLACE_FIT_H
#define DLB_PLACE_FIT_H
#include "place/place.h"

/* Orders plan by its schedule with in_flight micro-batches in flight (0: the schedule's limit); returns the
 * makespan in seconds. */
double dlb_fit_order(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight);
/* The same, but ordering stops once the makespan is known to be below_s or more: then the makespan is not
 * exact, and the order is incomplete. */
double dlb_fit_order_below(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight, double below_s);
/* Compiles the ordered plan. draft: arenas are packed only as far as the nodes' memory needs it. -1 with
 * err. */
int dlb_fit_compile(const struct dlb_problem *p, struct dlb_plan *plan, bool draft,
		    struct dlb_program *program, struct dlb_error *err);
/* Compiles a complete plan once more, for its sizes: arenas have the bytes that plan->node[].peak_bytes
 * states, but tensors no offsets in them. -1 with err. */
int dlb_fit_compile_known(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_program *program,
			  struct dlb_error *err);
/* Whether every node's memory holds its part. least: assumes arenas at their lower bound. */
bool dlb_fit_in_memory(const struct dlb_problem *p, const struct dlb_program *g, bool least);
/* Bytes that node d's memory has for the arena. */
double dlb_fit_room(const struct dlb_problem *p, const struct dlb_program *g, int d);
/* Whether every node has room, beside state and scratch memory, for the tensors that each of its ops
 * reads. If not, no choice of ops that run again fits. g: compiled from plan; need not fit. */
bool dlb_fit_could(const struct dlb_problem *p, const struct dlb_plan *plan, const struct dlb_program *g);
bool dlb_fit_is_large(const struct dlb_plan *plan); /* packing arenas well would take too long */
#endif
