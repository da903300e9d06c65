/* Reads the messages of the ranks that a parent has started, and ends the ranks when one is lost. See
 * launch_watch.h. */
#define _XOPEN_SOURCE 700
#include "exec/launch_watch.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/alarm.h"
#include "exec/event.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/process.h"

#define ELSEWHERE ((pid_t)-1)
#define TICK_S 0.1			/* seconds between two looks at the children */
/* longest time between two looks that counts; if it was longer, this process itself was stopped */
#define LONGEST_LOOK_S 1.0
#define SCAN_S 1.0			/* seconds between two scans of all processes */
#define LEAST_START_S 10.0		/* least time for ranks to start, even if --timeout is shorter */
#define LAST_S 5.0			/* time for mpiexec to end after a rank has given the reason */
#define LAST_LINES_S 0.5		/* time to read lines that mpiexec wrote before its end */
#define TERM_S 2.0			/* from SIGTERM to SIGKILL */
/* time from the first silent rank in which further silent ranks count as lost with it */
#define TOGETHER_S 0.3
#define GONE_S 3.0			/* time for mpiexec to report how a rank ended */

/* ---- output of the children ---- */

/* A rank of this host whose process is stopped; -1: none known. */
static int stopped_rank(const struct dlb_ranks *e)
{
	for (int r = 0; r < e->l->n_ranks; r++)
		if (e->rank[r] > 0 && dlb_process_state(e->rank[r]) == 'T')
			return r;
	return -1;
}

/* Records that rank r is lost. notice_s: seconds since its last sign of life, NAN: not known. */
static void lose(struct dlb_ranks *e, int r, double notice_s)
{
	struct dlb_launch_end *l = &e->end;

	if (r < 0 || r >= e->l->n_ranks || l->lost_node[r])
		return;
	if (!l->n_lost++) {
		l->first = r;
		l->lost_s = dlb_clock_s();
		l->notice_s = notice_s;
	}
	l->lost_node[r] = true;
}

/* Passes on a worker's error line. The line names the rank that its writer has not heard; that rank may
 * itself be waiting for another one. If a rank of this host is stopped, the parent names this rank
 * instead. */
static void pass_on(struct dlb_ranks *e, const char *line)
{
	const char *lost = strstr(line, ": lost ");
	const int stopped = lost ? stopped_rank(e) : -1;
	int rank = -1;

	if (stopped >= 0 || (lost && sscanf(lost, ": lost rank %d", &rank) == 1))
		lose(e, stopped >= 0 ? stopped : rank, NAN);
	dlb_status_line_clear(&e->shown);
	if (stopped >= 0)
		dlb_fail(&e->end.why, NULL, "lost rank %d: it has been stopped; nothing heard for %g s",
			 stopped, e->l->timeout_s);
	else if (lost)
		dlb_fail(&e->end.why, NULL, "%s", lost + 2);
	if (stopped >= 0)
		fprintf(stderr, "%s: %s\n", e->l->tool, e->end.why.what);
	else
		fprintf(stderr, "%s\n", line);
}

/* Handles the message that a rank's heartbeat has found another rank silent. */
static void hear_silence(struct dlb_ranks *e, const struct dlb_heartbeat_told *told, long long step)
{
	if (e->said || e->done || told->rank < 0 || told->rank >= e->l->n_ranks)
		return;
	if (told->how == DLB_SILENCE_UNHEARD) {
		if (!e->unheard && !e->l->quiet)
			dlb_alarm_warn_unheard(e->l->tool, told);
		e->unheard = true;
		return;
	}
	e->step = step > e->step ? step : e->step;
	lose(e, told->rank, told->silent_s);
	if (told->how == DLB_SILENCE_GONE) {
		e->gone_s = e->gone_s < 0 ? 0 : e->gone_s;
	} else if (e->cut_s < 0) {
		e->cut_s = 0;
		e->end.silent = told->how == DLB_SILENCE_CUT;
		dlb_alarm_text(told, step, &e->fault);
	}
}

