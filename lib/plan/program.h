/* The program: the instructions of each node. One compiler makes it; two interpreters run it, the executor
 * and the simulator.
 *
 *     POST   t m peer     post a receive from peer into the arena's place for tensor t of micro-batch m
 *     WAIT   t m peer     wait for that message or, with sent set, for the end of the send
 *     SEND   t m peer     start sending t of m
 *     COMPUTE op m        run the op's kernel; sums of gradients and updates are COMPUTE too (see `what`)
 *     COLLECTIVE          an operation of all nodes of a group (see `what`)
 *     COPY   t m          bring a fed tensor (samples, labels, seed) into the arena
 *     FREE   t m          its place may be used again
 *     FETCH  t m          start copying offloaded tensor t, or (m = 0) the offloaded optimizer states of
 *                         weight t, into the arena
 *     FETCHED t m         wait for the end of that copy
 *     STORE  t m          start copying the tensor, or the states, out of the arena
 *     STORED t m          wait for the end of that copy
 * m = -1: once per step (weights, updates). A program is prologue, loop (one step of a synchronous
 * schedule) and epilogue. iteration and version offsets are 0 under synchronous schedules. Under
 * asynchronous ones (async.c) the loop runs for i = 0, 1, ..., and an instruction with iteration k belongs
 * to step i - k: it is skipped if there is no such step. Prologue and epilogue are iterations with skipped
 * instructions, so they are not stored. An op with version v reads the weights from v updates before those
 * of its step (but at least as new as those at the start of the run, or after the last drain).
 *
 * Memory: state (weights, gradient sums, optimizer state, buffers, constants) has fixed places; every other
 * (tensor, m) has an offset in the arena from its first instruction to its FREE; the compiler chooses the
 * offsets (arena.c), so the step allocates nothing. A place whose lifetime overlaps its own next use in a
 * later iteration has several copies: step s uses copy s mod copies. A place that only reaches into the next
 * iteration has last < first. View ops (Reshape, Flatten, Identity) share their input's place. With
 * plan->in_place, so does the output of an op whose class may overwrite an input (dlb_op_class.overwrite), if
 * for every micro-batch that op is the node's last reader of the input and its views, and all sends of the
 * input have ended. This depends on placement and schedule, hence the compiler decides it, not a rewrite of
 * the graph; it changes no bits.
 *
 * An op that runs again (again.h) has a second COMPUTE for each micro-batch, with `again` set. Its outputs have
 * a second life, with micro_batch M + m in the list of places.
 *
 * A message between nodes that share memory, of a tensor that other ops read too, is zero-copy: the
 * receiver reads it in the sender's memory. The sender's WAIT sent ends with the receiver's FREE (peer:
 * the sender, and the message's tag). The receiver has a place for the tensor too, for runs without shared
 * memory; no op overwrites that place.
 *
 * In the loop, sends of state (m = -1) come first; each (op, m) comes after its COPYs and WAITs and before
 * its SENDs. WAIT sent comes just before the FREE of the sent place, at the time when the schedule expects
 * the receiver to have the message. The loop ends with COLLECTIVE step-end and the FREEs of the step's
 * results (the loss; in a graph without backward also the outputs). With M > 1, ACCUMULATE m = 0 .. M-1 sums
 * the update's gradient (op = update op) into state; m = 0 sets, the others add. With one micro-batch the
 * update reads the gradient (tensor, 0) from the arena.
 *
 * Replicas: each is compiled by itself over its share of the batch (first[] counts from the step's first
 * sample). The nodes of part k of all replicas sum their gradients, in state or in place: COLLECTIVE
 * reduce b starts bucket b when its last gradient is computed, COLLECTIVE reduced b waits for it before
 * its first update; updates come last. With plan->sync no reduce starts before COLLECTIVE computed, a
 * barrier of all nodes. If weights are averaged instead (plan->sharing: gossip, a parameter server, a mean
 * every so many steps), reduce b follows the last update of the bucket's weights and reduced b precedes
 * the end of the step; the executor chooses the buckets sent in a step.
 *
 * With K-FAC (optim/kfac.h), the update of a layer's weight has two more sums over micro-batches, the
 * second moments A and G. Their averages are a bucket like gradients, which is summed when a new inverse
 * is due (plan->inverse_every). COMPUTE precondition (op = that update) replaces the sums of gradients by
 * the update's direction. COLLECTIVE trust comes after the preconditions of all layers and before the first
 * update; it sums the size of that step over all nodes. Gradients of such layers are always summed into
 * state, and updates come last.
 *
 * With plan->clip, COLLECTIVE norm comes after each node's last gradient and before its first update: it
 * sums the squares of all gradients over all nodes, and is a barrier. Updates then come last. Under
 * asynchronous schedules COLLECTIVE squares starts that sum when all nodes have the step's last gradient,
 * COLLECTIVE norm waits for it, and the updates follow (async.c).
 *
 * Replicas under an asynchronous schedule run one loop, with equal numbers of micro-batches. Each sums the
 * gradients of a step into state; the bucket starts after its last micro-batch and is waited for before
 * its first update of the step.
 *
 * With plan->sync_batchnorm an op that sums over its batch (dlb_op_class.sums) runs in two halves: COMPUTE
 * sums op m, COLLECTIVE reduce b m, COLLECTIVE reduced b m, COMPUTE op m, where bucket b holds that op's
 * sums. Replicas wait for each other in the middle of the step, so all run the order of replica 0, with
 * equal numbers of micro-batches. Micro-batch m of all replicas together has consecutive samples, as
 * micro-batch m of a single node has.
 *
 * With plan->zero replicas divide the optimizer's state (shares.h): each updates its share of a weight, and
 * another bucket (weights) gathers the other shares from the last update of a bucket to the end of the step.
 * With stage 2 a sum by a ring is only the ring's first half, which completes a replica's own share. With
 * stage 2 and one micro-batch, COLLECTIVE reduced b comes while the backward phase runs and copies that share
 * of each gradient to a place of its own; FREE follows for the gradients of b.
 *
 * With stage 3 a node has only its share of most weights from step to step. COLLECTIVE gather b starts to
 * gather such a weight into a place of the arena (bucket b: the weight, and the micro-batch 2 M + k of its
 * k-th place), COLLECTIVE gathered b waits for it before the first op that reads it there, FREE follows the
 * last such op. A weight is gathered again, into another place, whenever the node has read another such
 * weight in between. A gather starts when the weight before it is about to be read, and all replicas start
 * gathers in one order.
 *
 * With plan->offload the optimizer states of some weights are in another memory of the node (offload.h). From
 * FETCH to the FREE that follows STORED they are in a place of the arena: the second life of the weight,
 * micro-batch M in the list of places. Activations may be in the other memory from STORE of their first life
 * to FETCH of their second life, which is micro-batch M + m as for an op that runs again. Weights may be
 * there too. They have places like those of stage 3: FETCH and FETCHED take the part of gather and gathered,
 * and STORE follows the update.
 *
 * Messages between a pair of nodes are matched by tag: the number of (tensor, m) among the program's
 * messages. */
