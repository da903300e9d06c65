/* Optimizer states, weights and activations in another memory of their node (plan->offload): a file, or a
 * memory that the node does not name for its buffers (CXL, another NUMA node; of a GPU, memory of its host).
 *
 * States: an update reads and writes them near, in the arena. FETCH starts to copy them there before the
 * update that precedes theirs in the node's order; STORE starts to copy them back after theirs; they are
 * freed before the second update after theirs. So at most three weights' states are near at once, and while
 * one is computed another is copied.
 *
 * Activations: an output of a forward op that backward ops of its node read. STORE starts when it is
 * computed. Its place is free after its last use in the forward phase and the end of that copy, for which the
 * node waits before the second op that makes what is stored after its own, or before FETCH. FETCH starts to
 * copy it to its second life (again.h) before the op that precedes its first reader among the ops that read
 * fetched tensors. Views of it run again. What only other nodes read is not stored, nor what takes less than
 * DLB_FAR_LEAST bytes.
 *
 * Weights: f32, trained, not small, and read by ops of one node only, as those that replicas divide
 * (shares.h). FETCH starts to copy one to a place of the arena as the gathers of these do (gathers.c): for
 * each time that the node reads it with no other one read in between, ahead of use. Its update reads and
 * writes it there; STORE follows, and FREE before the second update after it of such a weight.
 *
 * No copy is in flight at the end of the step. Copies of all nodes that use a memory share its bandwidth: it
 * makes one after another, in the order in which they start.
 *
 * Updates are element by element, and weights and activations come back as they were, so the bits are those
 * of a run without offload. */
#ifndef DLB_PLAN_OFFLOAD_H
#define DLB_PLAN_OFFLOAD_H
#include "plan/program.h"

/* The name by which rules know weight t of graph g, of which it may be a part; NULL: t is not trained. */
const char *dlb_offload_name(const struct dlb_graph *g, int t);
/* The first rule of kind states or weights that names t; -1: none, or t is not trained. */
int dlb_offload_rule_of(const struct dlb_offload *x, enum dlb_offload_kind kind, const struct dlb_graph *g,
			int t);
/* The first rule of weights that moves weight t under the placement (NULL: whatever it is); -1: none does. */
int dlb_offload_weight_rule(const struct dlb_offload *x, const struct dlb_graph *g, const int *placement,
			    int t);
/* The first rule of activations that names op, by its name or that of an output; -1: none, or no backward op
 * reads an output of it or a view of one, or it is a view. */
int dlb_offload_rule_of_op(const struct dlb_offload *x, const struct dlb_graph *g, int op);
/* The number of rules of a kind. */
int dlb_offload_count(const struct dlb_offload *x, enum dlb_offload_kind kind);
/* Sets p->far by the rules of p->offload, in p->arena. */
void dlb_offload_mark(struct dlb_plan *p, const struct dlb_graph *g);
/* Whether the compiler keeps activation t in another memory: its op is far, and something on the op's node
 * reads it again. */
bool dlb_plan_keeps_far(const struct dlb_plan *p, const struct dlb_graph *g, int t);
/* The memory of that name that the node's groups have, the nearest first: its index in the cluster; -1:
 * none. */
int dlb_offload_memory(const struct dlb_cluster *c, int node, const char *name);
/* Whether `auto` keeps states of the node there: of a CPU, a file, or CXL memory that no node names for its
 * buffers; of a GPU, memory of its host. */
bool dlb_offload_takes(const struct dlb_cluster *c, int node, const struct dlb_memory *m);
/* Seconds of a copy: at the bandwidth and after the latency of the memory and, for a GPU, of its links to the
 * group that has it. Unknown bandwidths cost nothing. */
double dlb_offload_copy_s(const struct dlb_cluster *c, int node, int memory, double bytes);
/* [tensor] the rule of each weight, in g->arena; NULL: the plan has no rule of states, or the optimizer
 * none. */
int *dlb_offload_find(struct dlb_program *g);
/* Checks what a compiled program needs: memories that the nodes have, updates that can wait. c may be NULL.
 * 0, or -1 with err. */
int dlb_offload_check(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err);
/* [tensor] the rule of each weight that is kept far, in g->arena; NULL: none is. Sets g->gathered for
 * them. */
int *dlb_offload_find_weights(struct dlb_program *g);
static inline bool dlb_program_is_offloaded(const struct dlb_program *g, int t)
{
	return g->offload && g->offload[t] >= 0;
}
static inline bool dlb_program_weight_is_far(const struct dlb_program *g, int t)
{
	return g->far_weight && g->far_weight[t] >= 0;
}
/* Whether anything is kept far. */
static inline bool dlb_program_offloads(const struct dlb_program *g)
{
	return g->offload || g->far_weight || g->plan->far;
}
/* Bytes of the near place of weight t: its states, each at a multiple of DLB_PLACE_ALIGN. */
size_t dlb_program_near_bytes(const struct dlb_program *g, int t);
/* Bytes of the states of weight t that this replica keeps elsewhere. */
double dlb_program_far_bytes(const struct dlb_program *g, int t);
/* What FETCH, STORE or the end of one copies on a node: its place near (STORE of an activation: of its first
 * life), the memory, and bytes: of the states of a weight together, of the weight, or of the activation. */
struct dlb_offload_copy {
	int place;
	const char *memory;
	double bytes;
};
struct dlb_offload_copy dlb_offload_copy_of(const struct dlb_program *g, int node,
					    const struct dlb_instr *in);
/* Bytes that node keeps in other memories; per_memory: NULL, or [memory of the cluster] to add them to. */
double dlb_program_offloaded_bytes(const struct dlb_program *g, int node, const struct dlb_cluster *c,
				   double *per_memory);
/* Checks that each memory has room for what the nodes keep there. 0, or -1 with err, which has status 1. */
int dlb_offload_check_room(const struct dlb_program *g, const struct dlb_cluster *c, struct dlb_error *err);
#endif
