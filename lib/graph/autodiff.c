/* The training graph: backward ops by reverse-mode differentiation, and one update op per weight.
 *
 * Forward ops are visited from the last to the first. When an op is visited, all readers of its outputs have
 * been visited, so the gradients of its outputs are complete. Its class then adds the ops that compute the
 * gradients of its inputs (builder.c). A tensor with several readers sums their contributions in the order of
 * the readers' ids, not in the order of the visits: the sum is part of the graph, so its bits are the same
 * under every placement. Gradients that no op needs (those of the samples) are not computed.
 *
 *     forward   0 Conv   1 Relu   2 Loss
 *     backward  3 Loss' (of 2)   4 Relu' (of 1)   5 Conv' weight (of 0)
 *     update    6 Update {conv.weight, its gradient} */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "graph/autodiff.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/split.h"

/* -- the gradients that are needed -- */

static bool is_float(const struct dlb_graph *g, int t)
{
	return t >= 0 && dlb_dtype_is_float(g->tensor[t].dtype);
}

static void mark_needed(struct dlb_autodiff *ad, const int *wrt, int n_wrt)
{
	const struct dlb_graph *g = ad->g;

	for (int t = 0; t < g->n_tensors; t++)
		ad->first_reader[t] = -1;
	for (int t = 0; t < g->n_tensors && !wrt; t++)
		ad->needs[t] = g->tensor[t].kind == DLB_T_WEIGHT && !g->tensor[t].frozen;
	for (int i = 0; i < n_wrt; i++)
		ad->needs[wrt[i]] = is_float(g, wrt[i]);
	for (int i = 0; i < ad->n_forward; i++) {
		const struct dlb_op *o = &g->op[i];
		const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
		bool reached = false;
		for (int k = 0; k < o->n_in; k++) {
			reached |= o->in[k] >= 0 && ad->needs[o->in[k]];
			if (o->in[k] >= 0 && ad->first_reader[o->in[k]] < 0)
				ad->first_reader[o->in[k]] = i;
		}
		for (int k = 0; k < o->n_out && reached && cls && cls->gradient; k++)
			if (is_float(g, o->out[k]) && g->tensor[o->out[k]].kind != DLB_T_BUFFER)
				ad->needs[o->out[k]] = true;
	}
}

/* -- sums of contributions -- */

static void contribute(struct dlb_autodiff *ad, int t, int grad, int op)
{
	struct dlb_contributions *c = &ad->of[t];

	DLB_GROW(c->c, c->n, c->cap);
	c->c[c->n++] = (struct dlb_contribution){ grad, op };
}

/* Sorts by op id. The sort is stable: contributions of one op keep their order. */
static void sort_contributions(struct dlb_contributions *c)
{
	for (int i = 1; i < c->n; i++) {
		const struct dlb_contribution x = c->c[i];
		int k = i;
		for (; k > 0 && c->c[k - 1].op > x.op; k--)
			c->c[k] = c->c[k - 1];
		c->c[k] = x;
	}
}

/* Adds a Sum op, which belongs to op `of`, over n gradients of tensor t. Returns its output, -1 with err. */
static int add_sum(struct dlb_autodiff *ad, int t, const int *grad, int n, int of, struct dlb_error *err)
{
	struct dlb_builder b = { .graph = ad, .op = of, .err = err };

	return dlb_b_op(&b, &(struct dlb_op_spec){ .type = "Sum", .in = grad, .n_in = n }, NULL, t);
}

/* Sums the contributions of each shard index first, on that shard's node: c[] becomes one contribution per
 * index, where all ops that are not split count as one index. Returns their number, -1 with err. */
