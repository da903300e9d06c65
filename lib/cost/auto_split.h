/* Which ops of a graph to split, and into how many shards (dlb-costmodel --split auto).
 *
 * Split is what fits no node: an op whose weights, their gradients, input and output at the full batch are more than the
 * memory that any node has, into as few shards as bring it below. And split is what makes the step shorter: the graph as
 * it would be is scheduled in its own order over the K fastest nodes, shard k on the k-th and everything whole on the
 * first, transfers included. K is tried from 2 up by doubling, and as many as there are nodes (16 at most). At first all that
 * can be is split along the axis that fits it best, or all of it by samples, whichever is shorter; then one after the other all
 * ops of a signature are split the one way, the other way or not at all, as it makes the schedule shorter.
 * Unless the step is shorter by a fiftieth, what need not be split stays whole.
 *
 * A placer may well do better than that schedule, split or not; it says what splitting is good for by itself. */
#ifndef DLB_COST_AUTO_SPLIT_H
#define DLB_COST_AUTO_SPLIT_H
#include "cost/cost.h"

/* The document's graph, its profile (may be NULL), the cluster; fixed[n_fixed] is split in any case. *ask (in `a`) is all
 * that is to be split, *n may be 0. n_state: of the optimizer, for memory. */
int dlb_auto_split(const struct dlb_doc *doc, const struct dlb_profile *p, const struct dlb_cluster *cl, int n_state,
		   const struct dlb_split_ask *fixed, int n_fixed, struct dlb_arena *a, struct dlb_split_ask **ask, int *n,
		   struct dlb_error *err);
#endif
