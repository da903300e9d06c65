/* Shares of the optimizer's state and, with stage 3, of the weights (plan->sharing.zero).
 *
 * If R replicas sum the gradient of a weight, the weight is cut into R shares of its elements, as a ring cuts
 * an array (comm/allreduce.h): replica r owns chunk dlb_ring_chunk(r, R). Only replica r keeps the
 * optimizer's state of that share and updates the share; then all replicas gather the shares of the weight.
 * Updates are element by element, so results are bit-equal to those of whole updates.
 *
 * With stage 3 a replica keeps only its share of a weight. All replicas gather the whole weight ahead of its
 * use, into a place of the arena, which is free after the last use (gathers.c); no replica gathers it after
 * its update. Small weights, and weights that several nodes of a replica read, stay whole, as with stage
 * 2. */
#ifndef DLB_PLAN_SHARES_H
#define DLB_PLAN_SHARES_H
#include "plan/program.h"

/* A weight of fewer bytes stays whole, because memory is allocated by the page. */
enum { DLB_LEAST_GATHERED_BYTES = 4096 };
struct dlb_share { int64_t first, n; };		/* elements */
/* Share number `share` of n_shares of n elements; n_shares < 2: all elements. */
struct dlb_share dlb_share_of(int64_t n, int n_shares, int share);
/* The share of weight t that the replica of program g has. A weight without a shape has as many elements as
 * its bytes hold. */
struct dlb_share dlb_program_share(const struct dlb_program *g, int t);
/* The weight that an update op changes; -1: none. */
int dlb_update_weight(const struct dlb_graph *g, int update);
/* Whether the gradient of an update op leaves its place when its sum is complete, and only this replica's
 * share is kept for the update. This is so with stage 2 and one micro-batch for large gradients, except the
 * last ones, and for gradients whose bucket's buffer keeps the share. */
bool dlb_program_leaves(const struct dlb_program *g, int update);
/* Whether that share has a place of its own, the second life of the gradient; the update that reads the
 * second life of tensor t as such a share, -1: none. */
bool dlb_program_has_share_place(const struct dlb_program *g, int update);
int dlb_program_share_reader(const struct dlb_program *g, int t);
/* Whether the bucket's fusion buffer keeps this replica's shares of its gradients until their updates. Then
 * the gradients' own places are free as soon as they are copied to the buffer. */
bool dlb_bucket_keeps_shares(const struct dlb_bucket *b);
/* Whether replicas that divide their weights keep shares of weight t: it is trained, f32, not small, and only
 * ops of its own node read it. _may_be_: without the last condition, which depends on the placement. */
bool dlb_weight_may_be_gathered(const struct dlb_graph *g, int t);
/* The node of weight t under the placement: that of its home or, if it is a constant, of the first op that
 * reads it; -1: no op does. */
int dlb_weight_node(const struct dlb_graph *g, const int *placement, int t);
/* Whether all ops that read weight or constant t are on its node. */
bool dlb_weight_has_one_node(const struct dlb_graph *g, const int *placement, int t);
bool dlb_weight_is_gathered(const struct dlb_graph *g, const int *placement, int t);
/* Whether replicas under plan p keep shares of weight t; of some weight. */
bool dlb_plan_divides(const struct dlb_plan *p, const struct dlb_graph *g, int t);
bool dlb_plan_gathers(const struct dlb_plan *p, const struct dlb_graph *g);
/* [tensor] whether it is such a weight, for a program whose plan has stage 3, in g->arena; NULL: all are
 * whole. */
const bool *dlb_program_find_gathered(struct dlb_program *g);
static inline bool dlb_program_gathers(const struct dlb_program *g, int t)
{
	return g->gathered && g->gathered[t];
}
/* Whether op reads a weight that is gathered. */
bool dlb_program_reads_gathered(const struct dlb_program *g, int op);
/* The micro-batch number of the place of a weight that is gathered for the k-th time in a step. */
static inline int dlb_gathered_life(const struct dlb_program *g, int k)
{
	return 2 * g->micro_batches + k;
}
/* Bytes of weight t that this replica keeps from step to step. */
size_t dlb_program_weight_bytes(const struct dlb_program *g, int t);
/* Bytes of an array that holds as many elements as this replica's share of weight t. */
size_t dlb_program_share_bytes(const struct dlb_program *g, int t);
/* The first byte of that share in the whole array. */
size_t dlb_program_share_offset(const struct dlb_program *g, int t);
#endif