static int sum_each_shard(struct dlb_autodiff *ad, int t, struct dlb_contributions *c, struct dlb_error *err)
{
	const struct dlb_graph *g = ad->g;
	int *grad = dlb_arena_array(&ad->a, (size_t)c->n, sizeof *grad), n_groups = 0;
	struct dlb_contribution *group = dlb_arena_array(&ad->a, (size_t)c->n, sizeof *group);

	for (int i = 0; i < c->n; i++) {
		const int shard = dlb_split_shard(g->op[c->c[i].op].name);
		int n = 0, first = n_groups;
		for (int k = 0; k < n_groups && first == n_groups; k++)
			first = dlb_split_shard(g->op[group[k].op].name) == shard ? k : first;
		if (first < n_groups)
			continue;
		for (int k = i; k < c->n; k++)
			if (dlb_split_shard(g->op[c->c[k].op].name) == shard)
				grad[n++] = c->c[k].grad;
		group[n_groups] = (struct dlb_contribution){
			n > 1 ? add_sum(ad, t, grad, n, c->c[i].op, err) : grad[0], c->c[i].op
		};
		if (group[n_groups++].grad < 0)
			return -1;
	}
	memcpy(c->c, group, (size_t)n_groups * sizeof *group);
	return c->n = n_groups;
}

/* Adds up contributions in pairs (split.h). The last sum belongs to op `of`, each partial sum to the op of
 * its first contribution. */
static int sum_in_pairs(struct dlb_autodiff *ad, int t, const struct dlb_contribution *c, int n, int of,
			struct dlb_error *err)
{
	int half[2];

	if (n == 1)
		return c->grad;
	half[0] = sum_in_pairs(ad, t, c, n / 2, c[0].op, err);
	half[1] = sum_in_pairs(ad, t, c + n / 2, n - n / 2, c[n / 2].op, err);
	return half[0] < 0 || half[1] < 0 ? -1 : add_sum(ad, t, half, 2, of, err);
}

/* The gradient of tensor t: the sum of its contributions, added as an op that belongs to
 * `op`. -1: there are none. */
static int collect(struct dlb_autodiff *ad, int t, int op, struct dlb_error *err)
{
	struct dlb_contributions *c = &ad->of[t];
	struct dlb_graph *g = ad->g;

	if (c->n <= 1)
		return c->n ? c->c[0].grad : -1;
	sort_contributions(c);
	int *in = dlb_arena_array(&ad->a, (size_t)c->n, sizeof *in), sum = -1;
	int *from = dlb_arena_array(&ad->a, (size_t)c->n, sizeof *from);
	for (int i = 0; i < c->n; i++) {
		in[i] = c->c[i].grad;
		from[i] = c->c[i].op;
	}
	if (!dlb_split_in_pairs(g, t, from, c->n))
		sum = add_sum(ad, t, in, c->n, op, err);
	else if (sum_each_shard(ad, t, c, err) > 0)
		sum = sum_in_pairs(ad, t, c->c, c->n, op, err);
	if (sum < 0)
		return -1;
	g->tensor[sum].of = t;
	dlb_graph_rename_op(g, g->n_ops - 1,
			    dlb_graph_op_name(g, dlb_arena_printf(&ad->a, "%s.grad_sum", g->tensor[t].name)));
	c->c[0].grad = sum;
	c->n = 1;
	return sum;
}

/* -- one op -- */

/* The role of input k in gradient names: conv1.weight -> "weight"; inputs that are no
 * weights: "input", "input2", ... */
static const char *role_of(struct dlb_autodiff *ad, int op, int k)
{
	const struct dlb_graph *g = ad->g;
	const struct dlb_tensor *t = &g->tensor[g->op[op].in[k]];

	if (t->kind != DLB_T_WEIGHT)
		return k ? dlb_arena_printf(&ad->a, "input%d", k) : "input";
	const char *dot = strrchr(t->name, '.');
	return dot && dot[1] ? dot + 1 : t->name;
}

/* Names the ops that compute the gradients of the inputs, such as "conv1.grad_weight". */
static void name_gradients(struct dlb_autodiff *ad, int op, int first, const int *din)
{
	struct dlb_graph *g = ad->g;

	for (int i = first; i < g->n_ops; i++) {
		int best = -1;
		for (int k = 0; k < g->op[op].n_in; k++)
			if (din[k] >= 0 && g->tensor[din[k]].producer == i && best < 0)
				best = k;
		if (best >= 0)
			dlb_graph_rename_op(g, i,
					    dlb_graph_op_name(g, dlb_arena_printf(&ad->a, "%s.grad_%s",
										  g->op[op].name,
										  role_of(ad, op, best))));
	}
}

