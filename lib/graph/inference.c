/* The inference graph of a training graph: the forward ops alone, in their inference mode: BatchNormalization
 * by its running statistics, Dropout removed, nothing saved for a backward pass.
 * Names and data are borrowed from the training graph. */
#include <stdlib.h>
#include <string.h>
#include "graph/passes.h"
#include "graph/rewrite.h"

static bool is_type(const struct dlb_op *o, const char *type)
{
	return !strcmp(o->type, type) && !*o->domain;
}

/* Copies the attributes with `name` set to v. */
static struct dlb_attr *with_int(struct dlb_arena *a, const struct dlb_op *o, const char *name, int64_t v,
				 int *n)
{
	struct dlb_attr *attr = dlb_arena_array(a, (size_t)o->n_attr + 1, sizeof *attr);

	*n = 0;
	for (int i = 0; i < o->n_attr; i++)
		if (strcmp(o->attr[i].name, name))
			attr[(*n)++] = o->attr[i];
	attr[(*n)++] = (struct dlb_attr){ .name = name, .type = DLB_ATTR_INT, .i = v };
	return attr;
}

static void add_eval_op(struct dlb_graph *out, const struct dlb_op *o, const int *to)
{
	int *in = dlb_arena_array(&out->arena, (size_t)o->n_in + 1, sizeof *in), n_attr = o->n_attr,
	    n_out = o->n_out;
	int *res = dlb_arena_array(&out->arena, (size_t)o->n_out + 1, sizeof *res);
	struct dlb_attr *attr = o->attr;

	if (is_type(o, "BatchNormalization")) {
		n_out = 1;
		attr = with_int(&out->arena, o, o->opset >= 14 ? "training_mode" : "is_test", o->opset < 14,
				&n_attr);
	}
	for (int k = 0; k < o->n_in; k++)
		in[k] = o->in[k] < 0 ? -1 : to[o->in[k]];
	for (int k = 0; k < n_out; k++)
		res[k] = o->out[k] < 0 ? -1 : to[o->out[k]];
	const int id = dlb_graph_add_op(out, DLB_FORWARD,
					&(struct dlb_op_spec){ .name = o->name, .type = o->type,
							       .domain = o->domain, .in = in, .n_in = o->n_in,
							       .out = res, .n_out = n_out, .attr = attr,
							       .n_attr = n_attr });
	out->op[id].opset = o->opset;
	out->op[id].kind = o->kind;
}

/* The old ids of the tensors (ops) that dlb_graph_drop_dead renumbered, found by name. */
static int *origins(const struct dlb_graph *g, struct dlb_graph *out, bool ops)
{
	const int n = ops ? out->n_ops : out->n_tensors, n_from = ops ? g->n_ops : g->n_tensors;
	int *of = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *of);

	for (int i = 0, k = 0; i < n; i++) {	/* both have the same order */
		const char *name = ops ? out->op[i].name : out->tensor[i].name;
		while (k < n_from && strcmp(ops ? g->op[k].name : g->tensor[k].name, name))
			k++;
		of[i] = k < n_from ? k++ : -1;
	}
	return of;
}

int dlb_graph_eval(const struct dlb_graph *g, struct dlb_graph *out, int **op_of, int **tensor_of,
		   struct dlb_error *err)
{
	int *to = dlb_xcalloc((size_t)g->n_tensors + 1, sizeof *to);

	(void)err;
	dlb_graph_init(out);
	out->batch = g->batch;
	out->fixed_batch = g->fixed_batch;
	out->dtype = g->dtype;
	out->opset = g->opset;
	out->model_path = g->model_path;
	out->model_sha256 = g->model_sha256;
	out->external_unread = g->external_unread;
	out->rewritten = g->rewritten;
	out->n_rewritten = g->n_rewritten;
	out->sample_shares = g->sample_shares;
	out->was_split = g->was_split;
	out->n_was_split = g->n_was_split;
	out->listed = g->listed;
	out->n_listed = g->n_listed;
	memcpy(out->upcast, g->upcast, sizeof out->upcast);
	out->derived = g->derived;
	out->n_derived = g->n_derived;
	out->unmerged = g->unmerged;
	out->n_unmerged = g->n_unmerged;
	out->n_untrained = g->n_untrained;
	out->note = g->note;
	out->n_notes = g->n_notes;
	for (int t = 0; t < g->n_tensors; t++) {
		to[t] = dlb_graph_add_tensor(out, g->tensor[t].name, g->tensor[t].kind);
		out->tensor[t] = g->tensor[t];
		out->tensor[t].of = out->tensor[t].home = -1;
	}
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		if (o->phase != DLB_FORWARD)
			continue;
		if (is_type(o, "Dropout"))
			to[o->out[0]] = to[o->in[0]];
		else
			add_eval_op(out, o, to);
	}
	out->input = dlb_arena_array(&out->arena, (size_t)g->n_inputs + 1, sizeof *out->input);
	for (int i = 0; i < g->n_inputs; i++)
		out->input[out->n_inputs++] = to[g->input[i]];
	out->output = dlb_arena_array(&out->arena, (size_t)g->n_outputs + 1, sizeof *out->output);
	for (int i = 0; i < g->n_outputs; i++)
		out->output[out->n_outputs++] = to[g->output[i]];
	out->loss = g->loss < 0 ? -1 : to[g->loss];
	out->label = g->label;
	free(to);
	dlb_graph_drop_dead(out, NULL, 0);
	dlb_graph_fill_work(out, 0);
	dlb_graph_set_homes(out);
	*op_of = origins(g, out, true);
	*tensor_of = origins(g, out, false);
	return 0;
}
