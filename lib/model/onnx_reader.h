/* Internal to the files that turn an ONNX model into a graph: onnx.c reads the model, its tensors and
 * vertices, onnx_attribute.c attributes and `Constant`, onnx_body.c the graphs inside vertices
 * (branches, loop bodies), onnx_function.c calls of the model's own functions, onnx_signature.c the
 * exporter's list of parameters.
 *
 * A reader reads one scope of names: the model's graph, a body, or one call of a function.
 *
 * A body has its own graph; `outer` reads the scope around it. A name that the body does not define is looked
 * up in that scope, and becomes a further input (a capture) of every body between. Constants and initializers
 * of bodies go to the outermost graph, renamed if their name is taken: they are the same in every iteration,
 * and weights are found by name.
 *
 * A function has no graph of its own: its vertices go into the graph of `caller`, and see only the
 * function's names. Formal inputs and outputs are tensors of the caller; every other tensor of the
 * function is named VERTEX/NAME. */
#ifndef DLB_MODEL_ONNX_READER_H
#define DLB_MODEL_ONNX_READER_H
#include "graph/graph.h"
#include "graph/name_map.h"
#include "model/onnx_proto.h"

/* State of one model being read; all its readers share it. */
struct reading {
	const Onnx__ModelProto *model;
	struct dlb_onnx_files *files;
	/* "DOMAIN\nNAME\nOVERLOAD" to the index in model->functions */
	struct dlb_name_map function;
	/* parameter names of the exported program to indices in g->listed */
	struct dlb_name_map listed;
	/* initializer of a body ("%p") to its tensor in the outermost graph */
	struct dlb_name_map hoisted;
	struct dlb_onnx_place *place;		/* location of tensors' data in the file, for dlb_onnx_save */
	int n_places, cap_places;
	size_t n_expanded, expanded_bytes;	/* vertices and bytes added by calls of functions so far */
	size_t bytes;				/* size of the file */
};

struct onnx_reader {
	const char *name;			/* file name, for messages */
	struct reading *all;
	const Onnx__GraphProto *p;		/* NULL: a function */
	struct dlb_graph *g;
	struct dlb_name_map tensor, batch;	/* tensor names to ids; names of the batch dimension */
	struct dlb_name_map vertices;		/* vertex names in g, if the reader has its own graph */
	struct dlb_error *err;
	/* body: the vertex that contains it; function: the vertex that calls it */
	const char *vertex;
	/* for a body */
	struct onnx_reader *outer;			/* NULL: not a body */
	struct { int in, out; } *capture;	/* tensor in this graph, and in outer's graph */
	int n_captures, cap_captures;
	/* for a function */
	struct onnx_reader *caller;			/* NULL: not a function */
	const Onnx__FunctionProto *function;
	const Onnx__NodeProto *call;
	/* formal outputs to the caller's tensors; absent formal inputs */
	struct dlb_name_map result, absent;
	const Onnx__AttributeProto **bound;	/* attribute values, which the function's vertices refer to */
	struct dlb_name_map bound_name;
	int n_bound;
};

/* -- onnx.c -- */
int dlb_reader_graph(struct onnx_reader *r);
int dlb_reader_vertices(struct onnx_reader *r, Onnx__NodeProto *const *node, size_t n);
/* Adds a tensor to r's scope. In a function it is the caller's tensor of a formal output, or
 * VERTEX/NAME. Returns its id; -1 with err. */
int dlb_reader_add_tensor(struct onnx_reader *r, const char *name, enum dlb_tensor_kind kind,
			  const char *what);