/* Handles the message that the first step has ended. */
static void hear_training(struct dlb_ranks *e, long long step, bool copies, const char *begin)
{
	const struct dlb_launch *l = e->l;
	char text[100];

	e->step = step;
	e->first_step = step - 1;
	e->end.trains_s = dlb_clock_s();
	e->end.from_step = step - 1;
	e->end.from_copies = copies;
	if (dlb_begin_parse(begin, &e->end.begin))
		dlb_bug("begin '%s'", begin);
	if (l->lost < 0)
		return;
	snprintf(text, sizeof text, "training again at step %lld, %.1f s after the loss", step,
		 e->end.trains_s - l->lost_s);
	dlb_events_happened(l->events, "resumed", l->lost, step, text);
}

static void hear_worker(struct dlb_ranks *e, const char *s)
{
	int status, at = 0, rank;
	char host[256] = "";
	long long done, total;
	int permanent, how;
	double s_silent;

	e->silent_s = 0;
	if (e->ended)	/* a stopped rank continues when it is told to end; its result does not count */
		return;
	if (!strcmp(s, "ready")) {
		e->ready = true;
	} else if (sscanf(s, "trains %lld %d %n", &done, &how, &at) == 2 && at) {
		hear_training(e, done, how, s + at);
	} else if (!strcmp(s, "done")) {
		e->done = true;
	} else if (sscanf(s, "paused %lld", &done) == 1) {
		e->end.paused_step = done;
	} else if (sscanf(s, "rank %d %lld %lu %n", &rank, &done, &e->end.job, &at) == 3 && at) {
		gethostname(host, sizeof host - 1);
		if (rank >= 0 && rank < e->l->n_ranks)
			e->rank[rank] = strcmp(s + at, host) ? ELSEWHERE : (pid_t)done;
	} else if (sscanf(s, "error %d %n", &status, &at) == 1 && at) {
		if (!e->said)
			pass_on(e, s + at);
		e->said = true;
		e->status = status;
	} else if (sscanf(s, "silent %d %d %lf %lld %255s", &rank, &how, &s_silent, &done, host) == 5) {
		hear_silence(e, &(struct dlb_heartbeat_told){ rank, host, (enum dlb_silence)how, s_silent,
								 true },
			     done);
	} else if (sscanf(s, "progress %lld %lld %d %n", &done, &total, &permanent, &at) == 3 && at) {
		if (e->first_step >= 0)
			e->step = e->first_step + done;
		dlb_status_line_show(&e->shown,
				     &(struct dlb_status_told){ done, total, permanent != 0, s + at });
	}
}

/* Parses MPICH's message about a death. The message names the lowest rank, not the one that died first, since
 * MPICH then kills the others:
 *   =   EXIT CODE: 9  /  YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9) */
static void hear_mpich(struct dlb_ranks *e, const char *s)
{
	const char *p = strstr(s, "EXIT STRING:") ? strstr(s, "(signal ") : NULL;

	if (p)
		e->lost_signal = atoi(p + strlen("(signal "));
}

/* Handles one line of a worker or of mpiexec. Open MPI's messages about a death:
 *   mpirun noticed that process rank 1 with PID 77 on node h exited on signal 9 (Killed).
 *   Process name: [[4711,1],1]  /  Exit code:    3
 * and about a daemon that is dead, or whose host is cut off:
 *   Remote daemon: [[4711,0],2] on node h */
static void hear(struct dlb_ranks *e, char *s)
{
	const char *p;
	size_t tool = strlen(e->l->tool);

	if (s[0] == '\1') {
		hear_worker(e, s + 1);
		return;
	}
	if ((p = strstr(s, "process rank ")) && strstr(s, "exited on signal ")) {
		e->lost_rank = atoi(p + strlen("process rank "));
		e->lost_signal = atoi(strstr(s, "exited on signal ") + strlen("exited on signal "));
	} else if ((p = strstr(s, "Process name: [["))) {
		p = strstr(p, "],");
		if (p && e->lost_rank < 0)
			e->lost_rank = atoi(p + 2);
	} else if ((p = strstr(s, "Remote daemon: [[")) && strstr(p, " on node ")) {
		snprintf(e->end.lost_host, sizeof e->end.lost_host, "%s",
			 strstr(p, " on node ") + strlen(" on node "));
	} else if ((p = strstr(s, "Exit code:"))) {
		e->lost_exit = atoi(p + strlen("Exit code:"));
	}
	if (!dlb_comm_is_open_mpi())
		hear_mpich(e, s);
	if (!e->memory[0] && (p = strstr(s, "out of memory: ")))
		snprintf(e->memory, sizeof e->memory, "%.199s", p);
	if (!e->first[0] && s[0] && s[0] != '-' && s[0] != '=')
		snprintf(e->first, sizeof e->first, "%.199s", s);
	if (e->l->verbose || !strncmp(s, e->l->tool, tool)) {
		dlb_status_line_clear(&e->shown);
		fprintf(stderr, "%s\n", s);
	}
}

