/* onnx-cases: runs folders of test cases in ONNX's layout against dlb's operators on the cpu back end.
 *
 *     onnx-cases [--atol X] [--root DIR] [--list FILE] [DIR...]
 *
 * A case is a folder with model.onnx and test_data_set_N/{input_i,output_i}.pb; DIR is a case or a folder of
 * cases; FILE has one case per line, below --root. A data set may also have cotangent_0.pb with
 * grad_input_i.pb and grad_param_NAME.pb: the gradients of sum(output 0 * cotangent), made by autodiff; and
 * buffer_after_NAME.pb, a buffer after one step, by ONNX's definition. stdout has one line per case, PASS,
 * FAIL or UNSUPPORTED and its name, and last a line with the counts; stderr has the reasons. Tolerance: rtol
 * 1e-3, atol 1e-5 with a cotangent, else 1e-7 (or X, for whole networks); bf16 has an rtol of 2^-6, two units
 * in its last place, as in ONNX's own runner (onnx/backend/test/runner, assert_similar_outputs). Status 0: no
 * case failed.
 *
 * Models run op by op, with shapes inferred from the actual inputs, so shapes may depend on values. */
#include <assert.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "graph/order.h"
#include "graph/passes.h"
#include "model/onnx.h"
#include "machine.h"

enum verdict { PASS, FAIL, UNSUPPORTED, N_VERDICTS };
static const char *const verdict_name[] = { "PASS", "FAIL", "UNSUPPORTED" };

/* -- comparing -- */

static int compare(const char *what, const struct value *got, const struct value *want, double rtol,
		   double atol, struct dlb_error *err)
{
	char a[128], b[128];

	if (!got->data)
		return dlb_fail(err, what, "not computed");
	if (want->d.dtype == DLB_BF16 && rtol < 0x1p-6)
		rtol = 0x1p-6;
	if (got->d.dtype != want->d.dtype || !dlb_desc_same_shape(&got->d, &want->d))
		return dlb_fail(err, what, "%s, should be %s", dlb_desc_str(&got->d, a, sizeof a),
				dlb_desc_str(&want->d, b, sizeof b));
	for (int64_t i = 0, n = dlb_desc_count(&want->d); i < n; i++) {
		double x = dlb_value_real(got->data, got->d.dtype, i),
		       y = dlb_value_real(want->data, want->d.dtype, i);

		if (x == y || (isnan(x) && isnan(y)))
			continue;
		if (!(fabs(x - y) <= atol + rtol * fabs(y)))
			return dlb_fail(err, what, "element %lld of %lld is %.9g, should be %.9g",
					(long long)i, (long long)n, x, y);
	}
	return 0;
}

/* Returns 1 if the file does not exist. */
static int read_value(const char *dir, const char *file, char name[128], struct value *v,
		      struct dlb_error *err)
{
	char *path = dlb_xprintf("%s/%s", dir, file);
	struct stat st;
	int rc = stat(path, &st) ? 1 : dlb_onnx_read_tensor(path, name, &v->d, &v->data, err);

	free(path);
	return rc;
}

static int read_numbered(const char *dir, const char *prefix, int i, char name[128], struct value *v,
			 struct dlb_error *err)
{
	char file[64];

	snprintf(file, sizeof file, "%s_%d.pb", prefix, i);
	*v = (struct value){ 0 };
	name[0] = 0;
	return read_value(dir, file, name, v, err);
}

static int find_tensor(const struct dlb_graph *g, const char *name)
{
	for (int i = 0; i < g->n_tensors; i++)
		if (!strcmp(g->tensor[i].name, name))
			return i;
	return -1;
}

/* -- one data set -- */

/* Finds the model's input for input i of the data: by name if the model has it, else by position. */
static int input_of(const struct dlb_graph *g, const char *name, int i)
{
	for (int j = 0; j < g->n_inputs; j++)
		if (name[0] && !strcmp(g->tensor[g->input[j]].name, name))
			return g->input[j];
	return i < g->n_inputs ? g->input[i] : -1;
}

static int load_inputs(struct machine *m, const char *dir, struct dlb_error *err)
{
	struct value v;
	char name[128];
	int rc = 0;

	for (int i = 0; !(rc = read_numbered(dir, "input", i, name, &v, err)); i++) {
		int t = input_of(&m->g, name, i);

		if (t >= 0)
			set_value(m, t, &v.d, v.data);
		free(v.data);
	}
	return rc < 0 ? -1 : 0;
}

