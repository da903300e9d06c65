/* Optimizers: the table, .run.optimizer, and the fused kernels against PyTorch's formulas in double and, if
 * the shared data are there (DLB_TEST_DATA, else ../shared/data), against vectors of independent
 * implementations. */
#include "check.h"
#include "kernels.h"

#include "op/op.h"
#include "optim/optim.h"

#define N 1003
#define STEPS 5

/* torch.optim, element by element in double. */
static void reference(int rule, const double *h, double lr, int step, double g, double *w, double *s0,
		      double *s1, double *s2)
{
	const bool decoupled = rule == DLB_RULE_ADAMW || rule == DLB_RULE_ADABELIEF ||
			       rule == DLB_RULE_MAX_ADABELIEF;
	const double corrected = lr / (1 - pow(h[DLB_HYPER_BETA1], step)),
		     root = sqrt(1 - pow(h[DLB_HYPER_BETA2], step));
	double d = decoupled ? 0 : h[DLB_HYPER_DECAY];

	if (decoupled)
		*w *= 1 - lr * h[DLB_HYPER_DECAY];
	g += d * *w;
	switch (rule) {
	case DLB_RULE_SGD:
	case DLB_RULE_KFAC:
		*w -= lr * g;
		break;
	case DLB_RULE_MOMENTUM:
	case DLB_RULE_NESTEROV:
		*s0 = step == 1 ? g : h[DLB_HYPER_MOMENTUM] * *s0 + g;
		*w -= lr * (rule == DLB_RULE_NESTEROV ? g + h[DLB_HYPER_MOMENTUM] * *s0 : *s0);
		break;
	case DLB_RULE_ADAGRAD:
		*s0 += g * g;
		*w -= lr * g / (sqrt(*s0) + h[DLB_HYPER_EPS]);
		break;
	case DLB_RULE_RMSPROP:
		*s0 = h[DLB_HYPER_ALPHA] * *s0 + (1 - h[DLB_HYPER_ALPHA]) * g * g;
		*w -= lr * g / (sqrt(*s0) + h[DLB_HYPER_EPS]);
		break;
	case DLB_RULE_ADABELIEF:
	case DLB_RULE_MAX_ADABELIEF:
		*s0 = h[DLB_HYPER_BETA1] * *s0 + (1 - h[DLB_HYPER_BETA1]) * g;
		*s1 = h[DLB_HYPER_BETA2] * *s1 + (1 - h[DLB_HYPER_BETA2]) * (g - *s0) * (g - *s0);
		if (rule == DLB_RULE_ADABELIEF)
			*s1 += h[DLB_HYPER_EPS];
		*s2 = fmax(*s2, *s1 / (root * root));
		*w -= corrected * *s0 /
		      ((rule == DLB_RULE_ADABELIEF ? sqrt(*s1) / root : sqrt(*s2)) + h[DLB_HYPER_EPS]);
		break;
	default:
		*s0 = h[DLB_HYPER_BETA1] * *s0 + (1 - h[DLB_HYPER_BETA1]) * g;
		*s1 = h[DLB_HYPER_BETA2] * *s1 + (1 - h[DLB_HYPER_BETA2]) * g * g;
		*w -= corrected * *s0 / (sqrt(*s1) / root + h[DLB_HYPER_EPS]);
	}
}

static void rules(void)
{
	for (int rule = 0; rule < DLB_N_RULES; rule++)
		for (int t = DLB_F32; t <= DLB_F64; t++)
			for (int decay = 0; decay < 2; decay++)
				for (int shift = 0; shift < 2; shift++) {
					struct dlb_update_desc d = { .dtype = t, .count = N, .rule = rule };
					static double w[N], s0[N], s1[N], s2[N];
					static char store[5][(N + 1) * sizeof(double)];
					size_t b = dlb_dtype_bytes(t);
					void *in[] = { store[0] },
					     *out[] = { store[1], store[2], store[3], store[4] };
					struct dlb_kernel *k;

					for (int i = 0; i < 4; i++)
						out[i] = store[i + 1] + (size_t)shift * b;
					memcpy(d.hyper, dlb_optimizers[rule].hyper,
					       sizeof dlb_optimizers[rule].hyper);
					d.hyper[DLB_HYPER_DECAY] = decay * 0.1;
					memset(s0, 0, sizeof s0);
					memset(s1, 0, sizeof s1);
					memset(s2, 0, sizeof s2);
					memset(store, 0, sizeof store);
					for (int i = 0; i < N; i++) {
						w[i] = rounded(t, 2 * dlb_rng_uniform(&rng) - 1);
						dlb_value_set(out[0], t, i, w[i]);
					}
					MUST(be.ops->update(&be, &d, &k, &err_));
					for (int step = 1; step <= STEPS; step++) {
						double rate = step == 3 ? 0.05 : 0,
						       lr = rate > 0 ? rate : d.hyper[DLB_HYPER_LR];

						for (int i = 0; i < N; i++) {
							double g = rounded(t, 2 * dlb_rng_uniform(&rng) - 1);

							dlb_value_set(in[0], t, i, g);
							reference(rule, d.hyper, lr, step, g, &w[i], &s0[i],
								  &s1[i], &s2[i]);
						}
						k->run(k, &(struct dlb_run){ .in = in,
									     .out = out,
									     .step = (uint64_t)step,
									     .rate = rate,
									     .has_rate = rate > 0 });
					}
					for (int i = 0; i < N; i++) {
						double tol = t == DLB_F32 ? 2e-6 : 1e-14;

						assert(IS(fabs(dlb_value_real(out[0], t, i) - w[i]), <,
							  tol * (1 + fabs(w[i]))));
						assert(dlb_optimizers[rule].n_state < 1 ||
						       fabs(dlb_value_real(out[1], t, i) - s0[i]) < tol * 4);
						assert(dlb_optimizers[rule].n_state < 2 ||
						       fabs(dlb_value_real(out[2], t, i) - s1[i]) < tol);
						assert(dlb_optimizers[rule].n_state < 3 ||
						       fabs(dlb_value_real(out[3], t, i) - s2[i]) < tol);
					}
					dlb_kernel_free(k);
					n_checks++;
				}
}

