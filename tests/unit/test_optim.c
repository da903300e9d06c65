/* Optimizers: the table, .run.optimizer, and the fused kernels against PyTorch's formulas in double, and (when the
 * shared data are there: DLB_TEST_DATA, else ../shared/data) against vectors made elsewhere. */
#include "kernels.h"

#include "optim/optim.h"

#define N 1003
#define STEPS 5

/* torch.optim, element by element in double. */
static void reference(int rule, const double *h, double lr, int step, double g, double *w, double *s0, double *s1)
{
	const bool decoupled = rule == DLB_RULE_ADAMW || rule == DLB_RULE_ADABELIEF;
	double d = decoupled ? 0 : h[DLB_HYPER_DECAY];

	if (decoupled)
		*w *= 1 - lr * h[DLB_HYPER_DECAY];
	g += d * *w;
	if (rule == DLB_RULE_SGD) {
		*w -= lr * g;
	} else if (rule == DLB_RULE_MOMENTUM || rule == DLB_RULE_NESTEROV) {
		*s0 = step == 1 ? g : h[DLB_HYPER_MOMENTUM] * *s0 + g;
		*w -= lr * (rule == DLB_RULE_NESTEROV ? g + h[DLB_HYPER_MOMENTUM] * *s0 : *s0);
	} else if (rule == DLB_RULE_ADABELIEF) {
		*s0 = h[DLB_HYPER_BETA1] * *s0 + (1 - h[DLB_HYPER_BETA1]) * g;
		*s1 = h[DLB_HYPER_BETA2] * *s1 + (1 - h[DLB_HYPER_BETA2]) * (g - *s0) * (g - *s0) + h[DLB_HYPER_EPS];
		*w -= lr / (1 - pow(h[DLB_HYPER_BETA1], step)) * *s0 /
			(sqrt(*s1) / sqrt(1 - pow(h[DLB_HYPER_BETA2], step)) + h[DLB_HYPER_EPS]);
	} else {
		*s0 = h[DLB_HYPER_BETA1] * *s0 + (1 - h[DLB_HYPER_BETA1]) * g;
		*s1 = h[DLB_HYPER_BETA2] * *s1 + (1 - h[DLB_HYPER_BETA2]) * g * g;
		*w -= lr / (1 - pow(h[DLB_HYPER_BETA1], step)) * *s0 /
			(sqrt(*s1) / sqrt(1 - pow(h[DLB_HYPER_BETA2], step)) + h[DLB_HYPER_EPS]);
	}
}

static void rules(void)
{
	for (int rule = 0; rule < DLB_N_RULES; rule++)
		for (int t = DLB_F32; t <= DLB_F64; t++)
			for (int decay = 0; decay < 2; decay++)
				for (int shift = 0; shift < 2; shift++) {
					struct dlb_update_desc d = { .dtype = t, .count = N, .rule = rule };
					static double w[N], s0[N], s1[N];
					static char store[4][(N + 1) * sizeof(double)];
					size_t b = dlb_dtype_bytes(t);
					void *in[] = { store[0] }, *out[] = { store[1], store[2], store[3] };
					struct dlb_kernel *k;

					for (int i = 0; i < 3; i++)
						out[i] = store[i + 1] + (size_t)shift * b;
					memcpy(d.hyper, dlb_optimizers[rule].hyper, sizeof dlb_optimizers[rule].hyper);
					d.hyper[DLB_HYPER_DECAY] = decay * 0.1;
					memset(s0, 0, sizeof s0);
					memset(s1, 0, sizeof s1);
					memset(store, 0, sizeof store);
					for (int i = 0; i < N; i++) {
						w[i] = rounded(t, 2 * dlb_rng_uniform(&rng) - 1);
						dlb_value_set(out[0], t, i, w[i]);
					}
					MUST(be.ops->update(&be, &d, &k, &err_));
					for (int step = 1; step <= STEPS; step++) {
						double rate = step == 3 ? 0.05 : 0, lr = rate > 0 ? rate : d.hyper[DLB_HYPER_LR];

						for (int i = 0; i < N; i++) {
							double g = rounded(t, 2 * dlb_rng_uniform(&rng) - 1);

							dlb_value_set(in[0], t, i, g);
							reference(rule, d.hyper, lr, step, g, &w[i], &s0[i], &s1[i]);
						}
						k->run(k, &(struct dlb_run){ .in = in, .out = out, .step = (uint64_t)step, .rate = rate });
					}
					for (int i = 0; i < N; i++) {
						double tol = t == DLB_F32 ? 2e-6 : 1e-14;

						assert(fabs(dlb_value_real(out[0], t, i) - w[i]) < tol * (1 + fabs(w[i])));
						assert(dlb_optimizers[rule].n_state < 1 || fabs(dlb_value_real(out[1], t, i) - s0[i]) < tol * 4);
						assert(dlb_optimizers[rule].n_state < 2 || fabs(dlb_value_real(out[2], t, i) - s1[i]) < tol);
					}
					dlb_kernel_free(k);
					n_checks++;
				}
}

static void table(void)
{
	struct dlb_kernel *k;
	struct dlb_error err;

	for (int i = 0; i < DLB_N_RULES; i++) {
		assert(dlb_optimizers[i].name && dlb_optimizers[i].summary && dlb_optimizer_find(dlb_optimizers[i].name) == i);
		for (int s = 0; s < dlb_optimizers[i].n_state; s++)
			assert(dlb_optimizers[i].state_name[s]);
	}
	assert(!dlb_optimizers[DLB_N_RULES].name && dlb_optimizer_find("sgdm") == -1);
	assert(be.ops->update(&be, &(struct dlb_update_desc){ .rule = DLB_N_RULES }, &k, &err) == -1);
}

