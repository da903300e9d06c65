/* LayerNormalization as exporters spell it before opset 17:
 *
 *     d = x - ReduceMean(x);   y = d / Sqrt(ReduceMean(d ^ 2) + epsilon) * scale + bias
 *
 * over the last dimensions. d may be squared by Pow or by Mul, made twice over, and multiplied by Reciprocal in place of
 * divided; scale and bias may be missing; Casts that change nothing have gone before (no-ops). */
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

struct norm { int x, axis; double epsilon; };

/* Op i reduces the last dimensions and keeps them as 1: the first of them; -1: it does not. */
static int reduced_axis(const struct dlb_graph *g, int i)
{
	const struct dlb_op *o = &g->op[i];
	const int n_dims = g->tensor[o->in[0]].n_dims;
	const int64_t *axes;
	int n = dlb_attr_ints(o->attr, o->n_attr, "axes", &axes);
	unsigned mask = 0;

	if (o->n_in > 1 && o->in[1] >= 0) {
		const struct dlb_tensor *t = &g->tensor[o->in[1]];
		if (t->kind != DLB_T_CONSTANT || t->dtype != DLB_I64 || !t->data || t->data_mul || t->n_dims != 1)
			return -1;
		axes = t->data;
		n = (int)t->dim[0].add;
	}
	if (!dlb_attr_int(o->attr, o->n_attr, "keepdims", 1) || n < 1 || n > n_dims)
		return -1;
	for (int k = 0; k < n; k++) {
		const int64_t a = axes[k] < 0 ? axes[k] + n_dims : axes[k];
		if (a < 0 || a >= n_dims)
			return -1;
		mask |= 1u << a;
	}
	return mask == (1u << n_dims) - (1u << (n_dims - n)) ? n_dims - n : -1;
}

/* t = x - ReduceMean(x) */
static bool is_deviation(struct dlb_match *m, int t, struct norm *n)
{
	const int sub = dlb_match_op(m, t, "Sub"), mean = sub < 0 ? -1 : dlb_match_op(m, m->g->op[sub].in[1], "ReduceMean");

	if (mean < 0 || m->g->op[mean].in[0] != m->g->op[sub].in[0])
		return false;
	n->x = m->g->op[sub].in[0];
	n->axis = reduced_axis(m->g, mean);
	return n->axis >= 0;
}

/* t = d ^ 2, d the deviation n or another one made alike. */
static bool is_square(struct dlb_match *m, int t, int d, const struct norm *n)
{
	const int pow = dlb_match_op(m, t, "Pow"), mul = pow < 0 ? dlb_match_op(m, t, "Mul") : -1;
	struct norm same;
	double v;

	if (pow >= 0 ? !dlb_match_scalar(m->g, m->g->op[pow].in[1], &v) || v != 2
		     : mul < 0 || m->g->op[mul].in[0] != m->g->op[mul].in[1])
		return false;
	const int of = m->g->op[pow >= 0 ? pow : mul].in[0];
	return of == d || (is_deviation(m, of, &same) && same.x == n->x && same.axis == n->axis);
}

/* t = Sqrt(ReduceMean(d ^ 2) + epsilon) */
static bool is_spread(struct dlb_match *m, int t, int d, struct norm *n)
{
	const int sqrt = dlb_match_op(m, t, "Sqrt"), add = sqrt < 0 ? -1 : dlb_match_op(m, m->g->op[sqrt].in[0], "Add");
	const struct dlb_op *o = add < 0 ? NULL : &m->g->op[add];

	for (int k = 0; k < 2 && o; k++) {
		if (!dlb_match_scalar(m->g, o->in[k], &n->epsilon) || n->epsilon < 0 || n->epsilon > 0.1)
			continue;
		const int mean = dlb_match_op(m, o->in[1 - k], "ReduceMean");
		return mean >= 0 && reduced_axis(m->g, mean) == n->axis && is_square(m, m->g->op[mean].in[0], d, n);
	}
	return false;
}

