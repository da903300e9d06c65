/* Attention's products: fuses into MatMul the Transposes of its operands and result, and scalar factors
 * between them. Matched operands do not broadcast, and rows or columns stay the fastest dimension, because
 * the kernel needs a stride of 1 there. */
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

struct product_side { int t; int64_t perm[DLB_MAX_DIMS]; };		/* tensor t, read transposed */
struct product_match { struct product_side in[2]; int64_t out[DLB_MAX_DIMS]; double alpha; int n, taken; };

/* The tensor that op i multiplies by a scalar, without changing its shape; -1: op i does not. */
static int scaled(const struct dlb_graph *g, int i, double *alpha)
{
	const struct dlb_op *o = &g->op[i];
	const bool div = dlb_is_op(g, i, "Div");
	double v;

	for (int k = 0; k < 2 && o->n_in == 2 && (div || dlb_is_op(g, i, "Mul")); k++)
		if (dlb_match_scalar(g, o->in[1 - k], &v) && v != 0 && (!div || k == 0) &&
		    dlb_match_same_shape(g, o->in[k], o->out[0])) {
			*alpha *= div ? 1 / v : v;
			return o->in[k];
		}
	return -1;
}

/* Is op i a Transpose of n dimensions? */
static bool transposes(const struct dlb_graph *g, int i, int n, const int64_t **perm)
{
	return dlb_is_op(g, i, "Transpose") &&
	       dlb_attr_ints(g->op[i].attr, g->op[i].n_attr, "perm", perm) == n;
}

static bool fastest_inside(const int64_t *perm, int n)
{
	return perm[n - 1] == n - 1 || perm[n - 2] == n - 1;
}

/* Follows an operand of the product backwards, collecting Transposes and scalar factors. */
static void take_operand(struct dlb_match *m, struct product_match *p, struct product_side *s)
{
	const struct dlb_graph *g = m->g;

	for (int left = 3; left > 0 && dlb_match_read_once(g, s->t) && g->tensor[s->t].producer >= 0;
	     left--) {
		const int op = g->tensor[s->t].producer;
		const int64_t *perm;
		int64_t both[DLB_MAX_DIMS];
		const int x = scaled(g, op, &p->alpha);
		if (x >= 0) {
			s->t = x;
		} else if (transposes(g, op, p->n, &perm)) {
			for (int i = 0; i < p->n; i++)
				both[i] = perm[s->perm[i]];
			if (!fastest_inside(both, p->n))
				return;
			memcpy(s->perm, both, sizeof both);
			s->t = g->op[op].in[0];
		} else {
			return;
		}
		m->op[m->n++] = op;
		p->taken++;
	}
}

/* Follows the product's result forwards; the last op taken is the root. */
static void take_result(struct dlb_match *m, struct product_match *p)
{
	const struct dlb_graph *g = m->g;

	for (int left = 2; left > 0 && dlb_match_read_once(g, g->op[m->root].out[0]); left--) {
		const int op = g->reader[g->reader_start[g->op[m->root].out[0]]];
		const int64_t *perm;
		int64_t both[DLB_MAX_DIMS], back[DLB_MAX_DIMS];
		double alpha = p->alpha;
		if (scaled(g, op, &alpha) == g->op[m->root].out[0]) {
			p->alpha = alpha;
		} else if (transposes(g, op, p->n, &perm)) {
			for (int i = 0; i < p->n; i++)
				both[i] = p->out[perm[i]];
			for (int i = 0; i < p->n; i++)
				back[both[i]] = i;
			if (back[p->n - 1] != p->n - 1 && back[p->n - 2] != p->n - 1)
				return;
			memcpy(p->out, both, sizeof both);
		} else {
			return;
		}
		m->op[m->n++] = m->root;
		m->root = op;
		p->taken++;
	}
}

/* Is op i a MatMul of operands that have the same batch dimensions at every batch size? */
static bool plain_product(const struct dlb_graph *g, int i, struct product_match *p)
{
	const struct dlb_op *o = &g->op[i];
	const struct dlb_tensor *a = &g->tensor[o->in[0]], *b = &g->tensor[o->in[1]];

	*p = (struct product_match){ .alpha = 1, .n = a->n_dims };
	if (a->n_dims < 3 || a->n_dims != b->n_dims || a->kind != DLB_T_ACTIVATION ||
	    b->kind != DLB_T_ACTIVATION)
		return false;
	for (int k = 0; k < p->n - 2; k++)
		if (a->dim[k].mul != b->dim[k].mul || a->dim[k].add != b->dim[k].add)
			return false;
	for (int k = 0; k < p->n; k++)
		p->in[0].perm[k] = p->in[1].perm[k] = p->out[k] = k;
	p->in[0].t = o->in[0];
	p->in[1].t = o->in[1];
	return true;
}

int dlb_rewrite_products(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	if (g->dtype != DLB_F32 && g->dtype != DLB_F64)		/* the types that the kernel supports */
		return 0;
	for (int i = 0; i < g->n_ops; i++) {
		struct dlb_match m = { .g = g, .root = i };
		struct product_match p;
		if (!dlb_is_op(g, i, "MatMul") || !plain_product(g, i, &p))
			continue;
		for (int k = 0; k < 2; k++)
			take_operand(&m, &p, &p.in[k]);
		take_result(&m, &p);
		if (!p.taken || !dlb_match_closed(&m))
			continue;
		const struct dlb_attr attr[] = {
			{ .name = "permA", .type = DLB_ATTR_INTS, .ints = p.in[0].perm, .n = p.n },
			{ .name = "permB", .type = DLB_ATTR_INTS, .ints = p.in[1].perm, .n = p.n },
			{ .name = "permY", .type = DLB_ATTR_INTS, .ints = p.out, .n = p.n },
			{ .name = "alpha", .type = DLB_ATTR_REAL, .f = p.alpha },
		};
		const int in[2] = { p.in[0].t, p.in[1].t };
		if (dlb_match_fuse(&m,
				   &(struct dlb_op_spec){ .type = "Product", .domain = "dlb", .in = in,
							  .n_in = 2, .attr = attr, .n_attr = 4 },
				   m.root == i ? -1 : i, count, err))
			return -1;
	}
	return 0;
}
