/* K-FAC (Martens, Grosse, 2015): the gradient of a dense layer, [dW db] with outputs as rows, becomes
 *
 *     (G + damping I)^-1 [dW db] (A + damping I)^-1,    A = E[a a^T],  G = E[g g^T]
 *
 * a: the layer's input with a 1 for the bias, g: the gradient of one sample's loss w.r.t. its output; what comes out is then
 * applied as a gradient. A and G are running averages that start at I, inverted every few steps. (Starting at the first step's
 * moments, a rate of 0.02 with damping 0.01 diverges on the digits; so does momentum 0.9, which damping 0.1 bears.)
 * Which layers: a Gemm of two matrices (alpha, beta 1, input not transposed and not fed straight from the data) whose weight
 * and bias belong to it alone. This is what an executor needs; dlb-run has no optimizer of that name yet.
 *
 * The update of such a weight reads a and g beside its gradient (dlb_kfac_bind): an op of the graph like any other, its
 * operands are sent to where it stands, and of each micro-batch A and G are summed into state like a gradient. */
#ifndef DLB_OPTIM_KFAC_H
#define DLB_OPTIM_KFAC_H
#include "graph/graph.h"

struct dlb_kfac_layer {
	int update, bias_update;	/* ops; bias_update -1: no bias */
	int x[2];			/* tensors a (rows, inputs) and g (rows, outputs) */
	int64_t n[2];			/* order of A (with the bias) and of G */
	bool by_input;			/* the weight lies as (inputs, outputs) */
};
/* The layers of a training graph, bound or not; returns new, *n of them. */
struct dlb_kfac_layer *dlb_kfac_layers(const struct dlb_graph *g, int *n);
/* Adds a and g to the operands of their updates. Ids stay. Once is enough, twice does no harm. */
void dlb_kfac_bind(struct dlb_graph *g);
/* Operand k of an update beyond weight and gradient: its second moments are summed. */
static inline bool dlb_kfac_operand(const struct dlb_op *o, int k) { return o->phase == DLB_UPDATE && k >= 2; }
#endif
