/* The job around the step loop: set-up, stepping until a limit, checkpoints, the report.
 *
 * Every rank runs this same code over its own part. Where one may fail and others not, the stage ends in
 * dlb_comm_agree, so all leave together; decisions (stop, signal, a loss that is not finite) are made on
 * numbers that one small sum over the ranks at the end of each step has made equal everywhere. Only the
 * rank that computes the loss contributes to it, so the sum is exact.
 *
 * run_init.c opens all that a run needs, async_loop.c is the loop where several steps are under way, summary.c makes the report. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exec/run.h"
#include "model/weights.h"
#include "util/clock.h"
#include "util/mem.h"

const char *dlb_run_limit_reached(const struct run *r, const struct dlb_progress_state *at)
{
	if (at->step >= r->end_step)
		return "steps";
	if (at->epoch > r->end_epoch || (at->epoch == r->end_epoch && at->position >= r->end_position))
		return "epochs";
	return NULL;
}

int64_t dlb_run_batch_at(const struct run *r, const struct dlb_progress_state *at)
{
	return r->size[0] < dlb_run_left_of_epoch(r, at) ? r->size[0] : dlb_run_left_of_epoch(r, at);
}

int dlb_run_engine_for(const struct run *r, int64_t n)
{
	for (int i = 0; i < r->n_engines; i++)
		if (r->size[i] == n)
			return i;
	dlb_bug("no program for a batch of %lld", (long long)n);
}

void dlb_run_advance(const struct run *r, struct dlb_progress_state *at)
{
	at->position += dlb_run_batch_at(r, at);
	at->step++;
	if (at->position >= r->count) {
		at->epoch++;
		at->position = 0;
	}
}

int dlb_run_ask(struct run *r, const struct dlb_progress_state *at, struct dlb_error *err)
{
	return dlb_feed_ask(r->feed, dlb_run_engine_for(r, dlb_run_batch_at(r, at)), at->epoch, at->position, err);
}

int dlb_run_ask_ahead(struct run *r, int64_t step, struct dlb_progress_state *asked, struct dlb_error *err)
{
	for (; !dlb_run_limit_reached(r, asked) && asked->step <= step + dlb_feed_ahead(r->feed); dlb_run_advance(r, asked))
		if (dlb_run_ask(r, asked, err))
			return -1;
	return 0;
}

int dlb_run_save_checkpoint(struct run *r, struct dlb_error *err)
{
	char *path = NULL;
	const struct dlb_local_state local = dlb_run_local_state(r);
	double ignored;

	if (dlb_watch_fetch(r->watch, r->comm, err) ||
	    dlb_sync_mean_state(r->comm, &r->job.plan, &r->job.cluster, &r->state, &ignored, err) ||
	    dlb_checkpoint_save(&r->checkpoint, r->comm, &r->state, &local, &r->at, &path, err))
		return -1;
	free(r->checkpoint_path);
	r->checkpoint_path = path;
	dlb_watch_event(r->watch, "checkpoint '%s'", path ? path : "");
	return 0;
}

/* Has it learnt enough? Made of the loss alone, which all ranks know alike. */
const char *dlb_run_converged(struct run *r, double loss)
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

int dlb_run_weights_finite(const struct run *r, struct dlb_engine *e, int64_t step, struct dlb_error *err)
{
	const struct dlb_engine_program *v = dlb_engine_view(e);

	if (v->not_finite < 0 || r->o->allow_nonfinite)
		return 0;
	dlb_fail(err, NULL, "the weight '%s' is not finite after step %lld", v->program->graph->tensor[v->not_finite].name, (long long)step);
	return dlb_hint(err, "is there NaN in the data? else try a smaller --lr");
}

struct step_end { double loss; bool stop, failed, spoilt; };	/* failed: as `wrong` on some rank; spoilt likewise */

/* The end of a step: the loss and whether to stop, equal on all ranks. One rank makes a replica's loss, so each sum has one
 * term that is not zero; replicas' losses are added in their order. */
static int step_end(struct run *r, struct dlb_engine *e, const struct dlb_step *step, int wrong, int spoilt, struct step_end *end,
		    struct dlb_error *err)
{
	int R = r->job.plan.n_replicas;
	double start_s = dlb_clock_s(), *x = r->ending;

	memset(x, 0, ((size_t)R + N_ENDING) * sizeof *x);
	x[ENDING_STOP] = dlb_run_wants_end(r) ? 1.0 : 0.0;
	x[ENDING_FAILED] = wrong ? 1.0 : 0.0;
	x[ENDING_SPOILT] = spoilt ? 1.0 : 0.0;
	x[N_ENDING + r->replica] = step->fed->weight * dlb_engine_loss_of(e, step);
	dlb_watch_put(r->watch, x + N_ENDING + R);
	if (dlb_comm_allreduce_f64(r->comm, x, dlb_run_ending_length(r), DLB_COMM_SUM, err))
		return -1;
	dlb_watch_take(r->watch, x + N_ENDING + R);
	dlb_engine_view(e)->times.waits_s[DLB_WAIT_COLLECTIVE] += dlb_clock_s() - start_s;
	*end = (struct step_end){ .stop = x[ENDING_STOP] > 0.0, .failed = x[ENDING_FAILED] > 0.0, .spoilt = x[ENDING_SPOILT] > 0.0 };
	for (int k = 0; k < R; k++)
		end->loss += x[N_ENDING + k];
	return 0;
}

