/* Layouts and the inference graph: every operand has a layout that its reader accepts, results are the same
 * with and without the choice of layouts and, if the shared data are there, those of PyTorch. */
#include <math.h>
#include "graph/graph.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "model/onnx.h"
#include "check.h"
#include "run_graph.h"
#include "util/rng.h"
#include "by_hand.h"

static struct dlb_backend be;
static const uint64_t seed = 7;

static void load(struct dlb_graph *g, const char *path, bool layout, bool training)
{
	struct dlb_error err = { .what = "" };

	dlb_graph_init(g);
	if (dlb_onnx_read(path, g, &err))
		test_die(&err);
	g->training = training;
	if (dlb_graph_fold(g, 6, &be, &err) || dlb_graph_find_parameters(g, &err) ||
	    dlb_graph_attach_loss(g, NULL, &err) || (layout && dlb_graph_choose_layout(g, &err)) ||
	    dlb_graph_differentiate(g, &err) || dlb_graph_check(g, &err))
		test_die(&err);
}

static bool coincide(const struct dlb_tensor *t)
{
	bool pixel = true;
	for (int i = 2; i < t->n_dims; i++)
		pixel &= !t->dim[i].mul && t->dim[i].add == 1;
	return t->n_dims < 3 || pixel || (!t->dim[1].mul && t->dim[1].add == 1);
}

static void check_borders(const struct dlb_graph *g)
{
	int moved = 0;
	for (int i = 0; i < g->n_ops; i++) {
		const struct dlb_op *o = &g->op[i];
		const struct dlb_op_class *cls = dlb_op_class_of(o->kind);
		enum dlb_layout seen = DLB_PLAIN;
		moved += !strcmp(o->type, "Layout");
		if (!strncmp(o->type, "Layout", 6)) /* weights are read as they lie in the file */
			assert(g->tensor[o->in[0]].kind != DLB_T_WEIGHT &&
			       g->tensor[o->in[0]].kind != DLB_T_CONSTANT);
		for (int k = 0; k < o->n_in; k++) {
			const struct dlb_tensor *t = o->in[k] < 0 ? NULL : &g->tensor[o->in[k]];
			if (!t || t->n_dims < 3 || coincide(t) || t->kind == DLB_T_WEIGHT ||
			    t->kind == DLB_T_CONSTANT)
				continue;
			/* the gradient of what was broadcast is a sum, which reads by strides */
			const bool sum = o->phase == DLB_BACKWARD && !strcmp(o->type, "ReduceSum");
			if (cls->layout == DLB_LAYOUT_PLAIN_ONLY && !sum)
				assert(IS(t->layout, ==, DLB_PLAIN));
			if (cls->layout == DLB_LAYOUT_WANTS_CHANNELS_LAST && k == 0)
				assert(IS(t->layout, ==, DLB_CHANNELS_LAST));
			if (cls->layout == DLB_LAYOUT_ANY && o->phase == DLB_FORWARD &&
			    strncmp(o->type, "Layout", 6) && strcmp(o->type, "TransposeView")) {
				assert(seen == DLB_PLAIN || seen == t->layout);
				seen = t->layout;
			}
		}
		for (int j = 0; j < i && !strcmp(o->type, "Layout"); j++) /* once for all readers */
			assert(strcmp(g->op[j].type, "Layout") != 0 || g->op[j].in[0] != o->in[0]);
		if (!strcmp(o->type, "LayoutView"))
			assert(coincide(&g->tensor[o->in[0]]));
	}
	for (int t = 0; t < g->n_tensors; t++)
		if (g->tensor[t].kind == DLB_T_WEIGHT || g->tensor[t].kind == DLB_T_WEIGHT_GRADIENT)
			assert(IS(g->tensor[t].layout, ==, DLB_PLAIN));
	assert(IS(moved, <=, 6));
}

