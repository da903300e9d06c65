/* Shares of the optimizer's state (plan->sharing.zero).
 *
 * Every weight that R replicas sum the gradient of is cut into R shares of its elements, as a ring cuts an
 * array (comm/allreduce.h): replica r owns chunk dlb_ring_chunk(r, R). It alone keeps the optimizer's state
 * of that share and updates it; then all replicas gather the shares of the weight. Updates go element by
 * element, so the bits are those of whole updates. */
#ifndef DLB_PLAN_SHARES_H
#define DLB_PLAN_SHARES_H
#include "plan/program.h"

struct dlb_share { int64_t first, n; };		/* elements */
/* Share number `share` of n_shares of n elements; n_shares < 2: all elements. */
struct dlb_share dlb_share_of(int64_t n, int n_shares, int share);
/* Of weight t, for the replica of program g. */
struct dlb_share dlb_program_share(const struct dlb_program *g, int t);
/* The weight that an update op changes; -1: none. */
int dlb_update_weight(const struct dlb_graph *g, int update);
/* Whether the gradient of an update op leaves its place when its sum is complete, and only this replica's
 * share of it is kept for the update: stage 2, with one micro-batch, of large gradients but the last ones and
 * of those whose buffer keeps it. */
bool dlb_program_leaves(const struct dlb_program *g, int update);
/* Whether that share has a place of its own; the update that reads it there as the second life of tensor t,
 * -1: none. */
bool dlb_program_has_share_place(const struct dlb_program *g, int update);
int dlb_program_share_reader(const struct dlb_program *g, int t);
/* Whether the buffer in which the bucket's gradients travel keeps this replica's shares of them until their
 * updates: then their own places are free as soon as they are in it. */
bool dlb_bucket_keeps_shares(const struct dlb_bucket *b);
/* Bytes of an array that holds as many elements as this replica's share of weight t. */
size_t dlb_program_share_bytes(const struct dlb_program *g, int t);
#endif