static void hear_bytes(struct dlb_ranks *e, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != '\n' && e->n < sizeof e->line - 1) {
			e->line[e->n++] = p[i];
			continue;
		}
		e->line[e->n] = '\0';
		hear(e, e->line);
		e->n = 0;
	}
}

/* ---- watching ---- */

/* Reads available lines for at most s seconds. false: the children have closed the pipe. */
static bool listen_for(struct dlb_ranks *e, int in, double s)
{
	struct pollfd p = { .fd = in, .events = POLLIN };
	char buf[4096];
	ssize_t n;

	if (poll(&p, 1, (int)(s * 1e3)) <= 0)
		return true;
	n = read(in, buf, sizeof buf);
	if (n < 0 && errno == EINTR)
		return true;
	if (n > 0)
		hear_bytes(e, buf, (size_t)n);
	return n > 0;
}

static void pass_signals(const struct dlb_ranks *e, pid_t pid, int *passed)
{
	int told = e->l->stop ? (int)*e->l->stop : 0;

	if (told && !*passed && e->ready) {
		kill(pid, SIGUSR1);	/* Open MPI's mpiexec forwards it to every rank */
		*passed = told;
	} else if (told > 1 && *passed != told) {
		kill(pid, SIGTERM);
		*passed = told;
	}
}

/* Asks the ranks to end at the next checkpoint. Open MPI's mpiexec forwards SIGUSR2 too. */
static void pass_pause(struct dlb_ranks *e, pid_t pid)
{
	if (e->asked || isnan(e->end.trains_s) || e->done || e->said || !e->l->ask ||
	    !e->l->ask(e->l->ask_ctx))
		return;
	e->asked = true;
	kill(pid, SIGUSR2);
}

static bool any_elsewhere(const struct dlb_ranks *e)
{
	for (int r = 0; r < e->l->n_ranks; r++)
		if (e->rank[r] == ELSEWHERE)
			return true;
	return false;
}

/* Ends mpiexec and all its descendants: SIGTERM first, SIGKILL after TERM_S seconds. If a rank is silent and
 * all ranks are on this host, SIGKILL comes at once: no rank could do anything useful in that time, and the
 * files of mpiexec are removed with the folder of the run (run_folder.h). */
static void end_all(struct dlb_ranks *e, pid_t pid, int in)
{
	const pid_t spared = dlb_events_process(e->l->events);
	const double term_s = e->cut_s >= 0 && !any_elsewhere(e) ? 0 : TERM_S;
	bool open = true;

	e->ended = true;
	kill(pid, SIGCONT);
	dlb_process_signal_descendants(getpid(), term_s > 0 ? SIGTERM : SIGKILL, spared);
	for (double s = 0; s < term_s && dlb_process_state(pid) != 'Z'; s += TICK_S) {
		double start_s = dlb_clock_s();

		open = open && listen_for(e, in, TICK_S);
		start_s += TICK_S - dlb_clock_s();
		if (start_s > 0)
			dlb_sleep_s(start_s);
	}
	for (int i = 0; i < 100 && dlb_process_signal_descendants(getpid(), SIGKILL, spared) > 0; i++)
		dlb_sleep_s(0.02);
}

static int silent_rank(const struct dlb_ranks *e)
{
	int r = 0;

	while (r < e->l->n_ranks && e->rank[r])
		r++;
	return r < e->l->n_ranks ? r : -1;
}

/* Finds a stopped rank; e->stopped is its number. While some ranks are not heard yet, it also scans all
 * processes; a stopped process counts as the first of these ranks. */
static bool find_stopped(struct dlb_ranks *e, pid_t pid)
{
	e->stopped = stopped_rank(e);
	if (e->stopped >= 0)
		return true;
	e->stopped = silent_rank(e);
	return e->stopped >= 0 && dlb_process_has_stopped(pid);
}

/* Whether the ranks' heartbeats have found a lost rank; the reason is then in e->fault. s: seconds since the
 * last look. */
