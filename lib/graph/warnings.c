/* Warnings before training a model that was exported for another purpose. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"
#include "graph/role.h"

/* Tested with PyTorch 2.15: dlb-profile(1), EXPORTING. The first is for the current exporter, the
 * second for TorchScript's. */
#define AS_WRITTEN "export with torch.onnx.export(model, args, FILE, optimize=False)"
#define HOW_TO_EXPORT "export with torch.onnx.export(..., dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)"

struct warning_list { struct dlb_graph *g; const char **line; int n, cap; };

static void say(struct warning_list *l, const char *text)
{
	DLB_GROW(l->line, l->n, l->cap);
	l->line[l->n++] = text;
}

static bool is_forward(const struct dlb_op *o, const char *type)
{
	return o->phase == DLB_FORWARD && !strcmp(o->type, type) && !*o->domain;
}

static bool has_suffix(const char *s, const char *end)
{
	const size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* The number of running means in the exporter's list in excess of the graph's BatchNormalizations: the
 * exporter folded so many norms. */
static int missing_norms(const struct dlb_graph *g, const char **name)
{
	int listed = 0, norms = 0;

	for (int i = 0; i < g->n_listed; i++) {
		if (g->listed[i].kind == DLB_LISTED_PARAMETER ||
		    !has_suffix(g->listed[i].name, "running_mean"))
			continue;
		*name = listed++ ? *name : g->listed[i].name;
	}
	for (int i = 0; i < g->n_ops; i++)
		norms += is_forward(&g->op[i], "BatchNormalization");
	return listed > norms ? listed - norms : 0;
}

/* The number of convolutions whose bias the legacy exporter made, which gives folded weights a number
 * ("onnx::Conv_203"); 0 if a convolution has no bias, or if a BatchNormalization remains. */
static int convs_with_merged_norms(const struct dlb_graph *g)
{
	int convs = 0, biased = 0, norms = 0, merged = 0;

	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		const bool bias = is_forward(o, "Conv") && o->n_in > 2 && o->in[2] >= 0;
		convs += is_forward(o, "Conv");
		biased += bias;
		norms += is_forward(o, "BatchNormalization");
		merged += bias && !strncmp(g->tensor[o->in[2]].name, "onnx::", 6);
	}
	return convs && biased == convs && !norms ? merged : 0;
}

static void folded_norms(struct warning_list *l)
{
	const char *name = "";
	const int missing = l->g->training ? missing_norms(l->g, &name) : 0,
		  merged = missing ? 0 : convs_with_merged_norms(l->g);

	if (missing)
		say(l,
		    dlb_arena_printf(&l->g->arena,
				     "%d BatchNormalization %s folded into the layers before by the exporter "
				     "('%s' is in its list, "
				     "not in the model): training goes on without normalization; " AS_WRITTEN,
				     missing, missing == 1 ? "is" : "are", name));
	if (merged)
		say(l, dlb_arena_printf(
			       &l->g->arena,
			       "%d convolutions have batch normalization folded in (exported for inference): "
			       "training goes on without normalization; " HOW_TO_EXPORT,
			       merged));
}

/* The number of forward readers of a weight; readers of different parts (the gates
 * of an LSTM) count as one. */
static int count_readers(const struct dlb_graph *g, int t, int found[2])
{
	int n = 0;
	bool part = false;

	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		const struct dlb_op *o = &g->op[g->reader[r]];
		const bool takes_part = is_forward(o, "Slice") || is_forward(o, "Split");
		if (o->phase != DLB_FORWARD || (takes_part && part))
			continue;
		part |= takes_part;
		if (n < 2)
			found[n] = g->reader[r];
		n++;
	}
	return n;
}

