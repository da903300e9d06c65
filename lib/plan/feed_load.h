/* Rank 0 reads samples for all: messages, bytes and seconds of that. */
#ifndef DLB_PLAN_FEED_LOAD_H
#define DLB_PLAN_FEED_LOAD_H
#include "plan/program.h"

/* The rank to which rank 0 sends node's share: the first of the node's group, or the node itself. */
int dlb_feed_via(const struct dlb_cluster *c, int n_nodes, int node);
/* Bytes before the samples in a message with a share: weight and seeds. Each tensor then begins at a
 * multiple of 64 bytes. */
size_t dlb_feed_header_bytes(const struct dlb_program *of_node);
size_t dlb_feed_bytes(const struct dlb_program *g, int node);
/* Per step: [node] bytes it sends, seconds in which it copies them (links that do not overlap with work);
 * least_s: seconds of the busiest link, a lower bound of the step. */
struct dlb_feed_load { double *bytes, *copy_s, least_s; };
void dlb_feed_load_init(struct dlb_feed_load *load, const struct dlb_program *g, const struct dlb_cluster *c);
void dlb_feed_load_release(struct dlb_feed_load *load);
#endif
