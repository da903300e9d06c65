/* The program: the instructions of each node. One compiler makes it, two interpreters run it: executor and
 * simulator.
 *
 *     POST   t m peer     post a receive from peer into the arena's place for tensor t of micro-batch m
 *     WAIT   t m peer     wait for that message or, with sent set, for the end of the send
 *     SEND   t m peer     start sending t of m
 *     COMPUTE op m        run the op's kernel; accumulate, pack and update are COMPUTE too (see `what`)
 *     COLLECTIVE          an operation of all nodes of a group (see `what`)
 *     COPY   t m          bring a fed tensor (samples, labels, seed) into the arena
 *     FREE   t m          its place may be used again
 * m = -1: once per step (weights, updates). A program is prologue, loop (one step of a synchronous
 * schedule) and epilogue. iteration and version offsets are 0 under synchronous schedules. Under
 * asynchronous ones (async.c) the loop runs for i = 0, 1, ..., and an instruction with iteration k belongs
 * to step i - k: it is skipped if there is no such step. Prologue and epilogue are iterations with skipped
 * instructions, so they are not stored. An op with version v reads the weights from v updates before those
 * of its step (but at least as new as those at the start of the run, or after the last drain).
 *
 * Memory: state (weights, gradient sums, optimizer state, buffers, constants) has fixed places; every
 * other (tensor, m) has an offset in the arena from its first instruction to its FREE; the compiler
 * chooses the offsets (arena.c), so the step allocates nothing. A place whose lifetime overlaps its own
 * next use in a later iteration has several copies: step s uses copy s mod copies. A place that only
 * reaches into the next iteration has last < first. View ops (Reshape, Flatten, Identity) share their
 * input's place. With plan->in_place, so does the output of an op whose class may overwrite an input
 * (dlb_op_class.overwrite), if for every micro-batch that op is the node's last reader of the input and
 * its views, and all sends of it have ended. This depends on placement and schedule, hence the compiler
 * decides it, not a rewrite of the graph; it changes no bits.
 *
 * A message between nodes that share memory, of a tensor that other ops read too, is zero-copy: the
 * receiver reads it in the sender's memory. The sender's WAIT sent ends with the receiver's FREE (peer:
 * the sender, and the message's tag). The receiver has a place for it too, for runs without shared memory;
 * no op overwrites that place.
 *
 * In the loop, sends of state (m = -1) come first; each (op, m) comes after its COPYs and WAITs and before
 * its SENDs. WAIT sent comes just before the FREE of the sent place, at the time when the schedule expects
 * the receiver to have it. The loop ends with COLLECTIVE step-end and the FREEs of the step's results (the
 * loss; in a graph without backward also the outputs). With M > 1, ACCUMULATE m = 0 .. M-1 sums the
 * update's gradient (op = update op) into state; m = 0 sets, the others add. With one micro-batch the
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
 * the update's direction. COLLECTIVE trust, after those of all layers and before the first update, sums
 * the size of that step over all nodes. Gradients of such layers are always summed into state, and updates
 * come last.
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
 * Messages between one pair of nodes are matched by tag = index of (tensor, m) in program->message. */
#ifndef DLB_PLAN_PROGRAM_H
#define DLB_PLAN_PROGRAM_H
#include "plan/plan.h"

enum dlb_verb { DLB_POST, DLB_WAIT, DLB_SEND, DLB_COMPUTE, DLB_COLLECTIVE, DLB_COPY, DLB_FREE, DLB_N_VERBS };
enum dlb_what { DLB_RUN_OP, DLB_RUN_ACCUMULATE, DLB_RUN_UPDATE, DLB_RUN_STEP_END,
		DLB_RUN_COMPUTED, DLB_RUN_REDUCE, DLB_RUN_REDUCED,	/* of COLLECTIVE; tag: the bucket */
		DLB_RUN_SQUARES, DLB_RUN_NORM, DLB_RUN_TRUST,
		/* of COMPUTE: the first half of an op, whose second is RUN_OP */
		DLB_RUN_SUMS,
		DLB_RUN_KEEP, DLB_RUN_PREDICT,	/* copies of weights; op: the update op */
		DLB_RUN_PRECONDITION };		/* K-FAC; op: the update op of the layer's weight */

