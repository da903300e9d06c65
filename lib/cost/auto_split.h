/* Chooses which ops of a graph to split, and into how many shards (dlb-costmodel --split auto).
 *
 * An op fits no node if its weights with their gradients and optimizer states, its input and its output at
 * the full batch exceed the memory of every node. Such an op is split into the smallest number of shards that
 * fit.
 *
 * Any other op is split if this makes the step shorter. To predict the step, the graph after the split is
 * scheduled in graph order over the K fastest nodes: shard k on the kth node, whole ops on the first,
 * transfers included. K is 2, 4, 8 and so on, and the number of nodes (at most 16). The search starts from
 * the better of two states: every op that can be split is split along the axis that fits it best, or every
 * such op is split by samples. Then, for one signature after the other, its ops are split one way, the other
 * way or not at all, whichever makes the schedule shortest. Optional splits are kept only if the step becomes
 * shorter by 2 %.
 *
 * The schedule serves only to compare splits. A placement algorithm may find a shorter one, with and without
 * splits. */
#ifndef DLB_COST_AUTO_SPLIT_H
#define DLB_COST_AUTO_SPLIT_H
#include "cost/cost.h"

struct dlb_split_list { struct dlb_split_request *ask; int n; };
/* Adds the chosen ops to the list; ops already in the list are split in any case. The new list lives in `a`.
 * p may be NULL. n_state: number of optimizer states, for memory. -1 with err. */
int dlb_auto_split(const struct dlb_doc *doc, const struct dlb_profile *p, const struct dlb_cluster *cl,
		   int n_state, struct dlb_arena *a, struct dlb_split_list *list, struct dlb_error *err);
#endif
