/* The member "derived" of the graph section. */
#ifndef DLB_GRAPH_DERIVED_JSON_H
#define DLB_GRAPH_DERIVED_JSON_H
#include "graph/graph.h"

/* derived_json.c: the member "derived"; returns new */
json_t *dlb_derived_write(const struct dlb_graph *g);
int dlb_derived_read(const struct dlb_ref *graph, struct dlb_graph *g, struct dlb_error *err);
#endif