/* Prediction of weights some updates ahead, as in SpecTrain and XPipe: w, m and v do not change. */
static double foreseen(int rule, const double *h, double lr, int step, double distance, double w, double m,
		       double v)
{
	const bool decoupled = rule == DLB_RULE_ADAMW || rule == DLB_RULE_ADABELIEF;

	if (rule == DLB_RULE_MOMENTUM || rule == DLB_RULE_NESTEROV)
		return w - distance * lr * m;
	return w * (decoupled ? 1 - distance * lr * h[DLB_HYPER_DECAY] : 1) -
		distance * lr * (m / (1 - pow(h[DLB_HYPER_BETA1], step))) /
		(sqrt(v / (1 - pow(h[DLB_HYPER_BETA2], step))) + h[DLB_HYPER_EPS]);
}

static void predictions_of(int rule, enum dlb_dtype t, double distance, double rate)
{
	struct dlb_update_desc d = { .dtype = t, .count = N, .rule = rule, .stage = DLB_UPDATE_PREDICT };
	static char store[4][N * sizeof(double)], before[3][N * sizeof(double)];
	const bool adaptive = dlb_optimizers[rule].n_state > 1;
	void *in[] = { store[0], store[1], adaptive ? store[2] : NULL }, *out[] = { store[3] };
	const int step = 7;
	struct dlb_kernel *k;

	memcpy(d.hyper, dlb_optimizers[rule].hyper, sizeof d.hyper);
	d.hyper[DLB_HYPER_DECAY] = 0.125;
	memset(store[3], 0xff, sizeof store[3]);		/* not numbers */
	for (int i = 0; i < N; i++)
		for (int j = 0; j < 3; j++)
			dlb_value_set(store[j], t, i,
				      rounded(t,
					      j < 2 ? 2 * dlb_rng_uniform(&rng) - 1 : dlb_rng_uniform(&rng)));
	memcpy(before, store, sizeof before);
	MUST(be.ops->update(&be, &d, &k, &err_));
	k->run(k, &(struct dlb_run){ .in = in,
				     .out = out,
				     .step = step,
				     .distance = distance,
				     .rate = rate,
				     .has_rate = rate > 0 });
	assert(!memcmp(before, store, sizeof before));
	for (int i = 0; i < N; i++) {
		double w = dlb_value_real(store[0], t, i), m = dlb_value_real(store[1], t, i),
		       v = dlb_value_real(store[2], t, i);
		double want = foreseen(rule, d.hyper, rate > 0 ? rate : d.hyper[DLB_HYPER_LR], step, distance,
				       w, m, v);

		assert(IS(fabs(dlb_value_real(out[0], t, i) - want), <=,
			  (t == DLB_F32 ? 4e-6 : 1e-14) * (1 + fabs(want) + fabs(want - w))));
	}
	dlb_kernel_free(k);
	n_checks++;
}

static void predictions(void)
{
	struct dlb_error e;
	struct dlb_kernel *k;

	for (int rule = 0; rule < DLB_N_RULES; rule++) {
		const bool smooth = rule == DLB_RULE_MOMENTUM || rule == DLB_RULE_NESTEROV ||
				    rule == DLB_RULE_ADAM || rule == DLB_RULE_ADAMW ||
				    rule == DLB_RULE_ADABELIEF;

		for (int t = DLB_F32; t <= DLB_F64 && smooth; t++)
			for (int distance = 1; distance <= 8; distance *= 2)
				for (int given = 0; given < 2; given++)
					predictions_of(rule, t, distance, given * 0.05);
		assert(smooth ||
		       be.ops->update(&be,
				      &(struct dlb_update_desc){
					      .count = N, .rule = rule, .stage = DLB_UPDATE_PREDICT },
				      &k, &e) == DLB_NO_KERNEL);
		n_checks++;
	}
}

static void table(void)
{
	struct dlb_kernel *k;
	struct dlb_error err;

	for (int i = 0; i < DLB_N_RULES; i++) {
		assert(dlb_optimizers[i].name && dlb_optimizers[i].summary &&
		       IS(dlb_optimizer_find(dlb_optimizers[i].name), ==, i));
		for (int s = 0; s < dlb_optimizers[i].n_state; s++)
			assert(dlb_optimizers[i].state_name[s]);
	}
	assert(!dlb_optimizers[DLB_N_RULES].name && IS(dlb_optimizer_find("sgdm"), ==, -1));
	assert(be.ops->update(&be, &(struct dlb_update_desc){ .rule = DLB_N_RULES }, &k, &err) == -1);
	assert(be.ops->update(&be,
			      &(struct dlb_update_desc){ .rule = DLB_RULE_ADAM, .stage = DLB_UPDATE_LOCAL },
			      &k, &err) == -1);
}

