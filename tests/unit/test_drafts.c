/* Work that is not done twice, on random training graphs (seeds are printed):
 *   a second search of divisions into replicas makes no draft again and finds the same plan;
 *   where memory is not scarce, ops that run again ask for no draft and no search; where it is, they do;
 *   a plan made to compare, made again, is the plan made with all effort at once;
 *   no plan is faster than the bound of its pool of nodes. */
#include "check.h"
#include "place_cases.h"
#include "place/bound.h"
#include "place/drafts.h"
#include "place/make.h"
#include "place/replicas.h"
#include "plan/sharing.h"

static int n_tried;
static void count(void *arg, const char *name, double ranked_s, double value_s, const struct dlb_error *err)
{
	(void)arg, (void)name, (void)ranked_s, (void)value_s, (void)err;
	n_tried++;
}

static const struct dlb_recompute chosen = { .chosen = true };

/* A problem over a graph of so many forward ops; d: released by the caller. */
static void start(struct dag *d, struct dlb_problem *p, uint64_t seed, double memory_bytes, bool again)
{
	const struct dag_options o = { .seed = seed,
				       .n_forward = 4 + (int)(seed % 5),
				       .training = true,
				       .cluster = "cpu:2 host cpu:2*0.5 link=rack:1e-6,1e8",
				       .batch = 16 };
	dag_init(d, &o);
	for (int i = 0; memory_bytes > 0 && i < d->cl.n_nodes; i++)
		d->cl.node[i].memory_bytes = memory_bytes;
	problem(p, d, 2, "1f1b", NULL, seed);
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

/* The ranked step of the best plan of any number of replicas; INFINITY: none. tried: candidates placed for it. */
static double search(struct dlb_problem *p, struct dlb_plan *plan, int *tried)
{
	struct dlb_replicas_choice c = { .n = 0 };
	bool kept;
	dlb_sharing_init(&c.sharing);
	c.sharing.allreduce = DLB_ALLREDUCE_AUTO;
	n_tried = 0;
	const int rc = dlb_place_replicas(p, &c, NULL, NULL, plan, NULL, &kept, NULL);
	*tried = n_tried;
	return rc ? INFINITY : plan->value_s;
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

int main(void)
{
	for (int seed = 1; seed <= check_cases(6); seed++) {
		test_again((uint64_t)seed);
		test_scarce((uint64_t)seed);
		test_remake((uint64_t)seed);
	}
	assert(n_less > 0);
	printf("test_drafts: %d searches with known drafts, %d of them shorter; %d not made at all\n",
	       check_cases(6), n_less, n_none);
	return 0;
}
