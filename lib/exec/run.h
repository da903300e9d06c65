/* The data of a run and the functions that its files share. Private to lib/exec. */
#ifndef DLB_EXEC_RUN_H
#define DLB_EXEC_RUN_H
#include <stdio.h>
#include "exec/buddy.h"
#include "exec/checkpoint.h"
#include "exec/job.h"
#include "exec/record.h"
#include "exec/runtime.h"
#include "exec/state.h"
#include "exec/sync/sync.h"
#include "exec/watch.h"
#include "util/lines.h"
#include "util/output.h"

enum { MAX_BATCHES = 3 };

struct run {
	const struct dlb_exec_options *o;
	const struct dlb_doc *doc;
	struct dlb_comm *comm;
	/* all ranks, for sums that no rank waits for; NULL: one rank, or synchronous */
	struct dlb_subset *all;
	int rank;
	struct dlb_job job;
	struct dlb_backend be;
	double device_free_bytes;	/* of be's device when it was opened */
	struct dlb_binder *binder;			/* NULL: the node names no memories */
	struct dlb_memories *memories;
	struct dlb_offload_store *store; /* NULL: nothing is offloaded */
	int replica, *placement;	/* this rank's replica, and the node of each op in it */
	struct dlb_state state;
	struct dlb_runtime runtime;
	struct dlb_program program[MAX_BATCHES];	/* [0]: full batches */
	struct dlb_engine *engine[MAX_BATCHES];
	int64_t size[MAX_BATCHES];
	int n_engines;
	struct dlb_sync *averages;			/* of weights, for all engines; NULL: none */
	struct dlb_compress_state *compress;		/* state of compressed sums */
	struct dlb_kfac *kfac;	/* NULL: another optimizer, or no layer on this node */
	double apart;	/* distance of the replicas' weights at the end (dlb_sync_mean_state) */
	struct dlb_data *data;
	struct dlb_feed *feed;
	struct dlb_dispatch *dispatch;	/* rank 0 reads for all; NULL: each node reads its own */
	struct dlb_eval *eval;
	struct dlb_report_eval *evals; int n_evals, cap_evals;	/* measured so far */
	int64_t eval_version; bool saved_best;
	struct dlb_watch *watch;
	struct dlb_checkpoint checkpoint;
	struct dlb_buddy *buddy; /* copies of the state; NULL: none */
	struct dlb_buddy_found *found; /* the copies that the run continues from, while it opens */
	bool from_copies, ends; /* ends: the run has its result */
	char *checkpoint_path;
	struct dlb_progress_state at;			/* where training stands */
	struct dlb_begin begin;				/* of the first start (exec.h) */
	int64_t first_step, count;			/* count: samples of an epoch */
	int64_t end_step, end_epoch, end_position;	/* limits; INT64_MAX: none */
	struct dlb_record record;
	double *loss; int64_t n_losses, cap_losses;
	struct dlb_output log;				/* of losses; f NULL: none on this rank */
	struct dlb_lines *lines;			/* writes the log; NULL: none on this rank */
	bool pauses;			/* a rank wants the run to stop at the next checkpoint */
	const char *stopped;
	double wall_s;
	int64_t round;			/* rounds done (rounds.c) */
	int n_frozen;			/* rows of o->freeze_at that are frozen */
	double change_s;		/* seconds that the last change of the plan took */
	/* sum of dlb_engine_program's over earlier plans, as is kfac_counts */
	double shrunk;
	struct dlb_kfac_counts kfac_counts;
};

/* ---- run_init.c ---- */
/* Opens all parts of a run, on all ranks or on none. -1: err is that of rank *who, and the caller calls
 * dlb_run_close. */
int dlb_run_open(struct run *r, const struct dlb_doc *doc, int *who, struct dlb_error *err);
void dlb_run_close(struct run *r);
/* Continues under the plan that r->doc has now: makes new programs, engines and feed, and moves the state.
 * frozen: dlb_graph_freeze has replaced the graph too. No step may be under way. Collective. */
int dlb_run_reopen(struct run *r, bool frozen, int *who, struct dlb_error *err);
/* Samples left in the epoch. */
int64_t dlb_run_left_of_epoch(const struct run *r, const struct dlb_progress_state *at);
/* State of compression and K-FAC, for checkpoints. */
struct dlb_local_state dlb_run_local_state(const struct run *r);

/* ---- evaluate.c ---- */
/* Checks that --eval-every does not disturb this program. -1 with err. */
int dlb_evaluate_fits(const struct dlb_exec_options *o, const struct dlb_program *p, struct dlb_error *err);
/* Called after a checkpoint was loaded: forgets the best test loss if the file of its weights is gone.
 * Collective. */
int dlb_evaluate_resume(struct run *r, struct dlb_error *err);
bool dlb_evaluate_is_due(const struct run *r);
/* Measures after the last step, if there are test data and that step is not measured yet; saves the best
 * weights. Collective. */
int dlb_evaluate(struct run *r, bool may_be_best, int *who, struct dlb_error *err);
void dlb_evaluate_report(const struct run *r, struct dlb_report *report);

/* ---- run.c ---- */
/* The value of `stopped` if dlb_exec_options.pause ended training. */
#define DLB_STOPPED_PAUSE "pause"
/* The limit that training has reached at *at: "steps", "epochs"; NULL: none. */
const char *dlb_run_limit_reached(const struct run *r, const struct dlb_progress_state *at);
/* Samples in the batch that begins at *at; the index of the engine for batches of n; advances *at by one
 * step. */
