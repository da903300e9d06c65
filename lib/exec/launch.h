/* Starts the ranks of a plan on this host and watches them.
 *
 * A tool started plainly is the parent: it writes the checked document to a folder of its own, starts mpiexec
 * with itself and the arguments `--worker FOLDER` in front of its own, and waits. Rank 0 writes the result
 * into that folder; the parent passes it on only if every rank ended well. The parent passes on the workers'
 * own lines and drops what mpiexec prints, which repeats every death in a paragraph. If the parent dies,
 * mpiexec dies with it, and the ranks with mpiexec (PR_SET_PDEATHSIG). Ranks watch each other while they
 * train (comm/heartbeat.h); the parent watches them while they start and end, and mpiexec always.
 *
 * Lines from worker to parent, on stderr, begin with byte 1:
 *
 *     \1rank R PID             rank R has begun
 *     \1ready                  all have met, handlers stand: signals may be passed on
 *     \1trains STEP            the first step has ended, STEP steps are done
 *     \1done                   the result is complete
 *     \1error STATUS LINE      the one line that explains the end
 *     \1silent R HOW S STEP HOST   S seconds without a heartbeat of rank R (alarm.h)
 *     \1progress DONE TOTAL STAYS TEXT    rank 0's progress line (status.h) */
#ifndef DLB_EXEC_LAUNCH_H
#define DLB_EXEC_LAUNCH_H
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include "doc/doc.h"

/* The nodes that were lost, where that ended a run. n 0: it ended for another reason. */
struct dlb_loss {
	bool *node; int n;		/* [n_ranks]; their number; `first`: the first one */
	int first;
	int64_t step;			/* steps done, as far as known; -1: none told */
	double notice_s;		/* from the last sign of life; NAN: not known */
	struct dlb_error why;
};
struct dlb_launch {
	const char *tool;
	int n_ranks;
	int argc; char **argv;			/* the tool's own arguments, argv[0] included */
	double total_threads;			/* of all ranks; beyond the cores, ranks yield when idle */
	double timeout_s;			/* after which a silent rank counts as lost; 0: never */
	double heartbeat_s;			/* the same by its heartbeat (comm/heartbeat.h) */
	const char *checkpoint;			/* the folder; NULL: none */
	struct dlb_events *events;		/* borrowed; told of losses; NULL: nobody */
	bool quiet, verbose;			/* verbose: pass on all output */
	const volatile sig_atomic_t *stop;	/* requests to stop so far */
};
/* The rank that a foreign mpirun or srun gave this process, for errors before MPI starts; -1: not started by
 * one. */
int dlb_launch_rank(void);
bool dlb_launch_joined(void);			/* whether one started it */
/* Runs all ranks and writes the result to out. -1 with err; err->what is empty if a worker has printed the
 * line. *loss: for the caller to release. */
int dlb_launch(const struct dlb_launch *l, const struct dlb_doc *doc, FILE *out, struct dlb_loss *loss,
	       struct dlb_error *err);
void dlb_loss_release(struct dlb_loss *loss);
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
