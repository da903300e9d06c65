/* The program: what each node does, instruction by instruction. One compiler, two interpreters.
 *
 *     POST   t m peer     give the arena's place for tensor t of micro-batch m to a message from peer
 *     WAIT   t m peer     that message has come (recv) -- or, with sent set, the send has left
 *     SEND   t m peer     start sending t of m
 *     COMPUTE op m        run the op's kernel; accumulate, pack and update are COMPUTE too (see `what`)
 *     COLLECTIVE          all nodes of a group together (`what` says which)
 *     COPY   t m          bring a fed tensor (samples, labels, seed) into the arena
 *     FREE   t m          its place may be used again
 * m = -1: once per step (weights, updates). A program is prologue, loop (one step of a synchronous
 * schedule) and epilogue. iteration and version offsets are 0 under synchronous schedules. Under asynchronous ones
 * (async.c) the loop is run for i = 0, 1, ..., and an instruction with iteration k belongs to step i - k: it is left
 * out where there is no such step. Prologue and epilogue are iterations of which something is left out, so they
 * take no room of their own. An op with version v reads the weights that lived v updates before those of its step (never
 * older ones than those that the run, or what followed a drain, began with).
 *
 * Memory: state (weights, gradient sums, optimizer state, buffers, constants) has fixed places; every
 * other (tensor, m) has an offset in the arena from its first instruction to its FREE; the offsets
 * are chosen by the compiler (best fit over intervals in program order), so the step allocates nothing.
 * A place that lives on into the next iterations so long that its own next use would meet it has several copies,
 * one after the other: step s uses copy s mod copies. One that only reaches into the next has last < first.
 * View ops (Reshape, Flatten, Identity) share their input's place. So does, with plan->in_place, the output of
 * an op whose class allows it to overwrite an input (dlb_op_class.overwrite), when for every micro-batch that op is
 * the last on its node to read the input, or what is a view of it, and no message of it is still under way. It
 * depends on placement and schedule which ops those are, hence it is decided here and not on the graph; the bits
 * do not depend on it.
 *
 * A message between nodes that share memory, of a tensor that other ops read too, is zero-copy: the receiver reads it
 * in the sender's memory. The sender's WAIT sent ends with the receiver's FREE (peer: the sender, and the message's tag).
 * The receiver has a place for it too, for a run where memory is not shared; no op overwrites that place.
 *
 * In the loop, sends of state (m = -1) come first; each (op, m) is preceded by the COPYs and WAITs it needs and
 * followed by its SENDs; WAIT sent stands just before the FREE of what was sent, where the schedule expects the
 * receiver to have it; the loop ends with COLLECTIVE step-end and the FREEs of what the step leaves to be read
 * (the loss; in a graph without backward also the outputs). With M > 1 the update's gradient (op = update op)
 * is summed by ACCUMULATE m = 0 .. M-1 into state; m = 0 sets, the others add. With one micro-batch the update
 * reads the gradient (tensor, 0) from the arena.
 *
 * Replicas: each is compiled by itself over its share of the batch (first[] counts from the step's first sample).
 * Node k's of every replica sum their gradients, in state or where they lie: COLLECTIVE reduce b starts bucket b when its
 * last gradient is there, COLLECTIVE reduced b waits for it before its first update; updates come last. With plan->sync
 * no reduce starts before COLLECTIVE computed, which all nodes pass together. Where weights are averaged in place of
 * sums (plan->sharing: gossip, a parameter server, a mean every so many steps), reduce b stands behind the last update of
 * the bucket's weights and reduced b before the end of the step; which of them travel in a step is the executor's.
 * With K-FAC (optim/kfac.h), the update of a layer's weight sums two more tensors, micro-batch by micro-batch, into the
 * second moments A and G; their averages are a bucket of replicas like gradients, which goes out when a new inverse is due
 * (plan->inverse_every). COMPUTE precondition (op = that update) makes of the sums of gradients what is applied; COLLECTIVE
 * trust, behind those of all layers and before the first update, adds up over all nodes how far that goes. Gradients of such
 * layers are always summed into state, and updates come last.
 * With plan->clip, COLLECTIVE norm stands after each node's last gradient and before its first update: the squares of
 * every gradient are summed over all nodes, and no node passes before all have come. Updates then stand last. Under
 * asynchronous schedules COLLECTIVE squares makes them when the step's last gradient is there on all nodes, COLLECTIVE norm
 * waits for their sum, and the updates follow it (async.c).
 *
 * Replicas under an asynchronous schedule go round one loop, with as many micro-batches; each sums the gradients of a step
 * into state when its last micro-batch's is there, and the bucket is waited for before the step's first update of it.
 *
 * With plan->sync_batchnorm an op that sums over its batch (dlb_op_class.sums) runs in two halves: COMPUTE sums op m,
 * COLLECTIVE reduce b m, COLLECTIVE reduced b m, COMPUTE op m, where bucket b is that op's sums. These wait for each other
 * in the middle of the step, so all replicas run one order, replica 0's, and as many micro-batches; micro-batch m of all
 * of them together are samples that follow one another, as in micro-batch m of one node.
 *
 * Messages between one pair of nodes are matched by tag = index of (tensor, m) in program->message. */