int dlb_reader_set_constant(struct onnx_reader *r, int id, Onnx__TensorProto *p, bool initializer);
int dlb_reader_set_type(struct onnx_reader *r, struct dlb_tensor *t, const Onnx__ValueInfoProto *v, bool fed);
int dlb_reader_check_name(const struct onnx_reader *r, const char *name, const char *what);
/* Returns the tensor id of an operand; -1: absent; -2 with err: no vertex makes it. */
int dlb_reader_operand(struct onnx_reader *r, const Onnx__NodeProto *p, const char *name, const char *vertex);
/* Returns `name`, with a number appended if the graph has a vertex of that name, and reserves it. */
const char *dlb_reader_vertex_name(struct onnx_reader *r, const char *name);
const char *dlb_reader_domain(const char *domain);		/* "" for ONNX's own */
/* Opset version of a domain in r's scope; -1: not imported. */
int64_t dlb_reader_opset(const struct onnx_reader *r, const char *domain);
/* Fails with "TYPE 'VERTEX' (opset N): ..." at the file's name; returns -1. */
int dlb_reader_fail(const struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
		    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The scope around r: `outer` of a body, `caller` of a function; NULL: r reads the model's graph. */
struct onnx_reader *dlb_reader_around(const struct onnx_reader *r);

/* -- onnx_attribute.c -- */
/* Reads the attributes of vertex p, references resolved, into attr[n_attribute + 1]. If a graph cannot hold
 * one, it becomes DLB_ATTR_UNSUPPORTED, which makes the op unknown. Returns their number; -1 with err. */
int dlb_reader_attributes(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
			  struct dlb_attr *attr);
/* Sets tensor id of to's graph to the value of a `Constant` in r's scope. Returns 1 if a graph cannot hold
 * the value (strings, sparse values); -1 with err. */
int dlb_reader_constant(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
			struct onnx_reader *to, int id);
/* Resolves attribute a: *to is a itself, or the call's value for its ref_attr_name; NULL: the call has
 * none. */
int dlb_reader_refer(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
		     const Onnx__AttributeProto *a, const Onnx__AttributeProto **to);

/* -- onnx_body.c -- */
/* Returns the tensor of that name, captured from an outer scope if necessary; -1: none. */
int dlb_reader_find(struct onnx_reader *r, const char *name);
/* Adds a constant of an inner scope to the outermost graph under `name`: p, or the
 * value of the `Constant` vertex. */
int dlb_reader_hoist(struct onnx_reader *r, const char *name, Onnx__TensorProto *p,
		     const Onnx__NodeProto *vertex, const char *vertex_name);
bool dlb_reader_in_body(const struct onnx_reader *r);
bool dlb_reader_is_body(const Onnx__NodeProto *p, const Onnx__AttributeProto *a);
/* Reads the bodies of vertex p. `in` has its n_in operands; captures are appended (new, in the graph's
 * arena). attr needs space for one more attribute per body. */
int dlb_reader_bodies(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex, int **in,
		      int *n_in, struct dlb_attr *attr, int *n_attr);

/* -- onnx_function.c -- */
int dlb_reader_list_functions(struct onnx_reader *r);		/* fills all->function */
/* The function that p calls; NULL: none. */
const Onnx__FunctionProto *dlb_reader_function(const struct onnx_reader *r, const Onnx__NodeProto *p);
/* Replaces vertex p by the vertices of function f. */
int dlb_reader_call(struct onnx_reader *r, const Onnx__NodeProto *p, const char *vertex,
		    const Onnx__FunctionProto *f);

/* -- onnx_signature.c -- */
/* metadata key of a vertex: its call in PyTorch's graph */
#define DLB_FX_NODE "pkg.torch.onnx.fx_node"
#define DLB_NAME_SCOPES "pkg.torch.onnx.name_scopes"
/* Value of `key` among n metadata pairs; NULL: none. */
const char *dlb_reader_metadata(Onnx__StringStringEntryProto *const *p, size_t n, const char *key);
/* Stores the exporter's list of parameters and buffers in the graph's `listed`. An
 * unreadable list is ignored with a note. */
void dlb_reader_signature(struct onnx_reader *r);
/* Sets the `uses` of op, which was made from vertex p: the listed tensors in the exporter's call for the
 * vertex. */
void dlb_reader_uses(struct onnx_reader *r, const Onnx__NodeProto *p, int op);

/* -- onnx_embedding.c -- */
/* Row of the table that gets no gradient from a Gather; -1: every row gets one. */
int64_t dlb_reader_padding_row(const Onnx__NodeProto *p);
#endif
