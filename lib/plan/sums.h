/* Sums over replicas: their seconds on a cluster, and the algorithm for each size. */
#ifndef DLB_PLAN_SUMS_H
#define DLB_PLAN_SUMS_H
#include "plan/plan.h"

/* If sums use DLB_ALLREDUCE_AUTO and the plan has no choice yet: chooses for each size the
 * algorithm predicted to be fastest between the replicas. The choice depends on their nodes and links
 * only, not on the placement within them. */
void dlb_plan_choose_sums(struct dlb_plan *p, const struct dlb_cost *c);
#endif
