/* --batch auto: chooses the batch by the plans made for it. See batches.h. */
#include "place/batches.h"
#include <math.h>
#include <stdlib.h>
#include "util/mem.h"

/* Doublings from the first batch on: 4,096 times as many samples. */
enum { MOST_DOUBLINGS = 12, FINENESS = 16 };

static int by_batch(const void *a, const void *b)
{
	const struct dlb_batch_trial *x = a, *y = b;

	return (x->batch > y->batch) - (x->batch < y->batch);
}

/* 1: a plan for this batch fits; 0, with err: none fits; -1, with err: planning failed for another reason. */
static int fits(struct dlb_batch_search *s, int64_t batch, struct dlb_error *err)
{
	double value_s = INFINITY;
	const int rc = s->plan(s->arg, batch, &value_s, err);

	if (rc && dlb_error_status(err) != 1)
		return -1;
	s->trial = dlb_xrealloc(s->trial, (size_t)s->n_trials + 1, sizeof *s->trial);
	s->trial[s->n_trials++] = (struct dlb_batch_trial){ batch, rc ? INFINITY : value_s };
	return !rc;
}

/* Sorts the trials and sets the results. */
static void choose(struct dlb_batch_search *s)
{
	double best = INFINITY;

	qsort(s->trial, (size_t)s->n_trials, sizeof *s->trial, by_batch);
	for (int i = 0; i < s->n_trials; i++) {
		const struct dlb_batch_trial *t = &s->trial[i];

		if (isfinite(t->value_s)) {
			s->largest = t->batch;
			best = fmin(best, t->value_s / (double)t->batch);
		} else {
			s->bounded = true;
		}
	}
	for (int i = s->n_trials - 1; i >= 0; i--)
		if (s->trial[i].value_s / (double)s->trial[i].batch <= best * (1 + DLB_BATCH_NEAR))
			s->chosen = s->trial[i].batch;
}

int dlb_place_batch(struct dlb_batch_search *s, struct dlb_error *err)
{
	int64_t lo = s->first, hi = 0;
	int yes = fits(s, lo, err);

	while (yes == 0 && lo > s->least) {
		hi = lo;
		lo = lo / 2 < s->least ? s->least : lo / 2;
		yes = fits(s, lo, err);
	}
	if (yes <= 0)
		return -1;
	for (int i = 0; i < MOST_DOUBLINGS && !hi; i++) {
		yes = fits(s, 2 * lo, err);
		if (yes < 0)
			return -1;
		if (yes)
			lo *= 2;
		else
			hi = 2 * lo;
	}
	while (hi && hi - lo > 1 + lo / FINENESS) {
		const int64_t mid = lo + (hi - lo) / 2;

		yes = fits(s, mid, err);
		if (yes < 0)
			return -1;
		lo = yes ? mid : lo;
		hi = yes ? hi : mid;
	}
	choose(s);
	return 0;
}