static int read_from(const char *json, struct dlb_optimizer_choice *o, struct dlb_error *err)
{
	struct dlb_doc d;
	char text[400];
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

	assert(IS(read_from("", &o, &e), ==, 0) && IS(o.rule, ==, DLB_RULE_SGD) &&
	       IS(o.hyper[DLB_HYPER_LR], ==, 0.01));
	assert(read_from("\"optimizer\":{\"name\":\"adamw\",\"lr\":0.5,\"weight_decay\":0.25}", &o, &e) == 0);
	assert(IS(o.rule, ==, DLB_RULE_ADAMW) && IS(o.hyper[DLB_HYPER_LR], ==, 0.5) &&
	       IS(o.hyper[DLB_HYPER_DECAY], ==, 0.25));
	assert(IS(o.hyper[DLB_HYPER_BETA1], ==, 0.9) && IS(o.hyper[DLB_HYPER_BETA2], ==, 0.999) &&
	       IS(o.hyper[DLB_HYPER_EPS], ==, 1e-8));
	assert(read_from("\"optimizer\":{\"name\":\"adma\"}", &o, &e) == -1);
	assert(HAS(e.where, "/run/optimizer/name") && HAS(e.what, "'adma'") && HAS(e.hint, "'adam'"));
	assert(IS(o.rule, ==, DLB_RULE_ADAMW));		/* outputs do not change */
	assert(read_from("\"optimizer\":{\"name\":\"adam\",\"beta1\":1}", &o, &e) == -1);
	assert(read_from("\"optimizer\":{\"name\":\"adam\",\"lr\":-1}", &o, &e) == -1);
	assert(read_from("\"optimizer\":{\"name\":\"adam\",\"beta\":1}", &o, &e) == -1);
	assert(read_from("\"optimizer\":{\"name\":3}", &o, &e) == -1);
	assert(IS(read_from("\"optimizer\":[]", &o, &e), ==, -1));
	assert(read_from("\"optimizer\":{\"name\":\"max-adabelief\",\"variant\":\"corrected\",\"reduce\":"
			 "\"moments:max\",\"warmup\":3,"
			 "\"lr_schedule\":\"cosine:9\"}",
			 &o, &e) == 0);
	assert(IS(o.variant, ==, DLB_VARIANT_CORRECTED) && IS(o.reduce, ==, DLB_REDUCE_MOMENTS) &&
	       IS(o.reduce_by, ==, DLB_REDUCE_BY_MAX) && !o.local_max);
	assert(IS(o.rate.kind, ==, DLB_RATE_COSINE) && IS(o.rate.steps, ==, 9) && IS(o.rate.warmup, ==, 3) &&
	       IS(o.clip_norm, ==, 0));
	assert(read_from("\"optimizer\":{\"name\":\"sgd\",\"clip_norm\":2}", &o, &e) == 0 &&
	       IS(o.clip_norm, ==, 2));
	assert(read_from("\"optimizer\":{\"name\":\"max-adabelief\",\"reduce\":\"moments\",\"clip_norm\":2}",
			 &o, &e) == -1 &&
	       HAS(e.where, "clip_norm"));
	assert(read_from("\"optimizer\":{\"name\":\"max-adabelief\",\"reduce\":\"moments:sum\",\"max_state\":"
			 "\"local\"}",
			 &o, &e) == 0);
	assert(IS(o.reduce_by, ==, DLB_REDUCE_BY_SUM) && o.local_max);
	assert(read_from("\"optimizer\":{\"name\":\"max-adabelief\",\"reduce\":\"moments:sum\"}", &o, &e) ==
	       -1);
	assert(HAS(e.where, "/run/optimizer/reduce") && HAS(e.what, "without bound"));
	assert(read_from("\"optimizer\":{\"name\":\"adam\",\"reduce\":\"moments\"}", &o, &e) == -1 &&
	       HAS(e.what, "not moments"));
	assert(read_from("\"optimizer\":{\"name\":\"adam\",\"reduce\":\"hopes\"}", &o, &e) == -1 &&
	       HAS(e.where, "/run/optimizer/reduce"));
	assert(read_from("\"optimizer\":{\"name\":\"adam\",\"variant\":\"corrected\"}", &o, &e) == -1);
	assert(read_from("\"optimizer\":{\"name\":\"max-adabelief\",\"variant\":\"right\"}", &o, &e) == -1);
	assert(read_from("\"optimizer\":{\"name\":\"max-adabelief\",\"max_state\":\"here\"}", &o, &e) == -1);
	assert(read_from("\"optimizer\":{\"name\":\"sgd\",\"warmup\":20,\"lr_schedule\":\"cosine:20\"}", &o,
			 &e) == -1);
	assert(HAS(e.where, "lr_schedule") && HAS(e.what, "warm-up"));
	n_checks += 18;
}

/* ---- the shared vectors ---- */

enum { PARAMS = 5, WORKERS = 3, MOST_STEPS = 32 };

struct story {
	json_t *root;
	int n_steps;
	double theta0[PARAMS], g[MOST_STEPS][WORKERS][PARAMS], hyper[DLB_N_HYPER];
};

static double number_at(const json_t *list, size_t i)
{
	const json_t *v = json_array_get(list, i);

	assert(json_is_number(v));
	return json_number_value(v);
}

