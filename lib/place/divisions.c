/* The best division of the nodes into replicas: see divisions.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "place/borders.h"
#include "place/bound.h"
#include "place/divisions.h"
#include "place/drafts.h"
#include "place/outline.h"
#include "plan/schedule.h"
#include "util/hash.h"
#include "util/mem.h"

/* Numbers of replicas of n nodes to try: all up to 16; beyond that the most replicas of 1, 2, 3 ... nodes
 * each. */
static bool worth_trying(int R, int n) { return n <= 16 || n / R != n / (R + 1); }

/* A way to divide the nodes into R teams, with the ranked step of its draft (INFINITY: it does not fit).
 * out: it cannot be better than the best plan so far. */
struct division {
	int R;
	struct dlb_team_way way;
	bool searched, out, known; /* known: its draft is cached */
	/* bound: no plan has a shorter step. promised: the step extrapolated from its draft with fewer
	 * micro-batches; INFINITY: there is none */
	double draft_s, bound_s, estimate_s, promised_s;
	int n_nodes; /* of a team */
	bool far; /* it is out because its estimate is too long */
};
static bool is_now(const struct division *d) { return d->way.cut == DLB_CUT_NOW; }
struct divisions {
	struct division *at;
	int n, cap;
};

/* Whether both ways give R replicas the same nodes and the same placers. */
static bool alike(const struct dlb_replicas_task *t, int R, const struct dlb_team_way *a,
		  const struct dlb_team_way *b)
{
	const size_t n_nodes = (size_t)t->p->cluster->n_nodes;
	int *of_a = dlb_xcalloc(2 * n_nodes + 1, sizeof *of_a), *of_b = of_a + n_nodes;
	bool same = a->slowest == b->slowest && a->by == b->by &&
		    dlb_teams_form(&t->teams, R, a, of_a) == dlb_teams_form(&t->teams, R, b, of_b) &&
		    !memcmp(of_a, of_b, n_nodes * sizeof *of_a);

	free(of_a);
	return same;
}

/* Adds the ways for R replicas; of ways that are alike only the first. */
static void add_ways(const struct dlb_replicas_task *t, int R, struct divisions *d)
{
	struct dlb_team_way way[DLB_MOST_WAYS] = { { .cut = DLB_CUT_INSIDE, .group = -1 } };
	const int n = R == 1 ? 1 : dlb_teams_ways(&t->teams, R, t->choice->algorithm != NULL, way);

	for (int i = 0; i < n; i++) {
		bool again = false;

		for (int k = 0; k < i && !again; k++)
			again = alike(t, R, &way[i], &way[k]);
		if (again)
			continue;
		DLB_GROW(d->at, d->n, d->cap);
		d->at[d->n++] = (struct division){
			.R = R, .way = way[i], .searched = true, .draft_s = INFINITY
		};
	}
}

/* Returns the nodes of the division, its teams one after the other: an array of *n, owned by the caller. */
static int *nodes_of(const struct dlb_replicas_task *t, const struct division *d, int *n)
{
	const int n_nodes = t->p->cluster->n_nodes;
	int *node = dlb_xcalloc((size_t)n_nodes + 1, sizeof *node);

	*n = 0;
	if (d->R > 1) {
		*n = d->R * dlb_teams_form(&t->teams, d->R, &d->way, node);
		return node;
	}
	for (int i = 0; i < n_nodes; i++)
		if (t->p->free_node[i])
			node[(*n)++] = i;
	return node;
}

static uint64_t hash_of(const struct dlb_replicas_task *t, const struct division *d)
{
	const int32_t number[] = { d->R, d->way.slowest, t->choice->sharing.zero };
	int n, *node = nodes_of(t, d, &n);
	uint64_t h = dlb_hash_bytes(DLB_HASH_INIT, node, (size_t)n * sizeof *node);

	h = dlb_hash_bytes(h, number, sizeof number);
	free(node);
	return d->way.by ? dlb_hash_str(h, d->way.by) : h;
}

