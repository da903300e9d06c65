/* --schedule auto: chooses schedule and number of micro-batches by simulation. See schedules.h. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "place/borders.h"
#include "place/drafts.h"
#include "place/make.h"
#include "place/place.h"
#include "place/problem.h"
#include "place/schedules.h"
#include "place/value.h"
#include "plan/schedule.h"

enum { MOST_MICRO_BATCHES = 256, ROUNDS_BETWEEN = 2, MOST_SCHEDULES_SEARCHED = 3, MOST_NUMBERS_SEARCHED = 3 };

/* Results for a schedule and a number of micro-batches. ranked_s: the shortest ranked step; INFINITY: nothing
 * fits. searched: a placement was searched for them. */
struct known {
	double ranked_s;
	bool searched;
};
struct schedule_search {
	struct dlb_problem *p;
	const struct dlb_plan_maker *maker;
	struct dlb_trial *trial; int n, cap;
	struct known *known;
	int cap_known; /* [trial] */
	double best;
	struct dlb_plan plan; /* the best; n_ops 0: none yet */
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

/* Limits drafts of q to steps below most_s. There is no limit for few ops, where each draft is cheap and its
 * step worth stating; nor if the best plan divides states or offloads tensors, since a draft that fails would
 * then be tried again with each way to save memory. */
static void limit(const struct schedule_search *c, struct dlb_problem *q, double most_s)
{
	if (!dlb_problem_has_many_ops(c->p) || !c->plan.n_ops || c->plan.sharing.zero ||
	    (c->plan.offload.chosen && c->plan.offload.n))
		return;
	q->below_s = most_s;
	q->brief = true;
}

/* The index of the trial of q's schedule and number of micro-batches, which is added if there is none. */
static int trial_of(struct schedule_search *c, const struct dlb_problem *q)
{
	int i = 0;
	while (i < c->n && (c->trial[i].micro_batches != q->micro_batches ||
			    strcmp(c->trial[i].schedule, q->schedule->name)))
		i++;
	if (i < c->n)
		return i;
	DLB_GROW(c->known, c->n, c->cap_known);
	DLB_GROW(c->trial, c->n, c->cap);
	c->known[c->n] = (struct known){ .ranked_s = INFINITY };
	c->trial[c->n] = (struct dlb_trial){ q->schedule->name, q->micro_batches, INFINITY };
	return c->n++;
}

static struct known *known_of(struct schedule_search *c, const struct dlb_problem *q)
{
	const int i = trial_of(c, q);
	return &c->known[i];
}

/* Records a plan of q and its ranked step; takes or releases the plan. plan NULL: none fits, err says why. */
static void keep(struct schedule_search *c, const struct dlb_problem *q, struct dlb_plan *plan, double ranked,
		 const struct dlb_error *err)
{
	char line[160];
	const int i = trial_of(c, q);
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
	if (!plan)
		return;
	c->known[i].ranked_s = fmin(c->known[i].ranked_s, ranked);
	if (!(ranked < c->best * (1 - 1e-9))) {
		dlb_plan_release(plan);
		return;
	}
	dlb_plan_release(&c->plan);
	c->plan = *plan;
	c->best = ranked;
	c->schedule = q->schedule;
	c->micro_batches = q->micro_batches;
	c->n_replicas = plan->n_replicas;
}

/* Tries one schedule over a placement (NULL: placer interleaved makes one), with the replicas of `like`. */
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
	const bool interleaved = !placement;
	if (interleaved && dlb_place_interleaved(&q, own, &why) == 0)
		placement = own;
	if (placement && dlb_plan_make(&q, placement, &plan, &ranked, &why) == 0) {
		dlb_plan_say_origin(&plan, like);
		plan.winner = interleaved ? "interleaved" : like->winner;
		keep(c, &q, &plan, ranked, NULL);
	} else {
		keep(c, &q, NULL, INFINITY, &why);
	}
	dlb_problem_release(&q);
	free(own);
	return 0;
}

/* Tries all schedules over the placement that is best for 1f1b. draft: the placement is found quickly, and
 * its step must be near the best of other numbers of micro-batches, since another schedule shortens it by a
 * limited factor. */
