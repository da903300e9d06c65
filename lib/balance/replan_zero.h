/* dlb-place --zero: the choice of the stage. Private to replan*.c. */
#ifndef DLB_BALANCE_REPLAN_ZERO_H
#define DLB_BALANCE_REPLAN_ZERO_H
#include "balance/replan_batch.h"
#include "balance/replan_input.h"

/* Makes a plan by `make`; with --zero auto, a plan of the least stage that fits. */
int dlb_replan_dividing(const struct replan_input *in, const struct dlb_problem *p, dlb_replan_maker *make,
			struct dlb_plan *plan, struct dlb_error *err);
#endif
