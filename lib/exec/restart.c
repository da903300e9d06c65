/* Starts the ranks again after a node is lost, or can be put back. See restart.h. */
#include "exec/restart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/alarm.h"
#include "exec/copies.h"
#include "exec/event.h"
#include "exec/checkpoint.h"
#include "exec/outage.h"
#include "util/clock.h"
#include "util/input.h"
#include "util/mem.h"

enum { MOST_RETRIES = 3 };

struct restarts {
	struct dlb_run_command *command;
	struct dlb_report_event *event; int n, cap;	/* their causes are on the heap */
	struct dlb_outage *outage;
	json_t *plan;					/* of the first start */
	bool yields;					/* of the first start (launch.h) */
	/* retries: starts of the same ranks since one did a step that no earlier start had done; furthest:
	 * that step */
	int retries; int64_t furthest;
	double lost_s;		/* when the last loss was noticed, or training ended to put nodes back */
};

int dlb_restart_check(const struct dlb_run_command *c, struct dlb_error *err)
{
	const struct dlb_exec_options *x = &c->exec;

	if (!x->replan)
		return 0;
	if (!x->checkpoint)
		return dlb_refuse(err, NULL, "give --checkpoint DIR and --checkpoint-every N",
				  "--on-failure replan: there is no checkpoint to go on from");
	if (!x->checkpoint_every && !x->buddy_every)
		dlb_cli_warn(c->cli,
			     "--on-failure replan: without --checkpoint-every N a run that loses a node goes "
			     "back to its start");
	return 0;
}

