/* dlb-run as one of several ranks: started by a parent (launch.h) with --worker FOLDER, or by a foreign
 * mpirun or srun.
 *
 * A failed run prints one line. The parent passes on the first line it receives from a rank. Without a
 * parent, ranks that agree leave the line to the rank that knows the cause; ranks that have lost the comm
 * print one after the other, since the end of the first mostly ends the others. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "comm/await.h"
#include "exec/alarm.h"
#include "exec/command.h"
#include "exec/event.h"
#include "exec/launch.h"
#include "util/clock.h"
#include "util/deadline.h"
#include "util/input.h"
#include "util/mem.h"

#define PRINT_AFTER_S 0.4	/* seconds between the lines of successive ranks, up to the sixth rank */

static double print_after_s(int rank) { return PRINT_AFTER_S * (rank < 5 ? rank : 5); }

/* ---- MPI that does not return ---- */

/* The line that a signal handler prints: `before`, the name of the call, `after`. */
static struct { char before[64], after[160]; int rank; } last_words;

/* Lower ranks print first: the end of one rank mostly ends the others before they print. */
static void hung(const char *call)
{
	const double s = print_after_s(last_words.rank);
	const struct timespec wait = { .tv_sec = (time_t)s,
				       .tv_nsec = (long)(1e9 * (s - (double)(time_t)s)) };
	char line[512];

	nanosleep(&wait, NULL);
	strcpy(line, last_words.before);
	strncat(line, call, sizeof line / 2);
	strcat(line, last_words.after);
	if (write(2, line, strlen(line)))
		_exit(2);
	_exit(2);
}

static void prepare_last_words(const struct dlb_run_command *c)
{
	last_words.rank = dlb_launch_rank() < 0 ? 0 : dlb_launch_rank();
	snprintf(last_words.before, sizeof last_words.before, "%s%s[%d]: ", c->folder ? "\1error 2 " : "",
		 c->cli->tool, last_words.rank);
	snprintf(last_words.after, sizeof last_words.after,
		 " not complete after %g s: is a rank stopped, or a host cut off? A longer --timeout helps "
		 "when one is only slow\n",
		 c->exec.timeout_s);
	dlb_deadline_words(hung);
}

/* ---- failures ---- */

/* Ends a task of srun that found no other task; the first task prints the line. */
static int alone_in_step(const struct dlb_run_command *c, struct dlb_comm *comm, const struct dlb_error *err)
{
	if (dlb_launch_speaks())
		dlb_command_print_error(c, -1, err);
	dlb_comm_free(comm);
	return dlb_error_status(err);
}

/* Hints at unreachable daemons: Open MPI 4.1's mpirun waits minutes for such a daemon, and the daemon waits
 * for mpirun. */
static void tell_of_daemons(const struct dlb_run_command *c, const struct dlb_comm *comm)
{
	if (!dlb_comm_is_open_mpi() || dlb_comm_local_size(comm) == dlb_comm_size(comm) ||
	    getenv("SLURM_STEP_ID"))
		return;
	fprintf(stderr,
		"%s[%d]: if a host is cut off, mpirun here and orted there may stay for minutes: end them "
		"with kill -KILL\n",
		c->cli->tool, dlb_comm_rank(comm));
}

/* Ends a failed rank. who: the rank that knows the cause. Frees comm; a rank that has lost the comm ends the
 * job. */
static int rank_failed(const struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_error *err, int who)
{
	const bool broken = dlb_comm_broken(comm), orphan = !c->folder;
	const int rank = dlb_comm_rank(comm);

	if (orphan && broken)
		dlb_sleep_s(print_after_s(rank));
	if (broken)
		dlb_alarm_hint(c->exec.checkpoint, err);
	if (broken || rank == who)
		dlb_command_print_error(c, rank, err);
	if (orphan && broken)
		tell_of_daemons(c, comm);
	if (broken)
		dlb_comm_abort(comm, dlb_error_status(err));
	dlb_comm_free(comm);
	/* the parent knows the status; after a status other than 0, mpiexec would take a second or two to
	 * end */
	return c->folder ? 0 : dlb_error_status(err);
}

/* ---- the document ---- */

struct source { struct dlb_run_command *command; struct dlb_doc *doc; };

/* Reads rank 0's document: from the parent's file, or from standard input, whose writer may be slow. */
static int read_source(void *ctx, struct dlb_error *err)
{
	const struct source *s = ctx;
	char *in;
	int rc;

	if (!s->command->folder && s->command->exec.replan)
		return dlb_refuse(err, NULL, "start dlb-run without mpirun, or leave it at --on-failure stop",
				  "--on-failure replan: mpirun or srun ends a run that loses a node");
	if (!s->command->folder)
		return dlb_command_read(s->command, s->doc, err) ||
				       dlb_command_edit(s->command, s->doc, err) ?
			       -1 :
			       0;
	in = s->command->remote ? NULL : dlb_launch_in(s->command->folder);
	/* the parent has checked the document's length and added to it */
	dlb_input_set_max_text(UINT64_MAX);
	rc = dlb_doc_read(s->doc, in, err);
	if (in)
		unlink(in);	/* nothing remains if the parent is killed */
	free(in);
	return rc;
}