static bool read_story(struct story *s)
{
	const char *data = getenv("DLB_TEST_DATA");
	char *path = dlb_xprintf("%s/vectors/optimizers.json", data ? data : "../shared/data");
	json_t *grads, *hyper;

	s->root = json_load_file(path, 0, NULL);
	free(path);
	if (!s->root)
		return false;
	grads = json_object_get(s->root, "gradients");
	s->n_steps = (int)json_array_size(grads);
	assert(IS(s->n_steps, >, 0) && IS(s->n_steps, <=, MOST_STEPS) &&
	       IS(json_array_size(json_object_get(s->root, "theta0")), ==, PARAMS));
	for (int i = 0; i < PARAMS; i++)
		s->theta0[i] = number_at(json_object_get(s->root, "theta0"), (size_t)i);
	for (int t = 0; t < s->n_steps; t++)
		for (int k = 0; k < WORKERS; k++)
			for (int i = 0; i < PARAMS; i++)
				s->g[t][k][i] = number_at(json_array_get(json_array_get(grads, (size_t)t),
									 (size_t)k),
							  (size_t)i);
	hyper = json_object_get(s->root, "hyper");
	for (int h = 0; h < DLB_N_HYPER; h++)
		s->hyper[h] = json_number_value(json_object_get(hyper, dlb_hypers[h].key));
	return true;
}

/* One row: problem, optimizer, and the expected trajectory. */
struct vector_case {
	const char *name;
	int rule, workers;
	enum dlb_update_variant variant;
	enum dlb_reduce_what reduce;
	enum dlb_reduce_how by;
	double eps;			/* 0: the file's */
	bool local_max;
};

static void close_to(double got, double want, enum dlb_dtype t)
{
	assert(IS(fabs(got - want), <=,
		  (t == DLB_F32 ? 2e-5 * fabs(want) + 1e-7 : 1e-12 * fabs(want) + 1e-15)));
	n_checks++;
}

/* Members of a step's row with one entry per parameter; a row may lack some. */
static void compare_row(const json_t *row, const char *key, const void *values, enum dlb_dtype t)
{
	const json_t *list = json_object_get(row, key);

	if (json_is_array(list) && !json_is_array(json_array_get(list, 0)))
		for (int i = 0; i < PARAMS; i++)
			close_to(dlb_value_real(values, t, i), number_at(list, (size_t)i), t);
}

/* Replicas with even shares, each with its own states and weights; the test computes the exchange. */
struct replica { double w[PARAMS], state[3][PARAMS], moment[DLB_MAX_MOMENTS][PARAMS], g[PARAMS]; };

/* Buffer b of all replicas becomes their sum or maximum. */
static void exchange(struct replica *r, int n, size_t offset, bool max, enum dlb_dtype t)
{
	for (int i = 0; i < PARAMS; i++) {
		double all = 0;

		for (int k = 0; k < n; k++) {
			double x = dlb_value_real((char *)&r[k] + offset, t, i);

			all = !k ? x : max ? fmax(all, x) : all + x;
		}
		for (int k = 0; k < n; k++)
			dlb_value_set((char *)&r[k] + offset, t, i, all);
	}
}

/* Runs an update, and takes what it counts. */
static void run_counted(struct dlb_kernel *k, const struct dlb_run *r)
{
	k->run(k, r);
	MUST(be.ops->sync(&be, &err_));
	dlb_kernel_count(k, r);
}

static void run_stage(const struct dlb_optimizer_choice *o, enum dlb_dtype t, enum dlb_update_stage stage,
		      const struct dlb_optimizer_exchange *x, struct replica *r, int step, int64_t *shrunk)
{
	const struct dlb_update_desc d = dlb_optimizer_desc(o, t, PARAMS, stage, x);
	void *states[] = { r->w, r->state[0], r->state[1], r->state[2] };
	void *local[] = { r->moment[0], r->moment[1], r->state[0], r->state[1], r->state[2] };
	void *in[] = { stage == DLB_UPDATE_APPLY ? r->moment[0] : r->g, r->moment[1] };
	struct dlb_kernel *k;

	MUST(be.ops->update(&be, &d, &k, &err_));
	run_counted(k, &(struct dlb_run){ .in = in,
					  .out = stage == DLB_UPDATE_LOCAL ? local : states,
					  .step = (uint64_t)step,
					  .shrunk = shrunk });
	dlb_kernel_free(k);
}

static void one_step(const double g[][PARAMS], const struct dlb_optimizer_choice *o, int n, enum dlb_dtype t,
		     int step, struct replica *r, int64_t *shrunk)
{
	struct dlb_optimizer_exchange x;

	dlb_optimizer_exchange(o, 1.0 / n, &x);
	for (int k = 0; k < n; k++)	/* a replica's gradient: its share of that of the whole batch */
		for (int i = 0; i < PARAMS; i++)
			dlb_value_set(r[k].g, t, i, g[k][i] / n);
	if (!x.moments) {
		exchange(r, n, offsetof(struct replica, g), false, t);
		for (int k = 0; k < n; k++)
			run_stage(o, t, DLB_UPDATE_WHOLE, NULL, &r[k], step, shrunk);
		return;
	}
	for (int k = 0; k < n; k++)
		run_stage(o, t, DLB_UPDATE_LOCAL, &x, &r[k], step, shrunk);
	for (int b = 0; b < x.n; b++)
		exchange(r, n, offsetof(struct replica, moment) + (size_t)b * sizeof r->moment[0], x.max[b],
			 t);
	for (int k = 0; k < n; k++)
		run_stage(o, t, DLB_UPDATE_APPLY, &x, &r[k], step, shrunk);
}

