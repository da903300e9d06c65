/* A run: the synchronous step loop, checkpoints and the report. run_init.c opens all that a run needs,
 * step_end.c ends a step, async_loop.c is the loop with several steps under way, summary.c makes the report.
 *
 * Every rank runs this same code over its own part of the model. A stage in which one rank may fail and
 * others not ends in dlb_comm_agree, so all leave it together. Decisions at the end of a step depend only on
 * numbers that are equal on all ranks (step_end.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/await.h"
#include "exec/feed.h"
#include "exec/record.h"
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
	return dlb_feed_ask(r->feed, dlb_run_engine_for(r, dlb_run_batch_at(r, at)), at->epoch, at->position,
			    err);
}

int dlb_run_ask_ahead(struct run *r, int64_t step, struct dlb_progress_state *asked, struct dlb_error *err)
{
	for (; !dlb_run_limit_reached(r, asked) && asked->step <= step + dlb_feed_ahead(r->feed);
	     dlb_run_advance(r, asked))
		if (dlb_run_ask(r, asked, err))
			return -1;
	return 0;
}

static int no_work(void *ctx, struct dlb_error *err)
{
	(void)ctx;
	(void)err;
	return 0;
}

int dlb_run_on_disk(struct run *r, int rc, int (*work)(void *ctx, struct dlb_error *err), void *ctx,
		    struct dlb_error *err)
{
	const int now = dlb_comm_await_all(r->comm, rc || !work ? no_work : work, ctx, err);

	return rc || now ? -1 : 0;
}

/* Waits until all lines of the logs are written. Called before a checkpoint, so that the logs hold the lines
 * of its steps if the run is killed after it. A log that cannot be written ends the run after the next step
 * (step_end.c). */
static int drain_logs(void *ctx, struct dlb_error *err)
{
	struct run *r = ctx;

	(void)err;
	dlb_lines_drain(r->lines, NULL);
	dlb_watch_drain(r->watch, NULL);
	return 0;
}

int dlb_run_save_checkpoint(struct run *r, struct dlb_error *err)
{
	char *path = NULL;
	const struct dlb_local_state local = dlb_run_local_state(r);
	double ignored;

	if (dlb_watch_fetch(r->watch, r->comm, err) ||
	    dlb_sync_mean_state(r->comm, &r->job.plan, &r->job.cluster, &r->state, &ignored, err) ||
	    ((r->o->loss_log || r->o->step_log) && dlb_run_on_disk(r, 0, drain_logs, r, err)) ||
	    dlb_checkpoint_save(&r->checkpoint, r->comm, &r->state, &local, &r->at, &path, err))
		return -1;
	free(r->checkpoint_path);
	r->checkpoint_path = path;
	dlb_watch_event(r->watch, "checkpoint '%s'", path ? path : "");
	return 0;
}

int dlb_run_settle_copy(struct run *r, bool wait, struct dlb_error *err)
{
	if (!dlb_buddy_under_way(r->buddy))
		return 0;
	drain_logs(r, NULL); /* a run that continues from the copy continues the logs */
	return dlb_buddy_settle(r->buddy, wait, err);
}

/* Whether any node of the plan replays kernels. Equal on all ranks: they must keep op times of the same
 * steps, since the time-line shows one step of all ranks. */
static bool replays(const struct run *r)
{
	const struct dlb_cluster *c = &r->job.cluster;
	bool any = false;

	for (int i = 0; i < c->n_nodes; i++)
		any = any || !dlb_cluster_is_cpu(c, i);
	return any && !r->program[0].async && !r->o->no_gpu_graph;
}

void dlb_run_record_init(struct run *r)
{
	dlb_record_init(&r->record, dlb_engine_view(r->engine[0])->n_computes, replays(r));
}

/* Whether the step's kernels may be replayed, and so not timed. full_steps: full batches before this step. */
static bool may_replay(const struct run *r, int which, int64_t full_steps)
{
	return replays(r) && (which || (full_steps > 1 && !dlb_record_wants_ops(&r->record)));
}

/* The first full step is slower (caches, first touches), so it counts only if it is the only one. */
void dlb_run_keep_times(struct run *r, int which, int64_t full_steps)
{
	if (which)
		return;
	if (full_steps == 2) {
		dlb_record_release(&r->record);
		dlb_run_record_init(r);
	}
	dlb_record_add(&r->record, dlb_engine_view(r->engine[0]));
}

void dlb_run_slow_down(struct run *r, int64_t steps_done)
{
	const struct dlb_exec_options *o = r->o;

	if (o->n_slow_changes)
		r->runtime.slow.factor = dlb_slow_factor(r->rank < o->n_slow ? o->slow[r->rank] : 1.0,
							 o->slow_change, o->n_slow_changes, r->rank,
							 steps_done);
}

