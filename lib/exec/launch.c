/* Starts the ranks of a plan on this host and watches them. See launch.h. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/comm.h"
#include "exec/run_folder.h"
#include "exec/launch.h"
#include "exec/status.h"
#include "util/clock.h"
#include "util/cores.h"
#include "util/mem.h"
#include "util/process.h"

#define ELSEWHERE ((pid_t)-1)
#define TICK_S 0.1			/* seconds between two looks at the children */
#define LONGEST_LOOK_S 1.0	/* at most, between two looks; longer: this process itself was stopped */
#define SCAN_S 1.0			/* between two scans of all processes */
#define LEAST_START_S 10.0		/* for ranks to start, however short --timeout is */
#define LAST_S 5.0			/* for mpiexec to end once a rank has given the reason */
#define TERM_S 2.0			/* from SIGTERM to SIGKILL */

int dlb_launch_rank(void)
{
	/* Open MPI's mpirun; any PMI (mpiexec of MPICH, srun); PMIx. SLURM_PROCID is also set in an
	 * interactive shell under srun, so it proves nothing. */
	static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK" };

	for (int i = 0; i < DLB_LEN(names); i++)
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	return -1;
}

bool dlb_launch_joined(void) { return dlb_launch_rank() >= 0; }

void dlb_launch_worker_init(const char *folder)
{
	char host[256] = "";

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == 1)		/* the parent died before the call */
		_exit(2);
	dlb_run_folder_record_job(folder);
	gethostname(host, sizeof host - 1);
	dprintf(2, "\1rank %d %lld %s\n", dlb_launch_rank(), (long long)getpid(), host);
}

char *dlb_launch_in(const char *folder) { return dlb_xprintf("%s/in.json", folder); }
char *dlb_launch_out(const char *folder) { return dlb_xprintf("%s/out.json", folder); }

int dlb_launch_check(int size, struct dlb_error *err)
{
	const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
	const int n = tasks && getenv("SLURM_PROCID") ? atoi(tasks) : 0;
	const bool known = dlb_comm_is_open_mpi() ? getenv("OMPI_COMM_WORLD_RANK") || getenv("PMIX_RANK") :
						    dlb_launch_joined();

	if (n < 2 || size > 1 || (size == 0 && known))
		return 0;
	dlb_fail(err, NULL, "srun has started %d tasks that do not find each other", n);
	return dlb_hint(err, dlb_comm_is_open_mpi() ? "start them with srun --mpi=pmix" :
						      "start them with srun --mpi=pmi2");
}

bool dlb_launch_speaks(void)
{
	const char *task = getenv("SLURM_PROCID");

	return !task || atoi(task) == 0;
}

/* ---- output of the children ---- */

struct worker_output {
	const struct dlb_launch *l;
	char line[4096];
	size_t n;
	bool ready, said, done;	/* said: a worker's error line was passed on; done: the result is complete */
	pid_t *rank;			/* [n_ranks] 0: rank not heard yet; ELSEWHERE: on another host */
	double silent_s, scanned_s;	/* since a rank was last heard; since all processes were scanned */
	double stopped_s, launcher_s;	/* since a rank, mpiexec was stopped */
	int stopped;			/* the rank; -1: one not heard yet */
	struct dlb_error fault;		/* why this process ended all ranks */
	bool ended;
	int status;			/* exit status of that line */
	int lost_rank, lost_signal, lost_exit;	/* as mpiexec reports; -1: not reported */
	char first[200];		/* first line of mpiexec, for when no reason is known */
	char memory[200];		/* a worker's line about missing memory (util/mem.h) */
	struct dlb_status_line shown;	/* progress line */
};

/* A stopped rank of this host; -1: none known. */
static int stopped_rank(const struct worker_output *e)
{
	for (int r = 0; r < e->l->n_ranks; r++)
		if (e->rank[r] > 0 && dlb_process_state(e->rank[r]) == 'T')
			return r;
	return -1;
}

/* Passes on a worker's error line. A rank names the rank it has not heard, which may itself wait for another;
 * a stopped rank is visible here. */
static void pass_on(struct worker_output *e, const char *line)
{
	const int stopped = strstr(line, ": lost ") ? stopped_rank(e) : -1;

	dlb_status_line_clear(&e->shown);
	if (stopped >= 0)
		fprintf(stderr, "%s: lost rank %d: it has been stopped; nothing heard for %g s\n", e->l->tool,
			stopped, e->l->timeout_s);
	else
		fprintf(stderr, "%s\n", line);
}

