/* Private to launch*.c: the parent's knowledge about the ranks that it has started. */
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
	/* seconds since a rank was last heard; since all processes were scanned */
	double silent_s, scanned_s;
	double stopped_s, launcher_s;	/* seconds since a rank was stopped; since mpiexec was stopped */
	int stopped;			/* the stopped rank, or the first rank not heard yet; -1: none */
	/* From the ranks' heartbeats. cut_s: seconds since the first rank was reported as silent; gone_s:
	 * since the first rank was reported as ended; < 0: none */
	double cut_s, gone_s;
	struct dlb_launch_end end;		/* nodes known as lost so far */
	int64_t first_step, step;	/* steps done before this start, and now; -1: not reported */
	bool asked;			/* the ranks were asked to end at the next checkpoint */
	bool unheard;			/* the warning that no datagrams arrive was printed */
	struct dlb_error fault;		/* the reason why this process has ended all ranks */
	bool ended;
	int status;			/* the exit status in the worker's error line */
	/* as mpiexec reports; lost_rank, lost_exit -1: not reported; lost_signal 0: not reported */
	int lost_rank, lost_signal, lost_exit;
	char first[200];		/* first line of mpiexec, printed if no reason is known */
	char memory[200];		/* a worker's line about missing memory (util/mem.h) */
	struct dlb_status_line shown;	/* progress line */
};

/* Opens r. Borrows l. */
void dlb_ranks_init(struct dlb_ranks *r, const struct dlb_launch *l);
void dlb_ranks_release(struct dlb_ranks *r);
/* Reads the children's lines until they have closed the pipe `in` or mpiexec has ended, passes requests to
 * stop on to mpiexec, and ends the children if one is lost or does not end. A long pause between two looks
 * counts only for a limited time, so that a parent that was itself stopped does not mistake its pause for
 * silence of the children. */
void dlb_ranks_watch(struct dlb_ranks *r, pid_t mpiexec, int in);
/* The verdict after the watch. 0: the result is complete; -1 with the error line, which is empty if a worker
 * has printed it. Completes r->end. status: of mpiexec, from waitpid. */
int dlb_ranks_verdict(struct dlb_ranks *r, int status, struct dlb_error *err);
#endif
