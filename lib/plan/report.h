/* The report: results and times of a run (or of the simulator, with dry_run). dlb-rebalance and dlb-view read
 * it; share/schemas/report.json fixes its member names. Times per step are medians over all steps of the run
 * but the first. */
#ifndef DLB_PLAN_REPORT_H
#define DLB_PLAN_REPORT_H
#include "plan/program.h"
#include "plan/timeline.h"

/* Number of steps for which the times of every op are kept. */
enum { DLB_RECORD_SLOTS = 64 };
struct dlb_report_node {
	double busy_s, busy_se_s, wait_s, idle_s, waits_s[DLB_N_WAITS];
	double data_wait_s;				/* part of idle_s: waiting for samples */
	double offload_wait_s; /* part of idle_s: waiting for copies of offloaded data */
	double predicted_busy_s, bytes_sent, peak_bytes;
	double predicted_comm_s; /* seconds of its messages; not in the document */
	/* bytes of the process at the end: measured (util/process.h; 0: not measured) and predicted
	 * (plan/process_bytes.h; 0: an older version wrote the report) */
	double process_bytes, predicted_process_bytes;
	double device_bytes;	/* GPU: measured memory that the run took on it; 0: not measured */
	/* GPU: CUDA graphs in a step, ops in them, and steps in which they were replayed (with full batches,
	 * since the plan last changed); 0: none. In these steps busy_s is the time of the graphs; times of
	 * ops are from other steps. */
	double graphs, graph_ops, graph_steps;
	const char *host;
};
struct dlb_report_op {
	int op, node;
	double time_s, predicted_s;
}; /* per micro-batch, median */
/* Sums over replicas, per step: bytes sent by all nodes, and bytes without compression; for the slowest node
 * the seconds in which sums are in progress, and the part of these in which it does not wait. */
struct dlb_report_sum { double bytes, dense_bytes, time_s, hidden_s; };
struct dlb_report_allreduce {
	const char *algorithm;				/* NULL: nothing was summed */
	/* One bucket of a part: number of tensors, bytes and algorithm of its sum. */
	struct dlb_report_bucket {
		int part, cls, tensors;
		double bytes;
		const char *algorithm;
	} * bucket;
	int n_buckets;
	struct dlb_report_sum all, cls[DLB_N_SUM_CLASSES];
	/* Of each low-rank tensor: its ranks over the steps of the run, and the greatest possible. */
	struct dlb_report_rank { const char *weight; int least, median, greatest, most; } *rank; int n_ranks;
	double command_s;				/* --sync: seconds of waiting for the command */
	/* if weights are averaged: the replicas' root-mean-square distance before the last mean, relative to
	 * the mean's norm; else NAN */
	double apart;
};
/* Asynchronous schedules: staleness of the weight that forward ops read, in updates. */
struct dlb_report_delay { const char *weight; int node, least, most; };
/* K-FAC's results, with these counts. inverses: computed inverses; shifted: inverses for which more than the
 * damping was added to the diagonal; kept: inverses that could not be computed, so that the previous ones
 * were kept; not_finite: averages not updated because a moment was not finite; held_back: steps shortened by
 * the trust region. Between replicas: exchanges: exchanges of factors; not_symmetric: exchanges sent whole
 * because a factor was not symmetric; not_definite: factors sent as sums because they were not positive
 * definite; hops_failed: failed hops of cholesky:per-hop. */
struct dlb_report_kfac {
	const char **weight; int n_weights;		/* preconditioned by K-FAC */
	/* optimizer of all other parameters; NULL: K-FAC was not used */
	const char *others;
	/* matrices and convolution kernels among the other parameters, and why K-FAC leaves them out */
	struct dlb_report_left { const char *weight, *why; } *left; int n_left;
	int64_t inverses, shifted, kept, not_finite, held_back, exchanges, not_symmetric, not_definite,
		hops_failed;
};
/* Test results after `step` steps; NAN: not computable. Best: by test loss; its weights were saved. */
struct dlb_report_eval { int64_t step; double test_loss, accuracy, time_s; };
/* saved NULL: not requested */
struct dlb_report_best { int64_t step; double test_loss; const char *saved; };
/* A node that was lost or, with `rejoined`, put back. step: steps done before the event, -1: unknown.
 * notice_s: seconds from the node's last sign of life to the notice of its loss. resume_s: seconds from the
 * notice (rejoined: from the end of the training before) to the first step after the event. NAN: unknown. */
