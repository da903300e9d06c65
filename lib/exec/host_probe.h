/* Asks the hosts of a run whether they answer: Open MPI's mpiexec starts one process on each, in the way
 * in which it starts ranks there, on all hosts at once. The process removes what ranks of former jobs have
 * left on its host. */
#ifndef DLB_EXEC_HOST_PROBE_H
#define DLB_EXEC_HOST_PROBE_H
#include <stdbool.h>
#include "cluster/cluster.h"

/* The word that makes the tool that process; the jobs follow, as dlb_host_clean takes them. */
#define DLB_HOST_CLEAN "--clean-host"

/* After the jobs: the name of folders of copies follows (copies.h), to be removed. */
#define DLB_HOST_COPIES "+"

struct dlb_host_probe;
/* host[n]: each once; limit_s[n]: seconds that it has, for a second attempt too where mpiexec fails.
 * host[] must live as long as the probe. jobs: "12,34", or "-". Starts the processes. NULL with err. */
struct dlb_host_probe *dlb_host_probe_new(const char *tool, const struct dlb_host *const *host,
					  const double *limit_s, int n, bool allocated, const char *jobs,
					  struct dlb_error *err);
/* Looks at all; true: each has answered, or has not in its time. */
bool dlb_host_probe_poll(struct dlb_host_probe *p);
void dlb_host_probe_wait(struct dlb_host_probe *p);	/* until then */
/* Whether host i has answered. *why: one line, valid as long as p, where it has not. */
bool dlb_host_probe_answers(const struct dlb_host_probe *p, int i, const char **why);
/* Ends those that are left; NULL: nothing. */
void dlb_host_probe_free(struct dlb_host_probe *p);

/* On a host: ends ranks and daemons of this user that are left from these of mpiexec's jobs ("12,34"; "-":
 * none), and removes their shared memory and files, and after DLB_HOST_COPIES that run's copies. */
void dlb_host_clean(const char *jobs);
#endif
