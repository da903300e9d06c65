/* dlb-run started without mpirun or srun: it is the parent of the ranks, or runs a plan of one node, or
 * simulates. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "exec/command.h"
#include "exec/event.h"
#include "exec/host_differs.h"
#include "exec/hosts.h"
#include "exec/launch.h"
#include "exec/restart.h"
#include "util/cores.h"

#define LAST_EVENT_S 10.0		/* time for the last command of --on-event to end */

static int run_alone(struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_report *report,
		     struct dlb_error *err)
{
	struct dlb_comm *comm;
	bool paused;
	int who, rc;

	if (dlb_comm_new_alone(&comm, err))
		return -1;
	rc = dlb_command_exec(c, comm, doc, report, &paused, &who, err);
	dlb_comm_free(comm);
	return rc;
}

/* Whether to warn before the start that the plan was made for more than this host, on which all nodes run. A
 * terminal gets the warning then; a log gets it at the end, so that a failing run prints its one line
 * alone. */
static bool warns_at_start(const struct dlb_run_command *c) { return c->cli->verbose || isatty(2); }

static void warn_host(const struct dlb_run_command *c, const struct dlb_doc *doc)
{
	char text[512];

	if (dlb_host_differs(doc, dlb_cores(), text, sizeof text))
		dlb_cli_warn(c->cli, "%s", text);
}

/* Starts the ranks on this host or on the plan's hosts. */
static int start_ranks(struct dlb_run_command *c, struct dlb_doc *doc, const struct dlb_hosts *hosts, int n,
		       struct dlb_error *err)
{
	struct dlb_launch l = { .tool = c->cli->tool,
				.n_ranks = n,
				.argc = c->argc,
				.argv = c->argv,
				.allocated = hosts->allocated,
				.yields = !hosts->rank && dlb_host_planned_cores(doc) > dlb_cores(),
				.quiet = c->cli->quiet,
				.verbose = c->cli->verbose,
				.stop = c->exec.stop,
				.timeout_s = c->exec.timeout_s,
				.heartbeat_s = c->exec.heartbeat_s,
				.checkpoint = c->exec.checkpoint,
				.events = dlb_events_new(c->cli->tool, c->exec.on_event) };
	const int rc = dlb_restart_run(c, hosts, &l, doc, stdout, err);

	dlb_events_free(l.events, LAST_EVENT_S);
	return rc;
}

/* Runs the ranks. *written: the result has been written; else it is in report. */
static int run_ranks(struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_report *report, bool *written,
		     struct dlb_error *err)
{
	struct dlb_hosts hosts;
	bool warns;
	int rc, n;

	if (dlb_exec_check(doc, &c->exec, &n, err) || dlb_hosts_of(doc, &hosts, err))
		return -1;
	warns = !hosts.rank;
	if (warns && warns_at_start(c))
		warn_host(c, doc);
	*written = n > 1 || hosts.rank;
	rc = *written ? start_ranks(c, doc, &hosts, n, err) : run_alone(c, doc, report, err);
	dlb_hosts_release(&hosts);
	if (!rc && warns && !warns_at_start(c))
		warn_host(c, doc);
	return rc;
}

static int run(struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_error *err)
{
	struct dlb_report report = { .n_nodes = 0 };
	bool written = false;
	int rc;

	if (c->print_program)
		return dlb_exec_print_program(doc, &c->exec, stdout, err);
	rc = c->scenario     ? c->play(c->cli, doc, &c->exec, c->scenario, &report, err) :
	     c->exec.dry_run ? dlb_exec_dry_run(doc, &c->exec, &report, err) :
			       run_ranks(c, doc, &report, &written, err);
	if (!rc && !written)
		rc = dlb_command_write(c, doc, &report, stdout, err);
	dlb_report_release(&report);
	return rc;
}

int dlb_command_plain(struct dlb_run_command *c)
{
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc;
	int status = 0;

	if (dlb_command_read(c, &doc, &err))
		return dlb_cli_die(c->cli, &err);
	if (dlb_command_edit(c, &doc, &err))
		return dlb_cli_die(c->cli, &err);
	if (run(c, &doc, &err))		/* an empty err: a rank has printed the line */
		status = err.what[0] ? dlb_cli_die(c->cli, &err) : dlb_error_status(&err);
	dlb_doc_release(&doc);
	return status;
}
