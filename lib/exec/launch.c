/* Starts the ranks of a plan on this host and watches them. See launch.h. */
#define _XOPEN_SOURCE 700
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/comm.h"
#include "exec/event.h"
#include "exec/run_folder.h"
#include "exec/launch.h"
#include "exec/launch_watch.h"
#include "util/cores.h"
#include "util/mem.h"
#include "util/process.h"

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
	char n[16], begin[DLB_BEGIN_TEXT];
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
	dlb_begin_text(&l->begin, begin);
	argv[k++] = begin;
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

/* Waits for mpiexec, ends its children if it was killed, and reaps all. Returns its status. */
static int reap(const struct dlb_launch *l, pid_t mpiexec)
{
	int status = 0, other;
	pid_t pid;

	while (waitpid(mpiexec, &status, 0) < 0 && errno == EINTR)
		;
	dlb_process_signal_descendants(getpid(), SIGKILL, dlb_events_process(l->events));
	while ((pid = waitpid(-1, &other, WNOHANG)) > 0)
		dlb_events_reaped(l->events, pid, other);
	return status;
}

static int run_in(const struct dlb_launch *l, const struct dlb_doc *doc, const char *folder, FILE *out,
		  struct dlb_launch_end *end, struct dlb_error *err)
{
	char self[4096], *in_path = dlb_launch_in(folder), *out_path = dlb_launch_out(folder);
	struct dlb_ranks e;
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	int pipes[2] = { -1, -1 }, rc = -1;
	pid_t pid, parent = getpid();

	dlb_ranks_init(&e, l);
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
	dlb_ranks_watch(&e, pid, pipes[0]);
	rc = dlb_ranks_verdict(&e, reap(l, pid), err);
	if (!rc)
		rc = l->finish ? l->finish(l->finish_ctx, out_path, &e.end, out, err) : copy_out(out_path, out, err);
out:
	if (pipes[0] >= 0)
		close(pipes[0]);
	unlink(in_path);
	unlink(out_path);
	free(in_path);
	free(out_path);
	*end = e.end;
	e.end.node = NULL;
	dlb_ranks_release(&e);
	return rc;
}

int dlb_launch(const struct dlb_launch *l, const struct dlb_doc *doc, FILE *out, struct dlb_launch_end *end,
	       struct dlb_error *err)
{
	int lock, rc;
	char *folder = dlb_run_folder_new(l->tool, &lock, err);

	*end = (struct dlb_launch_end){ .trains_s = NAN };
	if (!folder)
		return -1;
	rc = run_in(l, doc, folder, out, end, err);
	dlb_run_folder_free(folder, lock);
	return rc;
}