#ifndef DLB_PLAN_PROGRAM_H
#define DLB_PLAN_PROGRAM_H
#include "plan/plan.h"

enum dlb_verb { DLB_POST, DLB_WAIT, DLB_SEND, DLB_COMPUTE, DLB_COLLECTIVE, DLB_COPY, DLB_FREE, DLB_N_VERBS };
enum dlb_what { DLB_RUN_OP, DLB_RUN_ACCUMULATE, DLB_RUN_UPDATE, DLB_RUN_STEP_END,
		DLB_RUN_COMPUTED, DLB_RUN_REDUCE, DLB_RUN_REDUCED,	/* of COLLECTIVE; tag: the bucket */
		DLB_RUN_SQUARES, DLB_RUN_NORM, DLB_RUN_TRUST,
		DLB_RUN_SUMS,			/* of COMPUTE: the first half of an op; RUN_OP is its second then */
		DLB_RUN_KEEP, DLB_RUN_PREDICT,	/* copies of weights; op: the update op */
		DLB_RUN_PRECONDITION };		/* K-FAC; op: the update op of the layer's weight */

struct dlb_instr {
	unsigned char verb, what;
	bool sent;			/* WAIT: for a send of ours to have left */
	bool zero_copy;			/* of a message that the receiver may read in the sender's memory: SEND, POST, both WAITs, and the FREE of its place */
	int op, tensor;			/* -1 when not meant; ACCUMULATE: op = update op, tensor = the gradient */
	int micro_batch, iteration, version;
	int peer, tag;			/* messages */
};
#define DLB_PLACE_ALIGN 64
static inline size_t dlb_place_bytes(size_t bytes)
{
	return (bytes + DLB_PLACE_ALIGN - 1) / DLB_PLACE_ALIGN * DLB_PLACE_ALIGN + (bytes ? 0 : DLB_PLACE_ALIGN);
}
struct dlb_place {
	int tensor, micro_batch;
	size_t offset, bytes;
	int first, last;		/* instruction interval */
	int of;				/* tensor whose place this is too, as a view of it or written over it; -1: its own */
	int copies;			/* dlb_place_bytes(bytes) apart */
};
/* A weight that is updated here, and what its readers of the forward phase see of the updates. Under asynchronous schedules. */
struct dlb_weight_copies {
	int tensor, update;		/* its update op */
	int n;				/* copies beside the weight itself */
	int sums;			/* places for its gradient's sum: step s uses number s mod sums */
	int least, most;		/* updates that readers are behind (predict: that are foreseen) */
	int distance;			/* predict: of the prediction */
	int first, last, next;		/* async.c's own */
};
/* Gradients that are summed over the replicas together: those of update ops op[0 .. n_ops). A large one travels alone.
 * Or (statistics) the f64 sums of op[0], once a micro-batch; n_own more of them stay where they are. Or (factor) K-FAC's
 * A and G of each layer whose weight op[] updates, of each of its groups if it has some: op[] then names it as often. */
