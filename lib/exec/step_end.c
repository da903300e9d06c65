/* The end of a step: the ranks agree, by one small sum, whether it was good and whether training continues.
 * The synchronous loop (run.c) waits for the sum at once, the asynchronous one (async_loop.c) a few
 * iterations later; the numbers in the sum and the decisions based on them are the same.
 *
 * The sum has one place for each decision, each replica's loss and each number that nodes exchange (watch.h).
 * Only one rank computes the loss of a replica, so each of those places has one term that is not zero and the
 * sum is exact. The losses of replicas are then added in the order of replicas. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/run.h"
#include "plan/timeline.h"
#include "util/clock.h"
#include "util/mem.h"

/* Places of the sum before the losses. They count the ranks that want to stop; that want to stop at the next
 * checkpoint; that have failed; that have a weight that is not finite. */
enum { STOP, PAUSE, FAILED, SPOILT, N_DECISIONS };

static int length(const struct run *r)
{
	return N_DECISIONS + r->job.plan.n_replicas + dlb_watch_length(r->o, r->job.plan.n_nodes);
}

void dlb_step_end_init(const struct run *r, struct dlb_step_end *end)
{
	*end = (struct dlb_step_end){ .x = dlb_xcalloc((size_t)length(r), sizeof *end->x) };
}

void dlb_step_end_release(struct dlb_step_end *end)
{
	free(end->x);
}

static int weights_finite(const struct run *r, struct dlb_engine *e, int64_t step, struct dlb_error *err)
{
	const struct dlb_engine_program *v = dlb_engine_view(e);

	if (v->not_finite < 0 || r->o->allow_nonfinite)
		return 0;
	dlb_fail(err, NULL, "the weight '%s' is not finite after step %lld",
		 v->program->graph->tensor[v->not_finite].name, (long long)step);
	return dlb_hint(err, "is there NaN in the data? else try a smaller --lr");
}

/* Whether this rank wants the run to end: a signal came, or a file that it writes cannot be written. */
static bool wants_end(const struct run *r)
{
	return (r->o->stop && *r->o->stop) || dlb_lines_failed(r->lines, NULL) ||
	       dlb_watch_wrong(r->watch, NULL);
}

void dlb_step_end_start(struct run *r, struct dlb_engine *e, const struct dlb_step *step,
			struct dlb_step_end *end)
{
	double *x = end->x, loss;

	end->step = step->step;
	if (dlb_engine_loss_of(e, step, &loss, end->failed ? NULL : &end->why))
		end->failed = -1;
	end->spoilt = end->failed ? 0 : weights_finite(r, e, step->step, &end->why);
	memset(x, 0, (size_t)length(r) * sizeof *x);
	x[STOP] = wants_end(r) ? 1.0 : 0.0;
	x[PAUSE] = r->o->pause && *r->o->pause ? 1.0 : 0.0;
	x[FAILED] = end->failed ? 1.0 : 0.0;
	x[SPOILT] = end->spoilt ? 1.0 : 0.0;
	x[N_DECISIONS + r->replica] = step->fed->weight * loss;
	dlb_watch_put(r->watch, x + N_DECISIONS + r->job.plan.n_replicas);
	if (r->all)
		dlb_comm_isum(r->comm, r->all, x, length(r), true, &end->sum);
}

int dlb_step_end_wait(struct run *r, struct dlb_engine *e, struct dlb_step_end *end, struct dlb_error *err)
{
	const int R = r->job.plan.n_replicas;
	const double start_s = dlb_clock_s(), *x = end->x;

	if (r->all ? dlb_comm_wait(r->comm, &end->sum, err)
		   : dlb_comm_allreduce_f64(r->comm, end->x, length(r), DLB_COMM_SUM, err))
		return -1;
	dlb_engine_view(e)->times.waits_s[DLB_WAIT_COLLECTIVE] += dlb_clock_s() - start_s;
	dlb_watch_take(r->watch, x + N_DECISIONS + R);
	end->stop = x[STOP] > 0.0;
	end->pause = x[PAUSE] > 0.0;
	end->loss = 0.0;
	for (int k = 0; k < R; k++)
		end->loss += x[N_DECISIONS + k];
	end->verdict = x[FAILED] > 0.0 ? DLB_STEP_FAILED
		: r->job.graph.loss >= 0 && !isfinite(end->loss) && !r->o->allow_nonfinite
		? DLB_STEP_NOT_FINITE
		: x[SPOILT] > 0.0 ? DLB_STEP_SPOILT
				  : DLB_STEP_GOOD;
	return 0;
}

