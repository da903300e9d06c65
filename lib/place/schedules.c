/* --schedule auto: chooses schedule and number of micro-batches by simulation. See place.h. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "place/make.h"
#include "place/place.h"
#include "place/problem.h"
#include "place/schedules.h"
#include "plan/schedule.h"

enum { MOST_MICRO_BATCHES = 256, ROUNDS_BETWEEN = 2 };
struct schedule_search {
	struct dlb_problem *p;
	int (*place)(void *arg, const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err);
	void *arg;
	struct dlb_trial *trial; int n, cap;
	double best;
	const struct dlb_schedule *schedule;
	int micro_batches, n_replicas;
	struct dlb_error nearest;			/* of the first plan that did not fit */
};

static int with(const struct dlb_problem *p, int M, const struct dlb_schedule *s, struct dlb_problem *out,
		struct dlb_error *err)
{
	*out = *p;
	out->micro_batches = M;
	out->schedule = s;
	out->tried = NULL;				/* reports candidates for the final plan only */
	return dlb_problem_init(out, err);
}

/* plan, and ranked, its step as it is judged; NULL: it does not fit, with err. */
static void keep(struct schedule_search *c, const struct dlb_problem *q, const struct dlb_plan *plan,
		 double ranked, const struct dlb_error *err)
{
	char line[160];
	int i = 0;
	while (i < c->n && (c->trial[i].micro_batches != q->micro_batches ||
			    strcmp(c->trial[i].schedule, q->schedule->name)))
		i++;
	if (i == c->n) {
		DLB_GROW(c->trial, c->n, c->cap);
		c->trial[c->n++] = (struct dlb_trial){ q->schedule->name, q->micro_batches, INFINITY };
	}
	if (plan && plan->value_s < c->trial[i].value_s)
		c->trial[i].value_s = plan->value_s;
	if (plan)
		snprintf(line, sizeof line, "%-12s M %-4d step %.6g ms", q->schedule->name, q->micro_batches,
			 plan->value_s * 1e3);
	else
		snprintf(line, sizeof line, "%-12s M %-4d %.120s", q->schedule->name, q->micro_batches,
			 err->what);
	if (c->p->said)
		c->p->said(c->p->tried_arg, line);
	if (!plan && !c->nearest.what[0])
		c->nearest = *err;
	if (plan && ranked < c->best * (1 - 1e-9)) {
		c->best = ranked;
		c->schedule = q->schedule;
		c->micro_batches = q->micro_batches;
		c->n_replicas = plan->n_replicas;
	}
}

/* Tries one schedule over a placement (NULL: that of placer interleaved), with the replicas of `like`. */
static int one(struct schedule_search *c, int M, const struct dlb_schedule *s, const int *placement,
	       const struct dlb_plan *like, struct dlb_error *err)
{
	struct dlb_problem q;
	struct dlb_plan plan;
	struct dlb_error why = { .what = "" };
	int *own = dlb_xcalloc((size_t)c->p->graph->n_ops + 1, sizeof(int));
	double ranked = INFINITY;
	if (with(c->p, M, s, &q, err)) {
		free(own);
		return -1;
	}
	if (like->n_replicas > 1)
		q.replicas = like;
	if (!placement && dlb_place_interleaved(&q, own, &why) == 0)
		placement = own;
	if (placement && dlb_plan_make(&q, placement, &plan, &ranked, &why) == 0) {
		keep(c, &q, &plan, ranked, NULL);
		dlb_plan_release(&plan);
	} else {
		keep(c, &q, NULL, INFINITY, &why);
	}
	dlb_problem_release(&q);
	free(own);
	return 0;
}

static int all(struct schedule_search *c, int M, struct dlb_error *err)
{
	struct dlb_problem q;
	struct dlb_plan plan;
	struct dlb_error why = { .what = "" };
	int rc = 0;
	if (with(c->p, M, dlb_schedule_find("1f1b"), &q, err))
		return -1;
	if (c->place(c->arg, &q, &plan, &why)) {
		keep(c, &q, NULL, INFINITY, &why);
		dlb_problem_release(&q);
		return 0;
	}
	dlb_problem_release(&q);
	for (const struct dlb_schedule *s = dlb_schedules; s->name && !rc; s++) {
		if (s->async)			/* it changes losses: only on request */
			continue;
		rc = one(c, M, s, plan.placement, &plan, err);
		if (!rc && dlb_schedule_in_parts(s) && M > 1 && plan.n_replicas < 2)
			rc = one(c, M, s, NULL, &plan, err);
	}
	dlb_plan_release(&plan);
	return rc;
}