enum dlb_sum_class { DLB_SUM_FACTOR, DLB_SUM_GRADIENT, DLB_SUM_SMALL, DLB_SUM_STATISTICS, DLB_N_SUM_CLASSES };
struct dlb_bucket {
	const int *op; int n_ops;
	int64_t n, n_own;		/* elements */
	enum dlb_sum_class cls;
	int element_bytes;
	const struct dlb_allreduce *how;
};
static inline int dlb_bucket_group(const struct dlb_bucket *b, int i)	/* of factors: which of its layer's groups op[i] stands for */
{
	int group = 0;
	while (group < i && b->op[i - group - 1] == b->op[i])
		group++;
	return group;
}
static inline int dlb_bucket_n_tensors(const struct dlb_bucket *b) { return b->cls == DLB_SUM_FACTOR ? 2 * b->n_ops : b->n_ops; }
#define DLB_BUCKET_BYTES (256 * 1024)		/* smaller gradients share buckets of about this size */
struct dlb_node_program {
	struct dlb_instr *instr; int n_instr;
	int n_prologue, n_loop;		/* instr = prologue, loop, epilogue */
	struct dlb_place *place; int n_places;	/* sorted by (tensor, micro_batch) */
	size_t arena_bytes, scratch_bytes, state_bytes, bound_bytes;	/* bound: most live bytes at any time */
	size_t weights_bytes;		/* of state_bytes: weights, their copies and packed forms, running statistics, constants */
	const struct dlb_memory_use *use;	/* which of the node's memories hold what (memories.c); NULL: it names none */
	struct dlb_bucket *bucket; int n_buckets;	/* in the order in which backward makes them, then factors, then statistics; of one
							 * replica: none */
	struct dlb_weight_copies *weight; int n_weights;	/* asynchronous: weights updated here */
};
struct dlb_program {
	struct dlb_arena arena;
	int n_nodes, micro_batches, n_messages;
	bool async;			/* by an asynchronous schedule: losses are not kept to the end of the step */
	bool keeps_longer;		/* places are kept until others have read them there (zero_copy.c) */
	int depth;			/* iterations that a step is spread over, less one; 0: nothing of two steps meets */
	int steps;			/* 1; of dlb_program_unroll's */
	enum dlb_staleness staleness;	/* the rule in use */
	int64_t batch, *size;		/* size[m]: samples of micro-batch m */
	int64_t *first;			/* first[m]: its first sample in the batch */
	struct dlb_node_program *node;
	const struct dlb_graph *graph;	/* borrowed */
	const struct dlb_plan *plan;	/* borrowed */
	/* With replicas, a program holds replica 0's and `other` those of replicas 1, 2, ...; n_nodes is the same in all,
	 * and a node has instructions in its own replica's only. `plan` is then that replica's part of the plan. */
	bool replicated;
	int replica, n_replicas;
	struct dlb_program *other;
	const int *replica_of;		/* [node]; NULL: one replica */
	int64_t step_batch;		/* samples of the whole step; `batch` is this replica's share */
	bool weightless;		/* fewer samples than replicas: computes a sample that counts nothing */
	int *statistics;		/* [op] the bucket of its sums, which makes it run in halves, or -1; NULL: none does */
	int most_rank;			/* of all gradients, by a compression that has one budget for them (dlb_compress_budget); else 0 */
	struct dlb_plan *part;		/* owned; plan points here */
	const struct dlb_plan *whole;	/* borrowed: the plan of all replicas; plan itself where there is one */
};
/* The program that `node` runs, of those in g (a replica's own program: itself). */
const struct dlb_program *dlb_program_of(const struct dlb_program *g, int node);
/* Replica r's program; r = 0: g itself. */
static inline const struct dlb_program *dlb_program_replica(const struct dlb_program *g, int r)
{
	return r ? &g->other[r - 1] : g;
}
/* Compiles plan's order for `batch` samples (the plan's batch, or less: the epoch's short last one).
 * n_state: optimizer states per weight. */
int dlb_program_compile(const struct dlb_plan *p, const struct dlb_cost *c, int64_t batch, int n_state,
			struct dlb_program *out, struct dlb_error *err);
void dlb_program_release(struct dlb_program *g);
/* Proves: every SEND has its POST and WAIT and sizes agree; no order can deadlock, with sends that wait
 * for their receiver; every tensor is written before it is read and not after it is freed; places that
 * live together do not overlap; peak fits each node's memory (else err->status 1: names node, needs, has). */