static void follow(const struct story *s, const struct vector_case *c, enum dlb_dtype t)
{
	const json_t *want = json_object_get(json_object_get(s->root, "cases"), c->name);
	struct dlb_optimizer_choice o = { .rule = c->rule,
					  .variant = c->variant,
					  .reduce = c->reduce,
					  .reduce_by = c->by,
					  .local_max = c->local_max };
	struct replica r[WORKERS] = { 0 };
	int64_t shrunk = 0;

	assert(IS(json_array_size(want), ==, (size_t)s->n_steps));
	memcpy(o.hyper, s->hyper, sizeof o.hyper);
	if (c->eps > 0)
		o.hyper[DLB_HYPER_EPS] = c->eps;
	for (int k = 0; k < c->workers; k++)
		for (int i = 0; i < PARAMS; i++)
			dlb_value_set(r[k].w, t, i, s->theta0[i]);
	for (int step = 1; step <= s->n_steps; step++) {
		const json_t *row = json_array_get(want, (size_t)step - 1),
			     *local = json_object_get(row, "m_local");

		one_step(s->g[step - 1], &o, c->workers, t, step, r, &shrunk);
		for (int k = 0; k < c->workers; k++)
			compare_row(row, "theta", r[k].w, t);
		compare_row(row, "m", r[0].state[0], t);
		compare_row(row, "v", r[0].state[1], t);
		compare_row(row, "s", r[0].state[1], t);
		compare_row(row, "s_max", r[0].state[2], t);
		if (c->reduce == DLB_REDUCE_MOMENTS)
			compare_row(row, "m_hat_reduced", r[0].moment[0], t);
		if (!c->local_max)
			compare_row(row, "s_hat_reduced", r[0].state[2], t);
		for (int k = 0; k < c->workers && c->reduce == DLB_REDUCE_MOMENTS; k++)
			for (int i = 0; i < PARAMS; i++)
				close_to(dlb_value_real(r[k].state[0], t, i),
					 number_at(json_array_get(local, (size_t)k), (size_t)i), t);
	}
	if (c->rule != DLB_RULE_MAX_ADABELIEF || c->variant == DLB_VARIANT_CORRECTED)
		assert(IS(shrunk, ==, 0));
}

/* All trajectories of the file: on one worker, and on three with exchanges. */
static bool vectors(void)
{
#define BELIEF .rule = DLB_RULE_MAX_ADABELIEF
	static const struct vector_case cases[] = {
		{ .name = "adam_1worker", .rule = DLB_RULE_ADAM, .workers = 1 },
		{ .name = "adam_3workers_grad_allreduce", .rule = DLB_RULE_ADAM, .workers = 3 },
		{ .name = "adabelief_1worker", .rule = DLB_RULE_ADABELIEF, .workers = 1, .eps = 1e-16 },
		{ .name = "adabelief_3workers_grad_allreduce",
		  .rule = DLB_RULE_ADABELIEF,
		  .workers = 3,
		  .eps = 1e-16 },
		{ .name = "adabelief_official_amsgrad_eps1e16_1worker",
		  BELIEF,
		  .workers = 1,
		  .variant = DLB_VARIANT_AMSGRAD,
		  .eps = 1e-16 },
		{ .name = "adabelief_official_amsgrad_eps1e16_3workers_grad_allreduce",
		  BELIEF,
		  .workers = 3,
		  .variant = DLB_VARIANT_AMSGRAD,
		  .eps = 1e-16 },
		{ .name = "adabelief_official_amsgrad_eps1e8_1worker",
		  BELIEF,
		  .workers = 1,
		  .variant = DLB_VARIANT_AMSGRAD,
		  .eps = 1e-8 },
		{ .name = "max_adabelief_literal_1worker",
		  BELIEF,
		  .workers = 1,
		  .variant = DLB_VARIANT_UNCORRECTED },
		{ .name = "max_adabelief_corrected_1worker",
		  BELIEF,
		  .workers = 1,
		  .variant = DLB_VARIANT_CORRECTED },
		{ .name = "max_adabelief_denom_corrected_1worker",
		  BELIEF,
		  .workers = 1,
		  .variant = DLB_VARIANT_DENOM_CORRECTED },
		{ .name = "max_adabelief_literal_3workers_moment_allreduce",
		  BELIEF,
		  .workers = 3,
		  .variant = DLB_VARIANT_UNCORRECTED,
		  .reduce = DLB_REDUCE_MOMENTS },
		{ .name = "max_adabelief_corrected_3workers_moment_allreduce",
		  BELIEF,
		  .workers = 3,
		  .variant = DLB_VARIANT_CORRECTED,
		  .reduce = DLB_REDUCE_MOMENTS },
		{ .name = "max_adabelief_denom_corrected_3workers_moment_allreduce",
		  BELIEF,
		  .workers = 3,
		  .variant = DLB_VARIANT_DENOM_CORRECTED,
		  .reduce = DLB_REDUCE_MOMENTS },
		{ .name = "max_adabelief_literal_3workers_moment_allreduce_maxop",
		  BELIEF,
		  .workers = 3,
		  .variant = DLB_VARIANT_UNCORRECTED,
		  .reduce = DLB_REDUCE_MOMENTS,
		  .by = DLB_REDUCE_BY_MAX },
		{ .name = "max_adabelief_literal_3workers_moment_allreduce_localstate",
		  BELIEF,
		  .workers = 3,
		  .variant = DLB_VARIANT_UNCORRECTED,
		  .reduce = DLB_REDUCE_MOMENTS,
		  .local_max = true },
		{ .name = "max_adabelief_corrected_3workers_grad_allreduce",
		  BELIEF,
		  .workers = 3,
		  .variant = DLB_VARIANT_CORRECTED },
		{ .name = "max_adabelief_literal_3workers_grad_allreduce",
		  BELIEF,
		  .workers = 3,
		  .variant = DLB_VARIANT_UNCORRECTED },
	};
	static struct story s;

	if (!read_story(&s))
		return false;
	/* all cases are tested */
	assert(IS(json_object_size(json_object_get(s.root, "cases")), ==, DLB_LEN(cases)));
	for (int i = 0; i < DLB_LEN(cases); i++)
		for (int t = DLB_F32; t <= DLB_F64; t++)
			follow(&s, &cases[i], t);
	json_decref(s.root);
	return true;
}

