/* --front: plans for smaller and smaller memory. Private to replan*.c. */
#ifndef DLB_BALANCE_REPLAN_FRONT_H
#define DLB_BALANCE_REPLAN_FRONT_H
#include "balance/replan_input.h"

enum { DLB_FRONT_POINTS = 24 };
/* A plan: most bytes of a node, seconds per step, ops that run again. */
struct dlb_front_point { double bytes, value_s; int again; };
/* Points by descending memory; each is slower than those before it. least_bytes: the last limit for which no
 * plan was found; 0: none failed. */
struct dlb_front { struct dlb_front_point point[DLB_FRONT_POINTS]; int n; double least_bytes; };

/* Plans without a limit, then each time with a fifth less memory than the fullest node used; if no plan fits,
 * with a smaller reduction. The other options hold; any op may run again unless the options name them. -1
 * with err: even the plan without a limit failed. */
int dlb_replan_front(struct replan_input *in, const struct dlb_problem *p, struct dlb_front *f,
		     struct dlb_error *err);
json_t *dlb_replan_write_front(const struct dlb_front *f);	/* plan member front */
#endif
