/* Silent ranks. See alarm.h. */
#include "exec/alarm.h"

#include <stdio.h>
#include <stdlib.h>

#include "exec/checkpoint.h"
#include "exec/event.h"

int dlb_alarm_text(const struct dlb_heartbeat_told *told, int64_t step, struct dlb_error *err)
{
	return dlb_fail(err, NULL, "node %d (host %s) is silent for %.1f s at step %lld%s", told->rank,
			told->host, told->silent_s, (long long)step,
			told->how == DLB_SILENCE_STOPPED ? ": it has been stopped" : "");
}

void dlb_alarm_warn_unheard(const char *tool, const struct dlb_heartbeat_told *told)
{
	fprintf(stderr,
		"%s: no heartbeat of node %d (host %s) arrives: does a firewall drop UDP? Its silence will be "
		"noticed by --timeout alone\n",
		tool, told->rank, told->host);
}

void dlb_alarm_hint(const char *checkpoint, struct dlb_error *err)
{
	char *newest;

	if (!checkpoint || err->hint[0])
		return;
	newest = dlb_checkpoint_newest(checkpoint);
	if (newest)
		dlb_hint(err, "the last checkpoint is '%s'", newest);
	else
		dlb_hint(err, "there is no checkpoint yet in '%s'", checkpoint);
	free(newest);
}

/* Runs in the heartbeat's thread. */
static void tell(void *ctx, const struct dlb_heartbeat_told *told)
{
	struct dlb_alarm *a = ctx;
	const int64_t step = atomic_load(&a->step);
	struct dlb_error err;

	if (a->parent) {
		dprintf(2, "\1silent %d %d %.3f %lld %s\n", told->rank, (int)told->how, told->silent_s,
			(long long)step, told->host);
		return;
	}
	if (told->how == DLB_SILENCE_UNHEARD && !atomic_exchange(&a->unheard, true) && !a->quiet &&
	    dlb_comm_rank(a->comm) == 0)
		dlb_alarm_warn_unheard(a->tool, told);
	/* mpirun reports a rank that has ended; under a launcher that does not, such as srun, the silence
	 * then reaches its limit */
	if (told->how != DLB_SILENCE_STOPPED && told->how != DLB_SILENCE_CUT)
		return;
	dlb_alarm_text(told, step, &err);
	if (told->lowest)
		dlb_events_happened(a->events, "lost", told->rank, step, err.what);
	dlb_comm_lose(a->comm, err.what);
}

int dlb_alarm_start(struct dlb_alarm *a, double limit_s, struct dlb_error *err)
{
	return dlb_heartbeat_new(&a->heartbeat, a->comm, limit_s,
				 &(struct dlb_heartbeat_listener){ .tell = tell, .ctx = a }, err);
}

void dlb_alarm_stop(struct dlb_alarm *a)
{
	dlb_heartbeat_free(a->heartbeat);
	a->heartbeat = NULL;
}
