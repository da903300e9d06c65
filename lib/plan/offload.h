/* Optimizer states in another memory of their node (plan->offload): a file, or a memory that the node does
 * not name for its buffers (CXL, another NUMA node).
 *
 * An update reads and writes its states near, in the arena. FETCH starts to copy them there before the
 * update that precedes theirs in the node's order; STORE starts to copy them back after theirs; they are
 * freed before the second update after theirs. So at most three weights' states are near at once, while one
 * is computed another is copied, and no copy is in flight at the end of the step. Copies of all nodes that
 * use a memory share its bandwidth: it makes one after another, in the order in which they start.
 *
 * Updates are element by element, so the bits are those of a run without offload. */
#ifndef DLB_PLAN_OFFLOAD_H
#define DLB_PLAN_OFFLOAD_H
#include "plan/program.h"

/* The name by which rules know weight t of graph g, of which it may be a part; NULL: t is not trained. */
const char *dlb_offload_name(const struct dlb_graph *g, int t);
/* The first rule that names t; -1: none, or t is not trained. */
int dlb_offload_rule_of(const struct dlb_offload *x, const struct dlb_graph *g, int t);
/* The memory of that name that the node's groups have, the nearest first: its index in the cluster; -1:
 * none. */
int dlb_offload_memory(const struct dlb_cluster *c, int node, const char *name);
/* Whether `auto` keeps states of the node there: of a CPU, a file, or CXL memory that no node names for its
 * buffers; of a GPU, memory of its host. */
bool dlb_offload_takes(const struct dlb_cluster *c, int node, const struct dlb_memory *m);
/* Seconds of a copy: at the bandwidth and after the latency of the memory and, for a GPU, of its links to the
 * group that has it. Unknown bandwidths cost nothing. */
double dlb_offload_copy_s(const struct dlb_cluster *c, int node, int memory, double bytes);
/* [tensor] the rule of each weight, in g->arena; NULL: the plan has no rule, or the optimizer no states. */
int *dlb_offload_find(struct dlb_program *g);
/* Checks what a compiled program needs: memories that the nodes have, updates that can wait. c may be NULL.
 * 0, or -1 with err. */
int dlb_offload_check(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err);
static inline bool dlb_program_is_offloaded(const struct dlb_program *g, int t)
{
	return g->offload && g->offload[t] >= 0;
}
/* Bytes of the near place of weight t: its states, each at a multiple of DLB_PLACE_ALIGN. */
size_t dlb_program_near_bytes(const struct dlb_program *g, int t);
/* Bytes of the states of weight t that this replica keeps elsewhere. */
double dlb_program_far_bytes(const struct dlb_program *g, int t);
/* Bytes of node's states in other memories; per_memory: NULL, or [memory of the cluster] to add them to. */
double dlb_program_offloaded_bytes(const struct dlb_program *g, int node, const struct dlb_cluster *c,
				   double *per_memory);
/* Checks that each memory has room for what the nodes keep there. 0, or -1 with err, which has status 1. */
int dlb_offload_check_room(const struct dlb_program *g, const struct dlb_cluster *c, struct dlb_error *err);
#endif
