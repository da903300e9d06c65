/* The section "graph" of a document. */
#ifndef DLB_GRAPH_GRAPH_JSON_H
#define DLB_GRAPH_GRAPH_JSON_H
#include "graph/graph.h"

json_t *dlb_graph_write(const struct dlb_graph *g);				/* returns new */
/* Replaces the content of g (empty on error); checks and indexes g at the end. Data of weights: see
 * model/weights.h. */
int dlb_graph_read(const struct dlb_doc *d, struct dlb_graph *g, struct dlb_error *err);
#endif