struct dlb_instr {
	unsigned char verb, what;
	bool sent;			/* WAIT: for the end of our send */
	/* of a zero-copy message: SEND, POST, both WAITs, and the FREE of its place */
	bool zero_copy;
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
	/* the tensor whose place it shares, as a view or in place; -1: its own */
	int of;
	int copies;			/* at distances of dlb_place_bytes(bytes) */
};
/* A weight updated on this node, its copies, and the staleness of its forward readers. Under asynchronous
 * schedules. */
struct dlb_weight_copies {
	int tensor, update;		/* its update op */
	int n;				/* copies beside the weight itself */
	int sums;			/* places for its gradient's sum: step s uses s mod sums */
	int least, most;		/* updates that readers are behind (predict: updates predicted) */
	int distance;			/* predict: updates ahead of the newest weights */
	int first, last, next;		/* private to async.c */
};
/* A bucket: gradients summed over the replicas in one message, of update ops op[0 .. n_ops). A large
 * gradient has a bucket of its own. Or (statistics) the f64 sums of op[0], once per micro-batch; n_own
 * more of them are not summed. Or (factor) K-FAC's A and G of each layer whose weight op[] updates; op[]
 * repeats a layer for each of its groups. */
enum dlb_sum_class { DLB_SUM_FACTOR, DLB_SUM_GRADIENT, DLB_SUM_SMALL, DLB_SUM_STATISTICS, DLB_N_SUM_CLASSES };
struct dlb_bucket {
	const int *op; int n_ops;
	int64_t n, n_own;		/* elements */
	enum dlb_sum_class cls;
	int element_bytes;
	const struct dlb_allreduce *how;
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
	return b->cls == DLB_SUM_FACTOR ? 2 * b->n_ops : b->n_ops;
}
#define DLB_BUCKET_BYTES (256 * 1024)		/* smaller gradients share buckets of about this size */
struct dlb_node_program {
	struct dlb_instr *instr; int n_instr;
	int n_prologue, n_loop;		/* instr = prologue, loop, epilogue */
	struct dlb_place *place; int n_places;	/* sorted by (tensor, micro_batch) */
	size_t arena_bytes, scratch_bytes, state_bytes, bound_bytes;	/* bound: most bytes alive at once */
	/* of state_bytes: weights, their copies and packed forms, running statistics, constants */
	size_t weights_bytes;
	/* buffers in each memory (memories.c); NULL: it names no memories */
	const struct dlb_memory_use *use;
	/* in the order of the backward phase, then factors, then statistics; none for one replica */
	struct dlb_bucket *bucket; int n_buckets;
	/* asynchronous: weights updated on this node */
	struct dlb_weight_copies *weight; int n_weights;
};
struct dlb_program {
	struct dlb_arena arena;
	int n_nodes, micro_batches, n_messages;
	/* by an asynchronous schedule: losses do not live to the end of the step */
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
	bool weightless;		/* fewer samples than replicas: computes a sample of weight 0 */
	/* [op] the bucket of its sums if it runs in halves, or -1; NULL: none does */
	int *statistics;
	/* of all gradients, under a compression with one budget (dlb_compress_budget); else 0 */
	int most_rank;
	struct dlb_plan *part;		/* owned; plan points here */
	const struct dlb_plan *whole;	/* borrowed: the plan of all replicas; plan itself for one replica */
};
/* The program in g that `node` runs (g itself if it is one replica's program). */
const struct dlb_program *dlb_program_of(const struct dlb_program *g, int node);
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
/* Proves: every SEND has its POST and WAIT with equal sizes; no order deadlocks, even if sends wait for
 * their receivers; every tensor is written before it is read and not read after it is freed; places alive
 * together do not overlap; the peak fits each node's memory (else err->status 1: node, bytes needed, bytes
 * available). */
