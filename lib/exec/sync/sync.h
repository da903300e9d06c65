/* Synchronisation of replicas: exchange between the nodes that hold the same part of the model in every
 * replica. The program's buckets are either gradients (and K-FAC's factors, and statistics over the batch),
 * which are summed, or weights, which are averaged. Each bucket has one or two rows of functions (ways.h),
 * chosen when the bucket is made:
 *
 *     sum.c         gradients and statistics, dense
 *     shares.c      gradients whose sums, and weights whose updates, the replicas divide
 *     ahead.c       weights that the replicas divide, gathered ahead of their use
 *     compressed.c  gradients, compressed
 *     factors.c     K-FAC's factors in the steps in which an inverse is due, dense and compressed
 *     mean.c        weights become their mean over all replicas
 *     gossip.c      weights are averaged with the neighbours in the ring of replicas
 *     server.c      weights become the mean that one node, the parameter server, computes
 *
 * and, not by bucket: fetch.c (all start from the server's weights) and mean_state.c (the mean of all
 * state). */
#ifndef DLB_EXEC_SYNC_H
#define DLB_EXEC_SYNC_H
#include "exec/engine.h"

struct dlb_memories;

/* Figures of one step. time_s: seconds in which at least one bucket was under way; hidden_s: the part of
 * time_s in which the node did not wait for buckets. */
struct dlb_sync_times {
	/* Sent by this node in the last step. Bytes of factors are divided by the steps from one inverse to
	 * the next (dense_bytes: as if they were sent in every step); bytes of averages are the mean over all
	 * steps so far. */
	double bytes[DLB_N_SUM_CLASSES], dense_bytes[DLB_N_SUM_CLASSES];
	double time_s, hidden_s;
	/* sums over buckets, which may overlap */
	double class_s[DLB_N_SUM_CLASSES], class_hidden_s[DLB_N_SUM_CLASSES];
	/* K-FAC's factors since the start: exchanges; matrices that were not symmetric (then all factors were
	 * sent dense), not positive definite (then the sum was sent), factored after their diagonal was
	 * increased; cholesky:per-hop: failed hops of this node. */
	int64_t factor_exchanges, not_symmetric, not_definite, shifted, hops_failed;
};

/* All members are borrowed. */
struct dlb_sync_desc {
	struct dlb_comm *comm;
	const struct dlb_program *program;
	int node;
	const struct dlb_cluster *cluster;
	/* Sums. summand: [op] address of the gradient of an update op, or of the statistics of an op; kfac:
	 * NULL if no layer of this node has factors; compress: state of compression, shared by all programs
	 * of a run; last_step: of the run, INT64_MAX: not known. */
	void *const *summand;
	/* [tensor] mirrors in host memory of weights that are divided or averaged, whole, for a node that
	 * computes on a device; NULL: state and arena have the weights in host memory. */
	void *const *weight;
	struct dlb_kfac *kfac;
	struct dlb_compress_state *compress;
	int64_t last_step;
	/* Weights. tensor_of: [tensor of the program's graph] the id in the state's graph; NULL: the same.
	 * arena: that of the program's places. seed: of gossip's masks. */
	const int *tensor_of;
	char *arena;
	struct dlb_state *state;
	uint64_t seed;
};
struct dlb_sync;
/* *out: NULL if this node synchronises nothing. A dlb_sync of sums belongs to one program. One of averages
 * (dlb_sharing_averages) serves all programs of a run, whose buckets are the same. */
int dlb_sync_new(struct dlb_sync **out, const struct dlb_sync_desc *d, struct dlb_error *err);
void dlb_sync_free(struct dlb_sync *x);					/* NULL: does nothing */
/* Binds the buffers of sums to the node's memories. x NULL: does nothing. */
int dlb_sync_put(const struct dlb_sync *x, struct dlb_memories *m, struct dlb_error *err);
/* Begins a step of program p; in an asynchronous program, an iteration, in which buckets of the previous one
 * may still be under way. */
void dlb_sync_begin(struct dlb_sync *x, const struct dlb_program *p, int64_t step);
/* Whether starting the bucket exchanges anything in this step. Averages of weights are not due in each one. */
bool dlb_sync_is_due(const struct dlb_sync *x, int bucket);
/* Starts bucket `bucket`. Its gradients of all micro-batches, its statistics of one, or its updated weights
 * must be complete. */
void dlb_sync_start(struct dlb_sync *x, int bucket, int64_t step);
void dlb_sync_nudge(struct dlb_sync *x);	/* advances all active buckets; does not wait */
/* Waits until the bucket holds its sums or averages, in place. Adds the seconds of waiting to *waited_s. -1:
 * the comm broke. */
int dlb_sync_wait(struct dlb_sync *x, int bucket, double *waited_s, struct dlb_error *err);
/* Ends the step, after a parameter server has answered all pushes. -1: the comm broke. */
int dlb_sync_settle(struct dlb_sync *x, struct dlb_error *err);
/* Address of this replica's share of the bucket's i-th gradient, from the end of the sum until the update.
 * Only for a bucket that keeps shares (dlb_bucket_keeps_shares). */
void *dlb_sync_share(const struct dlb_sync *x, int bucket, int i);
const struct dlb_sync_times *dlb_sync_times(const struct dlb_sync *x);
/* -1 with err that names tensor and node: a gradient of this step was not finite on some node. Only
 * compressed sums check that. All ranks of the sum return the same. */
int dlb_sync_verdict(const struct dlb_sync *x, struct dlb_error *err);

/* Whether some state differs between replicas: weights that are averaged, or moments that each replica
 * computes itself. */
bool dlb_sync_state_differs(const struct dlb_plan *p);
/* Collective over all ranks, at the end of a run and before a checkpoint: weights, running statistics and
 * optimizer states become their mean over the replicas, the same bits everywhere, so that training continues
 * alike from memory and from a checkpoint. Does nothing if no state differs. *apart: root mean square over
 * the replicas of the weights' distance from that mean, divided by the norm of the mean; NAN: weights are
 * always equal. */
int dlb_sync_mean_state(struct dlb_comm *c, const struct dlb_plan *p, const struct dlb_cluster *cluster,
			struct dlb_state *s, double *apart, struct dlb_error *err);
/* Collective over all ranks: each node fetches its weights from the parameter server, if the plan has one,
 * and proves by a checksum that they are the server's. *checksum: of the weights and buffers that this node
 * holds. */
int dlb_sync_fetch_weights(struct dlb_comm *c, const struct dlb_plan *p, struct dlb_state *s,
			   uint64_t *checksum, struct dlb_error *err);
#endif