int dlb_step_end_fail(const struct run *r, struct dlb_step_end *end, int *who, struct dlb_error *err)
{
	if (end->verdict == DLB_STEP_NOT_FINITE) {		/* known on all ranks */
		dlb_fail(err, NULL, "the loss of step %lld is not finite (%g)", (long long)end->step,
			 fabs(end->loss));
		return dlb_hint(err,
				r->o->checkpoint ? "the checkpoints before it are kept; try a smaller --lr"
						 : "try a smaller --lr");
	}
	*err = end->why;
	return dlb_comm_agree(r->comm, end->verdict == DLB_STEP_FAILED ? end->failed : end->spoilt, err, who);
}

static void keep_loss(struct run *r, double loss)
{
	char line[40];

	if (r->n_losses == r->cap_losses) {
		r->cap_losses = r->cap_losses ? 2 * r->cap_losses : 4096;
		r->loss = dlb_xrealloc(r->loss, (size_t)r->cap_losses, sizeof *r->loss);
	}
	r->loss[r->n_losses++] = loss;
	if (r->lines)
		dlb_lines_put(r->lines, line, (size_t)snprintf(line, sizeof line, "%.17g\n", loss));
}

/* Whether training has converged: "loss", "patience"; NULL: no. Depends on the loss alone, which is equal on
 * all ranks. */
static const char *converged(struct run *r, double loss)
{
	if (loss < r->at.best_loss) {
		r->at.best_loss = loss;
		r->at.since_best = 0;
	} else {
		r->at.since_best++;
	}
	if (!isnan(r->o->until_loss) && loss < r->o->until_loss)
		return "loss";
	if (r->o->patience > 0 && r->at.since_best >= r->o->patience)
		return "patience";
	return NULL;
}

/* Steps between two checkpoints; 0: there is only one, at the end. */
static int64_t interval(const struct run *r)
{
	return r->o->checkpoint ? r->o->checkpoint_every : 0;
}

bool dlb_run_pauses_at_once(const struct run *r) { return !interval(r) || r->buddy; }

const char *dlb_step_end_accept(struct run *r, struct dlb_step_end *end, int64_t samples)
{
	const char *stopped = NULL;

	end->next.best_loss = r->at.best_loss;
	end->next.since_best = r->at.since_best;
	r->at = end->next;
	if (r->o->steps_done)
		*r->o->steps_done = r->at.step;
	if (r->job.graph.loss >= 0) {
		keep_loss(r, end->loss);
		stopped = converged(r, end->loss);
	}
	dlb_watch_step(r->watch, samples, end->loss);
	r->pauses |= end->pause;
	if (end->stop || stopped)
		return end->stop ? "signal" : stopped;
	return r->pauses && dlb_run_pauses_at_once(r) ? DLB_STOPPED_PAUSE : NULL;
}

/* Copies the state if that is due. The log of steps must get the row of the last step first. */
static int copy_state(struct run *r, struct dlb_error *err)
{
	const struct dlb_local_state local = dlb_run_local_state(r);

	if (!r->buddy || r->stopped || r->at.step % r->o->buddy_every)
		return 0;
	if (r->o->step_log && dlb_watch_fetch(r->watch, r->comm, err))
		return -1;
	return dlb_buddy_copy(r->buddy, &local, &r->at, err);
}

int dlb_run_between_steps(struct run *r, bool *paused, int *who, struct dlb_error *err)
{
	const int64_t every = interval(r);

	if (r->stopped)
		return 0;
	if (dlb_evaluate_is_due(r)) {
		*paused = true;
		if (dlb_evaluate(r, true, who, err))
			return -1;
	}
	if (every && r->at.step % every == 0) {
		*paused = true;
		if (dlb_run_save_checkpoint(r, err))
			return -1;
		r->stopped = r->pauses ? DLB_STOPPED_PAUSE : NULL;
	}
	return copy_state(r, err);
}
