/* What the two files that turn a GraphProto into a graph share; nobody else includes it. onnx.c reads vertices and
 * tensors, onnx_body.c the graphs inside vertices (branches, loop bodies).
 *
 * A body is read by a reader of its own, whose `outer` reads the graph around it. A name that the body does not make
 * itself is looked for outside, graph by graph; what is found becomes a further input of every body on the way
 * (a capture). Constants and initializers of bodies go to the outermost graph, under a name of their own when theirs
 * is taken: they are the same for every iteration, and weights are found again by name. */
#ifndef DLB_MODEL_ONNX_READER_H
#define DLB_MODEL_ONNX_READER_H
#include "graph/graph.h"
#include "graph/name_map.h"
#include "model/onnx_proto.h"

struct reader {
	const char *name, *folder;		/* for messages; where external data may lie, or NULL */
	const Onnx__ModelProto *model;
	const Onnx__GraphProto *p;
	struct dlb_graph *g;
	struct dlb_name_map tensor, batch;	/* names to tensor ids; symbols that are the batch */
	struct dlb_name_map listed;		/* what the exported program called its state, to indices in g->listed */
	struct dlb_error *err;
	/* of a body */
	struct reader *outer;			/* NULL: this reads the model's own graph */
	const char *vertex;			/* the vertex that it is in */
	struct { int in, out; } *capture;	/* tensor here, and in outer's graph */
	int n_captures, cap_captures;
};

/* Tensor of that name, captured from outside where need be; -1: there is none. */
int dlb_reader_find(struct reader *r, const char *name);
/* A body's constant: `p`, or what the `Constant` vertex holds, under `name`. */
int dlb_reader_hoist(struct reader *r, const char *name, const Onnx__TensorProto *p, const Onnx__NodeProto *vertex);
bool dlb_reader_is_body(const Onnx__NodeProto *p, const Onnx__AttributeProto *a);
/* The bodies of vertex p. `in` has the n_in operands that ONNX knows and is replaced (new in the graph's arena) where
 * bodies capture more; attr has room for one more per body. */
int dlb_reader_bodies(struct reader *r, const Onnx__NodeProto *p, const char *vertex, int **in, int *n_in,
		      struct dlb_attr *attr, int *n_attr);

/* onnx_signature.c: the exporter's list of parameters and buffers becomes the graph's `listed`; one that cannot be read
 * is ignored with a note. */
void dlb_reader_signature(struct reader *r);
/* The `uses` of op, which is vertex p: the listed tensors in the call that the exporter made the vertex of. */
void dlb_reader_uses(struct reader *r, const Onnx__NodeProto *p, int op);

/* onnx_embedding.c: the row of the table that a Gather gives no gradient; -1: every row has one. */
int64_t dlb_reader_padding_row(const Onnx__NodeProto *p);

/* onnx.c */
int dlb_reader_graph(struct reader *r);
int dlb_reader_add_tensor(struct reader *r, const char *name, enum dlb_tensor_kind kind, const char *what);
int dlb_reader_set_constant(struct reader *r, int id, const Onnx__TensorProto *p, bool initializer);
int dlb_reader_constant(struct reader *r, const Onnx__NodeProto *p, int id);
int dlb_reader_set_type(struct reader *r, struct dlb_tensor *t, const Onnx__ValueInfoProto *v, bool fed);
#endif
