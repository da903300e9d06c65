/* Chooses the sums over the shards of a split that are added in pairs (dlb-costmodel --split;
 * graph/split.h defines the order).
 *
 * Nodes are taken fastest first, shard k on the kth, and the sum on shard 0's node. Transfers that start
 * together share links: they take as long as the most loaded link. Added by one op, the sum takes
 *
 *     all parts but its own to one node + adding them
 *
 * and in pairs, repeated until one part is left,
 *
 *     a part to each pair's first node + adding two
 *
 * plus the work that a node may be busy with when the part arrives: half of the longest other op of these
 * shards. Pairs are chosen if they are faster by 2 %: rarely on three nodes, often on more over a slow
 * network. With the port model of links (a node pays for each tensor) one op is always used. */
#ifndef DLB_COST_PAIR_SUMS_H
#define DLB_COST_PAIR_SUMS_H
#include "cost/cost.h"

/* Marks the entries of g->was_split[] whose sums are better added in pairs; none may be marked yet.
 * Returns their number. g is c's graph. */
int dlb_cost_choose_pairs(const struct dlb_cost *c, struct dlb_graph *g);
/* Node ids by the seconds of the whole graph on each, fastest first; in `a`. */
int *dlb_cost_fastest_nodes(const struct dlb_cost *c, struct dlb_arena *a);
#endif
