/* What the rewrites share (private to lib/graph): shapes that follow the batch, names, order.
 *
 * Nothing about a shape is known in symbols. A class says the shapes at one batch size; a rewrite asks
 * it at N, 2N and 3N samples and fits mul * n + add through the first two; the third must lie on the line.
 * What does not fit is refused with the vertex's name, rather than guessed. */
#ifndef DLB_GRAPH_REWRITE_H
#define DLB_GRAPH_REWRITE_H
#include "graph/graph.h"

enum { DLB_N_SIZES = 3 };

/* Values known at N, 2N, 3N that are not constants of the graph (their shape follows the batch, say). */
struct dlb_known { const void *(*value)[DLB_N_SIZES]; int n; };

/* The reference batch size N of a graph: its batch, at least 2 (at 1 everything broadcasts). */
int64_t dlb_graph_reference(const struct dlb_graph *g);
int64_t dlb_gcd(int64_t a, int64_t b);		/* neither below 0 */
bool dlb_dim_in_range(struct dlb_dim d);		/* order.c: as dlb_graph_check wants it */
/* Through the values at N and 2N, checked at 3N: true when affine with whole numbers. */
bool dlb_dim_fit(const int64_t at[DLB_N_SIZES], int64_t n, struct dlb_dim *out);
/* io of `op` at size (s + 1) * n, values of `known` included (may be NULL). */
void dlb_graph_known_io(const struct dlb_graph *g, int op, int64_t n, int s, const struct dlb_known *known,
			struct dlb_arena *a, struct dlb_op_io *io);
/* The op is known and has as many operands as its class asks for, all there that must be (runnable.c). */
int dlb_graph_check_arity(const struct dlb_graph *g, int op, struct dlb_error *err);
/* Infers the outputs of `op` and sets their type, layout and dims. */
int dlb_graph_infer(struct dlb_graph *g, int op, int64_t n, const struct dlb_known *known, struct dlb_error *err);
/* As above, for an op that dlb_graph_add_op has just added, at the graph's reference size. */
int dlb_graph_infer_new(struct dlb_graph *g, int op, struct dlb_error *err);
/* Runs the op's kernel over the host values that io->value holds; out[k] is new memory in `a`, NULL for an absent output. (fold.c) */
int dlb_graph_run_op(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_arena *a, void **out, struct dlb_error *err);
/* FLOP and bytes of every op from `first` on, with the part that does not follow the batch. */
void dlb_graph_fill_work(struct dlb_graph *g, int first);

/* Keeps the ops order[0..n) in that order, drops the others and the tensors that nothing refers to any more
 * (fed tensors stay); ids are made anew everywhere. */
void dlb_graph_reorder(struct dlb_graph *g, const int *order, int n);
/* Drops the ops from which no op or tensor of `keep_op` / `root` can be reached. Roots: the outputs, the loss, ops
 * of phase update, and root[0..n_root); with "dead-vertices" switched off every forward op that makes something. */
void dlb_graph_drop_dead(struct dlb_graph *g, const int *root, int n_root);
/* `base`, or base.2, base.3 ...: a name that no op (tensor) has yet; in g's arena. */
const char *dlb_graph_op_name(struct dlb_graph *g, const char *base);
const char *dlb_graph_tensor_name(struct dlb_graph *g, const char *base);
/* What is there gets another name, as from the functions above: they must know of it. */
void dlb_graph_rename_op(struct dlb_graph *g, int op, const char *name);
void dlb_graph_rename_tensor(struct dlb_graph *g, int t, const char *name);
void dlb_graph_forget_names(struct dlb_graph *g);	/* ops or tensors have gone */
/* Every reader of tensor `from` (the outputs of the graph too, if asked) reads `to` instead. */
void dlb_graph_replace(struct dlb_graph *g, int from, int to, bool outputs_too);
bool dlb_graph_is_output(const struct dlb_graph *g, int t);
/* A constant with its data copied into g's arena; value_mul may be NULL. */
int dlb_graph_add_constant(struct dlb_graph *g, const char *base, const struct dlb_desc *d, const void *data,
			   const int64_t *value_mul);
/* One forward op with one output, inferred; returns the output's tensor id, -1 with err. */
int dlb_graph_add_forward(struct dlb_graph *g, const char *base, const char *type, const char *domain, const int *in,
			  int n_in, const struct dlb_attr *attr, int n_attr, struct dlb_error *err);
/* Where state lives: a weight with its update op (without one: its first reader), a buffer with the op that
 * writes it. */
void dlb_graph_set_homes(struct dlb_graph *g);
/* Channels-last and plain are the same bytes: fewer than 3 dims, one channel, or one pixel (at every size). */
bool dlb_layouts_coincide(const struct dlb_tensor *t);
#endif
