/* The executor: one rank's part of a run. It runs the rank's program with real kernels and messages.
 *
 * State (weights, gradient sums, optimizer state, buffers) is keyed by tensor name, so that a checkpoint
 * loads on any other number of nodes. engine.c runs a step, run.c the loop over steps, checkpoint*.c and
 * feed.c have checkpoints and samples, launch.c starts the ranks.
 *
 * The run section of the document holds data and settings of training; dlb-run writes it:
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

/* Where a run began at its first start, from which its options count steps and epochs. log_lines: lines of
 * --loss-log before that. known false: it begins now. */
struct dlb_begin { bool known; int64_t step, epoch, position, log_lines; };
enum { DLB_BEGIN_TEXT = 100 };
/* As one word, and back; "-" is none. -1: text is no such word. */
void dlb_begin_text(const struct dlb_begin *b, char text[DLB_BEGIN_TEXT]);
int dlb_begin_parse(const char *text, struct dlb_begin *b);

/* --freeze-at: when `step` steps are done, counted from the first start, weights named like glob are
 * frozen. */
struct dlb_freeze_at { const char *glob; int64_t step; };

enum { DLB_ROUND_TEXT = 896 };
/* Rows first .. first + n of freeze_at are frozen; text gets a line, "" for no change. */
struct dlb_freezing {
	int first, n;
	char text[DLB_ROUND_TEXT];
};

/* After a round of a run: what the caller knows and decides. */
struct dlb_round_decision {
	int64_t left_steps;			/* of the run; INT64_MAX: not known */
	double change_s;			/* that the last change of the plan took; 0: none so far */
	bool moves;				/* the document has another plan */
	char text[DLB_ROUND_TEXT];		/* one line: what was seen, done and why; no quotes */
};
struct dlb_exec_options {
	/* -1: not given. None given: one epoch, or 100 steps of endless data */
	int64_t steps, epochs, until_step;
	const char *data, *test_data, *transform, *checkpoint, *save, *loss_log;
	const char *step_log, *metrics, *save_best;	/* see watch.h, evaluate.c */
	int64_t eval_every;			/* 0: only at the end */
	const char *init;			/* seed of fresh weights, NULL: those of the model */
	bool shuffled, dry_run, allow_nonfinite, torch_batchnorm;
	bool no_gpu_graph;			/* each kernel of a device is queued by itself (step_ops.h) */
	bool merge;				/* of a graph with adapters: see dlb_weights_save */
	int64_t checkpoint_every;		/* 0: only at the end */
	int64_t readers;	/* threads per node that decode images; 0: by the cores that are free */
	uint64_t seed;
	double until_loss; int64_t patience; double timeout_s;	/* NAN, 0: not given */
	double heartbeat_s;			/* 0: no heartbeat */
	const char *on_event;			/* a command, event.h */
	_Atomic int64_t *steps_done;		/* stored after each step, for other threads; may be NULL */
	const double *slow; int n_slow;		/* [node] factor >= 1; NULL: none */
	const struct dlb_slow_change *slow_change; int n_slow_changes;	/* during the run (slow.h) */
	/* rounds.c: after each of `rounds` (INT64_MAX: all) rounds of round_steps steps, next_plan is
	 * called on all ranks with rank 0's report. It sets *d, equal on all ranks, and with d->moves the
	 * document's plan and balance. NULL: the plan stays. -1: on all ranks, with the failing rank's err
	 * and *who. */
	int64_t rounds, round_steps;
	int (*next_plan)(void *ctx, struct dlb_comm *comm, const struct dlb_report *report,
			 struct dlb_round_decision *d, int *who, struct dlb_error *err);
	void *next_plan_ctx;
	/* rank 0, with next_plan_ctx: the processes of the document's plan lack memory; writes what would fit
	 * into the hint of err. NULL: nothing does */
	void (*memory_cure)(void *ctx, const struct dlb_memory_case *x, struct dlb_error *err);
	/* By step. n_frozen: rows from the first that are frozen in the document; a checkpoint of
	 * frozen_step was the newest when they were. */
	const struct dlb_freeze_at *freeze_at; int n_freeze_at, n_frozen;
	int64_t frozen_step;
	/* With next_plan_ctx: freezes rows in the document of all ranks. -1: as next_plan. */
	int (*freeze)(void *ctx, struct dlb_comm *comm, struct dlb_freezing *f, int *who,
		      struct dlb_error *err);
	bool quiet, verbose;
	const volatile sig_atomic_t *stop;	/* set by the caller: stop after this step; may be NULL */
	/* the same: stop at the next checkpoint, which the caller goes on from; the run has no result then */
	const volatile sig_atomic_t *pause;
	void (*progress)(void *ctx, const struct dlb_status_told *told);	/* rank 0; may be NULL */
	void *progress_ctx;
	struct dlb_begin begin;
	bool replan;				/* --on-failure */
	double rejoin_s;			/* seconds between two looks at lost hosts; 0: never */
	int64_t buddy_every; /* steps between two copies of the state (buddy.h); 0: none */
	const char *copies; /* the name of their folders; NULL: no copies */
	/* rank 0, with progress_ctx: the first step has ended; copies: the state was that of copies; may
	 * be NULL */
	void (*trains)(void *ctx, int64_t step, bool copies, const struct dlb_begin *begin);
	/* on rank 0: a warning; the run goes on; may be NULL */
	void (*warn)(void *ctx, const char *line);
	void *warn_ctx;
};
/* Runs the whole job on this rank and fills rank 0's report. All ranks return the same status, with the
 * failing rank's err and its number in *who. *paused: the run has stopped as o->pause asked, and report is
 * empty. */
