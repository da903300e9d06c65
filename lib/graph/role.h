/* The role of an initializer: how the vertices that read it use it (private to lib/graph).
 *
 * Exporters turn every scalar and table of a model into an initializer, so not every initializer is a
 * parameter. Roles of parameters are: operand of a product, convolution, recurrent cell or embedding lookup,
 * directly or through vertices of constants alone (Transpose, Reshape, Cast, Slice, Concat ...); scale or
 * bias of a normalization, also a decomposed one; slope of PRelu; a vector added to a product's output along
 * its channels. A scalar, mask, position table, epsilon and the like have no such role.
 *
 *     struct dlb_roles r;
 *     dlb_roles_init(&r, g);
 *     if (dlb_role_find(&r, t, &why)) ... why is "operand 1 of Gemm 'fc'"
 *     dlb_roles_release(&r);
 *
 * The graph is as read: sorted, and only the shapes of initializers are known. */
#ifndef DLB_GRAPH_ROLE_H
#define DLB_GRAPH_ROLE_H
#include "graph/graph.h"

/* The sources that a tensor is computed from. */
enum { DLB_FROM_SAMPLES = 1,		/* values of the model's inputs */
       /* floats of the samples, or looked up by them in a table; not indices alone */
       DLB_FROM_REALS = 2,
       DLB_FROM_INITIALIZER = 4 };	/* a float initializer of more than one element */

struct dlb_roles {
	struct dlb_graph *g;		/* indexed; `why` texts go into its arena */
	unsigned char *from;		/* [tensor] its sources, DLB_FROM_... */
	int *visited, visit;		/* visited: [tensor] the last search that visited it; visit: the
					 * current search */
};
void dlb_roles_init(struct dlb_roles *r, struct dlb_graph *g);
void dlb_roles_release(struct dlb_roles *r);

/* May float tensor t be a parameter: is it an initializer, or made by a ConstantOfShape of floats? */
bool dlb_role_is_candidate(const struct dlb_graph *g, int t);
/* elements of a candidate; -1: not known yet */
int64_t dlb_role_count(const struct dlb_graph *g, int t);
/* Does candidate t have the role of a parameter? *why: the role, or the reason why it has none. */
bool dlb_role_find(struct dlb_roles *r, int t, const char **why);
/* Is t applied to the raw samples, like the mean and deviation that normalize them? It has at
 * most one dimension > 1. */
bool dlb_role_is_preprocessing(struct dlb_roles *r, int t);
/* Is t uniform and read by InstanceNormalization o after a Reshape, as part of a decomposed
 * GroupNormalization? The scale and bias of that vertex are ones and zeros; those of the GroupNormalization
 * are applied later, perhaps after a Reshape. */
bool dlb_role_is_decomposed_group_norm(const struct dlb_roles *r, const struct dlb_op *o, int t);
/* Is t only added to attention's scores before Softmax, like a mask? */
bool dlb_role_is_mask_of_scores(struct dlb_roles *r, int t);
/* Is t a mask: a matrix of zero and one other number, or with numbers beyond 1e30, that no vertex reads as a
 * parameter? */
bool dlb_role_is_mask(struct dlb_roles *r, int t);
/* Are all tensors computed from t used by Sin and Cos only, like the frequencies of a rotary
 * or sinusoidal embedding? */
bool dlb_role_is_frequency(struct dlb_roles *r, int t);

/* The kind of parameter by the last word of its name: "fc.bias", "r.bias_hh_l0", "attn.in_proj_weight". */
enum dlb_word { DLB_WORD_NONE, DLB_WORD_WEIGHT, DLB_WORD_BIAS };
enum dlb_word dlb_role_word(const char *name);

/* derived.c: leading dimensions along which constant t repeats are replaced by an
 * Expand; t becomes one row. */
int dlb_graph_collapse(struct dlb_graph *g, int t, struct dlb_error *err);

/* values.c: properties of the values of a candidate */
bool dlb_values_uniform(const struct dlb_tensor *t);		/* all elements are equal */
bool dlb_values_mask(const struct dlb_tensor *t);		/* at most two values, one of them 0 */
/* an element is infinite, or as large as the numbers that masks use for infinity */
bool dlb_values_boundless(const struct dlb_tensor *t);
/* Along some dimension every column is a sinusoid: v[i + 1] + v[i - 1] = 2 cos(w) v[i],
 * each column with its own w. */
bool dlb_values_sinusoid(const struct dlb_tensor *t);
/* Coordinates of a grid: of shape (rows, columns, 2), perhaps after dimensions of 1, one number of each point
 * depends on its row alone and the other on its column alone. */
bool dlb_values_grid(const struct dlb_tensor *t);
#endif