/* Cases whose stored outputs contradict their node, with the tolerance that ONNX uses for them: the data of
 * test_adam_multiple were made with epsilon 1e-2, but the node has the default epsilon, 1e-6. */
static double rtol_of(const char *dir)
{
	return strstr(dir, "/test_adam_multiple/") ? 1e-2 : 1e-3;
}

static int check_outputs(struct machine *m, const char *dir, double atol, struct dlb_error *err)
{
	struct value v;
	char name[128], what[160];
	int rc = 0, n = 0;

	for (int i = 0; !rc && !(rc = read_numbered(dir, "output", i, name, &v, err)); i++, n++) {
		snprintf(what, sizeof what, "output %d", i);
		rc = i < m->g.n_outputs ? compare(what, &m->v[m->g.output[i]], &v, rtol_of(dir), atol, err)
			: dlb_fail(err, what, "the model has only %d", m->g.n_outputs);
		free(v.data);
	}
	if (rc > 0 && !n)
		return dlb_fail(err, dir, "no output to compare with");
	return rc < 0 ? -1 : 0;
}

/* A buffer after one training step by ONNX's definition of BatchNormalization, with the batch's biased
 * variance: new = old momentum + batch (1 - momentum). (PyTorch's variance is unbiased, and its exporter
 * stores the buffer after the step; so only the buffer's name is used of the file.) False: no training vertex
 * reads tensor t. */
static bool expected_buffer(const struct machine *m, int t, struct value *v)
{
	for (int i = 0; i < m->g.n_ops; i++) {
		const struct dlb_op *o = &m->g.op[i];
		const struct dlb_tensor *was = &m->g.tensor[t];
		const struct value *x;
		double keep;

		if (strcmp(o->type, "BatchNormalization") || o->n_in < 5 || (o->in[3] != t && o->in[4] != t))
			continue;
		x = &m->v[o->in[0]];
		keep = dlb_attr_real(o->attr, o->n_attr, "momentum", 0.9);
		for (int64_t c = 0, channels = x->d.dim[1]; c < channels; c++) {
			int64_t inner = 1, n = 0;
			double sum = 0, square = 0, mean;

			for (int k = 2; k < x->d.n_dims; k++)
				inner *= x->d.dim[k];
			for (int64_t s = 0; s < x->d.dim[0]; s++)
				for (int64_t j = 0; j < inner; j++, n++)
					sum += dlb_value_real(x->data, x->d.dtype,
							      (s * channels + c) * inner + j);
			mean = sum / (double)n;
			for (int64_t s = 0; s < x->d.dim[0]; s++)
				for (int64_t j = 0; j < inner; j++)
					square += pow(dlb_value_real(x->data, x->d.dtype,
								     (s * channels + c) * inner + j) -
							      mean,
						      2);
			dlb_value_set(v->data, v->d.dtype, c,
				      keep * dlb_value_real(was->data, was->dtype, c) +
					      (1 - keep) * (o->in[3] == t ? mean : square / (double)n));
		}
		return true;
	}
	return false;
}

static int check_buffers(struct machine *m, const char *dir, struct dlb_error *err)
{
	DIR *d = opendir(dir);
	const char *prefix = "buffer_after_";
	struct dirent *e;
	int rc = 0;

	while (d && !rc && (e = readdir(d))) {
		char tensor[300], ignored[128];
		struct value v = { 0 };
		int t;

		if (strncmp(e->d_name, prefix, strlen(prefix)))
			continue;
		snprintf(tensor, sizeof tensor, "%s", e->d_name + strlen(prefix));
		tensor[strlen(tensor) - 3] = 0;		/* .pb */
		t = find_tensor(&m->g, tensor);
		if (t < 0) {
			rc = dlb_fail(err, e->d_name, "the model has no tensor '%s'", tensor);
			break;
		}
		rc = read_value(dir, e->d_name, ignored, &v, err);
		if (rc)
			break;
		rc = !expected_buffer(m, t, &v) ?
			     dlb_fail(err, e->d_name, "no BatchNormalization reads '%s'", tensor) :
			     compare(e->d_name, &m->v[t], &v, 1e-3, 1e-5, err);
		free(v.data);
	}
	if (d)
		closedir(d);
	return rc;
}

