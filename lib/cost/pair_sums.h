/* Which sums over the shards of a split are added in pairs (dlb-costmodel --split; the order is graph/split.h's).
 *
 * The nodes are taken fastest first, shard k on the k-th, and the sum where shard 0 is. Transfers that start together share
 * links: they take as long as the link that has the most bytes to carry. Added by one op,
 *
 *     all parts but its own to one node + adding them
 *
 * and in pairs, as many times as the parts can be halved,
 *
 *     a part to each pair's first node + adding two
 *
 * with what a node may be about when the part arrives in between: half of the longest op besides of these shards. Where the
 * second is shorter by a fiftieth, pairs it is: on three nodes hardly ever, on more over a slow network. With the port model
 * of links (a device pays for each tensor) it is always one op. */
#ifndef DLB_COST_PAIR_SUMS_H
#define DLB_COST_PAIR_SUMS_H
#include "cost/cost.h"

/* Marks those of g->was_split[], none of which is yet, whose sums are best added in pairs; returns how many. g is c's graph. */
int dlb_cost_choose_pairs(const struct dlb_cost *c, struct dlb_graph *g);
/* Node ids by the seconds that the whole graph takes on each, least first; in `a`. */
int *dlb_cost_fastest_nodes(const struct dlb_cost *c, struct dlb_arena *a);
#endif
