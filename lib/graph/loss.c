/* The loss, where the model has none, and what feeds it.
 *
 * By default the first float output says which (CONTRACT): a scalar that comes from a loss is taken as it is;
 * (N, C) and (N, T, C) get softmax cross-entropy over the last axis, (N, C, H, W) over axis 1; a class axis of size 1
 * gets binary cross-entropy on logits. A model that ends in Softmax, LogSoftmax or (for binary cross-entropy)
 * Sigmoid is trained on the logits before it: the losses contain that function, in a form that does not
 * overflow, and a second one on top would train something else.
 *
 * Labels are the model's last integer input when it holds its own loss; else a new input 'label'. The seed is
 * the weight of a micro-batch in the step's loss, fed as the gradient of the loss. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "graph/rewrite.h"

enum kind { NONE, AUTO, CROSS_ENTROPY, BCE, MSE, SUM };
struct choice { enum kind kind; bool has_axis; int axis; };

static int read_choice(const char *text, struct choice *c, struct dlb_error *err)
{
	static const struct { const char *name; enum kind kind; } names[] = {
		{ "auto", AUTO }, { "none", NONE }, { "cross-entropy", CROSS_ENTROPY }, { "bce", BCE },
		{ "mse", MSE }, { "sum", SUM },
	};
	const char *const list[] = { "auto", "none", "cross-entropy", "bce", "mse", "sum" };
	const size_t n = text ? strcspn(text, ":") : 0;
	char *end = NULL;

	*c = (struct choice){ .kind = AUTO };
	if (!text)
		return 0;
	for (int i = 0; i < DLB_LEN(names); i++) {
		if (strlen(names[i].name) != n || strncmp(names[i].name, text, n))
			continue;
		c->kind = names[i].kind;
		if (!text[n])
			return 0;
		c->axis = (int)strtol(text + n + 1, &end, 10);
		c->has_axis = true;
		if (c->kind == CROSS_ENTROPY && end != text + n + 1 && !*end && c->axis > -16 && c->axis < 16)
			return 0;
	}
	dlb_fail(err, NULL, "unknown loss '%s'", text);
	const char *near = dlb_nearest(text, list, DLB_LEN(list));
	return near ? dlb_hint(err, "did you mean '%s'?", near)
		: dlb_hint(err, "cross-entropy[:AXIS], bce, mse, sum or none");
}

/* -- what the model has -- */

static int first_float_output(const struct dlb_graph *g)
{
	for (int i = 0; i < g->n_outputs; i++)
		if (dlb_dtype_is_float(g->tensor[g->output[i]].dtype))
			return g->output[i];
	return -1;
}

static bool is_scalar(const struct dlb_tensor *t)
{
	for (int i = 0; i < t->n_dims; i++)
		if (t->dim[i].mul || t->dim[i].add != 1)
			return false;
	return true;
}

static int last_integer_input(const struct dlb_graph *g)
{
	for (int i = g->n_inputs - 1; i >= 0; i--)
		if (dlb_dtype_is_int(g->tensor[g->input[i]].dtype))
			return g->input[i];
	return -1;
}

static void add_seed(struct dlb_graph *g)
{
	const struct dlb_tensor loss = g->tensor[g->loss];
	const int t = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, "seed"), DLB_T_SEED);

	g->tensor[t].dtype = loss.dtype;
	g->tensor[t].n_dims = loss.n_dims;
	for (int i = 0; i < loss.n_dims; i++)
		g->tensor[t].dim[i] = (struct dlb_dim){ 0, 1 };
	g->seed = t;
}

/* -- attaching -- */

