/* What the files that turn a model into a graph share; nobody else includes it. onnx.c reads the model, its tensors and
 * vertices, onnx_attribute.c attributes and `Constant`, onnx_body.c the graphs inside vertices (branches, loop bodies),
 * onnx_function.c calls of the model's own functions, onnx_signature.c the exporter's list of parameters.
 *
 * A reader reads one scope of names: the model's graph, a body, or a function as one vertex calls it.
 *
 * A body has a graph of its own, and `outer` reads the scope around it. A name that the body does not make itself is
 * looked for there; what is found becomes a further input of every body on the way (a capture). Constants and
 * initializers of bodies go to the outermost graph, under a name of their own when theirs is taken: they are the same
 * for every iteration, and weights are found again by name.
 *
 * A function has no graph of its own: its vertices go into the graph of `caller`, and sees no names but its own. Its
 * formal inputs and outputs are tensors of the caller's; everything else it makes is called VERTEX/NAME. */
#ifndef DLB_MODEL_ONNX_READER_H
#define DLB_MODEL_ONNX_READER_H
#include "graph/graph.h"
#include "graph/name_map.h"
#include "model/onnx_proto.h"

/* One model being read; all its readers share this. */
struct reading {
	const Onnx__ModelProto *model;
	struct dlb_onnx_files *files;
	struct dlb_name_map function;		/* "DOMAIN\nNAME\nOVERLOAD" to the index in model->functions */
	struct dlb_name_map listed;		/* what the exported program called its state, to indices in g->listed */
	struct dlb_name_map hoisted;		/* an initializer of a body ("%p") to its tensor in the outermost graph */
	struct dlb_onnx_place *place;		/* where the data of tensors stand in the file, for dlb_onnx_save */
	int n_places, cap_places;
	size_t n_expanded, expanded_bytes;	/* vertices and bytes that calls of functions have added so far */
	size_t bytes;				/* of the file */
};

struct reader {
	const char *name;			/* of the file, for messages */
	struct reading *all;
	const Onnx__GraphProto *p;		/* NULL: a function */
	struct dlb_graph *g;
	struct dlb_name_map tensor, batch;	/* names to tensor ids; symbols that are the batch */
	struct dlb_name_map vertices;		/* names of the vertices in g, where the graph is the reader's own */
	struct dlb_error *err;
	const char *vertex;			/* body, function: the vertex that it is in, or that calls it */
	/* of a body */
	struct reader *outer;			/* NULL: no body */
	struct { int in, out; } *capture;	/* tensor here, and in outer's graph */
	int n_captures, cap_captures;
	/* of a function */
	struct reader *caller;			/* NULL: no function */
	const Onnx__FunctionProto *function;
	const Onnx__NodeProto *call;
	struct dlb_name_map result, absent;	/* formal outputs to the caller's tensors; formal inputs left out */
	const Onnx__AttributeProto **bound;	/* values of the attributes that its vertices refer to */
	struct dlb_name_map bound_name;
	int n_bound;
};