/* The factor by which filling and draining a pipeline over a team lengthens the step. */
static double pipeline_factor(const struct dlb_replicas_task *t, const struct division *d, int micro_batches)
{
	const double samples = (double)t->p->batch / d->R;

	return 1 + (d->n_nodes - 1) / fmin(micro_batches, fmax(samples, 1));
}

/* Sets the bound of the division's step, its promise, and an estimate that takes each team for a pipeline
 * that fills and drains. */
static void set_bound(const struct dlb_replicas_task *t, struct division *d)
{
	int n, *node = nodes_of(t, d, &n), *count = dlb_xcalloc((size_t)t->p->n_classes + 1, sizeof *count);
	const struct dlb_draft *fewer, *more;

	for (int i = 0; i < n; i++)
		count[t->p->class_of[node[i]]]++;
	d->bound_s = dlb_pool_bound_s(t->p, count);
	d->n_nodes = n / d->R;
	d->estimate_s = d->bound_s * pipeline_factor(t, d, t->p->micro_batches);
	dlb_draft_beside(t->p, hash_of(t, d), &fewer, &more);
	d->promised_s = !fewer ? INFINITY :
				 fewer->ranked_s * pipeline_factor(t, d, t->p->micro_batches) /
					 pipeline_factor(t, d, fewer->micro_batches);
	free(node);
	free(count);
}

/* Whether the drafts of the division with the next lower and the next higher number of micro-batches
 * promise a step of most_s or more. More micro-batches shorten filling and draining, and where memory is
 * scarce they may let another placement fit; fewer micro-batches can only help memory. */
static bool is_far_beside(const struct dlb_replicas_task *t, const struct division *d, double most_s)
{
	static const double SCARCE = 1.5;
	const struct dlb_draft *fewer, *more;

	dlb_draft_beside(t->p, hash_of(t, d), &fewer, &more);
	if (!isfinite(d->promised_s))
		return false;
	if (more && isfinite(more->ranked_s) && more->ranked_s >= most_s)
		return d->promised_s >= most_s;
	return d->promised_s >= most_s * (fewer->scarce ? SCARCE : 1);
}

/* Whether drafts are made in the order of outlines, as few as needed. That pays if a draft takes long,
 * with many ops, and if there are many divisions, with a free number of replicas. It is not done beside a
 * current plan, which stays if it is good. */
static bool is_outlined(const struct dlb_replicas_task *t)
{
	return !t->choice->n && !t->choice->current && dlb_problem_has_many_ops(t->p);
}

/* Whether the division cannot come near best_s: its bound is far above (by a margin, since an op may take a
 * little less per sample for fewer samples), or its drafts under other schedules or with other numbers of
 * micro-batches are far slower than those of other divisions. */
static bool is_hopeless(const struct dlb_replicas_task *t, const struct division *d, double best_s)
{
	static const double FAR = 1.1;
	const double most_s = fmin(t->limit_s, best_s * dlb_search_near(t->p) * DLB_OTHER_SCHEDULE);
	const double other_s = dlb_draft_least_s(t->p, hash_of(t, d));
	/* outlines, scaled by the drafts made, say more than drafts with other numbers of micro-batches */
	if (!is_outlined(t) && isfinite(other_s) && other_s > dlb_draft_least_s(t->p, 0) * DLB_OTHER_SCHEDULE)
		return true;
	if (!is_outlined(t) && isfinite(most_s) && is_far_beside(t, d, most_s))
		return true;
	return isfinite(best_s) && d->bound_s > best_s * FAR;
}

/* 0: *c is its best plan; 1: it is the same as another division; -1: it does not fit. */
static int try_division(const struct dlb_replicas_task *t, const struct division *d,
			struct dlb_replicas_candidate *c, struct dlb_error *err)
{
	bool scarce = false;
	struct dlb_problem watched = *t->p;
	struct dlb_replicas_task own = *t;

	watched.scarce = &scarce;
	own.p = &watched;
	int rc = d->R == 1 ? dlb_team_plan_one(&own, c, err) :
			     dlb_team_plan_make(&own, d->R, &d->way, c, err);

