/* Reads and writes ONNX through protobuf-c and the schema onnx.proto (code generated at build time). Supports
 * opsets 6 to 28, IR versions up to 14 (ONNX 1.23), raw and typed initializers, and external data inside the
 * model's folder. The graph is read unchanged: forward ops in file order, calls of the model's own functions
 * replaced by their vertices, initializers as constants, named dimensions as the symbol. dlb_graph_fold
 * simplifies it. Files are untrusted: every size is checked before it is used. External data are mapped into
 * the graph's arena and used in place; util/mapped.h says how a reader finds out that such a file was cut
 * short. */
#ifndef DLB_MODEL_ONNX_H
#define DLB_MODEL_ONNX_H
#include "graph/graph.h"
/* Reads a model into g. g->model_sha256 covers the file; with external data, the file and
 * then these data in reading order. */
int dlb_onnx_read(const char *path, struct dlb_graph *g, struct dlb_error *err);
/* As above, but external data of 64 MiB or more are not looked at: neither hashed (g->model_sha256 covers
 * the file alone) nor checked. Sets g->external_unread, and notes it, if there are such data. */
int dlb_onnx_skim(const char *path, struct dlb_graph *g, struct dlb_error *err);
/* Refuses NaN anywhere and infinity in weights; attention masks may consist of 0 and -inf. `data`: the values
 * of initializer `name` in `file`. */
int dlb_onnx_check_finite(const char *file, const struct dlb_desc *d, const void *data, const char *name,
			  struct dlb_error *err);
int dlb_onnx_parse(const void *data, size_t n, const char *name, struct dlb_graph *g, struct dlb_error *err);
/* Writes the model at `source` to `path` with new values for n tensors, in the types of the file.
 * Everything else (opsets, functions, metadata) is kept. */
int dlb_onnx_save(const char *source, const char *path, const struct dlb_named *tensor, int n,
		  struct dlb_error *err);
/* As above; each tensor in apart[] becomes an initializer of its own, which its vertex reads. */
int dlb_onnx_save_apart(const char *source, const char *path, const struct dlb_named *tensor, int n,
			const struct dlb_unmerged *apart, int n_apart, struct dlb_error *err);
/* Reads one TensorProto file (test vectors): *data is new, from malloc. */
int dlb_onnx_read_tensor(const char *path, char name[128], struct dlb_desc *desc, void **data,
			 struct dlb_error *err);
#endif
