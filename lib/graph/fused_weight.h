/* Weights that hold several, one below the other, as attention's queries, keys and values often do. */
#ifndef DLB_GRAPH_FUSED_WEIGHT_H
#define DLB_GRAPH_FUSED_WEIGHT_H
#include "graph/graph.h"

enum { DLB_MOST_FUSED = 8 };
/* Rows of each of the weights that weight w (out, in) holds: the columns of its only product are taken apart
 * by a Split. Returns their number; 1, rows unset: w is one weight. */
int dlb_fused_weights(const struct dlb_graph *g, int w, int64_t rows[DLB_MOST_FUSED]);
#endif
