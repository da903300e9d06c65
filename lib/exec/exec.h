/* The executor: one rank's part of a run. It runs the rank's program with real kernels and messages.
 *
 * State (weights, gradient sums, optimizer state, buffers) is keyed by tensor name, so that a checkpoint
 * loads on any number of nodes. engine.c runs a step, run.c runs the loop over steps, checkpoint*.c saves and
 * loads checkpoints, feed.c prepares samples, launch.c starts the ranks.
 *
 * The document's section "run" holds the training data and settings; dlb-run writes it:
 *
 *     {"data":"idx:/abs/images,/abs/labels", "test_data":SPEC, "transform":"scale=1/255",
 *      "order":"shuffled"|"sequential", "seed":1, "init":7, "optimizer":{"name":"sgd","lr":0.01},
 *      "weights":{"path":"/abs/model.onnx","sha256":"..."}, "torch_batchnorm":false} */
#ifndef DLB_EXEC_EXEC_H
#define DLB_EXEC_EXEC_H
#include <signal.h>
#include "comm/comm.h"
#include "data/data.h"
#include "optim/optim.h"
#include "exec/slow.h"
#include "exec/status.h"
#include "plan/process_bytes.h"
#include "plan/report.h"

/* The position in training at which a run was first started. The options of the run count steps and epochs
 * from here. log_lines: lines of --loss-log before this position. known false: the run begins now. */
struct dlb_begin { bool known; int64_t step, epoch, position, log_lines; };
enum { DLB_BEGIN_TEXT = 100 };
/* Writes b as one word, and parses such a word; "-": not known. -1: text is no such word. */
void dlb_begin_text(const struct dlb_begin *b, char text[DLB_BEGIN_TEXT]);
int dlb_begin_parse(const char *text, struct dlb_begin *b);

/* --freeze-at: once `step` steps are done, counted from the first start, the weights whose names match glob
 * are frozen. */
struct dlb_freeze_at { const char *glob; int64_t step; };

enum { DLB_ROUND_TEXT = 896 };
/* A request to freeze the weights of n rows of freeze_at, beginning with row first. text: filled with a line
 * for the log; "": nothing changed. */
struct dlb_freezing {
	int first, n;
	char text[DLB_ROUND_TEXT];
};

/* The caller's decision after a round of a run. */
struct dlb_round_decision {
	int64_t left_steps;			/* steps that remain in the run; INT64_MAX: unknown */
	/* seconds that the last change of the plan took; 0: no change so far */
	double change_s;
	bool moves;				/* the document has another plan */
	/* one line: observation, decision and reason; without quotes */
	char text[DLB_ROUND_TEXT];
};
struct dlb_exec_options {
	/* -1: not given. None given: one epoch, or 100 steps of endless data */
	int64_t steps, epochs, until_step;
	const char *data, *test_data, *transform, *checkpoint, *save, *loss_log;
	const char *step_log, *metrics, *save_best;	/* see watch.h, evaluate.c */
	int64_t eval_every;			/* 0: only at the end */
	const char *init;			/* seed of fresh weights, NULL: those of the model */
	bool shuffled, dry_run, allow_nonfinite, torch_batchnorm;
	bool no_gpu_graph;			/* queue each kernel of a device separately (step_ops.h) */
	bool merge;				/* for a graph with adapters: see dlb_weights_save */
	int64_t checkpoint_every;		/* 0: only at the end */
	/* threads per node that decode images; 0: chosen by the number of free cores */
	int64_t readers;
	uint64_t seed;
	double until_loss; int64_t patience; double timeout_s;	/* NAN, 0: not given */
	double heartbeat_s;			/* 0: no heartbeat */
	const char *on_event;			/* a command, event.h */
	_Atomic int64_t *steps_done;		/* stored after each step, for other threads; may be NULL */
	const double *slow; int n_slow;		/* [node] factor >= 1; NULL: none */
	/* changes of these factors during the run (slow.h) */
	const struct dlb_slow_change *slow_change; int n_slow_changes;
	/* rounds.c: next_plan is called on all ranks after each of the first `rounds` rounds (INT64_MAX:
	 * after every round) of round_steps steps, with rank 0's report. It sets *d, equal on all ranks; with
	 * d->moves it also replaces the document's plan and balance. NULL: the plan does not change. -1: on
	 * all ranks, with the failing rank's err and *who. */
	int64_t rounds, round_steps;
	int (*next_plan)(void *ctx, struct dlb_comm *comm, const struct dlb_report *report,
			 struct dlb_round_decision *d, int *who, struct dlb_error *err);
	void *next_plan_ctx;
	/* Called on rank 0, with next_plan_ctx, if the processes of the document's plan lack memory. Writes
	 * options that would fit into the hint of err. NULL: no hint */
	void (*memory_cure)(void *ctx, const struct dlb_memory_case *x, struct dlb_error *err);
	/* Sorted by step. n_frozen: the first n_frozen rows are already frozen in the document; frozen_step:
	 * step of the newest checkpoint at that time. */
	const struct dlb_freeze_at *freeze_at; int n_freeze_at, n_frozen;
	int64_t frozen_step;
	/* Called with next_plan_ctx: freezes the weights of f's rows in the document of all ranks. -1: as
	 * next_plan. */
	int (*freeze)(void *ctx, struct dlb_comm *comm, struct dlb_freezing *f, int *who,
		      struct dlb_error *err);
	bool quiet, verbose;
	const volatile sig_atomic_t *stop;	/* set by the caller: stop after this step; may be NULL */
	/* set by the caller: stop at the next checkpoint, from which the caller continues; the run has no
	 * result then */
	const volatile sig_atomic_t *pause;
	void (*progress)(void *ctx, const struct dlb_status_told *told);	/* rank 0; may be NULL */
	void *progress_ctx;
	struct dlb_begin begin;
	bool replan;				/* --on-failure replan */
	double rejoin_s;			/* seconds between two probes of lost hosts; 0: no probes */
	int64_t buddy_every; /* steps between two copies of the state (buddy.h); 0: none */
	const char *copies; /* name of the folders of these copies; NULL: no copies */
	/* Called on rank 0, with progress_ctx, when the first step has ended. copies: the state was loaded
	 * from copies in memory. May be NULL */
	void (*trains)(void *ctx, int64_t step, bool copies, const struct dlb_begin *begin);
	/* called on rank 0 with a warning, after which the run continues; may be NULL */
	void (*warn)(void *ctx, const char *line);
	void *warn_ctx;
};
/* Runs the whole job on this rank and fills rank 0's report. All ranks return the same status, with the
 * failing rank's err and its number in *who. *paused: the run has stopped because of o->pause, and report is
 * empty. */
