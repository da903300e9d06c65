/* Inside launch*.c: the ranks that a parent has started, as far as it hears and sees them. */
#ifndef DLB_EXEC_LAUNCH_WATCH_H
#define DLB_EXEC_LAUNCH_WATCH_H
#include <sys/types.h>
#include "exec/launch.h"
#include "exec/status.h"

struct dlb_ranks {
	const struct dlb_launch *l;
	char line[4096];
	size_t n;
	bool ready, said, done;	/* said: a worker's error line was passed on; done: the result is complete */
	pid_t *rank;			/* [n_ranks] 0: rank not heard yet; ELSEWHERE: on another host */
	double silent_s, scanned_s;	/* since a rank was last heard; since all processes were scanned */
	double stopped_s, launcher_s;	/* since a rank, mpiexec was stopped */
	int stopped;			/* the rank; -1: one not heard yet */
	/* by the ranks' heartbeats: since the first rank was reported silent, since the first one was
	 * reported as ended; < 0: none */
	double cut_s, gone_s;
	struct dlb_launch_end end;		/* nodes known as lost so far */
	int64_t first_step, step;	/* steps done before this start, and now; -1: not told */
	bool asked;			/* to end at the next checkpoint */
	bool unheard;			/* told that datagrams do not get through */
	struct dlb_error fault;		/* why this process ended all ranks */
	bool ended;
	int status;			/* exit status of that line */
	int lost_rank, lost_signal, lost_exit;	/* as mpiexec reports; -1: not reported */
	char first[200];		/* first line of mpiexec, for when no reason is known */
	char memory[200];		/* a worker's line about missing memory (util/mem.h) */
	struct dlb_status_line shown;	/* progress line */
};

/* Opens r. Borrows l. */
void dlb_ranks_init(struct dlb_ranks *r, const struct dlb_launch *l);
void dlb_ranks_release(struct dlb_ranks *r);
/* Reads lines of the children until they have closed the pipe `in`, passes on requests to stop to mpiexec,
 * and ends children that stay or lose one of them. Time is counted in looks, so that a parent that was
 * stopped itself does not take that for silence of the children. */
void dlb_ranks_watch(struct dlb_ranks *r, pid_t mpiexec, int in);
/* After the watch: 0, the result is complete, or -1 with the one error line; empty: a worker has printed it.
 * r->end is then complete. status: of mpiexec, from waitpid. */
int dlb_ranks_verdict(struct dlb_ranks *r, int status, struct dlb_error *err);
#endif