static void tied_weights(struct warning_list *l)
{
	const struct dlb_graph *g = l->g;
	int n_merged = 0, n_shared = 0, merged = -1, shared = -1, readers = 0, by[2] = { 0 },
	    found[2] = { 0 };

	for (int t = 0; t < g->n_tensors && g->training; t++) {
		if (g->tensor[t].kind != DLB_T_WEIGHT && g->tensor[t].kind != DLB_T_BUFFER)
			continue;		/* statistics that were merged with scales are not trained */
		const int n = count_readers(g, t, found);
		if (n < 2)
			continue;
		const bool uniform = dlb_values_uniform(&g->tensor[t]) && !g->tensor[t].named_by_readers;
		if (uniform && !n_merged++) {
			merged = t;
			readers = n;
		}
		if (!uniform && !n_shared++) {
			shared = t;
			memcpy(by, found, sizeof by);
		}
	}
	if (n_merged)
		say(l, dlb_arena_printf(&l->g->arena,
					"%d weight%s or statistics of equal values were merged by the "
					"exporter ('%s' has %d readers): they stay tied in training; %s",
					n_merged, n_merged == 1 ? "" : "s", g->tensor[merged].name, readers,
					g->n_listed ? AS_WRITTEN : HOW_TO_EXPORT));
	if (n_shared)
		say(l,
		    dlb_arena_printf(
			    &l->g->arena,
			    "%d weight%s shared in the model ('%s', by %s '%s' and %s '%s'): trained as one, "
			    "with the sum of the gradients",
			    n_shared, n_shared == 1 ? " is" : "s are", g->tensor[shared].name,
			    g->op[by[0]].type, g->op[by[0]].name, g->op[by[1]].type, g->op[by[1]].name));
}

/* Embeddings with a row that gets no gradient: see gather.c. */
static void padding_rows(struct warning_list *l)
{
	const struct dlb_graph *g = l->g;
	int n = 0, first = -1;

	for (int i = 0; i < g->n_ops && g->training; i++)
		if (is_forward(&g->op[i], "Gather") &&
		    dlb_attr_find(g->op[i].attr, g->op[i].n_attr, "padding") && !n++)
			first = i;
	if (n)
		say(l, dlb_arena_printf(&l->g->arena,
					"%d embedding%s a padding row without a gradient (row %lld of '%s'); "
					"--padding-row chooses another",
					n, n == 1 ? " has" : "s have",
					(long long)dlb_attr_int(g->op[first].attr, g->op[first].n_attr,
								"padding", 0),
					g->tensor[g->op[first].in[0]].name));
}

static bool is_listed(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_listed; i++)
		if (!strcmp(g->listed[i].name, name))
			return true;
	return false;
}

static bool has_adapter(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_adapters; i++)
		if (!strcmp(g->adapter[i].of, name))
			return true;
	return false;
}

/* Weights with names made by the exporter, since it changed the module's parameters. */
static void nameless(struct warning_list *l)
{
	const struct dlb_graph *g = l->g;
	const char *first = NULL;
	int n = 0;

	for (int t = 0; t < g->n_tensors && g->n_listed && g->training; t++) {
		const char *name = g->tensor[t].name;
		const bool trained = g->tensor[t].kind == DLB_T_WEIGHT && g->tensor[t].start == DLB_START_MODEL;
		if ((!trained && !has_adapter(g, name)) || g->tensor[t].in_state || is_listed(g, name))
			continue;
		first = first ? first : name;
		n++;
	}
	if (n && !g->state_path)
		say(l, dlb_arena_printf(&l->g->arena,
					"%d weight%s the exporter's name%s ('%s'%s), not the module's: "
					"--weights STATE.safetensors gives %s",
					n, n == 1 ? " has" : "s have", n == 1 ? "" : "s", first,
					n == 1 ? "" : " ...", n == 1 ? "it its own" : "them theirs"));
}

/* Numbers of weights by rule, and of initializers that are no weights. Old exports, in which every
 * initializer is a parameter or buffer, need no line. */
static void chosen(struct warning_list *l)
{
	static const char *const by[DLB_N_BY] = { [DLB_BY_OPTION] = "--parameters",
						  [DLB_BY_STATE_DICT] = "the state_dict",
						  [DLB_BY_LIST] = "the exporter's list",
						  [DLB_BY_ROLE] = "their role" };
	const struct dlb_graph *g = l->g;
	int n[DLB_N_BY] = { 0 }, frozen = 0;
	char text[200] = "";

	for (int t = 0; t < g->n_tensors; t++) {
		n[g->tensor[t].rule] += g->tensor[t].kind == DLB_T_WEIGHT && g->tensor[t].start == DLB_START_MODEL;
		frozen += g->tensor[t].frozen;
	}
	if (!g->training ||
	    (!g->n_listed && !frozen && !n[DLB_BY_OPTION] && !n[DLB_BY_STATE_DICT] && !g->n_untrained))
		return;
	for (int i = 0; i < DLB_N_BY; i++)
		if (n[i] && by[i])
			snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d weight%s by %s",
				 *text ? ", " : "", n[i], n[i] == 1 ? "" : "s", by[i]);
	if (frozen)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d frozen", *text ? ", " : "", frozen);
	say(l, dlb_arena_printf(&l->g->arena, "%s; %d constant%s not trained", text, g->n_untrained,
				g->n_untrained == 1 ? "" : "s"));
}