static void hear_worker(struct worker_output *e, const char *s)
{
	int status, at = 0, rank;
	char host[256] = "";
	long long done, total;
	int permanent;

	e->silent_s = 0;
	if (e->ended)	/* a stopped rank goes on when it is told to end; its result does not count */
		return;
	if (!strcmp(s, "ready")) {
		e->ready = true;
	} else if (!strcmp(s, "done")) {
		e->done = true;
	} else if (sscanf(s, "rank %d %lld %n", &rank, &done, &at) == 2 && at) {
		gethostname(host, sizeof host - 1);
		if (rank >= 0 && rank < e->l->n_ranks)
			e->rank[rank] = strcmp(s + at, host) ? ELSEWHERE : (pid_t)done;
	} else if (sscanf(s, "error %d %n", &status, &at) == 1 && at) {
		if (!e->said)
			pass_on(e, s + at);
		e->said = true;
		e->status = status;
	} else if (sscanf(s, "progress %lld %lld %d %n", &done, &total, &permanent, &at) == 3 && at) {
		dlb_status_line_show(&e->shown,
				     &(struct dlb_status_told){ done, total, permanent != 0, s + at });
	}
}

/* Parses MPICH's message about a death. It names the lowest rank, not the one that died first, since the
 * others are killed then:
 *   =   EXIT CODE: 9  /  YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9) */
static void hear_mpich(struct worker_output *e, const char *s)
{
	const char *p = strstr(s, "EXIT STRING:") ? strstr(s, "(signal ") : NULL;

	if (p)
		e->lost_signal = atoi(p + strlen("(signal "));
}

/* Handles one line of a worker or of mpiexec. Open MPI's message about a death:
 *   mpirun noticed that process rank 1 with PID 77 on node h exited on signal 9 (Killed).
 *   Process name: [[4711,1],1]  /  Exit code:    3 */
static void hear(struct worker_output *e, char *s)
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

static void hear_bytes(struct worker_output *e, const char *p, size_t n)
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

/* ---- starting ---- */

static void set_root_env(void)
{
	if (geteuid() == 0) {
		setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
		setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	}
}

/* In the child: runs mpiexec with this program; never returns. The child has its own process group, so that a
 * terminal's ^C reaches the parent alone, which then asks the ranks to stop. */
static void exec_mpiexec(const struct dlb_launch *l, const char *self, const char *folder, pid_t parent,
			 int out)
{
	char n[16];
	const char **argv = dlb_xcalloc((size_t)l->argc + 24, sizeof *argv);
	static const char *const open_mpi[] = { "mpiexec.openmpi", "mpiexec", NULL };
	static const char *const mpich[] = { "mpiexec.mpich", "mpiexec.hydra", "mpiexec", NULL };
	int k = 0, null = open("/dev/null", O_RDONLY);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(2);
	setpgid(0, 0);
	dlb_run_folder_record_launcher(folder);
	if (null >= 0)
		dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	setenv("TMPDIR", dlb_run_folder_parent(), 1);
	snprintf(n, sizeof n, "%d", l->n_ranks);
	k++;
	argv[k++] = "-n";
	argv[k++] = n;
	if (dlb_comm_is_open_mpi()) {
		set_root_env();
		argv[k++] = "--oversubscribe";
		argv[k++] = "--bind-to";
		argv[k++] = "none";
		if (l->total_threads > dlb_cores()) {
			argv[k++] = "--mca";
			argv[k++] = "mpi_yield_when_idle";
			argv[k++] = "1";
		}
	}
	argv[k++] = self;
	argv[k++] = "--worker";
	argv[k++] = folder;
	for (int i = 1; i < l->argc; i++)
		argv[k++] = l->argv[i];
	argv[k] = NULL;
	for (const char *const *name = dlb_comm_is_open_mpi() ? open_mpi : mpich; *name; name++) {
		argv[0] = *name;	/* MPICH's mpiexec looks for its other programs beside it */
		execvp(*name, (char *const *)argv);
	}
	dprintf(2, "\1error 2 %s: cannot start mpiexec: %s\n", l->tool, strerror(errno));
	_exit(127);
}

