/* Orders, compiles and measures candidates against the nodes' memory.. */
#ifndef DLB_PLACE_FIT_H
#define DLB_PLACE_FIT_H
#include "place/place.h"

/* Orders plan by its schedule with so many micro-batches in flight (0: the schedule's limit); returns
 * seconds. */
double dlb_fit_order(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight);
/* The same, but a makespan of below_s or more is not found exactly, and the order then ends before its
 * time. */
double dlb_fit_order_below(const struct dlb_problem *p, struct dlb_plan *plan, int in_flight, double below_s);
/* Compiles the ordered plan. draft: arenas are packed only as far as the nodes' memory needs it. -1 with
 * err. */
int dlb_fit_compile(const struct dlb_problem *p, struct dlb_plan *plan, bool draft,
		    struct dlb_program *program, struct dlb_error *err);
/* Whether every node holds its part. least: with arenas at their lower bound. */
bool dlb_fit_in_memory(const struct dlb_problem *p, const struct dlb_program *g, bool least);
/* Bytes that node d's memory has for the arena. */
double dlb_fit_room(const struct dlb_problem *p, const struct dlb_program *g, int d);
/* Whether every node has room, beside state and scratch memory, for what each of its ops reads: without
 * that, no choice of ops that run again fits. g: compiled from plan, whatever its size. */
bool dlb_fit_could(const struct dlb_problem *p, const struct dlb_plan *plan, const struct dlb_program *g);
bool dlb_fit_is_large(const struct dlb_plan *plan); /* packing arenas well would take too long */
#endif
