/* What the scheduler, the compiler and the simulator all ask of a plan: sizes of the micro-batches, seconds of
 * (op, m), bytes of (tensor, m), and which op waits for which. Private to lib/plan.
 *
 * Micro-batches come in at most two sizes, so everything is kept for two: class 0 (m < n_large) and 1.
 * Items are (op, m) numbered op * M + m; an update is the item op * M. Edges join ops: p -> o says that o of
 * micro-batch m reads what p made of m. Edges into an update start at the last micro-batch: the gradient's
 * producer, and on the update's node the readers of the weight, which must be done before it changes. */
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
	double *op_s;				/* [op * 2 + class], scale not in it */
	int *pred_start, *pred; double *pred_s;	/* edges into op; pred_s[edge * 2 + class]: message time, 0 on one node */
	int *succ_start, *succ, *succ_edge;	/* edges out of op; succ_edge: index in pred */
};
void dlb_flow_init(struct dlb_flow *f, const struct dlb_plan *p, const struct dlb_cost *c, int64_t batch);
/* Prices ops by the memories in which g's nodes have their buffers; before, all are taken to lie in the fastest. */
void dlb_flow_put(struct dlb_flow *f, const struct dlb_program *g);
/* memories.c: which of its memories hold what of a node's buffers. */
void dlb_compile_put(struct dlb_program *g, const struct dlb_cost *c);
void dlb_flow_release(struct dlb_flow *f);
static inline int dlb_flow_class(const struct dlb_flow *f, int m) { return m >= f->n_large; }
static inline int dlb_flow_items(const struct dlb_flow *f, int op)	/* micro-batches op runs */
{
	return f->g->op[op].phase == DLB_UPDATE ? 1 : f->M;
}
static inline int dlb_flow_from(const struct dlb_flow *f, int op, int m)	/* whose m an edge into (op, m) starts at */
{
	return f->g->op[op].phase == DLB_UPDATE ? f->M - 1 : m;
}
/* Seconds of (op, m) on its node as the simulator counts them (views: 0). */
double dlb_flow_s(const struct dlb_flow *f, int op, int m);

/* A legal order of all items that respects each node's order, close to that of time: start[item], and seq[item]
 * its position. -1: no such order, the programs would deadlock; err names node and op. */
int dlb_flow_walk(const struct dlb_flow *f, const struct dlb_plan *p, double *start, int *seq, struct dlb_error *err);

/* ---- async.c: asynchronous schedules ---- */
/* Lags in half-slots, [op]; returns new. clip: updates wait for the global norm. */
int *dlb_async_lags(const struct dlb_flow *f, bool clip);
/* Fills p->node[].order; returns the busiest node's seconds. */
double dlb_async_order(struct dlb_plan *p, const struct dlb_cost *c, const double *node_scale);
/* What a node does in one iteration, in its order. op -1: the send of weight `tensor`. Set by dlb_async_versions:
 * version, keep (a copy of the weight must be kept before this update) and predict (index of the first weight that is to be
 * predicted before this item, then weight[].next; -1: none). */
struct dlb_async_item { int op, m, tensor, offset, version, predict; bool keep; };
struct dlb_async_node {
	int node, n, n_weights;
	struct dlb_async_item *item;
	struct dlb_weight_copies *weight;	/* room for all weights of the graph */
};
int dlb_async_versions(const struct dlb_flow *f, struct dlb_async_node *node, int depth, int n_state, enum dlb_staleness *rule,
		       struct dlb_error *err);

/* A binary heap of (key, id), least first; ties by id. */
struct dlb_heap { struct dlb_heap_item { double key; int id; } *item; int n, cap; };
void dlb_heap_push(struct dlb_heap *h, double key, int id);
struct dlb_heap_item dlb_heap_pop(struct dlb_heap *h);
void dlb_heap_release(struct dlb_heap *h);

/* Offsets for places (arena.c says how). n_instr: of the loop, which places may wrap around. Places with offset SIZE_MAX share another's and are left alone. draft: best
 * fit in program order, nothing better is looked for. Returns the arena's size; *bound: the most bytes alive at any
 * time. */
size_t dlb_memory_plan(struct dlb_place *place, int n, int n_instr, bool draft, size_t *bound);
#endif
