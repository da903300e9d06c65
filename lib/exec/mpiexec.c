/* Starts mpiexec. See mpiexec.h. */
#define _XOPEN_SOURCE 700
#include "exec/mpiexec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "comm/comm.h"
#include "exec/run_folder.h"
#include "util/mem.h"

extern char **environ;

int dlb_mpiexec_self(char path[4096], struct dlb_error *err)
{
	const ssize_t n = readlink("/proc/self/exe", path, 4095);

	if (n < 0)
		return dlb_fail(err, NULL, "cannot find this program's file: %s", strerror(errno));
	path[n] = '\0';
	return 0;
}

void dlb_mpiexec_add(struct dlb_mpiexec *m, const char *word)
{
	DLB_GROW(m->word, m->n, m->cap);
	m->word[m->n++] = dlb_arena_strdup(&m->arena, word);
}

/* Whether all ranks are on one host. */
static bool is_one_host(const struct dlb_host *const *host, int n)
{
	for (int r = 1; r < n; r++)
		if (strcmp(host[r]->address, host[0]->address))
			return false;
	return true;
}

void dlb_mpiexec_add_hosts(struct dlb_mpiexec *m, const struct dlb_host *const *host, int n,
			   const char *hostfile, bool oversubscribe)
{
	char ranks[16];

	snprintf(ranks, sizeof ranks, "%d", n);
	const char *const option[] = { "-n", ranks, "--hostfile", hostfile, "--map-by",
				       is_one_host(host, n) ? "slot" : "seq", "--bind-to", "none" };
	for (int i = 0; i < DLB_LEN(option); i++)
		dlb_mpiexec_add(m, option[i]);
	if (oversubscribe)
		dlb_mpiexec_add(m, "--oversubscribe");
	for (char **e = environ; *e; e++) {
		char *name;

		if (strncmp(*e, "DLB_", 4))
			continue;
		name = dlb_xprintf("%.*s", (int)strcspn(*e, "="), *e);
		dlb_mpiexec_add(m, "-x");
		dlb_mpiexec_add(m, name);
		free(name);
	}
}

/* If all ranks are on one host, the file has one line for the host with its number of slots: mpiexec cannot
 * map ranks one by one to "localhost". */
char *dlb_mpiexec_write_hosts(const char *folder, const struct dlb_host *const *host, int n,
			      struct dlb_error *err)
{
	char *path = dlb_xprintf("%s/dlb-hosts-XXXXXX", folder);
	const int fd = mkstemp(path);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	const bool one = is_one_host(host, n);

	for (int r = 0; f && r < (one ? 1 : n); r++) {
		fprintf(f, "%s%s%s", host[r]->address, host[r]->user ? " username=" : "",
			host[r]->user ? host[r]->user : "");
		if (one)
			fprintf(f, " slots=%d", n);
		fputc('\n', f);
	}
	if (f && !fclose(f))
		return path;
	dlb_fail(err, NULL, "cannot write '%s': %s", path, strerror(errno));
	free(path);
	return NULL;
}

/* Open MPI refuses to run as root without these variables. Under Slurm it starts its daemons by srun, which
 * without SLURM_OVERLAP would wait for the job step of a host that does not answer. */
static void set_environment(const struct dlb_mpiexec *m)
{
	if (m->temporary)
		setenv("TMPDIR", m->temporary, 1);
	if (!dlb_comm_is_open_mpi())
		return;
	if (geteuid() == 0) {
		setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
		setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	}
	if (getenv("SLURM_JOB_ID"))
		setenv("SLURM_OVERLAP", "1", 0);
}

/* Runs in the child; never returns. */
static void become_mpiexec(const struct dlb_mpiexec *m, const char **argv, pid_t parent)
{
	static const char *const open_mpi[] = { "mpiexec.openmpi", "mpiexec", NULL };
	static const char *const mpich[] = { "mpiexec.mpich", "mpiexec.hydra", "mpiexec", NULL };
	const int in = m->in < 0 ? open("/dev/null", O_RDONLY) : m->in;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(2);
	setpgid(0, 0);
	if (m->close_fd)
		close(m->close_fd);
	if (m->folder)
		dlb_run_folder_record_launcher(m->folder);
	if (in >= 0)
		dup2(in, 0);
	dup2(m->out, 1);
	dup2(m->err, 2);
	set_environment(m);
	for (const char *const *name = dlb_comm_is_open_mpi() ? open_mpi : mpich; *name; name++) {
		argv[0] = *name;	/* MPICH's mpiexec looks for its other programs beside it */
		execvp(*name, (char *const *)argv);
	}
	dprintf(2, "%s%s: cannot start mpiexec: %s\n", m->mark ? m->mark : "", m->tool, strerror(errno));
	_exit(127);
}

pid_t dlb_mpiexec_start(const struct dlb_mpiexec *m, struct dlb_error *err)
{
	const pid_t parent = getpid();
	const char **argv = dlb_xcalloc((size_t)m->n + 2, sizeof *argv);
	pid_t pid;

	memcpy(argv + 1, m->word, (size_t)m->n * sizeof *argv);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		become_mpiexec(m, argv, parent);
	free(argv);
	if (pid < 0)
		dlb_fail(err, NULL, "cannot start a process: %s", strerror(errno));
	return pid;
}

void dlb_mpiexec_release(struct dlb_mpiexec *m)
{
	free(m->word);
	dlb_arena_release(&m->arena);
	m->word = NULL;
	m->n = m->cap = 0;
}
