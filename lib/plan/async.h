/* Asynchronous schedules: versions of weights, and steps that overlap. */
#ifndef DLB_PLAN_ASYNC_H
#define DLB_PLAN_ASYNC_H
#include "plan/plan.h"

extern const char *const dlb_staleness_names[DLB_N_STALENESS];	/* [DLB_STALE_DEFAULT]: "default" */
int dlb_staleness_find(const char *name);			/* -1: no such name; also for "default" */
#endif