static int read_from(const char *json, struct dlb_optimizer_choice *o, struct dlb_error *err)
{
	struct dlb_doc d;
	char text[300];
	int rc;

	snprintf(text, sizeof text, "{\"dlb\":\"1.0\",\"run\":{%s}}", json);
	MUST(dlb_doc_parse(&d, text, strlen(text), "t.json", &err_));
	rc = dlb_optimizer_read(&d, o, err);
	dlb_doc_release(&d);
	return rc;
}

static void documents(void)
{
	struct dlb_optimizer_choice o = { .rule = 77 };
	struct dlb_error e;

	assert(read_from("", &o, &e) == 0 && o.rule == DLB_RULE_SGD && o.hyper[DLB_HYPER_LR] == 0.01);
	assert(read_from("\"optimizer\":{\"name\":\"adamw\",\"lr\":0.5,\"weight_decay\":0.25}", &o, &e) == 0);
	assert(o.rule == DLB_RULE_ADAMW && o.hyper[DLB_HYPER_LR] == 0.5 && o.hyper[DLB_HYPER_DECAY] == 0.25);
	assert(o.hyper[DLB_HYPER_BETA1] == 0.9 && o.hyper[DLB_HYPER_BETA2] == 0.999 && o.hyper[DLB_HYPER_EPS] == 1e-8);
	assert(read_from("\"optimizer\":{\"name\":\"adma\"}", &o, &e) == -1);
	assert(strstr(e.where, "/run/optimizer/name") && strstr(e.what, "'adma'") && strstr(e.hint, "'adam'"));
	assert(o.rule == DLB_RULE_ADAMW);		/* outputs stay as they were */
	assert(read_from("\"optimizer\":{\"name\":\"adam\",\"beta1\":1}", &o, &e) == -1);
	assert(read_from("\"optimizer\":{\"name\":\"adam\",\"lr\":-1}", &o, &e) == -1);
	assert(read_from("\"optimizer\":{\"name\":\"adam\",\"beta\":1}", &o, &e) == -1);
	assert(read_from("\"optimizer\":{\"name\":3}", &o, &e) == -1);
	assert(read_from("\"optimizer\":[]", &o, &e) == -1);
	n_checks += 8;
}

/* Adam on one worker, f64 and f32, against the shared vectors: false when they are not there. */
static bool vectors(void)
{
	const char *data = getenv("DLB_TEST_DATA");
	char *path = dlb_xprintf("%s/vectors/optimizers.json", data ? data : "../shared/data");
	json_t *root = json_load_file(path, 0, NULL), *grads, *want, *hyper;
	size_t n;

	free(path);
	if (!root)
		return false;
	grads = json_object_get(root, "gradients");
	want = json_object_get(json_object_get(root, "cases"), "adam_1worker");
	hyper = json_object_get(root, "hyper");
	n = json_array_size(json_object_get(root, "theta0"));
	assert(n && n < N && json_array_size(want));
	for (int t = DLB_F32; t <= DLB_F64; t++) {
		struct dlb_update_desc d = { .dtype = t, .count = (int64_t)n, .rule = DLB_RULE_ADAM };
		double w[N], g[N] = { 0 }, m[N] = { 0 }, v[N] = { 0 };
		void *in[] = { g }, *out[] = { w, m, v };
		struct dlb_kernel *k;

		d.hyper[DLB_HYPER_LR] = json_number_value(json_object_get(hyper, "lr"));
		d.hyper[DLB_HYPER_BETA1] = json_number_value(json_object_get(hyper, "beta1"));
		d.hyper[DLB_HYPER_BETA2] = json_number_value(json_object_get(hyper, "beta2"));
		d.hyper[DLB_HYPER_EPS] = json_number_value(json_object_get(hyper, "eps"));
		for (size_t i = 0; i < n; i++)
			dlb_value_set(w, t, (int64_t)i, json_number_value(json_array_get(json_object_get(root, "theta0"), i)));
		MUST(be.ops->update(&be, &d, &k, &err_));
		for (size_t step = 0; step < json_array_size(want); step++) {
			for (size_t i = 0; i < n; i++)
				dlb_value_set(g, t, (int64_t)i, json_number_value(json_array_get(json_array_get(json_array_get(grads, step), 0), i)));
			k->run(k, &(struct dlb_run){ .in = in, .out = out, .step = step + 1 });
			for (size_t i = 0; i < n; i++) {
				double x = json_number_value(json_array_get(json_object_get(json_array_get(want, step), "theta"), i));
				double got = dlb_value_real(w, t, (int64_t)i);

				assert(fabs(got - x) <= (t == DLB_F32 ? 2e-5 * fabs(x) + 1e-7 : 1e-12 * (1 + fabs(x))));
			}
			n_checks++;
		}
		dlb_kernel_free(k);
	}
	json_decref(root);
	return true;
}

int main(void)
{
	struct dlb_error err;
	bool shared;

	dlb_rng_init(&rng, 1);
	if (dlb_backend_find("cpu")->open(0, 1, &be, &err)) {
		dlb_error_print(stderr, "test_optim", -1, &err);
		return 1;
	}
	table();
	rules();
	documents();
	shared = vectors();
	be.ops->close(&be);
	printf("%ld checks of optimizers%s\n", n_checks, shared ? ", shared vectors included" : "; skipped the shared vectors: not found");
	return 0;
}
