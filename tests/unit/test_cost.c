/* cost: profile rows and their section, the roofline fit, interpolation between batch sizes, unmeasured
 * kinds, missing kernels, optimizers, reading and writing the cost section, bad input. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "graph/order.h"
#include "optim/optim.h"
#include "util/rng.h"
#include "check.h"

static int tensor(struct dlb_graph *g, const char *name, enum dlb_tensor_kind kind, int64_t rows,
		  int64_t columns)
{
	int id = dlb_graph_add_tensor(g, name, kind);
	struct dlb_tensor *t = &g->tensor[id];

	t->dtype = DLB_F32;
	t->n_dims = 2;
	t->dim[0] = rows ? (struct dlb_dim){ 0, rows } : (struct dlb_dim){ 1, 0 };
	t->dim[1] = (struct dlb_dim){ 0, columns };
	return id;
}

static int op(struct dlb_graph *g, const char *name, const char *type, enum dlb_phase phase, int a, int b,
	      int out)
{
	int in[2] = { a, b };

	return dlb_graph_add_op(g, phase,
				&(struct dlb_op_spec){ .name = name, .type = type, .in = in,
						       .n_in = b < 0 ? 1 : 2, .out = out < 0 ? NULL : &out,
						       .n_out = out >= 0 });
}

static void work(struct dlb_graph *g, int o, double flop, double flop_fixed, double bytes, double bytes_fixed)
{
	g->op[o].flop = flop;
	g->op[o].flop_fixed = flop_fixed;
	g->op[o].bytes = bytes;
	g->op[o].bytes_fixed = bytes_fixed;
}

/* A chain of `layers` pairs of MatMul and Relu over repeating widths, and one update per weight. */
static void make_graph(struct dlb_graph *g, int layers)
{
	char name[64];
	int x, weight[64], grad[64];
	int64_t n = 32, k = 16;

	assert(IS(layers, <=, 64));
	dlb_graph_init(g);
	g->batch = n;
	x = tensor(g, "x", DLB_T_INPUT, 0, k);
	for (int i = 0; i < layers; i++) {
		int64_t m = 16 << (i % 4);
		snprintf(name, sizeof name, "w%d", i);
		weight[i] = tensor(g, name, DLB_T_WEIGHT, k, m);
		snprintf(name, sizeof name, "g%d", i);
		grad[i] = tensor(g, name, DLB_T_WEIGHT_GRADIENT, k, m);
		snprintf(name, sizeof name, "y%d", i);
		int y = tensor(g, name, DLB_T_ACTIVATION, 0, m);
		snprintf(name, sizeof name, "mm%d", i);
		int o = op(g, name, "MatMul", DLB_FORWARD, x, weight[i], y);
		work(g, o, 2.0 * (double)(n * k * m), 0, 4.0 * (double)(n * k + n * m + k * m),
		     4.0 * (double)(k * m));
		snprintf(name, sizeof name, "z%d", i);
		x = tensor(g, name, DLB_T_ACTIVATION, 0, m);
		snprintf(name, sizeof name, "relu%d", i);
		o = op(g, name, "Relu", DLB_FORWARD, y, -1, x);
		work(g, o, (double)(n * m), 0, 8.0 * (double)(n * m), 0);
		k = m;
	}
	for (int i = 0; i < layers; i++) {
		snprintf(name, sizeof name, "update%d", i);
		int o = op(g, name, "Update", DLB_UPDATE, weight[i], grad[i], -1);
		double bytes = dlb_tensor_bytes(&g->tensor[weight[i]], 1);
		work(g, o, bytes / 2, bytes / 2, 3 * bytes, 3 * bytes);
		g->tensor[weight[i]].home = o;
	}
	dlb_graph_index(g);
}

/* The truth of the tests: launch 2 us, half of 1e11 FLOP/s, 80 % of 1e10 B/s. */
static double truth(const struct dlb_graph *g, int o, int64_t n)
{
	return 2e-6 + fmax(dlb_op_flop_at(g, o, n) / 5e10, dlb_op_bytes_at(g, o, n) / 8e9);
}

