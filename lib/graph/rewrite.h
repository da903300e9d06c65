/* Functions shared by the rewrites (private to lib/graph): shapes that follow the batch, names, order.
 *
 * Shapes are not symbolic. An op's class infers shapes for one batch size; a rewrite infers at N, 2N and 3N
 * samples and fits mul * n + add through the first two sizes; the third must agree. A shape that is not
 * affine is refused with the vertex's name, not guessed. */
#ifndef DLB_GRAPH_REWRITE_H
#define DLB_GRAPH_REWRITE_H
#include "graph/graph.h"

enum { DLB_N_SIZES = 3 };

/* Values known at N, 2N and 3N samples that are no constants of the graph, such as those whose
 * shape follows the batch. */
struct dlb_known_values { const void *(*value)[DLB_N_SIZES]; int n; };

/* The reference batch N of a graph: its batch, but at least 2 (at 1 every dimension broadcasts). */
int64_t dlb_graph_reference(const struct dlb_graph *g);
int64_t dlb_gcd(int64_t a, int64_t b);		/* arguments are not negative */
/* order.c: is d in the range that dlb_graph_check allows? */
bool dlb_dim_in_range(struct dlb_dim d);
/* Fits *out through the values at N and 2N and checks it at 3N; false if they are
 * not affine with integers. */
bool dlb_dim_fit(const int64_t at[DLB_N_SIZES], int64_t n, struct dlb_dim *out);
/* Fills io of `op` at (s + 1) * n samples, including the values of `known` (may be NULL). */
void dlb_graph_known_io(const struct dlb_graph *g, int op, int64_t n, int s,
			const struct dlb_known_values *known, struct dlb_arena *a, struct dlb_op_io *io);
/* Checks that the op is known, has as many operands as its class allows, and has all
 * compulsory ones (runnable.c). */
int dlb_graph_check_arity(const struct dlb_graph *g, int op, struct dlb_error *err);
/* Infers the outputs of `op` and sets their type, layout and dims; -1 with err. */
int dlb_graph_infer(struct dlb_graph *g, int op, int64_t n, const struct dlb_known_values *known,
		    struct dlb_error *err);
/* Like dlb_graph_infer, for a new op (dlb_graph_add_op), at the graph's reference batch. */
int dlb_graph_infer_new(struct dlb_graph *g, int op, struct dlb_error *err);
/* Runs the op's kernel on the host values in io->value; out[k] is new memory in `a`, NULL for an
 * absent output. (fold.c) */
int dlb_graph_run_op(struct dlb_backend *be, const struct dlb_op_io *io, struct dlb_arena *a, void **out,
		     struct dlb_error *err);
/* Sets FLOP and bytes of every op from `first` on, and their parts that do not follow the batch. */
void dlb_graph_fill_work(struct dlb_graph *g, int first);

/* Keeps the ops order[0..n) in that order; drops other ops, and tensors without references (fed tensors
 * stay). Renumbers all ids. */
void dlb_graph_reorder(struct dlb_graph *g, const int *order, int n);
/* Drops ops from which no root can be reached. Roots: the outputs, the loss, update ops, and root[0..n_root);
 * with "dead-vertices" switched off also every forward op with an output. */
void dlb_graph_drop_dead(struct dlb_graph *g, const int *root, int n_root);
/* `base`, or base.2, base.3 ...: a name that no op (tensor) has; in g's arena. */
const char *dlb_graph_op_name(struct dlb_graph *g, const char *base);
const char *dlb_graph_tensor_name(struct dlb_graph *g, const char *base);
/* Renames an op or tensor. Names must be changed by these functions, so that dlb_graph_op_name and
 * dlb_graph_tensor_name know them. */
void dlb_graph_rename_op(struct dlb_graph *g, int op, const char *name);
void dlb_graph_rename_tensor(struct dlb_graph *g, int t, const char *name);
void dlb_graph_forget_names(struct dlb_graph *g);	/* to be called after ops or tensors were removed */
/* Makes all readers of tensor `from` (and the graph's outputs, if outputs_too) read `to` instead. */
void dlb_graph_replace(struct dlb_graph *g, int from, int to, bool outputs_too);
bool dlb_graph_is_output(const struct dlb_graph *g, int t);
/* Adds a constant; copies its data into g's arena. data_mul may be NULL. Returns its id. */
int dlb_graph_add_constant(struct dlb_graph *g, const char *base, const struct dlb_desc *d, const void *data,
			   const int64_t *data_mul);
/* Adds and infers a forward op with one output, a new tensor. The op's name is s->name, made unique. Returns
 * the output's id, -1 with err. */
int dlb_graph_add_forward(struct dlb_graph *g, const struct dlb_op_spec *s, struct dlb_error *err);
/* Sets homes: of a weight its update op (without one, its first reader), of a
 * buffer the op that writes it. */
void dlb_graph_set_homes(struct dlb_graph *g);
/* Do channels-last and plain have the same bytes at every batch size? Yes with fewer than 3 dims, one
 * channel, or one pixel. */
bool dlb_layouts_coincide(const struct dlb_tensor *t);
#endif