int dlb_program_verify(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err);
/* `steps` steps of g from an empty pipeline to an empty one, written out instruction by instruction: places have no
 * copies, micro-batch m of step s is called s * M + m and -1 of it -1 - s, each message has a tag of its own, and
 * dlb_instr.iteration is the step. For the proofs and the simulator. */
void dlb_program_unroll(const struct dlb_program *g, int steps, struct dlb_program *out);
static inline int dlb_unrolled(int micro_batches, int step, int m) { return m < 0 ? -1 - step : step * micro_batches + m; }
void dlb_program_print(const struct dlb_program *g, FILE *f);
int dlb_program_find_place(const struct dlb_node_program *p, int tensor, int micro_batch);	/* -1: none */
/* The same, or that of what t is a view of, or of all micro-batches together. */
int dlb_program_place_of(const struct dlb_node_program *np, const struct dlb_graph *g, int t, int m);
/* Output 0 of a view op shares input 0's place when that lies in the arena (input 0 is neither state nor a
 * constant): the op costs nothing and the executor skips its COMPUTE. A view of state is a copying kernel.
 * dlb_graph_view_of: the tensor whose bytes tensor t has where t's producer runs, or -1. A node that got t by
 * message has it in a place of its own. */
int dlb_graph_view_of(const struct dlb_graph *g, int tensor);
bool dlb_graph_is_view(const struct dlb_graph *g, int op);
/* Op's class lets output 0 overwrite input k here: the same type, shape and layout, nothing of state, and no other
 * input is the same tensor. */
bool dlb_graph_may_overwrite(const struct dlb_graph *g, int op, int k);
/* The gradient that an update op reads; -1: none. */
int dlb_update_gradient(const struct dlb_graph *g, int update);
/* Puts the n updates of a node of a replica in the order in which the sums that they wait for begin: by the last gradient that
 * is made of those that share a bucket. What needs none comes first. */
void dlb_plan_sort_updates(const struct dlb_graph *g, struct dlb_item *update, int n);
/* Nobody but update reads its gradient, nor what that is a view of, and it is made on update's node: sums over replicas
 * may be made where it lies. */
bool dlb_gradient_is_own(const struct dlb_graph *g, const int *placement, int update);
/* Whether update's gradient is summed into state first: of several micro-batches; of a layer of K-FAC; or of replicas,
 * where it cannot be summed where it lies; or where it waits for others while the next step is under way. */
bool dlb_program_sums(const struct dlb_program *g, int update);
int dlb_program_sum_places(const struct dlb_node_program *np, int update);	/* of it; 1, but under asynchronous schedules */
/* How many sums over the batch op makes before its outputs (dlb_op_class.sums); 0: none. */
int64_t dlb_graph_sums(const struct dlb_graph *g, int op, int64_t *n_own);
/* Whose micro-batches the statistics of g's normalizations are of under p: "all" replicas' together, each "replica"'s;
 * NULL: there are none, or one replica. */
const char *dlb_plan_batch_statistics(const struct dlb_plan *p, const struct dlb_graph *g);
/* The op on whose node a weight or buffer lives: its home, else its first reader; -1: nobody reads it. */
int dlb_graph_home(const struct dlb_graph *g, int tensor);
/* Whether tensor t is read on `node` and on no other, nor by anybody when the step is over. */
bool dlb_tensor_goes_only_to(const struct dlb_graph *g, const int *placement, int t, int node);
bool dlb_tensor_is_fed(const struct dlb_tensor *t);		/* every node that reads it brings it itself (COPY) */
bool dlb_tensor_is_state(const struct dlb_tensor *t);		/* weight, buffer, constant: no place in the arena at home */

/* ---- rank 0 reads for all (feed_load.c) ---- */
/* The rank to which rank 0 sends node's share: the first of its group, or the node itself. */
int dlb_feed_via(const struct dlb_cluster *c, int n_nodes, int node);
/* A share as it travels: weight and seeds, then the samples of a step, each tensor from a multiple of 64 bytes on. */
size_t dlb_feed_header_bytes(const struct dlb_program *of_node);
size_t dlb_feed_bytes(const struct dlb_program *g, int node);
/* Of a step: [node] bytes it sends, seconds in which it copies them (links that do not overlap with work); steps cannot
 * follow each other faster than least_s, in which the busiest link has carried its own. */
