/* Folding, parameters, the loss, warnings: small graphs, the models in share/models, and, if the shared data
 * are there, exports whose number of parameters is known from PyTorch. */
#include <dirent.h>
#include "graph/graph.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "model/onnx.h"
#include "check.h"
#include "run_graph.h"
#include "by_hand.h"

static struct dlb_backend be;
static int n_models;

static int input(struct dlb_graph *g, const char *name, enum dlb_dtype type, const struct dlb_dim *dim, int n)
{
	const int t = dlb_graph_add_tensor(g, name, DLB_T_INPUT);
	g->tensor[t].dtype = type;
	g->tensor[t].n_dims = n;
	memcpy(g->tensor[t].dim, dim, (size_t)n * sizeof *dim);
	g->input[g->n_inputs++] = t;
	return t;
}

static int constant(struct dlb_graph *g, const char *name, enum dlb_dtype type, const int64_t *dim, int n,
		    const void *data)
{
	const int t = dlb_graph_add_tensor(g, name, DLB_T_CONSTANT);
	g->tensor[t].dtype = type;
	g->tensor[t].n_dims = n;
	for (int i = 0; i < n; i++)
		g->tensor[t].dim[i].add = dim[i];
	g->tensor[t].data = data;
	g->tensor[t].initial = true;
	return t;
}

static void output(struct dlb_graph *g, int t)
{
	g->output[g->n_outputs++] = t;
}

static void start(struct dlb_graph *g)
{
	dlb_graph_init(g);
	g->opset = 17;
	g->training = true;
	g->input = dlb_arena_array(&g->arena, 8, sizeof *g->input);
	g->output = dlb_arena_array(&g->arena, 8, sizeof *g->output);
}

/* y = Reshape(x, Concat(Shape(x)[0:1], [6])): the shape is computed and depends on the batch. */
static void shapes_that_follow(void)
{
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	const int64_t zero = 0, one = 1, six = 6, d1 = 1;

	start(&g);
	const int x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 1, 0 }, { 0, 2 }, { 0, 3 } }, 3);
	const int c0 = constant(&g, "c0", DLB_I64, &d1, 1, &zero),
		  c1 = constant(&g, "c1", DLB_I64, &d1, 1, &one);
	const int c6 = constant(&g, "c6", DLB_I64, &d1, 1, &six);
	const int shape = op(&g, "Shape", &x, 1, NULL, 0);
	const int n = op(&g, "Slice", (int[]){ shape, c0, c1 }, 3, NULL, 0);
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = 0 };
	const int to = op(&g, "Concat", (int[]){ n, c6 }, 2, &axis, 1);
	output(&g, op(&g, "Reshape", (int[]){ x, to }, 2, NULL, 0));
	if (dlb_graph_fold(&g, 5, &be, &err))
		test_die(&err);
	assert(IS(g.n_ops, ==, 1) && SAME(g.op[0].type, "Reshape") && IS(g.batch, ==, 5));
	const struct dlb_tensor *t = &g.tensor[g.op[0].in[1]], *y = &g.tensor[g.output[0]];
	assert(IS(t->kind, ==, DLB_T_CONSTANT) && t->data_mul && IS(t->data_mul[0], ==, 1) &&
	       IS(t->data_mul[1], ==, 0));
	assert(IS(((const int64_t *)t->data)[0], ==, 0) && IS(((const int64_t *)t->data)[1], ==, 6));
	assert(IS(y->n_dims, ==, 2) && IS(y->dim[0].mul, ==, 1) && IS(y->dim[0].add, ==, 0) &&
	       IS(y->dim[1].add, ==, 6));
	dlb_graph_release(&g);
}

