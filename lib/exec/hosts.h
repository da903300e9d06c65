/* Starts a tool's ranks on several hosts, which Open MPI's mpiexec reaches through ssh.
 *
 * The ranks are as under an mpirun of the user's own: rank 0 reads the document from standard input and
 * writes the result to standard output, and each failure is told by the rank that noticed it. The tool must
 * have the same path on all hosts, and files that it names must be there. What mpiexec needs beside that (an
 * agent in the place of ssh, network interfaces) is set by its own variables, OMPI_MCA_*. */
#ifndef DLB_EXEC_HOSTS_H
#define DLB_EXEC_HOSTS_H
#include <signal.h>
#include <stdio.h>
#include "cluster/cluster.h"

struct dlb_hosts_job {
	const char *tool;
	const struct dlb_host *const *host;	/* [rank] */
	int n_ranks;
	const char *const *argv;		/* of the tool, from its first option, NULL at the end */
	const struct dlb_doc *doc;		/* for rank 0's standard input; NULL: none */
	FILE *out;				/* for standard output; NULL: this process's own */
	const volatile sig_atomic_t *stop;	/* requests to stop so far; NULL: none come */
	bool verbose;				/* pass on the messages of mpiexec and ssh */
};
/* Returns the exit status of the ranks, which have told of a failure themselves; -1 with err: they told
 * nothing, or none started. */
int dlb_hosts_run(const struct dlb_hosts_job *j, struct dlb_error *err);
/* Reads a host file: lines "ADDRESS [slots=N] [user=NAME]", comments begin with #. Adds its hosts to c, named
 * by their addresses. */
int dlb_hosts_read(const char *path, struct dlb_cluster *c, struct dlb_error *err);
/* The host of each node of the document's cluster, for a plan that must be started elsewhere: *host (new,
 * [node], points into c). *host NULL: the cluster has no hosts, or only this one. Fills c; the caller
 * releases it. */
int dlb_hosts_of(const struct dlb_doc *doc, struct dlb_cluster *c, const struct dlb_host ***host,
		 struct dlb_error *err);
#endif