static int copy_out(const char *path, FILE *out, struct dlb_error *err)
{
	FILE *f = fopen(path, "rb");
	char buf[65536];
	size_t n;

	if (!f)
		return dlb_fail(err, NULL, "the ranks ended without a result");
	while ((n = fread(buf, 1, sizeof buf, f)) > 0 && fwrite(buf, 1, n, out) == n)
		;
	fclose(f);
	if (n > 0 || fflush(out))
		return dlb_fail(err, NULL, "cannot write standard output: %s", strerror(errno));
	return 0;
}

static int write_doc(const struct dlb_doc *doc, const char *path, struct dlb_error *err)
{
	FILE *f = fopen(path, "wb");
	int rc;

	if (!f)
		return dlb_fail(err, NULL, "cannot open '%s': %s", path, strerror(errno));
	rc = dlb_doc_write(doc, f, err);
	if (fclose(f) && !rc)
		rc = dlb_fail(err, NULL, "cannot write '%s': %s", path, strerror(errno));
	return rc;
}

/* ---- watching ---- */

/* Reads available lines for at most s seconds. false: the children have closed the pipe. */
static bool listen_for(struct worker_output *e, int in, double s)
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

static void pass_signals(const struct worker_output *e, pid_t pid, int *passed)
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

/* Ends mpiexec and all its descendants: SIGTERM first, SIGKILL after TERM_S seconds. */
static void end_all(struct worker_output *e, pid_t pid, int in)
{
	bool open = true;

	e->ended = true;
	kill(pid, SIGCONT);
	dlb_process_signal_descendants(getpid(), SIGTERM);
	for (double s = 0; s < TERM_S && dlb_process_state(pid) != 'Z'; s += TICK_S) {
		double start_s = dlb_clock_s();

		open = open && listen_for(e, in, TICK_S);
		start_s += TICK_S - dlb_clock_s();
		if (start_s > 0)
			dlb_sleep_s(start_s);
	}
	for (int i = 0; i < 100 && dlb_process_signal_descendants(getpid(), SIGKILL) > 0; i++)
		dlb_sleep_s(0.02);
}

static int silent_rank(const struct worker_output *e)
{
	int r = 0;

	while (r < e->l->n_ranks && e->rank[r])
		r++;
	return r < e->l->n_ranks ? r : -1;
}

/* Finds a stopped rank. Ranks not heard yet need a scan of all processes, so it is done only while there are
 * some. */
static bool find_stopped(struct worker_output *e, pid_t pid)
{
	e->stopped = stopped_rank(e);
	if (e->stopped >= 0)
		return true;
	e->stopped = silent_rank(e);
	return e->stopped >= 0 && dlb_process_has_stopped(pid);
}

/* Whether a part has been silent for too long; the reason is then in e->fault. s: since the last look. */
static bool is_late(struct worker_output *e, pid_t pid, double s)
{
	const double limit = e->l->timeout_s, start = limit > LEAST_START_S ? limit : LEAST_START_S;
	int silent;

	e->silent_s += s;
	if (limit <= 0)
		return false;
	e->launcher_s = dlb_process_state(pid) == 'T' ? e->launcher_s + s : 0;
	/* no other process would continue it, and continuing it loses nothing */
	if (e->launcher_s > limit / 2) {
		kill(pid, SIGCONT);
		if (!e->l->quiet)
			fprintf(stderr, "%s: mpiexec was stopped for %g s; it goes on now\n", e->l->tool,
				limit / 2);
		e->launcher_s = e->silent_s = 0;
	}
	e->scanned_s += s;
	if (e->scanned_s >= (limit < 4 * SCAN_S ? limit / 4 : SCAN_S)) {
		e->stopped_s = find_stopped(e, pid) ? e->stopped_s + e->scanned_s : 0;
		e->scanned_s = 0;
	}
	if (e->said || e->done) {
		if (e->silent_s <= (e->said && limit > LAST_S ? LAST_S : limit))
			return false;
		dlb_fail(&e->fault, NULL, "mpiexec did not end");
		return true;
	}
	if (e->stopped_s > limit) {
		dlb_fail(&e->fault, NULL, "lost rank %d: it has been stopped for %g s", e->stopped, limit);
		return true;
	}
	if (e->ready || e->silent_s <= start)
		return false;
	silent = silent_rank(e);
	if (silent >= 0)
		dlb_fail(&e->fault, NULL, "lost rank %d: it has not started after %g s", silent, start);
	else
		dlb_fail(&e->fault, NULL, "lost a rank: the %d ranks have not met after %g s", e->l->n_ranks,
			 start);
	dlb_hint(&e->fault, "a longer --timeout helps when this host is only slow");
	return true;
}

