/* Loads the data of weights from the file that the document names.
 *
 * A graph read from a document has shapes, small constants and filled tensors, but no data for tensors that
 * are `in_model`. They are loaded by name from an .onnx or .safetensors file. */
#ifndef DLB_MODEL_WEIGHTS_H
#define DLB_MODEL_WEIGHTS_H
#include "graph/graph.h"
#include "model/safetensors.h"
/* Loads all missing data. path NULL: from the graph's own model, whose SHA-256 must match. Another path:
 * every weight and buffer from that file, which must have them all, then missing data from the graph's own
 * model. Shapes must agree; types are converted (f32 to f64). Data of weights and buffers go into g->values,
 * mapped files and all other data into g->arena. Weights without data, fill or in_model (graphs that are only
 * planned) stay without data. -1 with err. */
int dlb_graph_load_weights(struct dlb_graph *g, const char *path, struct dlb_error *err);
/* Loads only the in_model constants, from the graph's own model: for a run with freshly initialized
 * weights. */
int dlb_graph_load_constants(struct dlb_graph *g, struct dlb_error *err);
/* SHA-256 of a file of weights; of an ONNX model with external data, as dlb_onnx_read computes it. */
int dlb_weights_sha256(const char *path, char out[65], struct dlb_error *err);
/* Reads the module's state_dict, a safetensors file, and assigns it to a graph that was just
 * read (dlb_graph_take_state). g's tensors then point into *s, which must outlive g. The
 * caller releases *s, also on error. */
int dlb_graph_take_state_file(struct dlb_graph *g, const char *path, bool untie, struct dlb_safetensors *s,
			      struct dlb_error *err);
#endif
