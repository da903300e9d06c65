/* Checks which hosts of a run answer: Open MPI's mpiexec starts one process on each host, in the same way as
 * ranks, on all hosts at once. The process removes the remains of earlier jobs on its host. */
#ifndef DLB_EXEC_HOST_PROBE_H
#define DLB_EXEC_HOST_PROBE_H
#include <stdbool.h>
#include "cluster/cluster.h"

/* The argument that makes the tool this process. The next argument is that of dlb_host_clean. */
#define DLB_HOST_CLEAN "--clean-host"

/* Follows the jobs, before the name of the folders of copies (copies.h) that are to be removed. */
#define DLB_HOST_COPIES "+"

struct dlb_host_probe;
/* Starts the processes. host[n]: without duplicates; the hosts must live as long as the probe. limit_s[n]:
 * seconds for each host to answer, including a second attempt if its mpiexec fails. jobs: as for
 * dlb_host_clean. NULL with err. */
struct dlb_host_probe *dlb_host_probe_new(const char *tool, const struct dlb_host *const *host,
					  const double *limit_s, int n, bool allocated, const char *jobs,
					  struct dlb_error *err);
/* Checks all processes; true: each host has answered, has failed, or has used up its time. */
bool dlb_host_probe_poll(struct dlb_host_probe *p);
void dlb_host_probe_wait(struct dlb_host_probe *p);	/* polls until true */
/* Whether host i has answered. If not, *why is a line with the reason, valid as long as p. */
bool dlb_host_probe_answers(const struct dlb_host_probe *p, int i, const char **why);
/* Ends the remaining processes. NULL: nothing to do. */
void dlb_host_probe_free(struct dlb_host_probe *p);

/* Runs on a host. jobs: numbers of mpiexec's jobs ("12,34"; "-": none), then optionally DLB_HOST_COPIES and
 * the name of a run's copies. Ends the remaining ranks and daemons of these jobs, and removes their shared
 * memory and files, and the copies. */
void dlb_host_clean(const char *jobs);
#endif