void dlb_run_keep_loss(struct run *r, double loss)
{
	if (r->n_losses == r->cap_losses) {
		r->cap_losses = r->cap_losses ? 2 * r->cap_losses : 4096;
		r->loss = dlb_xrealloc(r->loss, (size_t)r->cap_losses, sizeof *r->loss);
	}
	r->loss[r->n_losses++] = loss;
	if (r->log.f && !r->log_lost.what[0]) {
		fprintf(r->log.f, "%.17g\n", loss);
		dlb_output_flush(&r->log, &r->log_lost);
	}
}

bool dlb_run_wants_end(const struct run *r)
{
	struct dlb_error ignored;

	return (r->o->stop && *r->o->stop) || r->log_lost.what[0] || dlb_watch_wrong(r->watch, &ignored);
}

/* The first full step is slower (caches, first touches): it counts only when there is no other. */
void dlb_run_keep_times(struct run *r, int which, int64_t full_steps)
{
	if (which)
		return;
	if (full_steps == 2) {
		dlb_record_release(&r->record);
		dlb_record_init(&r->record, dlb_engine_view(r->engine[0])->n_computes);
	}
	dlb_record_add(&r->record, dlb_engine_view(r->engine[0]));
}

struct dlb_step dlb_run_step(const struct run *r, const struct dlb_progress_state *at, const struct dlb_fed *fed)
{
	return (struct dlb_step){ .step = at->step, .seed = r->o->seed, .version = (uint64_t)at->step + 1, .fed = fed,
		.rate = dlb_optimizer_rate(&r->job.optimizer, at->step), .has_rate = true,
		.rate_before = dlb_optimizer_rate(&r->job.optimizer, at->step ? at->step - 1 : 0) };
}

int dlb_run_not_finite(const struct run *r, int64_t step, double loss, struct dlb_error *err)
{
	dlb_fail(err, NULL, "the loss of step %lld is not finite (%g)", (long long)step, fabs(loss));
	return dlb_hint(err, r->o->checkpoint ? "the checkpoints before it are kept; try a smaller --lr" : "try a smaller --lr");
}

int64_t dlb_run_total_steps(const struct run *r)
{
	const int64_t of_epoch = (r->count + r->size[0] - 1) / r->size[0];
	int64_t steps = INT64_MAX;

	if (r->end_step != INT64_MAX)
		steps = r->end_step - r->first_step;
	if (r->end_epoch != INT64_MAX && (r->end_epoch - r->at.epoch) * of_epoch < steps)
		steps = (r->end_epoch - r->at.epoch) * of_epoch;
	return steps == INT64_MAX ? 0 : steps;
}

static int fetch(struct run *r, struct dlb_error *err)
{
	const struct dlb_sharing *s = &r->job.plan.sharing;
	uint64_t sum = 0;

	if (dlb_sync_fetch_weights(r->comm, &r->job.plan, &r->state, &sum, err))
		return -1;
	if (r->o->verbose && r->job.plan.n_replicas > 1 && s->param_server == r->rank)
		fprintf(stderr, "dlb-run: parameter server %d: all nodes start with its weights, checksum %016llx\n", s->param_server,
			(unsigned long long)sum);
	return 0;
}

