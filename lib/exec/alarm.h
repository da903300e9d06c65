/* The heartbeat of a rank of a run, and the reaction to another rank's silence.
 *
 * Under a parent (launch.h) the rank reports the silence to the parent, which ends the job. Under a foreign
 * mpirun or srun the rank ends its own waits (dlb_comm_lose), and with them the job. */
#ifndef DLB_EXEC_ALARM_H
#define DLB_EXEC_ALARM_H
#include <stdatomic.h>
#include "comm/heartbeat.h"

struct dlb_alarm {
	struct dlb_comm *comm;
	const char *tool;
	bool parent, quiet;
	_Atomic int64_t step;		/* steps done, stored by the main thread */
	_Atomic bool unheard;		/* the warning that no datagrams arrive was printed */
	/* used without a parent, by the heartbeat's thread alone; NULL: none */
	struct dlb_events *events;
	struct dlb_heartbeat *heartbeat;
};
/* Collective. Starts the heartbeat of a; the caller has set comm, tool, parent and quiet. limit_s 0: no rank
 * is watched. -1 with err. */
int dlb_alarm_start(struct dlb_alarm *a, double limit_s, struct dlb_error *err);
/* Stops the heartbeat: the other ranks no longer watch this rank, and it watches none. */
void dlb_alarm_stop(struct dlb_alarm *a);
/* "node 1 (host x) is silent for 3.0 s at step 120: it has been stopped". Returns -1. */
int dlb_alarm_text(const struct dlb_heartbeat_told *told, int64_t step, struct dlb_error *err);
/* Prints a warning that no heartbeat of a node arrives. */
void dlb_alarm_warn_unheard(const char *tool, const struct dlb_heartbeat_told *told);
/* Sets the hint of err to the newest checkpoint in folder `checkpoint` of a failed run (NULL: no folder),
 * unless err has a hint. */
void dlb_alarm_hint(const char *checkpoint, struct dlb_error *err);
#endif