/* A gradient has the layout of its tensor: adds a Layout op where it differs. */
static int match_layout(struct dlb_autodiff *ad, struct dlb_builder *b, int grad, int t, int first)
{
	struct dlb_graph *g = ad->g;
	const struct dlb_tensor *x = &g->tensor[t];

	if (grad < 0 || g->tensor[grad].n_dims != x->n_dims || g->tensor[grad].layout == x->layout)
		return grad;
	if (dlb_layouts_coincide(x) && g->tensor[grad].producer >= first) {
		g->tensor[grad].layout = x->layout;
		return grad;
	}
	const struct dlb_attr to = { .name = "to", .type = DLB_ATTR_STR,
		.s = x->layout == DLB_PLAIN ? "plain" : "channels-last" };
	return dlb_b_op(b, DLB_SPEC_ATTR(dlb_layouts_coincide(x) ? "LayoutView" : "Layout", &to, 1, grad),
			NULL, t);
}

/* A gradient has the type of its tensor: an operator with f32 and bf16 inputs gives bf16
 * gradients to the latter. */
static int match_dtype(struct dlb_autodiff *ad, struct dlb_builder *b, int grad, int t)
{
	const enum dlb_dtype want = ad->g->tensor[t].dtype;
	const struct dlb_attr to = { .name = "to", .type = DLB_ATTR_INT, .i = dlb_dtype_to_onnx(want) };

	return grad < 0 || ad->g->tensor[grad].dtype == want ?
		       grad :
		       dlb_b_op(b, DLB_SPEC_ATTR("Cast", &to, 1, grad), NULL, t);
}

/* Have they the same dimensions, apart from those of 1? */
static bool alike_but_for_ones(const struct dlb_desc *a, const struct dlb_desc *b)
{
	int i = 0, j = 0;

	for (;; i++, j++) {
		while (i < a->n_dims && a->dim[i] == 1)
			i++;
		while (j < b->n_dims && b->dim[j] == 1)
			j++;
		if (i == a->n_dims || j == b->n_dims)
			return i == a->n_dims && j == b->n_dims;
		if (a->dim[i] != b->dim[j])
			return false;
	}
}

/* A gradient has the shape of its tensor: operators that want a number of elements take a bias of [1,C] for C
 * channels too, and give its gradient as [C]. */
static int match_shape(struct dlb_autodiff *ad, struct dlb_builder *b, int grad, int t)
{
	if (grad < 0)
		return grad;
	const struct dlb_desc is = dlb_tensor_desc(&ad->g->tensor[grad], ad->g->batch),
			      should = dlb_tensor_desc(&ad->g->tensor[t], ad->g->batch);

	return dlb_desc_same_shape(&is, &should) || !alike_but_for_ones(&is, &should) ?
		       grad :
		       dlb_b_op2(b, "Reshape", grad, dlb_b_const_shape(b, t));
}

static int take_gradients(struct dlb_autodiff *ad, struct dlb_builder *b, int first, struct dlb_error *err)
{
	struct dlb_graph *g = ad->g;
	const int n_in = b->io.n_in;

	name_gradients(ad, b->op, first, b->din);
	for (int k = 0; k < n_in; k++) {
		if (b->din[k] < 0 || !b->need[k])
			continue;
		const int x = b->in[k], same = match_shape(ad, b, b->din[k], x),
			  grad = match_dtype(ad, b, match_layout(ad, b, same, x, first), x);
		if (grad < 0)
			return -1;
		struct dlb_tensor *d = &g->tensor[grad];
		const struct dlb_tensor *t = &g->tensor[x];
		const struct dlb_desc is = dlb_tensor_desc(d, g->batch),
				      should = dlb_tensor_desc(t, g->batch);
		if (!dlb_desc_same_shape(&is, &should)) {
			char one[100], two[100];
			return dlb_vertex_fail(&g->op[b->op], err,
					       "this is a mistake of dlb: report it with the model",
					       "gradient of input %d of %s has shape %s, the input %s", k,
					       b->io.cls->name, dlb_desc_str(&is, one, sizeof one),
					       dlb_desc_str(&should, two, sizeof two));
		}
		if (d->of < 0 && d->producer >= first) {
			d->of = x;
			dlb_graph_rename_tensor(g, grad,
						dlb_graph_tensor_name(g, dlb_arena_printf(&ad->a, "%s.grad",
											  t->name)));
		}
		contribute(ad, x, grad, b->op);
	}
	return 0;
}

