/* A tensor of the graph section:
 *
 *     {"id":7, "name":"fc.weight", "kind":"weight", "dtype":"f32", "shape":[10,64], "size_bytes":2560, "home":3}
 *
 * Data of weights stay in the model's file (lib/model/weights.h). Data that the file does not hold under the
 * tensor's name, such as a folded constant, and small constants are written as `value`. */
#ifndef DLB_GRAPH_TENSOR_JSON_H
#define DLB_GRAPH_TENSOR_JSON_H
#include "graph/graph.h"

json_t *dlb_tensor_write(const struct dlb_graph *g, int i); /* returns new */
/* Adds the tensor, which must have id i; n_ops, n_tensors: those of the whole section. */
int dlb_tensor_read(const struct dlb_ref *r, struct dlb_graph *g, int i, int n_ops, int n_tensors,
		    struct dlb_error *err);
/* adds all members but `of` to o */
void dlb_slice_write(const struct dlb_slice *s, json_t *o);
#endif