static int open_case(struct machine *m, const char *model, const char *dir, struct dlb_error *err)
{
	if (dlb_onnx_read(model, &m->g, err)) {
		m->unsupported = true;
		return -1;
	}
	if (dlb_graph_sort(&m->g, err))
		return -1;
	machine_values(m);
	return load_inputs(m, dir, err);
}

/* Folds branches, loops and sequences, at the shapes of the data and with the values of inputs that may
 * decide them: integers, bools and scalars. */
static void fix_input(struct machine *m, int id, bool value_too)
{
	struct dlb_tensor *t = &m->g.tensor[id];
	const struct value *v = &m->v[id];

	t->dtype = v->d.dtype;
	t->n_dims = v->d.n_dims;
	for (int j = 0; j < t->n_dims; j++)
		t->dim[j] = (struct dlb_dim){ 0, v->d.dim[j] };
	if (!value_too || !v->data)
		return;
	t->data = memcpy(dlb_arena_alloc(&m->g.arena, dlb_desc_bytes(&v->d) + 1), v->data,
			 dlb_desc_bytes(&v->d));
	t->kind = DLB_T_CONSTANT;
}

static void new_values(struct machine *m)
{
	for (int i = 0; i < m->n; i++)
		free(m->v[i].data);
	m->n = 0;
	machine_values(m);
}

static bool has_structure(const struct machine *m)
{
	for (int i = 0; i < m->g.n_ops; i++)
		if (dlb_graph_is_structure(m->g.op[i].type, m->g.op[i].domain))
			return true;
	return false;
}

static int resolve(struct machine *m, const char *dir, struct dlb_error *err)
{
	if (!has_structure(m))
		return 0;
	for (int i = 0; i < m->g.n_inputs; i++) {
		const struct dlb_desc d = m->v[m->g.input[i]].d;

		fix_input(m, m->g.input[i], !dlb_dtype_is_float(d.dtype) || d.n_dims == 0);
	}
	if (dlb_graph_fold(&m->g, -1, &m->be, err))
		return -1;
	new_values(m);
	return load_inputs(m, dir, err);
}

static int run_forward(struct machine *m, const char *model, const char *dir, double atol,
		       struct dlb_error *err)
{
	int rc = open_case(m, model, dir, err) || resolve(m, dir, err) || run_all(m, err) ||
				 check_outputs(m, dir, atol, err) || check_buffers(m, dir, err) ?
			 -1 :
			 0;

	machine_reset(m);
	return rc;
}

/* -- gradients -- */

struct wanted { int n, cap; int *tensor, *grad; struct value *value; char (*file)[256]; };

static void want(struct wanted *w, int t, const char *file, struct value v)
{
	int cap = w->cap, cap2 = w->cap, cap3 = w->cap;

	DLB_GROW(w->tensor, w->n, cap);
	DLB_GROW(w->grad, w->n, cap2);
	DLB_GROW(w->value, w->n, cap3);
	DLB_GROW(w->file, w->n, w->cap);
	w->tensor[w->n] = t;
	w->value[w->n] = v;
	snprintf(w->file[w->n++], sizeof *w->file, "%s", file);
}

static int read_wanted(struct machine *m, const char *dir, struct wanted *w, struct dlb_error *err)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int rc = 0;

	while (d && !rc && (e = readdir(d))) {
		const char *in = "grad_input_", *param = "grad_param_";
		char name[300] = "", ignored[128];
		struct value v = { 0 };
		int t = -1;

		if (!strncmp(e->d_name, in, strlen(in))) {
			t = input_of(&m->g, "", atoi(e->d_name + strlen(in)));
		} else if (!strncmp(e->d_name, param, strlen(param))) {
			snprintf(name, sizeof name, "%s", e->d_name + strlen(param));
			name[strlen(name) - 3] = 0;
			t = find_tensor(&m->g, name);
		} else {
			continue;
		}
		rc = t < 0 ? dlb_fail(err, e->d_name, "the model has no such tensor") :
			     read_value(dir, e->d_name, ignored, &v, err);
		if (!rc)
			want(w, t, e->d_name, v);
	}
	if (d)
		closedir(d);
	return rc;
}

/* Inputs without a gradient (labels, shapes, masks) become constants, because gradient functions may need
 * their values. */
