/* Kept results of the choice of schedule and number of micro-batches, with plans of simple placers and with
 * outlines that a case states: every trial, every remark, and the order of all calls. kept.h says how they
 * are replaced. */
#include "place_worlds.h"
#include "place/drafts.h"
#include "place/replicas.h"
#include "place/schedules.h"
#include "plan/sharing.h"

static const char *const kept[] = {
#include "schedules_kept.inc"
};

/* outline: in parts of the step of the first plan, by the
 * number of micro-batches: that of M at [log2 M], half-way numbers at the next lower one. fits_from: the
 * least M with a plan. spent: the part of the effort that is spent before. */
enum { MANY = 206 }; /* forward ops of a model of more than 500 ops */

static const struct trial_case {
	const char *name, *cluster, *algorithm;
	int n_forward, given, replicas, fits_from, effort;
	int64_t batch;
	double spent, outline[9];
	bool silent, chain; /* many ops are always a chain */
} cases[] = {
	{ "few", "cpu:2", "proportional", 6, .batch = 16, .chain = true },
	{ "few, batch 1", "cpu:2", "proportional", 6, .batch = 1 },
	{ "few, batch 2", "cpu:2", "even", 6, .batch = 2, .chain = true },
	{ "few, batch 3", "cpu:2*0.5", "even", 6, .batch = 3, .chain = true },
	{ "few, batch 5, 5 nodes", "cpu:5", "even", 9, .batch = 5, .chain = true },
	{ "few, batch 300", "cpu:3", "even", 5, .batch = 300, .chain = true },
	{ "few, given", "cpu:2 cpu:1*0.5", "greedy", 8, .batch = 12, .given = 3 },
	{ "few, given 1", "cpu:2 cpu:1*0.5", "greedy", 8, .batch = 12, .given = 1, .chain = true },
	{ "few, of a user", "cpu:3", "heft", 8, .batch = 12, .silent = true },
	{ "none fits", "cpu:2", "even", 4, .batch = 24, .fits_from = 99, .chain = true },
	{ "none fits, many", "cpu:2", "even", MANY, .batch = 20, .fits_from = 99, .chain = true },
	{ "from 8", "cpu:2", "even", 5, .batch = 40, .fits_from = 8, .chain = true },
	{ "from 24", "cpu:2", "even", 5, .batch = 40, .fits_from = 24, .chain = true },
	{ "from 40", "cpu:2", "even", 5, .batch = 40, .fits_from = 40, .chain = true },
	{ "replicas", "cpu:4", "proportional", 7, .batch = 16, .replicas = 2, .chain = true },
	{ "many", "cpu:3", "even", MANY, .batch = 4, .outline = { 1.2, .9, .6, .5 } },
	{ "many, far", "cpu:2", "even", MANY, .batch = 6, .outline = { 1, 2, 3, 4, 5 } },
	{ "many, equal outlines", "cpu:2", "even", MANY, .batch = 4, .outline = { .8, .8, .8, .8 } },
	{ "many, spent", "cpu:2", "even", MANY, .batch = 4, .spent = 1, .outline = { .9, .6, .69, .71 } },
	{ "many, half spent", "cpu:2", "even", MANY, .batch = 3, .spent = .5,
	  .outline = { .9, .6, .69, .71 } },
	{ "many, silent", "cpu:2", "even", MANY, .batch = 4, .spent = 1, .silent = true,
	  .outline = { 1, .9, .9, .9, .9 } },
	{ "many, effort", "cpu:2*0.5", "even", MANY, .batch = 4, .spent = 2.9, .effort = 3,
	  .outline = { 1, .9, .9, .9, .9 } },
	{ "many, none fits", "cpu:2", "even", MANY, .batch = 300, .fits_from = 999,
	  .outline = { .9, .8, .7, .8, .9 } },
	{ "many replicas", "cpu:2 cpu:2*0.7", "proportional", MANY, .batch = 4, .replicas = 2, .given = 2 },
	{ "many replicas, spent", "cpu:2 cpu:2*0.7", "proportional", MANY, .batch = 4, .replicas = 2,
	  .spent = 1, .given = 2 },
};

struct maker {
	const struct trial_case *x;
	double first_s;
};

