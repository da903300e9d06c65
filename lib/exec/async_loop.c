/* The step loop of asynchronous schedules, several steps in flight.
 *
 * The sum at the end of a step (run.c) must not make anybody wait: it is started when a rank has run the step's last
 * iteration and looked at a little later, in the same iteration on all ranks. What it decides (to stop, say) then holds for
 * steps that have not begun. The pipeline is drained before a checkpoint, before a batch of another size, and at the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/run.h"
#include "util/clock.h"
#include "util/mem.h"

enum { ASYNC_SLACK = 2 };			/* iterations from the end of a step to the look at its sum */

/* Steps from an empty pipeline to an empty one; step s is at s % n of each list. */
struct async_loop {
	struct dlb_engine *e;
	int which, depth;
	int64_t first, end, n;			/* end: INT64_MAX until it is known */
	struct dlb_step *step;
	struct async_end { double *x; struct dlb_request sum; int wrong; struct dlb_error why; struct dlb_progress_state next; } *at_end;
	struct dlb_progress_state head, asked;	/* the next step to begin; whose samples are to be asked for */
	struct dlb_error verdict; bool condemned;	/* a gradient was not finite, as sums over replicas know */
	const char *stopped;
	int64_t failed, steady;			/* step with samples that could not be read, -1; iterations with everything in them */
	bool nonfinite;
	double before_s;
};

/* What all ranks know alike decides. */
static bool may_begin(const struct run *r, const struct async_loop *f)
{
	int64_t every = r->o->checkpoint ? r->o->checkpoint_every : 0;

	if (f->stopped || f->failed >= 0 || f->nonfinite || dlb_run_limit_reached(r, &f->head))
		return false;
	return f->head.step == f->first || (dlb_run_engine_for(r, dlb_run_batch_at(r, &f->head)) == 0 && f->which == 0 && (!every || f->head.step % every));
}

static int begin_step(struct run *r, struct async_loop *f, double *wait_s, struct dlb_error *err)
{
	const int64_t step = f->head.step;
	struct async_end *x = &f->at_end[step % f->n];
	double asked_s = dlb_clock_s();
	const struct dlb_fed *fed;

	x->why.what[0] = 0;
	if (dlb_feed_take(r->feed, &fed, &x->wrong, &x->why, err))
		return -1;
	f->step[step % f->n] = dlb_run_step(r, &f->head, fed);
	*wait_s = dlb_clock_s() - asked_s;
	dlb_run_advance(r, &f->head);
	x->next = f->head;
	return dlb_run_ask_ahead(r, step, &f->asked, err);
}

static void start_end(struct run *r, struct async_loop *f, int64_t step)
{
	struct async_end *x = &f->at_end[step % f->n];
	const struct dlb_step *s = &f->step[step % f->n];
	const int n = dlb_run_ending_length(r), R = r->job.plan.n_replicas;

	if (!x->wrong && f->condemned) {
		x->wrong = -1;
		x->why = f->verdict;
	}
	memset(x->x, 0, (size_t)n * sizeof *x->x);
	x->x[ENDING_STOP] = dlb_run_wants_end(r) ? 1.0 : 0.0;
	x->x[ENDING_FAILED] = x->wrong ? 1.0 : 0.0;
	if (!x->wrong && dlb_run_weights_finite(r, f->e, step, &x->why))
		x->x[ENDING_SPOILT] = x->wrong = 1;
	x->x[N_ENDING + r->replica] = s->fed->weight * dlb_engine_loss_of(f->e, s);
	dlb_watch_put(r->watch, x->x + N_ENDING + R);
	if (r->all)
		dlb_comm_isum(r->comm, r->all, x->x, n, true, &x->sum);
}

static int look_at_end(struct run *r, struct async_loop *f, int64_t step, struct dlb_error *err)
{
	struct async_end *x = &f->at_end[step % f->n];
	bool has_loss = r->job.graph.loss >= 0;
	double start_s = dlb_clock_s(), loss = 0.0;

	if (r->all && dlb_comm_wait(r->comm, &x->sum, err))
		return -1;
	for (int k = 0; k < r->job.plan.n_replicas; k++)
		loss += x->x[N_ENDING + k];
	dlb_watch_take(r->watch, x->x + N_ENDING + r->job.plan.n_replicas);
	dlb_engine_view(f->e)->times.waits_s[DLB_WAIT_COLLECTIVE] += dlb_clock_s() - start_s;
	if (f->failed >= 0 || f->nonfinite)		/* what follows a step that failed does not count */
		return 0;
	if (x->x[ENDING_FAILED] > 0.0) {
		f->failed = step;
		return 0;
	}
	if (has_loss && !isfinite(loss) && !r->o->allow_nonfinite) {
		f->nonfinite = true;
		dlb_run_not_finite(r, step, loss, err);
		return 0;
	}
	if (x->x[ENDING_SPOILT] > 0.0) {
		f->failed = step;
		return 0;
	}
	x->next.best_loss = r->at.best_loss;
	x->next.since_best = r->at.since_best;
	r->at = x->next;
	if (has_loss) {
		const char *why = dlb_run_converged(r, loss);

		dlb_run_keep_loss(r, loss);
		f->stopped = f->stopped ? f->stopped : why;
	}
	if (x->x[ENDING_STOP] > 0.0)
		f->stopped = "signal";
	dlb_watch_step(r->watch, r->size[f->which], loss);
	return 0;
}

