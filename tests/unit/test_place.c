/* Properties of placements on random training graphs (seeds are printed):
 *   every algorithm's plan passes dlb_plan_check and its programs verify, or it returns status 1;
 *   times of groups are sums over ops; etf places what it should by hand;
 *   no step is shorter than the lower bound; the default rule is never worse than the best trivial plan, nor auto than
 *   anneal or refine of the same effort. */
#include "check.h"
#include "fork.h"
#include "place_cases.h"
#include "place/bound.h"
#include "place/problem.h"
#include "place/value.h"

static int n_plans, n_refused;

static void test_all_placers(uint64_t seed)
{
	static const char *const clusters[] = { "cpu:1", "cpu:2", "cpu:1 cpu/4:1 cpu:1*0.5",
						"cpu:2 host cpu/2:2*0.25 cpu:1" };
	struct dlb_rng r;
	dlb_rng_init(&r, seed);
	struct dag_options o = { .seed = seed,
				 .n_forward = 2 + (int)dlb_rng_below(&r, 25),
				 .training = seed % 5 != 0,
				 .colocate = dlb_rng_uniform(&r),
				 .no_kernel = seed % 3 ? 0 : 0.2,
				 .cluster = clusters[seed % 4],
				 .batch = 4 + (int64_t)dlb_rng_below(&r, 40) };
	struct dag d;
	struct dlb_problem p;
	dag_init(&d, &o);
	if (seed % 7 == 0)				/* a memory limit now and then */
		for (int i = 0; i < d.cl.n_nodes; i++)
			d.cl.node[i].memory_bytes = 2e5 + 4e6 * dlb_rng_uniform(&r);
	double weight[8];
	for (int i = 0; i < 8; i++)
		weight[i] = 0.5 + dlb_rng_uniform(&r);
	problem(&p, &d, 1 + (int)dlb_rng_below(&r, 8), seed % 2 ? "1f1b" : "gpipe", seed % 2 ? weight : NULL,
		seed);
	double bound = dlb_lower_bound_s(&p), best_trivial = INFINITY, ranked, searched = INFINITY;
	for (const struct dlb_placer *x = dlb_placers; x->name; x++) {
		struct dlb_plan plan;
		struct dlb_error err = { .status = 0 };
		if (dlb_place(&p, x->name, &plan, &err)) {
			if (err.status != 1)
				if (strcmp(x->name, "even")) /* even ignores kernels: a node may lack one */
					die(x->name, seed, &err);
			n_refused++;
			continue;
		}
		assert(SAME(plan.winner, x->name) && plan.algorithm_given);
		if (dlb_plan_check(&plan, &d.c, &err))
			die(x->name, seed, &err);
		if (plan.value_s < bound)
			die("below the lower bound", seed, &err);
		ranked = dlb_place_value_s(&p, plan.placement);
		if (x->trivial && ranked < best_trivial)
			best_trivial = ranked;
		if (!strcmp(x->name, "auto"))		/* anneal and refine precede it in the table */
			assert(IS(ranked, <=, searched * (1 + 1e-12)));
		if (!strcmp(x->name, "anneal") || !strcmp(x->name, "refine"))
			searched = fmin(searched, ranked);
		for (int n = 0; n < plan.n_nodes; n++)
			assert(IS(plan.node[n].peak_bytes, <=, dlb_cluster_node_memory(&d.cl, n)));
		n_plans++;
		dlb_plan_release(&plan);
	}
	struct dlb_plan plan;
	struct dlb_error err = { .status = 0 };
	if (dlb_place(&p, NULL, &plan, &err) == 0) {
		ranked = dlb_place_value_s(&p, plan.placement);
		assert(IS(ranked, <=, best_trivial * (1 + 1e-12)) && !plan.algorithm_given);
		dlb_plan_release(&plan);
	} else {
		assert(isinf(best_trivial) && IS(err.status, ==, 1) &&
		       !strncmp(err.what, "no plan fits", 12));
	}
	dlb_problem_release(&p);
	dag_release(&d);
}