static int all(struct schedule_search *c, int M, bool draft, struct dlb_error *err)
{
	struct dlb_problem q;
	struct dlb_plan plan;
	struct dlb_error why = { .what = "" };
	int rc = 0;
	if (with(c->p, M, dlb_schedule_find("1f1b"), &q, err))
		return -1;
	q.draft = draft;
	if (draft)
		limit(c, &q, c->best * dlb_search_near(c->p) * DLB_OTHER_SCHEDULE);
	if (c->maker->place(c->maker->arg, &q, &plan, &why)) {
		keep(c, &q, NULL, INFINITY, &why);
		dlb_problem_release(&q);
		return 0;
	}
	known_of(c, &q)->searched |= !draft;
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

/* Lists the trials with M micro-batches without trying them. */
static void leave_out(struct schedule_search *c, int M)
{
	struct dlb_problem q = { .micro_batches = M };

	for (q.schedule = dlb_schedules; q.schedule->name; q.schedule++)
		if (!q.schedule->async)
			trial_of(c, &q);
}

/* Drafts for 1, 2, 4 ... micro-batches, up to a few per node; up to the batch if none of these fits. */
static int doubled(struct schedule_search *c, int most, struct dlb_error *err)
{
	const int64_t batch = c->p->batch;
	const int limit = batch > MOST_MICRO_BATCHES ? MOST_MICRO_BATCHES : (int)batch;
	int M = 1, rc;
	most = most > limit ? limit : most;
	while (!(rc = all(c, M, true, err)) && M < (c->schedule ? most : limit)) {
		const int next = M < most ? most : limit;
		M = 2 * M < next ? 2 * M : next;
	}
	return rc;
}

/* The outline at position `place` of the plans with M micro-batches in ascending order, in seconds; -1 with
 * err. */
static double outline_s(struct schedule_search *c, int M, int place, struct dlb_error *err)
{
	struct dlb_problem q;

	if (with(c->p, M, dlb_schedule_find("1f1b"), &q, err))
		return -1;
	const double s = c->maker->outline(c->maker->arg, &q, place);
	dlb_problem_release(&q);
	return s;
}

/* Removes from list[n], and returns, the number of micro-batches with the least outline. The outline at
 * position PLACE decides, since that of the best plan alone may promise too much. -1 with err. */
static int take_best(struct schedule_search *c, int *list, int n, struct dlb_error *err)
{
	enum { PLACE = 3 };
	double least_s = INFINITY;
	int best = 0;

	for (int i = 0; i < n; i++) {
		const double s = outline_s(c, list[i], PLACE, err);

		if (s < 0)
			return -1;
		if (i && s >= least_s)
			continue;
		least_s = s;
		best = i;
	}
	const int M = list[best];
	memmove(list + best, list + best + 1, (size_t)(n - 1 - best) * sizeof *list);
	return M;
}

/* Makes drafts with M micro-batches. With many ops, drafts are made only if the outlines are near the best
 * step; once the effort is spent, only if they are far below it, since then the best plan so far is poor. */
static int try_number(struct schedule_search *c, int M, struct dlb_error *err)
{
	static const double FAR_BETTER = 0.7;
	const bool any = !dlb_problem_has_many_ops(c->p) || !c->schedule;
	const double estimate_s = any ? 0 : outline_s(c, M, 0, err);
	struct dlb_problem q = *c->p;
	char line[160];

	q.micro_batches = M;
	if (estimate_s < 0)
		return -1;
	if (any || (estimate_s < dlb_outline_near_s(&q, c->best) &&
		    (estimate_s < c->best * FAR_BETTER || !dlb_drafts_are_spent(c->p, 1))))
		return all(c, M, true, err);
	leave_out(c, M);
	snprintf(line, sizeof line, "M %-4d left out: no plan of it promises less than %.6g ms", M,
		 estimate_s * 1e3);
	if (c->p->said)
		c->p->said(c->p->tried_arg, line);
	return 0;
}

/* As doubled(), but numbers of micro-batches are tried in the order of outlines, and those with too long
 * outlines are left out. */
static int by_outline(struct schedule_search *c, int most, struct dlb_error *err)
{
	const int64_t batch = c->p->batch < MOST_MICRO_BATCHES ? c->p->batch : MOST_MICRO_BATCHES;
	int list[MOST_MICRO_BATCHES], n = 0;

	most = most < batch ? most : (int)batch;
	for (int M = 1; M < most; M *= 2)
		list[n++] = M;
	for (list[n++] = most; n; n--) {
		const int M = take_best(c, list, n, err);

		if (M < 0 || try_number(c, M, err))
			return -1;
	}
	while (!c->schedule && most < batch) {
		most = 2 * most < batch ? 2 * most : (int)batch;
		if (all(c, most, true, err))
			return -1;
	}
	return 0;
}

/* Tries, with drafts, the numbers half-way between the best and the next tried ones, twice. */
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
			rc = try_number(c, (lo + M) / 2, err);
		if (hi < INT_MAX && hi > M + 1 && !rc)
			rc = try_number(c, M + (hi - M) / 2, err);
	}
	return rc;
}

