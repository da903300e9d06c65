/* Turns initializers into weights.
 *
 * A float initializer that is to be trained (parameters.c) and has a differentiable path to an output becomes
 * a weight. Running statistics of BatchNormalization become buffers: their op writes them in place, in the
 * order of the micro-batches. Autodiff turns a weight for which it finds no gradient (a loss's class weights)
 * into a constant again; a frozen parameter stays a constant. */
#include <stdlib.h>
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"

enum { FIRST_BUFFER = 3 };	/* BatchNormalization: x, scale, bias, then the statistics */

static bool is_initializer(const struct dlb_tensor *t)
{
	return t->kind == DLB_T_CONSTANT && t->initial && dlb_dtype_is_float(t->dtype) &&
	       (t->data || t->is_fill);
}

static void find_buffers(struct dlb_graph *g, const struct dlb_op *o)
{
	for (int i = FIRST_BUFFER; i < o->n_in; i++)
		if (o->in[i] >= 0 && g->tensor[o->in[i]].kind == DLB_T_CONSTANT)
			g->tensor[o->in[i]].kind = DLB_T_BUFFER;
}

static int64_t product(const struct dlb_tensor *t, int first)
{
	int64_t p = 1;

	for (int i = first; i < t->n_dims; i++)
		p *= t->dim[i].add;
	return p;
}

static int bounded(int64_t v)
{
	return v > 0 && v < INT32_MAX ? (int)v : 0;
}

/* Fan-in and fan-out of a weight as its first reader uses it (Glorot, Bengio, AISTATS 2010): convolutions (M,
 * C/groups, k...), matrices (in, out) or, transposed, (out, in); vectors have none. */
static void set_fans(struct dlb_tensor *t, const struct dlb_op *reader)
{
	if (t->n_dims < 2)
		return;
	const int64_t spatial = product(t, 2);
	const bool conv = t->n_dims > 2;
	const bool out_first = conv || dlb_attr_int(reader->attr, reader->n_attr, "transB", 0);
	const int64_t rows = t->dim[0].add, columns = t->dim[1].add;

	t->fan_in = bounded((out_first ? columns : rows) * spatial);
	t->fan_out = bounded((out_first ? rows : columns) * spatial);
}

int dlb_graph_find_parameters(struct dlb_graph *g, struct dlb_error *err)
{
	bool *wanted = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *wanted);

	(void)err;
	for (int i = 0; i < g->n_outputs; i++)
		wanted[g->output[i]] = dlb_dtype_is_float(g->tensor[g->output[i]].dtype);
	for (int i = g->n_ops - 1; i >= 0; i--) {
		const struct dlb_op *o = &g->op[i];
		const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
		bool reached = false;
		for (int k = 0; k < o->n_out; k++)
			reached |= o->out[k] >= 0 && wanted[o->out[k]];
		if (cls && cls->flags & DLB_OP_BUFFERS)
			find_buffers(g, o);
		if (!reached || !cls || !cls->gradient)
			continue;
		for (int k = 0; k < o->n_in; k++) {
			const int t = o->in[k];
			if (t < 0 || !dlb_dtype_is_float(g->tensor[t].dtype) ||
			    g->tensor[t].kind == DLB_T_BUFFER)
				continue;
			wanted[t] = true;
			if (is_initializer(&g->tensor[t]) && !g->tensor[t].frozen)
				g->tensor[t].kind = DLB_T_WEIGHT;
			if (g->tensor[t].kind == DLB_T_WEIGHT)
				set_fans(&g->tensor[t], o);	/* the first reader is visited
								 * last, so its fans stay */
		}
	}
	free(wanted);
	dlb_graph_index(g);
	dlb_graph_set_homes(g);
	return 0;
}