	if (rc <= 0)
		dlb_team_plan_say(t, d->R, &d->way, c, rc ? err : NULL);
	/* if memory is scarce, a division without a plan may have one under another schedule or with ops that
	 * run again, so no limit is cached as its step */
	dlb_draft_keep(t->p, hash_of(t, d), rc > 0 || (rc && scarce) ? INFINITY : c->ranked_s,
		       c->most_samples, scarce);
	if (t->p->scarce)
		*t->p->scarce |= scarce;
	return rc;
}

/* The division with the shortest draft, of those neither searched nor out; NULL: none. */
static struct division *best_draft(struct divisions *d)
{
	struct division *best = NULL;

	for (int i = 0; i < d->n; i++)
		if (!d->at[i].searched && !d->at[i].out && (!best || d->at[i].draft_s < best->draft_s))
			best = &d->at[i];
	return best;
}

/* Sets the estimates of all divisions: their outlines times the ratio of drafts to outlines so far. */
static void outline_all(const struct dlb_replicas_task *t, struct divisions *d)
{
	struct dlb_outline s = { .R = 0 };

	for (int i = 0; i < d->n; i++) {
		struct division *x = &d->at[i];
		const uint64_t hash = hash_of(t, x);
		double outline_s = dlb_draft_outline_s(t->p, hash);

		if (isnan(outline_s)) {
			if (s.R != x->R) {
				dlb_outline_release(&s);
				dlb_outline_init(&s, t, x->R);
			}
			outline_s = dlb_outline_s(&s, &x->way);
			dlb_draft_keep_outline(t->p, hash, outline_s);
		}
		x->estimate_s = outline_s * dlb_draft_ratio(t->p, hash);
	}
	dlb_outline_release(&s);
}

enum { LEAST_DRAFTS = 8 };

/* Whether the division's estimate is too long for a draft after `made` drafts. More effort allows more drafts. */
static bool is_far(const struct dlb_replicas_task *t, const struct division *d, double least_s, int made)
{
	const double best_s = fmin(least_s, dlb_draft_best_s(t->p));

	return is_outlined(t) && isfinite(best_s) &&
	       (d->estimate_s >= dlb_outline_near_s(t->p, best_s) ||
		made >= fmax(dlb_search_drafts(t->p), LEAST_DRAFTS));
}

/* Remarks on the divisions that are left out because of their outlines. */
static void say_far(const struct dlb_replicas_task *t, const struct divisions *d)
{
	double least_s = INFINITY;
	char line[160];
	int n = 0;

	for (int i = 0; i < d->n; i++) {
		n += d->at[i].far;
		least_s = d->at[i].far ? fmin(least_s, d->at[i].estimate_s) : least_s;
	}
	if (!n || !t->p->said)
		return;
	snprintf(line, sizeof line,
		 "%s, %d micro-batch%s: %d of %d divisions left out; they promise %.6g ms or more",
		 t->p->schedule->name, t->p->micro_batches, t->p->micro_batches == 1 ? "" : "es", n, d->n,
		 least_s * 1e3);
	t->p->said(t->p->tried_arg, line);
}