static void measure(const struct dlb_graph *g, struct dlb_profile *p, const char *kind)
{
	int k = dlb_profile_add_kind(p, kind);

	p->peak_flops[k] = 1e11;
	p->bandwidth_Bps[k] = 1e10;
	for (int r = 0; r < p->n_rows; r++)
		for (int b = 0; b < p->n_batches; b++)
			p->row[r].time_s[k][b] = truth(g, p->row[r].op[0], p->batch[b]);
}

static bool near(double a, double b, double tolerance)
{
	return fabs(a - b) <= tolerance * fabs(b);
}

static void check(int rc, const struct dlb_error *err)
{
	if (rc) {
		dlb_error_print(stderr, "test_cost", -1, err);
		abort();
	}
}

static void parse(const char *text, struct dlb_cluster *cl)
{
	struct dlb_error err = { .status = 0 };

	check(dlb_cluster_parse(text, cl, &err), &err);
}

static void test_profile(void)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_graph g;
	struct dlb_profile p, back;
	struct dlb_doc d;

	make_graph(&g, 20);
	dlb_profile_init(&p, &g, 32);
	assert(IS(p.n_batches, ==, 5) && IS(p.batch[0], ==, 32) && IS(p.batch[4], ==, 2));
	/* MatMuls 16x16 (first), then 16,32 32,64 64,128 128,16: five; Relus four widths; updates five. */
	int ops = 0;
	for (int r = 0; r < p.n_rows; r++)
		ops += p.row[r].n_ops;
	assert(IS(p.n_rows, ==, 14) && IS(ops, ==, g.n_ops));
	assert(IS(dlb_profile_add_kind(&p, "cpu"), ==, 0));
	for (int r = 0; r < p.n_rows; r++)
		for (int b = 0; b < p.n_batches; b++)
			assert(isnan(p.row[r].time_s[0][b])); /* not measured yet */
	measure(&g, &p, "cpu");
	p.row[3].time_s[0][1] = NAN;
	p.row[4].time_s[0][0] = p.row[4].time_s[0][1] = INFINITY;
	p.row[2].packed_bytes[0][0] = p.row[2].packed_bytes[0][1] = 4096;
	for (int b = 0; b < 5; b++)
		p.row[5].scratch_bytes[0][b] = 64;

	dlb_doc_init(&d, "f.json");
	dlb_doc_set(&d, "profile", dlb_profile_write(&p));
	check(dlb_profile_read(&d, &g, &back, &err), &err);
	assert(IS(back.n_rows, ==, p.n_rows) && IS(back.n_kinds, ==, 1) && isnan(back.row[3].time_s[0][1]));
	assert(isinf(back.row[4].time_s[0][0]) && IS(back.row[2].packed_bytes[0][1], ==, 4096) &&
	       IS(back.row[2].packed_bytes[0][2], ==, 0) && IS(back.row[5].scratch_bytes[0][4], ==, 64) &&
	       isnan(back.step_s[0]));
	json_t *again = dlb_profile_write(&back);
	assert(json_equal(again, dlb_doc_section(&d, "profile")));
	json_decref(again);
	dlb_profile_release(&back);

	json_t *row = json_array_get(json_object_get(dlb_doc_section(&d, "profile"), "rows"), 5);
	json_array_set_new(json_object_get(row, "ops"), 0, json_integer(g.n_ops));
	assert(IS(dlb_profile_read(&d, &g, &back, &err), ==, -1) && HAS(err.where, "/profile/rows/5/ops/0"));
	json_array_set_new(json_object_get(row, "ops"), 0, json_integer(0));
	assert(IS(dlb_profile_read(&d, &g, &back, &err), ==, -1) && HAS(err.what, "already"));
	dlb_doc_release(&d);
	dlb_profile_release(&p);

	dlb_profile_init(&p, &g, 1);
	assert(IS(p.n_batches, ==, 1));
	dlb_profile_release(&p);
	dlb_profile_init(&p, &g, 3);
	assert(IS(p.n_batches, ==, 2) && IS(p.batch[1], ==, 1));
	dlb_profile_release(&p);
	dlb_graph_release(&g);
}

