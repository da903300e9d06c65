/* Attaches the loss if the model has none, and the inputs that it needs.
 *
 * By default the first float output decides: a scalar that comes from a loss is used directly; (N, C) and (N,
 * T, C) get softmax cross-entropy over the last axis, (N, C, H, W) over axis 1; a class axis of size 1 gets
 * binary cross-entropy on logits. A model that ends in Softmax, LogSoftmax or (for binary cross-entropy)
 * Sigmoid is trained on the logits before it, since the loss contains that function in a form that does not
 * overflow; applying it twice would train another model. Several losses (loss.h) are added up; each has its
 * own labels, fed in the order of the losses.
 *
 * Labels are the model's last integer input if it contains its loss; else a new input 'label', or
 * 'OUTPUT.label' for each of several losses. The label -100 is ignored, as in PyTorch. The seed, the weight
 * of a micro-batch in the step's loss, is fed as the gradient of the loss. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "graph/labels.h"
#include "graph/loss.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "graph/rewrite.h"

/* LABEL_BOUND_01: class numbers 0 and 1, or floats from 0 to 1 */
enum { IGNORED = -100, LABEL_BOUND_01 = 2 };

/* -- losses and labels in the model -- */

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

/* The labels of a model that contains its loss: the last integer input that the loss reads as
 * labels; else the last one. */