/* -- onnx.c -- */
int dlb_reader_graph(struct reader *r);
int dlb_reader_vertices(struct reader *r, Onnx__NodeProto *const *node, size_t n);
/* A tensor of that name in r's scope: in a function one that the caller waits for, or VERTEX/NAME. Id or -1. */
int dlb_reader_add_tensor(struct reader *r, const char *name, enum dlb_tensor_kind kind, const char *what);
int dlb_reader_set_constant(struct reader *r, int id, Onnx__TensorProto *p, bool initializer);
int dlb_reader_set_type(struct reader *r, struct dlb_tensor *t, const Onnx__ValueInfoProto *v, bool fed);
int dlb_reader_check_name(const struct reader *r, const char *name, const char *what);
/* An operand: tensor id, -1 when it is left out, -2 with err when nothing makes it. */
int dlb_reader_operand(struct reader *r, const Onnx__NodeProto *p, const char *name, const char *vertex);
/* `name`, or with a number behind it where the graph has a vertex of that name; taken from now on. */
const char *dlb_reader_vertex_name(struct reader *r, const char *name);
const char *dlb_reader_domain(const char *domain);		/* "" for ONNX's own */
/* The version of the operator set that holds for a domain in r's scope, or -1. */
int64_t dlb_reader_opset(const struct reader *r, const char *domain);
/* -1 with "TYPE 'VERTEX' (opset N): ..." at the file's name. */
int dlb_reader_fail(const struct reader *r, const Onnx__NodeProto *p, const char *vertex, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The scope around r, a body's or a caller's; NULL: r reads the model's graph. */
struct reader *dlb_reader_around(const struct reader *r);

/* -- onnx_attribute.c -- */
/* The attributes of vertex p, references resolved, into attr[n_attribute + 1]; an attribute that a graph cannot hold becomes the
 * one named DLB_ATTR_UNSUPPORTED, which makes the op unknown. Returns their number, -1 on error. */
int dlb_reader_attributes(struct reader *r, const Onnx__NodeProto *p, const char *vertex, struct dlb_attr *attr);
/* Tensor id of to's graph gets what a `Constant` in r's scope holds. 1: that is nothing for a graph (strings, sparse values). */
int dlb_reader_constant(struct reader *r, const Onnx__NodeProto *p, const char *vertex, struct reader *to, int id);
/* What attribute a stands for: itself, or what the call gives for its ref_attr_name. *to NULL: the call leaves it out. */
int dlb_reader_refer(struct reader *r, const Onnx__NodeProto *p, const char *vertex, const Onnx__AttributeProto *a,
		     const Onnx__AttributeProto **to);

/* -- onnx_body.c -- */
/* Tensor of that name, captured from outside where need be; -1: there is none. */
int dlb_reader_find(struct reader *r, const char *name);
/* A constant of a scope whose graph is not the outermost: `p`, or what the `Constant` vertex holds, under `name`. */
int dlb_reader_hoist(struct reader *r, const char *name, Onnx__TensorProto *p, const Onnx__NodeProto *vertex,
		     const char *vertex_name);
bool dlb_reader_in_body(const struct reader *r);
bool dlb_reader_is_body(const Onnx__NodeProto *p, const Onnx__AttributeProto *a);
/* The bodies of vertex p. `in` has the n_in operands that ONNX knows and is replaced (new in the graph's arena) where
 * bodies capture more; attr has room for one more per body. */
int dlb_reader_bodies(struct reader *r, const Onnx__NodeProto *p, const char *vertex, int **in, int *n_in,
		      struct dlb_attr *attr, int *n_attr);

/* -- onnx_function.c -- */
int dlb_reader_list_functions(struct reader *r);		/* fills all->function */
const Onnx__FunctionProto *dlb_reader_function(const struct reader *r, const Onnx__NodeProto *p);	/* that p calls, or NULL */
/* The vertices of function f in place of vertex p. */
int dlb_reader_call(struct reader *r, const Onnx__NodeProto *p, const char *vertex, const Onnx__FunctionProto *f);

/* -- onnx_signature.c -- */
#define DLB_FX_NODE "pkg.torch.onnx.fx_node"		/* key of a vertex: the call of PyTorch's graph that it was made of */
/* The value of `key` among n pairs of metadata, or NULL. */
const char *dlb_reader_metadata(Onnx__StringStringEntryProto *const *p, size_t n, const char *key);
/* The exporter's list of parameters and buffers becomes the graph's `listed`; one that cannot be read is ignored with a
 * note. */
void dlb_reader_signature(struct reader *r);
/* The `uses` of op, which is vertex p: the listed tensors in the call that the exporter made the vertex of. */
void dlb_reader_uses(struct reader *r, const Onnx__NodeProto *p, int op);

/* -- onnx_embedding.c -- */
/* The row of the table that a Gather gives no gradient; -1: every row has one. */
int64_t dlb_reader_padding_row(const Onnx__NodeProto *p);
#endif
