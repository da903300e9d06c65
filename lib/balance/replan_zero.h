/* dlb-place --zero: which stage. Private to replan*.c, but for dlb_replan_take_zero. */
#ifndef DLB_BALANCE_REPLAN_ZERO_H
#define DLB_BALANCE_REPLAN_ZERO_H
#include "balance/replan_batch.h"
#include "balance/replan_input.h"

/* Makes a plan by `make`; with --zero auto, of the least stage that fits. */
int dlb_replan_dividing(const struct replan_input *in, const struct dlb_problem *p, dlb_replan_maker *make,
			struct dlb_plan *plan, struct dlb_error *err);
#endif
