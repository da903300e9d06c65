/* Starts the ranks of a plan, on this host or on several, and watches them.
 *
 * A tool started plainly is the parent: it writes the checked document to a folder of its own, starts
 * mpiexec with itself and the arguments `--worker FOLDER BEGIN COPIES` in front of its own (BEGIN:
 * dlb_begin_text; COPIES: dlb_copies_name, or -), and waits. Rank 0 writes the result into that folder;
 * the parent passes it on only if every rank ended well. Ranks on several hosts do not see the folder:
 * they get `--remote-worker` instead, and rank 0 reads the document from standard input and writes the
 * result to standard output, which mpiexec connects with files of the folder. The parent passes on the
 * workers' own lines and drops what mpiexec prints, which repeats every death in a paragraph. If the
 * parent dies, mpiexec dies with it, and the ranks with mpiexec or its daemon (PR_SET_PDEATHSIG). Ranks
 * watch each other while they train (comm/heartbeat.h); the parent watches them while they start and end,
 * and mpiexec always.
 *
 * Lines from worker to parent, on stderr, begin with byte 1:
 *
 *     \1rank R PID JOB HOST    rank R has begun; JOB: mpiexec's number of the job, 0: not known
 *     \1ready                  all have met, handlers stand: signals may be passed on
 *     \1trains STEP C BEGIN    the first step has ended, STEP steps are done; C 1: begun with copies
 *     \1paused STEP            training has ended at a checkpoint of that step, as it was asked to
 *     \1done                   the result is complete, or none will come after that
 *     \1error STATUS LINE      the one line that explains the end
 *     \1silent R HOW S STEP HOST   S seconds without a heartbeat of rank R (alarm.h)
 *     \1progress DONE TOTAL STAYS TEXT    rank 0's progress line (status.h) */
#ifndef DLB_EXEC_LAUNCH_H
#define DLB_EXEC_LAUNCH_H
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include "exec/exec.h"

/* In front of a rank's arguments, with the folder, the begin and the copies. */
#define DLB_WORKER "--worker"
#define DLB_REMOTE_WORKER "--remote-worker"

/* How the ranks of one start ended. */
struct dlb_launch_end {
	/* the nodes that were lost, where that ended them; n 0: they ended for another reason */
	bool *node; int n;		/* [n_ranks]; their number; `first`: the first one */
	int first;
	int64_t step;			/* steps done, as far as known; -1: none told */
	bool silent;			/* a heartbeat told of it: its host may be cut off */
	double notice_s;		/* from the last sign of life; NAN: not known */
	double lost_s;			/* when that was decided (dlb_clock_s) */
	/* mpiexec does not say which rank was lost before all had met, or mpiexec was killed and its ranks
	 * with it: the same start may succeed */
	bool unnamed;
	struct dlb_error why;
	char lost_host[256];		/* whose daemon was lost, as mpiexec calls it; "": none */
	int64_t paused_step;		/* training has ended there, as `ask` wanted; -1: no */
	unsigned long job;		/* mpiexec's number of the job; 0: not known */
	double trains_s; /* when the first step ended; NAN: none did */
	/* if a step ended: the number of steps before it, and whether copies in memory held that state */
	int64_t from_step;
	bool from_copies;
	struct dlb_begin begin;		/* where the run began at its first start, if any step ended */
};
struct dlb_launch {
	const char *tool;
	int n_ranks;
	int argc; char **argv;			/* the tool's own arguments, argv[0] included */
	/* [rank] its host, for ranks on several hosts; NULL: all are on this one. allocated: by Slurm */
	const struct dlb_host *const *host;
	bool allocated;
	bool yields;				/* ranks yield when idle: there are more than cores */
	double timeout_s;			/* after which a silent rank counts as lost; 0: never */
	double heartbeat_s;			/* the same by its heartbeat (comm/heartbeat.h) */
	const char *checkpoint;			/* the folder; NULL: none */
	const char *copies; /* the name of folders of copies (copies.h); NULL: none */
	struct dlb_events *events;		/* borrowed; told of losses; NULL: nobody */
	/* Not the first start: where the first one began, the node that was lost last (-1: none), and
	 * when. */
	struct dlb_begin begin;
	int lost;
	double lost_s;
	/* Writes the result at path to out, instead of as it is; NULL: as it is. */
	int (*finish)(void *ctx, const char *path, const struct dlb_launch_end *end, FILE *out,
		      struct dlb_error *err);
	void *finish_ctx;
	/* Called often while the ranks train; true: they shall end at the next checkpoint. NULL: never */
	bool (*ask)(void *ctx);
	void *ask_ctx;
	bool quiet, verbose;			/* verbose: pass on all output */
	const volatile sig_atomic_t *stop;	/* requests to stop so far */
};
/* The rank that a foreign mpirun or srun gave this process, for errors before MPI starts; -1: not started by
 * one. */
int dlb_launch_rank(void);
bool dlb_launch_joined(void);			/* whether one started it */
/* Runs all ranks and writes the result to out. -1 with err; err->what is empty if a worker has printed the
 * line. *end: for the caller to release. */
int dlb_launch(const struct dlb_launch *l, const struct dlb_doc *doc, FILE *out, struct dlb_launch_end *end,
	       struct dlb_error *err);
void dlb_launch_end_release(struct dlb_launch_end *end);
/* In a worker: makes it die with its parent, and tells the parent rank and process number. */
void dlb_launch_worker_init(const char *folder);
/* Refuses several tasks of srun that do not know each other (no --mpi=pmix). size: ranks that MPI found; 0:
 * MPI was not asked, since nothing gives this process a rank. -1 with err. */
int dlb_launch_check(int size, struct dlb_error *err);
bool dlb_launch_speaks(void);			/* whether this one of such tasks prints the line */
/* Path of the document, of the result, in a worker's folder; new. */
char *dlb_launch_in(const char *folder);
char *dlb_launch_out(const char *folder);
#endif
