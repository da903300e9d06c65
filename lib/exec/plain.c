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

#define LAST_EVENT_S 10.0		/* for the command of --on-event to end */

static int run_alone(struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_report *report,
		     struct dlb_error *err)
{
	struct dlb_comm *comm;
	int who, rc;

	if (dlb_comm_new_alone(&comm, err))
		return -1;
	rc = dlb_command_exec(c, comm, doc, report, &who, err);
	dlb_comm_free(comm);
	return rc;
}

/* Warns if the plan was made for more than this host, on which all nodes run. On a terminal it does so before
 * the start; in a log at the end, so that a failing run prints its one line alone. */
static bool warns_at_start(const struct dlb_run_command *c) { return c->cli->verbose || isatty(2); }

static void warn_host(const struct dlb_run_command *c, const struct dlb_doc *doc)
{
	char text[512];

	if (dlb_host_differs(doc, dlb_host_resources(), text, sizeof text))
		dlb_cli_warn(c->cli, "%s", text);
}

/* Real ranks: the result is written by the time that it returns, or stands in report (*written). */
static int run_ranks(struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_report *report, bool *written,
		     struct dlb_error *err)
{
	struct dlb_launch l = { .tool = c->cli->tool,
				.argc = c->argc,
				.argv = c->argv,
				.quiet = c->cli->quiet,
				.verbose = c->cli->verbose,
				.stop = c->exec.stop,
				.timeout_s = c->exec.timeout_s,
				.heartbeat_s = c->exec.heartbeat_s,
				.checkpoint = c->exec.checkpoint };
	int rc;

	if (dlb_exec_check(doc, &c->exec, &l.n_ranks, err))
		return -1;
	l.total_threads = dlb_host_planned_cores(doc);
	if (warns_at_start(c))
		warn_host(c, doc);
	*written = l.n_ranks > 1;
	l.events = dlb_events_new(l.tool, *written ? c->exec.on_event : NULL);
	rc = *written ? dlb_restart_run(c, &l, doc, stdout, err) : run_alone(c, doc, report, err);
	dlb_events_free(l.events, LAST_EVENT_S);
	if (!rc && !warns_at_start(c))
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
	rc = c->exec.dry_run ? dlb_exec_dry_run(doc, &c->exec, &report, err) :
			       run_ranks(c, doc, &report, &written, err);
	if (!rc && !written)
		rc = dlb_command_write(c, doc, &report, stdout, err);
	dlb_report_release(&report);
	return rc;
}

/* Starts a plan for other hosts there, with the document as it is: rank 0 applies the options. Returns the
 * exit status; -1: nothing was started, an error if err has text. */
static int run_elsewhere(const struct dlb_run_command *c, const struct dlb_doc *doc, struct dlb_error *err)
{
	struct dlb_hosts_job j = {
		.tool = c->cli->tool, .doc = doc, .stop = c->exec.stop, .verbose = c->cli->verbose
	};
	const struct dlb_host **host = NULL;
	struct dlb_cluster cl;
	int n = 0, status;

	if (c->exec.dry_run || c->print_program ||
	    !json_object_get(dlb_doc_section(doc, "cluster"), "hosts") || dlb_hosts_of(doc, &cl, &host, err))
		return -1;
	if (!host) {
		dlb_cluster_release(&cl);
		return -1;
	}
	const char **argv = dlb_xcalloc((size_t)c->argc + 1, sizeof *argv);
	for (int i = 1; i < c->argc; i++)
		if (!c->cli->n_operands || c->argv[i] != c->cli->operands[0])
			argv[n++] = c->argv[i];
	j.argv = argv;
	j.host = host;
	j.n_ranks = cl.n_nodes;
	status = dlb_hosts_run(&j, err);
	free(argv);
	free(host);
	dlb_cluster_release(&cl);
	return status;
}

int dlb_command_plain(struct dlb_run_command *c)
{
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc;
	int status = 0;

	if (dlb_command_read(c, &doc, &err))
		return dlb_cli_die(c->cli, &err);
	status = run_elsewhere(c, &doc, &err);
	if (status >= 0 || err.what[0]) {
		dlb_doc_release(&doc);
		return status >= 0 ? status : dlb_cli_die(c->cli, &err);
	}
	status = 0;
	if (dlb_command_edit(c, &doc, &err))
		return dlb_cli_die(c->cli, &err);
	if (run(c, &doc, &err))		/* an empty err: a rank has printed the line */
		status = err.what[0] ? dlb_cli_die(c->cli, &err) : dlb_error_status(&err);
	dlb_doc_release(&doc);
	return status;
}