#ifndef DLB_PLAN_PROGRAM_H
#define DLB_PLAN_PROGRAM_H
#include "plan/plan.h"

enum dlb_verb {
	DLB_POST,
	DLB_WAIT,
	DLB_SEND,
	DLB_COMPUTE,
	DLB_COLLECTIVE,
	DLB_COPY,
	DLB_FREE,
	DLB_FETCH,
	DLB_STORE,
	DLB_FETCHED,
	DLB_STORED,
	DLB_N_VERBS
};
enum dlb_what { DLB_RUN_OP, DLB_RUN_ACCUMULATE, DLB_RUN_UPDATE, DLB_RUN_STEP_END,
		DLB_RUN_COMPUTED, DLB_RUN_REDUCE, DLB_RUN_REDUCED,	/* of COLLECTIVE; tag: the bucket */
		DLB_RUN_SQUARES, DLB_RUN_NORM, DLB_RUN_TRUST,
		/* of COMPUTE: the first half of an op whose second half is RUN_OP */
		DLB_RUN_SUMS,
		DLB_RUN_KEEP, DLB_RUN_PREDICT,	/* copies of weights; op: the update op */
		DLB_RUN_PRECONDITION };		/* K-FAC; op: the update op of the layer's weight */

struct dlb_instr {
	unsigned char verb, what;
	bool sent;			/* WAIT: for the end of this node's send */
	/* of a zero-copy message: SEND, POST, both WAITs, and the FREE of its place */
	bool zero_copy;
	/* COMPUTE: the op's second run; FREE, FETCH, STORE and their ends: of a second life (again.h) */
	bool again;
	int op, tensor;			/* -1: none; ACCUMULATE: op = update op, tensor = the gradient */
	int micro_batch, iteration, version;
	int peer, tag;			/* messages */
};
#define DLB_PLACE_ALIGN 64
static inline size_t dlb_place_bytes(size_t bytes)
{
	return (bytes + DLB_PLACE_ALIGN - 1) / DLB_PLACE_ALIGN * DLB_PLACE_ALIGN +
	       (bytes ? 0 : DLB_PLACE_ALIGN);
}
struct dlb_place {
	int tensor, micro_batch;
	size_t offset, bytes;
	int first, last;		/* instruction interval */
	/* the tensor whose place this one shares, as a view or in place, and its micro_batch; -1: none */
	int of, of_m;
	int copies;			/* at distances of dlb_place_bytes(bytes) */
};
/* A weight updated on this node under an asynchronous schedule: its copies, and the staleness of its forward
 * readers. */
