/* ONNX in and out, through protobuf-c and the schema in onnx.proto (code generated at build time).
 * Opsets 6 to 28, IR versions up to 14 (ONNX 1.23); raw and typed initializers; external data inside the model's folder
 * only. Reading gives the graph as the file has it: forward ops in file order, calls of the model's own functions
 * replaced by their vertices, initializers as constants, dims with names as the symbol; dlb_graph_fold does the rest.
 * Untrusted input: every size is checked before it is used. */
#ifndef DLB_MODEL_ONNX_H
#define DLB_MODEL_ONNX_H
#include "graph/graph.h"
/* g->model_sha256 is that of the file; where tensors have their data in other files, that of the file and then of these data,
 * in the order in which they are read. */
int dlb_onnx_read(const char *path, struct dlb_graph *g, struct dlb_error *err);
int dlb_onnx_parse(const void *data, size_t n, const char *name, struct dlb_graph *g, struct dlb_error *err);
/* Writes the model at `source` again with the values of the tensors named, in the types that the file has; everything else
 * (opsets, functions, metadata) stays. */
int dlb_onnx_save(const char *source, const char *path, const char *const *names, const void *const *data,
		  const struct dlb_desc *desc, int n, struct dlb_error *err);
/* Likewise, and those among apart[] become initializers of their own, which their vertices read. */
int dlb_onnx_save_apart(const char *source, const char *path, const char *const *names, const void *const *data, const struct dlb_desc *desc,
			int n, const struct dlb_unmerged *apart, int n_apart, struct dlb_error *err);
/* One TensorProto file (test vectors): returns new data by malloc. */
int dlb_onnx_read_tensor(const char *path, char name[128], struct dlb_desc *desc, void **data, struct dlb_error *err);
#endif
