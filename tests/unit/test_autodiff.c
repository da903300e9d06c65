/* Gradients of whole graphs, against central differences in double, on graphs with the hard cases (fan-out,
 * shared weights, broadcasting, a weight that two ops transpose, saved statistics); and, if the shared data
 * are there, the gradients of the first training step against PyTorch's. */
#include <jansson.h>
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
static const uint64_t seed = 20260101;
static uint64_t drawn;
static int n_checked;

/* -- graphs made by hand -- */

static int weight(struct dlb_graph *g, const char *name, const int64_t *dim, int n)
{
	return drawn_constant(g, name, dim, n, true, seed, &drawn);
}
#define W(g, name, ...) weight(g, name, (const int64_t[]){ __VA_ARGS__ }, \
			       (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))

#define OP(g, type, ...) op(g, type, (const int[]){ __VA_ARGS__ }, (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int)), NULL, 0)

static int start(struct dlb_graph *g, const int64_t *dim, int n)
{
	begin_graph(g, 17);
	return sample_input(g, DLB_F64, dim, n);
}

static double loss_of(struct test_run *r)
{
	for (int t = 0; t < r->g->n_tensors; t++)	/* restore running statistics */
		if (r->g->tensor[t].kind == DLB_T_BUFFER)
			memcpy(r->value[t], r->g->tensor[t].data, test_bytes(r, t));
	test_run_phase(r, DLB_FORWARD);
	return dlb_value_real(r->value[r->g->loss], DLB_F64, 0);
}

static int gradient_of(const struct dlb_graph *g, int w)
{
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].phase == DLB_UPDATE && g->op[i].in[0] == w) {
			assert(IS(g->tensor[g->op[i].in[1]].kind, ==, DLB_T_WEIGHT_GRADIENT) &&
			       IS(g->tensor[g->op[i].in[1]].of, ==, w));
			assert(IS(g->tensor[w].home, ==, i) && IS(g->op[i].colocate, ==, g->op[i].of));
			return g->op[i].in[1];
		}
	return -1;
}

/* Up to 12 elements of every weight: |difference - gradient| within 1e-6 of the larger, or 1e-8. */
static void compare(struct test_run *r)
{
	const struct dlb_graph *g = r->g;
	for (int w = 0; w < g->n_tensors; w++) {
		if (g->tensor[w].kind != DLB_T_WEIGHT)
			continue;
		const int grad = gradient_of(g, w);
		const struct dlb_desc d = dlb_tensor_desc(&g->tensor[w], r->n);
		const int64_t count = dlb_desc_count(&d);
		double *v = r->value[w];
		assert(IS(grad, >=, 0));
		for (int64_t i = 0; i < count; i += 1 + count / 12) {
			const double keep = v[i], h = 1e-5, is = ((double *)r->value[grad])[i];
			v[i] = keep + h;
			const double up = loss_of(r);
			v[i] = keep - h;
			const double down = loss_of(r), should = (up - down) / (2 * h);
			v[i] = keep;
			if (fabs(is - should) > 1e-8 + 1e-6 * fmax(fabs(is), fabs(should))) {
				fprintf(stderr,
					"seed %llu: d loss / d %s[%lld] is %.12g, differences say %.12g\n",
					(unsigned long long)seed, g->tensor[w].name, (long long)i, is,
					should);
				abort();
			}
			n_checked++;
		}
	}
}

static void check(struct dlb_graph *g, int y, int64_t n, const char *loss)
{
	struct dlb_error err = { .what = "" };
	struct test_run r;

	g->output[g->n_outputs++] = y;
	if (dlb_graph_fold(g, n, &be, &err) || dlb_graph_find_parameters(g, &err) ||
	    dlb_graph_attach_loss(g, loss, &err) || dlb_graph_choose_layout(g, &err) ||
	    dlb_graph_differentiate(g, &err) || dlb_graph_check(g, &err))
		test_die(&err);
	test_run_init(&r, g, &be, n);
	test_fill_inputs(&r, seed);
	loss_of(&r);
	for (int i = 0; i < g->n_ops; i++)
		if (g->op[i].phase == DLB_BACKWARD)
			test_run_op(&r, i);
	compare(&r);
	test_run_release(&r);
	dlb_graph_release(g);
}