static int differentiate_op(struct dlb_autodiff *ad, int op, struct dlb_error *err)
{
	struct dlb_graph *g = ad->g;
	const struct dlb_op_class *cls = dlb_op_class_of(g->op[op].kind);
	const int n_in = g->op[op].n_in, n_out = g->op[op].n_out, first = g->n_ops;
	int *dout = dlb_arena_array(&ad->a, (size_t)n_out + 1, sizeof *dout);
	int *din = dlb_arena_array(&ad->a, (size_t)n_in + 1, sizeof *din);
	bool *need = dlb_arena_array(&ad->a, (size_t)n_in + 1, sizeof *need);
	bool flows = false, any = false;

	for (int k = 0; k < n_in; k++) {
		const int t = g->op[op].in[k];
		din[k] = -1;
		need[k] = t >= 0 && ad->needs[t] && g->tensor[t].kind != DLB_T_BUFFER;
		any |= need[k];
	}
	for (int k = 0; k < n_out; k++) {
		const int t = g->op[op].out[k];
		dout[k] = -1;
		if (t < 0 || t >= ad->n_known || !any || !cls || !cls->gradient)
			continue;
		dout[k] = collect(ad, t, op, err);
		if (ad->failed)
			return -1;
		flows |= dout[k] >= 0;
	}
	if (!flows)
		return 0;
	struct dlb_builder b = { .graph = ad, .op = op, .dout = dout, .din = din, .need = need, .err = err };
	dlb_graph_io(g, op, dlb_graph_reference(g), &ad->a, &b.io);
	b.in = g->op[op].in;
	b.out = g->op[op].out;
	if (cls->gradient(&b, err) || ad->failed)
		return -1;
	return take_gradients(ad, &b, first, err);
}

/* Each weight's gradient is a tensor of its own, since the program sums micro-batches in it. */
static int own_gradient(struct dlb_autodiff *ad, int w, int op, struct dlb_error *err)
{
	struct dlb_graph *g = ad->g;
	int grad = collect(ad, w, op, err);

	if (grad < 0)
		return -1;
	if (g->tensor[grad].of != w) {
		struct dlb_builder b = { .graph = ad, .op = op, .err = err };
		grad = dlb_b_op(&b, DLB_SPEC("Identity", grad), NULL, w);
		if (grad < 0)
			return -1;
		g->tensor[grad].of = w;
		dlb_graph_rename_tensor(g, grad,
					dlb_graph_tensor_name(g, dlb_arena_printf(&ad->a, "%s.grad",
										  g->tensor[w].name)));
	}
	g->tensor[grad].kind = DLB_T_WEIGHT_GRADIENT;
	ad->of[w].c[0].grad = grad;
	return grad;
}

/* The gradients of a weight are complete once its first reader has been visited. */
static int finish_weights(struct dlb_autodiff *ad, int op, struct dlb_error *err)
{
	struct dlb_graph *g = ad->g;

	for (int k = 0; k < g->op[op].n_in; k++) {
		const int t = g->op[op].in[k];
		if (t < 0 || g->tensor[t].kind != DLB_T_WEIGHT || ad->first_reader[t] != op || !ad->of[t].n)
			continue;
		const int grad = ad->of[t].c[0].grad;
		if (ad->of[t].n == 1 && g->tensor[grad].kind == DLB_T_WEIGHT_GRADIENT &&
		    g->tensor[grad].of == t)
			continue;		/* this op reads it twice */
		if (own_gradient(ad, t, op, err) < 0)
			return -1;
	}
	return 0;
}

static void start(struct dlb_autodiff *ad, struct dlb_graph *g)
{
	*ad = (struct dlb_autodiff){ .g = g, .n_forward = g->n_ops, .n_known = g->n_tensors };
	ad->needs = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *ad->needs);
	ad->of = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *ad->of);
	ad->first_reader = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *ad->first_reader);
}

