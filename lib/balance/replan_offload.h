/* dlb-place --offload. Private to replan*.c. */
#ifndef DLB_BALANCE_REPLAN_OFFLOAD_H
#define DLB_BALANCE_REPLAN_OFFLOAD_H
#include "balance/replan_input.h"

/* Refuses values that are neither none, auto nor [weights:|activations:]GLOB=MEMORY, with one line. 0, or the
 * exit status. */
int dlb_replan_check_offload(const struct dlb_replan *o);
/* Fills in->offload as the option says, else as in the existing plan. Refuses a pattern that names no weight
 * or op, a memory that no node has, and asynchronous schedules. 0, or -1 with err. */
int dlb_replan_find_offload(struct replan_input *in, const struct dlb_schedule *schedule,
			    struct dlb_error *err);
/* Makes a plan by `make`. With --offload auto, tries a plan without offloading first; while none fits, or
 * only with ops that run again, then also offloads states, then activations, then weights, the largest first,
 * to the fastest memory that all nodes have for them. Takes the fastest plan; without replicas it offloads no
 * more than needed. */
int dlb_replan_offloading(struct replan_input *in, const struct dlb_problem *p, dlb_replan_maker *make,
			  struct dlb_plan *plan, struct dlb_error *err);
#endif
