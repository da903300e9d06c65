/* Restores the parts of training that an export for inference lacks: batch statistics in BatchNormalization,
 * and Dropout. Applied after folding (vertices inside branches and functions are plain ones then) and before
 * parameters are found. */
#include <stdlib.h>
#include <string.h>
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"
#include "graph/role.h"
#include "util/patterns.h"

/* the last opset in which Dropout has an attribute `ratio` and is active if the graph trains */
enum { OPSET_ATTRIBUTES = 11 };
enum { OPSET_TRAINING_MODE = 14 };	/* of BatchNormalization */
enum { MEAN = 3, VAR }; /* operands of BatchNormalization: the running statistics */

static bool is_type(const struct dlb_op *o, const char *type)
{
	return o->phase == DLB_FORWARD && !*o->domain && !strcmp(o->type, type);
}

/* -- BatchNormalization -- */

/* Does the BatchNormalization use batch statistics in a training graph? The rule is that of batch_norm.c. */
static bool norm_trains(const struct dlb_op *o)
{
	if (o->opset >= OPSET_TRAINING_MODE)
		return dlb_attr_int(o->attr, o->n_attr, "training_mode", 0) != 0;
	return o->opset >= 7 ? o->n_out > 1 : !dlb_attr_int(o->attr, o->n_attr, "is_test", 0);
}

static void set_int(struct dlb_graph *g, struct dlb_op *o, const char *name, int64_t v)
{
	struct dlb_attr *attr = dlb_arena_array(&g->arena, (size_t)o->n_attr + 1, sizeof *attr);
	int n = 0;

	for (int i = 0; i < o->n_attr; i++)
		if (strcmp(o->attr[i].name, name))
			attr[n++] = o->attr[i];
	attr[n++] = (struct dlb_attr){ .name = dlb_arena_strdup(&g->arena, name),
				       .type = DLB_ATTR_INT,
				       .i = v };
	o->attr = attr;
	o->n_attr = n;
}

int dlb_graph_set_batchnorm(struct dlb_graph *g, bool train)
{
	int n = 0;

	for (int i = 0; i < g->n_ops && g->training; i++) {
		struct dlb_op *o = &g->op[i];

		if (!is_type(o, "BatchNormalization") || norm_trains(o) == train)
			continue;
		o->opset = o->opset < OPSET_TRAINING_MODE ? OPSET_TRAINING_MODE : o->opset;
		o->n_out = train ? o->n_out : 1;
		set_int(g, o, "training_mode", train);
		n++;
	}
	if (n && train)
		dlb_graph_note(g,
			       "%d BatchNormalization, exported for inference, %s by the statistics of each "
			       "batch and %s the running ones; "
			       "--batchnorm frozen keeps the running ones fixed",
			       n, n == 1 ? "trains" : "train", n == 1 ? "moves" : "move");
	else if (n)
		dlb_graph_note(g, "%d BatchNormalization %s the running statistics, which stay as they are",
			       n, n == 1 ? "uses" : "use");
	return n;
}

/* Whether a vertex reads tensor t as another operand than number k: an exporter that merges initializers of
 * equal values makes one tensor of a new model's running variances and scales. */
static bool is_merged(const struct dlb_graph *g, int t, int k)
{
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		const struct dlb_op *o = &g->op[g->reader[r]];

		for (int i = 0; i < o->n_in; i++)
			if (o->in[i] == t && (i != k || !is_type(o, "BatchNormalization")))
				return true;
	}
	return false;
}

/* Adds a tensor with the start value of statistic t, operand k of o; returns its id. */
static int add_statistic(struct dlb_graph *g, const struct dlb_op *o, int t, int k)
{
	const char *name = dlb_arena_printf(&g->arena, "%s.running_%s", o->name, k == MEAN ? "mean" : "var");
	const int own = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, name), DLB_T_CONSTANT);
	const struct dlb_tensor *was = &g->tensor[t];
	struct dlb_tensor *x = &g->tensor[own];

	x->dtype = was->dtype;
	x->n_dims = was->n_dims;
	memcpy(x->dim, was->dim, sizeof x->dim);
	x->is_fill = true;
	x->fill = was->is_fill ? was->fill : dlb_value_real(was->data, was->dtype, 0);
	return own;
}

