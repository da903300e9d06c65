/* Chooses the sums over the shards of a split whose parts are added in pairs (dlb-costmodel --split;
 * graph/split.h defines the order).
 *
 * The estimate places shard k on the kth fastest node and the sum on shard 0's node. Transfers that start
 * together share links: they take as long as the most loaded direction. If one op adds all parts, the sum
 * takes
 *
 *     transfers of the other nodes' parts to shard 0's node + adding all parts
 *
 * If parts are added in pairs, each round, until one part is left, takes
 *
 *     transfers of one part to each pair's first node + adding two parts
 *
 * plus, in all rounds but the last, a wait for a receiver that is busy when the part arrives: half of the
 * longest other op of these shards. Pairs are chosen if they are faster by 2 %: rarely on three nodes, often
 * on more nodes over a slow network. With DLB_LINKS_PORT (a node pays for each tensor) one op always adds all
 * parts. */
#ifndef DLB_COST_PAIR_SUMS_H
#define DLB_COST_PAIR_SUMS_H
#include "cost/cost.h"

/* Marks the entries of g->was_split[] whose sums are faster in pairs; none may be marked before. Returns the
 * number of marked entries. g is c's graph. */
int dlb_cost_choose_pairs(const struct dlb_cost *c, struct dlb_graph *g);
/* Node ids, ordered by the seconds of the whole graph on each node, fastest first; allocated in `a`. */
int *dlb_cost_fastest_nodes(const struct dlb_cost *c, struct dlb_arena *a);
#endif
