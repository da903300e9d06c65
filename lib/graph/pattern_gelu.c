/* GELU as exporters write it, in the exact form and in the tanh form (Hendrycks, Gimpel, Gaussian
 * Error Linear Units, 2016):
 *
 *     x * 0.5 * (1 + Erf(x / sqrt(2)))            or Erf(x * sqrt(1/2))
 *     x * 0.5 * (1 + Tanh(sqrt(2/pi) * (x + 0.044715 * x^3)))     or sqrt(2/pi) * x * (1 + 0.044715 * x * x)
 *
 * Products may be associated and ordered in any way: the factors of a tree of Muls are collected first. */
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

enum { MOST = 4 };
static const double sqrt_half = 0.70710678118654752440, sqrt_2 = 1.41421356237309504880,
		    sqrt_2_pi = 0.79788456080286535588, cubic = 0.044715;

struct factors { int t[MOST], n; double scale; };	/* tensor factors, and the product of the scalars */

/* Collects the factors of t, a tree of Muls (and of squares and cubes by Pow); false: too many. */
static bool collect(struct dlb_match *m, int t, int root, struct factors *f)
{
	const struct dlb_graph *g = m->g;
	const int op = root >= 0 ? root : g->tensor[t].producer;
	double v;

	if (dlb_match_scalar(g, t, &v)) {
		f->scale *= v;
		return true;
	}
	if (root >= 0 ||
	    (dlb_is_op(g, op, "Mul") && dlb_match_read_once(g, t) && dlb_match_op(m, t, "Mul") >= 0))
		return collect(m, g->op[op].in[0], -1, f) && collect(m, g->op[op].in[1], -1, f);
	if (dlb_is_op(g, op, "Pow") && dlb_match_read_once(g, t) &&
	    dlb_match_scalar(g, g->op[op].in[1], &v) && (v == 2 || v == 3) &&
	    dlb_match_op(m, t, "Pow") >= 0) {
		for (int i = 0; i < (int)v; i++)
			if (f->n == MOST)
				return false;
			else
				f->t[f->n++] = g->op[op].in[0];
		return true;
	}
	if (f->n == MOST)
		return false;
	f->t[f->n++] = t;
	return true;
}

/* Are there n tensor factors, all of them x, and scalars whose product is v? */
static bool are(const struct factors *f, int n, int x, double v)
{
	for (int i = 0; i < f->n; i++)
		if (f->t[i] != x)
			return false;
	return f->n == n && dlb_match_near(f->scale, v);
}

static bool is_product(struct dlb_match *m, int t, int n, int x, double v)
{
	struct factors f = { .scale = 1 };

	return collect(m, t, -1, &f) && are(&f, n, x, v);
}

/* Is t = x / sqrt(2)? */
static bool erf_argument(struct dlb_match *m, int t, int x)
{
	const int div = dlb_match_op(m, t, "Div");
	double v;

	if (div >= 0)
		return m->g->op[div].in[0] == x && dlb_match_scalar(m->g, m->g->op[div].in[1], &v) &&
		       dlb_match_near(v, sqrt_2);
	return is_product(m, t, 1, x, sqrt_half);
}

/* Is t = sqrt(2/pi) (x + 0.044715 x^3), with x factored out or not? */
static bool tanh_argument(struct dlb_match *m, int t, int x)
{
	struct factors f = { .scale = 1 };
	int sum = -1, n_x = 0, other;

	if (!collect(m, t, -1, &f) || !dlb_match_near(f.scale, sqrt_2_pi))
		return false;
	for (int i = 0; i < f.n; i++)
		if (f.t[i] == x)
			n_x++;
		else if (sum < 0)
			sum = dlb_match_op(m, f.t[i], "Add");
	if (sum < 0 || f.n != n_x + 1 || n_x > 1)
		return false;
	if (n_x)				/* 1 + 0.044715 x x */
		return dlb_match_scalar_operand(m, sum, 1, &other) && is_product(m, other, 2, x, cubic);
	other = dlb_match_other(m, sum, x);
	return other >= 0 && is_product(m, other, 3, x, cubic);
}

/* If the root is x * 0.5 * (1 + f(...)), returns x and sets *tanh (f is Tanh); -1: no GELU. */
static int match(struct dlb_match *m, bool *tanh)
{
	struct dlb_graph *g = m->g;
	struct factors f = { .scale = 1 };
	int other;

	if (!collect(m, g->op[m->root].out[0], m->root, &f) || f.n != 2 || !dlb_match_near(f.scale, 0.5))
		return -1;
	for (int k = 0; k < 2; k++) {
		struct dlb_match try = *m;
		const int x = f.t[1 - k], add = dlb_match_op(&try, f.t[k], "Add");
		if (add < 0 || !dlb_match_scalar_operand(&try, add, 1, &other))
			continue;
		const int erf = dlb_match_op(&try, other, "Erf"),
			  th = erf < 0 ? dlb_match_op(&try, other, "Tanh") : -1;
		*tanh = th >= 0;
		const bool is = erf >= 0 ? erf_argument(&try, g->op[erf].in[0], x) :
					   th >= 0 && tanh_argument(&try, g->op[th].in[0], x);
		if (is && dlb_match_same_shape(g, x, g->op[m->root].out[0]) && dlb_match_closed(&try)) {
			*m = try;
			return x;
		}
	}
	return -1;
}

int dlb_rewrite_gelu(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_match m = { .g = g, .root = i };
		const struct dlb_attr by_tanh = { .name = "approximate", .type = DLB_ATTR_STR, .s = "tanh" };
		bool tanh = false;
		const int x = dlb_is_op(g, i, "Mul") ? match(&m, &tanh) : -1;
		if (x < 0)
			continue;
		if (dlb_match_fuse(&m, DLB_SPEC_ATTR("Gelu", &by_tanh, tanh, x), -1, count, err))
			return -1;
		g->op[i].opset = 20;		/* the first version with Gelu */
	}
	return 0;
}