struct dlb_report_event {
	int64_t step;
	int node;
	bool rejoined;
	const char *cause;
	double notice_s, resume_s;
	bool went_on;
	int64_t from_step; /* the step from which training went on, if it did */
	bool copies; /* it went on from copies of the nodes' state, not from a checkpoint or the start */
};
/* Copies of the nodes' state (dlb-run --buddy-every); every 0: none. bytes: one copy of all nodes;
 * sent_bytes: its part that is sent to other hosts; link_s: seconds that the slowest copy takes on its link.
 * time_s: seconds that a copy adds to its step, predicted and measured (NAN: simulated); copies: number of
 * copies made. buddy: [node] each node's buddy, if any bytes are sent. folder: one per host, removed at the
 * end. */
struct dlb_report_buddy {
	int64_t every, copies;
	double bytes, sent_bytes, link_s, predicted_time_s, time_s;
	int *buddy;
	const char **folder;
	int n_folders;
};
struct dlb_report {
	struct dlb_arena arena;
	bool dry_run;
	int64_t first_step, steps, batch; int micro_batches;
	/* stopped: "steps", "epochs", "loss", "patience", "signal" */
	const char *optimizer, *stopped;
	double *loss; int n_losses;
	double accuracy, test_loss;			/* NAN: not measured */
	struct dlb_report_eval *eval; int n_evals;	/* during training */
	struct dlb_report_best best;
	struct dlb_report_event *event; int n_events;
	struct dlb_report_buddy buddy;
	double optimizer_violations;			/* see share/schemas/report.json; NAN: not counted */
	double step_s, step_se_s, predicted_step_s, wall_s, imbalance, prediction_error;
	double predicted_step_low_s, predicted_step_high_s; /* its interval, see interval.h; 0: none */
	struct dlb_report_node *node; int n_nodes;
	struct dlb_report_op *op; int n_ops;
	struct dlb_report_delay *delay; int n_delays;	/* none under synchronous schedules */
	struct dlb_report_allreduce allreduce;
	struct dlb_report_kfac kfac;
	/* Messages between nodes, per step, summed: seconds, and seconds overlapped by computing. */
	struct { double bytes, time_s, hidden_s, in_place_bytes; } communication;
	/* samples from rank 0, per step, of all nodes; bytes 0: each node reads its own */
	struct { double bytes, wait_s; } feed;
	struct dlb_sample_time *sample;
	int n_samples; /* of nodes that prepare samples */
	/* dlb-run --scenario: for each way to balance, means over the simulated rounds. step_s: the step;
	 * efficiency: the step with perfectly divisible ops, divided by the step; schedule_efficiency: the
	 * step of a pipeline of such ops under the same schedule, divided by the step (0: unknown).
	 * moved_ops: total. */
	struct dlb_report_way {
		const char *name;
		double efficiency, schedule_efficiency, step_s;
		int64_t moved_ops;
	} *way;
	int n_ways;
	int64_t rounds;
	const char *batch_statistics;			/* dlb_plan_batch_statistics */
	bool varies;		/* a node's kind adds in no fixed order, so bits differ between runs */
	struct dlb_span **timeline; int *n_spans;	/* measured, of the median step; may be NULL */
	const char *saved, *checkpoint, *plan_hash;
};
void dlb_report_release(struct dlb_report *r);
/* compression.c: /report/allreduce/ranks; dlb_report_expect_ranks: the ranks of a simulated step. */
void dlb_report_expect_ranks(struct dlb_report *r, const struct dlb_program *g);
json_t *dlb_report_ranks_write(const struct dlb_report_allreduce *a);
int dlb_report_ranks_read(const struct dlb_ref *allreduce, struct dlb_report *out, struct dlb_error *err);
/* report_kfac.c: /report/kfac; r: the report. */
json_t *dlb_report_kfac_write(const struct dlb_report_kfac *k);
int dlb_report_kfac_read(const struct dlb_ref *r, struct dlb_report *out, struct dlb_error *err);
/* report_evals.c: /report/evaluations and /report/best; report: the section. */
void dlb_report_evals_write(const struct dlb_report *r, json_t *report);
int dlb_report_evals_read(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err);
/* report_events.c: /report/events. */
void dlb_report_events_write(const struct dlb_report *r, json_t *report);
int dlb_report_events_read(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err);
/* report_buddy.c: /report/buddy; report: the section. */
void dlb_report_buddy_write(const struct dlb_report *r, json_t *report);
int dlb_report_buddy_read(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err);
json_t *dlb_report_write(const struct dlb_report *r);
/* Makes r the document's report. */
void dlb_report_set(struct dlb_doc *d, const struct dlb_report *r);
/* Returns the node that waits longest for samples. *sample_s: seconds in which one is prepared for it; 0:
 * unknown. */
int dlb_report_starved(const struct dlb_report *r, double *sample_s);
/* report_scenario.c: /report/scenario; report: the section. */
void dlb_report_scenario_write(const struct dlb_report *r, json_t *report);
int dlb_report_scenario_read(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err);
int dlb_report_read(const struct dlb_doc *d, struct dlb_report *r, struct dlb_error *err);
#endif