/* The last vertex before model output t, if it is a function that a loss contains; NULL: none. */
static const struct dlb_op *closing(const struct dlb_graph *g, int t)
{
	const struct dlb_op *o = g->tensor[t].producer < 0 ? NULL : &g->op[g->tensor[t].producer];

	return o && o->n_in &&
			       (is_forward(o, "Softmax") || is_forward(o, "LogSoftmax") ||
				is_forward(o, "Sigmoid")) ?
		       o :
		       NULL;
}

/* Float outputs that the loss does not use: ops that only they need are not trained. */
static void untrained_outputs(struct warning_list *l)
{
	struct dlb_graph *g = l->g;
	bool *reached = dlb_arena_array(&g->arena, (size_t)g->n_tensors + 1, sizeof *reached);
	const char *first = NULL;
	int n = 0;

	if (g->loss < 0 || !g->training)
		return;
	reached[g->loss] = true;
	for (int i = g->n_ops - 1; i >= 0; i--) {
		const struct dlb_op *o = &g->op[i];
		bool used = false;
		for (int k = 0; k < o->n_out && o->phase == DLB_FORWARD; k++)
			used |= o->out[k] >= 0 && reached[o->out[k]];
		for (int k = 0; k < o->n_in && used; k++)
			if (o->in[k] >= 0)
				reached[o->in[k]] = true;
	}
	for (int i = 0; i < g->n_outputs; i++) {
		const struct dlb_tensor *t = &g->tensor[g->output[i]];
		const struct dlb_op *end = closing(g, g->output[i]);
		if (reached[g->output[i]] || !dlb_dtype_is_float(t->dtype) || (end && reached[end->in[0]]))
			continue;
		first = first ? first : t->name;
		n++;
	}
	if (n)
		say(l,
		    dlb_arena_printf(
			    &g->arena,
			    "%d output%s of floats ha%s no loss ('%s'): --loss OUTPUT=LOSS gives one to each",
			    n, n == 1 ? "" : "s", n == 1 ? "s" : "ve", first));
}

/* Outputs that end in a function that their loss contains: see loss.c. */
static void bypassed(struct warning_list *l)
{
	const struct dlb_graph *g = l->g;

	for (int i = 0; i < g->n_outputs; i++)
		for (int k = 0; k < g->n_ops && !dlb_graph_is_output(g, g->loss); k++) {
			const struct dlb_op *loss = &g->op[k], *end = closing(g, g->output[i]);
			if (end && loss->phase == DLB_FORWARD && loss->kind >= 0 &&
			    dlb_op_class_of(loss->kind)->flags & DLB_OP_IS_LOSS && end->in[0] == loss->in[0])
				say(l,
				    dlb_arena_printf(
					    &l->g->arena,
					    "the model ends in %s: the loss is taken on the logits before it",
					    end->type));
		}
}

int dlb_graph_warnings(struct dlb_graph *g, const char ***lines)
{
	struct warning_list l = { .g = g };

	dlb_graph_index(g);
	for (int i = 0; i < g->n_notes; i++)
		say(&l, g->note[i]);
	chosen(&l);
	nameless(&l);
	folded_norms(&l);
	tied_weights(&l);
	bypassed(&l);
	untrained_outputs(&l);
	padding_rows(&l);
	const char **copy = dlb_arena_array(&g->arena, (size_t)l.n + 1, sizeof *copy);
	if (l.n)
		memcpy(copy, l.line, (size_t)l.n * sizeof *copy);
	free(l.line);
	*lines = copy;
	return l.n;
}