static int train(struct run *r, int *who, struct dlb_error *err)
{
	bool has_loss = r->job.graph.loss >= 0;
	int64_t full_steps = 0;
	double start_s, before_s;
	struct dlb_progress_state asked = r->at;

	if (dlb_comm_barrier(r->comm, err))
		return -1;
	if (r->program[0].depth)
		return dlb_run_async_loop(r, who, err);
	start_s = before_s = dlb_clock_s();
	dlb_watch_start(r->watch);
	r->stopped = dlb_run_limit_reached(r, &r->at);
	if (dlb_run_ask_ahead(r, r->at.step, &asked, err))
		return -1;
	if (fetch(r, err))				/* while the first samples are read */
		return -1;
	while (!r->stopped) {
		int which = dlb_run_engine_for(r, dlb_run_batch_at(r, &r->at));
		struct dlb_engine *e = r->engine[which];
		struct dlb_error why = { .what = "" };
		struct step_end end;
		int wrong, spoilt;
		double asked_s = dlb_clock_s();
		const struct dlb_fed *fed;
		struct dlb_progress_state next = r->at;
		struct dlb_step step;
		double now_s, fed_s;

		if (dlb_feed_take(r->feed, &fed, &wrong, &why, err))
			return -1;
		step = dlb_run_step(r, &r->at, fed);
		fed_s = dlb_clock_s();
		dlb_run_advance(r, &next);
		if (dlb_run_ask_ahead(r, r->at.step, &asked, err))
			return -1;
		if (dlb_engine_run(e, &step, err))
			return -1;
		if (!wrong && dlb_engine_sync(e) && !r->o->allow_nonfinite)
			wrong = dlb_sync_verdict(dlb_engine_sync(e), &why);
		spoilt = wrong ? 0 : dlb_run_weights_finite(r, e, r->at.step, &why);
		if (step_end(r, e, &step, wrong, spoilt, &end, err))
			return -1;
		if (end.failed) {
			*err = why;
			return dlb_comm_agree(r->comm, wrong, err, who);
		}
		now_s = dlb_clock_s();
		dlb_engine_view(e)->times.step_s = now_s - before_s;
		dlb_engine_view(e)->times.data_wait_s = fed_s - asked_s;
		before_s = now_s;
		dlb_run_keep_times(r, which, full_steps += which == 0);
		dlb_watch_times(r->watch, e);
		if (has_loss && !isfinite(end.loss) && !r->o->allow_nonfinite)
			return dlb_run_not_finite(r, r->at.step, end.loss, err);
		if (end.spoilt) {
			*err = why;
			return dlb_comm_agree(r->comm, spoilt, err, who);
		}
		next.best_loss = r->at.best_loss;
		next.since_best = r->at.since_best;
		r->at = next;
		if (has_loss) {
			dlb_run_keep_loss(r, end.loss);
			r->stopped = dlb_run_converged(r, end.loss);
		}
		if (end.stop)
			r->stopped = "signal";
		else if (!r->stopped)
			r->stopped = dlb_run_limit_reached(r, &r->at);
		dlb_watch_step(r->watch, r->size[which], end.loss);
		if (!r->stopped && dlb_evaluate_is_due(r)) {
			if (dlb_evaluate(r, true, who, err))
				return -1;
			before_s = dlb_clock_s();
		}
		if (r->o->checkpoint && r->o->checkpoint_every && !r->stopped && r->at.step % r->o->checkpoint_every == 0) {
			if (dlb_run_save_checkpoint(r, err))
				return -1;
			before_s = dlb_clock_s();
		}
	}
	r->wall_s = dlb_clock_s() - start_s;
	return 0;
}

/* ---- the whole run ---- */

/* A log that could not be written ends the run as a signal does, so that no work is lost, and then fails it. */
static int close_log(struct run *r, struct dlb_error *err)
{
	int rc = 0;

	if (r->log_lost.what[0]) {
		*err = r->log_lost;
		rc = -1;
	} else if (r->log.f) {
		rc = dlb_output_commit(&r->log, err);
	}
	return dlb_comm_agree(r->comm, rc, err, NULL);
}

static int finish(struct run *r, struct dlb_report *report, int *who, struct dlb_error *err)
{
	const struct dlb_exec_options *o = r->o;
	const bool in_haste = !strcmp(r->stopped, "signal");	/* who was told to stop may be killed soon: the checkpoint comes first */

	*who = 0;			/* and again what all find alike */
	if (dlb_sync_mean_state(r->comm, &r->job.plan, &r->job.cluster, &r->state, &r->apart, err))
		return -1;
	if (!in_haste && dlb_evaluate(r, r->at.step > r->first_step, who, err))
		return -1;
	if (dlb_watch_fetch(r->watch, r->comm, err))
		return -1;
	if (o->checkpoint && (r->at.step > r->first_step || !r->checkpoint_path) && dlb_run_save_checkpoint(r, err))
		return -1;
	if (dlb_run_report(r, report, err))
		return -1;
	if (in_haste && dlb_evaluate(r, false, who, err))
		return -1;
	dlb_evaluate_report(r, report);
	if (o->save && dlb_weights_save(o->save, r->comm, &r->state, err))
		return -1;
	if (close_log(r, err) || dlb_comm_agree(r->comm, dlb_watch_wrong(r->watch, err), err, NULL))
		return -1;
	dlb_watch_event(r->watch, "ended: %s", r->stopped);
	if (o->save)
		report->saved = dlb_arena_strdup(&report->arena, o->save);
	if (r->checkpoint_path)
		report->checkpoint = dlb_arena_strdup(&report->arena, r->checkpoint_path);
	return 0;
}

int dlb_exec_run(struct dlb_comm *comm, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_report *report, int *who, struct dlb_error *err)
{
	struct run *r = dlb_xcalloc(1, sizeof *r);
	int rc;

	memset(report, 0, sizeof *report);
	*who = 0;			/* what all ranks find alike is rank 0's to say */
	r->o = o;
	r->comm = comm;
	r->rank = dlb_comm_rank(comm);
	r->checkpoint.lock = -1;
	rc = dlb_run_open(r, doc, who, err);
	if (!rc)
		rc = train(r, who, err);
	if (!rc)
		rc = finish(r, report, who, err);
	dlb_run_close(r);
	free(r);
	return rc;
}