/* Sends rank 0's document to the other ranks. */
static int share_doc(struct dlb_comm *c, struct dlb_doc *doc, struct dlb_error *err)
{
	char *text = NULL;
	size_t n = 0;
	int rc;

	if (dlb_comm_rank(c) == 0) {
		text = json_dumps(doc->root, JSON_COMPACT | JSON_REAL_PRECISION(17));
		n = text ? strlen(text) : 0;
	}
	rc = dlb_comm_bcast(c, &n, sizeof n, 0, err);
	if (!rc && dlb_comm_rank(c))
		text = dlb_xmalloc(n + 1);
	if (!rc)
		rc = dlb_comm_bcast(c, text, n, 0, err);
	if (!rc && dlb_comm_rank(c))
		rc = dlb_doc_parse(doc, text, n, "<stdin>", err);
	free(text);
	return rc;
}

struct rank_result {
	const struct dlb_run_command *command;
	struct dlb_doc *doc;
	const struct dlb_report *report;
};

/* Writes rank 0's result: to the parent's file, or to standard output, whose reader may be slow. */
static int write_result(void *ctx, struct dlb_error *err)
{
	const struct rank_result *r = ctx;
	char *path = r->command->folder && !r->command->remote ? dlb_launch_out(r->command->folder) : NULL;
	FILE *f = path ? fopen(path, "wb") : stdout;
	int rc = f ? dlb_command_write(r->command, r->doc, r->report, f, err)
		   : dlb_fail(err, NULL, "cannot write '%s'", path ? path : "");

	if (f && path && fclose(f) && !rc)
		rc = dlb_fail(err, NULL, "cannot write '%s'", path);
	if (!path && fflush(stdout) && !rc)
		rc = dlb_fail(err, NULL, "cannot write standard output");
	free(path);
	return rc;
}

/* ---- the run ---- */

/* Trains; rank 0 writes the result. All ranks return the same, with the failing rank in *who. */
static int train(struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_doc *doc, int *who,
		 struct dlb_error *err)
{
	struct dlb_report report = { .n_nodes = 0 };
	struct rank_result result = { c, doc, &report };
	bool paused = false;
	int rc = dlb_run_section_read(doc, &c->exec, c->init_text, err) ||
			 dlb_command_exec(c, comm, doc, &report, &paused, who, err) ?
			 -1 :
			 0;

	if (!dlb_comm_broken(comm) && dlb_comm_agree(comm, rc, err, rc ? NULL : who))
		rc = -1;
	if (!rc && paused && dlb_comm_rank(comm) == 0)
		fprintf(stderr, "\1paused %lld\n", (long long)*c->exec.steps_done);
	if (!rc && !paused) {
		rc = dlb_comm_await(comm, c->exec.timeout_s, write_result, &result, err);
		rc = dlb_comm_agree(comm, rc, err, who);
	}
	dlb_report_release(&report);
	return rc;
}

int dlb_command_rank(struct dlb_run_command *c)
{
	struct dlb_error err = { .what = "" };
	struct dlb_doc doc = { .root = NULL };
	struct source source = { c, &doc };
	struct dlb_alarm alarm = { .tool = c->cli->tool, .parent = c->folder, .quiet = c->cli->quiet };
	struct dlb_comm *comm;
	int rc, who = 0;

	if (!c->folder && dlb_launch_check(0, &err))
		return alone_in_step(c, NULL, &err);
	prepare_last_words(c);
	if (c->folder)
		dlb_launch_worker_init(c->folder);
	/* no timeout with a parent, which can name the missing rank */
	if (dlb_comm_new(&comm, c->folder ? 0 : c->exec.timeout_s, &err)) {
		/* Not exit: in it, OpenBLAS would wait for threads that it could not start for lack of
		 * memory. */
		dlb_comm_abort(NULL, dlb_command_print_error(c, dlb_launch_rank(), &err));
	}
	alarm.comm = comm;
	dlb_comm_set_timeout(comm, c->exec.timeout_s);
	if (dlb_launch_check(dlb_comm_size(comm), &err))
		return alone_in_step(c, comm, &err);
	c->exec.steps_done = &alarm.step;
	alarm.events = c->folder ? NULL : dlb_events_new(c->cli->tool, c->exec.on_event);
	if (dlb_alarm_start(&alarm, c->exec.heartbeat_s, &err))
		return rank_failed(c, comm, &err, who);
	rc = dlb_comm_await(comm, c->exec.timeout_s, read_source, &source, &err);
	if (dlb_comm_agree(comm, rc, &err, &who) || share_doc(comm, &doc, &err)) {
		dlb_alarm_stop(&alarm);
		return rank_failed(c, comm, &err, who);
	}
	if (c->folder && dlb_comm_rank(comm) == 0)
		fputs("\1ready\n", stderr);
	rc = train(c, comm, &doc, &who, &err);
	dlb_alarm_stop(&alarm);
	if (!rc)			/* after a failure, the command of --on-event outlives this rank */
		dlb_events_free(alarm.events, 0);
	dlb_doc_release(&doc);
	if (rc)
		return rank_failed(c, comm, &err, who);
	if (c->folder && dlb_comm_rank(comm) == 0)
		fputs("\1done\n", stderr);
	if (c->folder)
		/* the result is written, and the parent ends ranks that hang */
		dlb_comm_set_timeout(comm, 0);
	dlb_comm_free(comm);
	return 0;
}
