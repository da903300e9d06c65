/* The step loop of asynchronous schedules, with several steps in flight.
 *
 * No rank may wait for the sum at the end of a step (step_end.c). Each rank starts the sum when it has run
 * the step's last iteration, and all ranks take the result a fixed number of iterations later. So a decision
 * to stop applies only to steps that have not begun. The pipeline is drained before a measurement, a
 * checkpoint, a batch of another size, the end of a round (rounds.c), and the end. */
#include <stdlib.h>
#include <string.h>
#include "exec/feed.h"
#include "exec/record.h"
#include "exec/run.h"
#include "util/clock.h"
#include "util/mem.h"

enum { ASYNC_SLACK = 2 };			/* iterations between the start of a step's sum and its use */

/* A sequence of steps from an empty pipeline to an empty pipeline. Step s uses element s % n of each list. */
struct async_loop {
	struct dlb_engine *e;
	int which, depth;
	int64_t first, end, n;			/* end: INT64_MAX until known */
	struct dlb_step *step;
	struct dlb_step_end *at_end;
	struct dlb_step_end *bad;		/* the first step whose verdict was not good; NULL: none */
	/* head: the next step to begin; asked: the next step whose samples are requested */
	struct dlb_progress_state head, asked;
	/* a compressed sum over replicas found a non-finite gradient */
	struct dlb_error verdict; bool bad_gradient;
	const char *stopped;
	int64_t steady; /* iterations of the round with a step in every stage */
	int64_t full_steps; /* full-batch steps begun in the round */
	double before_s;
};

/* Whether the next step may begin; the decision uses numbers that are equal on all ranks. */
static bool may_begin(const struct run *r, const struct async_loop *f)
{
	int64_t every = r->o->checkpoint ? r->o->checkpoint_every : 0;

	if (f->stopped || f->bad || dlb_run_limit_reached(r, &f->head) ||
	    dlb_run_is_round(r, &f->head, f->full_steps))
		return false;
	return f->head.step == f->first || (dlb_run_engine_for(r, dlb_run_batch_at(r, &f->head)) == 0 &&
					    f->which == 0 && (!every || f->head.step % every));
}

static int begin_step(struct run *r, struct async_loop *f, double *wait_s, struct dlb_error *err)
{
	const int64_t step = f->head.step;
	struct dlb_step_end *x = &f->at_end[step % f->n];
	double asked_s = dlb_clock_s();
	const struct dlb_fed *fed;

	x->why.what[0] = 0;
	dlb_run_slow_down(r, step);
	if (dlb_feed_take(r->feed, &fed, &x->failed, &x->why, err))
		return -1;
	f->step[step % f->n] = dlb_run_step(r, &f->head, fed);
	f->full_steps += f->which == 0;
	*wait_s = dlb_clock_s() - asked_s;
	dlb_run_advance(r, &f->head);
	x->next = f->head;
	return dlb_run_ask_ahead(r, step, &f->asked, err);
}

static void start_end(struct run *r, struct async_loop *f, int64_t step)
{
	struct dlb_step_end *x = &f->at_end[step % f->n];

	if (!x->failed && f->bad_gradient) {
		x->failed = -1;
		x->why = f->verdict;
	}
	dlb_step_end_start(r, f->e, &f->step[step % f->n], x);
}

static int take_end(struct run *r, struct async_loop *f, int64_t step, struct dlb_error *err)
{
	struct dlb_step_end *x = &f->at_end[step % f->n];
	const char *stopped;

	if (dlb_step_end_wait(r, f->e, x, err))
		return -1;
	if (f->bad)					/* steps after a bad one do not count */
		return 0;
	if (x->verdict != DLB_STEP_GOOD) {
		f->bad = x;
		return 0;
	}
	stopped = dlb_step_end_accept(r, x, r->size[f->which]);
	if (x->stop || !f->stopped)
		f->stopped = stopped;
	return 0;
}