/* Two dense layers, one activation read three times, a bias that broadcasts. */
static void fan_out(void)
{
	struct dlb_graph g;
	const int x = start(&g, (int64_t[]){ 0, 5 }, 2);
	const int h = OP(&g, "Tanh", OP(&g, "Add", OP(&g, "MatMul", x, W(&g, "w1", 5, 4)), W(&g, "b1", 4)));
	const int y = OP(&g, "Add", OP(&g, "Mul", h, OP(&g, "Sigmoid", h)),
			 OP(&g, "MatMul", h, W(&g, "w2", 4, 4)));
	check(&g, y, 6, NULL);
}

/* One weight used by two products, directly and transposed; and twice by one op. */
static void shared(void)
{
	struct dlb_graph g;
	const int x = start(&g, (int64_t[]){ 0, 4 }, 2), w = W(&g, "w", 4, 4), s = W(&g, "s", 4);
	const int h = OP(&g, "Relu", OP(&g, "MatMul", x, w));
	const int wt = OP(&g, "Transpose", w);
	const int y = OP(&g, "Mul", OP(&g, "MatMul", h, wt), OP(&g, "Mul", s, s));
	check(&g, y, 5, NULL);
}

/* The gradient of a weight equals that of an activation: Add of equal shapes. */
static void same_gradient(void)
{
	struct dlb_graph g;
	start(&g, (int64_t[]){ 0, 3 }, 2);
	const int h = OP(&g, "Add", W(&g, "a", 2, 3), W(&g, "b", 2, 3));
	const int y = OP(&g, "MatMul", g.input[0], OP(&g, "Transpose", h));
	check(&g, y, 4, "mse");
}

/* Two rows of a weight, repeated for each sample: the repeats follow the batch, the rows do not. */
static void repeated_for_samples(void)
{
	static const int64_t zero = 0, one = 1, rows[] = { -1, 10 };
	const struct dlb_attr axis = { .name = "axis", .type = DLB_ATTR_INT };
	struct dlb_graph g;
	const int x = start(&g, (int64_t[]){ 0, 5 }, 2);
	const int first = whole_numbers(&g, &zero, 1), end = whole_numbers(&g, &one, 1);
	const int samples = OP(&g, "Slice", OP(&g, "Shape", x), first, end);
	const int repeats = op(&g, "Concat", (int[]){ samples, end }, 2, &axis, 1);
	const int tiled = OP(&g, "Tile", W(&g, "rows", 2, 5), repeats);
	const int y = OP(&g, "Mul", OP(&g, "MatMul", x, W(&g, "w", 5, 10)),
			 OP(&g, "Reshape", tiled, whole_numbers(&g, rows, 2)));
	check(&g, y, 3, "mse");
}

static struct dlb_attr ints(const char *name, const int64_t *v, int n)
{
	return (struct dlb_attr){ .name = name, .type = DLB_ATTR_INTS, .ints = v, .n = n };
}