int dlb_program_verify(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err);
/* Unrolls `steps` steps of g, from an empty pipeline to an empty one: places have no copies, micro-batch m
 * of step s is numbered s * M + m (m -1: -1 - s), each message has a tag of its own, and
 * dlb_instr.iteration is the step. For the verifier and the simulator. */
void dlb_program_unroll(const struct dlb_program *g, int steps, struct dlb_program *out);
static inline int dlb_unrolled(int micro_batches, int step, int m)
{
	return m < 0 ? -1 - step : step * micro_batches + m;
}
void dlb_program_print(const struct dlb_program *g, FILE *f);
int dlb_program_find_place(const struct dlb_node_program *p, int tensor, int micro_batch);	/* -1: none */
/* The same, or the place of the tensor that t is a view of, or of all micro-batches. */
int dlb_program_place_of(const struct dlb_node_program *np, const struct dlb_graph *g, int t, int m);
/* Output 0 of a view op shares input 0's place if that is in the arena (input 0 is neither state nor a
 * constant): the op costs nothing and the executor skips its COMPUTE. A view of state is copied by a
 * kernel. dlb_graph_view_of: the tensor whose bytes tensor t shares on the node of t's producer, or -1. A
 * node that received t has it in a place of its own. */
int dlb_graph_view_of(const struct dlb_graph *g, int tensor);
bool dlb_graph_is_view(const struct dlb_graph *g, int op);
/* Whether op's class lets output 0 overwrite input k: equal type, shape and layout, not state, and no
 * other input is the same tensor. */
bool dlb_graph_may_overwrite(const struct dlb_graph *g, int op, int k);
/* The gradient that an update op reads; -1: none. */
int dlb_update_gradient(const struct dlb_graph *g, int update);
/* Sorts the n updates of a replica's node by the start of the sums that they wait for, that is, by the
 * last gradient of their bucket. Updates without sums come first. */
void dlb_plan_sort_updates(const struct dlb_graph *g, struct dlb_item *update, int n);
/* Whether only update reads its gradient and the tensor that it is a view of, and it is computed on
 * update's node: then sums over replicas may be in place. */
bool dlb_gradient_is_own(const struct dlb_graph *g, const int *placement, int update);
/* Whether update's gradient is summed into state first: with several micro-batches; for a layer of K-FAC;
 * with replicas, if it cannot be summed in place, or if it waits for others while the next step runs. */
bool dlb_program_sums(const struct dlb_program *g, int update);
/* places of that sum; 1 except under asynchronous schedules */
int dlb_program_sum_places(const struct dlb_node_program *np, int update);
/* The number of sums over the batch that op computes before its outputs (dlb_op_class.sums); 0: none. */
int64_t dlb_graph_sums(const struct dlb_graph *g, int op, int64_t *n_own);
/* The scope of the statistics of g's batch normalizations under p: "all" replicas, or each "replica";
 * NULL: no such normalization, or one replica. */
const char *dlb_plan_batch_statistics(const struct dlb_plan *p, const struct dlb_graph *g);
/* The op whose node holds a weight or buffer: its home, else its first reader; -1: it is not read. */
int dlb_graph_home(const struct dlb_graph *g, int tensor);
/* Whether tensor t is read on `node` only, and not after the step. */
bool dlb_tensor_goes_only_to(const struct dlb_graph *g, const int *placement, int t, int node);
/* training data: every reading node has its own COPY */
bool dlb_tensor_is_fed(const struct dlb_tensor *t);
/* weight, buffer, constant: outside the arena on its own node */
bool dlb_tensor_is_state(const struct dlb_tensor *t);

/* ---- rank 0 reads for all (feed_load.c) ---- */
/* The rank to which rank 0 sends node's share: the first of the node's group, or the node itself. */
int dlb_feed_via(const struct dlb_cluster *c, int n_nodes, int node);
/* Bytes before the samples in a message with a share: weight and seeds. Each tensor then begins at a
 * multiple of 64 bytes. */
