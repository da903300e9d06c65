/* Softmax with a guard, as exporters of scaled_dot_product_attention write it: if a mask sets a whole row of
 * scores to -inf, Softmax gives NaN, which is replaced by zeros.
 *
 *     y = Softmax(scores + mask);   Where(IsNaN(y), 0, y)   ->   y
 *
 * if no row of the mask is entirely -inf: the mask is a constant whose rows were
 * checked, or there is none. */
#include <math.h>
#include <string.h>
#include "graph/order.h"
#include "graph/pattern.h"
#include "graph/rewrites.h"

/* Does each row of constant t, along the last dimension, have a value above -inf? */
static bool rows_are_open(const struct dlb_graph *g, int t)
{
	const struct dlb_tensor *x = &g->tensor[t];
	const struct dlb_desc d = dlb_tensor_desc(x, 1);

	if (x->kind != DLB_T_CONSTANT || !dlb_dtype_is_float(x->dtype) || x->data_mul ||
	    (!x->data && !x->is_fill))
		return false;
	if (x->is_fill)
		return x->fill > -INFINITY;
	const int64_t n = d.n_dims ? d.dim[d.n_dims - 1] : 1, rows = n ? dlb_desc_count(&d) / n : 0;
	for (int64_t i = 0; i < rows; i++) {
		int64_t k = 0;
		while (k < n && !(dlb_value_real(x->data, x->dtype, i * n + k) > -INFINITY))
			k++;
		if (k == n)
			return false;
	}
	return rows > 0;
}

/* Is t a product, perhaps scaled? It is finite if its operands are. */
static bool is_score(const struct dlb_graph *g, int t)
{
	static const char *const finite[] = { "MatMul", "Mul", "Div", "Gemm", "Einsum" };
	const int op = g->tensor[t].producer;

	for (int k = 0; k < DLB_LEN(finite); k++)
		if (dlb_is_op(g, op, finite[k]))
			return true;
	return op >= 0 && !strcmp(g->op[op].type, "Product") && !strcmp(g->op[op].domain, "dlb");
}

/* Is op i a Softmax over the last dimension of scores of which no row is entirely -inf? */
static bool is_open(const struct dlb_graph *g, int i)
{
	const struct dlb_op *o = &g->op[i];
	const int n_dims = g->tensor[o->in[0]].n_dims, add = g->tensor[o->in[0]].producer;
	const int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", o->opset >= 13 ? -1 : 1);

	if (o->opset < 13 || (axis < 0 ? axis + n_dims : axis) != n_dims - 1)
		return false;
	if (is_score(g, o->in[0]))
		return true;
	for (int k = 0; k < 2 && dlb_is_op(g, add, "Add"); k++)
		if (is_score(g, g->op[add].in[k]) && rows_are_open(g, g->op[add].in[1 - k]))
			return true;
	return false;
}

int dlb_rewrite_softmax_guard(struct dlb_graph *g, int64_t *count, struct dlb_error *err)
{
	(void)err;
	for (int i = 0; i < g->n_ops; i++) {
		struct dlb_match m = { .g = g, .root = i };
		double zero;
		if (!dlb_is_op(g, i, "Where") || dlb_graph_is_output(g, g->op[i].out[0]) ||
		    g->op[i].out[0] == g->loss)
			continue;
		const struct dlb_op *o = &g->op[i];
		const int nan = dlb_match_op(&m, o->in[0], "IsNaN"),
			  softmax = dlb_match_op(&m, o->in[2], "Softmax");
		if (nan < 0 || softmax < 0 || g->op[nan].in[0] != o->in[2] ||
		    !dlb_match_scalar(g, o->in[1], &zero) || zero != 0 ||
		    !dlb_match_same_shape(g, o->in[2], o->out[0]) || !is_open(g, softmax))
			continue;
		dlb_graph_replace(g, o->out[0], o->in[2], false);
		g->op[i].n_in = g->op[i].n_out = 0;
		(*count)++;
	}
	dlb_graph_index(g);
	return 0;
}
