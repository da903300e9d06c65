/* Several hosts that Open MPI's mpiexec reaches through ssh, or Slurm's srun: the hosts of a plan's ranks,
 * host files, and a tool's measurement there.
 *
 * The tool must have the same path on all hosts, and files that it names must be there. What mpiexec needs
 * beside that (an agent in the place of ssh, network interfaces) is set by its own variables, OMPI_MCA_*. */
#ifndef DLB_EXEC_HOSTS_H
#define DLB_EXEC_HOSTS_H
#include <stdio.h>
#include "cluster/cluster.h"

struct dlb_hosts_job {
	const char *tool;
	const struct dlb_host *const *host;	/* [rank] */
	int n_ranks;
	const char *const *argv;		/* of the tool, from its first option, NULL at the end */
	FILE *out;				/* for standard output */
	bool verbose;				/* pass on the messages of mpiexec and ssh */
};
/* Runs the tool there, without standard input, as under an mpirun of the user's own. Returns the exit
 * status of the ranks, which have told of a failure themselves; -1 with err: they told nothing, or none
 * started. */
int dlb_hosts_run(const struct dlb_hosts_job *j, struct dlb_error *err);
/* Reads a host file: lines "ADDRESS [slots=N] [user=NAME]", comments begin with #. Adds its hosts to c, named
 * by their addresses. */
int dlb_hosts_read(const char *path, struct dlb_cluster *c, struct dlb_error *err);

/* The hosts of a plan's ranks. rank NULL: all are on this host; else rank[node] points into cluster.host.
 * allocated: they are those of a Slurm allocation in which this process runs. */
struct dlb_hosts { struct dlb_cluster cluster; const struct dlb_host **rank; bool allocated; };
/* Those of an allocation of several, else those that the document's cluster names. */
int dlb_hosts_of(const struct dlb_doc *doc, struct dlb_hosts *h, struct dlb_error *err);
/* In hosts_slurm.c: fills h with the hosts of the allocation; false: there is none, or of one host. */
bool dlb_hosts_take_allocation(struct dlb_hosts *h);
void dlb_hosts_release(struct dlb_hosts *h);
/* -1 with err: this MPI starts no ranks on other hosts. */
int dlb_hosts_supported(struct dlb_error *err);
#endif