/* ---- guarantee of max-adabelief ---- */

/* The denominator over the step size, recomputed from the state in double, never shrinks for `corrected`,
 * with any exchange; and the kernel's count equals the one found here. Gradients shrink, so that second
 * moments do. */
static int64_t quotients(const struct dlb_optimizer_choice *o, enum dlb_dtype t)
{
	struct replica r[WORKERS] = { 0 };
	double before[WORKERS][PARAMS] = { { 0 } }, g[WORKERS][PARAMS];
	int64_t counted = 0, found = 0;

	for (int step = 1; step <= 60; step++) {
		const double bias2 = o->variant == DLB_VARIANT_DENOM_CORRECTED ?
					     1 - pow(o->hyper[DLB_HYPER_BETA2], step) :
					     1;

		for (int k = 0; k < WORKERS; k++)
			for (int i = 0; i < PARAMS; i++)
				g[k][i] = (2 * dlb_rng_uniform(&rng) - 1) * exp(-0.05 * step);
		one_step(g, o, WORKERS, t, step, r, &counted);
		for (int k = 0; k < WORKERS; k++) {
			for (int i = 0; i < PARAMS; i++) {
				double q = sqrt(dlb_value_real(r[k].state[2], t, i) / bias2) /
					   o->hyper[DLB_HYPER_LR];

				assert(o->variant != DLB_VARIANT_CORRECTED || q >= before[k][i]);
				found += q < before[k][i] * (1 - 1e-6);
				before[k][i] = q;
			}
		}
	}
	assert(IS(counted, ==, found));
	n_checks++;
	return counted;
}

static void monotone(void)
{
	struct dlb_optimizer_choice o;

	dlb_optimizer_defaults(DLB_RULE_MAX_ADABELIEF, &o);
	for (int variant = 0; variant < DLB_VARIANT_AMSGRAD; variant++)
		for (int what = 0; what < 2; what++)
			for (int by = 0; by < 3; by++)
				for (int local = 0; local < 2; local++)
					for (int t = DLB_F32; t <= DLB_F64; t++) {
						int64_t n;

						o.variant = (enum dlb_update_variant)variant;
						o.reduce = (enum dlb_reduce_what)what;
						o.reduce_by = (enum dlb_reduce_how)by;
						o.local_max = what && local;
						/* no maximum of gradients; a merged sum is refused
						 * (documents) */
						if ((!what && by == DLB_REDUCE_BY_MAX) ||
						    (what && by == DLB_REDUCE_BY_SUM && !local))
							continue;
						n = quotients(&o, (enum dlb_dtype)t);
						/* at a constant rate only the correction of the root lets it
						 * shrink */
						assert(IS((n > 0), ==,
							  (variant == DLB_VARIANT_DENOM_CORRECTED)));
					}
}

/* A learning rate that grows shrinks the quotient: counted for any variant. */
static void growing_rate(void)
{
	struct dlb_update_desc d = {
		.dtype = DLB_F64, .count = N, .rule = DLB_RULE_MAX_ADABELIEF, .variant = DLB_VARIANT_CORRECTED
	};
	static double w[N], s[3][N], g[N];
	void *in[] = { g }, *out[] = { w, s[0], s[1], s[2] };
	struct dlb_kernel *k;
	int64_t shrunk = 0;

	memcpy(d.hyper, dlb_optimizers[d.rule].hyper, sizeof d.hyper);
	MUST(be.ops->update(&be, &d, &k, &err_));
	for (int step = 1; step <= 3; step++) {
		for (int i = 0; i < N; i++)
			g[i] = step == 1 ? 1 + dlb_rng_uniform(&rng) : 0;
		run_counted(k, &(struct dlb_run){ .in = in,
						  .out = out,
						  .step = (uint64_t)step,
						  .has_rate = true,
						  .rate = step == 1 ? 1e-3 : 1,
						  .rate_before = step <= 2 ? 1e-3 : 1,
						  .shrunk = &shrunk });
		assert(IS(shrunk, ==, (step == 1 ? 0 : N)));
	}
	dlb_kernel_free(k);
	n_checks++;
}

static struct dlb_kernel *kernel_of(int rule, enum dlb_dtype t, int64_t count)
{
	struct dlb_update_desc d = { .dtype = t, .count = count, .rule = rule };
	struct dlb_kernel *k;

	memcpy(d.hyper, dlb_optimizers[rule].hyper, sizeof d.hyper);
	MUST(be.ops->update(&be, &d, &k, &err_));
	return k;
}

