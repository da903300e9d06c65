/* The sums of gradients over micro-batches and replicas. */
#ifndef DLB_PLAN_BUCKETS_H
#define DLB_PLAN_BUCKETS_H
#include "plan/program.h"

/* The gradient that an update op reads; -1: none. */
int dlb_update_gradient(const struct dlb_graph *g, int update);
/* Sorts the n updates of a replica's node by the start of the sums that they wait for, that is, by the
 * last gradient of their bucket. Updates without sums come first. */
void dlb_plan_sort_updates(const struct dlb_graph *g, struct dlb_item *update, int n);
/* Whether `update` alone reads its gradient and the tensors that the gradient is a view of, and the gradient
 * is computed on the update's node. Then sums over replicas may be in place. */
bool dlb_gradient_is_own(const struct dlb_graph *g, const int *placement, int update);
/* Whether update's gradient is first summed into state: with several micro-batches; for a layer of K-FAC;
 * with replicas, if it cannot be summed in place; under an asynchronous schedule, if it waits for other
 * replicas or the global norm while the next step runs. */
bool dlb_program_sums(const struct dlb_program *g, int update);
/* Whether op reads each value of its weight in only one run, so that its kernel keeps no packed copy: there
 * is one micro-batch between updates, or the weight is gathered for each run. */
bool dlb_program_packs_once(const struct dlb_program *g, int op);
/* Number of places of the sum of update's gradient; 1 except under asynchronous schedules. */
int dlb_program_sum_places(const struct dlb_node_program *np, int update);
#endif