struct dlb_weight_copies {
	int tensor, update;		/* its update op */
	int n;				/* copies in addition to the weight itself */
	int sums;			/* places for its gradient's sum: step s uses s mod sums */
	int least, most;		/* updates by which readers are behind (predict: updates predicted) */
	int distance;			/* predict: updates ahead of the newest weights */
	int first, last, next;		/* private to async.c */
};
/* A bucket, by class:
 *   gradient, small  gradients of the update ops op[0 .. n_ops), which replicas sum in one message; a large
 *                    gradient has a bucket of its own
 *   statistics       the f64 sums of op[0], once per micro-batch; n_own more of them are not summed
 *   factor           K-FAC's A and G of each layer whose weight op[] updates; op[] repeats a layer for each
 *                    of its groups
 *   weights          the weights of another bucket's gradients: each replica has updated its share, and all
 *                    gather the other shares; or one weight, gathered ahead of use
 */
enum dlb_sum_class { DLB_SUM_FACTOR, DLB_SUM_GRADIENT, DLB_SUM_SMALL, DLB_SUM_STATISTICS, DLB_SUM_WEIGHTS,
		     DLB_N_SUM_CLASSES };
/* Whether the plan's compression applies to sums of the class. */
static inline bool dlb_sum_is_compressed(enum dlb_sum_class cls)
{
	return (int)cls < DLB_N_COMPRESSED;
}
struct dlb_bucket {
	const int *op; int n_ops;
	int64_t n, n_own;		/* elements */
	enum dlb_sum_class cls;
	int element_bytes;
	const struct dlb_allreduce *how;
	int of;				/* of weights: the bucket of their gradients */
	/* of weights: one weight gathered ahead of use (n_ops is 0), and the micro-batch of its place */
	bool ahead; int weight, life;
};
/* of factors: the group of the layer that op[i] stands for */
static inline int dlb_bucket_group(const struct dlb_bucket *b, int i)
{
	int group = 0;
	while (group < i && b->op[i - group - 1] == b->op[i])
		group++;
	return group;
}
static inline int dlb_bucket_n_tensors(const struct dlb_bucket *b)
{
	return b->ahead ? 1 : b->cls == DLB_SUM_FACTOR ? 2 * b->n_ops : b->n_ops;
}
#define DLB_BUCKET_BYTES (256 * 1024)		/* smaller gradients share buckets of about this size */
/* Where an update reads its gradient. WHOLE: the gradient in its place. IN_BUFFER: this replica's share in
 * the buffer of the bucket. IN_PLACE: this replica's share in the second life of the gradient, from
 * COLLECTIVE reduced to the update (micro-batch M + m in the list of places, with the bytes of the share). */