/* Tries 1, 2, 4 ... micro-batches up to a few per node; up to the batch if none of these fits. */
static int doubled(struct schedule_search *c, int most, struct dlb_error *err)
{
	const int64_t batch = c->p->batch;
	const int limit = batch > MOST_MICRO_BATCHES ? MOST_MICRO_BATCHES : (int)batch;
	int M = 1, rc;
	most = most > limit ? limit : most;
	while (!(rc = all(c, M, err)) && M < (c->schedule ? most : limit)) {
		const int next = M < most ? most : limit;
		M = 2 * M < next ? 2 * M : next;
	}
	return rc;
}

/* Tries the numbers half-way between the best and the next tried ones, twice. */
static int between(struct schedule_search *c, struct dlb_error *err)
{
	int rc = 0;
	for (int round = 0; round < ROUNDS_BETWEEN && !rc; round++) {
		const int M = c->micro_batches;
		int lo = 0, hi = INT_MAX;
		for (int i = 0; i < c->n; i++) {
			const int tried = c->trial[i].micro_batches;
			lo = tried < M && tried > lo ? tried : lo;
			hi = tried > M && tried < hi ? tried : hi;
		}
		if (lo && lo < M - 1)
			rc = all(c, (lo + M) / 2, err);
		if (hi < INT_MAX && hi > M + 1 && !rc)
			rc = all(c, M + (hi - M) / 2, err);
	}
	return rc;
}

static int anew(struct schedule_search *c, int M, const struct dlb_schedule *s, struct dlb_error *err)
{
	struct dlb_problem q;
	struct dlb_plan plan;
	struct dlb_error why = { .what = "" };
	if (with(c->p, M, s, &q, err))
		return -1;
	q.auto_replicas = c->n_replicas;
	if (c->place(c->arg, &q, &plan, &why) == 0) {
		double ranked = dlb_place_plan_s(&q, &plan);
		if (ranked < c->best)
			keep(c, &q, &plan, ranked, NULL);
		dlb_plan_release(&plan);
	}
	dlb_problem_release(&q);
	return 0;
}

/* Makes placements for the schedules themselves, with the number of replicas of the best: each schedule with its best number of micro-batches, then
 * the best schedule with each number. */
static int refine(struct schedule_search *c, struct dlb_error *err)
{
	int M = c->micro_batches, n = c->n, rc = 0;
	for (const struct dlb_schedule *s = dlb_schedules; s->name && !rc; s++)
		rc = s->async ? 0 : anew(c, M, s, err);
	const struct dlb_schedule *best = c->schedule;
	for (int i = 0; i < n && !rc; i++)
		if (c->trial[i].micro_batches != M && !strcmp(c->trial[i].schedule, best->name))
			rc = anew(c, c->trial[i].micro_batches, best, err);
	return rc;
}

int dlb_place_schedule(struct dlb_problem *p, bool micro_batches_given,
		       int (*place)(void *arg, const struct dlb_problem *p, struct dlb_plan *plan,
				    struct dlb_error *err),
		       void *arg, struct dlb_trial **trial, int *n_trials, struct dlb_error *err)
{
	struct schedule_search c = { .p = p, .place = place, .arg = arg, .best = INFINITY };
	int most = 4 * p->cluster->n_nodes > 16 ? 4 * p->cluster->n_nodes : 16;
	int rc = micro_batches_given ? all(&c, p->micro_batches, err) : doubled(&c, most, err);
	if (!rc && c.schedule && !micro_batches_given)
		rc = between(&c, err);
	if (!rc && c.schedule)
		rc = refine(&c, err);
	*trial = c.trial;
	*n_trials = c.n;
	if (rc)
		return -1;
	if (!c.schedule) {
		*err = c.nearest;
		return -1;
	}
	dlb_problem_release(p);
	p->schedule = c.schedule;
	p->micro_batches = c.micro_batches;
	p->auto_replicas = c.n_replicas;
	return dlb_problem_init(p, err);
}
