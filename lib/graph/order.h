/* The order of ops: readers and producers, topological order, the invariants of a graph, colocated ops. */
#ifndef DLB_GRAPH_ORDER_H
#define DLB_GRAPH_ORDER_H
#include "graph/graph.h"

/* (Re)builds producers and readers (each reader once, ascending); -1 if a tensor has two producers. */
int dlb_graph_index(struct dlb_graph *g);
/* Checks the invariants: ids in range, topological order, no cycles, unique names, colocate chains,
 * sizes that do not overflow. */
int dlb_graph_check(const struct dlb_graph *g, struct dlb_error *err);
/* Sorts ops topologically (stable; forward, backward, update) and renumbers them; -1 with err
 * naming the ops of a cycle. */
int dlb_graph_sort(struct dlb_graph *g, struct dlb_error *err);
/* -1 with err (op type, opset and vertex) if an operator is unknown (kind -1). */
int dlb_graph_check_known(const struct dlb_graph *g, struct dlb_error *err);
/* Fills err with the message for such an op; returns -1. */
int dlb_graph_fail_unknown(const struct dlb_op *o, struct dlb_error *err);
/* Refuses vertex o: fills err with "TYPE 'NAME' (opset N)" as the place, the message, and `cure`
 * (may be NULL) as the hint. Returns -1. */
int dlb_vertex_fail(const struct dlb_op *o, struct dlb_error *err, const char *cure, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
#define DLB_CURE_VERTEX "if onnx.checker.check_model(model, full_check=True) takes the model, write this vertex with other operators"
#define DLB_CURE_CHECK "the model is not valid: run onnx.checker.check_model on it, and export it again"
/* group[i]: the least id among the ops that must share a node with op i. */
void dlb_graph_groups(const struct dlb_graph *g, int *group /* n_ops */);
#endif
