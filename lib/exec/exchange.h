/* What a node exchanges with the nodes that play its part in the other replicas: sums of gradients, and of what
 * statistics over the batch are made of, or averages of weights (average.h), bucket by bucket as its program says. */
#ifndef DLB_EXEC_EXCHANGE_H
#define DLB_EXEC_EXCHANGE_H
#include "exec/engine.h"

struct dlb_exchange;
struct dlb_average;
/* Of one step. time_s: while anything was under way; hidden_s: the part of it in which the node did not wait for it. */
struct dlb_exchange_times {
	/* Sent by this node in the last step. What factors took the last time is shared out among the steps from one inverse to
	 * the next; dense, they would travel in every step. */
	double bytes[DLB_N_SUM_CLASSES], dense_bytes[DLB_N_SUM_CLASSES];
	double time_s, hidden_s;
	double class_s[DLB_N_SUM_CLASSES], class_hidden_s[DLB_N_SUM_CLASSES];	/* sums over buckets, which may overlap */
	/* Of K-FAC's factors so far: exchanges, and matrices that were not symmetric (all went dense then); not positive definite
	 * (came as the sum); factored with more on the diagonal; of hops of the scheme as first published, by this node. */
	int64_t factor_exchanges, not_symmetric, not_definite, shifted, hops_failed;
};
/* summand[op]: where the gradient of an update op lies, or the sums of an op in halves; borrowed, as p is; kfac: whose factors
 * are exchanged when a new inverse is due, or NULL; average: in place of sums, or NULL. compress: its state
 * from step to step, shared by all programs of a run. last_step: of the run; INT64_MAX: not known. *out is NULL when
 * nothing is exchanged. */
int dlb_exchange_new(struct dlb_exchange **out, struct dlb_comm *c, const struct dlb_program *p, int node,
		     const struct dlb_cluster *cluster, void *const *summand, struct dlb_kfac *kfac, struct dlb_average *average,
		     struct dlb_compress_state *compress, int64_t last_step, struct dlb_error *err);
void dlb_exchange_free(struct dlb_exchange *x);
int dlb_exchange_put(const struct dlb_exchange *x, struct dlb_memories *m, struct dlb_error *err);	/* what it packs, into memories */
/* A step; of an asynchronous program, an iteration of its loop, where buckets may be under way from the one before. */
void dlb_exchange_begin(struct dlb_exchange *x, int64_t step);
/* The end of what a step exchanges. */
int dlb_exchange_settle(struct dlb_exchange *x, struct dlb_error *err);
/* Every gradient of bucket b is there, of all micro-batches, or the statistics of one: start summing over the replicas. */
void dlb_exchange_start(struct dlb_exchange *x, int b, int64_t step);
void dlb_exchange_nudge(struct dlb_exchange *x);			/* moves what moves without waiting */
/* Until bucket b is summed, in place. *waited_s grows by the seconds spent. */
int dlb_exchange_wait(struct dlb_exchange *x, int b, double *waited_s, struct dlb_error *err);
/* Tells rank 0 that this node has computed, and waits for its command to go on: both grow by the seconds. reports: a
 * byte a rank. */
int dlb_exchange_command(struct dlb_comm *c, char *reports, double *waited_s, double *command_s, struct dlb_error *err);
const struct dlb_exchange_times *dlb_exchange_times(const struct dlb_exchange *x);
/* Whether a gradient of this step was not finite, on whichever node: -1 with a line that names it. Compressed sums
 * alone know. */
int dlb_exchange_verdict(const struct dlb_exchange *x, struct dlb_error *err);
#endif