/* Searches a placement for schedule s itself, with as many replicas as the best plan. draft: a quick
 * placement. */
static int anew(struct schedule_search *c, int M, const struct dlb_schedule *s, bool draft,
		struct dlb_error *err)
{
	struct dlb_problem q;
	struct dlb_plan plan;
	struct dlb_error why = { .what = "" };
	if (with(c->p, M, s, &q, err))
		return -1;
	q.auto_replicas = c->n_replicas;
	q.draft = draft;
	/* a trial far from the best is searched only if this draft is near the best */
	if (draft && known_of(c, &q)->ranked_s > c->best * dlb_search_near(c->p))
		limit(c, &q, c->best * dlb_search_near(c->p) * (1 + 1e-9));
	known_of(c, &q)->searched |= !draft;
	if (c->maker->place(c->maker->arg, &q, &plan, &why) == 0) {
		double ranked = dlb_place_plan_s(&q, &plan, NULL);
		if (ranked < known_of(c, &q)->ranked_s)
			keep(c, &q, &plan, ranked, NULL);
		else
			dlb_plan_release(&plan);
	}
	dlb_problem_release(&q);
	return 0;
}

/* Moves the borders of the best plan's parts under schedule s, if s changes the step. */
static int move_borders(struct schedule_search *c, const struct dlb_schedule *s, struct dlb_error *err)
{
	struct dlb_problem q;
	struct dlb_plan plan;
	struct dlb_error why = { .what = "" };
	double ranked_s;

	if (with(c->p, c->micro_batches, s, &q, err))
		return -1;
	q.replicas = &c->plan;
	if (!dlb_plan_make(&q, c->plan.placement, &plan, &ranked_s, &why)) {
		dlb_plan_say_origin(&plan, &c->plan);
		if (ranked_s < c->best * dlb_search_near(c->p) && fabs(ranked_s - c->best) > c->best * 1e-9)
			dlb_borders_move(&q, &plan, &ranked_s);
		keep(c, &q, &plan, ranked_s, NULL);
	}
	dlb_problem_release(&q);
	return 0;
}

/* Moves the borders under all other schedules until the effort is spent. */
static int move_all_borders(struct schedule_search *c, struct dlb_error *err)
{
	const struct dlb_schedule *first = c->schedule;

	if (!dlb_problem_has_many_ops(c->p) || c->plan.n_replicas < 2 || c->plan.algorithm_given)
		return 0;
	for (const struct dlb_schedule *s = dlb_schedules; s->name; s++)
		if (!s->async && s != first && !dlb_drafts_are_spent(c->p, 1) && move_borders(c, s, err))
			return -1;
	return 0;
}

/* The index of the trial with the shortest step, at most most_s, of those not searched yet with M
 * micro-batches (0: any number) under schedule s (NULL: any); -1: none. */
static int next_near(const struct schedule_search *c, int M, const struct dlb_schedule *s, double most_s)
{
	int best = -1;
	for (int i = 0; i < c->n; i++)
		if (!c->known[i].searched && (!M || c->trial[i].micro_batches == M) &&
		    (!s || !strcmp(c->trial[i].schedule, s->name)) && c->known[i].ranked_s <= most_s &&
		    (best < 0 || c->known[i].ranked_s < c->known[best].ranked_s))
			best = i;
	return best;
}

