/* The sums of gradients over micro-batches and replicas. */
#ifndef DLB_PLAN_BUCKETS_H
#define DLB_PLAN_BUCKETS_H
#include "plan/program.h"

/* The gradient that an update op reads; -1: none. */
int dlb_update_gradient(const struct dlb_graph *g, int update);
/* Sorts the n updates of a replica's node by the start of the sums that they wait for, that is, by the
 * last gradient of their bucket. Updates without sums come first. */
void dlb_plan_sort_updates(const struct dlb_graph *g, struct dlb_item *update, int n);
/* Whether only update reads its gradient and the tensor that it is a view of, and it is computed on
 * update's node: then sums over replicas may be in place. */
bool dlb_gradient_is_own(const struct dlb_graph *g, const int *placement, int update);
/* Whether update's gradient is summed into state first: with several micro-batches; for a layer of K-FAC;
 * with replicas, if it cannot be summed in place, or if it waits for others while the next step runs. */
bool dlb_program_sums(const struct dlb_program *g, int update);
/* Whether op reads each value of its weight in one run, so that its kernel keeps no packed copy: one
 * micro-batch between updates. */
bool dlb_program_packs_once(const struct dlb_program *g, int op);
/* places of that sum; 1 except under asynchronous schedules */
int dlb_program_sum_places(const struct dlb_node_program *np, int update);
#endif
