/* Members of the graph section that tell how the graph came from the model's file: rewrites, splits, the
 * exporter's list, and initializers that the file has in another form (computed, merged, of 16 bits). */
#ifndef DLB_GRAPH_HISTORY_JSON_H
#define DLB_GRAPH_HISTORY_JSON_H
#include "graph/graph.h"

void dlb_history_write(const struct dlb_graph *g, json_t *graph); /* adds the members to `graph` */
int dlb_history_read(const struct dlb_ref *graph, struct dlb_graph *g, struct dlb_error *err);
#endif