struct dlb_feed_load { double *bytes, *copy_s, least_s; };
void dlb_feed_load_init(struct dlb_feed_load *load, const struct dlb_program *g, const struct dlb_cluster *c);
void dlb_feed_load_release(struct dlb_feed_load *load);

/* ---- the simulator: walks the program with the cost model ---- */
enum dlb_wait { DLB_WAIT_STARVED, DLB_WAIT_BACKPRESSURE, DLB_WAIT_COLLECTIVE, DLB_WAIT_STRUCTURAL, DLB_N_WAITS };
struct dlb_node_times {
	double busy_s, wait_s, waits_s[DLB_N_WAITS], bytes_sent;
	double copy_s;				/* copying messages itself, where links do not overlap with work */
	double comm_s, comm_hidden_s;		/* messages that it sent: under way; while nobody waited for them */
	double sum_s[DLB_N_SUM_CLASSES], sum_wait_s[DLB_N_SUM_CLASSES];	/* sums over replicas: under way; waited for */
	double command_s;			/* --sync: waited for the command to sum */
};
struct dlb_timeline {
	struct dlb_span **span; int *n_spans;		/* [node]; NULL when not asked for */
	struct dlb_node_times *node;
	double step_s;					/* asynchronous: of the steady state, and so are all times here */
	double fill_s;					/* what filling and draining the pipeline adds to a run */
	double feed_bytes, feed_wait_s;			/* rank 0 reads for all: sent by all; what the step waits for it at the end */
};
/* Seconds that the sum of n elements by `how` takes alone between the nodes of node k's part; where weights are averaged
 * (plan->sharing), a step's part of that. */
double dlb_plan_sum_s(const struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_allreduce *how, int k, int64_t n, int element_bytes);
/* The directions that the sum keeps busy, and the share of that time in which it does, up to 1. Returns how many; busy has room for
 * all directions of the cluster. Averages come in bursts, of which a step's part is not anywhere: none. */
struct dlb_direction_load { struct dlb_direction direction; double load; };
int dlb_plan_sum_directions(const struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_allreduce *how, int k, int64_t n,
		       int element_bytes, struct dlb_direction_load *busy);
/* The seconds of bucket b of part k, as the plan compresses it. */
double dlb_plan_bucket_s(const struct dlb_program *g, const struct dlb_cost *c, int k, int b);
struct dlb_sum_tensor;
/* What is known of a bucket's i-th summand before it runs: shape as a matrix, id and name of its weight (of a factor: the
 * layer's). */
void dlb_bucket_tensor(const struct dlb_graph *g, const struct dlb_bucket *b, int i, struct dlb_sum_tensor *a);
/* Whether K-FAC's factors come back from the other replicas as their Cholesky factors. */
/* How sums of a class (enum dlb_sum_class) travel: comm/compress.h; where it starts is not settled. Whole where auto has not chosen. */
struct dlb_compress_choice dlb_plan_compress(const struct dlb_plan *p, int cls);
/* The same, with the rank that the model's gradients together have room for where the plan says none. */
struct dlb_compress_choice dlb_program_compress(const struct dlb_program *g, int cls);
bool dlb_plan_factors_come_factored(const struct dlb_plan *p);
/* bytes[class] that `node` sends for its buckets in a step. */
void dlb_plan_sum_bytes(const struct dlb_program *g, const struct dlb_cluster *c, int node, double bytes[DLB_N_SUM_CLASSES],
			double dense_bytes[DLB_N_SUM_CLASSES]);
/* node_scale[node] multiplies its compute times (NULL: 1), jitter: relative sd of op times drawn from seed
 * (0: none). With keep_spans the time-line is kept. `t` is released by dlb_timeline_release. */
int dlb_program_simulate(const struct dlb_program *g, const struct dlb_cost *c, const double *node_scale,
			 double jitter, uint64_t seed, bool keep_spans, struct dlb_timeline *t, struct dlb_error *err);
void dlb_timeline_release(struct dlb_timeline *t, int n_nodes);
#endif
