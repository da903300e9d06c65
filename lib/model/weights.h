/* Where the data of weights come from: the document names the model's file, this reads it.
 *
 * A graph read from a document has shapes, small constants and filled tensors, but no data for tensors that
 * are `in_model`: those are found here by name, in an .onnx or a .safetensors file. */
#ifndef DLB_MODEL_WEIGHTS_H
#define DLB_MODEL_WEIGHTS_H
#include "graph/graph.h"
#include "model/safetensors.h"
/* path NULL: the graph's own model, whose SHA-256 must be as recorded; all tensors that are in_model and have no
 * data get them. Another path: every weight and buffer is taken from there (all must be there), then what is
 * still missing from the graph's own model. Shapes must agree; types are converted (f32 to f64). Data go into
 * g's arena. Weights without data, fill or in_model (graphs that are only planned) are left as they are. */
int dlb_graph_load_weights(struct dlb_graph *g, const char *path, struct dlb_error *err);
/* Only the constants that are in_model, from the graph's own model: for a run that draws fresh weights. */
int dlb_graph_load_constants(struct dlb_graph *g, struct dlb_error *err);
/* SHA-256 of a file of weights; of an ONNX model that of dlb_onnx_read, with its external data. */
int dlb_weights_sha256(const char *path, char out[65], struct dlb_error *err);
/* The module's state_dict, a safetensors file, for a graph as read: dlb_graph_take_state. The data of g's tensors lie in *s
 * then, which must outlive g; release it in either case. */
int dlb_graph_take_state_file(struct dlb_graph *g, const char *path, bool untie, struct dlb_safetensors *s, struct dlb_error *err);
#endif