/* Convolution, batch statistics, a residual, both pools, a dense head. */
static void convolution(const char *loss, int classes)
{
	struct dlb_graph g;
	static const int64_t k3[] = { 3, 3 }, p1[] = { 1, 1, 1, 1 }, k2[] = { 2, 2 };
	const struct dlb_attr conv[] = { ints("kernel_shape", k3, 2), ints("pads", p1, 4) };
	const struct dlb_attr pool[] = { ints("kernel_shape", k2, 2), ints("strides", k2, 2) };
	const struct dlb_attr training = { .name = "training_mode", .type = DLB_ATTR_INT, .i = 1 };
	const int x = start(&g, (int64_t[]){ 0, 2, 6, 6 }, 4);
	const int a = op(&g, "Conv", (int[]){ x, W(&g, "c1", 3, 2, 3, 3), W(&g, "cb", 3) }, 3, conv, 2);
	const int mean = W(&g, "mean", 3), var = W(&g, "var", 3);
	for (int i = 0; i < 3; i++)
		((double *)g.tensor[var].data)[i] = 1 + i;
	const int n = op(&g, "BatchNormalization",
			 (int[]){ a, W(&g, "scale", 3), W(&g, "shift", 3), mean, var }, 5, &training, 1);
	const int r = OP(&g, "Relu", n);
	const int b = op(&g, "Conv", (int[]){ r, W(&g, "c2", 3, 3, 3, 3) }, 2, conv, 2);
	const int s = OP(&g, "Add", b, r);
	const int m = op(&g, "MaxPool", &s, 1, pool, 2);
	const int v = op(&g, "AveragePool", &m, 1, pool, 1);
	const int f = OP(&g, "Flatten", v);
	const struct dlb_attr tb = { .name = "transB", .type = DLB_ATTR_INT, .i = 1 };
	check(&g, op(&g, "Gemm", (int[]){ f, W(&g, "fc", classes, 12), W(&g, "fb", classes) }, 3, &tb, 1), 4,
	      loss);
}

/* -- PyTorch -- */

/* Images [0, n) of Fashion-MNIST as in the truth files: byte / 255, padded and copied to the input's
 * shape. */
static bool load_images(const char *folder, struct test_run *r)
{
	const struct dlb_graph *g = r->g;
	const struct dlb_desc d = dlb_tensor_desc(&g->tensor[g->input[0]], r->n);
	const int64_t c = d.dim[1], side = d.dim[2], pad = (side - 28) / 2;
	unsigned char image[784], label;
	char path[300];

	snprintf(path, sizeof path, "gzip -dc %s/train-images-idx3-ubyte.gz 2>/dev/null", folder);
	FILE *f = popen(path, "r");
	bool ok = f && fread(image, 1, 16, f) == 16;
	float *x = r->value[g->input[0]];
	for (int64_t i = 0; i < r->n && ok; i++) {
		ok = fread(image, 1, 784, f) == 784;
		for (int64_t k = 0; k < c; k++)
			for (int p = 0; p < 784 && ok; p++)
				x[((i * c + k) * side + p / 28 + pad) * side + p % 28 +
				  pad] = (float)image[p] / 255.0f;
	}
	if (f)
		pclose(f);
	snprintf(path, sizeof path, "gzip -dc %s/train-labels-idx1-ubyte.gz 2>/dev/null", folder);
	f = ok ? popen(path, "r") : NULL;
	ok = f && fread(image, 1, 8, f) == 8;
	for (int64_t i = 0; i < r->n && ok; i++) {
		ok = fread(&label, 1, 1, f) == 1;
		((int64_t *)r->value[g->label])[i] = label;
	}
	if (f)
		pclose(f);
	return ok;
}

static double l2(const struct test_run *r, int t)
{
	const struct dlb_desc d = dlb_tensor_desc(&r->g->tensor[t], r->n);
	double s = 0;
	for (int64_t i = 0; i < dlb_desc_count(&d); i++) {
		const double v = dlb_value_real(r->value[t], d.dtype, i);
		s += v * v;
	}
	return sqrt(s);
}