/* A factor of the gradients gives the bits of gradients that were multiplied by it. */
static void scaled_gradients(void)
{
	static double w[2][N], s[2][3][N], g[2][N];

	for (int rule = 0; rule < DLB_N_RULES; rule++)
		for (int t = DLB_F32; t <= DLB_F64; t++) {
			struct dlb_kernel *k = kernel_of(rule, t, N);

			memset(w, 0, sizeof w);
			memset(s, 0, sizeof s);
			for (int step = 1; step <= STEPS; step++) {
				for (int i = 0; i < N; i++) {
					const double v = rounded(t, 2 * dlb_rng_uniform(&rng) - 1);

					dlb_value_set(g[0], t, i, v);
					dlb_value_set(g[1], t, i, v * 0.125);
				}
				for (int i = 0; i < 2; i++)
					k->run(k, &(struct dlb_run){ .in = (void *[]){ g[i] },
								     .out = (void *[]){ w[i], s[i][0],
											s[i][1], s[i][2] },
								     .step = (uint64_t)step,
								     .grad_scale = i ? 0 : 0.125 });
			}
			assert(!memcmp(w[0], w[1], sizeof w[0]) && !memcmp(s[0], s[1], sizeof s[0]));
			dlb_kernel_free(k);
			n_checks++;
		}
}

/* Every back end gives the cpu's bits. */
static void same_bits_as_cpu(void)
{
	static char store[2][5][N * sizeof(double)];
	struct dlb_backend cpu, mine = be;

	MUST(dlb_backend_find("cpu")->open(0, 1, &cpu, &err_));
	for (int rule = 0; rule < DLB_N_RULES; rule++)
		for (int t = DLB_F32; t <= DLB_F64; t++) {
			struct dlb_kernel *k[2];

			for (int i = 0; i < 2; i++) {
				be = i ? cpu : mine;
				k[i] = kernel_of(rule, t, N);
			}
			be = mine;
			memset(store, 0, sizeof store);
			for (int step = 1; step <= STEPS; step++) {
				for (int i = 0; i < N; i++)
					dlb_value_set(store[0][4], t, i, 2 * dlb_rng_uniform(&rng) - 1);
				memcpy(store[1][4], store[0][4], sizeof store[0][4]);
				for (int i = 0; i < 2; i++)
					k[i]->run(k[i], &(struct dlb_run){
								.in = (void *[]){ store[i][4] },
								.out = (void *[]){ store[i][0], store[i][1],
										   store[i][2], store[i][3] },
								.step = (uint64_t)step,
								.grad_scale = 0.3 });
			}
			assert(!memcmp(store[0], store[1], sizeof store[0]));
			dlb_kernel_free(k[0]);
			dlb_kernel_free(k[1]);
			n_checks++;
		}
	cpu.ops->close(&cpu);
}

/* A weight that becomes NaN or infinite is noticed once, wherever it is; and no other is. */
static void not_finite(void)
{
	static const double bad[] = { NAN, INFINITY, -INFINITY };
	static const int where[] = { 0, N / 2, N - 1 };
	static double w[N], s[3][N], g[N];
	void *in[] = { g }, *out[] = { w, s[0], s[1], s[2] };

	for (int rule = 0; rule < DLB_N_RULES; rule++)
		for (int t = DLB_F32; t <= DLB_F64; t++) {
			struct dlb_kernel *k = kernel_of(rule, t, N);

			for (int i = -1; i < DLB_LEN(bad); i++) {
				int64_t count = 5;

				memset(w, 0, sizeof w);
				memset(s, 0, sizeof s);
				memset(g, 0, sizeof g);
				if (i >= 0)
					dlb_value_set(g, t, where[i], bad[i]);
				run_counted(k, &(struct dlb_run){
						       .in = in, .out = out, .step = 1, .not_finite = &count });
				assert(IS(count, ==, (i < 0 ? 5 : 6)));
			}
			dlb_kernel_free(k);
			n_checks++;
		}
}

/* With one replica the two stages give the same bits as the single update. */
static void stages(void)
{
	struct dlb_optimizer_choice o, split;

	dlb_optimizer_defaults(DLB_RULE_MAX_ADABELIEF, &o);
	for (int variant = 0; variant < DLB_N_VARIANTS; variant++)
		for (int t = DLB_F32; t <= DLB_F64; t++) {
			struct replica a[1] = { 0 }, b[1] = { 0 };

			o.variant = (enum dlb_update_variant)variant;
			split = o;
			split.reduce = DLB_REDUCE_MOMENTS;
			for (int step = 1; step <= 20; step++) {
				double g[1][PARAMS];

				for (int i = 0; i < PARAMS; i++)
					g[0][i] = 2 * dlb_rng_uniform(&rng) - 1;
				one_step(g, &o, 1, (enum dlb_dtype)t, step, a, NULL);
				one_step(g, &split, 1, (enum dlb_dtype)t, step, b, NULL);
				assert(!memcmp(a->w, b->w, sizeof a->w) &&
				       !memcmp(a->state, b->state, sizeof a->state));
			}
			n_checks++;
		}
}

/* ---- the learning rate over the steps ---- */

