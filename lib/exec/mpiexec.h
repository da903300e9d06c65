/* Starts mpiexec, for launch.c (the ranks of a run), hosts.c (the ranks of a measurement) and host_probe.c.
 *
 *     struct dlb_mpiexec m = { .tool = "dlb-run", .in = -1, .out = fd, .err = fd };
 *     dlb_mpiexec_add(&m, "-n");  ...  dlb_mpiexec_add(&m, self);  ...
 *     pid_t pid = dlb_mpiexec_start(&m, &err);
 *     dlb_mpiexec_release(&m); */
#ifndef DLB_EXEC_MPIEXEC_H
#define DLB_EXEC_MPIEXEC_H
#include <sys/types.h>
#include "cluster/cluster.h"

struct dlb_mpiexec {
	const char *tool;
	struct dlb_arena arena;
	const char **word; int n, cap;	/* the command line after "mpiexec" */
	int in, out, err;		/* its standard descriptors; in -1: none */
	int close_fd; /* a descriptor that it must not inherit; 0: none */
	const char *folder; /* the run's (run_folder.h), which records mpiexec's process id; NULL: none */
	const char *temporary;		/* its TMPDIR; NULL: this process's */
	const char *mark;		/* prefix of the line that reports a failed start; NULL: none */
};

/* Path of this program's file, for starting it again. -1 with err. */
int dlb_mpiexec_self(char path[4096], struct dlb_error *err);
/* Copies the word. */
void dlb_mpiexec_add(struct dlb_mpiexec *m, const char *word);
/* Adds "-n N" and the options for ranks on these hosts, host[rank]; hostfile: written by
 * dlb_mpiexec_write_hosts. Environment variables DLB_* are passed to all ranks. oversubscribe: a host may
 * have more ranks than its allocation has tasks. Open MPI only. */
void dlb_mpiexec_add_hosts(struct dlb_mpiexec *m, const struct dlb_host *const *host, int n,
			   const char *hostfile, bool oversubscribe);
/* Writes a host file: a line for each rank, in their order, or one line if all ranks are on one host. Returns
 * its path (new) in folder; NULL with err. */
char *dlb_mpiexec_write_hosts(const char *folder, const struct dlb_host *const *host, int n,
			      struct dlb_error *err);
/* Forks. The child has a process group of its own, so that a terminal's ^C reaches the parent alone, and
 * dies with the parent. -1 with err. */
pid_t dlb_mpiexec_start(const struct dlb_mpiexec *m, struct dlb_error *err);
void dlb_mpiexec_release(struct dlb_mpiexec *m);
#endif