/* y = Reshape(x, Concat([-1], [3])), where the computed shape is the graph's first tensor. */
static void first_tensor_folds(void)
{
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	const int64_t rest = -1, three = 3, d1 = 1;
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = 0 };

	start(&g);
	const int to = dlb_graph_add_tensor(&g, "to", DLB_T_ACTIVATION);
	const int x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 1, 0 }, { 0, 3 } }, 2);
	const int in[] = { constant(&g, "rest", DLB_I64, &d1, 1, &rest),
			   constant(&g, "three", DLB_I64, &d1, 1, &three) };
	dlb_graph_add_op(&g, DLB_FORWARD,
			 &(struct dlb_op_spec){ .name = "concat",
						.type = "Concat",
						.in = in,
						.n_in = 2,
						.out = &to,
						.n_out = 1,
						.attr = &axis,
						.n_attr = 1 });
	output(&g, op(&g, "Reshape", (int[]){ x, to }, 2, NULL, 0));
	if (dlb_graph_fold(&g, 5, &be, &err))
		test_die(&err);
	assert(IS(to, ==, 0) && IS(g.n_ops, ==, 1) && SAME(g.op[0].type, "Reshape"));
	const int64_t *v = g.tensor[g.op[0].in[1]].data;
	assert(v && IS(v[0], ==, -1) && IS(v[1], ==, 3));
	dlb_graph_release(&g);
}

/* Exported for three samples: indices of three rows fit at that batch, and not at two. */
static void fixed_operands_that_do_not_fit(void)
{
	const int64_t rows[] = { 0, 1, 0 }, dim[] = { 3, 1 };

	for (int64_t batch = 2; batch <= 3; batch++) {
		struct dlb_graph g;
		struct dlb_error err = { .what = "" };
		const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT, .i = 1 };

		start(&g);
		const int x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 0, 3 }, { 0, 2 } }, 2);
		const int at = constant(&g, "at", DLB_I64, dim, 2, rows);
		output(&g, op(&g, "GatherElements", (int[]){ x, at }, 2, &axis, 1));
		const int rc = dlb_graph_fold(&g, batch, &be, &err);
		assert(batch == 3 ? !rc :
				    rc == -1 && strstr(err.what, "does not fit") &&
					    strstr(err.hint, "another --batch than 2"));
		dlb_graph_release(&g);
	}
}

/* A literal batch in a Reshape is adapted; the requested batch may be another. */
static void wired(const int64_t *target, int n_target, int which)
{
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	const int64_t n = n_target;

	start(&g);
	const int x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 0, 8 }, { 0, 2 }, { 0, 3 } }, 3);
	const int c = constant(&g, "c", DLB_I64, &n, 1, target);
	output(&g, op(&g, "Reshape", (int[]){ x, c }, 2, NULL, 0));
	if (dlb_graph_fold(&g, 20, &be, &err))
		test_die(&err);
	const struct dlb_desc d = dlb_tensor_desc(&g.tensor[g.output[0]], 20);
	assert(IS(dlb_desc_count(&d), ==, 120) &&
	       IS(d.dim[which], ==, 20 * (target[which] > 0 ? target[which] / 8 : 1)));
	dlb_graph_release(&g);
}

static void fails(const char *what, const struct dlb_error *err, struct dlb_graph *g)
{
	if (!strstr(err->what, what) && !strstr(err->where, what) && !strstr(err->hint, what)) {
		fprintf(stderr, "expected '%s'\n", what);
		test_die(err);
	}
	dlb_graph_release(g);
}

