/* The role of an initializer: what the vertices that read it use it for (private to lib/graph).
 *
 * Exporters turn every scalar and table of a model into an initializer, so being one does not make it a parameter. The
 * role does: operand of a product, convolution, recurrent cell or embedding lookup, directly or through vertices of
 * constants alone (Transpose, Reshape, Cast, Slice, Concat ...); scale and bias of a normalization, spelt out or not; the
 * slope of PRelu; what is added to a product's output along its channels. A scalar, a mask, a table of positions, an
 * epsilon and the like have no such role.
 *
 *     struct dlb_roles r;
 *     dlb_roles_init(&r, g);
 *     if (dlb_role_find(&r, t, &why)) ... why is "operand 1 of Gemm 'fc'"
 *     dlb_roles_release(&r);
 *
 * The graph is as read: sorted, with no shapes but those of initializers. */
#ifndef DLB_GRAPH_ROLE_H
#define DLB_GRAPH_ROLE_H
#include "graph/graph.h"

/* What a tensor is computed from. */
enum { DLB_FROM_SAMPLES = 1,		/* values of the model's inputs */
       DLB_FROM_REALS = 2,		/* floats of the samples, or of a table that they look up: not indices alone */
       DLB_FROM_INITIALIZER = 4 };	/* a float initializer of more than one element */

struct dlb_roles {
	struct dlb_graph *g;		/* indexed; `why` texts go into its arena */
	unsigned char *from;		/* [tensor] */
	int *visited, visit;		/* [tensor] the search that has been here */
};
void dlb_roles_init(struct dlb_roles *r, struct dlb_graph *g);
void dlb_roles_release(struct dlb_roles *r);

/* A float tensor that may be a parameter: an initializer, or what a ConstantOfShape of floats makes. */
bool dlb_role_is_candidate(const struct dlb_graph *g, int t);
int64_t dlb_role_count(const struct dlb_graph *g, int t);	/* elements of a candidate; -1: not known yet */
/* Does candidate t have the role of a parameter? *why says which, or why not. */
bool dlb_role_find(struct dlb_roles *r, int t, const char **why);
/* Is t applied to the samples as they come, as the mean and deviation that normalize them are? At most one dimension > 1. */
bool dlb_role_is_preprocessing(struct dlb_roles *r, int t);
/* Is t one value all over and read by an InstanceNormalization after a Reshape that stands for a GroupNormalization? Its
 * scale and bias are ones and zeros; those of the GroupNormalization come after, perhaps after another Reshape. */
bool dlb_role_is_spelt_group_norm(const struct dlb_roles *r, const struct dlb_op *o, int t);
/* Is t added to attention's scores, which Softmax takes, and to nothing else, as a mask is? */
bool dlb_role_is_mask_of_scores(struct dlb_roles *r, int t);
/* Everything that is made of t ends in Sin and Cos: frequencies of a rotary or sinusoidal embedding. */
bool dlb_role_is_frequency(struct dlb_roles *r, int t);

/* What the last word of a parameter's place in the module says: "fc.bias", "r.bias_hh_l0", "attn.in_proj_weight". */
enum dlb_word { DLB_WORD_NONE, DLB_WORD_WEIGHT, DLB_WORD_BIAS };
enum dlb_word dlb_role_word(const char *name);

/* derived.c: leading dimensions along which constant t repeats itself are put in place by an Expand, and t becomes one row. */
int dlb_graph_collapse(struct dlb_graph *g, int t, struct dlb_error *err);

/* values.c: what the values of a candidate say */
bool dlb_values_uniform(const struct dlb_tensor *t);		/* one value all over */
bool dlb_values_mask(const struct dlb_tensor *t);		/* two values at most, one of them 0 */
bool dlb_values_boundless(const struct dlb_tensor *t);		/* one is infinite, or as large as masks have in its place */
/* Along some dimension every column is a sinusoid: v[i + 1] + v[i - 1] = 2 cos(w) v[i] with a w of the column's own. */
bool dlb_values_sinusoid(const struct dlb_tensor *t);
#endif
