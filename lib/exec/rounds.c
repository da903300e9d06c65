/* Rounds inside a run (--rounds): between two steps the caller may change the plan, and the state moves to its
 * new nodes. The results stay the same, bit for bit. Under an asynchronous schedule they are those of a run
 * that ends there and continues from a checkpoint under the new plan.
 *
 * A round is `round_steps` full batches. Its report goes to the caller's next_plan, which decides; all ranks
 * wait meanwhile. A new plan needs new programs, engines and feed; weights, buffers and optimizer state stay
 * where they are or go straight to the node that now needs them (move.c). */
#include <stdlib.h>
#include <string.h>
#include "exec/run.h"
#include "util/clock.h"

bool dlb_run_is_round(const struct run *r, const struct dlb_progress_state *at, int64_t full_steps)
{
	/* a full batch must follow: its time measures a new plan */
	return r->o->next_plan && r->round < r->o->rounds && full_steps >= r->o->round_steps && !r->stopped &&
	       dlb_run_batch_at(r, at) == r->size[0];
}

int64_t dlb_run_left_steps(const struct run *r)
{
	const int64_t batch = r->size[0];
	int64_t left = r->end_step == INT64_MAX ? INT64_MAX : r->end_step - r->at.step;

	if (r->end_epoch != INT64_MAX) {
		const int64_t of_epoch = (r->count + batch - 1) / batch,
			      n = (r->end_epoch - r->at.epoch) * of_epoch +
				  (r->end_position - r->at.position) / batch;

		left = n < left ? n : left;
	}
	return left;
}

/* Makes a report on this round alone, without losses, ops and time-line, which are of no use between
 * rounds. */
static int measure(struct run *r, struct dlb_report *report, struct dlb_error *err)
{
	if (dlb_run_report(r, report, err))
		return -1;
	report->steps = r->o->round_steps;
	report->n_losses = report->n_ops = 0;
	report->timeline = NULL;
	report->allreduce.n_buckets = 0;
	return 0;
}

/* Continues under the document's plan. *asked: the next step to ask the feed for. */
static int change(struct run *r, bool frozen, struct dlb_progress_state *asked, int *who,
		  struct dlb_error *err)
{
	const double change_s = dlb_clock_s();
	const int rc = dlb_run_reopen(r, frozen, who, err);

	*asked = r->at;
	r->change_s = dlb_clock_s() - change_s;
	return rc;
}

int dlb_run_end_round(struct run *r, struct dlb_progress_state *asked, int *who, struct dlb_error *err)
{
	struct dlb_round_decision d = { .left_steps = dlb_run_left_steps(r), .change_s = r->change_s };
	struct dlb_report report = { .n_nodes = 0 };
	int rc = measure(r, &report, err);

	*who = 0;
	if (!rc)
		rc = r->o->next_plan(r->o->next_plan_ctx, r->comm, &report, &d, who, err);
	dlb_report_release(&report);
	r->round++;
	if (!rc)
		dlb_watch_decided(r->watch, d.text);
	if (!rc && d.moves)
		return change(r, false, asked, who, err);
	if (!rc && !r->rank)
		rc = dlb_job_correct(&r->job, r->doc, err) || dlb_watch_replanned(r->watch, err) ? -1 : 0;
	return dlb_comm_agree(r->comm, rc, err, who);
}

int dlb_run_check_freeze(const struct run *r, struct dlb_error *err)
{
	const struct dlb_freeze_at *f = r->o->freeze_at;
	const int n = r->o->n_freeze_at;
	const int64_t left = dlb_run_left_steps(r);

	if (r->o->n_frozen && f[r->o->n_frozen - 1].step > r->at.step)
		return dlb_refuse(
			err, NULL, "remove it to go on from the one before, without frozen weights",
			"--freeze-at '%.100s@%lld': the checkpoint of step %lld is damaged, and the one "
			"before it is of step %lld",
			f[r->o->n_frozen - 1].glob, (long long)f[r->o->n_frozen - 1].step,
			(long long)r->o->frozen_step, (long long)r->at.step);
	if (n > r->o->n_frozen && left != INT64_MAX && f[n - 1].step >= r->at.step + left)
		return dlb_refuse(err, NULL, "give an earlier step",
				  "--freeze-at '%.100s@%lld': the run ends at step %lld", f[n - 1].glob,
				  (long long)f[n - 1].step, (long long)(r->at.step + left));
	return 0;
}

bool dlb_run_freezes(const struct run *r)
{
	return !r->stopped && r->n_frozen < r->o->n_freeze_at &&
	       r->o->freeze_at[r->n_frozen].step <= r->at.step;
}

int dlb_run_freeze(struct run *r, struct dlb_progress_state *asked, int *who, struct dlb_error *err)
{
	struct dlb_freezing f = { .first = r->n_frozen };
	char line[DLB_ROUND_TEXT + 40];

	while (dlb_run_freezes(r))
		r->n_frozen++;
	f.n = r->n_frozen - f.first;
	if (r->o->freeze(r->o->next_plan_ctx, r->comm, &f, who, err))
		return -1;
	if (!f.text[0]) /* all these weights are frozen already */
		return 0;
	snprintf(line, sizeof line, "step %lld: %s", (long long)r->at.step, f.text);
	dlb_watch_decided(r->watch, line);
	if (!r->rank && r->o->warn)
		r->o->warn(r->o->warn_ctx, line);
	return change(r, true, asked, who, err);
}