int64_t dlb_run_batch_at(const struct run *r, const struct dlb_progress_state *at);
int dlb_run_engine_for(const struct run *r, int64_t n);
void dlb_run_advance(const struct run *r, struct dlb_progress_state *at);
/* Asks the feed for the batch that begins at *at. */
int dlb_run_ask(struct run *r, const struct dlb_progress_state *at, struct dlb_error *err);
/* Asks the feed for the batches of as many steps after `step` as it reads ahead; *asked: the next step to ask
 * for. */
int dlb_run_ask_ahead(struct run *r, int64_t step, struct dlb_progress_state *asked, struct dlb_error *err);
/* Called before a step; sets this node's factor of --slow from this step on. */
void dlb_run_slow_down(struct run *r, int64_t steps_done);
struct dlb_step dlb_run_step(const struct run *r, const struct dlb_progress_state *at,
			     const struct dlb_fed *fed);
/* Records the times of a step of engine `which`. full_steps: full batches so far, this one included. */
void dlb_run_keep_times(struct run *r, int which, int64_t full_steps);
void dlb_run_record_init(struct run *r);	/* of engine 0 */
int dlb_run_save_checkpoint(struct run *r, struct dlb_error *err);
/* Seals the pending copy of the state if it is complete; wait: waits until it is. Called before the sum of a
 * step. -1: the comm broke. */
int dlb_run_settle_copy(struct run *r, bool wait, struct dlb_error *err);
/* Collective. Runs `work` (NULL: none), which reads or writes files, on each rank where rc is 0. The disk of
 * one rank may take longer than --timeout. -1: rc was not 0, or the work failed on this rank and filled err. */
int dlb_run_on_disk(struct run *r, int rc, int (*work)(void *ctx, struct dlb_error *err), void *ctx,
		    struct dlb_error *err);
/* Steps from start to limit, for the progress line; 0: unknown. */
int64_t dlb_run_total_steps(const struct run *r);

/* ---- step_end.c ---- */
/* The end of one step on this rank. x: the numbers that are summed over the ranks. */
struct dlb_step_end {
	int64_t step;
	double *x;
	struct dlb_request sum;
	/* Failures on this rank, 0: none. failed: its samples could not be read, or a gradient was not
	 * finite; spoilt: an update made a weight not finite that the loss would not show. why: the reason of
	 * either. */
	int failed, spoilt;
	struct dlb_error why;
	struct dlb_progress_state next;		/* where training stands after this step if it is good */
	/* Equal on all ranks after dlb_step_end_wait. */
	enum { DLB_STEP_GOOD, DLB_STEP_FAILED, DLB_STEP_NOT_FINITE, DLB_STEP_SPOILT } verdict;
	/* a rank wants the run to end; to end at the next checkpoint */
	bool stop, pause;
	double loss;
};
void dlb_step_end_init(const struct run *r, struct dlb_step_end *end);
void dlb_step_end_release(struct dlb_step_end *end);
/* Called when the step has run on engine e of this rank; failed, why and next are set. Starts the sum; does
 * not wait. */
void dlb_step_end_start(struct run *r, struct dlb_engine *e, const struct dlb_step *step,
			struct dlb_step_end *end);
/* Waits for the sum and sets verdict, stop and loss. The seconds of waiting count as e's. -1: the comm
 * broke. */
int dlb_step_end_wait(struct run *r, struct dlb_engine *e, struct dlb_step_end *end, struct dlb_error *err);
/* Whether training pauses after the step rather than at the next checkpoint, which may be far away if there
 * are copies. */
bool dlb_run_pauses_at_once(const struct run *r);
/* For a step that is not good; collective. -1 with the err of the lowest rank *who that has one. */
int dlb_step_end_fail(const struct run *r, struct dlb_step_end *end, int *who, struct dlb_error *err);
/* For a good step: advances r->at, keeps the loss. Returns why training ends: "loss", "patience", "signal";
 * NULL: it goes on. */
const char *dlb_step_end_accept(struct run *r, struct dlb_step_end *end, int64_t samples);
/* Measures and saves a checkpoint if that is due after a step, unless r->stopped; no step may be under way.
 * *paused: set if it did. Collective. */
int dlb_run_between_steps(struct run *r, bool *paused, int *who, struct dlb_error *err);

/* ---- rounds.c ---- */
/* Whether a round ends before the step `at`. full_steps: full batches since the round began. */
bool dlb_run_is_round(const struct run *r, const struct dlb_progress_state *at, int64_t full_steps);
/* Measures the round, asks for the next plan and changes to it. *asked: the next step to ask the feed for.
 * Collective. */
int dlb_run_end_round(struct run *r, struct dlb_progress_state *asked, int *who, struct dlb_error *err);
/* Steps from here to the limit; INT64_MAX: not known. */
int64_t dlb_run_left_steps(const struct run *r);
/* --freeze-at: refuses a step that the run does not reach, and a checkpoint from before weights that are
 * already frozen. */
int dlb_run_check_freeze(const struct run *r, struct dlb_error *err);
/* Whether weights are to be frozen before the next step; freezes them and continues. *asked: as above.
 * Collective. */
bool dlb_run_freezes(const struct run *r);
int dlb_run_freeze(struct run *r, struct dlb_progress_state *asked, int *who, struct dlb_error *err);

/* ---- async_loop.c ---- */
int dlb_run_async_loop(struct run *r, int *who, struct dlb_error *err);

/* ---- summary.c ---- */
/* Gathers the figures of all ranks in the report, on rank 0. */
int dlb_run_report(struct run *r, struct dlb_report *report, struct dlb_error *err);
#endif
