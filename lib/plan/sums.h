/* Sums over replicas: their seconds on a cluster, and the algorithm for each size. */
#ifndef DLB_PLAN_SUMS_H
#define DLB_PLAN_SUMS_H
#include "plan/program.h"

/* If sums use DLB_ALLREDUCE_AUTO and the plan has no choice yet, chooses for each size the algorithm that is
 * predicted to be fastest between the replicas. The choice depends only on the replicas' nodes and links, not
 * on the placement within the replicas. */
void dlb_plan_choose_sums(struct dlb_plan *p, const struct dlb_cost *c);

/* Seconds of the sum of n elements by algorithm `how` between the nodes of node k's part, without other
 * traffic; if weights are averaged (plan->sharing), mean seconds per step. */
double dlb_plan_sum_s(const struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_allreduce *how,
		      int k, int64_t n, int element_bytes);
/* A lower bound of the seconds in which the gradients of p->graph are summed, in buckets of any size,
 * uncompressed, by the plan's algorithms, which must be chosen before. placement: [op] its node in replica
 * 0. */
double dlb_plan_sums_bound_s(const struct dlb_plan *p, const struct dlb_cost *c, const int *placement);
/* The directions that a sum uses, each with the fraction of the sum's time in which it is busy, up to 1.
 * Returns their number; busy has room for all directions of the cluster. 0 if weights are averaged, because
 * this traffic comes in bursts. */
struct dlb_direction_load { struct dlb_direction direction; double load; };
int dlb_plan_sum_directions(const struct dlb_plan *p, const struct dlb_cost *c,
			    const struct dlb_allreduce *how, int k, int64_t n, int element_bytes,
			    struct dlb_direction_load *busy);
#endif
