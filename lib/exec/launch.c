/* See launch.h. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/comm.h"
#include "exec/launch.h"
#include "exec/status.h"
#include "util/cores.h"
#include "util/mem.h"

#define TMPFS 0x01021994		/* statfs(2): files in memory */
#define MEMORY_ROOM 1e9			/* bytes: far more than documents take, and not all that a container has */

int dlb_launch_rank(void)
{
	/* Open MPI's mpirun; any PMI (mpiexec of MPICH, srun); PMIx. SLURM_PROCID alone is set in an
	 * interactive shell under srun too and says nothing. */
	static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK" };

	for (int i = 0; i < DLB_LEN(names); i++)
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	return -1;
}

bool dlb_launch_joined(void) { return dlb_launch_rank() >= 0; }

void dlb_launch_worker_init(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

char *dlb_launch_in(const char *folder) { return dlb_xprintf("%s/in.json", folder); }
char *dlb_launch_out(const char *folder) { return dlb_xprintf("%s/out.json", folder); }

/* ---- what the children say ---- */

struct ears {
	const struct dlb_launch *l;
	char line[4096];
	size_t n;
	bool ready, said;		/* said: a worker's error line was passed on */
	int status;			/* of that line */
	int lost_rank, lost_signal, lost_exit;	/* from mpiexec's own words; -1: not heard */
	char first[200];		/* its first words, when nothing else is known */
	char memory[200];		/* what a worker says that finds none (util/mem.h) */
	struct dlb_status_line shown;	/* how far it is */
};

static void hear_worker(struct ears *e, const char *s)
{
	int status, at = 0;
	long long done, total;
	int stays;

	if (!strcmp(s, "ready")) {
		e->ready = true;
	} else if (sscanf(s, "error %d %n", &status, &at) == 1 && at) {
		if (!e->said) {
			dlb_status_line_clear(&e->shown);
			fprintf(stderr, "%s\n", s + at);
		}
		e->said = true;
		e->status = status;
	} else if (sscanf(s, "progress %lld %lld %d %n", &done, &total, &stays, &at) == 3 && at) {
		dlb_status_line_show(&e->shown, &(struct dlb_status_told){ done, total, stays != 0, s + at });
	}
}

/* One line from a worker or from mpiexec. Open MPI says of a death:
 *   mpirun noticed that process rank 1 with PID 77 on node h exited on signal 9 (Killed).
 *   Process name: [[4711,1],1]  /  Exit code:    3                                        */
static void hear(struct ears *e, char *s)
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
	if (!e->memory[0] && (p = strstr(s, "out of memory: ")))
		snprintf(e->memory, sizeof e->memory, "%.199s", p);
	if (!e->first[0] && s[0] && s[0] != '-' && s[0] != '=')
		snprintf(e->first, sizeof e->first, "%.199s", s);
	if (e->l->verbose || !strncmp(s, e->l->tool, tool)) {
		dlb_status_line_clear(&e->shown);
		fprintf(stderr, "%s\n", s);
	}
}

static void hear_bytes(struct ears *e, const char *p, size_t n)
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

/* The folder for files that live as long as a run, ours and mpiexec's: TMPDIR; memory, where it has room; /tmp. mpiexec deletes a
 * dozen of them, 8 MB, before it ends, and a disk that is busy may take a second for each (ext4 that is mounted "discard" and
 * keeps no journal waits for the disk at every one). */
static const char *brief_folder(void)
{
	static const char memory[] = "/dev/shm";
	const char *tmp = getenv("TMPDIR");
	struct statfs fs;

	if (tmp && *tmp)
		return tmp;
	if (statfs(memory, &fs) == 0 && fs.f_type == TMPFS && (double)fs.f_bavail * (double)fs.f_bsize >= MEMORY_ROOM &&
	    access(memory, W_OK | X_OK) == 0)
		return memory;
	return "/tmp";
}

/* In the child: mpiexec of ourselves; never returns. Own process group, so that a terminal's ^C reaches the
 * parent alone, which then asks the ranks to stop. */
static void exec_mpiexec(const struct dlb_launch *l, const char *self, const char *folder, int out)
{
	char n[16];
	const char **argv = dlb_xcalloc((size_t)l->argc + 24, sizeof *argv);
	int k = 0, null = open("/dev/null", O_RDONLY);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setpgid(0, 0);
	if (null >= 0)
		dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	setenv("TMPDIR", brief_folder(), 1);
	snprintf(n, sizeof n, "%d", l->n_ranks);
	argv[k++] = "mpiexec";
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
	if (dlb_comm_is_open_mpi())
		execvp("mpiexec.openmpi", (char *const *)argv);
	execvp("mpiexec", (char *const *)argv);
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

/* Listens until the children have closed the pipe, passing on requests to stop. */
static void watch(struct ears *e, pid_t pid, int in)
{
	int passed = 0;

	for (;;) {
		struct pollfd p = { .fd = in, .events = POLLIN };
		char buf[4096];
		ssize_t n;
		int told = e->l->stop ? (int)*e->l->stop : 0;

		if (told && !passed && e->ready) {
			kill(pid, SIGUSR1);	/* Open MPI's mpiexec forwards it to every rank */
			passed = told;
		} else if (told > 1 && passed != told) {
			kill(pid, SIGTERM);
			passed = told;
		}
		if (poll(&p, 1, 100) <= 0)
			continue;
		n = read(in, buf, sizeof buf);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		hear_bytes(e, buf, (size_t)n);
	}
}

/* What came of it, in one line. */
static int verdict(const struct ears *e, int status, struct dlb_error *err)
{
	if (e->said) {			/* ranks that leave together do so without a status */
		err->what[0] = '\0';
		err->status = e->status;
		return -1;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (e->lost_rank >= 0 && e->lost_signal > 0)
		return dlb_fail(err, NULL, "lost rank %d: killed by signal %d", e->lost_rank, e->lost_signal);
	if (e->lost_rank >= 0 && e->memory[0])
		return dlb_fail(err, NULL, "lost rank %d: %s", e->lost_rank, e->memory);
	if (e->lost_rank >= 0)
		return dlb_fail(err, NULL, "lost rank %d: it ended with status %d", e->lost_rank, e->lost_exit);
	if (WIFSIGNALED(status))
		return dlb_fail(err, NULL, "mpiexec was killed by signal %d", WTERMSIG(status));
	dlb_fail(err, NULL, "mpiexec ended with status %d: %s", WEXITSTATUS(status), e->first);
	return dlb_hint(err, "-v shows all it said");
}

static int run_in(const struct dlb_launch *l, const struct dlb_doc *doc, const char *folder, FILE *out, struct dlb_error *err)
{
	char self[4096], *in_path = dlb_launch_in(folder), *out_path = dlb_launch_out(folder);
	struct ears e = { .l = l, .lost_rank = -1, .lost_exit = -1 };
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	int pipes[2] = { -1, -1 }, status = 0, rc = -1;
	pid_t pid;

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
	pid = fork();
	if (pid == 0) {
		close(pipes[0]);
		exec_mpiexec(l, self, folder, pipes[1]);
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
	return rc;
}

int dlb_launch(const struct dlb_launch *l, const struct dlb_doc *doc, FILE *out, struct dlb_error *err)
{
	char *folder = dlb_xprintf("%s/%s.XXXXXX", brief_folder(), l->tool);
	int rc;

	if (!mkdtemp(folder)) {
		rc = dlb_fail(err, NULL, "cannot make a folder like '%s': %s", folder, strerror(errno));
	} else {
		rc = run_in(l, doc, folder, out, err);
		rmdir(folder);
	}
	free(folder);
	return rc;
}
