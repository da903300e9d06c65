/* The simulator: walks a program with the cost model (simulate.c). */
#ifndef DLB_PLAN_TIMELINE_H
#define DLB_PLAN_TIMELINE_H
#include "plan/program.h"

enum dlb_wait {
	DLB_WAIT_STARVED,
	DLB_WAIT_BACKPRESSURE,
	DLB_WAIT_COLLECTIVE,
	DLB_WAIT_STRUCTURAL,
	DLB_N_WAITS
};
struct dlb_node_times {
	double busy_s, wait_s, waits_s[DLB_N_WAITS], bytes_sent;
	/* copying messages over links that do not overlap with work */
	double copy_s;
	/* transfers of the messages that it sends; the part of this in which no node waits for them */
	double comm_s, comm_hidden_s;
	/* sums over replicas in progress; waiting for them */
	double sum_s[DLB_N_SUM_CLASSES], sum_wait_s[DLB_N_SUM_CLASSES];
	double command_s;			/* --sync: waiting for the command to sum */
	double offload_s; /* waiting for copies of offloaded data (offload.h) */
	double overhead_s; /* in addition to its ops: step_overhead_s of cost.h */
	double data_wait_s; /* at the end of the step, for the samples of the next */
};
struct dlb_timeline {
	struct dlb_span **span; int *n_spans;		/* [node]; NULL without keep_spans */
	struct dlb_node_times *node;
	/* asynchronous: this and all other times are of the steady state */
	double step_s;
	/* seconds of filling and draining the pipeline per run */
	double fill_s;
	/* if rank 0 reads for all nodes: bytes that all send for this; wait at the step's end */
	double feed_bytes, feed_wait_s;
};
/* node_scale[node] multiplies the node's compute times (NULL: 1). jitter: relative standard deviation of op
 * times, drawn from seed (0: none). keep_spans: keeps the time-line. */
struct dlb_simulate_choice { const double *node_scale; double jitter; uint64_t seed; bool keep_spans; };
/* `t` is released by dlb_timeline_release. */
int dlb_program_simulate(const struct dlb_program *g, const struct dlb_cost *c,
			 const struct dlb_simulate_choice *choice, struct dlb_timeline *t,
			 struct dlb_error *err);
/* Computes only the seconds of a step. */
int dlb_program_step_s(const struct dlb_program *g, const struct dlb_cost *c, const double *node_scale,
		       double *step_s, struct dlb_error *err);
void dlb_timeline_release(struct dlb_timeline *t, int n_nodes);
#endif