void dlb_graph_own_statistics(struct dlb_graph *g)
{
	const int n_tensors = g->n_tensors;
	int *first = dlb_xcalloc((size_t)n_tensors + 1, sizeof *first), n = 0;

	dlb_graph_index(g);
	for (int i = 0; i < g->n_ops && g->training; i++) {
		for (int k = MEAN; k <= VAR; k++) {
			struct dlb_op *o = &g->op[i];
			const int t = is_type(o, "BatchNormalization") && norm_trains(o) && k < o->n_in ?
					      o->in[k] :
					      -1;

			if (t < 0 || t >= n_tensors)
				continue;
			if (is_merged(g, t, k) && dlb_values_uniform(&g->tensor[t])) {
				const int own = add_statistic(g, o, t, k);

				g->op[i].in[k] = own;
				n++;
			} else if (first[t] && o->colocate < 0) {
				o->colocate = first[t] - 1;
			} else if (!first[t]) {
				first[t] = i + 1;
			}
		}
	}
	free(first);
	if (n)
		dlb_graph_note(g,
			       "%d running statistic%s of a value that other tensors have too, and the "
			       "exporter merged "
			       "them: each BatchNormalization gets its own",
			       n, n == 1 ? " is" : "s are");
}

/* -- Dropout -- */

static bool named(const struct dlb_graph *g, const struct dlb_op *o, const char *pattern)
{
	return dlb_pattern_matches(pattern, o->name) ||
	       (o->n_out > 0 && o->out[0] >= 0 && dlb_pattern_matches(pattern, g->tensor[o->out[0]].name));
}

/* Can a Dropout follow the vertex: does it compute floats from the samples, with readers? */
static bool may_drop(const struct dlb_graph *g, const struct dlb_op *o)
{
	const int t = o->phase == DLB_FORWARD && o->n_out > 0 ? o->out[0] : -1;

	return t >= 0 && dlb_dtype_is_float(g->tensor[t].dtype) && dlb_tensor_follows_batch(&g->tensor[t]) &&
		g->reader_start[t] < g->reader_start[t + 1] && !dlb_graph_is_output(g, t);
}

static void set_rate(struct dlb_graph *g, struct dlb_op *o, double rate)
{
	struct dlb_attr *attr = dlb_arena_alloc(&g->arena, sizeof *attr);

	*attr = (struct dlb_attr){ .name = "ratio", .type = DLB_ATTR_REAL, .f = rate };
	o->opset = OPSET_ATTRIBUTES;
	o->n_in = 1;
	o->attr = attr;
	o->n_attr = 1;
}

static int add_dropout(struct dlb_graph *g, int op, double rate, struct dlb_error *err)
{
	const int x = g->op[op].out[0], first = g->n_ops;
	const char *name = dlb_graph_op_name(g, dlb_arena_printf(&g->arena, "%s.dropout", g->op[op].name));
	const int y = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, name), DLB_T_ACTIVATION);
	const int id = dlb_graph_add_op(g, DLB_FORWARD,
					&(struct dlb_op_spec){ .name = name, .type = "Dropout",
							       DLB_OPERANDS(x), .out = &y, .n_out = 1 });

	set_rate(g, &g->op[id], rate);
	if (dlb_graph_infer_new(g, id, err))
		return -1;
	for (int i = 0; i < first; i++)
		for (int k = 0; k < g->op[i].n_in; k++)
			if (g->op[i].in[k] == x)
				g->op[i].in[k] = y;
	return 0;
}

/* Parses PATTERN=P of --dropout; returns the pattern, NULL with err. */
static const char *take_rate(struct dlb_graph *g, const char *text, double *rate, struct dlb_error *err)
{
	const char *at = strrchr(text, '=');
	char *end = NULL;

	*rate = at && at[1] ? strtod(at + 1, &end) : -1;
	if (at && at != text && end && !*end && *rate >= 0 && *rate < 1)
		return dlb_arena_printf(&g->arena, "%.*s", (int)(at - text), text);
	dlb_fail(err, NULL, "--dropout '%s'", text);
	dlb_hint(err, "it is written PATTERN=P, with P from 0 to 1, 1 excluded");
	return NULL;
}

int dlb_graph_add_dropout(struct dlb_graph *g, const char *text, struct dlb_error *err)
{
	const int n_ops = g->n_ops;
	double rate;
	const char *pattern = take_rate(g, text, &rate, err);
	int n = 0, n_set = 0;

	if (!pattern)
		return -1;
	dlb_graph_index(g);
	bool *chosen = dlb_arena_array(&g->arena, (size_t)n_ops + 1, sizeof *chosen);
	for (int i = 0; i < n_ops; i++)
		chosen[i] = named(g, &g->op[i], pattern) &&
			    (is_type(&g->op[i], "Dropout") || may_drop(g, &g->op[i]));
	for (int i = 0; i < n_ops; i++) {
		if (!chosen[i])
			continue;
		n++;
		if (is_type(&g->op[i], "Dropout")) {
			set_rate(g, &g->op[i], rate);
			n_set++;
		} else if (rate > 0 && add_dropout(g, i, rate, err)) {
			return -1;
		}
	}
	if (!n) {
		dlb_fail(err, NULL,
			 "--dropout '%s': no vertex of this name, nor one with an output of it, makes floats "
			 "of the samples",
			 text);
		return dlb_hint(
			err,
			"jq -r '.graph.ops[].name' lists the vertices of a document made without --dropout");
	}
	dlb_graph_note(g, "Dropout of %g: %d vertices set, %d put in ('%s')", rate, n_set,
		       rate > 0 ? n - n_set : 0, pattern);
	return dlb_graph_sort(g, err) || dlb_graph_index(g) ? -1 : 0;
}

