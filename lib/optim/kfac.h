/* K-FAC (Martens, Grosse, 2015): the gradient of a dense layer, [dW db] with outputs as rows, becomes
 *
 *     (G + damping I)^-1 [dW db] (A + damping I)^-1,    A = E[a a^T],  G = E[g g^T]
 *
 * a: the layer's input with a 1 for the bias; g: the gradient of one term of the loss w.r.t. the layer's
 * output. The result is then applied as a gradient. E is over the whole batch of the step, all
 * micro-batches and replicas. A layer has R rows: samples, tokens, or positions of a convolution's output,
 * with the patch read there as a. The loss is the mean of N terms (one per label, else one per sample), so
 * g is N times the dy of the backward pass:
 *
 *     A = 1/R sum a a^T,   G = N sum dy dy^T,   both over all R rows
 *
 * For a convolution A (x) G is KFC's approximation, Omega (x) Gamma with spatially uncorrelated derivatives
 * (Grosse and Martens, ICML 2016, eq. 24, 25, 33): Omega is a sum over positions, not a mean, and Gamma a
 * mean, not a sum; the product is the same. Whether Omega or Gamma is divided affects only the damping. With
 * 1 for the bias in A, as in a dense layer, one damping suits both kinds. For tokens it is "K-FAC expand" of
 * Eschenhagen et al. (NeurIPS 2023). A and G are running averages that start at I, and are inverted every few
 * steps. (If they start at the first step's moments, a rate of 0.02 with damping 0.01 diverges on the digits;
 * so does momentum 0.9, except with damping 0.1.)
 *
 * Groups of a convolution are separate layers, each with its channels and its rows of the weight: a pair of
 * factors per group, as in Dangel's einconv (Convolutions and More as Einsum, NeurIPS 2024). If several ops
 * share a weight (and bias), their rows together are one layer's: R and both sums are over all their rows. So
 * products between different uses are neglected, as those between tokens are ("expand" again; for a recurrent
 * weight the independent steps of Martens, Ba and Johnson, ICLR 2018). A layer whose batch is split into
 * shards therefore equals the whole layer.
 *
 * Supported layers: Gemm (alpha, beta 1, input not transposed); MatMul by a matrix, with or without an Add of
 * a bias; Conv with any groups, stride, padding and dilation. They are f32 or f64; the weight is read only by
 * ops of one such kind, at most 32, with equal shape and bias. (So an embedding that is also the head's
 * matrix is not supported.) All other parameters are updated as by sgd.
 *
 * K-FAC is part of the graph. The update of such a weight reads a and g of each use besides its gradient
 * (dlb_kfac_bind), so they are sent to its node like any operand (input data are read there, as on every node
 * that needs them). For each micro-batch A and G are summed into state, as gradients are (ACCUMULATE); each
 * use has its own sum, so their order does not matter. Before the first update of the layer, PRECONDITION
 * (plan/program.h) turns the sums of dW and db into the gradient to apply. lib/exec/kfac.c holds sums,
 * averages and inverses. */
#ifndef DLB_OPTIM_KFAC_H
#define DLB_OPTIM_KFAC_H
#include "graph/graph.h"
#include "tensor/kfac.h"

enum { DLB_KFAC_A, DLB_KFAC_G, DLB_KFAC_FACTORS };
enum { DLB_KFAC_MOST_USES = 32 };
extern const char *const dlb_kfac_names[DLB_KFAC_FACTORS];	/* "A", "G" */

struct dlb_kfac_use {
	int op;				/* forward */
	int x[DLB_KFAC_FACTORS];	/* tensors: input of the op, gradient of its output */
};
struct dlb_kfac_layer {
	struct dlb_kfac_use use[DLB_KFAC_MOST_USES]; int n_uses;	/* in op order */
	int update, bias_update;	/* bias_update -1: no bias */
	int64_t n[DLB_KFAC_FACTORS];	/* order of A (with the bias) and of G, per group */
	int groups;			/* of a convolution; otherwise 1 */
	bool by_input;			/* the weight is stored as (inputs, outputs) */
	bool conv;
};
/* The K-FAC layers of a training graph, bound or not: *n of them; returns new. */
struct dlb_kfac_layer *dlb_kfac_layers(const struct dlb_graph *g, int *n);
/* Adds a and g to the operands of the layers' updates. Ids are unchanged. A second call has no effect. */
void dlb_kfac_bind(struct dlb_graph *g);
/* True if operand k of an op is an update's input beyond weight and gradient: its second moments are
 * summed. */
static inline bool dlb_kfac_operand(const struct dlb_op *o, int k)
{
	return o->phase == DLB_UPDATE && k >= 2;
}
/* The number, from 0, that the tensor has among these operands of the update: 2 u + DLB_KFAC_A for the input
 * of use u. -1: it is none of them. */
int dlb_kfac_moment_of(const struct dlb_graph *g, int update, int tensor);
static inline int dlb_kfac_moments(const struct dlb_op *o)
{
	return o->phase == DLB_UPDATE && o->n_in > 2 ? o->n_in - 2 : 0;
}
/* In a bound graph: the update of the weight of the layer whose weight or bias
 * `update` updates; -1: no layer. */
int dlb_kfac_layer_of(const struct dlb_graph *g, int update);
/* The layer of a weight's update in a bound graph. */
struct dlb_kfac_layer dlb_kfac_layer_at(const struct dlb_graph *g, int update);
/* Why the weight of an update is updated by sgd; NULL: it is not, or it is no matrix (a
 * bias, a normalization's scale). */
const char *dlb_kfac_left(const struct dlb_graph *g, int update);

/* At n samples: rows of one use, and of all uses; terms of the loss; the vectors of moment k. */
int64_t dlb_kfac_use_rows(const struct dlb_graph *g, const struct dlb_kfac_layer *l, int use, int64_t n);
int64_t dlb_kfac_rows(const struct dlb_graph *g, const struct dlb_kfac_layer *l, int64_t n);
int64_t dlb_kfac_terms(const struct dlb_graph *g, int64_t n);
struct dlb_kfac_vectors dlb_kfac_vectors(const struct dlb_graph *g, const struct dlb_kfac_layer *l, int k,
					 int64_t n);

/* State of a layer in bytes: for each factor a sum per use, the average and the inverse. */
double dlb_kfac_state_bytes(const struct dlb_graph *g, int update);
/* FLOP of summing moment k over `rows` rows; FLOP of preconditioning per step, with an inversion every
 * inverse_every steps (factored: from a Cholesky factor). Inversion is in double, which counts twice. */
double dlb_kfac_sum_flop(const struct dlb_kfac_layer *l, int k, double rows);
double dlb_kfac_apply_flop(const struct dlb_kfac_layer *l, double inverse_every, bool factored);
/* Binds K-FAC's operands if `rule` is K-FAC. -1 with err: the model has no supported layer. */
int dlb_optimizer_bind(struct dlb_graph *g, int rule, struct dlb_error *err);
#endif
