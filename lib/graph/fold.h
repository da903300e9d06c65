/* Folding: declarations shared by its files (private to lib/graph). fold.c visits the vertices; batch_at.c
 * and batch_follow.c find the batch that a model was exported with; ragged.c bounds lengths that depend on
 * values; structure.c replaces If, Loop and Scan; sequence.c replaces sequences of tensors.
 *
 * A sequence is a list of tensor ids; it exists only while folding. stands_for[t] is the tensor that vertices
 * visited later read instead of t, the output of an Identity or If. */
#ifndef DLB_GRAPH_FOLD_H
#define DLB_GRAPH_FOLD_H
#include "graph/name_map.h"
#include "graph/rewrite.h"

struct dlb_sequence { int n; int *item; };	/* tensor ids */

/* Marks a ragged dimension: dimension `dim` of a tensor or, with `size`, entry `dim` of a shape, has
 * `times` rows for each non-zero value of tensor `mask`; mask -1: none. If `coordinate` is not -1, the
 * tensor holds indices of rows, the first being the row's position along dimension `coordinate` of
 * tensor `picked`. (ragged.c) */
struct dlb_ragged { int mask; int64_t times; int dim; bool size; int coordinate, picked; };
/* bound on the rows that `mask` selects: its elements / divisor */
struct dlb_selection { int mask; int64_t divisor; };
/* tensor `made` is `from` with `value` in place of padding */
struct dlb_unpadded { int from; double value; int made; };

struct fold {
	struct dlb_graph *g;
	struct dlb_backend *be;
	struct dlb_arena a;			/* temporary values */
	struct dlb_known_values known;
	bool *varies;				/* [tensor] its values are known, and differ between sizes */
	/* [tensor] depends differentiably on a trainable initializer */
	bool *trained;
	int64_t n, wired;			/* reference batch N; the fixed batch that the model
						 * was exported with, 0: none */
	int64_t (*outer)[DLB_MAX_DIMS];		/* [tensor] dimension k is outer * batch * inner; 0: unknown,
						 * or without batch (batch_at.c) */
	int *made_by;				/* [tensor] the op that computes it, -1: none */
	struct dlb_batch_made *made;		/* tensors that batch_follow.c rebuilt */
	int n_made, cap_made;
	int *stands_for;			/* [tensor] the tensor to read instead; -1: itself */
	struct dlb_sequence **sequence;		/* [tensor] its items; NULL: no sequence */
	struct dlb_ragged *ragged;		/* [tensor] */
	struct dlb_selection *selection;
	int n_selections, cap_selections;
	struct dlb_unpadded *unpadded;
	int n_unpadded, cap_unpadded;
	int n_padded, first_padded, selected_rows;	/* NonZero vertices that got a bound, the
							 * first one, and its new output */
	int cap;				/* length of the tables indexed by tensor */
	int *order, n_order, cap_order;		/* ops in the order of their visits, which is topological */
	size_t folded_bytes;
	bool resolved;				/* control flow or sequences were replaced */
	int64_t spent;				/* see dlb_fold_spend */
	struct dlb_name_map op_names, tensor_names;
	/* how many of the graph's names are in the maps */
	int n_renamed, n_op_names, n_tensor_names;
};

/* fold.c */
int dlb_fold_visit(struct fold *f, int op, struct dlb_error *err);
void dlb_fold_room(struct fold *f);			/* grows the tables to the size of the graph */
int dlb_fold_actual(const struct fold *f, int t);
bool dlb_fold_is_known(struct fold *f, int t);
const void *dlb_fold_value(struct fold *f, int t, int size);
void dlb_fold_constant(struct dlb_graph *g, int t);	/* t now has data or a fill, and no producer: makes it
							 * a constant */

/* batch_at.c. dlb_batch_decide, before inference: replaces shape operands that contain the model's batch by
 * ones that follow it. dlb_batch_place, after inference: finds the batch in the outputs; -1 with err if
 * samples would be interleaved. */
void dlb_batch_decide(struct fold *f, int op);
int dlb_batch_place(struct fold *f, int op, struct dlb_error *err);
/* The product of all dimensions of t before the batch, including `outer` of *dim, the only dimension that
 * holds the batch; -1: unknown, or none. */
int64_t dlb_batch_front(const struct fold *f, int t, int *dim);
/* The entry of shape v that holds the batch when t, which has it in dimension dim after `front`, is reshaped
 * to v. -1: none. *outer: that entry's `outer`. */
int dlb_batch_entry(const struct fold *f, int t, int dim, int64_t front, const int64_t *v, int n,
		    int64_t *outer);

