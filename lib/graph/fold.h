/* Folding between its files (private to lib/graph): fold.c visits the vertices, batch_at.c and batch_follow.c find
 * the batch that a model was exported with, ragged.c gives lengths that follow values a bound, structure.c resolves branches
 * and loops, sequence.c lists of tensors.
 *
 * A sequence is a list of tensor ids, known while folding and gone afterwards. A tensor that is another name for one
 * (of an Identity, an If) has it in stands_for; whoever is visited later reads that one. */
#ifndef DLB_GRAPH_FOLD_H
#define DLB_GRAPH_FOLD_H
#include "graph/name_map.h"
#include "graph/rewrite.h"

struct dlb_sequence { int n; int *item; };	/* tensor ids */

/* Dimension `dim` of a tensor, or (size) entry `dim` of a shape, has a length that follows values: `times` rows for each value
 * of tensor `mask` that is not zero; -1: no dimension has. coordinate: the tensor is indices, the first of them where along that
 * dimension of tensor `picked` the value stood; -1: it is anything. (ragged.c) */
struct dlb_ragged { int mask; int64_t times; int dim; bool size; int coordinate, picked; };
struct dlb_selection { int mask; int64_t divisor; };	/* as many rows as mask has elements, divided by divisor, are enough */
struct dlb_unpadded { int from; double value; int made; };	/* tensor `made` is `from` with `value` in place of padding */

struct fold {
	struct dlb_graph *g;
	struct dlb_backend *be;
	struct dlb_arena a;			/* values while folding */
	struct dlb_known known;
	bool *varies;				/* [tensor] known, and not the same at every size */
	bool *trained;				/* [tensor] an initializer reaches it differentiably */
	int64_t n, wired;			/* reference size; the model's own fixed batch, 0: none */
	int64_t (*outer)[DLB_MAX_DIMS];		/* [tensor] dimension k is outer * batch * the rest; 0: it is not (batch_at.c) */
	int *made_by;				/* [tensor] op, -1: none */
	struct dlb_batch_made *made;		/* what batch_follow.c has made */
	int n_made, cap_made;
	int *stands_for;			/* [tensor] what is read in its place; -1: itself */
	struct dlb_sequence **sequence;		/* [tensor] the list that it is; NULL: a tensor like others */
	struct dlb_ragged *ragged;		/* [tensor] */
	struct dlb_selection *selection;
	int n_selections, cap_selections;
	struct dlb_unpadded *unpadded;
	int n_unpadded, cap_unpadded;
	int n_padded, first_padded, selected_rows;	/* vertices NonZero that got a bound, the first one, and what it became */
	int cap;				/* of the tables by tensor */
	int *order, n_order, cap_order;		/* ops as they were visited: what stays, in topological order */
	size_t folded_bytes;
	bool resolved;				/* structure has been put into the graph */
	int64_t spent;				/* see dlb_fold_spend */
	struct dlb_name_map op_names, tensor_names;
	int n_renamed, n_op_names, n_tensor_names;		/* that many of the graph's are in the maps */
};

/* fold.c */
int dlb_fold_visit(struct fold *f, int op, struct dlb_error *err);
void dlb_fold_room(struct fold *f);			/* the tables hold what the graph has */
int dlb_fold_actual(const struct fold *f, int t);
bool dlb_fold_is_known(struct fold *f, int t);
const void *dlb_fold_value(struct fold *f, int t, int size);
void dlb_fold_constant(struct dlb_graph *g, int t);	/* t has data or a fill now, and no producer */

/* batch_at.c. Before inference: operands of shape that hold the model's batch are replaced by ones that follow it. After:
 * where the batch stands in the outputs; -1 with err when samples come to stand inside one another's elements. */
void dlb_batch_decide(struct fold *f, int op);
int dlb_batch_place(struct fold *f, int op, struct dlb_error *err);
/* The elements of t before which (times the batch) the batch stands, and its one dimension there; -1: not known, none. */
int64_t dlb_batch_front(const struct fold *f, int t, int *dim);
/* The entry of shape v that holds the batch when the elements of t, in whose dimension dim it stands, are shaped so: -1
 * when none does. */