/* The fit finds known parameters from exact samples, and approximately from samples with 10 % noise. */
static void test_roofline(void)
{
	double flop[200], bytes[200], t[200];

	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct dlb_rng r;
		dlb_rng_init(&r, seed);
		double launch = 1e-6 * (1 + 4 * dlb_rng_uniform(&r)), a = 1e-11 * (1 + dlb_rng_uniform(&r)),
		       b = 2e-10;
		for (int noisy = 0; noisy < 2; noisy++) {
			struct dlb_roofline fit = { 2e-6, 2e-11, 1e-10 };
			for (int i = 0; i < 200; i++) {
				flop[i] = exp(12 * dlb_rng_uniform(&r)) * 1e3;
				bytes[i] = exp(10 * dlb_rng_uniform(&r)) * 1e2;
				t[i] = launch + fmax(a * flop[i], b * bytes[i]);
				t[i] *= 1 + noisy * 0.2 * (dlb_rng_uniform(&r) - 0.5);
			}
			dlb_roofline_fit(&fit, &(struct dlb_roofline_samples){ flop, bytes, t, NULL, 200 });
			double tolerance = noisy ? 0.1 : 1e-6;
			if (!near(fit.launch_s, launch, tolerance) || !near(fit.flop_s, a, tolerance) ||
			    !near(fit.byte_s, b, noisy ? 0.2 : 1e-6)) {
				printf("seed %d: %g %g %g, not %g %g %g\n", (int)seed, fit.launch_s,
				       fit.flop_s, fit.byte_s, launch, a, b);
				abort();
			}
		}
	}
	/* One sample, two equal ones, none: no failure, no negative time. */
	double one_flop[2] = { 1e6, 1e6 }, one_bytes[2] = { 0, 0 }, one_t[2] = { 1e-5, 1e-5 };
	struct dlb_roofline fit = { 1e-6, 1e-11, 1e-10 };
	dlb_roofline_fit(&fit, &(struct dlb_roofline_samples){ one_flop, one_bytes, one_t, NULL, 2 });
	assert(near(dlb_roofline_s(&fit, 1e6, 0), 1e-5, 1e-6) && IS(fit.launch_s, >=, 0) &&
	       IS(fit.flop_s, >=, 0) && IS(fit.byte_s, ==, 1e-10));
	dlb_roofline_fit(&fit, &(struct dlb_roofline_samples){ .n = 0 });
}

/* The error of predicting a signature from the others of its class: none for a class of one signature. The
 * rate of products of matrices is that of the op with the most FLOP, be it the first op. */
static void test_fits(void)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_graph g;
	struct dlb_profile p;
	struct dlb_cluster cl;
	struct dlb_cost c;

	for (int layers = 1; layers <= 20; layers += 19) {
		make_graph(&g, layers);
		dlb_profile_init(&p, &g, 32);
		measure(&g, &p, "cpu");
		parse("cpu:1", &cl);
		check(dlb_cost_fit(&c, &g, &p, &cl, &err), &err);
		assert(IS(c.n_fits, ==, 3)); /* MatMul, Relu, Update */
		for (int i = 0; i < c.n_fits; i++) {
			const double blind = c.fit[i].blind_error;
			assert(IS(c.fit[i].n, >=, p.n_batches));
			assert(layers == 1 ? isnan(blind) : IS(blind, <, 1e-3));
		}
		dlb_cost_set_optimizer(&c, dlb_optimizer_find("kfac"));
		assert(layers > 1 || near(c.matrix_flops[0], g.op[0].flop / truth(&g, 0, 32), 1e-9));
		dlb_cost_release(&c);
		dlb_cluster_release(&cl);
		dlb_profile_release(&p);
		dlb_graph_release(&g);
	}
}