/* A batch that the model holds is taken whole: in one micro-batch, and of no other size. */
static void test_fixed_batch(void)
{
	static const struct {
		int micro_batches;
		int64_t batch;
		bool taken;
	} rows[] = { { 1, 12, true }, { 2, 12, false }, { 1, 6, false }, { 1, 13, false } };
	struct dlb_rng r;
	struct dag d;
	dlb_rng_init(&r, 3);
	random_training(&d, 3, "cpu:1", &r);
	d.g.fixed_batch = true;
	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_error err = { .what = "" };
		struct dlb_problem p = { .graph = &d.g,
					 .cluster = &d.cl,
					 .cost = &d.c,
					 .micro_batches = rows[i].micro_batches,
					 .batch = rows[i].batch,
					 .schedule = dlb_schedule_find("1f1b") };
		assert(IS(d.g.batch, ==, 12) && IS(dlb_problem_init(&p, &err), ==, rows[i].taken ? 0 : -1));
		assert(rows[i].taken || HAS(err.what, "its batch of 12 in one micro-batch"));
		if (rows[i].taken)
			dlb_problem_release(&p);
	}
	dag_release(&d);
}

/* Times of groups: on each node the sum over their ops and micro-batches, with its kappa and weight, and with its
 * memory, if it names one. */
static void test_times(void)
{
	const double weight[3] = { 1.25, .5, 1.25 }, kappa[3] = { 1, 1.25, 3 };
	struct dag_options o = { .seed = 5,
				 .n_forward = 10,
				 .training = true,
				 .colocate = .5,
				 .cluster = "cpu:2 cpu:1*0.5",
				 .batch = 14 };
	struct dlb_problem p = { .micro_batches = 4,
				 .batch = 14,
				 .schedule = dlb_schedule_find("1f1b"),
				 .weight = weight,
				 .kappa = kappa };
	struct dlb_error err = { .what = "" };
	struct dag d;
	double memory_s = 0;

	dag_init(&d, &o);
	const int m = dlb_cluster_add_memory(&d.cl, 0, "slow", "cxl", 1e9);
	d.cl.memory[m].bandwidth_Bps = 1e7;
	d.cl.memory[m].users = 1;
	d.cl.node[1].memory[0] = m;
	d.cl.node[1].n_memories = 1;
	for (int i = 0; i < d.g.n_ops; i++)
		d.g.op[i].bytes = 1e5; /* of a sample: 10 ms */
	p.graph = &d.g;
	p.cluster = &d.cl;
	p.cost = &d.c;
	if (dlb_problem_init(&p, &err))
		die("times", 5, &err);
	for (int g = 0; g < p.n_groups; g++)
		for (int n = 0; n < 3; n++) {
			double s = 0;
			for (int i = 0; i < d.g.n_ops; i++)
				for (int k = 0; k < 4 && p.group_of[i] == g;
				     k++) { /* 4, 4, 3, 3 samples; an update once */
					const bool once = d.g.op[i].phase == DLB_UPDATE;
					s += once && k ? 0 : dlb_cost_op_s(&d.c, i, n, k < 2 ? 4 : 3);
				}
			memory_s += n == 1 ? s : n == 0 ? -s : 0;
			s *= kappa[n] / weight[n];
			assert(IS(fabs(dlb_time_s(&p, g, n) - s), <=, 1e-9 * s));
		}
	assert(IS(memory_s, >, 0)); /* the memory makes its node slower */
	dlb_problem_release(&p);
	dag_release(&d);
}

/* Of ops that could start together, etf takes the one with the longest way to the end first: here the longest one. */
static void test_etf(void)
{
	static const int ms[] = { 1, 2, 3, 4, 6 }, node[] = { 1, 0, 1, 1, 0 };
	struct dlb_error err = { .what = "" };
	struct dlb_problem p;
	struct fork f;
	int placement[DLB_LEN(ms) + 1];

	fork_init(&f, DLB_LEN(ms), "cpu:2");
	for (int i = 0; i < DLB_LEN(ms); i++)
		fork_time(&f.c, 0, i, ms[i] * FORK_MS);
	p = (struct dlb_problem){ .graph = &f.g,
				  .cluster = &f.cl,
				  .cost = &f.c,
				  .micro_batches = 1,
				  .batch = FORK_BATCH,
				  .schedule = dlb_schedule_find("1f1b") };
	fork_must(dlb_problem_init(&p, &err), &err);
	for (const struct dlb_placer *x = dlb_placers; x->name; x++)
		if (!strcmp(x->name, "etf"))
			fork_must(x->place(&p, placement, &err), &err);
	for (int i = 0; i < DLB_LEN(ms); i++)
		assert(IS(placement[i], ==, node[i]));
	dlb_problem_release(&p);
	fork_release(&f);
}

int main(void)
{
	const int n = check_long() ? 48 : 6;

	for (int seed = 1; seed <= n; seed++)
		test_all_placers((uint64_t)seed);
	test_fixed_batch();
	test_times();
	test_etf();
	printf("test_place: %d plans (%d refused) on seeds 1..%d\n", n_plans, n_refused, n);
	return 0;
}