static int by_promise(const void *a, const void *b)
{
	const struct division *x = *(struct division *const *)a, *y = *(struct division *const *)b;

	if (x->known != y->known)
		return x->known ? -1 : 1;
	if (x->estimate_s != y->estimate_s)
		return x->estimate_s < y->estimate_s ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* The divisions in the order in which drafts are made, so that a good one limits the others: first those
 * with a cached draft, then the one with the best promise, then by estimate. [d->n], owned by the caller. */
static struct division **in_order(const struct dlb_replicas_task *t, struct divisions *d)
{
	struct division **order = dlb_xcalloc((size_t)d->n + 1, sizeof *order), *first = NULL;

	for (int i = 0; i < d->n; i++)
		set_bound(t, &d->at[i]);
	if (is_outlined(t))
		outline_all(t, d);
	for (int i = 0; i < d->n; i++) {
		d->at[i].known = dlb_draft_recall(t->p, hash_of(t, &d->at[i])) != NULL;
		order[i] = &d->at[i];
		if (!d->at[i].known && isfinite(d->at[i].promised_s) &&
		    (!first || d->at[i].promised_s < first->promised_s) && !is_outlined(t))
			first = &d->at[i];
	}
	if (first)
		first->estimate_s = 0;
	qsort(order, (size_t)d->n, sizeof *order, by_promise);
	return order;
}

/* Sets the drafts of all divisions. best: receives the best plan of the drafts that were not cached, and
 * its division is marked as searched; NULL: no plan is wanted. If the number of replicas is free, only
 * drafts near the best matter. */
static void make_drafts(const struct dlb_replicas_task *t, struct divisions *d,
			struct dlb_replicas_candidate *best, struct dlb_error *err)
{
	const bool again = t->p->recompute && t->p->recompute->chosen;
	struct dlb_problem brief = *t->p;
	struct dlb_replicas_task one = *t;
	struct division *made = NULL, **order = in_order(t, d);
	double least_s = INFINITY;
	int n_made = 0;

	one.p = &brief;
	for (int i = 0; i < d->n; i++) {
		struct division *x = order[i];
		const struct dlb_draft *known = dlb_draft_recall(t->p, hash_of(t, x));
		struct dlb_replicas_candidate c;
		struct dlb_error why = { .status = 0 };

		x->searched = is_now(x) && !best;
		/* without ops that run again the draft is the same, and its plan exists already */
		x->out = !is_now(x) && (known ? again && !known->again && isfinite(known->ranked_s) :
						is_hopeless(t, x, least_s));
		x->far = !is_now(x) && !known && !x->out && is_far(t, x, least_s, n_made);
		x->out |= x->far;
		x->draft_s = known ? known->ranked_s : INFINITY;
		brief.brief = isfinite(fmin(least_s, t->limit_s));
		one.limit_s = t->choice->n ? t->limit_s :
					     fmin(t->limit_s, least_s * dlb_search_near(t->p) * (1 + 1e-9));
		brief.below_s = isfinite(one.limit_s) ? one.limit_s : 0;
		if (!known && !x->out) {
			const int rc = try_division(&one, x, &c, &why);
			x->draft_s = rc > 0 ? INFINITY : c.ranked_s;
			n_made += rc <= 0;
			if (rc == 0 && best && c.ranked_s < least_s) {
				dlb_plan_release(&best->plan);
				*best = c;
				made = x;
			} else if (rc == 0) {
				dlb_plan_release(&c.plan);
			}
		}
		if (why.what[0] && err)
			*err = why;
		least_s = fmin(least_s, x->draft_s);
	}
	free(order);
	if (made)
		made->searched = true;
	say_far(t, d);
}

/* Marks the divisions to be searched: the MOST_SEARCHED with the shortest drafts, and the current teams.
 * If the number of replicas is free, only those near the best are marked. */
static void choose_searched(const struct dlb_replicas_task *t, struct divisions *d)
{
	enum { MOST_SEARCHED = 4 };
	struct dlb_problem draft = *t->p;
	struct dlb_replicas_task drafts = *t;
	struct division *x;
	double most_s = INFINITY;

	if (d->n <= MOST_SEARCHED)
		return;
	draft.draft = true;
	drafts.p = &draft;
	make_drafts(&drafts, d, NULL, NULL);
	for (int k = 0; k < MOST_SEARCHED && (x = best_draft(d)) != NULL && !(x->draft_s > most_s); k++) {
		x->searched = true;
		most_s = k || t->choice->n ? most_s : x->draft_s * dlb_search_near(t->p);
	}
}

/* Sets *best to the best plan of all divisions, made without a search. */
static void draft_divisions(const struct dlb_replicas_task *t, struct divisions *d,
			    struct dlb_replicas_candidate *best, struct dlb_error *err)
{
	make_drafts(t, d, best, err);
	struct division *known = best_draft(d);
	struct dlb_replicas_candidate c;

	if (known && (!best->plan.n_ops || known->draft_s < best->ranked_s) &&
	    !try_division(t, known, &c, err))
		dlb_team_plan_better(best, &c, 0);
}

/* Searches the marked divisions. Returns the one whose plan became *best; NULL: none did; if there is no
 * plan at all, err is that of the last division. */
static const struct division *search_marked(const struct dlb_replicas_task *t, const struct divisions *d,
					    struct dlb_replicas_candidate *best, struct dlb_error *err)
{
	const struct division *taken = NULL;
	int now = 0; /* replicas of the current teams, the first division with this number */

	for (int i = 0; i < d->n; i++) {
		const struct division *x = &d->at[i];
		struct dlb_replicas_candidate c;
		struct dlb_error why = { .status = 0 };

		now = is_now(x) ? x->R : now;
		int rc = x->searched ? try_division(t, x, &c, &why) : 1;
		if (rc == 0) { /* teams, too, are kept unless the gain is large enough */
			const double gain = x->R == now && !is_now(x) && best->plan.n_replicas == now ?
						    DLB_KEEP_GAIN :
						    0;
			if (dlb_team_plan_better(best, &c, gain))
				taken = x;
		} else if (rc < 0 && !best->plan.n_ops) {
			*err = why;
		}
	}
	return taken;
}

/* Makes a draft of each marked division, moves its borders, and puts the best plan into *best. */
static void move_borders(const struct dlb_replicas_task *t, const struct divisions *d,
			 struct dlb_replicas_candidate *best)
{
	struct dlb_problem draft = *t->p;
	struct dlb_replicas_task drafts = *t;

	draft.draft = true;
	drafts.p = &draft;
	for (int i = 0; i < d->n; i++) {
		struct dlb_replicas_candidate c;

		if (!d->at[i].searched || d->at[i].R == 1 || try_division(&drafts, &d->at[i], &c, NULL))
			continue;
		dlb_borders_move(t->p, &c.plan, &c.ranked_s);
		dlb_team_plan_better(best, &c, 0);
	}
}

/* Sets *best to the best plan of all divisions; plan.n_ops 0: none fits, and err is that of the last. If the
 * number of replicas is free, the divisions share one search's effort, then the best is searched with all of
 * it. */
static void search_divisions(const struct dlb_replicas_task *t, struct divisions *d,
			     struct dlb_replicas_candidate *best, struct dlb_error *err)
{
	struct dlb_problem shared = *t->p;
	struct dlb_replicas_task sharing = *t;
	struct dlb_replicas_candidate c;
	int n = 0;

	choose_searched(t, d);
	if (is_outlined(t) && !t->choice->algorithm)
		move_borders(t, d, best);
	if (best->plan.n_ops && dlb_drafts_are_spent(t->p, 0.25))
		return;
	for (int i = 0; i < d->n; i++)
		n += d->at[i].searched;
	shared.candidates = t->choice->n ? 1 : n;
	sharing.p = &shared;
	const struct division *taken = search_marked(&sharing, d, best, err);
	if (taken && shared.candidates > 1 && !try_division(t, taken, &c, err))
		dlb_team_plan_better(best, &c, 0);
}

/* Lists all divisions into R replicas (0: any number). */
static void list_divisions(const struct dlb_replicas_task *t, int R, struct divisions *d)
{
	const int n = dlb_teams_free_nodes(t->p);

	for (int r = 1; r <= n && r <= t->p->batch; r++)
		if (R ? r == R : worth_trying(r, n))
			add_ways(t, r, d);
}

static int by_estimate(const void *a, const void *b)
{
	const struct division *x = a, *y = b;

	return (x->estimate_s > y->estimate_s) - (x->estimate_s < y->estimate_s);
}

double dlb_divisions_outline_s(const struct dlb_replicas_task *t, int R, int place)
{
	struct divisions d = { .n = 0 };

	list_divisions(t, R, &d);
	outline_all(t, &d);
	if (d.n)
		qsort(d.at, (size_t)d.n, sizeof *d.at, by_estimate);
	const double s = d.n ? d.at[place < d.n ? place : d.n - 1].estimate_s : INFINITY;
	free(d.at);
	return s;
}

void dlb_divisions_best(const struct dlb_replicas_task *t, int R, struct dlb_replicas_candidate *best,
			struct dlb_error *err)
{
	struct divisions d = { .n = 0 };

	list_divisions(t, R, &d);
	(t->p->draft ? draft_divisions : search_divisions)(t, &d, best, err);
	free(d.at);
}