/* The value of o's constant input i; `otherwise` if absent or not constant. */
static double setting(const struct dlb_graph *g, const struct dlb_op *o, int i, double otherwise)
{
	const struct dlb_tensor *t = i < o->n_in && o->in[i] >= 0 ? &g->tensor[o->in[i]] : NULL;

	return !t || (!t->data && !t->is_fill) ? otherwise :
	       t->is_fill                      ? t->fill :
						 dlb_value_real(t->data, t->dtype, 0);
}

/* The rate of a Dropout: input 1, before opset 12 the attribute `ratio`. Input 2 tells whether the Dropout is
 * active; before opset 12 the graph's `training` tells. */
static double rate_of(const struct dlb_graph *g, const struct dlb_op *o)
{
	return o->opset <= OPSET_ATTRIBUTES ? dlb_attr_real(o->attr, o->n_attr, "ratio", 0.5) :
					      setting(g, o, 1, 0.5);
}

static bool dropout_trains(const struct dlb_graph *g, const struct dlb_op *o)
{
	return o->opset <= OPSET_ATTRIBUTES ? !dlb_attr_int(o->attr, o->n_attr, "is_test", 0) :
					      setting(g, o, 2, 0) != 0;
}

/* Is o a Softmax whose output goes into a product, as in attention? */
static bool is_attention(const struct dlb_graph *g, const struct dlb_op *o)
{
	bool product = false;

	if (!is_type(o, "Softmax"))
		return false;
	for (int r = g->reader_start[o->out[0]]; r < g->reader_start[o->out[0] + 1]; r++)
		product |= is_type(&g->op[g->reader[r]], "MatMul");
	return product;
}

static void note_random(struct dlb_graph *g)
{
	int n = 0, first = -1;

	for (int i = 0; i < g->n_ops && g->training; i++) {
		const struct dlb_op_class *cls = g->op[i].kind < 0 ? NULL : dlb_op_class_of(g->op[i].kind);
		if (!cls || !(cls->flags & DLB_OP_RANDOM) || is_type(&g->op[i], "Dropout"))
			continue;
		first = n++ ? first : i;
	}
	if (n)
		dlb_graph_note(g,
			       "%d vert%s random numbers (%s '%s'%s), on test data too: stochastic depth and "
			       "the like are left out if the model is exported after model.eval()",
			       n, n == 1 ? "ex draws" : "ices draw", g->op[first].type, g->op[first].name,
			       n == 1 ? "" : " ...");
}

void dlb_graph_note_dropout(struct dlb_graph *g)
{
	int dropping = 0, idle = 0, idler = -1, attention = 0, last = -1;

	dlb_graph_index(g);
	note_random(g);
	for (int i = 0; i < g->n_ops && g->training; i++) {
		const struct dlb_op *o = &g->op[i];

		if (is_type(o, "Dropout") && rate_of(g, o) > 0) {
			dropping += dropout_trains(g, o);
			idle += !dropout_trains(g, o);
			idler = dropout_trains(g, o) ? idler : i;
		}
		if (is_attention(g, o)) {
			attention++;
			last = i;
		}
	}
	if (idle)
		dlb_graph_note(g,
			       "%d Dropout %s nothing, exported for inference; --dropout '%s=%g' and the "
			       "like put %s to work",
			       idle, idle == 1 ? "does" : "do", g->op[idler].name, rate_of(g, &g->op[idler]),
			       idle == 1 ? "it" : "them");
	/* torch.onnx.export keeps the modules' Dropout, but leaves out dropout_p of
	 * scaled_dot_product_attention */
	if (dropping && attention)
		dlb_graph_note(g,
			       "%d attention Softmax ha%s no Dropout, though the model has %d elsewhere: if "
			       "the exporter left it out, --dropout '%s=P' puts it back",
			       attention, attention == 1 ? "s" : "ve", dropping,
			       attention == 1 ? g->op[last].name : "*Softmax*");
}