/* First loss within 1e-5, l2 norm of each gradient and its first values within 1e-2. */
static void compare_truth(const struct test_run *r, const json_t *truth, const char *name)
{
	const struct dlb_graph *g = r->g;
	const json_t *grads = json_object_get(truth, "step0_grad");
	const double loss = json_number_value(json_array_get(json_object_get(truth, "losses"), 0));
	const double is = dlb_value_real(r->value[g->loss], g->tensor[g->loss].dtype, 0);
	const char *key;
	json_t *v;

	if (fabs(is - loss) > 1e-5 * loss) {
		fprintf(stderr, "%s: loss %.9g, PyTorch's %.9g\n", name, is, loss);
		abort();
	}
	json_object_foreach((json_t *)grads, key, v) {
		const int w = test_tensor(g, key);
		assert(IS(w, >=, 0) && IS(g->tensor[w].kind, ==, DLB_T_WEIGHT));
		const int grad = gradient_of(g, w);
		const double norm = json_number_value(json_object_get(v, "l2")), mine = l2(r, grad);
		const json_t *first = json_object_get(v, "first");
		bool ok = fabs(mine - norm) <= 1e-2 * norm + 1e-9;
		for (size_t i = 0; i < json_array_size(first); i++)
			ok &= fabs(dlb_value_real(r->value[grad], g->tensor[grad].dtype, (int64_t)i) -
				   json_number_value(json_array_get(first, i))) <= 1e-2 * norm;
		if (!ok) {
			fprintf(stderr, "%s: gradient of %s has norm %.9g, PyTorch's %.9g\n", name, key, mine,
				norm);
			abort();
		}
		n_checked++;
	}
}

static bool first_step(const char *dir, const char *truth_file, bool wide)
{
	struct dlb_graph g;
	struct dlb_error err = { .what = "" };
	struct test_run r;
	char path[700];

	snprintf(path, sizeof path, "%s/onnx/truth/%s", dir, truth_file);
	json_t *truth = json_load_file(path, 0, NULL);
	assert(truth);
	snprintf(path, sizeof path, "%s/onnx/models/%s", dir,
		 json_string_value(json_object_get(truth, "onnx")));
	dlb_graph_init(&g);
	if (dlb_onnx_read(path, &g, &err))
		test_die(&err);
	g.training = true;
	if (wide)
		dlb_graph_widen(&g);
	const int64_t n = json_integer_value(json_object_get(truth, "batch"));
	if (dlb_graph_fold(&g, n, &be, &err) || dlb_graph_find_parameters(&g, &err) ||
	    dlb_graph_attach_loss(&g, NULL, &err) || dlb_graph_choose_layout(&g, &err) ||
	    dlb_graph_differentiate(&g, &err) || dlb_graph_check(&g, &err))
		test_die(&err);
	test_run_init(&r, &g, &be, n);
	bool ok = false;
	if (!wide) {
		ok = load_images("/usr/share/datasets/fashion-mnist", &r);
	} else {	/* read as floats, widened */
		struct test_run narrow = r;
		void *x = r.value[g.input[0]];
		const int64_t count = (int64_t)(test_bytes(&r, g.input[0]) / sizeof(double));
		float *f = calloc((size_t)count, sizeof *f);
		narrow.value[g.input[0]] = f;
		ok = load_images("/usr/share/datasets/fashion-mnist", &narrow);
		for (int64_t i = 0; i < count; i++)
			((double *)x)[i] = f[i];
		r.value[g.input[0]] = x;
		free(f);
	}
	if (ok) {
		test_run_phase(&r, DLB_BACKWARD);
		compare_truth(&r, truth, truth_file);
	}
	test_run_release(&r);
	dlb_graph_release(&g);
	json_decref(truth);
	return ok;
}

int main(void)
{
	const char *dir = test_data();
	bool torch = dir != NULL;

	test_backend(&be);
	fan_out();
	shared();
	same_gradient();
	repeated_for_samples();
	convolution(NULL, 3);
	convolution("bce", 2);
	convolution("mse", 2);
	convolution("sum", 2);
	torch = torch && first_step(dir, "mlp_fashion_e1.sgd.json", false) &&
		first_step(dir, "lenet5_fashion_e1.sgd.json", false) &&
		first_step(dir, "lenet5_fashion_e1.sgd.json", true) &&
		first_step(dir, "resnet20_fashion32.momentum.json", false);
	be.ops->close(&be);
	printf("autodiff: %d gradients, seed %llu%s\n", n_checked, (unsigned long long)seed,
	       torch ? ", PyTorch's first steps too" :
		       " (skip: PyTorch's first steps, no shared data or no Fashion-MNIST)");
	return 0;
}