static int run_until_empty(struct run *r, struct async_loop *f, struct dlb_error *err)
{
	double start_s = dlb_clock_s();

	for (int64_t i = f->first, lag = f->depth + ASYNC_SLACK; f->end == INT64_MAX || i < f->end + lag;
	     i++) {
		struct dlb_step_times *t = &dlb_engine_view(f->e)->times;
		double now_s, wait_s = 0.0;

		if (f->end == INT64_MAX && !may_begin(r, f))
			f->end = i;
		else if (f->end == INT64_MAX && begin_step(r, f, &wait_s, err))
			return -1;
		const struct dlb_iteration w = { .iteration = i,
						 .first = f->first,
						 .end = f->end < i + 1 ? f->end : i + 1,
						 .step = f->step,
						 .n = f->n };

		if (i - f->depth < f->end && dlb_engine_run_iteration(f->e, &w, err))
			return -1;
		if (!f->bad_gradient && dlb_engine_sync(f->e) && !r->o->allow_nonfinite &&
		    i - f->depth < f->end)
			f->bad_gradient = dlb_sync_verdict(dlb_engine_sync(f->e), &f->verdict) != 0;
		if (i - f->depth >= f->first && i - f->depth < f->end)
			start_end(r, f, i - f->depth);
		if (i - lag >= f->first && i - lag < f->end && take_end(r, f, i - lag, err))
			return -1;
		now_s = dlb_clock_s();
		t->step_s = now_s - f->before_s;
		t->data_wait_s = wait_s;
		f->before_s = now_s;
		if (i - f->depth >= f->first && i - f->depth < f->end)
			dlb_watch_times(r->watch, f->e);
		if (i >= f->first + f->depth && i < f->end)
			dlb_run_keep_times(r, f->which, f->steady += f->which == 0);
	}
	if (!r->record.seen && f->which == 0) {		/* no iteration had a step in every stage */
		dlb_engine_view(f->e)->times.step_s = (dlb_clock_s() - start_s) / (double)(f->end - f->first);
		dlb_record_add(&r->record, dlb_engine_view(f->e));
	}
	return 0;
}

/* Allocates the lists, as long as the deepest program of the plan needs. */
static void open_lists(struct run *r, struct async_loop *f)
{
	int64_t most = 0;

	for (int i = 0; i < r->n_engines; i++)
		most = r->program[i].depth > most ? r->program[i].depth : most;
	f->n = most + ASYNC_SLACK + 1;
	f->step = dlb_xcalloc((size_t)f->n, sizeof *f->step);
	f->at_end = dlb_xcalloc((size_t)f->n, sizeof *f->at_end);
	for (int64_t i = 0; i < f->n; i++)
		dlb_step_end_init(r, &f->at_end[i]);
}

static void close_lists(struct async_loop *f)
{
	for (int64_t i = 0; i < f->n; i++)
		dlb_step_end_release(&f->at_end[i]);
	free(f->step);
	free(f->at_end);
}

/* Runs between two steps, while no step is in flight. */
static int end_round(struct run *r, struct async_loop *f, int *who, struct dlb_error *err)
{
	close_lists(f);
	const int rc = dlb_run_end_round(r, &f->asked, who, err);
	open_lists(r, f);
	f->full_steps = f->steady = 0;
	return rc ? rc : dlb_run_ask_ahead(r, r->at.step, &f->asked, err);
}

int dlb_run_async_loop(struct run *r, int *who, struct dlb_error *err)
{
	struct async_loop f = { .before_s = dlb_clock_s(), .asked = r->at };
	double start_s = f.before_s;
	int rc = 0;

	open_lists(r, &f);
	dlb_watch_start(r->watch);
	r->stopped = dlb_run_limit_reached(r, &r->at);
	rc = dlb_run_ask_ahead(r, r->at.step, &f.asked, err);
	while (!r->stopped && !rc) {
		bool paused;

		f.head = r->at;
		f.first = r->at.step;
		f.end = INT64_MAX;
		f.which = dlb_run_engine_for(r, dlb_run_batch_at(r, &r->at));
		f.e = r->engine[f.which];
		f.depth = r->program[f.which].depth;
		rc = run_until_empty(r, &f, err);
		if (!rc && f.bad)
			rc = dlb_step_end_fail(r, f.bad, who, err);
		if (rc)
			break;
		r->stopped = f.stopped ? f.stopped : dlb_run_limit_reached(r, &r->at);
		rc = dlb_run_between_steps(r, &paused, who, err);
		if (!rc && dlb_run_is_round(r, &r->at, f.full_steps))
			rc = end_round(r, &f, who, err);
		f.before_s = dlb_clock_s();
	}
	close_lists(&f);
	r->wall_s = dlb_clock_s() - start_s;
	return rc;
}
