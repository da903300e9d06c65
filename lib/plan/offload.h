/* Optimizer states and activations in another memory of their node (plan->offload): a file, or a memory that
 * the node does not name for its buffers (CXL, another NUMA node; of a GPU, memory of its host).
 *
 * States: an update reads and writes them near, in the arena. FETCH starts to copy them there before the
 * update that precedes theirs in the node's order; STORE starts to copy them back after theirs; they are
 * freed before the second update after theirs. So at most three weights' states are near at once, and while one
 * is computed another is copied.
 *
 * Activations: an output of a forward op that backward ops of its node read. STORE starts when it is computed.
 * Its place is free after its last use in the forward phase and the end of that copy, for which the node waits
 * before the second op that makes what is stored after its own, or before FETCH. FETCH starts to copy it to its
 * second life (again.h) before the op that precedes its first reader among the ops that read fetched tensors.
 * Views of it run again. What only other nodes read is not stored, nor what takes less than DLB_FAR_LEAST bytes.
 *
 * No copy is in flight at the end of the step. Copies of all nodes that use a memory share its bandwidth: it makes
 * one after another, in the order in which they start.
 *
 * Updates are element by element, and activations come back as they were, so the bits are those of a run without
 * offload. */
#ifndef DLB_PLAN_OFFLOAD_H
#define DLB_PLAN_OFFLOAD_H
#include "plan/program.h"

/* The name by which rules know weight t of graph g, of which it may be a part; NULL: t is not trained. */
const char *dlb_offload_name(const struct dlb_graph *g, int t);
/* The first rule of states that names t; -1: none, or t is not trained. */
int dlb_offload_rule_of(const struct dlb_offload *x, const struct dlb_graph *g, int t);
/* The first rule of activations that names op, by its name or that of an output; -1: none, or no backward op reads
 * an output of it or a view of one, or it is a view. */
int dlb_offload_rule_of_op(const struct dlb_offload *x, const struct dlb_graph *g, int op);
/* The number of rules of activations; of states, the rest. */
int dlb_offload_n_activations(const struct dlb_offload *x);
/* Sets p->far by the rules of p->offload, in p->arena. */
void dlb_offload_mark(struct dlb_plan *p, const struct dlb_graph *g);
/* Whether the compiler keeps activation t in another memory: its op is far, and something on the op's node reads
 * it again. */
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
/* [tensor] the rule of each weight, in g->arena; NULL: the plan has no rule of states, or the optimizer none. */
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
/* What FETCH, STORE or the end of one copies on a node: its place near (STORE of an activation: of its first
 * life), the memory, and bytes: of the states of a weight together, or of the activation. */
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