static void called(const char *what, const struct dlb_problem *p)
{
	kept_text(what);
	kept_text(p->schedule->name);
	kept_add((const int[]){ p->micro_batches, p->draft, p->brief, p->auto_replicas, p->tried != NULL },
		 5);
	kept_real(p->below_s);
}

static int place(void *arg, const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err)
{
	struct maker *m = arg;
	bool same;

	called("place", p);
	if (p->micro_batches < m->x->fits_from)
		return dlb_fail_no(err, NULL, "no plan fits: M %d lacks memory", p->micro_batches);
	if (m->x->replicas > 1) {
		struct dlb_replicas_choice c = { .n = m->x->replicas, .algorithm = m->x->algorithm };

		dlb_sharing_init(&c.sharing);
		if (dlb_place_replicas(p, &c, plan, NULL, &same, err))
			return -1;
	} else if (dlb_place(p, m->x->algorithm, plan, err)) {
		return -1;
	}
	plan->algorithm_given = false; /* as if the choice were free */
	if (m->first_s <= 0)
		m->first_s = plan->value_s;
	return 0;
}

static double outline(void *arg, const struct dlb_problem *p, int at)
{
	const struct maker *m = arg;
	int k = 0;

	called("outline", p);
	kept_add(&at, 1);
	for (int M = p->micro_batches; M > 1; M /= 2)
		k++;
	/* before there is a plan only the order of the outlines counts */
	return m->x->outline[k] * (m->first_s > 0 ? m->first_s : 1) * (at ? 1.25 : 1);
}

static void keep_trials(const char *name, const struct dlb_trial *trial, int n)
{
	double least = INFINITY;

	for (int i = 0; i < n; i++) {
		kept_text(trial[i].schedule);
		kept_add(&trial[i].micro_batches, 1);
		kept_real(trial[i].value_s);
		least = fmin(least, trial[i].value_s);
	}
	kept_line(name, "%d trials, least %.5g s", n, least);
}

static void choose(const struct trial_case *x)
{
	const struct dag_options o = { .seed = 3,
				       .n_forward = x->n_forward,
				       .chain = x->chain || x->n_forward == MANY,
				       .training = true,
				       .colocate = 1,
				       .cluster = x->cluster,
				       .batch = x->batch };
	struct dag d;
	struct dlb_problem p;
	struct dlb_plan plan;
	struct dlb_error err = { .what = "" };
	struct dlb_drafts drafts = { .n = 0 };
	struct dlb_trial *trial = NULL;
	struct maker m = { .x = x };
	const struct dlb_plan_maker maker = { place, outline, &m };
	int n = 0;

	dag_init(&d, &o);
	round_costs(&d);
	assert(IS(d.g.n_ops > 500, ==, x->n_forward == MANY));
	problem(&p, &d, x->given ? x->given : 1, "gpipe", NULL, 1);
	p.effort = x->effort;
	p.drafts = &drafts;
	p.compared = true;
	p.said = x->silent ? NULL : said;
	p.tried = tried;
	drafts.work = (int64_t)(x->spent * DLB_SEARCH_WORK);
	const int rc = dlb_place_schedule(&p, x->given > 0, &maker, &plan, &trial, &n, &err);
	keep_trials(x->name, trial, n);
	if (rc) {
		kept_line(x->name, "%d %s", err.status, err.what);
	} else {
		kept_add(plan.placement, plan.n_ops);
		kept_add((const int[]){ plan.algorithm_given, (int)plan.effort }, 2);
		kept_text(plan.algorithm ? plan.algorithm : "");
		kept_real(drafts.work > 0 ? (double)drafts.work : 0);
		kept_line(x->name, "%.5g s, %s, M %d, %d replicas, %s; %s, M %d, %d", plan.value_s,
			  plan.schedule, plan.micro_batches, plan.n_replicas, plan.winner ? plan.winner : "-",
			  p.schedule->name, p.micro_batches, p.auto_replicas);
		dlb_plan_release(&plan);
	}
	free(trial);
	dlb_problem_release(&p);
	dlb_drafts_release(&drafts);
	dag_release(&d);
}

int main(int argc, char **argv)
{
	for (int i = 0; i < DLB_LEN(cases); i++)
		choose(&cases[i]);
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