static void refusals(void)
{
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	int x;

	start(&g);
	x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 1, 0 }, { 0, 2 } }, 2);
	output(&g, op(&g, "Frobnicate", &x, 1, NULL, 0));
	assert(IS(dlb_graph_fold(&g, 0, &be, &err), ==, -1));
	fails("Frobnicate", &err, &g);

	start(&g);
	x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 1, 0 }, { 0, -1 } }, 2);
	output(&g, op(&g, "Relu", &x, 1, NULL, 0));
	assert(IS(dlb_graph_fold(&g, 0, &be, &err), ==, -1));
	fails("dimension 1", &err, &g);

	start(&g);	/* (N, 3) as (?, 32): sizes are not linear in N */
	const int64_t d1 = 2, target[2] = { -1, 32 };
	x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 1, 0 }, { 0, 3 } }, 2);
	output(&g, op(&g, "Reshape", (int[]){ x, constant(&g, "c", DLB_I64, &d1, 1, target) }, 2, NULL, 0));
	assert(IS(dlb_graph_fold(&g, 64, &be, &err), ==, -1));
	fails("Reshape", &err, &g);

	start(&g);	/* no parameters */
	x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 1, 0 }, { 0, 3 } }, 2);
	output(&g, op(&g, "Relu", &x, 1, NULL, 0));
	assert(!dlb_graph_fold(&g, 0, &be, &err) && !dlb_graph_find_parameters(&g, &err));
	assert(IS(dlb_graph_attach_loss(&g, "cross-entrpy", &err), ==, -1) && HAS(err.hint, "cross-entropy"));
	assert(!dlb_graph_attach_loss(&g, NULL, &err));
	assert(IS(dlb_graph_differentiate(&g, &err), ==, -1));
	fails("nothing to train", &err, &g);
}

/* Default losses by the output's shape; labels and their bounds. */
static void losses(const struct dlb_dim *dim, int n_dims, const char *loss, const char *type, int label_dims,
		   int64_t bound)
{
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };

	start(&g);
	const int x = input(&g, "x", DLB_F32, dim, n_dims);
	output(&g, op(&g, "Relu", &x, 1, NULL, 0));
	if (dlb_graph_fold(&g, 4, &be, &err) || dlb_graph_find_parameters(&g, &err) ||
	    dlb_graph_attach_loss(&g, loss, &err))
		test_die(&err);
	assert(SAME(g.op[g.tensor[g.loss].producer].type, type));
	assert(IS(g.seed, >=, 0) && IS(g.tensor[g.seed].kind, ==, DLB_T_SEED));
	if (label_dims < 0) {
		assert(IS(g.label, <, 0));
	} else {
		assert(IS(g.label, >=, 0) && IS(g.tensor[g.label].kind, ==, DLB_T_LABEL));
		assert(IS(g.tensor[g.label].n_dims, ==, label_dims) &&
		       IS(g.tensor[g.label].bound, ==, bound));
	}
	dlb_graph_release(&g);
}

static double rewritten(const char *path, int64_t batch, struct dlb_graph *g)
{
	struct dlb_error err = { .what = "" };
	double n = 0;

	dlb_graph_init(g);
	if (dlb_onnx_read(path, g, &err))
		test_die(&err);
	const struct dlb_parameter_choice choice = { .untie = false };
	g->training = true;
	if (dlb_graph_choose_parameters(g, &choice, &err) || dlb_graph_fold(g, batch, &be, &err) ||
	    dlb_graph_find_parameters(g, &err) || dlb_graph_attach_loss(g, NULL, &err) ||
	    dlb_graph_choose_layout(g, &err) || dlb_graph_differentiate(g, &err) || dlb_graph_check(g, &err))
		test_die(&err);
	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].kind == DLB_T_WEIGHT) {
			const struct dlb_desc d = dlb_tensor_desc(&g->tensor[t], 1);
			n += (double)dlb_desc_count(&d);
		}
	n_models++;
	return n;
}

static bool has_prefix(const char *s, const char *const *prefix)
{
	for (; *prefix; prefix++)
		if (!strncmp(s, *prefix, strlen(*prefix)))
			return true;
	return false;
}

