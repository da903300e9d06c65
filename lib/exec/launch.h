/* Starting the ranks of a plan on this host, and watching over them.
 *
 * A tool that is started plainly stays the parent: it writes the checked document to a folder of its own,
 * starts mpiexec of itself with the words `--worker FOLDER` in front of its arguments, and waits. Rank 0
 * writes the result into that folder; only when every rank has ended well does the parent pass it on. What
 * mpiexec prints is noise (it repeats every death in a paragraph) and is kept back, but for the workers'
 * own lines. A parent that dies takes mpiexec along, and mpiexec its ranks (PR_SET_PDEATHSIG). Ranks that train
 * watch each other; the parent watches them while they start and end, and mpiexec.
 *
 * Between worker and parent, lines on stderr that begin with byte 1:
 *     \1rank R PID             rank R has begun
 *     \1ready                  all have met, handlers stand: signals may be passed on
 *     \1done                   the result is complete
 *     \1error STATUS LINE      the one line that explains the end
 *     \1progress DONE TOTAL STAYS TEXT    rank 0's line of what it does (status.h)                   */
#ifndef DLB_EXEC_LAUNCH_H
#define DLB_EXEC_LAUNCH_H
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include "doc/doc.h"

struct dlb_launch {
	const char *tool;
	int n_ranks;
	int argc; char **argv;			/* the tool's own arguments, argv[0] included */
	double total_threads;			/* of all ranks: beyond the cores, ranks give way when idle */
	double timeout_s;			/* after which what is silent is given up; 0: never */
	bool quiet, verbose;			/* verbose: pass on everything */
	const volatile sig_atomic_t *stop;	/* how often we were told to stop */
};
/* The rank that somebody's mpirun or srun gave this process, for what goes wrong before MPI is there; -1: it was not
 * started by one. */
int dlb_launch_rank(void);
bool dlb_launch_joined(void);			/* was it? */
/* Runs it all; the result goes to out. 0, or -1 with err (an empty err->what: a worker has said it). */
int dlb_launch(const struct dlb_launch *l, const struct dlb_doc *doc, FILE *out, struct dlb_error *err);
/* In a worker: dies with its parent, and tells it who it is. */
void dlb_launch_worker_init(const char *folder);
/* Whether srun has started several of this tool that know nothing of each other (no --mpi=pmix). size: ranks that MPI has
 * found; 0: it has not been asked, since nothing names this process a rank. -1 with err. */
int dlb_launch_check(int size, struct dlb_error *err);
bool dlb_launch_speaks(void);			/* of such tasks one says it */
/* The document's file and the result's in a worker's folder: returns new. */
char *dlb_launch_in(const char *folder);
char *dlb_launch_out(const char *folder);
#endif
