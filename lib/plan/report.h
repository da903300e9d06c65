/* The report: what happened in a run (or in the simulator, with dry_run). Read by dlb-rebalance and
 * dlb-view; member names are fixed by CONTRACT.md. Times per step are medians over the run's steps but
 * the first. */
#ifndef DLB_PLAN_REPORT_H
#define DLB_PLAN_REPORT_H
#include "plan/program.h"

struct dlb_report_node {
	double busy_s, busy_se_s, wait_s, idle_s, waits_s[DLB_N_WAITS];
	double data_wait_s;				/* part of idle_s: samples were not there yet */
	double predicted_busy_s, bytes_sent, peak_bytes;
	const char *host;
};
struct dlb_report_op { int op, node; double time_s, predicted_s; };	/* per micro-batch, median */
/* Sums over replicas, a step: bytes that all nodes sent together, and what sending every tensor whole would have taken;
 * of the node where it took longest the seconds under way and those of them in which it did not wait. */
struct dlb_report_sum { double bytes, dense_bytes, time_s, hidden_s; };
struct dlb_report_allreduce {
	const char *algorithm;				/* NULL: there was nothing to sum */
	/* One of each part's sums a step: the part, tensors in it, bytes of their sum and how it went. */
	struct dlb_report_bucket { int part, cls, tensors; double bytes; const char *algorithm; } *bucket; int n_buckets;
	struct dlb_report_sum all, cls[DLB_N_SUM_CLASSES];
	/* Of each tensor that travels in a basis: its ranks over the steps of the run, and the greatest that there may be. */
	struct dlb_report_rank { const char *weight; int least, median, greatest, most; } *rank; int n_ranks;
	double command_s;				/* --sync: waited for the command */
	double apart;					/* where weights are averaged: of the replicas before they met at the end,
							 * the root of the mean square relative to the mean's norm; else NAN */
};
/* Asynchronous schedules: how many updates behind the step's own the weight was that forward ops read. */
struct dlb_report_delay { const char *weight; int node, least, most; };
/* K-FAC. Inverses made, of those with more on the diagonal than the damping (shifted), and those that could not be made, so
 * that the ones before were kept; averages left as they were since a moment was not finite. Between replicas: exchanges of
 * factors; those in which one was not symmetric, so that all went whole; factors that were not positive definite and came as
 * sums; hops of cholesky:per-hop that failed. held_back: steps that the trust region shortened. */
struct dlb_report_kfac {
	const char **weight; int n_weights;		/* that it preconditions */
	const char *others;				/* optimizer of all other parameters; NULL: it was not K-FAC */
	struct dlb_report_left { const char *weight, *why; } *left; int n_left;	/* matrices and kernels among these */
	int64_t inverses, shifted, kept, not_finite, held_back, exchanges, not_symmetric, not_definite, hops_failed;
};
/* Measured on the test data after so many steps; NAN: could not be. Best: by test loss, whose weights were saved. */
struct dlb_report_eval { int64_t step; double test_loss, accuracy, time_s; };
struct dlb_report_best { int64_t step; double test_loss; const char *saved; };	/* saved NULL: none was asked for */
struct dlb_report {
	struct dlb_arena arena;
	bool dry_run;
	int64_t first_step, steps, batch; int micro_batches;
	const char *optimizer, *stopped;		/* stopped: "steps", "epochs", "loss", "patience", "signal" */
	double *loss; int n_losses;
	double accuracy, test_loss;			/* NAN: not measured */
	struct dlb_report_eval *eval; int n_evals;	/* during training */
	struct dlb_report_best best;
	double optimizer_violations;			/* NAN: not counted; see report.json */
	double step_s, step_se_s, predicted_step_s, wall_s, imbalance, prediction_error;
	struct dlb_report_node *node; int n_nodes;
	struct dlb_report_op *op; int n_ops;
	struct dlb_report_delay *delay; int n_delays;	/* of synchronous schedules: none */
	struct dlb_report_allreduce allreduce;
	struct dlb_report_kfac kfac;
	/* Messages between nodes, a step: summed over them, the seconds that they took and those of them beside computing. */
	struct { double bytes, time_s, hidden_s, in_place_bytes; } communication;
	struct { double bytes, wait_s; } feed;		/* of samples from rank 0, sent in a step by all; bytes 0: each node reads its own */
	const char *batch_statistics;			/* dlb_plan_batch_statistics */
	struct dlb_span **timeline; int *n_spans;	/* measured, one step (the median one); may be NULL */
	const char *saved, *checkpoint, *plan_hash;
};
void dlb_report_release(struct dlb_report *r);
/* compression.c: of .report.allreduce.ranks; what a simulated step has. */
void dlb_report_expect_ranks(struct dlb_report *r, const struct dlb_program *g);
json_t *dlb_report_ranks_write(const struct dlb_report_allreduce *a);
int dlb_report_ranks_read(const struct dlb_ref *allreduce, struct dlb_report *out, struct dlb_error *err);
/* report_kfac.c: of .report.kfac; r: the report. */
json_t *dlb_report_kfac_write(const struct dlb_report_kfac *k);
int dlb_report_kfac_read(const struct dlb_ref *r, struct dlb_report *out, struct dlb_error *err);
/* report_evals.c: .report.evaluations and .report.best; report: the section. */
void dlb_report_evals_write(const struct dlb_report *r, json_t *report);
int dlb_report_evals_read(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err);
json_t *dlb_report_write(const struct dlb_report *r);
int dlb_report_read(const struct dlb_doc *d, struct dlb_report *r, struct dlb_error *err);
#endif