int dlb_exec_run(struct dlb_comm *comm, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_report *report, bool *paused, int *who, struct dlb_error *err);
/* Makes all checks that are possible before ranks start: reads the sections, compiles and verifies the
 * program. */
int dlb_exec_check(const struct dlb_doc *doc, const struct dlb_exec_options *o, int *n_nodes,
		   struct dlb_error *err);
/* --compress auto: chooses a compression and writes it into the plan, if the plan has no choice yet or with
 * `again`. */
int dlb_exec_advise(struct dlb_doc *doc, const struct dlb_exec_options *o, bool again, struct dlb_error *err);
/* Prints the compiled programs as text. */
int dlb_exec_print_program(const struct dlb_doc *doc, const struct dlb_exec_options *o, FILE *f,
			   struct dlb_error *err);
/* Fills the report of dlb_exec_run from the simulator. */
int dlb_exec_dry_run(const struct dlb_doc *doc, const struct dlb_exec_options *o, struct dlb_report *report,
		     struct dlb_error *err);
/* Simulates rounds of a run whose nodes and links change (balance/scenario.h). The program is that of the
 * document, but the speeds of nodes and links differ from those in the document. */
struct dlb_dry;
struct dlb_dry_round {
	int n_steps;			/* steps that are simulated for the round */
	const double *scale;		/* [step][node] factors of compute times */
	const double *link_scale;	/* [link] factors of bandwidths */
	const bool *lost;		/* [node] the node is lost; the plan has no ops on it */
};
/* -1 with err; the caller frees *out in any case. */
int dlb_dry_open(struct dlb_dry **out, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_error *err);
/* Called when the document has a new plan or a new balance. */
int dlb_dry_replan(struct dlb_dry *d, const struct dlb_doc *doc, struct dlb_error *err);
/* Seconds of a step on these nodes if ops could be divided freely by the nodes' speed and messages took no
 * time. divided_s: every op is divided among all nodes; scheduled_s: equal stages form a pipeline under the
 * plan's schedule, including its fill and drain. */
struct dlb_dry_ideal { double divided_s, scheduled_s; };
/* Fills the report of a round of o->round_steps steps with medians of the simulated steps. */
int dlb_dry_round(struct dlb_dry *d, const struct dlb_dry_round *r, struct dlb_report *report,
		  struct dlb_dry_ideal *ideal, struct dlb_error *err);
void dlb_dry_free(struct dlb_dry *d);
/* Runs real steps of the whole graph on one node and times each op, for dlb-profile. Several measurements may
 * be open and take turns. No MPI. Updates are plain SGD with a rate of zero, so weights do not change.
 * Borrows g and be. */
struct dlb_measurement;
int dlb_measurement_open(const struct dlb_graph *g, struct dlb_backend *be, int64_t n,
			 struct dlb_measurement **out, struct dlb_error *err);
/* Runs warm_up steps that are not counted, then adds `repeats` counted steps to the earlier ones. */
int dlb_measurement_run(struct dlb_measurement *m, int warm_up, int repeats, struct dlb_error *err);
/* Measures the seconds of a step outside its ops (the lower quartile of n steps). As in a run, a thread reads
 * samples ahead; counted are the request for samples, waking that thread, copying the samples and
 * bookkeeping, but not waiting for samples. Call it after dlb_measurement_run. */
int dlb_measurement_overhead(struct dlb_measurement *m, int n, double *s, struct dlb_error *err);
/* Seconds of a step, all ops: the median of the last n >= 1 repeats. */
double dlb_measurement_last_s(const struct dlb_measurement *m, int n);
/* Medians over the counted steps. op_s: [op] seconds, NAN for ops that did not run, INFINITY where the back
 * end has no kernel; scratch_bytes, packed_bytes: [op], may be NULL. */
void dlb_measurement_medians(const struct dlb_measurement *m, double *op_s, double *scratch_bytes,
			     double *packed_bytes);
void dlb_measurement_free(struct dlb_measurement *m);		/* NULL: nothing */
#endif
