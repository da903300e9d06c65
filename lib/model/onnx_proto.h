/* Between the files that read and write ONNX; nobody else includes it.
 *
 * Messages are unpacked by protobuf-c into an arena, so that the raw bytes of initializers are used where
 * they lie and nothing needs freeing on the way out of an error. Before that the wire format is walked
 * once (onnx_wire.c): protobuf-c recurses without a limit and merges repeated singular messages, and a
 * hostile file should get a line that says where it is broken. */
#ifndef DLB_MODEL_ONNX_PROTO_H
#define DLB_MODEL_ONNX_PROTO_H
#include "onnx.pb-c.h"
#include "tensor/tensor.h"
#include "util/mem.h"

/* Walks `n` bytes as a message of type d. `name` is where errors say they are. */
int dlb_onnx_wire_check(const ProtobufCMessageDescriptor *d, const void *data, size_t n, const char *name,
			struct dlb_error *err);
/* Checked unpacking into `a`: NULL with err. */
void *dlb_onnx_unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t n, const char *name,
		      struct dlb_arena *a, struct dlb_error *err);
/* Where external data are looked for: in files inside `folder` (NULL: nowhere, they are refused). The file read last
 * stays open. `unread`: nobody needs data, *data of every tensor is NULL. `sha`: gets all external data, as they are read; or
 * NULL. */
struct dlb_onnx_files { const char *folder; bool unread; char *location; int fd; int64_t bytes; struct dlb_sha256 *sha; };
void dlb_onnx_files_close(struct dlb_onnx_files *f);
/* Shape, type and data of a TensorProto; data lies in `a` (raw bytes are used in place). `what` names it in messages:
 * "initializer 'w'". */
int dlb_onnx_tensor(const Onnx__TensorProto *p, const char *name, struct dlb_onnx_files *files, const char *what,
		    struct dlb_arena *a, struct dlb_desc *desc, void **data, struct dlb_error *err);
/* A tensor of the graph, by name, and the message that holds its data. */
struct dlb_onnx_place { const char *name; Onnx__TensorProto *p; };
/* Where in m the data of the constants of its graph stand; names lie in g, which gets that graph without data (the
 * caller releases it). The array is new. */
struct dlb_graph;
int dlb_onnx_places(Onnx__ModelProto *m, const char *name, struct dlb_graph *g, struct dlb_onnx_place **place, int *n,
		    struct dlb_error *err);
#endif
