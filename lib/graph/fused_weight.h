/* Weights that consist of several weights, one below the other, as those of attention's queries, keys and
 * values often do. */
#ifndef DLB_GRAPH_FUSED_WEIGHT_H
#define DLB_GRAPH_FUSED_WEIGHT_H
#include "graph/graph.h"

enum { DLB_MOST_FUSED = 8 };
/* Rows of each of the weights that weight w (out, in) consists of: a Split separates the columns of its only
 * product. Returns the number of weights; 1, rows unset: w is one weight. */
int dlb_fused_weights(const struct dlb_graph *g, int w, int64_t rows[DLB_MOST_FUSED]);
#endif