struct dlb_step dlb_run_step(const struct run *r, const struct dlb_progress_state *at,
			     const struct dlb_fed *fed)
{
	return (struct dlb_step){ .step = at->step,
				  .seed = r->o->seed,
				  .version = (uint64_t)at->step + 1,
				  .fed = fed,
				  .rate = dlb_optimizer_rate(&r->job.optimizer, at->step),
				  .has_rate = true,
				  .rate_before = dlb_optimizer_rate(&r->job.optimizer,
								    at->step ? at->step - 1 : 0) };
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
		fprintf(stderr,
			"dlb-run: parameter server %d: all nodes start with its weights, checksum %016llx\n",
			s->param_server, (unsigned long long)sum);
	return 0;
}

/* Runs a step of the synchronous loop until it has ended on all ranks. *full_steps: full batches so far.
 * *before_s: when the previous step ended, replaced by when this one ended. */
static int run_step(struct run *r, struct dlb_step_end *end, struct dlb_progress_state *asked,
		    int64_t *full_steps, double *before_s, int *who, struct dlb_error *err)
{
	const int which = dlb_run_engine_for(r, dlb_run_batch_at(r, &r->at));
	struct dlb_engine *e = r->engine[which];
	struct dlb_step_times *t = &dlb_engine_view(e)->times;
	const double asked_s = dlb_clock_s();
	const struct dlb_fed *fed;
	struct dlb_step step;
	double now_s, fed_s;

	end->why.what[0] = 0;
	if (dlb_feed_take(r->feed, &fed, &end->failed, &end->why, err))
		return -1;
	step = dlb_run_step(r, &r->at, fed);
	step.replay = may_replay(r, which, *full_steps);
	fed_s = dlb_clock_s();
	dlb_run_slow_down(r, r->at.step);
	end->next = r->at;
	dlb_run_advance(r, &end->next);
	if (dlb_run_ask_ahead(r, r->at.step, asked, err) || dlb_engine_run(e, &step, err))
		return -1;
	if (!end->failed && dlb_engine_sync(e) && !r->o->allow_nonfinite)
		end->failed = dlb_sync_verdict(dlb_engine_sync(e), &end->why);
	/* a new copy overwrites the one before the pending copy, which must then be complete */
	if (dlb_run_settle_copy(r, r->buddy && end->next.step % r->o->buddy_every == 0, err))
		return -1;
	dlb_step_end_start(r, e, &step, end);
	if (dlb_step_end_wait(r, e, end, err))
		return -1;
	now_s = dlb_clock_s();
	t->step_s = now_s - *before_s;
	t->data_wait_s = fed_s - asked_s;
	*before_s = now_s;
	dlb_run_keep_times(r, which, *full_steps += which == 0);
	dlb_watch_times(r->watch, e);
	if (end->verdict != DLB_STEP_GOOD)
		return dlb_step_end_fail(r, end, who, err);
	r->stopped = dlb_step_end_accept(r, end, r->size[which]);
	if (!r->stopped)
		r->stopped = dlb_run_limit_reached(r, &r->at);
	return 0;
}

static int sync_loop(struct run *r, int *who, struct dlb_error *err)
{
	struct dlb_progress_state asked = r->at;
	const double start_s = dlb_clock_s();
	double before_s = start_s;
	int64_t full_steps = 0;
	struct dlb_step_end end;
	int rc;

	dlb_watch_start(r->watch);
	r->stopped = dlb_run_limit_reached(r, &r->at);
	/* weights are fetched while the first samples are read */
	rc = dlb_run_ask_ahead(r, r->at.step, &asked, err) || fetch(r, err) ? -1 : 0;
	dlb_step_end_init(r, &end);
	while (!r->stopped && !rc) {
		bool paused = false;

		rc = run_step(r, &end, &asked, &full_steps, &before_s, who, err) ||
				     dlb_run_between_steps(r, &paused, who, err) ?
			     -1 :
			     0;
		if (!rc && (dlb_run_freezes(r) || dlb_run_is_round(r, &r->at, full_steps))) {
			paused = true;
			full_steps = 0;
			rc = dlb_run_freezes(r) ? dlb_run_freeze(r, &asked, who, err) :
						  dlb_run_end_round(r, &asked, who, err);
		}
		if (!rc && paused && dlb_run_ask_ahead(r, r->at.step - 1, &asked, err))
			rc = -1;
		if (paused)
			before_s = dlb_clock_s();
	}
	dlb_step_end_release(&end);
	r->wall_s = dlb_clock_s() - start_s;
	return rc;
}

