/* GroupNormalization as exporters write it before opset 21, by an InstanceNormalization of
 * groups without scale and bias:
 *
 *     Reshape(InstanceNormalization(Reshape(x), 1, 0)) * scale + bias   ->   GroupNormalization(x, scale, bias)
 *
 * The fused op reads x twice; the separate ops move six tensors of its size. */
#include <string.h>
#include "graph/pattern.h"
#include "graph/rewrites.h"
#include "graph/role.h"

/* Are all elements of constant t equal to v? */
static bool is_all(const struct dlb_graph *g, int t, double v)
{
	const struct dlb_tensor *x = &g->tensor[t];

	return x->kind == DLB_T_CONSTANT && dlb_values_uniform(x) &&
	       (x->is_fill ? x->fill : dlb_value_real(x->data, x->dtype, 0)) == v;
}

/* Does tensor t have one value for each channel (second dimension) of x? */
static bool along_channels(const struct dlb_graph *g, int t, const struct dlb_tensor *x)
{
	const struct dlb_tensor *w = &g->tensor[t];
	const int channel = w->n_dims - (x->n_dims - 1);

	if (channel < 0)
		return false;
	for (int i = 0; i < w->n_dims; i++)
		if (w->dim[i].mul || w->dim[i].add != (i == channel ? x->dim[1].add : 1))
			return false;
	return true;
}

/* Tensor t, which has one value per channel, as a tensor of one dimension: t, the source of the view that
 * makes t, or a new Reshape. -1 with err. */
static int channels(struct dlb_graph *g, int t, struct dlb_dim dim, struct dlb_error *err)
{
	const int op = g->tensor[t].producer;

	if (g->tensor[t].n_dims == 1)
		return t;
	if ((dlb_is_op(g, op, "Reshape") || dlb_is_op(g, op, "Unsqueeze")) &&
	    g->tensor[g->op[op].in[0]].n_dims == 1)
		return g->op[op].in[0];
	const char *base = dlb_arena_printf(&g->arena, "%s.channels", g->tensor[t].name);
	const int in[2] = { t, dlb_match_shape(g, base, &dim, 1) };
	return dlb_graph_add_forward(g,
				     &(struct dlb_op_spec){ .name = base, .type = "Reshape", .in = in,
							    .n_in = 2 }, err);
}

struct groups { struct dlb_match m; int x, scale, bias; int64_t n; double epsilon; };

/* Matches root = scaled + bias, scaled = Reshape(...) * scale, where the first Reshape makes (N, groups,
 * rest) of x (N, C, ...). */
static bool match(struct groups *a)
{
	const struct dlb_graph *g = a->m.g;
	const int mul = dlb_match_operand(&a->m, a->m.root, "Mul", &a->bias);
	const int after = mul < 0 ? -1 : dlb_match_operand(&a->m, mul, "Reshape", &a->scale);
	const int norm = after < 0 ? -1 : dlb_match_op(&a->m, g->op[after].in[0], "InstanceNormalization");
	const int before = norm < 0 ? -1 : dlb_match_op(&a->m, g->op[norm].in[0], "Reshape");

	if (before < 0 || !is_all(g, g->op[norm].in[1], 1) || !is_all(g, g->op[norm].in[2], 0))
		return false;
	a->x = g->op[before].in[0];
	const struct dlb_tensor *x = &g->tensor[a->x], *in = &g->tensor[g->op[norm].in[0]];
	if (x->n_dims < 3 || in->n_dims != 3 || x->dim[1].mul || in->dim[1].mul || in->dim[1].add < 1 ||
	    x->dim[1].add % in->dim[1].add || x->dim[0].mul != in->dim[0].mul ||
	    x->dim[0].add != in->dim[0].add)
		return false;
	a->n = in->dim[1].add;
	a->epsilon = dlb_attr_real(g->op[norm].attr, g->op[norm].n_attr, "epsilon", 1e-5);
	return dlb_match_same_shape(g, a->x, g->op[after].out[0]) &&
	       dlb_match_same_shape(g, a->x, g->op[a->m.root].out[0]) && along_channels(g, a->scale, x) &&
	       along_channels(g, a->bias, x) && dlb_match_closed(&a->m);
}

static int fuse(struct groups *a, int64_t *count, struct dlb_error *err)
{
	struct dlb_graph *g = a->m.g;
	const struct dlb_attr attr[] = { { .name = "num_groups", .type = DLB_ATTR_INT, .i = a->n },
					 { .name = "epsilon", .type = DLB_ATTR_REAL, .f = a->epsilon } };
	const struct dlb_dim dim = g->tensor[a->x].dim[1];
	const int scale = channels(g, a->scale, dim, err),
		  bias = scale < 0 ? -1 : channels(g, a->bias, dim, err);

	if (bias < 0)
		return -1;
	g->op[a->m.root].opset = 21;		/* the first version with a scale per channel */
	return dlb_match_fuse(&a->m, DLB_SPEC_ATTR("GroupNormalization", attr, 2, a->x, scale, bias), -1,
			      count, err);
}

int dlb_rewrite_group_norm(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	const int n_ops = g->n_ops;
	struct dlb_added *added = dlb_arena_array(&g->arena, (size_t)n_ops + 1, sizeof *added);

	memset(added, 0, (size_t)n_ops * sizeof *added);
	for (int i = 0; i < n_ops; i++) {
		struct groups a = { .m = { .g = g, .root = i } };
		if (!dlb_is_op(g, i, "Add") || !match(&a))
			continue;
		added[i].first = g->n_ops;
		if (fuse(&a, count, err))
			return -1;
		added[i].n = g->n_ops - added[i].first;
	}
	if (*count)
		dlb_graph_place_added(g, added, n_ops);
	return 0;
}