/* The labels: one per element of x without axis `drop` (-1: of x). */
static int add_label(struct dlb_graph *g, int x, int drop, enum dlb_dtype dtype, int64_t bound)
{
	const int t = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, "label"), DLB_T_LABEL);
	const struct dlb_tensor *of = &g->tensor[x];
	struct dlb_tensor *label = &g->tensor[t];
	int *input = dlb_arena_array(&g->arena, (size_t)g->n_inputs + 1, sizeof *input);

	label->dtype = dtype;
	label->bound = bound;
	label->n_dims = 0;
	for (int i = 0; i < of->n_dims; i++)
		if (i != drop)
			label->dim[label->n_dims++] = of->dim[i];
	if (g->n_inputs)
		memcpy(input, g->input, (size_t)g->n_inputs * sizeof *input);
	input[g->n_inputs++] = t;
	g->input = input;
	g->label = t;
	return t;
}

/* The tensor before a closing `type` (or `other`) over the class axis; x itself when it does not end so. */
static int before(const struct dlb_graph *g, int x, const char *type, const char *other)
{
	const int op = g->tensor[x].producer;

	if (op < 0 || *g->op[op].domain || g->tensor[x].n_dims != 2 ||
	    (strcmp(g->op[op].type, type) && (!other || strcmp(g->op[op].type, other))))
		return x;
	const int64_t axis = dlb_attr_int(g->op[op].attr, g->op[op].n_attr, "axis", 1);	/* of 2: 1 or -1 */
	return axis == 1 || axis == -1 ? g->op[op].in[0] : x;
}

static int reshaped(struct dlb_graph *g, int t, const int64_t *dims, int n, struct dlb_error *err)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	const int in[2] = { t, dlb_graph_add_constant(g, "loss.shape", &d, dims, NULL) };

	return dlb_graph_add_forward(g, "loss.reshape", "Reshape", "", in, 2, NULL, 0, err);
}

static int cross_entropy(struct dlb_graph *g, int x, int axis, struct dlb_error *err)
{
	const struct dlb_tensor *t = &g->tensor[x];
	const int n_dims = t->n_dims, last = n_dims - 1;
	const int64_t classes = t->dim[axis].add;

	if (t->dim[axis].mul)
		return dlb_fail(err, t->name, "the class axis of the output follows the batch");
	if (axis != 1 && axis != last) {
		dlb_fail(err, t->name, "the class axis of the output is %d", axis);
		return dlb_hint(err, "cross-entropy is taken over axis 1 or the last");
	}
	const int label = add_label(g, x, axis, DLB_I64, classes);
	int in[2] = { x, label };
	if (axis != 1) {	/* classes last: one row per sample and position */
		in[0] = reshaped(g, x, (const int64_t[]){ -1, classes }, 2, err);
		in[1] = in[0] < 0 ? -1 : reshaped(g, label, (const int64_t[]){ -1 }, 1, err);
		if (in[1] < 0)
			return -1;
	}
	const struct dlb_attr mean = { .name = "reduction", .type = DLB_ATTR_STR, .s = "mean" };
	g->loss = dlb_graph_add_forward(g, "loss", "SoftmaxCrossEntropyLoss", "", in, 2, &mean, 1, err);
	return g->loss < 0 ? -1 : 0;
}

static int plain(struct dlb_graph *g, int x, const char *type, int label, struct dlb_error *err)
{
	const int in[2] = { x, label };

	g->loss = dlb_graph_add_forward(g, "loss", type, "dlb", in, label < 0 ? 1 : 2, NULL, 0, err);
	return g->loss < 0 ? -1 : 0;
}

/* The default axis of classes. */
static int class_axis(const struct dlb_tensor *t)
{
	return t->n_dims >= 4 ? 1 : t->n_dims - 1;
}