/* MODELS.tsv: file, nodes, nonconst_nodes, grad_nodes, params, ... */
static void exported_models(const char *dir)
{
	static const char *const ours[] = { "mlp.",           "lenet5.",    "resnet20_cifar.train",
					    "resnet50.train", "vgg_small.", NULL };
	char path[700], line[400], file[200];
	double params;

	snprintf(path, sizeof path, "%s/onnx/MODELS.tsv", dir);
	FILE *f = fopen(path, "r");
	assert(f);
	while (fgets(line, sizeof line, f)) {
		struct dlb_graph g;
		if (sscanf(line, "%199s %*s %*s %*s %lf", file, &params) != 2 || !has_prefix(file, ours))
			continue;
		snprintf(path, sizeof path, "%s/onnx/models/%s.onnx", dir, file);
		const double n = rewritten(path, 0, &g);
		if (n != params)
			fprintf(stderr, "%s: %.0f parameters, PyTorch has %.0f\n", file, n, params);
		assert(IS(n, ==, params));
		for (int i = 0; i < g.n_ops; i++)
			assert(strcmp(g.op[i].type, "Shape") && strcmp(g.op[i].type, "Identity"));
		assert(IS(g.label, >=, 0));
		dlb_graph_release(&g);
	}
	fclose(f);
	/* a fixed batch of 8 in the model, 20 requested */
	struct dlb_graph g;
	snprintf(path, sizeof path, "%s/onnx/models/lenet5.train.op17.st.loss.onnx", dir);
	assert(IS(rewritten(path, 20, &g), ==, 61706) && IS(g.batch, ==, 20));
	assert(IS(g.tensor[g.input[0]].dim[0].mul, ==, 1) && IS(g.tensor[g.label].dim[0].mul, ==, 1));
	dlb_graph_release(&g);
	const char **warning;
	snprintf(path, sizeof path, "%s/onnx/light/light_resnet50.onnx", dir);
	assert(IS(rewritten(path, 0, &g), ==, 25557032) && IS(g.batch, ==, 1));
	assert(IS(dlb_graph_warnings(&g, &warning), ==, 2));
	dlb_graph_release(&g);
	snprintf(path, sizeof path, "%s/onnx/models/resnet20_cifar.eval.op17.dyn.onnx", dir);
	rewritten(path, 0, &g);
	assert(IS(dlb_graph_warnings(&g, &warning), ==, 2) && HAS(warning[0], "folded") &&
	       HAS(warning[1], "tied"));
	dlb_graph_release(&g);
}

/* Clip(x, CastLike(c, x)): the bound has the samples' type, not their values, so it is a constant and Clip
 * has a gradient. */
static void cast_like_samples(void)
{
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	const float least = .25f;

	start(&g);
	const int x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 1, 0 }, { 0, 2 } }, 2),
		  c = constant(&g, "c", DLB_F32, NULL, 0, &least);
	const int bound = op(&g, "CastLike", (int[]){ c, x }, 2, NULL, 0);
	output(&g, op(&g, "Clip", (int[]){ x, bound }, 2, NULL, 0));
	if (dlb_graph_fold(&g, 5, &be, &err))
		test_die(&err);
	assert(IS(g.n_ops, ==, 1) && SAME(g.op[0].type, "Clip") &&
	       IS(g.tensor[g.op[0].in[1]].kind, ==, DLB_T_CONSTANT));
	assert(IS(*(const float *)g.tensor[g.op[0].in[1]].data, ==, least));
	dlb_graph_release(&g);
}

/* A model with a Softmax before a product, another one before the output, and Dropouts of these rates and
 * modes: says so many do nothing, and that attention has none although others are at work. */
