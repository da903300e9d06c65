/* Swish (SiLU) as exporters write it before opset 24, and the gated unit made with it (opset 28):
 *
 *     x * Sigmoid(alpha * x)   ->   Swish(x)            Swish(a) * b   ->   SwiGLU(a, b)
 *
 * SwiGLU keeps a and b for its gradient, but neither the sigmoid nor Swish's result. */
#include "graph/pattern.h"
#include "graph/rewrites.h"

/* Is t = Sigmoid(alpha * x)? */
static bool gate_of(struct dlb_match *m, int t, int x, double *alpha)
{
	const int sigmoid = dlb_match_op(m, t, "Sigmoid");
	const int of = sigmoid < 0 ? -1 : m->g->op[sigmoid].in[0];

	*alpha = 1;
	if (of < 0 || of == x)
		return of == x && x >= 0;
	const int mul = dlb_match_op(m, of, "Mul"), scale = mul < 0 ? -1 : dlb_match_other(m, mul, x);
	return scale >= 0 && dlb_match_scalar(m->g, scale, alpha);
}

int dlb_rewrite_swish(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		for (int k = 0; k < 2 && dlb_is_op(g, i, "Mul") && g->op[i].n_in == 2; k++) {
			struct dlb_match m = { .g = g, .root = i };
			const int x = g->op[i].in[1 - k];
			struct dlb_attr alpha = { .name = "alpha", .type = DLB_ATTR_REAL };
			if (!gate_of(&m, g->op[i].in[k], x, &alpha.f) ||
			    !dlb_match_same_shape(g, x, g->op[i].out[0]) || !dlb_match_closed(&m))
				continue;
			if (dlb_match_fuse(&m, DLB_SPEC_ATTR("Swish", &alpha, 1, x), -1, count, err))
				return -1;
			g->op[i].opset = 24;		/* the first version with Swish */
		}
	}
	return 0;
}

int dlb_rewrite_swiglu(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_match m = { .g = g, .root = i };
		int b = -1;
		const int swish = dlb_is_op(g, i, "Mul") ? dlb_match_operand(&m, i, "Swish", &b) : -1;
		if (swish < 0 || m.n != 1 || !dlb_match_same_shape(g, g->op[swish].in[0], b) ||
		    !dlb_match_closed(&m))
			continue;
		const int in[2] = { g->op[swish].in[0], b };
		if (dlb_match_fuse(&m,
				   &(struct dlb_op_spec){ .type = "SwiGLU", .in = in, .n_in = 2,
							  .attr = g->op[swish].attr,
							  .n_attr = g->op[swish].n_attr }, -1, count, err))
			return -1;
		g->op[i].opset = 28;
	}
	return 0;
}