static int attach(struct dlb_graph *g, int x, struct choice c, struct dlb_error *err)
{
	const int n_dims = g->tensor[x].n_dims;
	int axis = c.has_axis ? (c.axis < 0 ? c.axis + n_dims : c.axis) : class_axis(&g->tensor[x]);

	if (c.kind == MSE)
		return plain(g, x, "MeanSquaredErrorLoss", add_label(g, x, -1, g->tensor[x].dtype, 0), err);
	if (c.kind == SUM)
		return plain(g, x, "SumLoss", -1, err);
	if (n_dims < 2 && c.kind != BCE) {
		dlb_fail(err, g->tensor[x].name, "no default loss for an output of %d dimensions", n_dims);
		return dlb_hint(err, "say --loss mse, bce or sum");
	}
	if (axis < 1 || axis >= n_dims) {
		if (c.kind != BCE)
			return dlb_fail(err, g->tensor[x].name, "class axis %d is out of range for an output of %d dimensions",
					c.has_axis ? c.axis : axis, n_dims);
		axis = -1;
	}
	const bool one = axis >= 0 && !g->tensor[x].dim[axis].mul && g->tensor[x].dim[axis].add == 1;
	if (c.kind == BCE || (c.kind == AUTO && one))
		return plain(g, before(g, x, "Sigmoid", NULL), "BinaryCrossEntropyLoss",
			     add_label(g, x, one ? axis : -1, DLB_I64, 2), err);
	return cross_entropy(g, before(g, x, "Softmax", "LogSoftmax"), axis, err);
}

/* -- bounds of integer inputs: what may be fed without a file -- */

static bool passes_on(const struct dlb_op *o)
{
	const struct dlb_op_class *cls = dlb_op_class_of(o->kind);

	return (cls && cls->flags & DLB_OP_VIEW) || !strcmp(o->type, "Cast") || !strcmp(o->type, "Transpose");
}

static int64_t bound_of(const struct dlb_graph *g, int t, int depth)
{
	int64_t bound = 0;

	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
		const struct dlb_op *o = &g->op[g->reader[r]];
		const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
		int64_t b = 0;
		if (!strncmp(o->type, "Gather", 6) && o->n_in > 1 && o->in[1] == t) {
			const struct dlb_tensor *data = &g->tensor[o->in[0]];
			int64_t axis = dlb_attr_int(o->attr, o->n_attr, "axis", 0);
			axis += axis < 0 ? data->n_dims : 0;
			b = axis >= 0 && axis < data->n_dims && !data->dim[axis].mul ? data->dim[axis].add : 0;
		} else if (cls && cls->flags & DLB_OP_IS_LOSS && o->n_in > 1 && o->in[1] == t) {
			const struct dlb_tensor *x = &g->tensor[o->in[0]];
			b = !cls->domain && x->n_dims > 1 ? x->dim[1].add : 2;
		} else if (passes_on(o) && o->in[0] == t && depth < 16) {
			b = bound_of(g, o->out[0], depth + 1);
		}
		if (b > 0 && (!bound || b < bound))
			bound = b;
	}
	return bound;
}

static void set_bounds(struct dlb_graph *g)
{
	dlb_graph_index(g);
	for (int i = 0; i < g->n_inputs; i++)
		if (dlb_dtype_is_int(g->tensor[g->input[i]].dtype))
			g->tensor[g->input[i]].bound = bound_of(g, g->input[i], 0);
}

int dlb_graph_attach_loss(struct dlb_graph *g, const char *loss, struct dlb_error *err)
{
	struct choice c;
	const int x = first_float_output(g);

	if (read_choice(loss, &c, err))
		return -1;
	if (c.kind == NONE) {
		g->training = false;
		set_bounds(g);
		return 0;
	}
	if (x < 0)
		return dlb_fail(err, NULL, "the model has no float output to take a loss of");
	dlb_graph_index(g);
	if (c.kind == AUTO && is_scalar(&g->tensor[x])) {
		g->loss = x;
		g->label = last_integer_input(g);
		if (g->label >= 0)
			g->tensor[g->label].kind = DLB_T_LABEL;
	} else if (attach(g, x, c, err)) {
		return -1;
	}
	add_seed(g);
	set_bounds(g);
	dlb_graph_fill_work(g, 0);
	return 0;
}