static int fly(struct run *r, struct async_loop *f, struct dlb_error *err)
{
	double start_s = dlb_clock_s();

	for (int64_t i = f->first, lag = f->depth + ASYNC_SLACK; f->end == INT64_MAX || i < f->end + lag; i++) {
		struct dlb_step_times *t = &dlb_engine_view(f->e)->times;
		double now_s, wait_s = 0.0;

		if (f->end == INT64_MAX && !may_begin(r, f))
			f->end = i;
		else if (f->end == INT64_MAX && begin_step(r, f, &wait_s, err))
			return -1;
		const struct dlb_iteration w = { .iteration = i, .first = f->first, .end = f->end < i + 1 ? f->end : i + 1, .step = f->step,
					      .n = f->n };

		if (i - f->depth < f->end && dlb_engine_run_iteration(f->e, &w, err))
			return -1;
		if (!f->condemned && dlb_engine_sync(f->e) && !r->o->allow_nonfinite && i - f->depth < f->end)
			f->condemned = dlb_sync_verdict(dlb_engine_sync(f->e), &f->verdict) != 0;
		if (i - f->depth >= f->first && i - f->depth < f->end)
			start_end(r, f, i - f->depth);
		if (i - lag >= f->first && i - lag < f->end && look_at_end(r, f, i - lag, err))
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
	if (!r->record.seen && f->which == 0) {		/* too short for an iteration with everything in it */
		dlb_engine_view(f->e)->times.step_s = (dlb_clock_s() - start_s) / (double)(f->end - f->first);
		dlb_record_add(&r->record, dlb_engine_view(f->e));
	}
	return 0;
}

int dlb_run_async_loop(struct run *r, int *who, struct dlb_error *err)
{
	int64_t most = 0;
	struct async_loop f = { .failed = -1, .before_s = dlb_clock_s(), .asked = r->at };
	double start_s = f.before_s;
	int rc = 0;

	for (int i = 0; i < r->n_engines; i++)
		most = r->program[i].depth > most ? r->program[i].depth : most;
	f.n = most + ASYNC_SLACK + 1;
	f.step = dlb_xcalloc((size_t)f.n, sizeof *f.step);
	f.at_end = dlb_xcalloc((size_t)f.n, sizeof *f.at_end);
	for (int64_t i = 0; i < f.n; i++)
		f.at_end[i].x = dlb_xcalloc((size_t)dlb_run_ending_length(r), sizeof *f.at_end[i].x);
	dlb_watch_start(r->watch);
	r->stopped = dlb_run_limit_reached(r, &r->at);
	rc = dlb_run_ask_ahead(r, r->at.step, &f.asked, err);
	while (!r->stopped && !rc) {
		f.head = r->at;
		f.first = r->at.step;
		f.end = INT64_MAX;
		f.which = dlb_run_engine_for(r, dlb_run_batch_at(r, &r->at));
		f.e = r->engine[f.which];
		f.depth = r->program[f.which].depth;
		rc = fly(r, &f, err);
		if (rc || f.nonfinite) {
			rc = -1;
		} else if (f.failed >= 0) {
			const struct async_end *x = &f.at_end[f.failed % f.n];

			*err = x->why;
			rc = dlb_comm_agree(r->comm, x->wrong, err, who);
		} else {
			r->stopped = f.stopped ? f.stopped : dlb_run_limit_reached(r, &r->at);
			if (!r->stopped && dlb_evaluate_is_due(r))
				rc = dlb_evaluate(r, true, who, err);
			if (!rc && r->o->checkpoint && r->o->checkpoint_every && !r->stopped && r->at.step % r->o->checkpoint_every == 0)
				rc = dlb_run_save_checkpoint(r, err);
			f.before_s = dlb_clock_s();
		}
	}
	for (int64_t i = 0; i < f.n; i++)
		free(f.at_end[i].x);
	free(f.step);
	free(f.at_end);
	r->wall_s = dlb_clock_s() - start_s;
	return rc;
}
