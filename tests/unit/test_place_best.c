/* Quality of placements on random training graphs (seeds are printed):
 *   up to 8 ops on 3 nodes, brute force finds no plan below the bound, and the default algorithm finds the optimum;
 *   for two nodes, proportional is within 5 % of the best contiguous cut;
 *   a node of double weight gets more work, and stated predictions ignore weights;
 *   a placement stays unless another is better;
 *   a pipeline cut again has the least slowest part of all cuts in its order of nodes. */
#include "check.h"
#include "place_cases.h"
#include "place/bound.h"
#include "place/contiguous.h"
#include "place/problem.h"
#include "place/recut.h"
#include "place/value.h"

static double worst_cut = 1, sum_brute, worst_brute = 1;
static int n_brute;

static void test_brute_force(uint64_t seed)
{
	static const char *const clusters[] = { "cpu:2 cpu:1*0.5", "cpu:1 host cpu:2 link=rack:1e-6,1e8",
						"cpu:1 cpu/4:1 cpu:1*0.3" };
	struct dag_options o = { .seed = seed,
				 .n_forward = 2 + (int)(seed % 6),
				 .training = seed % 2,
				 .colocate = 0.5,
				 .no_kernel = seed % 3 ? 0 : 0.3,
				 .cluster = clusters[seed % 3],
				 .batch = 16 };
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan;
	struct dlb_error err;
	dag_init(&d, &o);
	if (d.g.n_ops > 8) {
		dag_release(&d);
		return;
	}
	problem(&p, &d, 4, "1f1b", NULL, seed);
	int placement[8], n = 1;
	double best = INFINITY;
	for (int g = 0; g < p.n_groups; g++)
		n *= 3;
	for (int k = 0; k < n; k++) {
		for (int i = 0; i < d.g.n_ops; i++) {
			int x = k;
			for (int g = 0; g < p.group_of[i]; g++)
				x /= 3;
			placement[i] = x % 3;
		}
		double v = dlb_place_value_s(&p, placement);
		best = v < best ? v : best;
	}
	assert(IS(best, >=, dlb_lower_bound_s(&p)));
	if (dlb_place(&p, NULL, &plan, &err)) {
		if (isfinite(best))
			die("default", seed, &err);
		dlb_problem_release(&p);
		dag_release(&d);
		return;
	}
	assert(IS(plan.value_s, >=, best * (1 - 1e-12)));
	double ratio = plan.value_s / best;
	if (ratio > 1 + 1e-9) {
		fprintf(stderr, "seed %llu: auto %g s, the best of all placements %g s\n",
			(unsigned long long)seed, plan.value_s, best);
		abort();
	}
	sum_brute += ratio;
	worst_brute = ratio > worst_brute ? ratio : worst_brute;
	n_brute++;
	dlb_plan_release(&plan);
	dlb_problem_release(&p);
	dag_release(&d);
}

static void test_two_way_cuts(uint64_t seed)
{
	static const char *const clusters[] = { "cpu:2", "cpu:1 cpu:1*0.5", "cpu:1*0.3 host cpu:1" };
	struct dag_options o = { .seed = seed,
				 .n_forward = 6 + (int)(seed % 40),
				 .training = seed % 6 != 0,
				 .chain = seed % 2,
				 .colocate = 0.3,
				 .cluster = clusters[seed % 3],
				 .batch = 32 };
	struct dag d;
	struct dlb_problem p;
	struct dlb_units u;
	struct dlb_plan plan;
	struct dlb_error err;
	dag_init(&d, &o);
	problem(&p, &d, 8, seed % 4 ? "1f1b" : "gpipe", NULL, seed);
	dlb_units_init(&u, &p);
	int *placement = malloc((size_t)d.g.n_ops * sizeof *placement);
	double best = INFINITY;
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i <= u.n; i++) {
			int start[3] = { 0, i, u.n }, node[2] = { turn, 1 - turn };
			dlb_units_place(&u, &p, 2, start, node, placement);
			double v = dlb_place_value_s(&p, placement);
			best = v < best ? v : best;
		}
	}
	if (dlb_place(&p, "proportional", &plan, &err))
		die("proportional", seed, &err);
	double single = INFINITY;	/* a cut at either end is allowed: then compare with single too */
	for (int n = 0; n < 2; n++) {
		for (int i = 0; i < d.g.n_ops; i++)
			placement[i] = n;
		double v = dlb_place_value_s(&p, placement);
		single = v < single ? v : single;
	}
	double ratio = (plan.value_s < single ? plan.value_s : single) / best;
	worst_cut = ratio > worst_cut ? ratio : worst_cut;
	if (ratio > 1.05) {
		fprintf(stderr, "seed %llu: proportional %g s, best cut %g s\n", (unsigned long long)seed,
			plan.value_s, best);
		abort();
	}
	free(placement);
	dlb_plan_release(&plan);
	dlb_units_release(&u);
	dlb_problem_release(&p);
	dag_release(&d);
}

