/* Mixed precision: activations in bf16, parameters in f32. The forward graph is changed, before
 * differentiation.
 *
 * Products (Conv, Gemm, MatMul) read and write bf16 activations. They take weights as f32 and round them
 * while packing: a weight is rounded once a step, its gradient is summed in f32, and the optimizer updates
 * the exact value. Ops between products use bf16 too (activations, normalization with f32 statistics, pools,
 * moves), which halves the bytes that are moved, kept and sent. The rest (losses, long sums, powers,
 * recurrent layers) is f32, with one Cast per tensor where the type changes. Each operator's class states its
 * type (op.h, bf16 and f32_in). A gradient has the type of its tensor.
 * P. Micikevicius et al., Mixed Precision Training, ICLR 2018; D. Kalamkar et al., A Study of BFLOAT16 for
 * Deep Learning Training, 2019: bf16 has f32's exponent range, so losses need no scaling. */
#include <stdlib.h>
#include "graph/passes.h"
#include "graph/rewrite.h"

struct mixing {
	struct dlb_graph *g;
	struct cast { int from, to; } *cast;	/* tensor `to` is tensor `from` cast to the other type */
	int n, cap;
	bool *is_param;			/* [tensor] computed from weights and constants alone */
	int *order, n_order;		/* old and new op ids in their new order */
};

/* Tensor t in type `to`, by a Cast that is added once per tensor. -1 with err. */
static int converted(struct mixing *m, int t, enum dlb_dtype to, struct dlb_error *err)
{
	struct dlb_graph *g = m->g;

	if (g->tensor[t].dtype == to)
		return t;
	for (int i = 0; i < m->n; i++)
		if (m->cast[i].from == t)
			return m->cast[i].to;
		else if (m->cast[i].to == t)
			return m->cast[i].from;
	const char *base = dlb_arena_printf(&g->arena, "%s.%s", g->tensor[t].name, dlb_dtype_name(to));
	const struct dlb_attr attr = { .name = "to", .type = DLB_ATTR_INT, .i = dlb_dtype_to_onnx(to) };
	const struct dlb_op_spec s = { .name = base, .type = "Cast", DLB_OPERANDS(t), .attr = &attr,
				       .n_attr = 1 };
	const int op = g->n_ops, other = dlb_graph_add_forward(g, &s, err);
	if (other < 0)
		return -1;
	DLB_GROW(m->cast, m->n, m->cap);
	m->cast[m->n++] = (struct cast){ t, other };
	m->order[m->n_order++] = op;
	return other;
}

static bool is_real(const struct dlb_graph *g, int t)
{
	return t >= 0 && (g->tensor[t].dtype == DLB_F32 || g->tensor[t].dtype == DLB_BF16);
}

static bool stays_f32(const struct dlb_op_class *cls, int k)
{
	return k < 32 && cls->f32_in >> k & 1;
}

/* Does the op work in bf16? */
static bool narrow(const struct mixing *m, int op)
{
	const struct dlb_graph *g = m->g;
	const struct dlb_op *o = &g->op[op];
	const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
	bool any = false, all_params = true;

	if (!cls || cls->bf16 == DLB_BF16_NEVER)
		return false;
	for (int k = 0; k < o->n_in; k++) {
		if (!is_real(g, o->in[k]) || stays_f32(cls, k))
			continue;
		any |= g->tensor[o->in[k]].dtype == DLB_BF16;
		all_params &= m->is_param[o->in[k]];
	}
	return cls->bf16 == DLB_BF16_ALWAYS || cls->bf16 == DLB_BF16_WEIGHTS ? !all_params : any;
}

/* May input k, tensor t, of an op that works in bf16 be f32? */
static bool may_differ(const struct mixing *m, const struct dlb_op_class *cls, int k, int t)
{
	return cls->bf16 == DLB_BF16_MIXES || (cls->bf16 == DLB_BF16_WEIGHTS && k == 1 && m->is_param[t]);
}

/* Infers the output types from the input types. */
static int set_types(struct dlb_graph *g, int op, struct dlb_error *err)
{
	const struct dlb_op_class *cls = dlb_op_class_of(g->op[op].kind);
	struct dlb_arena a = { 0 };
	struct dlb_op_io io;

	if (!cls)
		return 0;
	dlb_graph_io(g, op, dlb_graph_reference(g), &a, &io);
	const int rc = cls->infer(&io, err);
	for (int k = 0; k < io.n_out && !rc; k++) {
		struct dlb_tensor *t = g->op[op].out[k] < 0 ? NULL : &g->tensor[g->op[op].out[k]];
		if (t && t->kind != DLB_T_BUFFER && t->kind != DLB_T_WEIGHT)
			t->dtype = io.out[k].dtype;
	}
	dlb_arena_release(&a);
	return rc;
}

static int choose(struct mixing *m, int op, struct dlb_error *err)
{
	struct dlb_graph *g = m->g;
	const struct dlb_op_class *cls = dlb_op_class_of(g->op[op].kind);
	const int n_in = g->op[op].n_in;
	int *in = g->op[op].in;
	const bool is_narrow = narrow(m, op);
	bool params = cls && cls->bf16 != DLB_BF16_NEVER;

	for (int k = 0; k < n_in; k++) {
		params &= in[k] < 0 || m->is_param[in[k]];
		if (!is_real(g, in[k]))
			continue;
		const bool bf16 = is_narrow && !stays_f32(cls, k);
		if (bf16 && may_differ(m, cls, k, in[k]))
			continue;
		const int t = converted(m, in[k], bf16 ? DLB_BF16 : DLB_F32, err);
		if (t < 0)
			return -1;
		in[k] = t;
	}
	for (int k = 0; k < g->op[op].n_out; k++)
		if (g->op[op].out[k] >= 0)
			m->is_param[g->op[op].out[k]] = params;
	m->order[m->n_order++] = op;
	return set_types(g, op, err);
}

int dlb_graph_mix(struct dlb_graph *g, struct dlb_error *err)
{
	const int n_ops = g->n_ops, n_tensors = g->n_tensors;
	int n_operands = g->n_outputs, rc = 0;

	for (int i = 0; i < n_ops; i++)
		n_operands += g->op[i].n_in;
	struct mixing m = { .g = g,
			    .order = dlb_xcalloc((size_t)(n_ops + n_operands) + 1, sizeof *m.order),
			    .is_param = dlb_xcalloc((size_t)(n_tensors + n_operands) + 1,
						    sizeof *m.is_param) };
	for (int t = 0; t < n_tensors; t++)
		m.is_param[t] = g->tensor[t].kind == DLB_T_WEIGHT || g->tensor[t].kind == DLB_T_CONSTANT;
	for (int i = 0; i < n_ops && !rc; i++)
		rc = choose(&m, i, err);
	for (int i = 0; i < g->n_outputs && !rc; i++) {	/* the model's outputs are f32 */
		const int t = is_real(g, g->output[i]) ? converted(&m, g->output[i], DLB_F32, err) :
							 g->output[i];
		rc = t < 0 ? -1 : 0;
		if (!rc)
			g->output[i] = t;
	}
	if (!rc) {
		g->dtype = DLB_BF16;
		dlb_graph_reorder(g, m.order, m.n_order);
		dlb_graph_fill_work(g, 0);
		dlb_graph_set_homes(g);
	}
	free(m.cast);
	free(m.order);
	free(m.is_param);
	return rc;
}