static int train(struct run *r, int *who, struct dlb_error *err)
{
	if (r->o->steps_done)
		*r->o->steps_done = r->at.step;
	if (dlb_comm_barrier(r->comm, err))
		return -1;
	return r->program[0].depth ? dlb_run_async_loop(r, who, err) : sync_loop(r, who, err);
}

/* ---- the whole run ---- */

/* A log that cannot be written ends the run as a signal does, so that no work is lost; the run then fails. */
static int close_logs(void *ctx, struct dlb_error *err)
{
	struct run *r = ctx;

	return dlb_lines_drain(r->lines, err) || (r->log.f && dlb_output_commit(&r->log, err)) ||
	       dlb_watch_drain(r->watch, err) ? -1 : 0;
}

/* Ends a run that other ranks will continue. */
static int pause_run(struct run *r, int *who, struct dlb_error *err)
{
	*who = 0;
	if (dlb_run_pauses_at_once(r) && dlb_run_save_checkpoint(r, err)) /* else one was just saved */
		return -1;
	return dlb_comm_agree(r->comm, dlb_run_on_disk(r, 0, close_logs, r, err), err, NULL);
}

/* Waits for samples that are a smaller part of a step, or shorter in the whole run, are not worth a line. */
static const double least_part = 0.1, least_s = 1;

/* Says which node waits most for samples, where that makes the run much longer. */
static void say_starved(const struct run *r, const struct dlb_report *report)
{
	char text[300];
	double sample_s;
	const int node = dlb_report_starved(report, &sample_s);
	const double wait_s = report->node[node].data_wait_s;

	if (!r->o->warn || wait_s < least_part * report->step_s || wait_s * (double)report->steps < least_s)
		return;
	snprintf(text, sizeof text,
		 "node %d waits %.0f %% of a step for samples, of which each takes %.3g ms to prepare; give "
		 "more cores "
		 "(--readers), decode and resize them once before the run, or let more nodes prepare them "
		 "(dlb-place --replicas%s)",
		 node, 100 * wait_s / report->step_s, 1e3 * sample_s, r->dispatch ? ", --feed local" : "");
	r->o->warn(r->o->warn_ctx, text);
}

static int finish(struct run *r, struct dlb_report *report, int *who, struct dlb_error *err)
{
	const struct dlb_exec_options *o = r->o;
	/* a process told to stop may be killed soon: the checkpoint comes first */
	const bool in_haste = !strcmp(r->stopped, "signal");

	*who = 0;			/* rank 0 prints errors that all ranks have alike */
	if (dlb_sync_mean_state(r->comm, &r->job.plan, &r->job.cluster, &r->state, &r->apart, err))
		return -1;
	if (!in_haste && dlb_evaluate(r, r->at.step > r->first_step, who, err))
		return -1;
	if (dlb_watch_fetch(r->watch, r->comm, err))
		return -1;
	if (o->checkpoint && (r->at.step > r->first_step || !r->checkpoint_path) &&
	    dlb_run_save_checkpoint(r, err))
		return -1;
	if (dlb_run_report(r, report, err))
		return -1;
	if (!r->rank)
		say_starved(r, report);
	if (in_haste && dlb_evaluate(r, false, who, err))
		return -1;
	dlb_evaluate_report(r, report);
	if (o->save && dlb_weights_save(o->save, o->merge, r->comm, &r->state, err))
		return -1;
	if (dlb_comm_agree(r->comm, dlb_run_on_disk(r, 0, close_logs, r, err), err, NULL))
		return -1;
	dlb_watch_event(r->watch, "ended: %s", r->stopped);
	if (o->save)
		report->saved = dlb_arena_strdup(&report->arena, o->save);
	if (r->checkpoint_path)
		report->checkpoint = dlb_arena_strdup(&report->arena, r->checkpoint_path);
	return 0;
}

int dlb_exec_run(struct dlb_comm *comm, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_report *report, bool *paused, int *who, struct dlb_error *err)
{
	struct run *r = dlb_xcalloc(1, sizeof *r);
	int rc;

	memset(report, 0, sizeof *report);
	*who = 0;			/* rank 0 prints errors that all ranks have alike */
	r->o = o;
	r->doc = doc;
	r->comm = comm;
	r->rank = dlb_comm_rank(comm);
	r->checkpoint.lock = -1;
	rc = dlb_run_open(r, doc, who, err);
	if (!rc)
		rc = train(r, who, err);
	*paused = !rc && !strcmp(r->stopped, DLB_STOPPED_PAUSE);
	if (!rc)
		rc = *paused ? pause_run(r, who, err) : finish(r, report, who, err);
	r->ends = !rc && !*paused;
	dlb_run_close(r);
	free(r);
	return rc;
}