/* Both nodes have equal costs. The node with double weight gets more work from every algorithm that balances
 * work, and stated predictions use the costs. */
static void test_weights(uint64_t seed)
{
	struct dag_options o = { .seed = seed,
				 .n_forward = 40,
				 .training = true,
				 .chain = true,
				 .colocate = 1,
				 .cluster = "cpu:2",
				 .batch = 64 };
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan;
	struct dlb_error err;
	dag_init(&d, &o);
	static const char *const names[] = { "proportional", "greedy", NULL };
	for (int k = 0; k < 3; k++) {
		double share[2];
		for (int heavy = 0; heavy < 2; heavy++) {
			double weight[2] = { heavy ? 2 : 4, heavy ? 4 : 2 };
			problem(&p, &d, 8, "1f1b", weight, seed);
			if (dlb_place(&p, names[k], &plan, &err))
				die("weights", seed, &err);
			share[heavy] = plan.node[heavy].busy_s / (plan.node[0].busy_s + plan.node[1].busy_s);
			double busy = 0, stated = 0;
			for (int i = 0; i < d.g.n_ops; i++)
				for (int m = 0; m < (d.g.op[i].phase == DLB_UPDATE ? 1 : 8); m++)
					stated += dlb_cost_op_s(&d.c, i, plan.placement[i], 8);
			busy = plan.node[0].busy_s + plan.node[1].busy_s;
			/* plus sums of gradients */
			assert(IS(busy, >=, stated * (1 - 1e-9)) && IS(busy, <, stated * 1.1));
			dlb_plan_release(&plan);
			dlb_problem_release(&p);
		}
		if (!(share[0] > 0.58 && share[1] > 0.58)) {
			fprintf(stderr, "seed %llu: %s gives a node of double weight %g and %g of the work\n",
				(unsigned long long)seed, names[k] ? names[k] : "default", share[0],
				share[1]);
			abort();
		}
	}
	dag_release(&d);
}

/* A placement is kept unless the new one is better by more than half a per cent. */
static void test_again(void)
{
	struct dag_options o = { .seed = 77,
				 .n_forward = 30,
				 .training = true,
				 .chain = true,
				 .colocate = 1,
				 .cluster = "cpu:2",
				 .batch = 64 };
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan, next;
	struct dlb_error err;
	bool kept = false;
	dag_init(&d, &o);
	problem(&p, &d, 8, "1f1b", NULL, 77);
	if (dlb_place(&p, NULL, &plan, &err) || dlb_place_again(&p, NULL, plan.placement, &next, &kept, &err))
		die("again", 77, &err);
	assert(kept && IS(next.moved_ops, ==, 0) && SAME(next.hash, plan.hash));
	dlb_plan_release(&next);
	for (int i = 0; i < d.g.n_ops; i++)
		plan.placement[i] = 0;
	if (dlb_place_again(&p, NULL, plan.placement, &next, &kept, &err))
		die("again", 77, &err);
	assert(!kept && IS(next.moved_ops, >, 0));
	dlb_plan_release(&next);
	dlb_plan_release(&plan);
	dlb_problem_release(&p);
	dag_release(&d);
}

/* Seconds of the slowest part of the best cut of units 0 .. n - 1 over the first k nodes of an order. */
static double least_slowest_s(const struct dlb_units *u, const struct dlb_problem *p, const int *order, int k,
			      int n)
{
	double best = n ? INFINITY : 0, part = 0;

	for (int i = n; k && i >= 0; i--) {
		const double before = part < best ? least_slowest_s(u, p, order, k - 1, i) : INFINITY;

		best = fmin(best, fmax(before, part));
		part += i ? dlb_unit_s(u, p, i - 1, order[k - 1]) : 0;
	}
	return best;
}

