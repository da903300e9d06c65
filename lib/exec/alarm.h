/* The heartbeat of a rank of a run, and what is done when it finds that another rank is silent.
 *
 * Under a parent (launch.h) the rank tells it, and the parent ends the job. Under a foreign mpirun or srun
 * the rank's own waits end (dlb_comm_lose), and with them the job. */
#ifndef DLB_EXEC_ALARM_H
#define DLB_EXEC_ALARM_H
#include <stdatomic.h>
#include "comm/heartbeat.h"

struct dlb_alarm {
	struct dlb_comm *comm;
	const char *tool;
	bool parent, quiet;
	_Atomic int64_t step;		/* steps done, stored by the main thread */
	_Atomic bool unheard;		/* said that datagrams do not get through */
	/* without a parent, used by the heartbeat's thread alone; NULL: none */
	struct dlb_events *events;
	struct dlb_heartbeat *heartbeat;
};
/* Collective. Starts a, whose first members the caller has set. limit_s 0: nobody watches. -1 with err. */
int dlb_alarm_start(struct dlb_alarm *a, double limit_s, struct dlb_error *err);
/* The others no longer watch this rank, and it watches none. */
void dlb_alarm_stop(struct dlb_alarm *a);
/* "node 1 (host x) is silent for 3.0 s at step 120: it has been stopped". Returns -1. */
int dlb_alarm_text(const struct dlb_heartbeat_told *told, int64_t step, struct dlb_error *err);
/* Says that no heartbeat of a node arrives. */
void dlb_alarm_warn_unheard(const char *tool, const struct dlb_heartbeat_told *told);
/* Names the newest checkpoint in the folder of a failed run (NULL: none) as the hint, unless err has another
 * one. */
void dlb_alarm_hint(const char *checkpoint, struct dlb_error *err);
#endif
