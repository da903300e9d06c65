/* Work that is not done twice, on random training graphs (seeds are printed):
 *   a second search of divisions into replicas makes no draft again and finds the same plan;
 *   where memory is not scarce, ops that run again ask for no draft and no search; where it is, they do;
 *   a plan made to compare, made again, is the plan made with all effort at once, and never slower;
 *   no plan is faster than the bound of its pool of nodes, nor than that of its sums;
 *   what is left out, as others are faster, is never the best: the best of any number of replicas is that of the best
 *   number;
 *   replicas that are alike share one order, which is what each would have;
 *   what is sorted has the same order whichever pairs qsort compares. */
#define _GNU_SOURCE /* qsort_r */
#include "check.h"
#include "place_cases.h"
#include "place/bound.h"
#include "place/drafts.h"
#include "place/make.h"
#include "place/replicas.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "plan/sums.h"

/* What an order given to qsort says of a and b and of b and a has opposite signs. Else its result would
 * depend on the pairs that the C library's qsort compares. */
static int both_ways(const void *a, const void *b, void *arg)
{
	int (*const *order)(const void *, const void *) = arg;
	const int forth = (*order)(a, b), back = (*order)(b, a);
	assert(IS((forth > 0) - (forth < 0), ==, (back < 0) - (back > 0)));
	return forth;
}

void qsort(void *list, size_t n, size_t size, int (*order)(const void *, const void *))
{
	qsort_r(list, n, size, both_ways, &order);
}

static int n_tried;
static void count(void *arg, const char *name, double ranked_s, double value_s, const struct dlb_error *err)
{
	(void)arg, (void)name, (void)ranked_s, (void)value_s, (void)err;
	n_tried++;
}

static const struct dlb_recompute chosen = { .chosen = true };

/* A problem over a graph of so many forward ops, of M micro-batches; d: released by the caller. */
static void start_with(struct dag *d, struct dlb_problem *p, uint64_t seed, int n_forward, int M,
		       const char *schedule, double memory_bytes, bool again)
{
	const struct dag_options o = { .seed = seed,
				       .n_forward = n_forward,
				       .training = true,
				       .cluster = "cpu:2 host cpu:2*0.5 link=rack:1e-6,1e8",
				       .batch = 16 };
	dag_init(d, &o);
	for (int i = 0; memory_bytes > 0 && i < d->cl.n_nodes; i++)
		d->cl.node[i].memory_bytes = memory_bytes;
	problem(p, d, M, schedule, NULL, seed);
	p->compared = true;
	p->tried = count;
	if (again) {
		struct dlb_error err;
		dlb_problem_release(p);
		p->recompute = &chosen;
		if (dlb_problem_init(p, &err))
			die("problem", seed, &err);
	}
}

static void start(struct dag *d, struct dlb_problem *p, uint64_t seed, double memory_bytes, bool again)
{
	start_with(d, p, seed, 4 + (int)(seed % 5), 2, "1f1b", memory_bytes, again);
}

/* The ranked step of the best plan of R replicas (0: any number); INFINITY: none. tried: candidates placed
 * for it. */
static double search_of(struct dlb_problem *p, int R, struct dlb_plan *plan, int *tried)
{
	struct dlb_replicas_choice c = { .n = R };
	bool kept;
	dlb_sharing_init(&c.sharing);
	c.sharing.allreduce = DLB_ALLREDUCE_AUTO;
	n_tried = 0;
	const int rc = dlb_place_replicas(p, &c, plan, NULL, &kept, NULL);
	*tried = n_tried;
	return rc ? INFINITY : plan->value_s;
}

static double search(struct dlb_problem *p, struct dlb_plan *plan, int *tried)
{
	return search_of(p, 0, plan, tried);
}

static void release(struct dag *d, struct dlb_problem *p, struct dlb_plan *plan)
{
	dlb_plan_release(plan);
	dlb_problem_release(p);
	dag_release(d);
}

static int n_less, n_none;

static void test_again(uint64_t seed)
{
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan = { .n_ops = 0 }, other = { .n_ops = 0 };
	struct dlb_drafts drafts = { .n = 0 };
	int first, second, none;
	start(&d, &p, seed, 0, false);
	p.drafts = &drafts;
	const double s = search(&p, &plan, &first), pool_s = dlb_pool_bound_s(&p, p.class_count);
	const int n = drafts.n;
	assert(IS(n, >, 0));
	assert(IS(s, >=, pool_s));
	assert(IS(search(&p, &other, &second), ==, s));
	assert(IS(drafts.n, ==, n));
	assert(IS(second, <=, first));
	assert(!strcmp(plan.hash, other.hash));
	n_less += second < first;
	dlb_plan_release(&other);

	struct dlb_problem again = p;
	struct dlb_error err;
	again.recompute = &chosen;
	if (dlb_problem_init(&again, &err))
		die("problem", seed, &err);
	again.draft = true;
	assert(isinf(search(&again, &other, &none))); /* all are known, and there is a plan of them */
	assert(IS(none, ==, 0));
	assert(IS(drafts.n, ==, n));
	n_none++;
	dlb_problem_release(&again);
	dlb_drafts_release(&drafts);
	release(&d, &p, &plan);
}