static void rates(void)
{
	static const char *const bad[] = { "",           "cosin",      "cosine:",      "cosine:0",
					   "cosine:1.5", "cosine:10:", "cosine:10:-1", "cosine:10:0:0",
					   "step",       "step:10",    "step:0:1",     "step:10:",
					   "step:10:x",  "constant:1", "linear" };
	struct dlb_optimizer_choice o;
	struct dlb_error e;

	dlb_optimizer_defaults(DLB_RULE_SGD, &o);
	o.hyper[DLB_HYPER_LR] = 0.5;
	for (int64_t i = 0; i < 100; i += 9)
		assert(IS(dlb_optimizer_rate(&o, i), ==, 0.5));
	o.rate.warmup = 10;
	for (int64_t i = 0; i < 30; i++)
		assert(IS(dlb_optimizer_rate(&o, i), ==, (i < 10 ? 0.5 * (double)(i + 1) / 10 : 0.5)));
	MUST(dlb_rate_parse("cosine:110:0.1", 0, &o.rate, &err_));
	for (int64_t i = 10; i < 130; i++) {
		double want = i >= 110 ? 0.1 : 0.1 + 0.4 * (1 + cos(acos(-1) * (double)(i - 10) / 100)) / 2;

		assert(IS(fabs(dlb_optimizer_rate(&o, i) - want), <, 1e-15));
	}
	assert(IS(dlb_optimizer_rate(&o, 60), ==, 0.1 + 0.4 * (1 + cos(acos(-1) / 2)) / 2) &&
	       IS(dlb_optimizer_rate(&o, 4), ==, 0.25));
	o.rate.warmup = 0;
	MUST(dlb_rate_parse("step:30:0.1", 0, &o.rate, &err_));
	for (int64_t i = 0; i < 100; i++)
		assert(IS(fabs(dlb_optimizer_rate(&o, i) - 0.5 * pow(0.1, (double)(i / 30))), <, 1e-16));
	MUST(dlb_rate_parse("cosine", 70, &o.rate, &err_));
	assert(IS(o.rate.steps, ==, 70) && IS(dlb_optimizer_rate(&o, 0), ==, 0.5) &&
	       IS(dlb_optimizer_rate(&o, 70), ==, 0));
	assert(IS(dlb_rate_parse("cosine", 0, &o.rate, &e), ==, -1) && HAS(e.what, "cosine:STEPS") &&
	       IS(o.rate.steps, ==, 70));
	for (int i = 0; i < DLB_LEN(bad); i++)
		assert(IS(dlb_rate_parse(bad[i], 0, &o.rate, &e), ==, -1));
	n_checks += 4 + DLB_LEN(bad);
}

/* ONNX's Adam and Adagrad as their definition has them: at step 0 and later, when T changes the rate. */
static void training_ops(void)
{
	static const struct dlb_attr attr[] = {
		{ .name = "norm_coefficient", .type = DLB_ATTR_REAL, .f = .25 },
		{ .name = "epsilon", .type = DLB_ATTR_REAL, .f = .01 },
		{ .name = "decay_factor", .type = DLB_ATTR_REAL, .f = .5 },
		{ .name = "alpha", .type = DLB_ATTR_REAL, .f = .75 },
		{ .name = "beta", .type = DLB_ATTR_REAL, .f = .875 }
	};

	for (int adam = 0; adam < 2; adam++)
		for (int64_t t = 0; t < 4; t++) {
			const int kind = dlb_op_kind_find(adam ? "Adam" : "Adagrad",
							  "ai.onnx.preview.training");
			double rate = .1, x = 2, g = -3, v = .5, h = .7, out[3] = { 0 };
			struct dlb_desc in[6], to[3];
			struct dlb_kernel *k;
			struct dlb_error err = { .what = "" };

			for (int i = 0; i < 6; i++)
				in[i] = (struct dlb_desc){ .dtype = i == 1 ? DLB_I64 : DLB_F64 };
			const struct dlb_op_io io = { .cls = dlb_op_class_of(kind),
						      .name = "op",
						      .opset = 1,
						      .in = in,
						      .n_in = 5 + adam,
						      .out = to,
						      .n_out = 2 + adam,
						      .attr = attr,
						      .n_attr = DLB_LEN(attr) };
			for (int i = 0; i < 3; i++)
				to[i] = in[0];
			if (dlb_op_kernel(&be, &io, &k, &err)) { /* devices have no such kernel */
				assert(strcmp(be.ops->name, "cpu"));
				return;
			}
			k->run(k, &(struct dlb_run){ .in = (void *[]){ &rate, &t, &x, &g, &v, &h },
						     .out = (void *[]){ &out[0], &out[1], &out[2] } });
			assert(!be.ops->sync(&be, NULL));
			dlb_kernel_free(k);

			const double n = (double)t, regular = .25 * x + g;
			double want[3];
			if (adam) {
				const double now = t ? rate * sqrt(1 - pow(.875, n)) / (1 - pow(.75, n)) :
						       rate;
				want[1] = .75 * v + .25 * regular;
				want[2] = .875 * h + .125 * regular * regular;
				want[0] = x - now * want[1] / (sqrt(want[2]) + .01);
			} else {
				want[1] = v + regular * regular;
				want[0] = x - rate / (1 + n * .5) * regular / (sqrt(want[1]) + .01);
			}
			for (int i = 0; i < 2 + adam; i++, n_checks++)
				assert(IS(fabs(out[i] - want[i]), <, 1e-12));
		}
}

int main(void)
{
	bool shared;

	dlb_rng_init(&rng, 1);
	open_backend();
	table();
	rules();
	training_ops();
	predictions();
	documents();
	rates();
	monotone();
	growing_rate();
	scaled_gradients();
	not_finite();
	same_bits_as_cpu();
	stages();
	shared = vectors();
	be.ops->close(&be);
	printf("%ld checks of optimizers%s\n", n_checks,
	       shared ? ", shared vectors included" : "; skipped the shared vectors: not found");
	return 0;
}