/* Reads lines until the children have closed the pipe, passes on requests to stop, and ends children that
 * stay. Time is counted in looks, so that a parent that was stopped itself does not take that for silence of
 * the children. */
static void watch(struct worker_output *e, pid_t pid, int in)
{
	int passed = 0;
	double last_s = dlb_clock_s();

	while (listen_for(e, in, TICK_S)) {
		const double now_s = dlb_clock_s(), passed_s = now_s - last_s;

		pass_signals(e, pid, &passed);
		last_s = now_s;
		if (dlb_process_state(pid) == 'Z') {	/* other processes may still hold the pipe */
			for (int i = 0; i < 5 && listen_for(e, in, TICK_S); i++)
				;
			return;
		}
		if (is_late(e, pid, passed_s < LONGEST_LOOK_S ? passed_s : LONGEST_LOOK_S)) {
			dlb_status_line_clear(&e->shown);
			end_all(e, pid, in);
			return;
		}
	}
}

/* The result of the run, or its one error line. */
static int verdict(const struct worker_output *e, int status, struct dlb_error *err)
{
	if (e->said) {			/* ranks that agree on an error leave without a status */
		err->what[0] = '\0';
		err->status = e->status;
		return -1;
	}
	if (e->ended && e->done) {
		if (!e->l->quiet)
			fprintf(stderr,
				"%s: the result is complete; a rank did not end after it, and was killed\n",
				e->l->tool);
		return 0;
	}
	if (e->ended) {
		*err = e->fault;
		return -1;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
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

static int run_in(const struct dlb_launch *l, const struct dlb_doc *doc, const char *folder, FILE *out,
		  struct dlb_error *err)
{
	char self[4096], *in_path = dlb_launch_in(folder), *out_path = dlb_launch_out(folder);
	struct worker_output e = { .l = l, .lost_rank = -1, .lost_exit = -1 };
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	int pipes[2] = { -1, -1 }, status = 0, rc = -1;
	pid_t pid, parent = getpid();

	e.rank = dlb_xcalloc((size_t)l->n_ranks, sizeof *e.rank);
	if (n < 0) {
		dlb_fail(err, NULL, "cannot find this program's file: %s", strerror(errno));
		goto out;
	}
	self[n] = '\0';
	if (write_doc(doc, in_path, err))
		goto out;
	if (pipe(pipes)) {
		dlb_fail(err, NULL, "cannot make a pipe: %s", strerror(errno));
		goto out;
	}
	fflush(NULL);
	dlb_process_adopt();
	pid = fork();
	if (pid == 0) {
		close(pipes[0]);
		exec_mpiexec(l, self, folder, parent, pipes[1]);
	}
	close(pipes[1]);
	if (pid < 0) {
		dlb_fail(err, NULL, "cannot start a process: %s", strerror(errno));
		goto out;
	}
	dlb_status_line_open(&e.shown, stderr, l->tool, l->quiet, l->verbose);
	watch(&e, pid, pipes[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	dlb_process_signal_descendants(getpid(), SIGKILL);	/* children of an mpiexec that was killed */
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	dlb_status_line_clear(&e.shown);
	rc = verdict(&e, status, err);
	if (!rc)
		rc = copy_out(out_path, out, err);
out:
	if (pipes[0] >= 0)
		close(pipes[0]);
	unlink(in_path);
	unlink(out_path);
	free(in_path);
	free(out_path);
	free(e.rank);
	return rc;
}

int dlb_launch(const struct dlb_launch *l, const struct dlb_doc *doc, FILE *out, struct dlb_error *err)
{
	int lock, rc;
	char *folder = dlb_run_folder_new(l->tool, &lock, err);

	if (!folder)
		return -1;
	rc = run_in(l, doc, folder, out, err);
	dlb_run_folder_free(folder, lock);
	return rc;
}