static void finish(struct dlb_autodiff *ad)
{
	for (int t = 0; t < ad->n_known; t++)
		free(ad->of[t].c);
	free(ad->of);
	free(ad->needs);
	free(ad->first_reader);
	free(ad->extra);
	dlb_arena_release(&ad->a);
}

/* A backward op that reads tensors saved by its forward op shares its node: their format
 * is private to the kernel. */
static void colocate_readers(struct dlb_autodiff *ad)
{
	struct dlb_graph *g = ad->g;

	for (int i = ad->n_forward; i < g->n_ops; i++)
		for (int k = 0; k < g->op[i].n_in; k++)
			for (int e = 0; e < ad->n_extra; e++)
				if (g->op[i].in[k] == ad->extra[e])
					g->op[i].colocate = g->tensor[ad->extra[e]].producer;
}

static int walk(struct dlb_autodiff *ad, bool weights, struct dlb_error *err)
{
	for (int i = ad->n_forward - 1; i >= 0; i--)
		if (differentiate_op(ad, i, err) || (weights && finish_weights(ad, i, err)))
			return -1;
	colocate_readers(ad);
	return 0;
}

static void add_update(struct dlb_autodiff *ad, int w)
{
	struct dlb_graph *g = ad->g;
	const int in[2] = { w, ad->of[w].c[0].grad };
	const struct dlb_attr optimizer = { .name = "optimizer", .type = DLB_ATTR_STR, .s = "sgd" };
	const char *name = dlb_graph_op_name(g, dlb_arena_printf(&ad->a, "%s.update", g->tensor[w].name));
	const int op = dlb_graph_add_op(g, DLB_UPDATE,
					&(struct dlb_op_spec){ .name = name, .type = "Update",
							       .domain = "dlb", .in = in, .n_in = 2,
							       .attr = &optimizer, .n_attr = 1 });

	g->op[op].of = g->op[op].colocate = ad->first_reader[w];
}

int dlb_graph_differentiate(struct dlb_graph *g, struct dlb_error *err)
{
	struct dlb_autodiff ad;
	int n = 0, rc = -1;

	if (g->loss < 0 || g->seed < 0)
		dlb_bug("a graph to be trained without a loss, or a loss without a seed");
	dlb_graph_index(g);
	start(&ad, g);
	mark_needed(&ad, NULL, 0);
	contribute(&ad, g->loss, g->seed, g->n_ops);
	if (walk(&ad, true, err))
		goto out;
	for (int t = 0; t < ad.n_known; t++) {
		if (g->tensor[t].kind != DLB_T_WEIGHT || g->tensor[t].frozen)
			continue;
		if (ad.of[t].n) {
			add_update(&ad, t);
			n++;
		} else {
			g->tensor[t].kind = DLB_T_CONSTANT;
		}
	}
	if (!n) {
		dlb_fail(err, NULL, "nothing to train: no float initializer reaches the loss differentiably");
		dlb_hint(err, "try --inference");
		goto out;
	}
	dlb_graph_drop_dead(g, NULL, 0);
	dlb_graph_fill_work(g, 0);
	dlb_graph_set_homes(g);
	rc = 0;
out:
	finish(&ad);
	return rc;
}

int dlb_graph_differentiate_from(struct dlb_graph *g, int tensor, int seed, const int *wrt, int n_wrt,
				 int *grad, struct dlb_error *err)
{
	struct dlb_autodiff ad;
	int rc = -1;

	dlb_graph_index(g);
	start(&ad, g);
	mark_needed(&ad, wrt, n_wrt);
	contribute(&ad, tensor, seed, g->n_ops);
	if (walk(&ad, false, err))
		goto out;
	for (int i = 0; i < n_wrt; i++) {
		grad[i] = wrt[i] == tensor ? seed : collect(&ad, wrt[i], ad.n_forward ? 0 : -1, err);
		if (ad.failed)
			goto out;
	}
	dlb_graph_index(g);
	dlb_graph_fill_work(g, 0);
	dlb_graph_set_homes(g);
	rc = 0;
out:
	finish(&ad);
	return rc;
}
