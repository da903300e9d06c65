/* Pattern matching in the forward graph, for rewrites that replace several ops by one (private to lib/graph).
 *
 * A pattern is matched from its last op, the root, backwards through the producers of its operands. Ops to be
 * removed are recorded on the way; dlb_match_closed then tells whether no other op reads them, and
 * dlb_match_fuse turns the root into the fused op. The root keeps its place in the order and its output
 * tensors, so readers and names stay.
 *
 *     struct dlb_match m = { .g = g, .root = i };
 *     int e = dlb_match_op(&m, g->op[i].in[0], "Exp");
 *     if (e >= 0 && dlb_match_closed(&m))
 *             dlb_match_fuse(&m, DLB_SPEC("Neg", g->op[e].in[0]), -1, &count, err);
 *
 * Recorded ops lose their operands and outputs; dlb_graph_drop_dead removes them at
 * the end of the rewrite. */
#ifndef DLB_GRAPH_PATTERN_H
#define DLB_GRAPH_PATTERN_H
#include "graph/rewrite.h"

enum { DLB_MATCH_MAX = 24 };
struct dlb_match {
	struct dlb_graph *g;
	int root;
	int op[DLB_MATCH_MAX], n;	/* ops to be removed, without the root */
};

/* Is op i (-1: none) a forward op of this type of ONNX's own domain? */
bool dlb_is_op(const struct dlb_graph *g, int i, const char *type);
/* Is op i one of Reshape, Squeeze, Unsqueeze, Flatten? (pattern_views.c) */
bool dlb_is_view(const struct dlb_graph *g, int i);
/* Does op i keep the indices [*first, *first + *count) of its operand 0 along *axis, which does not follow
 * the batch? It is a Slice with constant operands, one axis and step 1, or a Gather of one constant index. */
bool dlb_is_range(const struct dlb_graph *g, int i, int *axis, int64_t *first, int64_t *count);
/* c * N^e, N the batch: a dimension (e is 0 or 1), or a product of dimensions. dlb_size_of returns false if
 * the dimension is 0, or has both mul and add. (pattern_views.c) */
struct dlb_size { int64_t c; int e; };
bool dlb_size_of(struct dlb_dim d, struct dlb_size *s);
struct dlb_dim dlb_size_dim(struct dlb_size s);		/* e must be 0 or 1 */
bool dlb_size_divides(struct dlb_size a, struct dlb_size b);
struct dlb_size dlb_size_quotient(struct dlb_size b, struct dlb_size a);	/* b / a */
/* The op of `type` that makes tensor t; recorded for removal. -1: another op makes it,
 * or too many are recorded. */
int dlb_match_op(struct dlb_match *m, int t, const char *type);
/* The producer, of `type`, of one of op i's two operands (recorded); *other is the other
 * operand. -1: neither matches. */
int dlb_match_operand(struct dlb_match *m, int i, const char *type, int *other);
/* The operand of op i that is not `t`; -1 if it does not have two operands of which one is t. */
int dlb_match_other(const struct dlb_match *m, int i, int t);
/* Is t a float constant of one element? *v is its value. */
bool dlb_match_scalar(const struct dlb_graph *g, int t, double *v);
/* Is one operand of op i a scalar within 1e-6 (relative) of v? *other is the other operand. */
bool dlb_match_scalar_operand(const struct dlb_match *m, int i, double v, int *other);
bool dlb_match_near(double a, double b);
/* Do both tensors have the same shape, at every batch size? */
bool dlb_match_same_shape(const struct dlb_graph *g, int a, int b);
/* Does t have one reader, and is it neither an output nor the loss? False for -1. */
bool dlb_match_read_once(const struct dlb_graph *g, int t);
/* Do only the root and recorded ops read outputs of recorded ops, and is none of these outputs an output of
 * the graph? */
bool dlb_match_closed(const struct dlb_match *m);
/* The root takes type, domain, operands and attributes of s, keeps only its first output, and is inferred.
 * `name_of`: the op whose name the root takes (such as a removed convolution); -1: the root keeps its own.
 * Adds one to *count. -1 with err. */
int dlb_match_fuse(struct dlb_match *m, const struct dlb_op_spec *s, int name_of, int64_t *count,
		   struct dlb_error *err);
/* A constant with these dimensions, for a Reshape called `name`. */
int dlb_match_shape(struct dlb_graph *g, const char *name, const struct dlb_dim *dim, int n);
/* Ops [first, first + n) were added at the end of the graph for an existing op. dlb_graph_place_added moves
 * the ops of added[i] before op i, for each of the n_ops ops that existed before. */
struct dlb_added { int first, n; };
void dlb_graph_place_added(struct dlb_graph *g, const struct dlb_added *added, int n_ops);
#endif