static void test_kinds(void)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_graph g;
	struct dlb_profile p, none;
	struct dlb_cluster cl;
	struct dlb_cost c;

	make_graph(&g, 20);
	dlb_profile_init(&p, &g, 32);
	measure(&g, &p, "cpu");
	parse("cpu:1 cpu:1*0.5 cpu/4:1 host cuda:1 link=rack:1e-5,1e9", &cl);
	static const char *without[] = { "Relu", "update" };
	cl.kind[1].without = without;		/* cpu/4 */
	cl.kind[1].n_without = 1;
	cl.kind[2].without = without + 1;	/* cuda: the class of work */
	cl.kind[2].n_without = 1;
	check(dlb_cost_fit(&c, &g, &p, &cl, &err), &err);
	assert(IS(c.n_kinds, ==, 3) && IS(c.n_batches, ==, 5) && IS(c.fit_error[0], <, 1e-6) &&
	       isnan(c.fit_error[1]));
	for (int i = 0; i < g.n_ops; i++) {
		double t = truth(&g, i, 32);
		bool relu = !strcmp(g.op[i].type, "Relu"), update = !strcmp(g.op[i].type, "Update");
		assert(near(dlb_cost_kind_s(&c, i, 0, 32), t, 1e-12) &&
		       near(dlb_cost_op_s(&c, i, 1, 32), 2 * t, 1e-12));
		assert(c.measured[i] && !c.measured[g.n_ops + i]);
		assert(IS(isinf(dlb_cost_op_s(&c, i, 2, 32)), ==, relu) &&
		       IS(isinf(dlb_cost_op_s(&c, i, 3, 32)), ==, update));
		if (!relu)	/* four threads help, but no more than four times */
			assert(IS(dlb_cost_op_s(&c, i, 2, 32), <=, t) &&
			       IS(dlb_cost_op_s(&c, i, 2, 32), >=, t / 4));
	}
	assert(near(dlb_cost_xfer_s(&c, 1e6, 0, 3), 1e-5 + 1e-3, 1e-9) &&
	       IS(dlb_cost_xfer_s(&c, 1e6, 2, 2), ==, 0));
	assert(IS(dlb_cost_weight_bytes(&g, g.op[0].in[1], 2, true), ==, 4 * 16 * 16 * 4));

	/* The cost of a split is finite and positive; 0 for one node. */
	int nodes[2] = { 0, 3 };
	assert(IS(dlb_cost_split_s(&c, 0, 32, nodes, 1, DLB_SPLIT_SUM), ==, 0));
	double sum = dlb_cost_split_s(&c, 0, 32, nodes, 2, DLB_SPLIT_SUM);
	assert(near(sum, 2 * (1e-5 + 32 * 16 * 4 / 2 / 1e9), 1e-9));
	assert(IS(dlb_cost_split_s(&c, 0, 32, nodes, 2, DLB_SPLIT_OUTPUT), >, 0));

	/* The optimizer scales updates only, and can be set again. */
	int adam = dlb_optimizer_find("adam"), sgd = dlb_optimizer_find("sgd"), last = g.n_ops - 1;
	double update = dlb_cost_kind_s(&c, last, 0, 32), matmul = dlb_cost_kind_s(&c, 0, 0, 32);
	dlb_cost_set_optimizer(&c, adam);
	dlb_cost_set_optimizer(&c, adam);
	assert(near(dlb_cost_kind_s(&c, last, 0, 32),
		    update * dlb_optimizers[adam].bytes_per_element / dlb_optimizers[sgd].bytes_per_element,
		    1e-12) &&
	       IS(dlb_cost_kind_s(&c, 0, 0, 32), ==, matmul));
	dlb_cost_set_optimizer(&c, sgd);
	assert(IS(dlb_cost_kind_s(&c, last, 0, 32), ==, update));
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);

	parse("cup:2", &cl);
	assert(IS(dlb_cost_fit(&c, &g, &p, &cl, &err), ==, -1) && HAS(err.what, "'cup'") &&
	       HAS(err.hint, "'cpu'"));
	/* without a profile, or with one of no kinds, 'cpu' is still known */
	dlb_profile_init(&none, &g, 32);
	for (int i = 0; i < 2; i++) {
		err = (struct dlb_error){ .status = 0 };
		assert(IS(dlb_cost_fit(&c, &g, i ? &none : NULL, &cl, &err), ==, -1) &&
		       HAS(err.what, "'cup'") && SAME(err.hint, "did you mean 'cpu'?"));
	}
	dlb_profile_release(&none);
	dlb_cluster_release(&cl);
	parse("cpu:2 cuda:1", &cl);
	check(dlb_cost_fit(&c, &g, NULL, &cl, &err), &err);
	for (int i = 0; i < g.n_ops; i++)
		assert(IS(dlb_cost_op_s(&c, i, 0, 32), >, 0) && isfinite(dlb_cost_op_s(&c, i, 2, 32)) &&
		       !c.measured[i]);
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_profile_release(&p);
	dlb_graph_release(&g);
}

