/* --front: plans for less and less memory. Private to replan*.c. */
#ifndef DLB_BALANCE_REPLAN_FRONT_H
#define DLB_BALANCE_REPLAN_FRONT_H
#include "balance/replan_input.h"

enum { DLB_FRONT_POINTS = 24 };
/* A plan: most bytes of a node, seconds per step, ops that run again. */
struct dlb_front_point { double bytes, value_s; int again; };
/* by memory, the most first; each is slower than those before it. least_bytes: no plan was found for so much;
 * 0: none failed */
struct dlb_front { struct dlb_front_point point[DLB_FRONT_POINTS]; int n; double least_bytes; };

/* Plans without a limit, then each time with a fifth less on the fullest node, or with a smaller part less
 * where none fits, by the other options; ops may run again unless the options say which. -1 with err: not
 * even the first plan is there. */
int dlb_replan_front(struct replan_input *in, const struct dlb_problem *p, struct dlb_front *f,
		     struct dlb_error *err);
json_t *dlb_replan_write_front(const struct dlb_front *f);	/* plan member front */
#endif
