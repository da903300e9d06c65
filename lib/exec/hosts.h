/* Several hosts, which Open MPI's mpiexec reaches through ssh or Slurm's srun: the hosts of a plan's ranks,
 * host files, and running a tool's measurement on them.
 *
 * The tool must have the same path on all hosts, and files that its arguments name must exist there. Further
 * settings of mpiexec (an agent instead of ssh, network interfaces) come from its own variables,
 * OMPI_MCA_*. */
#ifndef DLB_EXEC_HOSTS_H
#define DLB_EXEC_HOSTS_H
#include <stdio.h>
#include "cluster/cluster.h"

struct dlb_hosts_job {
	const char *tool;
	const struct dlb_host *const *host;	/* [rank] */
	int n_ranks;
	const char *const *argv;		/* the tool's arguments without argv[0], NULL at the end */
	FILE *out;				/* for standard output */
	bool verbose;				/* pass on the messages of mpiexec and ssh */
};
/* Runs the tool on these hosts, without standard input, as if the user had started it with mpirun. Returns
 * the exit status of the ranks, which have printed the reason of a failure; -1 with err: no rank started, or
 * none printed a reason. */
int dlb_hosts_run(const struct dlb_hosts_job *j, struct dlb_error *err);
/* Reads a host file: lines "ADDRESS [slots=N] [user=NAME]", comments begin with #. Adds these hosts to c;
 * their names are their addresses. */
int dlb_hosts_read(const char *path, struct dlb_cluster *c, struct dlb_error *err);

/* The hosts of a plan's ranks. rank NULL: all ranks are on this host; else rank[node] points into
 * cluster.host. allocated: the hosts are those of the Slurm allocation in which this process runs. */
struct dlb_hosts { struct dlb_cluster cluster; const struct dlb_host **rank; bool allocated; };
/* Finds the hosts: those of a Slurm allocation of several hosts, else those that the document's cluster
 * names. */
int dlb_hosts_of(const struct dlb_doc *doc, struct dlb_hosts *h, struct dlb_error *err);
/* In hosts_slurm.c: fills h with the hosts of the allocation; false: there is no allocation, or it has only
 * one host. */
bool dlb_hosts_take_allocation(struct dlb_hosts *h);
void dlb_hosts_release(struct dlb_hosts *h);
/* -1 with err: this MPI starts no ranks on other hosts. */
int dlb_hosts_supported(struct dlb_error *err);
#endif