/* A kind measured at some sizes or for some ops only has the rest from its roofline. */
static void test_gaps(void)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_graph g;
	struct dlb_profile p;
	struct dlb_cluster cl;
	struct dlb_cost c;
	double worst = 0;

	make_graph(&g, 20);
	dlb_profile_init(&p, &g, 32);
	measure(&g, &p, "cpu");
	for (int r = 0; r < p.n_rows; r++)
		for (int b = 0; b < p.n_batches; b++)
			if (r % 3 == 0 || (r % 3 == 1 && b > 1))
				p.row[r].time_s[0][b] = NAN;
	parse("cpu:1", &cl);
	check(dlb_cost_fit(&c, &g, &p, &cl, &err), &err);
	for (int r = 0; r < p.n_rows; r++) {
		int i = p.row[r].op[0];
		assert(IS(c.measured[i], ==, (r % 3 != 0)));
		for (int64_t n = 1; n <= 64; n++)
			worst = fmax(worst, fabs(dlb_cost_kind_s(&c, i, 0, (double)n) / truth(&g, i, n) - 1));
	}
	/* The true time has corners (max) between the sizes, so interpolation is not exact. */
	printf("gaps and interpolation: off by %.1f%% at worst\n", 100 * worst);
	assert(IS(worst, <, 0.15));
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_profile_release(&p);
	dlb_graph_release(&g);
}

/* Given times at batches 4 and 2: interpolated between, extrapolated above and below, never negative. */
static void test_interpolation(void)
{
	static const struct { double t4, t2, n, s; } cases[] = {
		{ 5, 3, 3, 4 }, { 5, 3, 4, 5 }, { 5, 3, 2, 3 }, { 5, 3, 1, 2 }, { 5, 3, 8, 9 },
		{ 10, 2, 1, 1 },	/* the line would give -2, so proportional */
		{ 2, 3, 1, 3 }, { 2, 3, 9, 2 },	/* noise: no falling line outside */
		{ INFINITY, INFINITY, 3, INFINITY },
	};
	int64_t batch[2] = { 4, 2 };
	double t[2];
	struct dlb_op o = { .phase = DLB_FORWARD };
	struct dlb_graph g = { .op = &o, .n_ops = 1, .batch = 4 };
	struct dlb_cost c = { .n_ops = 1,
			      .n_kinds = 1,
			      .n_batches = 2,
			      .batch = batch,
			      .op_s = t,
			      .graph = &g,
			      .update_scale = 1 };

	for (int i = 0; i < DLB_LEN(cases); i++) {
		t[0] = cases[i].t4;
		t[1] = cases[i].t2;
		double s = dlb_cost_kind_s(&c, 0, 0, cases[i].n);
		assert(s == cases[i].s || near(s, cases[i].s, 1e-12));
	}
}

/* A sum over micro-batches costs the measured time of the update that reads it, not an estimate from
 * memory. */
static void test_accumulate(void)
{
	struct dlb_graph g;
	struct dlb_profile p;
	struct dlb_cluster cl;
	struct dlb_cost c;
	struct dlb_error err = { .status = 0 };
	int updates = 0;

	make_graph(&g, 3);
	dlb_profile_init(&p, &g, 64);
	measure(&g, &p, "cpu");
	parse("cpu:1", &cl);
	check(dlb_cost_fit(&c, &g, &p, &cl, &err), &err);
	dlb_cost_set_optimizer(&c, dlb_optimizer_find("adam"));
	for (int i = 0; i < g.n_ops; i++) {
		if (g.op[i].phase != DLB_UPDATE)
			continue;
		const int t = g.op[i].in[1];
		const double s = truth(&g, i, 64);
		updates++;
		assert(near(dlb_cost_accumulate_s(&c, t, 64, 0, false), s, 1e-12) &&
		       near(dlb_cost_accumulate_s(&c, t, 64, 0, true), 2 * s / 3, 1e-12));
		g.op[i].phase = DLB_BACKWARD;			/* as if no op read it */
		assert(near(dlb_cost_accumulate_s(&c, t, 64, 0, false),
			    3 * dlb_tensor_bytes(&g.tensor[t], 64) / c.accumulate_Bps[0], 1e-12));
	}
	assert(IS(updates, ==, 3));
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_profile_release(&p);
	dlb_graph_release(&g);
}

