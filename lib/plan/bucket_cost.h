/* Seconds and bytes of the sums of buckets over the replicas, compressed as planned. */
#ifndef DLB_PLAN_BUCKET_COST_H
#define DLB_PLAN_BUCKET_COST_H
#include "plan/program.h"

/* Seconds of bucket b of part k. */
double dlb_plan_bucket_s(const struct dlb_program *g, const struct dlb_cost *c, int k, int b);
/* Whether K-FAC's factors come back from the other replicas as their Cholesky factors. */
bool dlb_plan_factors_come_factored(const struct dlb_plan *p);
/* Adds to bytes[class] the bytes that `node` sends for its buckets per step, and to dense_bytes[class] the
 * bytes of one sum of each bucket without compression. */
void dlb_plan_sum_bytes(const struct dlb_program *g, const struct dlb_cluster *c, int node,
			double bytes[DLB_N_SUM_CLASSES], double dense_bytes[DLB_N_SUM_CLASSES]);
#endif
