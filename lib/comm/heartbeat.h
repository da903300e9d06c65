/* Notices ranks that are silent: dead, stopped, or cut off. A thread of each rank gives signs of life (beats)
 * and looks for those of other ranks, whatever the rank's main thread does; it uses no MPI.
 *
 * Ranks that share memory (dlb_comm_near) count their beats in it. Of each set of such ranks the lowest one
 * exchanges beats with those of the other sets, by UDP over every address of their hosts. So every rank is
 * watched by one at least, and n hosts send n * (n - 1) datagrams per beat.
 *
 * Silence is counted in looks of the watcher, and no look counts for longer than it should have taken. So
 * time in which the watcher itself was stopped or had no core does not count. Nor does time in which the
 * beating thread of a rank of this host is ready to run but has no core, or waits for a page from disk. A
 * datagram says how late its sender has been lately; that much more silence is allowed. */
#ifndef DLB_COMM_HEARTBEAT_H
#define DLB_COMM_HEARTBEAT_H
#include "comm/comm.h"

struct dlb_heartbeat;
enum dlb_silence {
	DLB_SILENCE_GONE,		/* the process has ended without dlb_heartbeat_free; told at once */
	DLB_SILENCE_STOPPED,		/* silent up to the limit: its process is stopped */
	DLB_SILENCE_CUT,		/* its process or its link has failed; the cause is not known */
	DLB_SILENCE_UNHEARD,		/* no beat has ever come: UDP does not get through; nothing is known */
};
/* lowest: every lower rank that watches the silent one is itself silent */
struct dlb_heartbeat_told { int rank; const char *host; enum dlb_silence how; double silent_s; bool lowest; };
/* What the thread does with a finding, at most once for each rank and kind. */
struct dlb_heartbeat_listener { void (*tell)(void *ctx, const struct dlb_heartbeat_told *told); void *ctx; };

/* Collective. A rank is silent when nothing has been heard of it for limit_s seconds, or 1/12 less. A rank
 * that can start no thread neither watches nor is watched. limit_s 0, or one rank: *out is NULL. listener is
 * copied. */
int dlb_heartbeat_new(struct dlb_heartbeat **out, struct dlb_comm *c, double limit_s,
		      const struct dlb_heartbeat_listener *listener, struct dlb_error *err);
/* Says goodbye, so that the others do not count this rank as silent, and ends the thread. NULL: nothing. */
void dlb_heartbeat_free(struct dlb_heartbeat *h);
#endif
