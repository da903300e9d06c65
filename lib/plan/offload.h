/* Optimizer states, weights and activations in another memory of their node (plan->offload): a file, or a
 * memory that the node does not name for its buffers (CXL, another NUMA node; for a GPU, memory of its host).
 * Offloaded data are far; their copies in the arena are near.
 *
 * States: an update reads and writes them in the arena. FETCH starts to copy them there before the previous
 * such update in the node's order. STORE starts to copy them back after their own update. They are freed
 * before the second next such update. So at most three weights' states are near at once, and the copies of
 * one weight's states overlap with the update of another weight.
 *
 * Activations: outputs of forward ops that backward ops of the same node read. STORE starts when the output
 * is computed. The place of the output is free after its last use in the forward phase and the end of that
 * copy. The node waits for that end before the second next op whose outputs are stored, or before FETCH.
 * FETCH starts to copy the output to its second life (again.h). In the order of the ops that read fetched
 * tensors, FETCH comes before the one that precedes the output's first reader. Views of the output run again.
 * Outputs that only other nodes read are not stored, nor are outputs of less than DLB_FAR_LEAST bytes.
 *
 * Weights: f32, trained, not small, and read by ops of one node only, like those that replicas divide
 * (shares.h); and frozen weights of any type, if they are not small and read by ops of one node only. FETCH
 * starts to copy such a weight to a place of the arena ahead of use, as a gather does (gathers.c), and again
 * whenever the node has read another such weight in between. The update of a trained weight reads and writes
 * it there. STORE follows, and FREE before the second next update of such a weight.
 *
 * No copy is in flight at the end of the step. The nodes that use a memory share its bandwidth: their copies
 * are made one after another, in the order in which they start.
 *
 * Updates are element by element, and weights and activations are restored exactly, so results are bit-equal
 * to those of a run without offload. */
#ifndef DLB_PLAN_OFFLOAD_H
#define DLB_PLAN_OFFLOAD_H
#include "plan/program.h"

/* The name that rules of kind states or weights have for weight t of graph g: if t is a slice, the name of
 * the whole weight. NULL: no such rule holds for t, because t is not trained, or for rules of weights neither
 * trained nor frozen. */
const char *dlb_offload_name(const struct dlb_graph *g, enum dlb_offload_kind kind, int t);
/* Whether t is a constant that may be offloaded as a weight: floats of the model's file, not small. */
bool dlb_offload_is_frozen_weight(const struct dlb_graph *g, int t);
/* The first rule of kind states or weights that names t; -1: none. */
int dlb_offload_rule_of(const struct dlb_offload *x, enum dlb_offload_kind kind, const struct dlb_graph *g,
			int t);
/* The first rule of kind weights by which weight t is offloaded under the placement (NULL: under some
 * placement); -1: none. */
int dlb_offload_weight_rule(const struct dlb_offload *x, const struct dlb_graph *g, const int *placement,
			    int t);
/* The first rule of kind activations that names op, by its name or that of an output; -1: none, or op is a
 * view, or no backward op reads an output of op or a view of an output. */
int dlb_offload_rule_of_op(const struct dlb_offload *x, const struct dlb_graph *g, int op);
/* The number of rules of a kind. */
int dlb_offload_count(const struct dlb_offload *x, enum dlb_offload_kind kind);
/* Sets p->far by the rules of p->offload, in p->arena. */
void dlb_offload_mark(struct dlb_plan *p, const struct dlb_graph *g);
/* Whether the compiler keeps activation t in another memory: the outputs of its op are offloaded, and an op
 * on the same node reads the second life of t. */
bool dlb_plan_keeps_far(const struct dlb_plan *p, const struct dlb_graph *g, int t);
/* Index in the cluster of the memory of that name in the node's group, or in the nearest group above that has
 * one; -1: none. */
int dlb_offload_memory(const struct dlb_cluster *c, int node, const char *name);
/* Whether `auto` may offload states of the node to memory m: for a CPU, a file, or CXL memory that no node
 * names for its buffers; for a GPU, memory of its host. */
bool dlb_offload_takes(const struct dlb_cluster *c, int node, const struct dlb_memory *m);
/* Seconds of a copy: at the bandwidth and after the latency of the memory and, for a GPU, of its links to the
 * group that has it. Unknown bandwidths cost nothing. */
double dlb_offload_copy_s(const struct dlb_cluster *c, int node, int memory, double bytes);
/* [tensor] the rule of kind states for each weight, -1: none; in g->arena. NULL: the plan has no such rule,
 * or the optimizer has no states. */
int *dlb_offload_find(struct dlb_program *g);
/* Checks that offload is possible in the program: nodes have the memories, and updates can wait for copies. c
 * may be NULL. 0, or -1 with err. */
int dlb_offload_check(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err);
/* [tensor] the rule by which a weight is offloaded, -1: none; in g->arena. NULL: no weight is offloaded. Sets
 * g->gathered for these weights. */
int *dlb_offload_find_weights(struct dlb_program *g);
static inline bool dlb_program_is_offloaded(const struct dlb_program *g, int t)
{
	return g->offload && g->offload[t] >= 0;
}
static inline bool dlb_program_weight_is_far(const struct dlb_program *g, int t)
{
	return g->far_weight && g->far_weight[t] >= 0;
}
/* Whether any tensor or state is offloaded. */
static inline bool dlb_program_offloads(const struct dlb_program *g)
{
	return g->offload || g->far_weight || g->plan->far;
}
/* Bytes of the place in the arena for the states of weight t, each at a multiple of DLB_PLACE_ALIGN. */
size_t dlb_program_near_bytes(const struct dlb_program *g, int t);
/* Bytes of the states of weight t that this replica offloads. */
double dlb_program_far_bytes(const struct dlb_program *g, int t);
/* The copy of a FETCH or STORE, or of the end of one: its place in the arena (STORE of an activation: the
 * place of its first life), the memory, and the bytes of all states of a weight, of the weight, or of the
 * activation. */
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
/* Checks that each memory has room for the data that nodes offload to it. 0, or -1 with err, which has status
 * 1. */
int dlb_offload_check_room(const struct dlb_program *g, const struct dlb_cluster *c, struct dlb_error *err);
#endif
