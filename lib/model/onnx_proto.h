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
/* Shape, type and data of a TensorProto; data lies in `a` (raw bytes are used in place). External data are
 * looked for in `folder` (NULL: refused). `what` names it in messages: "initializer 'w'". */
int dlb_onnx_tensor(const Onnx__TensorProto *p, const char *name, const char *folder, const char *what,
		    struct dlb_arena *a, struct dlb_desc *desc, void **data, struct dlb_error *err);
#endif