/* Memory that is too little for the fastest plan: with ops that run again, drafts are made. */
static void test_scarce(uint64_t seed)
{
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan = { .n_ops = 0 }, other = { .n_ops = 0 };
	struct dlb_drafts drafts = { .n = 0 };
	int tried;
	start(&d, &p, seed, 0, false);
	assert(isfinite(search(&p, &plan, &tried)));
	double least = INFINITY;
	for (int node = 0; node < plan.n_nodes; node++)
		if (plan.node[node].peak_bytes > 0)
			least = fmin(least, plan.node[node].peak_bytes);
	release(&d, &p, &plan);

	start(&d, &p, seed, least * 0.9, false);
	p.drafts = &drafts;
	search(&p, &plan, &tried);
	const int n = drafts.n;
	bool scarce = false;
	for (int i = 0; i < n; i++)
		scarce |= drafts.at[i].scarce;
	assert(scarce);
	release(&d, &p, &plan);
	start(&d, &p, seed, least * 0.9, true);
	p.drafts = &drafts;
	search(&p, &other, &tried);
	assert(IS(drafts.n, >, n));
	assert(IS(tried, >, 0));
	dlb_drafts_release(&drafts);
	release(&d, &p, &other);
}

static void test_remake(uint64_t seed)
{
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan, whole;
	struct dlb_error err;
	int tried;
	start(&d, &p, seed, 0, false);
	assert(isfinite(search(&p, &plan, &tried)));
	const double s = plan.value_s;
	assert(!plan.timeline && plan.bound_s == 0);
	if (dlb_plan_remake(&p, &plan, &err))
		die("made again", seed, &err);
	assert(plan.timeline && plan.bound_s > 0);
	assert(IS(plan.value_s, ==, s));
	p.compared = false;
	assert(IS(search(&p, &whole, &tried), ==, s));
	assert(!strcmp(plan.hash, whole.hash));
	assert(IS(plan.bound_s, ==, whole.bound_s));
	assert(!strcmp(plan.winner, whole.winner));
	for (int node = 0; node < plan.n_nodes; node++)
		assert(IS(plan.node[node].peak_bytes, ==, whole.node[node].peak_bytes));
	dlb_plan_release(&whole);
	release(&d, &p, &plan);
}

/* Made with all effort, other ops run again than in the plan that was compared, and the step is longer: then
 * the plan keeps its order. */
static void test_remake_slower(void)
{
	enum { SEED = 1, N_FORWARD = 13, M = 8 };
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan, whole;
	struct dlb_error err;
	double most = 0;
	int tried;
	start_with(&d, &p, SEED, N_FORWARD, M, "zero-bubble", 0, false);
	assert(isfinite(search_of(&p, 1, &plan, &tried)));
	for (int node = 0; node < plan.n_nodes; node++)
		most = fmax(most, plan.node[node].peak_bytes);
	release(&d, &p, &plan);
	start_with(&d, &p, SEED, N_FORWARD, M, "zero-bubble", .75 * most, true);
	const double s = search_of(&p, 1, &plan, &tried);
	struct dlb_problem all = p;
	all.compared = false;
	if (dlb_plan_make(&all, plan.placement, &whole, NULL, &err) || dlb_plan_remake(&p, &plan, &err))
		die("made again", SEED, &err);
	assert(IS(whole.value_s, >, s));
	assert(IS(plan.value_s, ==, s));
	assert(plan.timeline && plan.bound_s > 0);
	dlb_plan_release(&whole);
	release(&d, &p, &plan);
}

static int n_sums, n_near;

/* memory_bytes 0: enough. */
static void test_limits(uint64_t seed, double memory_bytes)
{
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan = { .n_ops = 0 }, one = { .n_ops = 0 };
	double least_s = INFINITY;
	int tried;
	start(&d, &p, seed, memory_bytes, false);
	p.draft = true;
	const double s = search(&p, &plan, &tried);
	for (int R = 1; R <= d.cl.n_nodes; R++) {
		const double of_s = search_of(&p, R, &one, &tried);
		least_s = fmin(least_s, of_s);
		if (isinf(of_s))
			continue;
		if (R > 1) {
			const double sums = dlb_plan_sums_bound_s(&one, p.cost, one.placement);
			assert(IS(sums, >, 0));
			assert(IS(sums, <=, one.value_s));
			n_sums++;
			n_near += sums > one.value_s / 2;
		}
		dlb_plan_release(&one);
	}
	assert(IS(s, ==, least_s));
	release(&d, &p, &plan);
}

static int n_alike;

