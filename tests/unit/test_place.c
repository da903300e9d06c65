/* Properties of placements on random training graphs (seeds are printed):
 *   every algorithm's plan passes dlb_plan_check and its programs verify, or it returns status 1;
 *   no step is shorter than the lower bound; the default rule is never worse than the best trivial plan, nor auto than
 *   anneal or refine of the same effort. */
#include "check.h"
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

int main(void)
{
	const int n = check_long() ? 48 : 6;

	for (int seed = 1; seed <= n; seed++)
		test_all_placers((uint64_t)seed);
	test_fixed_batch();
	printf("test_place: %d plans (%d refused) on seeds 1..%d\n", n_plans, n_refused, n);
	return 0;
}
