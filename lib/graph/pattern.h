/* Matching pieces of the forward graph, for the rewrites that put one op in place of several (private to lib/graph).
 *
 * A pattern is found from its last op, the root, backwards through the producers of its operands. What is to vanish
 * is noted on the way; dlb_match_closed then says whether nobody else reads it, and dlb_match_fuse makes the root the
 * fused op. The root keeps its place in the order and its output tensors, so readers and names stay.
 *
 *     struct dlb_match m = { .g = g, .root = i };
 *     int e = dlb_match_op(&m, g->op[i].in[0], "Exp");
 *     if (e >= 0 && dlb_match_closed(&m))
 *             dlb_match_fuse(&m, "ExpNeg", "dlb", &g->op[e].in[0], 1, NULL, 0, -1, err);
 *
 * Ops swallowed lose their operands and outputs, and go with dlb_graph_drop_dead when the rewrite is through. */
#ifndef DLB_GRAPH_PATTERN_H
#define DLB_GRAPH_PATTERN_H
#include "graph/rewrite.h"

enum { DLB_MATCH_MAX = 24 };
struct dlb_match {
	struct dlb_graph *g;
	int root;
	int op[DLB_MATCH_MAX], n;	/* to be swallowed; the root is not among them */
};

/* Is op i a forward op of ONNX's own type? -1 is none. */
bool dlb_is_op(const struct dlb_graph *g, int i, const char *type);
/* Is op i one of Reshape, Squeeze, Unsqueeze, Flatten? (pattern_views.c) */
bool dlb_is_view(const struct dlb_graph *g, int i);
/* Op i keeps the indices [*first, *first + *count) of its operand 0 along *axis, which does not follow the batch: a Slice with
 * constant operands, one axis and step 1, or a Gather of one constant index. */
bool dlb_is_range(const struct dlb_graph *g, int i, int *axis, int64_t *first, int64_t *count);
/* c * N^e, N the batch: a dimension (e is 0 or 1), or a product of dimensions. false: the dimension is 0, or mul and add are
 * both in it. (pattern_views.c) */
struct dlb_size { int64_t c; int e; };
bool dlb_size_of(struct dlb_dim d, struct dlb_size *s);
struct dlb_dim dlb_size_dim(struct dlb_size s);		/* e is 0 or 1 */
bool dlb_size_divides(struct dlb_size a, struct dlb_size b);
struct dlb_size dlb_size_quotient(struct dlb_size b, struct dlb_size a);	/* b / a */
/* The op of `type` that makes tensor t, noted as one to be swallowed; -1: made by another, or too many. */
int dlb_match_op(struct dlb_match *m, int t, const char *type);
/* Of op i's two operands one is made by an op of `type` (noted); *other is the other operand. -1: neither. */
int dlb_match_operand(struct dlb_match *m, int i, const char *type, int *other);
/* Operand of op i that is not `t`; -1 when it has not two operands, of which one is t. */
int dlb_match_other(const struct dlb_match *m, int i, int t);
/* A float constant of one value, on one element. */
bool dlb_match_scalar(const struct dlb_graph *g, int t, double *v);
/* One operand of op i is a scalar within 1e-6 (relative) of v; *other is the other operand. */
bool dlb_match_scalar_operand(const struct dlb_match *m, int i, double v, int *other);
bool dlb_match_near(double a, double b);
/* Both tensors have one shape, at every batch size. */
bool dlb_match_same_shape(const struct dlb_graph *g, int a, int b);
/* One op reads t, which is neither an output nor the loss; false for -1. */
bool dlb_match_read_once(const struct dlb_graph *g, int t);
/* Nothing but the root and the swallowed read what the swallowed make, and none of it is an output. */
bool dlb_match_closed(const struct dlb_match *m);
/* The root becomes an op of this type over these operands and loses all outputs but the first; infers it. `name_of`: the
 * op whose name it takes (the swallowed convolution's, say), -1: its own. Counts one in *count. */
int dlb_match_fuse(struct dlb_match *m, const char *type, const char *domain, const int *in, int n_in,
		   const struct dlb_attr *attr, int n_attr, int name_of, int64_t *count, struct dlb_error *err);
/* The operand of a Reshape to these dimensions: a constant; `name` is that of the Reshape. */
int dlb_match_shape(struct dlb_graph *g, const char *name, const struct dlb_dim *dim, int n);
/* Ops [first, first + n) were added at the end for one of the ops that were there: place_added puts those of added[i] in
 * front of op i, for the n_ops that were there. */
struct dlb_added { int first, n; };
void dlb_graph_place_added(struct dlb_graph *g, const struct dlb_added *added, int n_ops);
#endif