/* Completes the events of the last loss once the first step after it has ended. */
static void note_training(struct restarts *s, const struct dlb_launch_end *end)
{
	for (int i = 0; i < s->n; i++) {
		struct dlb_report_event *e = &s->event[i];

		if (!isnan(e->resume_s) || isnan(end->trains_s))
			continue;
		e->resume_s = end->trains_s - s->lost_s;
		e->went_on = true;
		e->from_step = end->from_step;
		e->copies = end->from_copies;
	}
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

/* Takes ownership of e->cause. */
static void keep_event(struct restarts *s, const struct dlb_report_event *e)
{
	DLB_GROW(s->event, s->n, s->cap);
	s->event[s->n++] = *e;
}

/* Records an event for each node that `end` lost. told[node]: mpiexec or a rank reported the loss, so the
 * command of --on-event knows of it; it does not know of the nodes of lost hosts. */
static void keep_losses(struct restarts *s, const struct dlb_launch *l, const struct dlb_launch_end *end,
			const bool *told)
{
	for (int i = 0; i < l->n_ranks; i++) {
		const char *reason = end->lost_node[i] ? dlb_outage_reason(s->outage, i) : NULL;
		char *host, *cause;

		if (!end->lost_node[i])
			continue;
		host = reason ? dlb_xprintf("lost host %s: %s", dlb_outage_home(s->outage, i)->name, reason) :
				NULL;
		cause = dlb_xprintf("%s%s%s", !host || told[i] ? end->why.what : "",
				    host && told[i] ? "; " : "", host ? host : "");
		free(host);
		if (!told[i])
			dlb_events_happened(l->events, "lost", i, end->step, cause);
		keep_event(s, &(struct dlb_report_event){ .step = end->step, .node = i, .cause = cause,
							  .notice_s = end->notice_s, .resume_s = NAN });
	}
}

/* Warns how the run continues: "WHY; going on from PLACE: TEXT". The ranks find and report which copies there
 * are. */
static void say(const struct restarts *s, const char *why, const char *text)
{
	const struct dlb_run_command *c = s->command;
	char *newest = dlb_checkpoint_newest(c->exec.checkpoint);

	dlb_cli_warn(c->cli, "%s; going on from %s%s%s%s: %s", why, c->exec.copies ? "copies or " : "",
		     newest ? "'" : "the start", newest ? newest : "", newest ? "'" : "", text);
	free(newest);
}

/* Makes doc's plan the plan of the first start, without the nodes that are lost now. text: how many nodes
 * remain. */
static int plan_again(struct restarts *s, struct dlb_launch *l, struct dlb_doc *doc, char text[256],
		      struct dlb_error *err)
{
	const bool *lost = dlb_outage_lost(s->outage);
	bool any = false, crowded;

	for (int i = 0; i < l->n_ranks; i++)
		any |= lost[i];
	dlb_doc_set(doc, "plan", json_deep_copy(s->plan));
	snprintf(text, 256, "all %d nodes are there, with the plan of the start", l->n_ranks);
	if (any && s->command->survive(s->command->cli, doc, lost, l->n_ranks, text, err))
		return -1;
	l->host = dlb_outage_places(s->outage, &crowded);
	l->yields = s->yields || crowded;
	return 0;
}

/* Plans again without the nodes that `end` lost; any: one of these nodes had work, or training had begun.
 * hosts: a line on lost hosts; NULL: none. -1 with err. */
static int go_on(struct restarts *s, struct dlb_launch *l, struct dlb_doc *doc,
		 const struct dlb_launch_end *end, bool any, const char *hosts, struct dlb_error *err)
{
	struct dlb_run_command *c = s->command;
	struct dlb_error why;
	char text[256], *line;
	int rc = -1;

	line = dlb_xprintf("%s%s%s", end->first >= 0 ? end->why.what : "",
			   end->first >= 0 && hosts ? "; " : "", hosts ? hosts : "");
	if (!any) {			/* only ranks without work died, as they will at each start */
		*err = end->why;
		dlb_hint(err, "its rank cannot be started again");
	} else if (plan_again(s, l, doc, text, &why)) {
		dlb_fail(err, NULL, "%.300s; cannot go on: %.200s", line, why.what);
		dlb_alarm_hint(c->exec.checkpoint, err);
	} else {
		rc = 0;
		say(s, line, text);
		for (l->lost = 0; !end->lost_node[l->lost];)
			l->lost++;
		l->lost = end->first >= 0 ? end->first : l->lost;
		l->lost_s = s->lost_s;
	}
	free(line);
	return rc;
}

/* Called when the ranks have ended and no rank has reported why. true: nodes are lost and the run continues
 * without them. */
static bool survive(struct restarts *s, struct dlb_launch *l, struct dlb_doc *doc, struct dlb_launch_end *end,
		    struct dlb_error *err)
{
	const bool *lost = dlb_outage_lost(s->outage);
	bool *told = dlb_xcalloc((size_t)l->n_ranks + 1, sizeof *told), any = !isnan(end->trains_s), *before;
	char *hosts;
	int rc = -1;

	before = dlb_xcalloc((size_t)l->n_ranks + 1, sizeof *before);
	memcpy(told, end->lost_node, (size_t)l->n_ranks * sizeof *told);
	memcpy(before, lost, (size_t)l->n_ranks * sizeof *before);
	end->first = end->n_lost ? end->first : -1;
	end->lost_s = end->n_lost ? end->lost_s : dlb_clock_s();
	hosts = dlb_outage_happened(s->outage, end);
	for (int i = 0; i < l->n_ranks; i++)
		any |= end->lost_node[i] && !before[i];
	if (end->n_lost) {
		s->lost_s = end->lost_s;
		keep_losses(s, l, end, told);
		rc = go_on(s, l, doc, end, any, hosts, err);
	}
	free(hosts);
	free(before);
	free(told);
	return !rc;
}

/* Repeats the same start up to MOST_RETRIES times. The cause: an unknown rank died before the ranks met, or
 * mpiexec died, or the daemon of a host that answers. */
static bool try_again(struct restarts *s, const struct dlb_launch *l, const struct dlb_launch_end *end)
{
	if ((!end->unnamed && !l->host) || s->retries++ >= MOST_RETRIES)
		return false;
	if (isnan(end->trains_s))
		dlb_cli_warn(s->command->cli,
			     "a rank or mpiexec was killed before the first step; starting the ranks again");
	else
		say(s, end->why.what, l->host ? "all hosts answer" : "the ranks are started again");
	return true;
}

/* Puts nodes back, after training has ended because lost nodes can be put back. */
static int put_back(struct restarts *s, struct dlb_launch *l, struct dlb_doc *doc,
		    const struct dlb_launch_end *end, struct dlb_error *err)
{
	const bool *back;
	const int n = dlb_outage_put_back(s->outage, &back);
	char text[256], *which = NULL;
	int rc;

	s->lost_s = dlb_clock_s();
	for (int i = 0; i < l->n_ranks; i++) {
		char *longer, *cause;

		if (!back[i])
			continue;
		longer = dlb_xprintf("%s%s%d", which ? which : "", which ? ", " : "", i);
		free(which);
		which = longer;
		cause = l->host ? dlb_xprintf("host %s answers", dlb_outage_home(s->outage, i)->name) :
				  dlb_xstrdup("its rank is started again");
		dlb_events_happened(l->events, "rejoined", i, end->paused_step, cause);
		keep_event(s, &(struct dlb_report_event){ .step = end->paused_step,
							  .node = i,
							  .rejoined = true,
							  .cause = cause,
							  .notice_s = NAN,
							  .resume_s = NAN });
	}
	rc = plan_again(s, l, doc, text, err);
	if (!rc) {
		char *line = dlb_xprintf("node%s %s %s back at step %lld", n == 1 ? "" : "s", which,
					 n == 1 ? "is" : "are", (long long)end->paused_step);

		say(s, line, text);
		free(line);
	}
	free(which);
	l->lost = -1;
	return rc;
}

static bool told_to_stop(const struct dlb_launch *l)
{
	return l->stop && *l->stop;
}

/* Decides after a start whether there is another one. *rc: the result of the launch, 0 also if training has
 * paused. */
static bool again(struct restarts *s, struct dlb_launch *l, struct dlb_doc *doc, struct dlb_launch_end *end,
		  int *rc, struct dlb_error *err)
{
	note_training(s, end);
	if (end->step > s->furthest) {
		s->furthest = end->step;
		s->retries = 0;
	}
	dlb_outage_ended(s->outage, end->job);
	if (end->begin.known)
		l->begin = end->begin;
	if (!*rc && end->paused_step >= 0) {
		*rc = put_back(s, l, doc, end, err);
		return !*rc;
	}
	/* an empty err: a rank has printed the line */
	if (!*rc || !s->command->exec.replan || told_to_stop(l) || (!end->n_lost && !err->what[0]))
		return false;
	if (!end->n_lost && !end->unnamed && !l->host)
		return false;
	if (end->n_lost || l->host) {
		const bool goes_on = survive(s, l, doc, end, err);

		if (goes_on || end->n_lost)
			return goes_on;
	}
	return try_again(s, l, end);
}

/* Makes and locks this host's folder for copies. Returns the lock; name: the folder's name in this run. -1
 * with err. */
static int open_copies(struct dlb_run_command *c, struct dlb_launch *l, char name[DLB_COPIES_NAME],
		       struct dlb_error *err)
{
	int lock;

	if (dlb_copies_name(name, err))
		return -1;
	lock = dlb_copies_open(name, true, err);
	if (lock >= 0)
		l->copies = c->exec.copies = name;
	return lock;
}

int dlb_restart_run(struct dlb_run_command *c, const struct dlb_hosts *hosts, struct dlb_launch *l,
		    struct dlb_doc *doc, FILE *out, struct dlb_error *err)
{
	const bool copies = c->exec.buddy_every && c->exec.replan;
	struct restarts s = { .command = c, .yields = l->yields };
	char name[DLB_COPIES_NAME];
	bool goes_on, crowded;
	int rc, lock = copies ? open_copies(c, l, name, err) : -1;

	if (copies && lock < 0)
		return -1;
	s.plan = json_deep_copy(dlb_doc_section(doc, "plan"));

	s.outage = dlb_outage_new(&(struct dlb_outage_options){ .tool = l->tool,
								.hosts = hosts,
								.n = l->n_ranks,
								.heartbeat_s = l->heartbeat_s,
								.copies = l->copies,
								.rejoin_s = c->exec.rejoin_s });
	l->host = dlb_outage_places(s.outage, &crowded);
	l->lost = -1;
	if (c->exec.replan) {
		l->ask = dlb_outage_look;
		l->ask_ctx = s.outage;
	}
	do {
		struct dlb_launch_end end;

		l->finish = s.n ? write_result : NULL;
		l->finish_ctx = &s;
		rc = dlb_launch(l, doc, out, &end, err);
		goes_on = again(&s, l, doc, &end, &rc, err);
		dlb_launch_end_release(&end);
	} while (goes_on);
	dlb_outage_free(s.outage, rc != 0);
	if (copies) {
		dlb_copies_remove(name, NULL);
		close(lock);
		l->copies = c->exec.copies = NULL;
	}
	for (int i = 0; i < s.n; i++)
		free((char *)(uintptr_t)s.event[i].cause);
	free(s.event);
	json_decref(s.plan);
	return rc;
}