/* Searches placements for at most `most` of these trials. Only trials near the best step count, as it is
 * before these searches, since a search shortens all steps. */
static int search_near(struct schedule_search *c, int M, const struct dlb_schedule *s, int most,
		       struct dlb_error *err)
{
	const double most_s = c->best * dlb_search_near(c->p);
	for (int i; most-- > 0 && !dlb_drafts_are_spent(c->p, 1) && (i = next_near(c, M, s, most_s)) >= 0;)
		if (anew(c, c->trial[i].micro_batches, dlb_schedule_find(c->trial[i].schedule), false, err))
			return -1;
	return 0;
}

/* Makes placements for the schedules themselves, with the best plan's number of replicas. Drafts for each
 * schedule, with the best number of micro-batches, show for which schedules a search may pay. Then the best
 * schedule is searched with other numbers. */
static int refine(struct schedule_search *c, struct dlb_error *err)
{
	const int M = c->micro_batches;
	if (move_all_borders(c, err))
		return -1;
	for (const struct dlb_schedule *s = dlb_schedules; s->name; s++) {
		struct dlb_problem q = *c->p;
		q.schedule = s;
		q.micro_batches = M;
		if (!s->async && !known_of(c, &q)->searched && !dlb_drafts_are_spent(c->p, 1) &&
		    anew(c, M, s, true, err))
			return -1;
	}
	return search_near(c, M, NULL, MOST_SCHEDULES_SEARCHED, err) ||
			       search_near(c, 0, c->schedule, MOST_NUMBERS_SEARCHED, err) ?
		       -1 :
		       0;
}

/* Reports the number of trials near the best that are not searched because the effort is spent. */
static void say_spent(const struct schedule_search *c)
{
	double least_s = INFINITY;
	char line[160];
	int n = 0;

	for (int i = 0; i < c->n; i++) {
		if (c->known[i].searched || c->known[i].ranked_s > c->best * dlb_search_near(c->p))
			continue;
		n++;
		least_s = fmin(least_s, c->known[i].ranked_s);
	}
	if (!n || !c->p->said || !dlb_drafts_are_spent(c->p, 1))
		return;
	snprintf(line, sizeof line,
		 "the effort is spent: %d more schedule%s or number%s of micro-batches not searched, from "
		 "%.6g ms",
		 n, n == 1 ? "" : "s", n == 1 ? "" : "s", least_s * 1e3);
	c->p->said(c->p->tried_arg, line);
}

int dlb_place_schedule(struct dlb_problem *p, bool micro_batches_given, const struct dlb_plan_maker *maker,
		       struct dlb_plan *plan, struct dlb_trial **trial, int *n_trials, struct dlb_error *err)
{
	struct schedule_search c = { .p = p, .maker = maker, .best = INFINITY };
	int most = 4 * p->cluster->n_nodes > 16 ? 4 * p->cluster->n_nodes : 16;
	int rc = micro_batches_given ? all(&c, p->micro_batches, false, err) : 0;
	if (!micro_batches_given)
		rc = dlb_problem_has_many_ops(p) ? by_outline(&c, most, err) : doubled(&c, most, err);
	if (!rc && c.schedule && !micro_batches_given)
		rc = between(&c, err);
	if (!rc && c.schedule && !micro_batches_given)
		rc = all(&c, c.micro_batches, false, err);
	if (!rc && c.schedule)
		rc = refine(&c, err);
	say_spent(&c);
	*trial = c.trial;
	*n_trials = c.n;
	free(c.known);
	if (!rc && !c.schedule) {
		*err = c.nearest;
		rc = -1;
	}
	if (!rc) {
		dlb_problem_release(p);
		p->schedule = c.schedule;
		p->micro_batches = c.micro_batches;
		p->auto_replicas = c.n_replicas;
		rc = dlb_problem_init(p, err);
	}
	if (rc)
		dlb_plan_release(&c.plan);
	else
		*plan = c.plan;
	return rc;
}