static void fix_inputs(struct machine *m, const struct wanted *w)
{
	for (int i = 0; i < m->g.n_inputs; i++) {
		int id = m->g.input[i];
		bool wanted = dlb_dtype_is_float(m->v[id].d.dtype);

		for (int j = 0; j < w->n; j++)
			wanted = wanted || w->tensor[j] == id;
		fix_input(m, id, !wanted);
	}
}

/* Ids change in rewrites, names do not. */
static int by_name(struct machine *m, const char **name, struct wanted *w, struct dlb_error *err)
{
	for (int i = 0; i < w->n; i++) {
		w->tensor[i] = find_tensor(&m->g, name[i]);
		if (w->tensor[i] < 0)
			return dlb_fail(err, w->file[i], "tensor '%s' is gone after folding", name[i]);
	}
	return 0;
}

static int differentiate(struct machine *m, const char *dir, struct wanted *w, struct dlb_error *err)
{
	const char **name = dlb_xcalloc((size_t)w->n + 1, sizeof *name);
	struct value cotangent = { 0 };
	struct dlb_tensor *t;
	char ignored[128];
	int rc, seed;

	for (int i = 0; i < w->n; i++)
		name[i] = dlb_arena_strdup(&m->g.arena, m->g.tensor[w->tensor[i]].name);
	rc = dlb_graph_fold(&m->g, -1, &m->be, err) || dlb_graph_rewrite(&m->g, err) ||
	     by_name(m, name, w, err) || read_numbered(dir, "cotangent", 0, ignored, &cotangent, err);
	free(name);
	if (rc)
		return -1;
	seed = dlb_graph_add_tensor(&m->g, "cotangent", DLB_T_SEED);
	t = &m->g.tensor[seed];
	t->dtype = cotangent.d.dtype;
	t->n_dims = cotangent.d.n_dims;
	for (int i = 0; i < t->n_dims; i++)
		t->dim[i] = (struct dlb_dim){ 0, cotangent.d.dim[i] };
	rc = dlb_graph_differentiate_from(&m->g, m->g.output[0], seed, w->tensor, w->n, w->grad, err);
	if (!rc) {		/* values again, because folding changed ids */
		new_values(m);
		set_value(m, seed, &cotangent.d, cotangent.data);
		rc = load_inputs(m, dir, err) || run_all(m, err) ? -1 : 0;
	}
	free(cotangent.data);
	return rc;
}

static int run_gradients(struct machine *m, const char *model, const char *dir, struct dlb_error *err)
{
	struct wanted w = { 0 };
	int rc = open_case(m, model, dir, err);

	if (!rc)
		rc = read_wanted(m, dir, &w, err);
	if (!rc) {
		fix_inputs(m, &w);
		for (int i = 0; i < m->g.n_ops && !m->unsupported; i++)
			m->unsupported = m->g.op[i].kind < 0 &&
					 !dlb_graph_is_structure(m->g.op[i].type, m->g.op[i].domain);
		rc = differentiate(m, dir, &w, err);
	}
	if (!rc)
		rc = check_outputs(m, dir, 1e-5, err) || check_buffers(m, dir, err) ? -1 : 0;
	for (int i = 0; i < w.n && !rc; i++) {
		struct value zero = { 0 };

		if (w.grad[i] < 0) {		/* no gradient: zeros */
			zero = (struct value){ .d = w.value[i].d,
					       .data = dlb_xcalloc(1, dlb_desc_bytes(&w.value[i].d) + 1) };
			rc = compare(w.file[i], &zero, &w.value[i], 1e-3, 1e-5, err);
			free(zero.data);
			continue;
		}
		rc = compare(w.file[i], &m->v[w.grad[i]], &w.value[i], 1e-3, 1e-5, err);
	}
	for (int i = 0; i < w.n; i++)
		free(w.value[i].data);
	free(w.tensor);
	free(w.grad);
	free(w.value);
	free(w.file);
	machine_reset(m);
	return rc;
}

/* -- cases -- */

static bool exists(const char *dir, const char *file)
{
	char *path = dlb_xprintf("%s/%s", dir, file);
	struct stat st;
	bool yes = !stat(path, &st);

	free(path);
	return yes;
}

static enum verdict run_case(struct dlb_backend be, double atol, const char *dir, struct dlb_error *err)
{
	char *model = dlb_xprintf("%s/model.onnx", dir);
	struct machine m = { .be = be };
	int n = 0, rc = 0;

