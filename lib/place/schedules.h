/* The choice of schedule and number of micro-batches. */
#ifndef DLB_PLACE_SCHEDULES_H
#define DLB_PLACE_SCHEDULES_H
#include "place/place.h"

/* How plans of a problem are made and estimated; both get arg. */
struct dlb_plan_maker {
	int (*place)(void *arg, const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err);
	/* the estimated step, in seconds, at position `place`, from 0, of such plans in ascending order */
	double (*outline)(void *arg, const struct dlb_problem *p, int place);
	void *arg;
};
struct dlb_trial { const char *schedule; int micro_batches; double value_s; };
/* Makes the best plan over all schedules but asynchronous ones, with the given number of micro-batches or the
 * best one. p receives the plan's schedule, number of micro-batches and number of replicas. *trial, owned by
 * the caller: the plans that were tried, also on failure, and those left out because of their outlines. 0; -1
 * with err. */
int dlb_place_schedule(struct dlb_problem *p, bool micro_batches_given, const struct dlb_plan_maker *maker,
		       struct dlb_plan *plan, struct dlb_trial **trial, int *n_trials, struct dlb_error *err);
#endif
