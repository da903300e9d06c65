/* Internal to the files of lib/model that read and write ONNX.
 *
 * protobuf-c unpacks messages into an arena: raw bytes of initializers are used in place, and an error path
 * has nothing to free. The wire format is checked first (onnx_wire.c), because protobuf-c recurses without a
 * limit and merges repeated singular messages; a damaged file gives an error with its position. */
#ifndef DLB_MODEL_ONNX_PROTO_H
#define DLB_MODEL_ONNX_PROTO_H
#include "onnx.pb-c.h"
#include "tensor/tensor.h"
#include "util/mem.h"

/* Checks `n` bytes as a message of type d. -1 with err at `name`. */
int dlb_onnx_wire_check(const ProtobufCMessageDescriptor *d, const void *data, size_t n, const char *name,
			struct dlb_error *err);
/* Checks the message and unpacks it into `a`. NULL with err. */
void *dlb_onnx_unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t n, const char *name,
		      struct dlb_arena *a, struct dlb_error *err);
/* Source of external data: files inside `folder` (NULL: external data are refused). Each file is mapped into
 * the arena of the first tensor read from it. `unread`: the caller needs no data, and *data of every external
 * tensor is NULL. `sha`: hashes all external data in reading order; NULL: no hash. */
struct dlb_onnx_external { char *location; const char *data; int64_t bytes; };
struct dlb_onnx_files {
	const char *folder;
	bool unread;
	struct dlb_onnx_external *file; int n, cap;
	struct dlb_sha256 *sha;
};
/* Frees the list of files. The mapped data stay in their arenas. */
void dlb_onnx_files_close(struct dlb_onnx_files *f);
/* A tensor of model `name`, called `what` in messages: "initializer 'w'". Its data will be in `a`. */
struct dlb_onnx_source {
	const char *name, *what;
	struct dlb_onnx_files *files;
	struct dlb_arena *a;
	struct dlb_error *err;
};
/* Reads shape, type and data of a TensorProto; raw bytes are used in place. */
int dlb_onnx_tensor(const Onnx__TensorProto *p, const struct dlb_onnx_source *s, struct dlb_desc *desc,
		    void **data);
/* A tensor of the graph, by name, and the message with its data. */
struct dlb_onnx_place { const char *name; Onnx__TensorProto *p; };
/* Finds the messages in m that hold the data of the graph's constants. g becomes the graph without data and
 * owns the names; the caller releases g. *place is new. */
struct dlb_graph;
int dlb_onnx_places(Onnx__ModelProto *m, const char *name, struct dlb_graph *g, struct dlb_onnx_place **place,
		    int *n, struct dlb_error *err);
#endif
