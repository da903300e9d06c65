/* A run whose ranks are started by a parent, and again when nodes are lost (--on-failure replan) or can be
 * put back (--rejoin).
 *
 * Open MPI ends a job when a rank dies, so the parent starts all ranks again: with a plan in which the
 * lost nodes have no ops, from the newest checkpoint. A lost node keeps its number; its rank is started
 * again too, without work, so that ranks and nodes stay the same (outage.h says on which host). The steps
 * that the options ask for count from the first start. */
#ifndef DLB_EXEC_RESTART_H
#define DLB_EXEC_RESTART_H
#include "exec/command.h"
#include "exec/hosts.h"
#include "exec/launch.h"

/* Checks whether the run can continue after a loss; warns, or refuses with err. */
int dlb_restart_check(const struct dlb_run_command *c, struct dlb_error *err);
/* Calls dlb_launch as often as needed. hosts: the plan's. l: complete except for its host and the members on
 * starts and results. Writes the result, with the events, to out. */
int dlb_restart_run(struct dlb_run_command *c, const struct dlb_hosts *hosts, struct dlb_launch *l,
		    struct dlb_doc *doc, FILE *out, struct dlb_error *err);
#endif