/* batch_follow.c. dlb_batch_indices, before inference: makes indices of one per sample follow the batch.
 * dlb_batch_unwire, after inference failed with err: makes constants that contain the model's batch follow
 * it; 0 when the vertex can then be inferred, else -1, and err names such a constant. */
void dlb_batch_indices(struct fold *f, int op);
int dlb_batch_unwire(struct fold *f, int op, struct dlb_error *err);
/* Adds a hint to err: how to export with a dynamic batch. */
void dlb_batch_hint(const struct fold *f, struct dlb_error *err);

/* A copy of tensor t, computed from constants alone, whose dimension k follows the batch; -1: impossible. */
int dlb_batch_made(struct fold *f, int op, int t, int k);

/* ragged.c. dlb_ragged_bound, before inference: 1 if it replaced the vertex, 0 if not, -1 with err.
 * dlb_ragged_pass, after inference (ragged_pass.c): marks ragged outputs; 1 if it replaced the vertex.
 * dlb_ragged_end: refuses ragged outputs of the model. */
int dlb_ragged_bound(struct fold *f, int op, struct dlb_error *err);
int dlb_ragged_pass(struct fold *f, int op, struct dlb_error *err);
int dlb_ragged_end(struct fold *f, struct dlb_error *err);
/* Refuses the vertex because it would read padding of tensor t; `why` is part of the message. Returns -1. */
int dlb_ragged_refuse_at(struct fold *f, int op, int t, const char *why, struct dlb_error *err);
/* Returns -1; replaces err if ragged operands are a better cause. */
int dlb_ragged_blame(struct fold *f, int op, struct dlb_error *err);

/* structure.c. dlb_fold_structure: replaces a vertex of control flow or sequences. dlb_fold_end_structure:
 * sorts the new vertices and frees the bodies; -1 with err if an output of the model is a sequence. */
int dlb_fold_structure(struct fold *f, int op, struct dlb_error *err);
int dlb_fold_end_structure(struct fold *f, struct dlb_error *err);
/* Counts `n` vertices made by unrolling; -1 with err when the model has become too large. */
int dlb_fold_spend(struct fold *f, int op, int64_t n, struct dlb_error *err);
/* The integer or truth value of tensor t, which must not follow the batch, for vertex `op`; -1 with err. */
int dlb_fold_decide(struct fold *f, int op, int t, const char *what, int64_t *v, struct dlb_error *err);
/* Adds a vertex in place of `op` and visits it; its name and domain follow from the type. Its n_out new
 * outputs (0: one) are stored in out[] (may be NULL). Returns output 0, -1 with err. */
int dlb_fold_emit(struct fold *f, int op, const struct dlb_op_spec *s, int *out, struct dlb_error *err);
/* Adds a copy of vertex `op` with other operands; returns the copy's output that corresponds to output t, -1
 * if the copy cannot be inferred. */
int dlb_fold_again(struct fold *f, int op, const int *in, int t);
/* An i64 constant of n elements; n -1: a scalar. */
int dlb_fold_ints(struct fold *f, int op, const int64_t *v, int n);
/* Replaces output k of `op` by tensor t. */
int dlb_fold_bind(struct fold *f, int op, int k, int t, struct dlb_error *err);
/* Length of dimension `axis` of tensor t, which must not follow the batch; -1 with err.
 * Makes axis non-negative. */
int dlb_fold_length(struct fold *f, int op, int t, int64_t *axis, int64_t *length, struct dlb_error *err);
/* Splits t along `axis` into n pieces of sizes size[i]; size NULL: each of size 1. `keep`: pieces keep the
 * axis. */
struct dlb_fold_pieces { int64_t axis; const int64_t *size; int n; bool keep; };
int dlb_fold_split(struct fold *f, int op, int t, const struct dlb_fold_pieces *p, int *piece,
		   struct dlb_error *err);
/* Concatenates n tensors along `axis`, or stacks them along a new one (new_axis). Returns
 * the result, -1 with err. */
int dlb_fold_join(struct fold *f, int op, const int *t, int n, int64_t axis, bool new_axis,
		  struct dlb_error *err);

/* bags.c: 1 if Loop `op` was a reduction over bags of equal length and was replaced, 0 if not, -1 with err */
int dlb_fold_bags(struct fold *f, int op, struct dlb_error *err);

/* sequence.c: the table row of an op type, -1: none */
int dlb_sequence_find(const char *type);
int dlb_sequence_resolve(struct fold *f, int op, int row, struct dlb_error *err);
#endif
