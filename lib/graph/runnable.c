/* Checks that the graph can run: operators are known and have the operands they need; outputs have the types
 * and shapes that the operators infer. Kernels rely on this check, since a document may have been edited, or
 * be malicious. */
#include <stdlib.h>
#include <string.h>
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"

static int wrong_count(const struct dlb_op *o, const char *what, int n, const int range[2],
		       struct dlb_error *err)
{
	if (range[0] == range[1])
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK,
				"%s has %d %s, %d are needed", o->type, n, what, range[0]);
	if (range[1] < 0)
		return dlb_vertex_fail(o, err, DLB_CURE_CHECK,
				"%s has %d %s, at least %d are needed", o->type, n, what, range[0]);
	return dlb_vertex_fail(o, err, DLB_CURE_CHECK,
			"%s has %d %s, %d to %d are possible", o->type, n, what, range[0], range[1]);
}

int dlb_graph_check_arity(const struct dlb_graph *g, int op, struct dlb_error *err)
{
	const struct dlb_op *o = &g->op[op];
	const struct dlb_op_class *cls = dlb_op_class_of(o->kind);

	if (!cls)
		return dlb_graph_fail_unknown(o, err);
	if (o->n_in < cls->n_in[0] || (cls->n_in[1] >= 0 && o->n_in > cls->n_in[1]))
		return wrong_count(o, "inputs", o->n_in, cls->n_in, err);
	/* no least number of outputs, since outputs without readers are dropped */
	if (cls->n_out[1] >= 0 && o->n_out > cls->n_out[1])
		return wrong_count(o, "outputs", o->n_out, cls->n_out, err);
	if (cls->n_out[0] > 0 && o->n_out < 1)
		return wrong_count(o, "outputs", o->n_out, cls->n_out, err);
	/* if the number of operands is variable, none may be absent */
	const int needed = cls->n_in[1] < 0 ? o->n_in : cls->n_in[0];
	for (int k = 0; k < o->n_in; k++)
		if (o->in[k] < 0 ? k < needed : g->tensor[o->in[k]].n_dims < 0)
			return dlb_vertex_fail(o, err, DLB_CURE_CHECK, "input %d of %s %s", k, o->type,
					       o->in[k] < 0 ? "is missing" : "has no shape");
	return 0;
}

static int check_op(const struct dlb_graph *g, int op, int64_t n, struct dlb_arena *a, struct dlb_error *err)
{
	const struct dlb_op *o = &g->op[op];
	struct dlb_op_io io;
	char is[100], should[100];

	if (dlb_graph_check_arity(g, op, err))
		return -1;
	dlb_graph_io(g, op, n, a, &io);
	struct dlb_desc *stated = dlb_arena_array(a, (size_t)o->n_out + 1, sizeof *stated);
	memcpy(stated, io.out, (size_t)o->n_out * sizeof *stated);
	if (io.cls->infer(&io, err))
		return err && !*err->hint ? dlb_hint(err, "run dlb-profile again") : -1;
	for (int k = 0; k < o->n_out; k++) {
		if (o->out[k] < 0)
			continue;
		if (io.out[k].n_dims < 0)
			return dlb_vertex_fail(o, err, DLB_CURE_CHECK, "%s has no output %d", o->type, k);
		if (stated[k].dtype != io.out[k].dtype || stated[k].n_dims < 0 ||
		    !dlb_desc_same_shape(&stated[k], &io.out[k]))
			return dlb_vertex_fail(o, err, "run dlb-profile again",
					       "output %d of %s is stated as %s, but is %s", k, o->type,
					       dlb_desc_str(&stated[k], is, sizeof is),
					       dlb_desc_str(&io.out[k], should, sizeof should));
		/* a view has as many bytes as its input */
		if (io.cls->flags & DLB_OP_VIEW && k == 0 &&
		    dlb_desc_bytes(&io.in[0]) != dlb_desc_bytes(&io.out[0]))
			return dlb_vertex_fail(o, err, "run dlb-profile again",
					"%s changes the number of elements", o->type);
	}
	return 0;
}

static int check_scalar(const struct dlb_graph *g, int t, const char *what, struct dlb_error *err)
{
	if (t < 0)
		return 0;
	const struct dlb_desc d = dlb_tensor_desc(&g->tensor[t], 1), e = dlb_tensor_desc(&g->tensor[t], 2);
	if (d.n_dims < 0 || !dlb_dtype_is_float(d.dtype) || dlb_desc_count(&d) != 1 ||
	    dlb_desc_count(&e) != 1)
		return dlb_refuse(err, g->tensor[t].name, "run dlb-profile again",
				"the %s is no float scalar", what);
	return 0;
}

int dlb_graph_check_runnable(const struct dlb_graph *g, int64_t n, struct dlb_error *err)
{
	int rc = check_scalar(g, g->loss, "loss", err) || check_scalar(g, g->seed, "seed", err) ? -1 : 0;

	for (int i = 0; i < g->n_ops && !rc; i++) {
		struct dlb_arena a = { 0 };
		rc = check_op(g, i, n, &a, err);
		dlb_arena_release(&a);
	}
	return rc;
}
