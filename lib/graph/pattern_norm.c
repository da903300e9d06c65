/* LayerNormalization as exporters write it before opset 17, and RMSNormalization before opset 23:
 *
 *     d = x - ReduceMean(x);   y = d / Sqrt(ReduceMean(d ^ 2) + epsilon) * scale + bias
 *                              y = x / Sqrt(ReduceMean(x ^ 2) + epsilon) * scale
 *
 * over the last dimensions. d may be squared by Pow or Mul, and may be computed twice. The division may
 * be a product with Reciprocal, 1 / Sqrt or Pow -1/2. Scale and bias may be absent. The rewrite of no-ops
 * has removed Casts before. */
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"

struct norm { int x, axis; double epsilon; bool rms; };

/* The first dimension that op i reduces, if it reduces all from there on and keeps
 * them as 1; -1: it does not. */
static int reduced_axis(const struct dlb_graph *g, int i)
{
	const struct dlb_op *o = &g->op[i];
	const int n_dims = g->tensor[o->in[0]].n_dims;
	const int64_t *axes;
	int n = dlb_attr_ints(o->attr, o->n_attr, "axes", &axes);
	unsigned mask = 0;

	if (o->n_in > 1 && o->in[1] >= 0) {
		const struct dlb_tensor *t = &g->tensor[o->in[1]];
		if (t->kind != DLB_T_CONSTANT || t->dtype != DLB_I64 || !t->data || t->data_mul ||
		    t->n_dims != 1)
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

/* Is t = x - ReduceMean(x)? Sets n->x and n->axis. */
static bool is_centred(struct dlb_match *m, int t, struct norm *n)
{
	const int sub = dlb_match_op(m, t, "Sub"),
		  mean = sub < 0 ? -1 : dlb_match_op(m, m->g->op[sub].in[1], "ReduceMean");

	if (mean < 0 || m->g->op[mean].in[0] != m->g->op[sub].in[0])
		return false;
	n->x = m->g->op[sub].in[0];
	n->axis = reduced_axis(m->g, mean);
	return n->axis >= 0;
}

/* If t = v ^ 2, returns v; else -1. */
static int squared(struct dlb_match *m, int t)
{
	const int pow = dlb_match_op(m, t, "Pow"), mul = pow < 0 ? dlb_match_op(m, t, "Mul") : -1;
	double v;

	if (pow >= 0 ? !dlb_match_scalar(m->g, m->g->op[pow].in[1], &v) || v != 2
		     : mul < 0 || m->g->op[mul].in[0] != m->g->op[mul].in[1])
		return -1;
	return m->g->op[pow >= 0 ? pow : mul].in[0];
}

/* Is `of` the deviation d, or one computed in the same way? */
static bool is_same_deviation(struct dlb_match *m, int of, int d, const struct norm *n)
{
	struct norm same;

	return of == d || (is_centred(m, of, &same) && same.x == n->x && same.axis == n->axis);
}

/* If t = ReduceMean(v ^ 2) + epsilon, returns v and sets n->axis and n->epsilon; else -1. */
static int mean_square(struct dlb_match *m, int t, struct norm *n)
{
	const int add = dlb_match_op(m, t, "Add");
	const struct dlb_op *o = add < 0 ? NULL : &m->g->op[add];

	for (int k = 0; k < 2 && o; k++) {
		if (!dlb_match_scalar(m->g, o->in[k], &n->epsilon) || n->epsilon < 0 || n->epsilon > 0.1)
			continue;
		const int mean = dlb_match_op(m, o->in[1 - k], "ReduceMean");
		n->axis = mean < 0 ? -1 : reduced_axis(m->g, mean);
		return n->axis < 0 ? -1 : squared(m, m->g->op[mean].in[0]);
	}
	return -1;
}

/* The same for t = Sqrt(ReduceMean(v ^ 2) + epsilon). */
static int root_mean_square(struct dlb_match *m, int t, struct norm *n)
{
	const int sqrt = dlb_match_op(m, t, "Sqrt");

	return sqrt < 0 ? -1 : mean_square(m, m->g->op[sqrt].in[0], n);
}

/* The same for t = 1 / Sqrt(ReduceMean(v ^ 2) + epsilon). */
static int inverse_root(struct dlb_match *m, int t, struct norm *n)
{
	double v;
	int op = dlb_match_op(m, t, "Reciprocal");

	if (op >= 0)
		return root_mean_square(m, m->g->op[op].in[0], n);
	op = dlb_match_op(m, t, "Div");
	if (op >= 0)
		return dlb_match_scalar(m->g, m->g->op[op].in[0], &v) && v == 1 ?
			       root_mean_square(m, m->g->op[op].in[1], n) :
			       -1;
	op = dlb_match_op(m, t, "Pow");
	return op >= 0 && dlb_match_scalar(m->g, m->g->op[op].in[1], &v) && v == -0.5 ?
		       mean_square(m, m->g->op[op].in[0], n) :
		       -1;
}

/* Is d, which is divided by the root mean square of `of`, x minus its mean over the same
 * dimensions, or x itself (rms)? */
static bool fits(struct dlb_match *m, int d, int of, struct norm *n)
{
	const int axis = n->axis;

	if (n->rms) {
		n->x = d;
		return of == d;
	}
	return of >= 0 && is_centred(m, d, n) && n->axis == axis && is_same_deviation(m, of, d, n);
}

/* Is op i d / Sqrt(...), or d * (1 / Sqrt(...))? */
static bool is_quotient(struct dlb_match *m, int i, struct norm *n)
{
	const struct dlb_op *o = &m->g->op[i];

	if (dlb_is_op(m->g, i, "Div"))
		return fits(m, o->in[0], root_mean_square(m, o->in[1], n), n);
	for (int k = 0; k < 2 && dlb_is_op(m->g, i, "Mul"); k++) {
		struct dlb_match try = *m;
		const int of = inverse_root(&try, o->in[k], n);
		if (of >= 0 && fits(&try, o->in[1 - k], of, n)) {
			*m = try;
			return true;
		}
	}
	return false;
}

/* Does t have exactly the normalized dimensions, as a scale or bias has? */
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

/* Matches the quotient that makes tensor t; records its ops only if it matches. */
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

/* Is op i = quotient * scale? Sets *scale. */
static bool scaled(struct dlb_match *m, int i, struct norm *n, int *scale)
{
	for (int k = 0; k < 2; k++) {
		*scale = m->g->op[i].in[1 - k];
		if (quotient_of(m, m->g->op[i].in[k], n) && along_rows(m->g, *scale, n))
			return true;
	}
	return false;
}

/* Matches the norm with bias, with scale, or with neither; in[] = {x, scale, bias}, -1 where absent. */
static bool match(struct dlb_match *m, struct norm *n, int in[3])
{
	struct dlb_graph *g = m->g;
	const int i = m->root;
	const struct dlb_match fresh = *m;

	in[1] = in[2] = -1;
	for (int k = 0; k < 2 && !n->rms && dlb_is_op(g, i, "Add"); k++) {
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

/* A scale of ones, for a norm without scale. */
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

static int rewrite(struct dlb_graph *g, bool rms, int64_t *count, struct dlb_error *err)
{
	for (int i = g->n_ops - 1; i >= 0; i--) {
		struct dlb_match m = { .g = g, .root = i };
		struct norm n = { .x = -1, .rms = rms };
		int in[3];
		if ((!dlb_is_op(g, i, "Add") && !dlb_is_op(g, i, "Mul") && !dlb_is_op(g, i, "Div")) ||
		    !match(&m, &n, in))
			continue;
		if (in[1] < 0)
			in[1] = ones(g, &n);
		const struct dlb_attr attr[] = {
			{ .name = "axis", .type = DLB_ATTR_INT, .i = n.axis - g->tensor[n.x].n_dims },
			{ .name = "epsilon", .type = DLB_ATTR_REAL, .f = n.epsilon }
		};
		const char *type = rms ? "RMSNormalization" : "LayerNormalization";
		if (dlb_match_fuse(&m, &(struct dlb_op_spec){ .type = type, .in = in,
							      .n_in = in[2] < 0 ? 2 : 3, .attr = attr,
							      .n_attr = 2 }, -1, count, err))
			return -1;
		g->op[i].opset = rms ? 23 : 17;		/* the first version with the operator */
	}
	return 0;
}

int dlb_rewrite_layer_norm(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	return rewrite(g, false, count, err);
}

int dlb_rewrite_rms_norm(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	return rewrite(g, true, count, err);
}