	for (;; n++) {
		char *set = dlb_xprintf("%s/test_data_set_%d", dir, n);
		bool more = exists(set, "."), gradients = exists(set, "cotangent_0.pb");

		if (more) {
			rc = run_forward(&m, model, set, gradients ? 1e-5 : atol, err);
			if (!rc && gradients)
				rc = run_gradients(&m, model, set, err);
		}
		free(set);
		if (!more || rc)
			break;
	}
	if (!rc && !n)
		rc = dlb_fail(err, dir, "no test_data_set_0");
	free(model);
	return !rc ? PASS : m.unsupported ? UNSUPPORTED : FAIL;
}

struct tally { struct dlb_backend be; double atol; int n[N_VERDICTS]; };

static void report(struct tally *t, const char *dir, const char *name)
{
	struct dlb_error err = { 0 };
	enum verdict v = exists(dir, "model.onnx") ? run_case(t->be, t->atol, dir, &err) : FAIL;

	if (v == FAIL && !err.what[0])
		dlb_fail(&err, NULL, "no model.onnx in '%s'", dir);
	printf("%s %s\n", verdict_name[v], name);
	fflush(stdout);
	if (v != PASS)
		dlb_error_print(stderr, name, -1, &err);
	t->n[v]++;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Runs one case, or all cases below a folder in the order of their names; -1: neither. */
static int report_dir(struct tally *t, const char *dir)
{
	char **name = NULL;
	int n = 0, cap = 0, found = 0;
	const char *last = strrchr(dir, '/');
	struct dirent *e;
	DIR *d;

	if (exists(dir, "model.onnx")) {
		report(t, dir, last && last[1] ? last + 1 : dir);
		return 0;
	}
	if (!(d = opendir(dir)))
		return -1;
	while ((e = readdir(d))) {
		DLB_GROW(name, n, cap);
		name[n++] = dlb_xstrdup(e->d_name);
	}
	closedir(d);
	qsort(name, (size_t)n, sizeof *name, compare_names);
	for (int i = 0; i < n; i++) {
		char *path = dlb_xprintf("%s/%s", dir, name[i]);

		if (name[i][0] != '.' && exists(path, "model.onnx")) {
			report(t, path, name[i]);
			found++;
		}
		free(path);
		free(name[i]);
	}
	free(name);
	return found ? 0 : -1;
}

static int report_list(struct tally *t, const char *list, const char *root)
{
	FILE *f = fopen(list, "r");
	char line[512];

	if (!f)
		return -1;
	while (fgets(line, sizeof line, f)) {
		char *path;

		line[strcspn(line, "\r\n")] = 0;
		if (!line[0] || line[0] == '#')
			continue;
		path = dlb_xprintf("%s/%s", root, line);
		report(t, path, line);
		free(path);
	}
	fclose(f);
	return 0;
}

int main(int argc, char **argv)
{
	const char *root = ".";
	const char *name = getenv("DLB_TEST_BACKEND");
	struct dlb_error err = { 0 };
	struct tally t = { .atol = 1e-7 };
	int did = 0;

	if (dlb_backend_open(name ? name : "cpu", 0, 1, &t.be, &err)) {
		dlb_error_print(stderr, "onnx-cases", -1, &err);
		return 2;
	}
	for (int i = 1; i < argc; i++) {
		int rc = 0;

		if (!strcmp(argv[i], "--root") && i + 1 < argc) {
			root = argv[++i];
			continue;
		}
		if (!strcmp(argv[i], "--atol") && i + 1 < argc) {
			t.atol = atof(argv[++i]);
			continue;
		}
		if (!strcmp(argv[i], "--list") && i + 1 < argc)
			rc = report_list(&t, argv[++i], root);
		else
			rc = report_dir(&t, argv[i]);
		if (rc) {
			fprintf(stderr, "onnx-cases: no cases in '%s'\n", argv[i]);
			return 2;
		}
		did++;
	}
	t.be.ops->close(&t.be);
	if (!did) {
		fprintf(stderr, "usage: onnx-cases [--atol X] [--root DIR] [--list FILE] [DIR...]\n");
		return 2;
	}
	printf("%d passed, %d failed, %d unsupported\n", t.n[PASS], t.n[FAIL], t.n[UNSUPPORTED]);
	return t.n[FAIL] ? 1 : 0;
}