static bool is_cut(struct dlb_ranks *e, double s)
{
	if (e->said || e->done)
		return false;
	if (e->cut_s >= 0 && (e->cut_s += s) >= TOGETHER_S)
		return true;
	if (e->gone_s < 0 || (e->gone_s += s) < GONE_S)
		return false;
	dlb_fail(&e->fault, NULL, "lost rank %d: it has ended", e->end.first);
	return true;
}

/* Looks for a stopped rank at intervals; e->stopped_s: seconds that it has been stopped. limit: the limit of
 * these seconds. s: seconds since the last look. */
static void look_for_stopped(struct dlb_ranks *e, pid_t pid, double limit, double s)
{
	e->scanned_s += s;
	if (e->scanned_s < (limit < 4 * SCAN_S ? limit / 4 : SCAN_S))
		return;
	e->stopped_s = find_stopped(e, pid) ? e->stopped_s + e->scanned_s : 0;
	e->scanned_s = 0;
}

/* Seconds that a rank may be stopped; 0: no limit. Once the ranks are connected, their heartbeats give a more
 * precise reason, so the parent waits a little longer than a heartbeat. */
static double stopped_limit(const struct dlb_ranks *e)
{
	const double limit = e->l->timeout_s, heartbeat = e->l->heartbeat_s,
		     own = heartbeat > 0 && e->ready ? heartbeat + 2 * SCAN_S : heartbeat;

	return own > 0 && (limit <= 0 || own < limit) ? own : limit;
}

/* Whether a rank or mpiexec has been silent or stopped for too long; the reason is then in e->fault. s:
 * seconds since the last look. */
static bool is_late(struct dlb_ranks *e, pid_t pid, double s)
{
	const double limit = e->l->timeout_s, start = limit > LEAST_START_S ? limit : LEAST_START_S,
		     stopped = stopped_limit(e);
	int silent;

	e->silent_s += s;
	if (stopped > 0)
		look_for_stopped(e, pid, stopped, s);
	if (stopped > 0 && e->stopped_s > stopped && !e->said && !e->done) {
		dlb_fail(&e->fault, NULL, "lost rank %d: it has been stopped for %g s", e->stopped, stopped);
		lose(e, e->stopped, e->stopped_s);
		return true;
	}
	if (limit <= 0)
		return false;
	e->launcher_s = dlb_process_state(pid) == 'T' ? e->launcher_s + s : 0;
	/* no other process would continue mpiexec, and continuing it does no harm */
	if (e->launcher_s > limit / 2) {
		kill(pid, SIGCONT);
		if (!e->l->quiet)
			fprintf(stderr, "%s: mpiexec was stopped for %g s; it goes on now\n", e->l->tool,
				limit / 2);
		e->launcher_s = e->silent_s = 0;
	}
	if (e->said || e->done) {
		if (e->silent_s <= (e->said && limit > LAST_S ? LAST_S : limit))
			return false;
		dlb_fail(&e->fault, NULL, "mpiexec did not end");
		return true;
	}
	if (e->ready || e->silent_s <= start)
		return false;
	silent = silent_rank(e);
	lose(e, silent, start);
	if (silent >= 0)
		dlb_fail(&e->fault, NULL, "lost rank %d: it has not started after %g s", silent, start);
	else
		dlb_fail(&e->fault, NULL, "lost a rank: the %d ranks have not met after %g s", e->l->n_ranks,
			 start);
	dlb_hint(&e->fault, "a longer --timeout helps when this host is only slow");
	return true;
}

void dlb_ranks_watch(struct dlb_ranks *e, pid_t pid, int in)
{
	int passed = 0;
	double last_s = dlb_clock_s();

	while (listen_for(e, in, TICK_S)) {
		const double now_s = dlb_clock_s(), passed_s = now_s - last_s;

		pass_signals(e, pid, &passed);
		pass_pause(e, pid);
		dlb_events_poll(e->l->events);
		last_s = now_s;
		if (dlb_process_state(pid) == 'Z') {	/* other processes may still hold the pipe */
			while (dlb_clock_s() - now_s < LAST_LINES_S && listen_for(e, in, TICK_S))
				;
			return;
		}
		const double look_s = passed_s < LONGEST_LOOK_S ? passed_s : LONGEST_LOOK_S;

		if (is_cut(e, look_s) || is_late(e, pid, look_s)) {
			dlb_status_line_clear(&e->shown);
			end_all(e, pid, in);
			return;
		}
	}
}

