/* dlb-place --offload. Private to replan*.c. */
#ifndef DLB_BALANCE_REPLAN_OFFLOAD_H
#define DLB_BALANCE_REPLAN_OFFLOAD_H
#include "balance/replan_input.h"

/* Refuses values that are neither none, auto nor GLOB=MEMORY, with one line. 0, or the exit status. */
int dlb_replan_check_offload(const struct dlb_replan *o);
/* Fills in->offload: as the option says, else as in the plan that is there. Refuses a pattern that names no
 * weight, a memory that no node has, and asynchronous schedules. 0, or -1 with err. */
int dlb_replan_find_offload(struct replan_input *in, const struct dlb_schedule *schedule,
			    struct dlb_error *err);
/* Makes a plan by `make`. With --offload auto, one that keeps all states near; where that does not fit, one
 * that keeps those of the largest weights, no more than needed, in the fastest memory that its nodes have
 * for that. */
int dlb_replan_offloading(struct replan_input *in, const struct dlb_problem *p, dlb_replan_maker *make,
			  struct dlb_plan *plan, struct dlb_error *err);
#endif