static int labels_of_model(struct dlb_graph *g)
{
	struct dlb_label_use use;
	int last = -1;

	for (int i = g->n_inputs - 1; i >= 0; i--) {
		const int t = g->input[i];
		if (!dlb_dtype_is_int(g->tensor[t].dtype))
			continue;
		if (dlb_graph_label_use(g, t, &g->arena, &use))
			return t;
		last = last < 0 ? t : last;
	}
	return last;
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

/* -- attaching; each function returns the loss's tensor, -1 with err -- */

/* A loss being attached: its description, and whether it is one of several. */
struct loss_builder { struct dlb_graph *g; const struct dlb_loss_choice *c; bool several; };

/* Adds the labels: one per element of x without axis `drop` (-1: one per element). */
static int add_label(const struct loss_builder *p, int x, int drop, enum dlb_dtype dtype, int64_t bound)
{
	struct dlb_graph *g = p->g;
	const char *name = p->several ? dlb_arena_printf(&g->arena, "%s.label", g->tensor[x].name) : "label";
	const int t = dlb_graph_add_tensor(g, dlb_graph_tensor_name(g, name), DLB_T_LABEL);
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
	if (g->label < 0)
		g->label = t;
	return t;
}

/* If a `type` (or `other`) over the class axis makes x, the input of that op; else x. */
static int before(const struct dlb_graph *g, int x, const char *type, const char *other)
{
	const int op = g->tensor[x].producer;

	if (op < 0 || *g->op[op].domain || g->tensor[x].n_dims != 2 ||
	    (strcmp(g->op[op].type, type) && (!other || strcmp(g->op[op].type, other))))
		return x;
	/* the class axis of two dimensions is 1 or -1 */
	const int64_t axis = dlb_attr_int(g->op[op].attr, g->op[op].n_attr, "axis", 1);
	return axis == 1 || axis == -1 ? g->op[op].in[0] : x;
}

static int reshaped(struct dlb_graph *g, int t, const int64_t *dims, int n, struct dlb_error *err)
{
	const struct dlb_desc d = { .dtype = DLB_I64, .n_dims = 1, .dim = { n } };
	const int in[2] = { t, dlb_graph_add_constant(g, "loss.shape", &d, dims, NULL) };

	return dlb_graph_add_forward(g,
				     &(struct dlb_op_spec){ .name = "loss.reshape", .type = "Reshape",
							    .in = in, .n_in = 2 }, err);
}

/* A constant of the given weights, of x's type and shape (n, 1, ..) with `after` dimensions of 1; -1: none
 * given. */
static int add_weights(const struct loss_builder *p, int x, int after)
{
	const struct dlb_loss_choice *c = p->c;
	struct dlb_desc d = { .dtype = p->g->tensor[x].dtype, .n_dims = 1 + after, .dim = { c->n_weights } };
	double *value;

	if (!c->n_weights)
		return -1;
	for (int i = 1; i <= after; i++)
		d.dim[i] = 1;
	value = dlb_arena_array(&p->g->arena, (size_t)c->n_weights, sizeof *value);
	for (int i = 0; i < c->n_weights; i++)
		dlb_value_set(value, d.dtype, i, c->weight[i]);
	return dlb_graph_add_constant(p->g, "loss.weights", &d, value, NULL);
}

static int check_weights(const struct loss_builder *p, int x, int64_t classes, struct dlb_error *err)
{
	if (!p->c->n_weights || p->c->n_weights == classes)
		return 0;
	return dlb_refuse(err, p->g->tensor[x].name, "give one for each class",
			"%d weights of classes are given, the output has %lld classes", p->c->n_weights,
			(long long)classes);
}

static int cross_entropy(const struct loss_builder *p, int x, int axis, struct dlb_error *err)
{
	struct dlb_graph *g = p->g;
	const struct dlb_tensor *t = &g->tensor[x];
	const int last = t->n_dims - 1;
	const int64_t classes = t->dim[axis].add;
	struct dlb_attr attr[3] = { { .name = "reduction", .type = DLB_ATTR_STR, .s = "mean" },
				    { .name = "ignore_index", .type = DLB_ATTR_INT, .i = IGNORED },
				    { .name = "smoothing", .type = DLB_ATTR_REAL, .f = p->c->smoothing } };
	int label, in[3] = { x };

	if (t->dim[axis].mul) {
		dlb_fail(err, t->name, "the class axis of the output, %d, follows the batch", axis);
		return dlb_hint(err, "name another axis: --loss cross-entropy:AXIS");
	}
	if (axis != 1 && axis != last) {
		dlb_fail(err, t->name, "the class axis of the output is %d", axis);
		return dlb_hint(err, "cross-entropy is taken over axis 1 or the last");
	}
	if (check_weights(p, x, classes, err))
		return -1;
	in[1] = label = add_label(p, x, axis, DLB_I64, classes);
	if (p->c->kind == DLB_LOSS_NEXT_TOKEN)
		in[1] = dlb_graph_add_forward(g,
					      &(struct dlb_op_spec){ .name = "loss.next_token",
						      .type = "NextToken", .domain = "dlb",
						      DLB_OPERANDS(label), .attr = &attr[1], .n_attr = 1 },
					      err);
	if (axis != 1 && in[1] >= 0) {	/* class axis last: one row per sample and position */
		in[0] = reshaped(g, x, (const int64_t[]){ -1, classes }, 2, err);
		in[1] = in[0] < 0 ? -1 : reshaped(g, in[1], (const int64_t[]){ -1 }, 1, err);
	}
	if (in[1] < 0)
		return -1;
	in[2] = add_weights(p, x, 0);
	return dlb_graph_add_forward(g,
				     &(struct dlb_op_spec){ .name = "loss", .type = "SoftmaxCrossEntropyLoss",
							    .in = in, .n_in = in[2] < 0 ? 2 : 3, .attr = attr,
							    .n_attr = p->c->smoothing > 0 ? 3 : 2 }, err);
}

/* The class axis, given or by default; -1: the output has none. */
static int class_axis(const struct loss_builder *p, int x)
{
	const int n = p->g->tensor[x].n_dims, said = (int)p->c->number;
	const bool has = p->c->kind == DLB_LOSS_CROSS_ENTROPY && p->c->has_number;
	const int axis = has                                         ? (said < 0 ? said + n : said) :
			 n >= 4 && p->c->kind != DLB_LOSS_NEXT_TOKEN ? 1 :
								       n - 1;

	return axis >= 1 && axis < n ? axis : -1;
}

static int classified(const struct loss_builder *p, int x, struct dlb_error *err)
{
	struct dlb_graph *g = p->g;
	const int axis = class_axis(p, x), n_dims = g->tensor[x].n_dims;

	if (p->c->kind == DLB_LOSS_NEXT_TOKEN && n_dims != 3) {
		dlb_fail(err, g->tensor[x].name,
			 "next-token takes an output of samples, positions and tokens; this one has %d "
			 "dimensions",
			 n_dims);
		return dlb_hint(err, "say --loss OUTPUT=next-token");
	}
	if (n_dims < 2) {
		dlb_fail(err, g->tensor[x].name, "no default loss for an output of %d dimensions", n_dims);
		return dlb_hint(err, "say --loss mse, bce or sum");
	}
	if (axis < 0)
		return dlb_refuse(err, g->tensor[x].name, "--loss cross-entropy:AXIS",
				  "class axis %d is out of range for an output of %d dimensions",
				  (int)p->c->number, n_dims);
	return cross_entropy(p, before(g, x, "Softmax", "LogSoftmax"), axis, err);
}

static int elementwise(const struct loss_builder *p, int x, const char *type, int label, int weights,
		       struct dlb_error *err)
{
	const char *width = p->c->kind == DLB_LOSS_HUBER     ? "delta" :
			    p->c->kind == DLB_LOSS_SMOOTH_L1 ? "beta" :
							       NULL;
	const struct dlb_attr attr = { .name = width, .type = DLB_ATTR_REAL, .f = p->c->number };

	return dlb_graph_add_forward(p->g,
				     &(struct dlb_op_spec){ .name = "loss", .type = type, .domain = "dlb",
							    .in = (int[]){ x, label, weights },
							    .n_in = label < 0 ? 1 : weights < 0 ? 2 : 3,
							    .attr = &attr, .n_attr = width != NULL }, err);
}

/* Labels are floats: 0, 1, or between (soft labels). Their shape omits a class axis of size 1. */
static int binary(const struct loss_builder *p, int x, struct dlb_error *err)
{
	struct dlb_graph *g = p->g;
	const int axis = class_axis(p, x), n = p->c->n_weights;
	const bool one = axis >= 0 && !g->tensor[x].dim[axis].mul && g->tensor[x].dim[axis].add == 1;

	if (n > 1 && (axis < 0 || g->tensor[x].dim[axis].mul || g->tensor[x].dim[axis].add != n))
		return dlb_refuse(err, g->tensor[x].name, "give one number, or one for each class",
				"pos-weight has %d numbers, which is neither 1 nor the number of classes", n);
	const int weights = add_weights(p, x, n > 1 ? g->tensor[x].n_dims - 1 - axis : 0);
	const int label = add_label(p, x, one ? axis : -1, g->tensor[x].dtype, LABEL_BOUND_01);
	return elementwise(p, before(g, x, "Sigmoid", NULL), "BinaryCrossEntropyLoss", label, weights, err);
}

/* Attaches the loss described by p to output x. */
static int attach(const struct loss_builder *p, int x, struct dlb_error *err)
{
	static const char *const types[DLB_N_LOSSES] = {
		[DLB_LOSS_MSE] = "MeanSquaredErrorLoss", [DLB_LOSS_L1] = "MeanAbsoluteErrorLoss",
		[DLB_LOSS_HUBER] = "HuberLoss",          [DLB_LOSS_SMOOTH_L1] = "SmoothL1Loss",
		[DLB_LOSS_KL] = "KLDivergenceLoss",      [DLB_LOSS_SUM] = "SumLoss",
	};
	struct dlb_graph *g = p->g;
	const enum dlb_loss_kind kind = p->c->kind;
	const int axis = class_axis(p, x);
	const bool one = axis >= 0 && !g->tensor[x].dim[axis].mul && g->tensor[x].dim[axis].add == 1;

	if (kind == DLB_LOSS_AUTO && is_scalar(&g->tensor[x])) {
		if (g->label < 0 && (g->label = labels_of_model(g)) >= 0)
			g->tensor[g->label].kind = DLB_T_LABEL;
		return x;
	}
	if (kind == DLB_LOSS_BCE || (kind == DLB_LOSS_AUTO && one))
		return binary(p, x, err);
	if (kind == DLB_LOSS_AUTO || kind == DLB_LOSS_CROSS_ENTROPY || kind == DLB_LOSS_NEXT_TOKEN)
		return classified(p, x, err);
	const bool no_width = kind == DLB_LOSS_SMOOTH_L1 && p->c->number == 0;
	const int label = kind == DLB_LOSS_SUM ? -1 :
		add_label(p, x, -1, g->tensor[x].dtype, kind == DLB_LOSS_KL ? LABEL_BOUND_01 : 0);
	return elementwise(p, x, no_width ? types[DLB_LOSS_L1] : types[kind], label, -1, err);
}

/* factor * loss */
static int scaled(struct dlb_graph *g, int loss, double factor, struct dlb_error *err)
{
	double value = 0;
	int in[2] = { loss };

	if (loss < 0 || factor == 1)
		return loss;
	const struct dlb_desc d = { .dtype = g->tensor[loss].dtype };
	dlb_value_set(&value, d.dtype, 0, factor);
	in[1] = dlb_graph_add_constant(g, "loss.factor", &d, &value, NULL);
	return dlb_graph_add_forward(g,
				     &(struct dlb_op_spec){ .name = "loss.scaled", .type = "Mul", .in = in,
							    .n_in = 2 }, err);
}

int dlb_graph_attach_losses(struct dlb_graph *g, const char *const *text, int n, struct dlb_error *err)
{
	int *term = dlb_arena_array(&g->arena, (size_t)n + 1, sizeof *term);
	const int first = first_float_output(g);
	struct dlb_loss_choice c;

	dlb_graph_index(g);
	for (int i = 0; i < (n ? n : 1); i++) {
		const struct loss_builder p = { .g = g, .c = &c, .several = n > 1 };
		if (dlb_loss_parse(g, n ? text[i] : NULL, &c, err))
			return -1;
		if (c.kind == DLB_LOSS_OFF && n > 1)
			return dlb_refuse(err, NULL, "leave one of them out",
					"loss 'none' beside other losses");
		if (c.kind == DLB_LOSS_OFF) {
			g->training = false;
			dlb_graph_set_bounds(g);
			return 0;
		}
		if (c.output < 0 && first < 0)
			return dlb_refuse(err, NULL, "export the model with its logits as output",
					"the model has no float output to take a loss of");
		term[i] = scaled(g, attach(&p, c.output < 0 ? first : c.output, err), c.factor, err);
		if (term[i] < 0)
			return -1;
	}
	g->loss = n > 1 ? dlb_graph_add_forward(g,
						&(struct dlb_op_spec){ .name = "loss.total", .type = "Sum",
							.in = term, .n_in = n }, err) : term[0];
	if (g->loss < 0)
		return -1;
	add_seed(g);
	dlb_graph_set_bounds(g);
	dlb_graph_fill_work(g, 0);
	return 0;
}

int dlb_graph_attach_loss(struct dlb_graph *g, const char *loss, struct dlb_error *err)
{
	return dlb_graph_attach_losses(g, &loss, loss ? 1 : 0, err);
}