void dlb_ranks_init(struct dlb_ranks *e, const struct dlb_launch *l)
{
	*e = (struct dlb_ranks){ .l = l, .lost_rank = -1, .lost_exit = -1, .cut_s = -1, .gone_s = -1,
				.first_step = -1, .step = -1, .end.notice_s = NAN,
				.end.trains_s = NAN, .end.paused_step = -1 };
	e->rank = dlb_xcalloc((size_t)l->n_ranks, sizeof *e->rank);
	e->end.lost_node = dlb_xcalloc((size_t)l->n_ranks, sizeof *e->end.lost_node);
	dlb_status_line_open(&e->shown, stderr, l->tool, l->quiet, l->verbose);
}

void dlb_launch_end_release(struct dlb_launch_end *end)
{
	free(end->lost_node);
	end->lost_node = NULL;
}

void dlb_ranks_release(struct dlb_ranks *e)
{
	dlb_status_line_clear(&e->shown);
	dlb_launch_end_release(&e->end);
	free(e->rank);
}

/* Fills err with the reason that mpiexec gave for its end. */
static int mpiexec_failed(const struct dlb_ranks *e, int status, struct dlb_error *err)
{
	if (e->lost_rank >= 0 && e->lost_signal > 0)
		return dlb_fail(err, NULL, "lost rank %d: killed by signal %d", e->lost_rank, e->lost_signal);
	if (e->lost_rank >= 0 && e->memory[0])
		return dlb_fail(err, NULL, "lost rank %d: %s", e->lost_rank, e->memory);
	if (e->lost_rank >= 0)
		return dlb_fail(err, NULL, "lost rank %d: it ended with status %d", e->lost_rank,
				e->lost_exit);
	if (e->lost_signal > 0)
		return dlb_fail(err, NULL, "lost a rank: killed by signal %d", e->lost_signal);
	if (WIFSIGNALED(status))
		return dlb_fail(err, NULL, "mpiexec was killed by signal %d", WTERMSIG(status));
	dlb_fail(err, NULL, "mpiexec ended with status %d: %s", WEXITSTATUS(status), e->first);
	return dlb_hint(err, "-v shows all it said");
}

/* The only rank that was not heard; -1: there is none, or there are several. Open MPI may not name a rank
 * that is killed before it starts MPI. */
static int only_silent_rank(const struct dlb_ranks *e)
{
	int silent = -1;

	for (int r = 0; r < e->l->n_ranks; r++) {
		if (!e->rank[r] && silent >= 0)
			return -1;
		silent = e->rank[r] ? silent : r;
	}
	return e->ready ? -1 : silent;
}

/* Runs the user's command for each lost node. */
static void tell_events(const struct dlb_ranks *e)
{
	for (int r = 0; r < e->l->n_ranks; r++)
		if (e->end.lost_node[r])
			dlb_events_happened(e->l->events, "lost", r, e->step, e->end.why.what);
}

int dlb_ranks_verdict(struct dlb_ranks *e, int status, struct dlb_error *err)
{
	e->end.step = e->step;
	if (e->said) {			/* ranks that have agreed on an error exit with status 0 */
		tell_events(e);
		err->what[0] = '\0';
		err->status = e->status;
		return -1;
	}
	if (e->ended && e->done) {
		e->end.n_lost = 0;
		if (!e->l->quiet)
			fprintf(stderr,
				"%s: the result is complete; a rank did not end after it, and was killed\n",
				e->l->tool);
		return 0;
	}
	if (e->ended) {
		*err = e->end.why = e->fault;
		tell_events(e);
		dlb_alarm_hint(e->l->checkpoint, err);
		return -1;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		e->end.n_lost = 0;
		return 0;
	}
	mpiexec_failed(e, status, err);
	if (!e->end.n_lost)
		lose(e, e->lost_rank >= 0 || WIFSIGNALED(status) ? e->lost_rank : only_silent_rank(e), NAN);
	e->end.unnamed = !e->end.n_lost && (WIFSIGNALED(status) || (!e->ready && WEXITSTATUS(status) > 128));
	e->end.why = *err;
	tell_events(e);
	dlb_alarm_hint(e->l->checkpoint, err);
	return -1;
}
