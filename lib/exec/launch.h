/* Starts the ranks of a plan, on this host or on several, and watches them.
 *
 * A tool that was started without mpirun or srun is the parent. It writes the checked document to its own
 * folder, starts mpiexec with the tool itself and the arguments `--worker FOLDER BEGIN COPIES` before the
 * tool's arguments (BEGIN: dlb_begin_text; COPIES: dlb_copies_name, or -), and waits. Rank 0 writes the
 * result into that folder; the parent passes the result on only if every rank ended without error. Ranks on
 * several hosts do not see the folder: they get `--remote-worker` instead, and rank 0 reads the document from
 * standard input and writes the result to standard output, which mpiexec connects to files of the folder. The
 * parent passes on the workers' own lines and drops the output of mpiexec, which explains every death in a
 * paragraph. If the parent dies, mpiexec dies with it, and the ranks die with mpiexec or its daemon
 * (PR_SET_PDEATHSIG). Ranks watch each other while they train (comm/heartbeat.h); the parent watches the
 * ranks while they start and end, and mpiexec all the time.
 *
 * Lines from worker to parent, on stderr, begin with byte 1:
 *
 *     \1rank R PID JOB HOST    rank R has started; JOB: mpiexec's number of the job, 0: not known
 *     \1ready                  all ranks are connected and handle signals, which may be passed on
 *     \1trains STEP C BEGIN    the first step has ended, STEP steps are done; C 1: the start used copies
 *     \1paused STEP            training has ended on request, at a checkpoint of that step
 *     \1done                   the result is complete, or there will be none
 *     \1error STATUS LINE      the only line that explains the end
 *     \1silent R HOW S STEP HOST   S seconds without a heartbeat of rank R (alarm.h)
 *     \1progress DONE TOTAL STAYS TEXT    rank 0's progress line (status.h) */
#ifndef DLB_EXEC_LAUNCH_H
#define DLB_EXEC_LAUNCH_H
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include "exec/exec.h"

/* The first argument of a rank; the folder, the begin and the copies follow. */
#define DLB_WORKER "--worker"
#define DLB_REMOTE_WORKER "--remote-worker"

/* How the ranks of one start ended. */
struct dlb_launch_end {
	/* The nodes whose loss ended the ranks: [n_ranks]; their number, 0: the ranks ended for another reason;
	 * the first of them */
	bool *lost_node;
	int n_lost, first;
	int64_t step;			/* steps done, as last reported; -1: not reported */
	bool silent;			/* a heartbeat reported the loss: the host may be cut off */
	double notice_s;		/* from the last sign of life to lost_s; NAN: not known */
	double lost_s;			/* when the loss was decided (dlb_clock_s) */
	/* The lost rank is not known: a rank was lost before all ranks were connected, or mpiexec was killed,
	 * and its ranks with it. The same start may succeed when repeated */
	bool unnamed;
	struct dlb_error why;
	char lost_host[256];		/* the host whose daemon was lost, under mpiexec's name; "": none */
	/* the step at which training has ended because of `ask`; -1: it has not */
	int64_t paused_step;
	unsigned long job;		/* mpiexec's number of the job; 0: not known */
	double trains_s; /* when the first step ended; NAN: none did */
	/* If a step ended: the number of steps done before this start, and whether their state came from
	 * copies in memory */
	int64_t from_step;
	bool from_copies;
	struct dlb_begin begin;		/* the position where the run was first started, if a step ended */
};
struct dlb_launch {
	const char *tool;
	int n_ranks;
	int argc; char **argv;			/* the tool's own arguments, argv[0] included */
	/* [rank] its host, for ranks on several hosts; NULL: all ranks are on this host. allocated: Slurm has
	 * allocated the hosts */
	const struct dlb_host *const *host;
	bool allocated;
	/* idle ranks yield the processor, since there are more ranks than cores */
	bool yields;
	/* seconds after which a silent rank counts as lost; 0: never */
	double timeout_s;
	/* seconds without a heartbeat after which a rank counts as lost (comm/heartbeat.h) */
	double heartbeat_s;
	const char *checkpoint;			/* the folder; NULL: none */
	const char *copies; /* name of the folders of copies (copies.h); NULL: none */
	/* borrowed; runs the user's command at losses; NULL: no command */
	struct dlb_events *events;
	/* For a repeated start: the position of the first start, the node that was lost last (-1: none), and
	 * the time of the loss. */
	struct dlb_begin begin;
	int lost;
	double lost_s;
	/* Writes the result, a file at path, to out after changing it; NULL: the result is copied
	 * unchanged. */
	int (*finish)(void *ctx, const char *path, const struct dlb_launch_end *end, FILE *out,
		      struct dlb_error *err);
	void *finish_ctx;
	/* Called often while the ranks train; true: the ranks are asked to end at the next checkpoint. NULL:
	 * never */
	bool (*ask)(void *ctx);
	void *ask_ctx;
	bool quiet, verbose;			/* verbose: pass on all output */
	const volatile sig_atomic_t *stop;	/* requests to stop so far */
};
/* The rank that a foreign mpirun or srun gave this process, for errors before MPI starts; -1: not started by
 * one. */
int dlb_launch_rank(void);
bool dlb_launch_joined(void);			/* whether a foreign mpirun or srun started this process */
/* Runs all ranks and writes the result to out. -1 with err; err->what is empty if a worker has printed the
 * line. The caller releases *end. */
int dlb_launch(const struct dlb_launch *l, const struct dlb_doc *doc, FILE *out, struct dlb_launch_end *end,
	       struct dlb_error *err);
void dlb_launch_end_release(struct dlb_launch_end *end);
/* In a worker: makes the process die with its parent, and sends rank and process number to the parent. */
void dlb_launch_worker_init(const char *folder);
/* Refuses several tasks of srun that are not connected (no --mpi=pmix). size: ranks that MPI found; 0: MPI
 * was not started, since no launcher gives this process a rank. -1 with err. */
int dlb_launch_check(int size, struct dlb_error *err);
bool dlb_launch_speaks(void);			/* whether this task is the one that prints the line */
/* Paths of the document and of the result in a worker's folder; new. */
char *dlb_launch_in(const char *folder);
char *dlb_launch_out(const char *folder);
#endif