size_t dlb_feed_header_bytes(const struct dlb_program *of_node);
size_t dlb_feed_bytes(const struct dlb_program *g, int node);
/* Per step: [node] bytes it sends, seconds in which it copies them (links that do not overlap with work);
 * least_s: seconds of the busiest link, a lower bound of the step. */
struct dlb_feed_load { double *bytes, *copy_s, least_s; };
void dlb_feed_load_init(struct dlb_feed_load *load, const struct dlb_program *g, const struct dlb_cluster *c);
void dlb_feed_load_release(struct dlb_feed_load *load);

/* ---- the simulator: walks the program with the cost model ---- */
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
	/* its messages: under way; under way while nobody waited for them */
	double comm_s, comm_hidden_s;
	/* sums over replicas: under way; waited for */
	double sum_s[DLB_N_SUM_CLASSES], sum_wait_s[DLB_N_SUM_CLASSES];
	double command_s;			/* --sync: waited for the command to sum */
};
struct dlb_timeline {
	struct dlb_span **span; int *n_spans;		/* [node]; NULL without keep_spans */
	struct dlb_node_times *node;
	/* asynchronous: this and all other times are of the steady state */
	double step_s;
	/* seconds of filling and draining the pipeline per run */
	double fill_s;
	/* rank 0 reads for all: bytes sent by all; wait at the step's end */
	double feed_bytes, feed_wait_s;
};
/* Seconds of the sum of n elements by `how` between the nodes of node k's part, without other traffic; if
 * weights are averaged (plan->sharing), the mean per step. */
double dlb_plan_sum_s(const struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_allreduce *how,
		      int k, int64_t n, int element_bytes);
/* The directions that the sum uses, each with the fraction of the sum's time in which it is busy, up to 1.
 * Returns their number; busy has room for all directions of the cluster. 0 if weights are averaged: these
 * come in bursts. */
struct dlb_direction_load { struct dlb_direction direction; double load; };
int dlb_plan_sum_directions(const struct dlb_plan *p, const struct dlb_cost *c,
			    const struct dlb_allreduce *how, int k, int64_t n, int element_bytes,
			    struct dlb_direction_load *busy);
/* Seconds of bucket b of part k, compressed as planned. */
double dlb_plan_bucket_s(const struct dlb_program *g, const struct dlb_cost *c, int k, int b);
struct dlb_sum_tensor;
/* Sets what is known of a bucket's i-th tensor before the run: shape as a matrix, id and name of its
 * weight (of a factor: the layer's weight). */
void dlb_bucket_tensor(const struct dlb_graph *g, const struct dlb_bucket *b, int i,
		       struct dlb_sum_tensor *a);
/* Whether K-FAC's factors come back from the other replicas as their Cholesky factors. */
/* The compression of a class of sums (enum dlb_sum_class; comm/compress.h), without its first step. None
 * if auto has not chosen. */
struct dlb_compress_choice dlb_plan_compress(const struct dlb_plan *p, int cls);
/* The same; if the plan has no rank, with the one for the budget of all gradients. */
struct dlb_compress_choice dlb_program_compress(const struct dlb_program *g, int cls);
bool dlb_plan_factors_come_factored(const struct dlb_plan *p);
/* bytes[class] that `node` sends for its buckets per step. */
void dlb_plan_sum_bytes(const struct dlb_program *g, const struct dlb_cluster *c, int node,
			double bytes[DLB_N_SUM_CLASSES], double dense_bytes[DLB_N_SUM_CLASSES]);
/* node_scale[node] multiplies its compute times (NULL: 1), jitter: relative sd of op times drawn from seed
 * (0: none). With keep_spans the time-line is kept. */
struct dlb_simulate_choice { const double *node_scale; double jitter; uint64_t seed; bool keep_spans; };
/* `t` is released by dlb_timeline_release. */
int dlb_program_simulate(const struct dlb_program *g, const struct dlb_cost *c,
			 const struct dlb_simulate_choice *choice, struct dlb_timeline *t,
			 struct dlb_error *err);
void dlb_timeline_release(struct dlb_timeline *t, int n_nodes);
#endif