static void test_section(void)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_graph g;
	struct dlb_profile p;
	struct dlb_cluster cl;
	struct dlb_cost c, back;
	struct dlb_doc d;

	make_graph(&g, 64);
	dlb_profile_init(&p, &g, 32);
	measure(&g, &p, "cpu");
	p.row[0].scratch_bytes[0][1] = 123;
	p.row[0].scratch_bytes[0][2] = 456;
	parse("cpu:2 cpu/2:1", &cl);
	cl.kind[1].without = (const char *[]){ "Relu" };
	cl.kind[1].n_without = 1;
	check(dlb_cost_fit(&c, &g, &p, &cl, &err), &err);
	dlb_doc_init(&d, "f.json");
	dlb_doc_set(&d, "cost", dlb_cost_write(&c));
	json_t *rows = json_object_get(dlb_doc_section(&d, "cost"), "rows");
	assert(IS(json_array_size(rows), ==, 13));	/* two of the five updates cost the same */
	check(dlb_cost_read(&d, &g, &cl, &back, &err), &err);
	for (int i = 0; i < g.n_ops; i++)
		for (int k = 0; k < 2; k++) {
			assert(IS(dlb_cost_kind_s(&c, i, k, 7), ==, dlb_cost_kind_s(&back, i, k, 7)));
			for (int n = 1; n < 40; n++) {
				const double x = dlb_cost_scratch_bytes(&c, i, k, n);

				assert(IS(x, ==, dlb_cost_scratch_bytes(&back, i, k, n)));
				/* measured at 32, 16, 8, 4 and 2 samples */
				if (i == p.row[0].op[0])
					assert(IS(x, ==, n >= 32 ? 0 : n >= 16 ? 123 : n >= 5 ? 456 : 0));
			}
			assert(IS(c.measured[k * g.n_ops + i], ==, back.measured[k * g.n_ops + i]));
		}
	dlb_cost_release(&back);

	json_t *ops = json_object_get(json_array_get(rows, 1), "ops"),
	       *was = json_deep_copy(dlb_doc_section(&d, "cost"));
	json_array_append_new(ops, json_integer(0));
	assert(IS(dlb_cost_read(&d, &g, &cl, &back, &err), ==, -1) && HAS(err.what, "already"));
	json_array_remove(ops, 0);
	dlb_doc_put(&d, "cost", json_deep_copy(was));
	json_object_set_new(json_array_get(json_object_get(dlb_doc_section(&d, "cost"), "rows"), 0), "measured",
			    json_pack("[s]", "gpu"));
	assert(IS(dlb_cost_read(&d, &g, &cl, &back, &err), ==, -1) && HAS(err.what, "no kind 'gpu'"));
	dlb_doc_put(&d, "cost", json_deep_copy(was));
	rows = json_object_get(dlb_doc_section(&d, "cost"), "rows");
	json_array_remove(rows, 3);
	assert(IS(dlb_cost_read(&d, &g, &cl, &back, &err), ==, -1) && HAS(err.what, "no costs for op"));
	dlb_doc_put(&d, "cost", was);
	json_array_append_new(json_object_get(json_object_get(json_array_get(json_object_get(was, "rows"), 0),
							      "time_s"),
					      "cpu"),
			      json_real(-1));
	assert(IS(dlb_cost_read(&d, &g, &cl, &back, &err), ==, -1) &&
	       HAS(err.where, "/cost/rows/0/time_s/cpu"));
	dlb_doc_release(&d);
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_profile_release(&p);
	dlb_graph_release(&g);
}

int main(void)
{
	test_profile();
	test_roofline();
	test_fits();
	test_kinds();
	test_gaps();
	test_interpolation();
	test_accumulate();
	test_section();
	puts("cost: profile rows, rooflines, interpolation, unmeasured kinds, missing kernels, sections");
	return 0;
}