/* Op i is d / spread, or d * Reciprocal(spread). */
static bool is_quotient(struct dlb_match *m, int i, struct norm *n)
{
	const struct dlb_op *o = &m->g->op[i];

	if (dlb_is_op(m->g, i, "Div"))
		return is_deviation(m, o->in[0], n) && is_spread(m, o->in[1], o->in[0], n);
	for (int k = 0; k < 2 && dlb_is_op(m->g, i, "Mul"); k++) {
		const int one_by = dlb_match_op(m, o->in[k], "Reciprocal");
		if (one_by >= 0)
			return is_deviation(m, o->in[1 - k], n) && is_spread(m, m->g->op[one_by].in[0], o->in[1 - k], n);
	}
	return false;
}

/* t has the normalized dimensions and no others: a scale or a bias. */
static bool along_rows(const struct dlb_graph *g, int t, const struct norm *n)
{
	const struct dlb_tensor *s = &g->tensor[t], *x = &g->tensor[n->x];

	if (s->n_dims != x->n_dims - n->axis)
		return false;
	for (int i = 0; i < s->n_dims; i++)
		if (s->dim[i].mul || x->dim[n->axis + i].mul || s->dim[i].add != x->dim[n->axis + i].add)
			return false;
	return true;
}

/* The quotient by tensor t: noted, or not at all. */
static bool quotient_of(struct dlb_match *m, int t, struct norm *n)
{
	struct dlb_match try = *m;
	int op = dlb_match_op(&try, t, "Div");

	if (op < 0)
		op = dlb_match_op(&try, t, "Mul");
	if (op < 0 || !is_quotient(&try, op, n))
		return false;
	*m = try;
	return true;
}

/* Op i = quotient * scale. */
static bool scaled(struct dlb_match *m, int i, struct norm *n, int *scale)
{
	for (int k = 0; k < 2; k++) {
		*scale = m->g->op[i].in[1 - k];
		if (quotient_of(m, m->g->op[i].in[k], n) && along_rows(m->g, *scale, n))
			return true;
	}
	return false;
}

/* With bias, scale; with neither; the operands {x, scale, bias}, -1 where there is none. */
static bool match(struct dlb_match *m, struct norm *n, int in[3])
{
	struct dlb_graph *g = m->g;
	const int i = m->root;
	const struct dlb_match fresh = *m;

	in[1] = in[2] = -1;
	for (int k = 0; k < 2 && dlb_is_op(g, i, "Add"); k++) {
		*m = fresh;
		const int mul = dlb_match_op(m, g->op[i].in[k], "Mul");
		if (mul >= 0 && scaled(m, mul, n, &in[1]) && along_rows(g, g->op[i].in[1 - k], n)) {
			in[2] = g->op[i].in[1 - k];
			goto found;
		}
	}
	*m = fresh;
	if (dlb_is_op(g, i, "Mul") && scaled(m, i, n, &in[1]))
		goto found;
	*m = fresh;
	in[1] = -1;
	if (!is_quotient(m, i, n))
		return false;
found:
	in[0] = n->x;
	return dlb_match_same_shape(g, n->x, g->op[i].out[0]) && dlb_match_closed(m);
}

/* Ones, where there is no scale. */
static int ones(struct dlb_graph *g, const struct norm *n)
{
	const int t = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, "ones"), DLB_T_CONSTANT);
	const struct dlb_tensor *x = &g->tensor[n->x];
	struct dlb_tensor *s = &g->tensor[t];

	s->dtype = x->dtype;
	s->n_dims = x->n_dims - n->axis;
	for (int i = 0; i < s->n_dims; i++)
		s->dim[i] = x->dim[n->axis + i];
	s->is_fill = true;
	s->fill = 1;
	return t;
}

int dlb_rewrite_layer_norm(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_match m = { .g = g, .root = i };
		struct norm n = { .x = -1 };
		int in[3];
		if ((!dlb_is_op(g, i, "Add") && !dlb_is_op(g, i, "Mul") && !dlb_is_op(g, i, "Div")) || !match(&m, &n, in))
			continue;
		if (in[1] < 0)
			in[1] = ones(g, &n);
		const struct dlb_attr attr[] = { { .name = "axis", .type = DLB_ATTR_INT, .i = n.axis - g->tensor[n.x].n_dims },
						 { .name = "epsilon", .type = DLB_ATTR_REAL, .f = n.epsilon } };
		if (dlb_match_fuse(&m, "LayerNormalization", "", in, in[2] < 0 ? 2 : 3, attr, 2, -1, count, err))
			return -1;
		g->op[i].opset = 17;		/* where ONNX has it first */
	}
	return 0;
}