static void notes_on_dropout(double rate, bool first_trains, bool second_trains, const char *idle,
			     const char *attention)
{
	static const bool yes = true, no = false;
	struct dlb_graph g;

	start(&g);
	const int x = input(&g, "x", DLB_F32, (struct dlb_dim[]){ { 1, 0 }, { 0, 3 }, { 0, 3 } }, 3),
		  p = constant(&g, "p", DLB_F64, NULL, 0, &rate),
		  on = constant(&g, "on", DLB_BOOL, NULL, 0, &yes),
		  off = constant(&g, "off", DLB_BOOL, NULL, 0, &no);
	const int softmax = op(&g, "Softmax", &x, 1, NULL, 0),
		  product = op(&g, "MatMul", (int[]){ softmax, op(&g, "Tanh", &x, 1, NULL, 0) }, 2, NULL, 0),
		  first = op(&g, "Dropout", (int[]){ product, p, first_trains ? on : off }, 3, NULL, 0),
		  second = op(&g, "Dropout", (int[]){ first, p, second_trains ? on : off }, 3, NULL, 0),
		  y = op(&g, "MatMul", (int[]){ second, x }, 2, NULL, 0);
	output(&g, op(&g, "Softmax", &y, 1, NULL, 0));
	dlb_graph_note_dropout(&g);
	const char *const want[] = { idle ? idle : attention, attention };
	assert(IS(g.n_notes, ==, (idle != NULL) + (attention != NULL)));
	for (int i = 0; i < g.n_notes; i++)
		assert(HAS(g.note[i], want[i]));
	dlb_graph_release(&g);
}

int main(void)
{
	static const char *const shipped[] = { "digits_mlp", "digits_cnn", "lenet5", "resnet8" };
	const char *dir = test_data();

	test_backend(&be);
	shapes_that_follow();
	first_tensor_folds();
	fixed_operands_that_do_not_fit();
	wired((const int64_t[]){ 8, 6 }, 2, 0);
	wired((const int64_t[]){ 8, -1 }, 2, 0);
	wired((const int64_t[]){ -1, 6 }, 2, 0);
	wired((const int64_t[]){ 8, 3, 2 }, 3, 0);
	wired((const int64_t[]){ 16, 3 }, 2, 0);
	cast_like_samples();
	refusals();
	notes_on_dropout(.25, true, true, NULL,
			 "1 attention Softmax has no Dropout, though the model has 2 elsewhere");
	notes_on_dropout(.25, true, false,
			 "1 Dropout does nothing, exported for inference; --dropout 'Dropout4=0.25'",
			 "1 attention Softmax has no Dropout, though the model has 1 elsewhere");
	notes_on_dropout(.25, false, false,
			 "2 Dropout do nothing, exported for inference; --dropout 'Dropout4=0.25'", NULL);
	notes_on_dropout(0, true, false, NULL, NULL);
	const struct dlb_dim d2[] = { { 1, 0 }, { 0, 7 } }, d3[] = { { 1, 0 }, { 0, 5 }, { 0, 7 } };
	const struct dlb_dim d4[] = { { 1, 0 }, { 0, 7 }, { 0, 3 }, { 0, 2 } },
			     one[] = { { 1, 0 }, { 0, 1 } };
	losses(d2, 2, NULL, "SoftmaxCrossEntropyLoss", 1, 7);
	losses(d3, 3, NULL, "SoftmaxCrossEntropyLoss", 2, 7);
	losses(d4, 4, "auto", "SoftmaxCrossEntropyLoss", 3, 7);
	losses(d3, 3, "cross-entropy:1", "SoftmaxCrossEntropyLoss", 2, 5);
	losses(one, 2, NULL, "BinaryCrossEntropyLoss", 1, 2);
	losses(d2, 2, "bce", "BinaryCrossEntropyLoss", 2, 2);
	losses(d2, 2, "mse", "MeanSquaredErrorLoss", 2, 0);
	losses(d2, 2, "sum", "SumLoss", -1, 0);
	for (int i = 0; i < DLB_LEN(shipped); i++) {
		struct dlb_graph g;
		char path[200];
		snprintf(path, sizeof path, "share/models/%s.onnx", shipped[i]);
		assert(IS(rewritten(path, 0, &g), >, 0));
		dlb_graph_release(&g);
	}
	if (dir)
		exported_models(dir);
	be.ops->close(&be);
	printf("fold: shapes, a wired batch, refusals, losses, %d models%s\n", n_models,
	       dir ? "" : " (skip: exported models, no shared data)");
	return 0;
}