static double distance(const struct test_run *a, int x, const struct test_run *b, int y)
{
	const struct dlb_desc d = dlb_tensor_desc(&a->g->tensor[x], a->n);
	double diff = 0, norm = 0;
	for (int64_t i = 0; i < dlb_desc_count(&d); i++) {
		const double u = dlb_value_real(a->value[x], d.dtype, i),
			     v = dlb_value_real(b->value[y], d.dtype, i);
		diff += (u - v) * (u - v);
		norm += v * v;
	}
	return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

/* Loss, output and every weight's gradient agree between plain and channels-last; frees both graphs. */
static void compare(const char *path, struct dlb_graph plain, struct dlb_graph fast)
{
	struct test_run p, f;

	check_borders(&fast);
	test_run_init(&p, &plain, &be, 6);
	test_run_init(&f, &fast, &be, 6);
	test_fill_inputs(&p, seed);
	test_fill_inputs(&f, seed);
	test_run_phase(&p, DLB_BACKWARD);
	test_run_phase(&f, DLB_BACKWARD);
	assert(IS(distance(&f, fast.loss, &p, plain.loss), <, 1e-5));
	assert(IS(distance(&f, fast.output[0], &p, plain.output[0]), <, 1e-4));
	for (int i = 0; i < fast.n_ops; i++) {
		if (fast.op[i].phase != DLB_UPDATE)
			continue;
		const int t = fast.op[i].in[1], u = test_tensor(&plain, fast.tensor[t].name);
		assert(IS(u, >=, 0));
		const double far = distance(&f, t, &p, u);
		if (far > 2e-3)
			fprintf(stderr, "%s: gradient %s is %g away\n", path, fast.tensor[t].name, far);
		assert(IS(far, <=, 2e-3));
	}
	test_run_release(&p);
	test_run_release(&f);
	dlb_graph_release(&plain);
	dlb_graph_release(&fast);
}

static void same_numbers(const char *path)
{
	struct dlb_graph plain, fast;

	load(&plain, path, false, true);
	load(&fast, path, true, true);
	compare(path, plain, fast);
}

static void narrow(struct dlb_tensor *t, struct dlb_arena *a)
{
	const struct dlb_desc d = dlb_tensor_desc(t, 1);
	float *v = t->data ? dlb_arena_array(a, (size_t)dlb_desc_count(&d), sizeof *v) : NULL;

	for (int64_t i = 0; v && i < dlb_desc_count(&d); i++)
		v[i] = (float)((const double *)t->data)[i];
	t->data = v;
	t->dtype = DLB_F32;
}

static int transposed(struct dlb_graph *g, int x, const int64_t *perm)
{
	const struct dlb_attr a = { .name = "perm", .type = DLB_ATTR_INTS, .ints = perm, .n = 4 };

	return op(g, "Transpose", &x, 1, &a, 1);
}

/* ConvNeXt's block: x + (weights + channels to the front of (row-wise work on channels at the end of a
 * convolution)). */
static void block(struct dlb_graph *g, bool layout)
{
	struct dlb_error err = { .what = "" };
	uint64_t drawn = 0;
	const int64_t to_end[] = { 0, 2, 3, 1 }, to_front[] = { 0, 3, 1, 2 }, pads[] = { 1, 1, 1, 1 };
	const struct dlb_attr conv[] = { { .name = "pads", .type = DLB_ATTR_INTS, .ints = pads, .n = 4 },
					 { .name = "group", .type = DLB_ATTR_INT, .i = 20 } };

	begin_graph(g, 17);
	g->dtype = DLB_F32;
	const int first = sample_input(g, DLB_F32, (const int64_t[]){ 0, 20, 5, 4 }, 4);
	const int w = drawn_constant(g, "w", (const int64_t[]){ 20, 1, 3, 3 }, 4, true, seed, &drawn);
	const int scale = drawn_constant(g, "scale", (const int64_t[]){ 20 }, 1, true, seed, &drawn);
	const int place = drawn_constant(g, "place", (const int64_t[]){ 20, 5, 4 }, 3, true, seed, &drawn);
	for (int t = 0; t < g->n_tensors; t++)
		narrow(&g->tensor[t], &g->arena);
	const int x = op(g, "Relu", &first, 1, NULL, 0), y = op(g, "Conv", (const int[]){ x, w }, 2, conv, 2);
	const int rows = op(g, "LayerNormalization", (const int[]){ transposed(g, y, to_end), scale }, 2,
			    NULL, 0);
	const int back = transposed(g, op(g, "Tanh", &rows, 1, NULL, 0), to_front);
	const int placed = op(g, "Add", (const int[]){ back, place }, 2, NULL, 0);
	const int sum = op(g, "Add", (const int[]){ x, placed }, 2, NULL, 0);
	g->output[g->n_outputs++] = op(g, "Conv", (const int[]){ sum, w }, 2, conv, 2);
	if (dlb_graph_fold(g, 6, &be, &err) || dlb_graph_find_parameters(g, &err) ||
	    dlb_graph_attach_loss(g, "mse", &err) || (layout && dlb_graph_choose_layout(g, &err)) ||
	    dlb_graph_differentiate(g, &err) || dlb_graph_check(g, &err))
		test_die(&err);
}

/* Its Transposes cost nothing: only the input is converted to channels-last, and the output back. */
static void transposes_are_views(void)
{
	struct dlb_graph plain, fast;
	int views = 0;

	block(&plain, false);
	block(&fast, true);
	for (int i = 0; i < fast.n_ops; i++) {
		assert(strcmp(fast.op[i].type, "Transpose"));
		views += !strcmp(fast.op[i].type, "TransposeView");
	}
	assert(IS(views, ==, 4));
	compare("a block of ConvNeXt", plain, fast);
}

/* The inference graph: forward ops only, nothing of training, and ids of the original ops. */
static void inference(const char *path)
{
	struct dlb_graph g, eval;
	struct dlb_error err = { .what = "" };
	int *op_of, *tensor_of;

	load(&g, path, true, true);
	if (dlb_graph_eval(&g, &eval, &op_of, &tensor_of, &err) || dlb_graph_check(&eval, &err))
		test_die(&err);
	assert(!eval.training && IS(eval.loss, >=, 0) && IS(eval.label, >=, 0));
	for (int i = 0; i < eval.n_ops; i++) {
		assert(IS(op_of[i], >=, 0) && SAME(g.op[op_of[i]].name, eval.op[i].name));
		assert(IS(eval.op[i].phase, ==, DLB_FORWARD) && strcmp(eval.op[i].type, "Dropout"));
		if (!strcmp(eval.op[i].type, "BatchNormalization"))
			assert(IS(eval.op[i].n_out, ==, 1) &&
			       !dlb_attr_int(eval.op[i].attr, eval.op[i].n_attr, "training_mode", 0));
	}
	for (int t = 0; t < eval.n_tensors; t++)
		assert(IS(tensor_of[t], >=, 0) && SAME(g.tensor[tensor_of[t]].name, eval.tensor[t].name));
	struct test_run r;
	test_run_init(&r, &eval, &be, 3);
	test_fill_inputs(&r, seed);
	test_run_phase(&r, DLB_FORWARD);
	assert(isfinite(dlb_value_real(r.value[eval.loss], DLB_F32, 0)));
	test_run_release(&r);
	dlb_graph_release(&eval);
	dlb_graph_release(&g);
}

/* truth/fwd_NAME: the output of the model's forward pass, in training mode. */
static void forward_truth(const char *dir, const char *name)
{
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	struct dlb_desc dx, dy;
	void *x, *y;
	char path[700], tensor[128];
	struct test_run r;

	snprintf(path, sizeof path, "%s/onnx/models/%s.train.op17.dyn.onnx", dir, name);
	load(&g, path, true, true);
	snprintf(path, sizeof path, "%s/onnx/truth/fwd_%s/test_data_set_0/input_0.pb", dir, name);
	if (dlb_onnx_read_tensor(path, tensor, &dx, &x, &err))
		test_die(&err);
	snprintf(path, sizeof path, "%s/onnx/truth/fwd_%s/test_data_set_0/output_0.pb", dir, name);
	if (dlb_onnx_read_tensor(path, tensor, &dy, &y, &err))
		test_die(&err);
	test_run_init(&r, &g, &be, dx.dim[0]);
	memcpy(r.value[g.input[0]], x, dlb_desc_bytes(&dx));
	test_run_phase(&r, DLB_FORWARD);
	const float *is = r.value[g.output[0]], *should = y;
	for (int64_t i = 0; i < dlb_desc_count(&dy); i++)
		if (fabs((double)is[i] - (double)should[i]) > 1e-5 + 1e-3 * fabs((double)should[i])) {
			fprintf(stderr, "%s: output %lld is %.9g, PyTorch's %.9g\n", name, (long long)i,
				(double)is[i], (double)should[i]);
			abort();
		}
	test_run_release(&r);
	dlb_graph_release(&g);
	free(x);
	free(y);
}

/* Offset in memory of element i in the order of ONNX. */
static int64_t place_of(const struct dlb_desc *d, const int64_t *stride, int64_t i)
{
	int64_t at = 0;

	for (int k = d->n_dims - 1; k >= 0; k--) {
		at += i % d->dim[k] * stride[k];
		i /= d->dim[k];
	}
	return at;
}

/* MaxPool's Indices of x, whose elements are `data` in the order of ONNX, with both in this layout. Returns
 * the indices in the order of ONNX. */
static void pool_indices(enum dlb_layout layout, struct dlb_desc x, const float *data, int64_t *index)
{
	static const int64_t window[] = { 2, 2 };
	const struct dlb_attr attr = {
		.name = "kernel_shape", .type = DLB_ATTR_INTS, .ints = window, .n = 2
	};
	struct dlb_desc out[2] = { { .n_dims = 0 } };
	struct dlb_error err = { .what = "" };
	struct dlb_kernel *k;
	int64_t sx[DLB_MAX_DIMS], sy[DLB_MAX_DIMS];

	x.layout = layout;
	struct dlb_op_io io = { .name = "pool",
				.cls = dlb_op_class_of(DLB_OP_MaxPool),
				.opset = 22,
				.attr = &attr,
				.n_attr = 1,
				.n_in = 1,
				.n_out = 2,
				.in = &x,
				.out = out };
	if (io.cls->infer(&io, &err))
		test_die(&err);
	out[0].layout = out[1].layout = layout;
	if (io.cls->kernel(&be, &io, &k, &err))
		test_die(&err);
	const int64_t n = dlb_desc_count(&x), m = dlb_desc_count(&out[0]);
	float *in = be.ops->alloc(&be, (size_t)n * sizeof *in),
	      *y = be.ops->alloc(&be, (size_t)m * sizeof *y);
	int64_t *at = be.ops->alloc(&be, (size_t)m * sizeof *at);
	void *scratch = be.ops->alloc(&be, k->scratch_bytes + 64);
	dlb_desc_strides(&x, sx);
	dlb_desc_strides(&out[1], sy);
	for (int64_t i = 0; i < n; i++)
		in[place_of(&x, sx, i)] = data[i];
	k->run(k,
	       &(struct dlb_run){ .in = (void *[]){ in }, .out = (void *[]){ y, at }, .scratch = scratch });
	for (int64_t i = 0; i < m; i++)
		index[i] = at[place_of(&out[1], sy, i)];
	be.ops->free(&be, in);
	be.ops->free(&be, y);
	be.ops->free(&be, at);
	be.ops->free(&be, scratch);
	dlb_kernel_free(k);
}

/* In every layout, indices count elements in the order of ONNX and point to the largest ones. */
static void indices_in_layouts(void)
{
	const struct dlb_desc x = { .dtype = DLB_F32, .n_dims = 4, .dim = { 2, 3, 4, 5 } };
	float data[120];
	int64_t plain[72], last[72];

	for (int i = 0; i < 120; i++)
		data[i] = (float)dlb_philox_normal(seed, 9, (uint64_t)i);
	pool_indices(DLB_PLAIN, x, data, plain);
	pool_indices(DLB_CHANNELS_LAST, x, data, last);
	for (int i = 0; i < 72; i++) {
		/* (n, c) planes of 3 x 4 windows */
		const int64_t corner = i / 12 * 20 + i % 12 / 4 * 5 + i % 4;
		const float most = fmaxf(fmaxf(data[corner], data[corner + 1]),
					 fmaxf(data[corner + 5], data[corner + 6]));

		assert(IS(data[plain[i]], ==, most) && IS(plain[i], ==, last[i]));
	}
}

int main(void)
{
	static const char *const models[] = { "digits_mlp", "digits_cnn", "lenet5", "resnet8" };
	const char *dir = test_data();
	char path[200];

	test_backend(&be);
	for (int i = 0; i < DLB_LEN(models); i++) {
		snprintf(path, sizeof path, "share/models/%s.onnx", models[i]);
		same_numbers(path);
		inference(path);
	}
	transposes_are_views();
	indices_in_layouts();
	if (dir) {
		forward_truth(dir, "mlp");
		forward_truth(dir, "lenet5");
		forward_truth(dir, "resnet20_cifar");
	}
	be.ops->close(&be);
	printf("layout: %d models and a block of ConvNeXt plain and channels-last, their inference "
	       "graphs%s\n",
	       DLB_LEN(models),
	       dir ? ", PyTorch's forward passes" : " (skip: PyTorch's forward passes, no shared data)");
	return 0;
}
