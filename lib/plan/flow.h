/* The flow of a plan, for scheduler, compiler and simulator: sizes of the micro-batches, seconds of (op,
 * m), bytes of (tensor, m), and dependencies of ops. Private to lib/plan.
 *
 * Micro-batches have at most two sizes, so all numbers exist twice: class 0 (m < n_large) and 1. Items are
 * (op, m), numbered op * M + m; an update is the item op * M. An edge p -> o means that (o, m) reads an
 * output of (p, m). Edges into an update start at the last micro-batch: of the gradient's producer and, on
 * the update's node, of the weight's readers, which must be done before the weight changes. The second run of
 * a reader comes before every backward op that needs it, so there is also an edge from one of these ops. */
#ifndef DLB_PLAN_FLOW_H
#define DLB_PLAN_FLOW_H
#include "plan/program.h"

struct dlb_flow {
	struct dlb_arena arena;
	const struct dlb_graph *g;
	const struct dlb_cost *c;		/* NULL: every op one second, messages free */
	const int *placement;
	int M, n_nodes, n_large;		/* m < n_large are of size[0] samples */
	int64_t batch, size[2];
	double *op_s;				/* [op * 2 + class], without scale */
	/* NULL: no op runs again. again_to[op]: the first backward op of the graph that needs op's second
	 * run, -1: none; again_s[op * 2 + class]: seconds of the second runs that op is the first to need */
	int *again_to;
	double *again_s;
	const struct dlb_plan *p; /* borrowed */
	/* edges into op; pred_s[edge * 2 + class]: seconds of the message, 0 within a node */
	int *pred_start, *pred; double *pred_s;
	int *succ_start, *succ, *succ_edge;	/* edges out of op; succ_edge: index in pred */
};
void dlb_flow_init(struct dlb_flow *f, const struct dlb_plan *p, const struct dlb_cost *c, int64_t batch);
/* Sets op times by the memories that hold g's buffers; before this call, they assume the fastest memory. */
void dlb_flow_put(struct dlb_flow *f, const struct dlb_program *g);
/* memories.c: assigns each node's buffers to its memories. */
void dlb_compile_put(struct dlb_program *g, const struct dlb_cost *c);
void dlb_flow_release(struct dlb_flow *f);
static inline int dlb_flow_class(const struct dlb_flow *f, int m) { return m >= f->n_large; }
/* number of micro-batches that op runs */
static inline int dlb_flow_items(const struct dlb_flow *f, int op)
{
	return f->g->op[op].phase == DLB_UPDATE ? 1 : f->M;
}
/* the micro-batch at which an edge into (op, m) starts */
static inline int dlb_flow_from(const struct dlb_flow *f, int op, int m)
{
	return f->g->op[op].phase == DLB_UPDATE ? f->M - 1 : m;
}
/* Seconds of (op, m) on its node, as simulated (views: 0). */
double dlb_flow_s(const struct dlb_flow *f, int op, int m);
/* The same plus the seconds of second runs before it, as schedules count it. */
static inline double dlb_flow_item_s(const struct dlb_flow *f, int op, int m)
{
	return dlb_flow_s(f, op, m) + (f->again_s ? f->again_s[2 * op + dlb_flow_class(f, m)] : 0);
}

/* Finds a legal order of all items that respects each node's order and is close to time order: start[item] in
 * seconds, and seq[item], its position. -1 with err, which names node and op: there is no such order, so the
 * programs would deadlock. */
int dlb_flow_walk(const struct dlb_flow *f, const struct dlb_plan *p, double *start, int *seq,
		  struct dlb_error *err);

/* ---- async.c: asynchronous schedules ---- */
/* Lags in half-slots, [op]; returns new. clip: updates wait for the global norm. */
int *dlb_async_lags(const struct dlb_flow *f, bool clip);
/* Fills p->node[].order; returns the busiest node's seconds. */
double dlb_async_order(struct dlb_plan *p, const struct dlb_cost *c, const double *node_scale);
/* The items of a node in one iteration, in its order. op -1: the send of weight `tensor`.
 * dlb_async_versions sets version, keep (a copy of the weight is made before this update) and predict
 * (index of the first weight predicted before this item, then weight[].next; -1: none). */
struct dlb_async_item { int op, m, tensor, offset, version, predict; bool keep; };
struct dlb_async_node {
	int node, n, n_weights;
	struct dlb_async_item *item;
	struct dlb_weight_copies *weight;	/* room for all weights of the graph */
};
int dlb_async_versions(const struct dlb_flow *f, struct dlb_async_node *node, int depth, int n_state,
		       enum dlb_staleness *rule, struct dlb_error *err);

/* A binary heap of (key, id), least first; ties by id. */
struct dlb_heap { struct dlb_heap_item { double key; int id; } *item; int n, cap; };
void dlb_heap_push(struct dlb_heap *h, double key, int id);
struct dlb_heap_item dlb_heap_pop(struct dlb_heap *h);
void dlb_heap_release(struct dlb_heap *h);

/* Sets the offsets of places (arena.c). n_instr: instructions of the loop, around which places may wrap.
 * Places with offset SIZE_MAX share the memory of another place and are skipped. enough: the search for a
 * smaller arena ends at this size in bytes (0: the smallest). Returns the arena's size in bytes; *bound: the
 * most bytes alive at once. */
size_t dlb_memory_plan(struct dlb_place *place, int n, int n_instr, size_t enough, size_t *bound);
/* Whether an arena of this size is not made smaller. */
bool dlb_memory_is_good(size_t bytes, size_t bound);
#endif