int dlb_exec_run(struct dlb_comm *comm, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_report *report, bool *paused, int *who, struct dlb_error *err);
/* Checks all that can be checked before ranks start: sections, program, its proof. */
int dlb_exec_check(const struct dlb_doc *doc, const struct dlb_exec_options *o, int *n_nodes,
		   struct dlb_error *err);
/* --compress auto: writes the choice of compression into the plan, where it has none yet or with `again`. */
int dlb_exec_advise(struct dlb_doc *doc, const struct dlb_exec_options *o, bool again, struct dlb_error *err);
/* Prints the compiled programs as text. */
int dlb_exec_print_program(const struct dlb_doc *doc, const struct dlb_exec_options *o, FILE *f,
			   struct dlb_error *err);
/* The same report from the simulator. */
int dlb_exec_dry_run(const struct dlb_doc *doc, const struct dlb_exec_options *o, struct dlb_report *report,
		     struct dlb_error *err);
/* Simulated rounds of a run whose nodes and links change (balance/scenario.h): its program, on nodes and
 * links that are not as the document says. */
struct dlb_dry;
struct dlb_dry_round {
	int n_steps;			/* simulated for the round */
	const double *scale;		/* [step][node] of compute times */
	const double *link_scale;	/* [link] of bandwidths */
	const bool *lost;		/* [node] the plan has no ops there */
};
/* -1 with err; *out is the caller's to free in any case. */
int dlb_dry_open(struct dlb_dry **out, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_error *err);
/* The document has another plan, or another balance. */
int dlb_dry_replan(struct dlb_dry *d, const struct dlb_doc *doc, struct dlb_error *err);
/* Seconds of a step on these nodes if ops could be divided at will, by the nodes' speed and without messages:
 * every op among all nodes, and as a pipeline of equal stages under the plan's schedule, which fills and drains. */
struct dlb_dry_ideal { double divided_s, scheduled_s; };
/* Fills the report of a round of o->round_steps steps: medians of those simulated. */
int dlb_dry_round(struct dlb_dry *d, const struct dlb_dry_round *r, struct dlb_report *report,
		  struct dlb_dry_ideal *ideal, struct dlb_error *err);
void dlb_dry_free(struct dlb_dry *d);
/* Real steps of the whole graph on one node, timed op by op, for dlb-profile. Several measurements may be
 * open and take turns. No MPI. Updates are plain SGD with a rate of zero, so weights do not change. Borrows g
 * and be. */
struct dlb_measurement;
int dlb_measurement_open(const struct dlb_graph *g, struct dlb_backend *be, int64_t n,
			 struct dlb_measurement **out, struct dlb_error *err);
/* Runs warm_up steps that do not count, then `repeats` steps that are added to those before. */
int dlb_measurement_run(struct dlb_measurement *m, int warm_up, int repeats, struct dlb_error *err);
/* Seconds of a step beside its ops (the lower quartile of n), with samples that a thread reads ahead as in a
 * run: asking for them, waking that thread, copying them, bookkeeping. Not waiting for samples. Begins after
 * dlb_measurement_run. */
int dlb_measurement_overhead(struct dlb_measurement *m, int n, double *s, struct dlb_error *err);
/* Seconds of a step, all ops: the median of the last n >= 1 repeats. */
double dlb_measurement_last_s(const struct dlb_measurement *m, int n);
/* Over the steps that counted: [op] medians in seconds, NAN for ops that did not run, INFINITY
 * where the back end has no kernel; scratch_bytes, packed_bytes: [op], may be NULL. */
void dlb_measurement_medians(const struct dlb_measurement *m, double *op_s, double *scratch_bytes,
			     double *packed_bytes);
void dlb_measurement_free(struct dlb_measurement *m);		/* NULL: nothing */
#endif