/* A cluster of two hosts of two nodes each, the second half as fast where it is unlike. */
static void test_alike(uint64_t seed, bool unlike)
{
	const struct dag_options o = { .seed = seed,
				       .n_forward = 6,
				       .training = true,
				       .cluster = unlike ? "cpu:2 host cpu:2*0.5" : "cpu:2 host cpu:2",
				       .batch = 16 };
	static const int inside[] = { 0, 1, -1, -1, 2, 3, -1, -1 }, turned[] = { 0, 1, -1, -1, 3, 2, -1, -1 };
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan, one;
	int alike[2];
	int64_t share[2];
	dag_init(&d, &o);
	problem(&p, &d, 4, "1f1b", NULL, seed);
	dlb_plan_init(&plan, d.g.n_ops, d.cl.n_nodes);
	plan.graph = &d.g;
	plan.batch = 16;
	plan.micro_batches = 4;
	plan.schedule = "1f1b";
	dlb_sharing_init(&plan.sharing);
	for (int i = 0; i < plan.n_ops; i++)
		plan.placement[i] = p.group_of[i] * 2 / p.n_groups;
	dlb_plan_set_replicas(&plan, 2, turned); /* equal times would be in another order */
	dlb_plan_alike(&plan, &d.cl, p.ranked_scale, alike);
	assert(IS(alike[1], ==, 1));
	dlb_plan_set_replicas(&plan, 2, inside);
	dlb_plan_alike(&plan, &d.cl, p.ranked_scale, alike);
	assert(IS(alike[0], ==, 0));
	assert(IS(alike[1], ==, unlike ? 1 : 0));
	n_alike += !unlike;
	const double s = dlb_plan_order(&plan, &d.c, p.ranked_scale);
	double longest = 0;
	dlb_plan_shares(&plan, plan.batch, share);
	for (int r = 0; r < 2; r++) {
		dlb_plan_of_replica(&plan, r, share[r], &one);
		longest = fmax(longest, dlb_schedule_order(&one, &d.c, p.schedule, p.ranked_scale));
		for (int k = 2 * r; k < 2 * r + 2; k++) {
			assert(IS(one.node[k].n_order, ==, plan.node[k].n_order));
			for (int i = 0; i < one.node[k].n_order; i++) {
				assert(IS(one.node[k].order[i].op, ==, plan.node[k].order[i].op));
				assert(IS(one.node[k].order[i].micro_batch, ==,
					  plan.node[k].order[i].micro_batch));
			}
		}
		dlb_plan_release(&one);
	}
	assert(IS(s, ==, longest));
	dlb_plan_release(&plan);
	dlb_problem_release(&p);
	dag_release(&d);
}

/* The slow nodes come first, so that an order by speed changes that of the cluster. */
static void test_slow_first(void)
{
	const struct dag_options o = {
		.seed = 1, .n_forward = 6, .training = true, .cluster = "cpu:2*0.5 host cpu:2", .batch = 16
	};
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan;
	int tried;
	dag_init(&d, &o);
	problem(&p, &d, 2, "1f1b", NULL, o.seed);
	p.tried = count;
	assert(isfinite(search_of(&p, 2, &plan, &tried)));
	release(&d, &p, &plan);
}

static int n_as_many;

/* Drafts with as many micro-batches as samples, but for one, are those with as many, where each replica has
 * fewer. */
static void test_samples(uint64_t seed)
{
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan alone = { .n_ops = 0 }, plan = { .n_ops = 0 };
	struct dlb_drafts drafts = { .n = 0 }, others = { .n = 0 };
	int all, few;
	start(&d, &p, seed, 0, false);
	p.draft = true;
	const int batch = (int)p.batch;
	for (int turn = 0; turn < 3; turn++) {
		struct dlb_problem q = p;
		struct dlb_error err;
		struct dlb_plan *to = turn ? &plan : &alone;
		q.micro_batches = turn == 1 ? batch - 1 : batch;
		if (dlb_problem_init(&q, &err))
			die("problem", seed, &err);
		q.drafts = turn ? &drafts : &others;
		dlb_plan_release(to);
		assert(isfinite(search(&q, to, turn ? &few : &all)));
		dlb_problem_release(&q);
	}
	assert(IS(plan.value_s, ==, alone.value_s));
	assert(!strcmp(plan.hash, alone.hash));
	n_as_many += few < all;
	dlb_drafts_release(&drafts);
	dlb_drafts_release(&others);
	dlb_plan_release(&alone);
	release(&d, &p, &plan);
}

int main(void)
{
	for (int seed = 1; seed <= check_cases(6); seed++) {
		test_again((uint64_t)seed);
		test_scarce((uint64_t)seed);
		test_samples((uint64_t)seed);
		test_remake((uint64_t)seed);
		test_limits((uint64_t)seed, 0);
		test_limits((uint64_t)seed, 3e4);
		test_alike((uint64_t)seed, seed % 2);
	}
	assert(n_less > 0);
	assert(n_as_many > 0);
	test_remake_slower();
	test_slow_first();
	printf("test_drafts: %d searches with known drafts, %d of them shorter; %d not made at all; %d "
	       "bounds of sums, %d "
	       "above half of the step; %d pairs of replicas alike\n",
	       check_cases(6), n_less, n_none, n_sums, n_near, n_alike);
	return 0;
}