static void test_recut(uint64_t seed)
{
	static const double weight[] = { 1, 1, 0.5, 1 };
	static const int node[] = { 3, 0, 2, 1 };
	const struct dag_options o = { .seed = seed,
				       .n_forward = 14,
				       .training = true,
				       .chain = true,
				       .colocate = 1,
				       .cluster = "cpu:4",
				       .batch = 64 };
	struct dag d;
	struct dlb_problem p;
	struct dlb_units u;
	int *before, *after, start[5], last = 0;
	double load[4] = { 0 }, slowest = 0;

	dag_init(&d, &o);
	problem(&p, &d, 8, "1f1b", weight, seed);
	dlb_units_init(&u, &p);
	before = malloc((size_t)d.g.n_ops * sizeof *before);
	after = malloc((size_t)d.g.n_ops * sizeof *after);
	for (int k = 0; k < 5; k++)
		start[k] = u.n * k / 4;
	dlb_units_place(&u, &p, 4, start, node, before);
	assert(dlb_place_recut(&p, before, after));
	for (int g = 0; g < p.n_groups; g++)
		load[after[p.group_op[p.group_start[g]]]] += dlb_time_s(&p, g,
									after[p.group_op[p.group_start[g]]]);
	for (int k = 0; k < 4; k++)
		slowest = fmax(slowest, load[k]);
	assert(IS(fabs(slowest / least_slowest_s(&u, &p, node, 4, u.n) - 1), <, 2e-6));
	/* the nodes keep their order */
	for (int i = 0; i < d.g.n_ops; i++) {
		int at = 0;

		while (node[at] != after[i])
			at++;
		if (d.g.op[i].phase == DLB_FORWARD) {
			assert(IS(at, >=, last));
			last = at;
		}
	}
	/* units of two nodes by turns are no pipeline */
	for (int i = 0; i < d.g.n_ops; i++)
		before[i] = u.of_group[p.group_of[i]] % 2;
	assert(!dlb_place_recut(&p, before, after));
	free(before);
	free(after);
	dlb_units_release(&u);
	dlb_problem_release(&p);
	dag_release(&d);
}

/* In a run a large graph is cut again; the plan that is there stays if that is no better. */
static void test_again_in_run(void)
{
	static const double even[] = { 1, 1, 1 }, slow[] = { 1, 0.5, 1 };
	const struct dag_options o = { .seed = 5,
				       .n_forward = 1200,
				       .training = true,
				       .chain = true,
				       .colocate = 1,
				       .cluster = "cpu:3",
				       .batch = 64 };
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan, next;
	struct dlb_error err;
	bool kept;

	dag_init(&d, &o);
	problem(&p, &d, 8, "1f1b", even, 5);
	assert(dlb_problem_is_large(&p));
	if (dlb_place(&p, "proportional", &plan, &err))
		die("proportional", 5, &err);
	dlb_problem_release(&p);
	problem(&p, &d, 8, "1f1b", slow, 5);
	p.in_run = true;
	if (dlb_place_again(&p, NULL, plan.placement, &next, &kept, &err))
		die("again", 5, &err);
	assert(!kept && SAME(next.winner, "proportional") && IS(next.moved_ops, >, 0));
	assert(IS(dlb_place_value_s(&p, next.placement), <, 0.95 * dlb_place_value_s(&p, plan.placement)));
	dlb_plan_release(&plan);
	plan = next;
	if (dlb_place_again(&p, NULL, plan.placement, &next, &kept, &err))
		die("again", 5, &err);
	assert(kept && SAME(next.hash, plan.hash));
	dlb_plan_release(&next);
	dlb_plan_release(&plan);
	dlb_problem_release(&p);
	dag_release(&d);
}

int main(void)
{
	for (int seed = 1; seed <= check_cases(24); seed++)
		test_brute_force((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(60); seed++)
		test_two_way_cuts((uint64_t)seed);
	for (int seed = 1; seed <= check_cases(6); seed++)
		test_weights((uint64_t)seed);
	test_again();
	for (int seed = 1; seed <= check_cases(8); seed++)
		test_recut((uint64_t)seed);
	test_again_in_run();
	printf("test_place_best: brute force on %d graphs: mean %.3f, worst %.3f of the best; two-way cuts "
	       "on %d graphs: worst %.4f of the best; weights; staying; cuts again\n",
	       n_brute, sum_brute / (n_brute ? n_brute : 1), worst_brute, check_cases(60), worst_cut);
	return 0;
}
