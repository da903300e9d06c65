/* Measures loss and, of a classification, accuracy on the test data during training (--eval-every) and at the
 * end, and saves the weights with the lowest test loss (--save-best).
 *
 * A measurement runs between two steps, when no message is in flight. It reads weights and running statistics
 * in place and does not write them. Samples come from a separate reader of the test data. So a measurement
 * does not change training. Its time is not part of any step's time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "exec/run.h"
#include "util/clock.h"
#include "util/mem.h"

int dlb_evaluate_fits(const struct dlb_exec_options *o, const struct dlb_program *p, struct dlb_error *err)
{
	if (!o->eval_every || !p->depth ||
	    (o->checkpoint && o->checkpoint_every && o->eval_every % o->checkpoint_every == 0))
		return 0;
	return dlb_refuse(
		err, NULL,
		"give --checkpoint DIR and --checkpoint-every K, and a multiple of K to --eval-every",
		"--eval-every %lld: several steps of this asynchronous plan are under way at a time, but at "
		"checkpoints",
		(long long)o->eval_every);
}

bool dlb_evaluate_is_due(const struct run *r)
{
	return r->eval && r->o->eval_every > 0 && r->at.step % r->o->eval_every == 0;
}

struct best_file { const struct run *r; bool there; };

static int look_for_best(void *ctx, struct dlb_error *err)
{
	struct best_file *b = ctx;
	struct stat st;

	(void)err;
	b->there = !b->r->rank && !stat(b->r->o->save_best, &st);
	return 0;
}

/* A resumed run keeps the best weights saved before, if their file still exists. */
int dlb_evaluate_resume(struct run *r, struct dlb_error *err)
{
	struct best_file b = { .r = r };

	if (!r->o->save_best)
		return 0;
	if (dlb_run_on_disk(r, 0, look_for_best, &b, err) ||
	    dlb_comm_bcast(r->comm, &b.there, sizeof b.there, 0, err))
		return -1;
	if (!b.there)
		r->at.best_test_loss = HUGE_VAL;
	return 0;
}

static void keep(struct run *r, const struct dlb_report_eval *e)
{
	DLB_GROW(r->evals, r->n_evals, r->cap_evals);
	r->evals[r->n_evals++] = *e;
}

static int save_best(struct run *r, const struct dlb_report_eval *e, struct dlb_error *err)
{
	r->at.best_test_loss = e->test_loss;
	r->at.best_test_step = e->step;
	if (dlb_weights_save(r->o->save_best, r->o->merge, r->comm, &r->state, err))
		return -1;
	r->saved_best = true;
	return 0;
}

int dlb_evaluate(struct run *r, bool may_be_best, int *who, struct dlb_error *err)
{
	struct dlb_report_eval e = { .step = r->at.step };
	const double start_s = dlb_clock_s();
	char took[32], accuracy[48] = "";
	bool best;

	if (!r->eval || (r->n_evals && r->evals[r->n_evals - 1].step == r->at.step &&
			 !dlb_sync_state_differs(&r->job.plan)))
		return 0;
	const struct dlb_step like = { .version = (uint64_t)++r->eval_version, .replay = !r->o->no_gpu_graph };
	if (dlb_eval_run(r->eval, r->comm, &like, &e.accuracy, &e.test_loss, who, err))
		return -1;
	e.time_s = dlb_clock_s() - start_s;
	/* the earlier measurement of this step was made before the replicas' weights were averaged */
	if (r->n_evals && r->evals[r->n_evals - 1].step == e.step)
		r->n_evals--;
	keep(r, &e);
	/* the loss is a sum over all ranks, so the decision is equal on all ranks */
	best = r->o->save_best && may_be_best && e.test_loss < r->at.best_test_loss;
	if (best && save_best(r, &e, err))
		return -1;
	dlb_watch_measured(r->watch, e.test_loss, e.accuracy, e.time_s);
	if (isfinite(e.accuracy))
		snprintf(accuracy, sizeof accuracy, ", accuracy %.4g", e.accuracy);
	dlb_watch_event(r->watch, "test loss %.4g%s, took %s%s%s%s", e.test_loss, accuracy,
			dlb_status_seconds(e.time_s, took), best ? ", the best so far: saved '" : "",
			best ? r->o->save_best : "", best ? "'" : "");
	return 0;
}

void dlb_evaluate_report(const struct run *r, struct dlb_report *report)
{
	const struct dlb_report_eval *last = r->n_evals ? &r->evals[r->n_evals - 1] : NULL;

	if (!last || last->step != r->at.step)
		return;
	report->accuracy = last->accuracy;
	report->test_loss = last->test_loss;
	if (!r->o->eval_every)
		return;
	report->eval = dlb_arena_array(&report->arena, (size_t)r->n_evals + 1, sizeof *report->eval);
	memcpy(report->eval, r->evals, (size_t)r->n_evals * sizeof *report->eval);
	report->n_evals = r->n_evals;
	if (!r->o->save_best || !isfinite(r->at.best_test_loss))
		return;
	report->best = (struct dlb_report_best){ r->at.best_test_step, r->at.best_test_loss,
						 dlb_arena_strdup(&report->arena, r->o->save_best) };
}
