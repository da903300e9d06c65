/* Chooses which ops of a graph to split, and into how many shards (dlb-costmodel --split auto).
 *
 * An op that fits no node is split into as few shards as fit: its weights, their gradients, input and
 * output at the full batch exceed the memory of every node. An op is also split if this makes the step
 * shorter. To find that, the graph after the split is scheduled in graph order over the K fastest nodes,
 * shard k on the kth and whole ops on the first, transfers included. K is 2, 4, 8 and so on, and the
 * number of nodes (at most 16). First everything possible is split along the axis that fits it best, or
 * everything by samples, whichever is shorter. Then, one signature after the other, its ops are split one
 * way, the other way or not at all, whichever makes the schedule shorter. Optional splits are kept only if
 * the step becomes shorter by 2 %.
 *
 * A placement algorithm may do better than this schedule, with and without splits; the
 * schedule only compares splits. */
#ifndef DLB_COST_AUTO_SPLIT_H
#define DLB_COST_AUTO_SPLIT_H
#include "cost/cost.h"

struct dlb_split_list { struct dlb_split_request *ask; int n; };
/* Adds ops to the list, whose ops are split in any case; the new list lives in `a`. p may be NULL. n_state:
 * states of the optimizer, for memory. -1 with err. */
int dlb_auto_split(const struct dlb_doc *doc, const struct dlb_profile *p, const struct dlb_cluster *cl,
		   int n_state, struct dlb_arena *a, struct dlb_split_list *list, struct dlb_error *err);
#endif
