/* Starts the ranks again after a node is lost. See restart.h. */
#include "exec/restart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/alarm.h"
#include "exec/event.h"
#include "exec/checkpoint.h"
#include "util/clock.h"
#include "util/input.h"
#include "util/mem.h"

enum { MOST_RETRIES = 3 };

struct restarts {
	struct dlb_run_command *command;
	struct dlb_report_event *event; int n, cap;	/* their causes are on the heap */
	bool *lost;					/* [n_ranks] in this run */
	int retries;					/* starts without a step, of unnamed ranks */
	double lost_s;					/* when the last one was noticed to be lost */
};

int dlb_restart_check(const struct dlb_run_command *c, struct dlb_error *err)
{
	const struct dlb_exec_options *x = &c->exec;

	if (!x->replan)
		return 0;
	if (!x->checkpoint)
		return dlb_refuse(err, NULL, "give --checkpoint DIR and --checkpoint-every N",
				  "--on-failure replan: there is no checkpoint to go on from");
	if (!x->checkpoint_every)
		dlb_cli_warn(c->cli,
			     "--on-failure replan: without --checkpoint-every N a run that loses a node goes "
			     "back to its start");
	return 0;
}

/* Where the first step after the last loss has ended. */
static void note_training(struct restarts *s, const struct dlb_launch_end *end)
{
	for (int i = 0; i < s->n; i++)
		if (isnan(s->event[i].resume_s) && !isnan(end->trains_s))
			s->event[i].resume_s = end->trains_s - s->lost_s;
}

/* ---- the result ---- */

/* ctx: a struct restarts. Writes the document at path to out, with the events in its report. */
static int write_result(void *ctx, const char *path, const struct dlb_launch_end *end, FILE *out,
			struct dlb_error *err)
{
	struct restarts *s = ctx;
	const struct dlb_report events = { .event = s->event, .n_events = s->n };
	struct dlb_doc doc;
	int rc;

	note_training(s, end);
	dlb_input_set_max_text(UINT64_MAX);
	if (dlb_doc_read(&doc, path, err))
		return -1;
	dlb_report_events_write(&events, dlb_doc_section(&doc, "report"));
	rc = dlb_doc_write(&doc, out, err);
	dlb_doc_release(&doc);
	return rc;
}

/* ---- lost nodes ---- */

static void keep_events(struct restarts *s, const struct dlb_launch_end *end, int n_ranks)
{
	for (int i = 0; i < n_ranks; i++) {
		if (!end->node[i])
			continue;
		DLB_GROW(s->event, s->n, s->cap);
		s->event[s->n++] = (struct dlb_report_event){ .step = end->step,
							      .node = i,
							      .cause = dlb_xstrdup(end->why.what),
							      .notice_s = end->notice_s,
							      .resume_s = NAN };
	}
}

/* Says how the run goes on. */
static void say(const struct restarts *s, const struct dlb_launch_end *end, const char *text)
{
	const struct dlb_run_command *c = s->command;
	char *newest = dlb_checkpoint_newest(c->exec.checkpoint);

	dlb_cli_warn(c->cli, "%s; going on from %s%s%s: %s", end->why.what, newest ? "'" : "the start",
		     newest ? newest : "", newest ? "'" : "", text);
	free(newest);
}

/* Plans again without the nodes that `end` lost. -1 with err. */
static int go_on(struct restarts *s, struct dlb_launch *l, struct dlb_doc *doc, const struct dlb_launch_end *end,
		 struct dlb_error *err)
{
	struct dlb_run_command *c = s->command;
	struct dlb_error why;
	char text[256];
	bool any = !isnan(end->trains_s);

	for (int i = 0; i < l->n_ranks; i++) {
		any |= end->node[i] && !s->lost[i];
		s->lost[i] |= end->node[i];
	}
	if (!any) {			/* ranks without work die at each start */
		*err = end->why;
		return dlb_hint(err, "its rank cannot be started again");
	}
	if (c->survive(c->cli, doc, s->lost, l->n_ranks, text, &why)) {
		dlb_fail(err, NULL, "%.300s; cannot go on: %.200s", end->why.what, why.what);
		dlb_alarm_hint(c->exec.checkpoint, err);
		return -1;
	}
	say(s, end, text);
	l->lost = end->first;
	l->lost_s = s->lost_s;
	if (end->begin.known)
		l->begin = end->begin;
	return 0;
}

/* A rank died before the ranks met, and no one knows which: the same start again, a few times. */
static bool try_again(struct restarts *s, const struct dlb_launch_end *end)
{
	if (!end->unnamed || s->retries++ >= MOST_RETRIES)
		return false;
	dlb_cli_warn(s->command->cli, "a rank was killed before the ranks had met; starting them again");
	return true;
}

static bool told_to_stop(const struct dlb_launch *l)
{
	return l->stop && *l->stop;
}

int dlb_restart_run(struct dlb_run_command *c, struct dlb_launch *l, struct dlb_doc *doc, FILE *out,
		    struct dlb_error *err)
{
	struct restarts s = { .command = c };
	bool again;
	int rc;

	s.lost = dlb_xcalloc((size_t)l->n_ranks + 1, sizeof *s.lost);
	l->lost = -1;
	do {
		struct dlb_launch_end end;

		l->finish = s.n ? write_result : NULL;
		l->finish_ctx = &s;
		rc = dlb_launch(l, doc, out, &end, err);
		note_training(&s, &end);
		s.retries = isnan(end.trains_s) ? s.retries : 0;
		again = rc && c->exec.replan && !told_to_stop(l) && (end.n || try_again(&s, &end));
		if (again && end.n) {
			s.lost_s = end.lost_s;
			keep_events(&s, &end, l->n_ranks);
			again = !go_on(&s, l, doc, &end, err);
		}
		dlb_launch_end_release(&end);
	} while (again);
	for (int i = 0; i < s.n; i++)
		free((char *)(uintptr_t)s.event[i].cause);
	free(s.event);
	free(s.lost);
	return rc;
}