enum dlb_kept { DLB_KEPT_WHOLE, DLB_KEPT_IN_BUFFER, DLB_KEPT_IN_PLACE };
struct dlb_node_program {
	struct dlb_instr *instr; int n_instr;
	int n_loop; /* n_instr when the instructions were emitted: those of one iteration */
	struct dlb_place *place; int n_places;	/* sorted by (tensor, micro_batch) */
	size_t arena_bytes, scratch_bytes, state_bytes, bound_bytes;	/* bound: most bytes alive at once */
	/* the part of state_bytes for weights, their copies and packed forms, running statistics,
	 * constants */
	size_t weights_bytes;
	/* bytes of buffers in each memory (memories.c); NULL: the node names no memories */
	const struct dlb_memory_use *use;
	/* in the order of the backward phase, then factors, weights, statistics; none for one replica */
	struct dlb_bucket *bucket; int n_buckets;
	/* asynchronous: weights updated on this node */
	struct dlb_weight_copies *weight; int n_weights;
};
struct dlb_program {
	struct dlb_arena arena;
	int n_nodes, micro_batches, n_messages;
	/* the schedule is asynchronous: losses do not live to the end of the step */
	bool async;
	/* senders keep places until zero-copy readers are done (zero_copy.c) */
	bool keeps_longer;
	/* iterations over which a step is spread, less one; 0: steps do not overlap */
	int depth;
	int steps;			/* 1; more after dlb_program_unroll */
	enum dlb_staleness staleness;	/* the rule in use */
	int64_t batch, *size;		/* size[m]: samples of micro-batch m */
	int64_t *first;			/* first[m]: its first sample in the batch */
	struct dlb_node_program *node;
	const struct dlb_graph *graph;	/* borrowed */
	const struct dlb_plan *plan;	/* borrowed */
	/* With replicas, this is replica 0's program, and `other` has those of replicas 1, 2, ...; n_nodes
	 * is the same in all, and a node has instructions in its own replica's program only. `plan` is
	 * then that replica's part of the plan. */
	bool replicated;
	int replica, n_replicas;
	struct dlb_program *other;
	const int *replica_of;		/* [node]; NULL: one replica */
	int64_t step_batch;		/* samples of the whole step; `batch` is this replica's share */
	bool weightless;		/* this replica has no samples and computes a sample of weight 0 */
	/* [op] the bucket of its sums if it runs in two halves, else -1; NULL: no op does */
	int *statistics;
	/* [op] where an update reads its gradient (shares.h); NULL: all in their places */
	unsigned char *kept;
	int n_state; /* optimizer states per weight */
	/* [tensor] the rule of plan->offload for a weight's states, -1: none; NULL: no states are
	 * offloaded */
	int *offload;
	/* [tensor] the rule by which a weight is offloaded, -1: none; NULL: no weight is (offload.h) */
	int *far_weight;
	/* [tensor] weights of which this replica keeps a share and gathers the rest (shares.h); NULL: none */
	const bool *gathered;
	/* common rank of all gradients, under a compression with one budget (dlb_compress_budget); else 0 */
	int most_rank;
	struct dlb_plan *part;		/* owned; plan points here */
	const struct dlb_plan *whole;	/* borrowed: the plan of all replicas; plan itself for one replica */
};
/* Replica r's program; r = 0: g itself. */
static inline const struct dlb_program *dlb_program_replica(const struct dlb_program *g, int r)
{
	return r ? &g->other[r - 1] : g;
}
/* Compiles the plan's order for `batch` samples (the plan's batch, or the shorter last one of an epoch).
 * n_state: optimizer states per weight. */
int dlb_program_compile(const struct dlb_plan *p, const struct dlb_cost *c, int64_t batch, int n_state,
			struct dlb_program *out, struct dlb_error *err);
void dlb_program_release(struct dlb_program *g);
#endif
