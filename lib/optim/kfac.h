/* K-FAC (Martens, Grosse, 2015): the gradient of a dense layer, [dW db] with outputs as rows, becomes
 *
 *     (G + damping I)^-1 [dW db] (A + damping I)^-1,    A = E[a a^T],  G = E[g g^T]
 *
 * a: the layer's input with a 1 for the bias, g: the gradient of one term of the loss w.r.t. its output; what comes out is
 * then applied as a gradient. E is over the step's whole batch, all micro-batches and replicas together. A layer has R rows:
 * samples, tokens, or positions of a convolution's output, whose a is then the patch that it reads there. The loss is the
 * mean of N terms (a label each, else a sample each), so g is N times the dy that backward makes:
 *
 *     A = 1/R sum a a^T,   G = N sum dy dy^T,   both over all R rows
 *
 * For a convolution A (x) G is KFC's approximation, Omega (x) Gamma with spatially uncorrelated derivatives (Grosse and Martens,
 * ICML 2016, eq. 24, 25, 33): Omega is the sum, not the mean over positions, Gamma the mean, not the sum, and the product
 * is the same. Which of both is divided matters to the damping alone; that 1 stands for the bias in A as in a dense layer
 * keeps one damping right for both kinds. For tokens it is "K-FAC expand" of Eschenhagen et al. (NeurIPS 2023).
 * A and G are running averages that start at I, inverted every few steps. (Starting at the first step's moments, a rate of
 * 0.02 with damping 0.01 diverges on the digits; so does momentum 0.9, which damping 0.1 bears.)
 *
 * Groups of a convolution are layers of their own, each with its channels and its rows of the weight: a pair of factors a
 * group, as in Dangel's einconv (Convolutions and More as Einsum, NeurIPS 2024). Where several ops share a weight (and bias),
 * their rows together are the layer's: R and both sums are over the rows of all, so terms of two different uses are left out
 * as those of two tokens are ("expand" again; for a recurrent weight the independent steps of Martens, Ba and Johnson, ICLR
 * 2018). So is a layer whose batch is split into shards what it is whole.
 *
 * Which layers: Gemm (alpha, beta 1, input not transposed), MatMul by a matrix, with the Add of a bias after it or without,
 * and Conv with any groups, stride, padding and dilation; of f32 or f64, with a weight that is read by ops of one such kind
 * alone, 32 at most, which agree in shape and bias. (An embedding that is the head's matrix too is none.) All other parameters
 * are updated as by sgd.
 *
 * Nothing of it is outside the graph: the update of such a weight reads a and g of each use beside its gradient
 * (dlb_kfac_bind), so they are sent to where it stands like any operand (data are brought there, as everywhere), and of each
 * micro-batch A and G are summed into state as a gradient is (ACCUMULATE), each use for itself, so that it does not matter
 * which comes first. Before the first update of the layer, PRECONDITION (plan/program.h) turns the sums of dW and db into
 * what is applied. lib/exec/kfac.c holds sums, averages and inverses. */
#ifndef DLB_OPTIM_KFAC_H
#define DLB_OPTIM_KFAC_H
#include "graph/graph.h"
#include "tensor/kfac.h"

enum { DLB_KFAC_A, DLB_KFAC_G, DLB_KFAC_FACTORS };
enum { DLB_KFAC_MOST_USES = 32 };
extern const char *const dlb_kfac_names[DLB_KFAC_FACTORS];	/* "A", "G" */

struct dlb_kfac_use {
	int op;				/* forward */
	int x[DLB_KFAC_FACTORS];	/* tensors: the op's input and the gradient of its output */
};
struct dlb_kfac_layer {
	struct dlb_kfac_use use[DLB_KFAC_MOST_USES]; int n_uses;	/* by op */
	int update, bias_update;	/* ops; bias_update -1: no bias */
	int64_t n[DLB_KFAC_FACTORS];	/* order of A (with the bias) and of G, of one group */
	int groups;			/* of a convolution, else 1 */
	bool by_input;			/* the weight lies as (inputs, outputs) */
	bool conv;
};
/* The layers of a training graph, bound or not; returns new, *n of them. */
struct dlb_kfac_layer *dlb_kfac_layers(const struct dlb_graph *g, int *n);
/* Adds a and g to the operands of their updates. Ids stay. Once is enough, twice does no harm. */
void dlb_kfac_bind(struct dlb_graph *g);
/* Operand k of an update beyond weight and gradient: its second moments are summed. */
static inline bool dlb_kfac_operand(const struct dlb_op *o, int k) { return o->phase == DLB_UPDATE && k >= 2; }
/* Which of them tensor t is of that update, counted from 0: use u's input is 2 u + DLB_KFAC_A; -1: none, it is the gradient. */
int dlb_kfac_moment_of(const struct dlb_graph *g, int update, int tensor);
static inline int dlb_kfac_moments(const struct dlb_op *o) { return o->phase == DLB_UPDATE && o->n_in > 2 ? o->n_in - 2 : 0; }
/* Of a bound graph: the update of the weight of the layer whose weight or bias `update` updates; -1: of none. */
int dlb_kfac_layer_of(const struct dlb_graph *g, int update);
/* The layer of a weight's bound update. */
struct dlb_kfac_layer dlb_kfac_layer_at(const struct dlb_graph *g, int update);
/* Why the weight of an update is left to sgd; NULL: it is not, or is no matrix (a bias, a normalization's scale). */
const char *dlb_kfac_left(const struct dlb_graph *g, int update);

/* At n samples: rows of one use, and of all; terms of the loss; the vectors of moment k. */
int64_t dlb_kfac_use_rows(const struct dlb_graph *g, const struct dlb_kfac_layer *l, int use, int64_t n);
int64_t dlb_kfac_rows(const struct dlb_graph *g, const struct dlb_kfac_layer *l, int64_t n);
int64_t dlb_kfac_terms(const struct dlb_graph *g, int64_t n);
struct dlb_kfac_vectors dlb_kfac_vectors(const struct dlb_graph *g, const struct dlb_kfac_layer *l, int k, int64_t n);

/* What a layer keeps: of each factor a sum for each use, average and inverse. */
double dlb_kfac_state_bytes(const struct dlb_graph *g, int update);
/* FLOP of summing moment k of `rows` rows; of preconditioning, with the inversion that is made every so many steps (factored:
 * of what comes as its Cholesky factor). The inverse is made in double, which counts twice. */
double dlb_kfac_sum_flop(const struct dlb_kfac_layer *l, int k, double rows);
double dlb_kfac_apply_flop(const struct dlb_kfac_layer *l, double inverse_every, bool factored);
/* K-FAC's operands where `rule` is K-FAC. -1: no layer that it knows. */
int dlb_optimizer_bind(struct dlb_graph *g, int rule, struct dlb_error *err);
#endif