int dlb_batch_entry(const struct fold *f, int t, int dim, int64_t front, const int64_t *v, int n, int64_t *outer);

/* batch_follow.c. Before inference: indices of one for each sample follow the batch. After it failed with err: constants
 * that hold the model's batch are let follow it; -1 when that does not help, and err names one that does not. */
void dlb_batch_indices(struct fold *f, int op);
int dlb_batch_unwire(struct fold *f, int op, struct dlb_error *err);
void dlb_batch_hint(const struct fold *f, struct dlb_error *err);	/* how to export with the batch open */

/* The constant, or what is made of constants, tensor t, with dimension k following the batch; -1: it cannot. */
int dlb_batch_made(struct fold *f, int op, int t, int k);

/* ragged.c. Before inference: 1 when the vertex has become another one, -1 with err. After it (ragged_pass.c): what is ragged in
 * the outputs; 1 when the vertex has become others. At the end: no output of the model is ragged. */
int dlb_ragged_bound(struct fold *f, int op, struct dlb_error *err);
int dlb_ragged_pass(struct fold *f, int op, struct dlb_error *err);
int dlb_ragged_end(struct fold *f, struct dlb_error *err);
/* -1: the vertex would look at padding of tensor t, which `why` says in the line. */
int dlb_ragged_refuse_at(struct fold *f, int op, int t, const char *why, struct dlb_error *err);
int dlb_ragged_blame(struct fold *f, int op, struct dlb_error *err);	/* -1: inference failed with err, which may get another cause */

/* structure.c: what a vertex of control flow or sequences becomes; at the end, the graph without them */
int dlb_fold_structure(struct fold *f, int op, struct dlb_error *err);
int dlb_fold_end_structure(struct fold *f, struct dlb_error *err);
/* Counts `n` vertices that structure makes: -1 with err when the model has become too large. */
int dlb_fold_spend(struct fold *f, int op, int64_t n, struct dlb_error *err);
/* The integer or truth value of tensor t of vertex `op`, the same for every batch; -1 with err. */
int dlb_fold_decide(struct fold *f, int op, int t, const char *what, int64_t *v, struct dlb_error *err);
/* A vertex in place of `op`, visited. n_out outputs, in out[] (NULL: one); returns output 0, -1 with err. */
int dlb_fold_emit(struct fold *f, int op, const char *type, const int *in, int n_in, const struct dlb_attr *attr, int n_attr,
		  int n_out, int *out, struct dlb_error *err);
/* Vertex `op` once more, with other operands; returns what is output t there, -1 when it cannot be. */
int dlb_fold_again(struct fold *f, int op, const int *in, int t);
/* An i64 constant of n elements; n -1: a scalar. */
int dlb_fold_ints(struct fold *f, int op, const int64_t *v, int n);
/* Output k of `op` is tensor t. */
int dlb_fold_bind(struct fold *f, int op, int k, int t, struct dlb_error *err);
/* Dimension `axis` of tensor t, which must not follow the batch; -1 with err. axis is made non-negative. */
int dlb_fold_length(struct fold *f, int op, int t, int64_t *axis, int64_t *length, struct dlb_error *err);
/* The pieces of t along `axis`: of size[i], or (size NULL) of 1, and then, if !keep, without the axis. */
int dlb_fold_split(struct fold *f, int op, int t, int64_t axis, const int64_t *size, int n, bool keep, int *piece,
		   struct dlb_error *err);
/* One tensor of n: joined along an axis that they have, or (new_axis) along one more. -1 with err. */
int dlb_fold_join(struct fold *f, int op, const int *t, int n, int64_t axis, bool new_axis, struct dlb_error *err);

/* bags.c: 1 when the Loop `op` goes over bags of equal length and has become a reduction, 0 when not, -1 with err */
int dlb_fold_bags(struct fold *f, int op, struct dlb_error *err);

/* sequence.c: the row of a type, -1: none */
int dlb_sequence_find(const char *type);
int dlb_sequence_resolve(struct fold *f, int op, int row, struct dlb_error *err);
#endif
