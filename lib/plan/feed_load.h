/* The load if rank 0 reads samples for all nodes: messages, bytes and seconds. */
#ifndef DLB_PLAN_FEED_LOAD_H
#define DLB_PLAN_FEED_LOAD_H
#include "plan/program.h"

/* The rank to which rank 0 sends node's share: the first of the node's group, or the node itself. */
int dlb_feed_via(const struct dlb_cluster *c, int n_nodes, int node);
/* Bytes before the samples in a message with a share: weight and seeds. Each tensor after them begins at a
 * multiple of 64 bytes. */
size_t dlb_feed_header_bytes(const struct dlb_program *of_node);
size_t dlb_feed_bytes(const struct dlb_program *g, int node);
/* Per step: [node] bytes that it sends, seconds in which it copies them (over links that do not overlap with
 * work), and seconds in which its samples are prepared and sent; least_s: the most of these seconds. A
 * thread prepares the samples of the next step beside the ops, so they are a lower bound of the step. The
 * last run measured the seconds to prepare a sample (cost.h); 0: not measured. */
struct dlb_feed_load {
	double *bytes, *copy_s, *ready_s, least_s;
};
void dlb_feed_load_init(struct dlb_feed_load *load, const struct dlb_program *g, const struct dlb_cost *c);
void dlb_feed_load_release(struct dlb_feed_load *load);
#endif
