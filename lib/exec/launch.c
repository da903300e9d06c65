/* Starts the ranks of a plan and watches them. See launch.h. */
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
#include "exec/mpiexec.h"
#include "util/mem.h"
#include "util/process.h"

int dlb_launch_rank(void)
{
	/* Open MPI's mpirun; any PMI (mpiexec of MPICH, srun); PMIx. SLURM_PROCID is also set in an
	 * interactive shell under srun, so it is no evidence. */
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
	dprintf(2, "\1rank %d %lld %lu %s\n", dlb_launch_rank(), (long long)getpid(), dlb_run_folder_job(),
		host);
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

/* Adds the options of mpiexec and the tool's arguments. hostfile: for ranks on several hosts; NULL: all ranks
 * are on this host. */
static void add_words(const struct dlb_launch *l, const char *self, const char *folder, const char *hostfile,
		      struct dlb_mpiexec *m)
{
	char n[16], begin[DLB_BEGIN_TEXT];

	snprintf(n, sizeof n, "%d", l->n_ranks);
	dlb_begin_text(&l->begin, begin);
	const char *const here[] = { "-n", n, "--oversubscribe", "--bind-to", "none" },
			  *const yield[] = { "--mca", "mpi_yield_when_idle", "1" },
			  *const worker[] = { self, hostfile ? DLB_REMOTE_WORKER : DLB_WORKER, folder, begin,
					      l->copies ? l->copies : "-" };
	if (hostfile)
		dlb_mpiexec_add_hosts(m, l->host, l->n_ranks, hostfile, l->allocated);
	for (int i = 0; i < (dlb_comm_is_open_mpi() ? DLB_LEN(here) : 2) && !hostfile; i++)
		dlb_mpiexec_add(m, here[i]);
	for (int i = 0; i < DLB_LEN(yield) && l->yields && dlb_comm_is_open_mpi(); i++)
		dlb_mpiexec_add(m, yield[i]);
	for (int i = 0; i < DLB_LEN(worker); i++)
		dlb_mpiexec_add(m, worker[i]);
	for (int i = 1; i < l->argc; i++)
		dlb_mpiexec_add(m, l->argv[i]);
}

static int copy_out(const char *path, FILE *out, struct dlb_error *err)
{
	FILE *f = fopen(path, "rb");
	char buf[65536];
	size_t n, written = 0;

	while (f && (n = fread(buf, 1, sizeof buf, f)) > 0 && fwrite(buf, 1, n, out) == n)
		written += n;
	if (!f || (!n && !written)) {
		if (f)
			fclose(f);
		return dlb_fail(err, NULL, "the ranks ended without a result");
	}
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

/* Waits for mpiexec, ends its remaining children, and reaps all. Returns mpiexec's status. */
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

/* Starts mpiexec. Ranks on other hosts do not see the folder: rank 0 gets the document through standard
 * input, and writes the result to standard output. Returns mpiexec's process number; *messages: a descriptor
 * from which its messages can be read. -1 with err. */
static pid_t start(const struct dlb_launch *l, const char *folder, const char *in_path, const char *out_path,
		   int *messages, struct dlb_error *err)
{
	struct dlb_mpiexec m = { .tool = l->tool, .in = -1, .out = -1, .folder = folder,
				 .temporary = dlb_run_folder_parent(), .mark = "\1error 2 " };
	char self[4096],
		*hostfile = l->host ? dlb_mpiexec_write_hosts(folder, l->host, l->n_ranks, err) : NULL;
	int pipes[2] = { -1, -1 };
	pid_t pid = -1;

	*messages = -1;
	if ((l->host && !hostfile) || dlb_mpiexec_self(self, err))
		goto out;
	add_words(l, self, folder, hostfile, &m);
	if (l->host) {
		m.in = open(in_path, O_RDONLY | O_CLOEXEC);
		m.out = open(out_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	}
	if (pipe(pipes) || (l->host && (m.in < 0 || m.out < 0))) {
		dlb_fail(err, NULL, "cannot connect mpiexec: %s", strerror(errno));
		goto out;
	}
	m.err = pipes[1];
	m.close_fd = pipes[0];
	dlb_process_adopt();
	const int result = m.out;
	m.out = result < 0 ? pipes[1] : result;
	pid = dlb_mpiexec_start(&m, err);
	m.out = result;
	*messages = pipes[0];
	pipes[0] = -1;
out:
	for (int i = 0; i < 2; i++)
		if (pipes[i] >= 0)
			close(pipes[i]);
	if (m.in >= 0)
		close(m.in);
	if (m.out >= 0)
		close(m.out);
	free(hostfile);
	dlb_mpiexec_release(&m);
	return pid;
}

static int run_in(const struct dlb_launch *l, const struct dlb_doc *doc, const char *folder, FILE *out,
		  struct dlb_launch_end *end, struct dlb_error *err)
{
	char *in_path = dlb_launch_in(folder), *out_path = dlb_launch_out(folder);
	struct dlb_ranks e;
	int messages = -1, rc = -1;
	pid_t pid;

	dlb_ranks_init(&e, l);
	if (write_doc(doc, in_path, err))
		goto out;
	pid = start(l, folder, in_path, out_path, &messages, err);
	if (pid < 0)
		goto out;
	dlb_ranks_watch(&e, pid, messages);
	rc = dlb_ranks_verdict(&e, reap(l, pid), err);
	if (!rc && e.end.paused_step < 0)
		rc = l->finish ? l->finish(l->finish_ctx, out_path, &e.end, out, err) :
				 copy_out(out_path, out, err);
out:
	if (messages >= 0)
		close(messages);
	unlink(in_path);
	unlink(out_path);
	free(in_path);
	free(out_path);
	*end = e.end;
	e.end.lost_node = NULL;
	dlb_ranks_release(&e);
	return rc;
}

int dlb_launch(const struct dlb_launch *l, const struct dlb_doc *doc, FILE *out, struct dlb_launch_end *end,
	       struct dlb_error *err)
{
	int lock, rc;
	char *folder = dlb_run_folder_new(l->tool, &lock, err);

	*end = (struct dlb_launch_end){ .trains_s = NAN, .paused_step = -1 };
	if (!folder)
		return -1;
	rc = run_in(l, doc, folder, out, end, err);
	dlb_run_folder_free(folder, lock);
	return rc;
}
