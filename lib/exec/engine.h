/* The state of a rank, and a program made ready to run. Private to lib/exec.
 *
 *     state     weights, buffers, gradient sums, optimizer state of this node, constants (state.c)
 *     memories  binds its buffers to the node's memories (memories.c)
 *     runtime   the back end, the messages, one arena and one scratch area that all programs share
 *     engine    a compiled program with its kernels prepared and every pointer fixed (engine.c, step_op.c)
 *     slow      makes a node slower than it is (slow.h)
 *     feed      the thread that prepares the next step's samples (feed.c)
 *     record    times of a sample of the steps, in fixed memory (record.c)
 *
 * A run has a few engines over one runtime: full batches, the epoch's short last one, evaluation. */
#ifndef DLB_EXEC_ENGINE_H
#define DLB_EXEC_ENGINE_H
#include "comm/comm.h"
#include "data/data.h"
#include "exec/slow.h"
#include "optim/optim.h"
#include "plan/program.h"
#include "plan/timeline.h"

enum { DLB_MAX_STATES = 3 };

/* ---- state.c ---- */
struct dlb_state {
	const struct dlb_graph *graph;
	struct dlb_backend *be;
	const int *placement;			/* of this node's replica */
	const int *first_placement;	/* of replica 0, whose copy checkpoints and saved weights hold */
	int node, rule, n_slots;
	void **value;				/* [tensor] weights and buffers of this node, else NULL */
	void **slot[DLB_MAX_STATES];		/* [tensor] optimizer states of this node's weights */
	void **sum;	/* [op] gradient sums of this node's updates; dlb_program_sum_places places each */
	char **copy;	/* [tensor] copies of weights for asynchronous programs, dlb_place_bytes apart */
	size_t *sum_bytes, *copy_bytes;		/* bytes of each, with all places */
	struct dlb_comm *comm;			/* whose ranks of this host see the sums; NULL: none does */
	struct dlb_state_constant {
		int tensor;
		int64_t n;
		void *p;
	} * constant;
	int n_constants, cap_constants;
	struct dlb_arena arena;
};
/* The graph as one node sees it, whose ops are those with placement[op] == node. be: its device. */
struct dlb_local_graph {
	const struct dlb_graph *graph;
	struct dlb_backend *be;
	const int *placement;
	int node;
};
/* Allocates and zeroes. all_sums: a sum for every gradient, else for K-FAC's layers and, with replicas (their
 * comm, or NULL), for the gradients that cannot be summed where they lie. */
int dlb_state_init(struct dlb_state *s, const struct dlb_local_graph *l, int rule, bool all_sums,
		   struct dlb_comm *replicas, struct dlb_error *err);
/* Whether this rank is of replica 0, whose copy checkpoints and saved weights hold. */
static inline bool dlb_state_is_kept(const struct dlb_state *s) { return s->placement == s->first_placement; }
void dlb_state_release(struct dlb_state *s);
/* The node that holds a weight or buffer; -1: no op reads it. */
int dlb_state_home(const struct dlb_graph *g, const int *placement, int tensor);
/* Allocates the copies of weights and the places of gradient sums that these programs need on this node. */
int dlb_state_add_copies(struct dlb_state *s, const struct dlb_program *p, int n_programs,
			 struct dlb_error *err);
/* Sets weights and buffers to the graph's data; those without data, or all with init, are drawn from seed. */
int dlb_state_load_graph(struct dlb_state *s, bool init, uint64_t seed, struct dlb_error *err);
/* A constant at n samples in the back end's memory, made at the first call. NULL with err: no memory. */
void *dlb_state_constant(struct dlb_state *s, const struct dlb_graph *g, int tensor, int64_t n,
			 struct dlb_error *err);
/* init.c: fresh values of weight t, by the op that reads it: He for convolutions and dense layers (uniform,
 * PyTorch's default bound), ones and zeros for normalization, zeros for biases. Element i depends on (seed,
 * name, i) alone. */
void dlb_weight_draw(const struct dlb_graph *g, int t, uint64_t seed, void *dst);

/* ---- memories.c ---- */
struct dlb_memories;
/* For a node that names n memories. *out is NULL for fewer than two; then the functions below do nothing. */
void dlb_memories_new(struct dlb_memories **out, struct dlb_binder *binder, int n,
		      const struct dlb_memory_use *use);
void dlb_memories_free(struct dlb_memories *m);
/* Binds the next `bytes` of kind `what`, at p, to the memory that the program counts them in. */
int dlb_memories_put(struct dlb_memories *m, enum dlb_buffers what, void *p, size_t bytes,
		     struct dlb_error *err);
int dlb_memories_put_state(struct dlb_memories *m, const struct dlb_state *s, struct dlb_error *err);

/* ---- engine.c ---- */
struct dlb_sync;				/* sync/sync.h */
struct dlb_kfac;
struct dlb_runtime {
	struct dlb_backend *be;
	struct dlb_comm *comm;
	struct dlb_state *state;
	struct dlb_memories *memories;
	const struct dlb_cost *cost;		/* for durations of messages; NULL: unknown */
	struct dlb_kfac *kfac;			/* K-FAC's layers of this node (kfac.h); NULL: none */
	struct dlb_compress_state *compress;		/* state of compression from step to step; borrowed */
	int64_t last_step;			/* of the run; INT64_MAX: not known */
	/* all ranks, for the norms of asynchronous steps; NULL: alone, or no clipping */
	struct dlb_subset *norms;
	const struct dlb_cluster *cluster;	/* for sums by groups; NULL: no replicas */
	struct dlb_sync *averages;	/* of weights, in place of sums of gradients; NULL: none; borrowed */
	char *arena; size_t arena_bytes;
	bool arena_is_shared;			/* in the comm's shared memory, else the back end's */
	/* Messages of these programs between ranks of one host go through shared memory, into the receiver's
	 * arena. */
	const struct dlb_program *program; int n_programs;
	struct dlb_cell *cells;
	/* [rank] NULL: not on this host; cells: one for each tag, program after program */
	char **arena_of; struct dlb_cell **cell_of;
	void *scratch; size_t scratch_bytes;
	struct dlb_slow slow;
};
/* The samples of a step: data and labels by (tensor, m) at the engine's offsets, seeds by m. weight: of this
 * replica's loss in the step's loss. */
struct dlb_fed { char *base; double *seed; double weight; };
struct dlb_feed_item { int tensor, micro_batch; int64_t first, n; size_t bytes, offset; };
struct dlb_step {
	int64_t step;				/* global, from 0 */
	uint64_t seed, version;
	double rate, rate_before; bool has_rate;	/* learning rates of this step and the one before */
	const struct dlb_fed *fed;
};
struct dlb_step_times {
	/* Seconds that messages took; of those, the seconds in which this node computed. Copies to a node of
	 * this host are measured. Times of MPI's messages are computed from the links; the part that was not
	 * waited for counts as hidden. */
	double comm_s, comm_hidden_s;
	double in_place_bytes;			/* of messages that a kernel wrote in the receiver's memory */
	double step_s, busy_s, waits_s[DLB_N_WAITS], bytes_sent, data_wait_s;
	/* synchronisation of replicas (sync/sync.h); waits for the command (--sync) */
	double sum_s, sum_hidden_s, command_s;
	double class_s[DLB_N_SUM_CLASSES], class_hidden_s[DLB_N_SUM_CLASSES];
};
/* An iteration of the loop over steps first .. end - 1, with an empty pipeline before and after them. Step s
 * is step[s % n]; the steps of the iteration are among these n. */
struct dlb_iteration { int64_t iteration, first, end; const struct dlb_step *step; int64_t n; };

struct dlb_engine;				/* engine.c */
struct dlb_engine_program {			/* the public part of an engine */
	const struct dlb_program *program;
	int node;
	struct dlb_feed_item *feed; int n_feed; size_t feed_bytes;
	int n_computes;				/* kernels that run in a step */
	int *compute_op, *compute_m;	/* [n_computes]; op: the graph's; for an accumulate, its update op */
	/* false: an accumulate, or the first half of an op whose second half is the next compute */
	bool *compute_is_op;
	double *start_s, *end_s;		/* [n_computes] of the last step, from its start */
	/* [rank] waits of the last step for messages from that node, or for it to take them */
	double *wait_for_s; int n_peers;
	int64_t shrunk;				/* count of the updates so far (dlb_update_desc) */
	int not_finite;	/* the first weight of a convolution that an update made not finite; -1: none */
	/* of the last step; the caller fills step_s, collective and data_wait_s */
	struct dlb_step_times times;
};
/* Prepares every kernel and pointer of runtime->comm's rank. tensor_of: [tensor of p's graph] the id in the
 * state's graph; NULL: the same graph. runtime->arena must hold the program's arena when it runs;
 * runtime->scratch_bytes grows. */
int dlb_engine_new(struct dlb_engine **out, struct dlb_runtime *runtime, const struct dlb_program *p,
		   int node, const struct dlb_optimizer_choice *optimizer, const int *tensor_of,
		   struct dlb_error *err);
void dlb_engine_free(struct dlb_engine *e);
struct dlb_engine_program *dlb_engine_view(struct dlb_engine *e);
/* The kernel of compute i. */
const struct dlb_kernel *dlb_engine_kernel(const struct dlb_engine *e, int i);
/* Runs one step. -1: the comm broke (err). */
int dlb_engine_run(struct dlb_engine *e, const struct dlb_step *s, struct dlb_error *err);
/* NULL: this node synchronises nothing. */
const struct dlb_sync *dlb_engine_sync(const struct dlb_engine *e);
/* Runs one iteration of an asynchronous program; of any other program, its one step. */
int dlb_engine_run_iteration(struct dlb_engine *e, const struct dlb_iteration *w, struct dlb_error *err);
/* The loss of a step whose last iteration has run; as dlb_engine_loss. */
double dlb_engine_loss_of(const struct dlb_engine *e, const struct dlb_step *s);
/* Sum over m of seed_m * loss_m in double, of the losses computed on this node; 0: another node computes
 * them. */
double dlb_engine_loss(const struct dlb_engine *e, const double *seed);
/* The address of (tensor, m) on this node after a run; NULL: it is on another node. */
const void *dlb_engine_at(const struct dlb_engine *e, int tensor, int m);

/* ---- runtime.c ---- */
/* Zeroed memory. Where ranks share this host and the back end computes in host memory, the ranks see it;
 * else, and for c NULL, it is the back end's own. NULL: no memory. */
void *dlb_visible_alloc(struct dlb_comm *c, struct dlb_backend *be, size_t bytes);
void dlb_visible_free(struct dlb_comm *c, struct dlb_backend *be, void *p);
/* Allocates the arena for the engines over this runtime. Collective. p: the same programs on all ranks,
 * borrowed as long as the runtime (n = 0: none); their messages inside a host go through shared memory. */
int dlb_runtime_ready(struct dlb_runtime *g, size_t arena_bytes, const struct dlb_program *p, int n_programs,
		      int node, struct dlb_error *err);
void dlb_runtime_release(struct dlb_runtime *g);
/* The cell of tag 0 in node's program p; -1: p is not one of the runtime's programs. */
int dlb_runtime_first_cell(const struct dlb_runtime *g, const struct dlb_program *p, int node);

/* ---- feed.c ---- */
struct dlb_feed;
struct dlb_dispatch;
/* The engines that are fed. Engine i runs program[i] (of the whole plan). slots: steps that are kept, at
 * least two. */
struct dlb_fed_engines {
	struct dlb_engine *const *engine;
	const struct dlb_program *program;
	int n, slots;
};
/* Reads ahead for any of the engines; data is borrowed. dispatch: rank 0 reads for all (data is NULL
 * elsewhere); NULL: each node reads its own. */
int dlb_feed_new(struct dlb_feed **out, struct dlb_data *data, const struct dlb_fed_engines *fed,
		 struct dlb_dispatch *dispatch, struct dlb_error *err);
void dlb_feed_free(struct dlb_feed *f);
/* Number of steps after the one in use that should be asked for. */
int dlb_feed_ahead(const struct dlb_feed *f);
/* Asks for the samples from `first` of `epoch` on, for engine `which`. -1: the comm
 * broke; likewise for the next two. */
int dlb_feed_ask(struct dlb_feed *f, int which, int64_t epoch, int64_t first, struct dlb_error *err);
/* Waits for the oldest samples asked for; valid until the slots-th dlb_feed_ask from now. *wrong -1 with why:
 * a sample could not be read; zeros stand in its place, so that the step can run and all ranks end after it
 * together. */
int dlb_feed_take(struct dlb_feed *f, const struct dlb_fed **fed, int *wrong, struct dlb_error *why,
		  struct dlb_error *err);
/* Waits until nothing that was asked for is under way; collective. */
int dlb_feed_settle(struct dlb_feed *f, struct dlb_error *err);

/* ---- record.c ---- */
enum { DLB_RECORD_SLOTS = 64, DLB_RECORD_STEPS = 4096 };
struct dlb_record {
	int n_computes;
	int64_t seen;				/* steps offered */
	int64_t stride, step_stride;
	int n_slots, n_steps;
	double *start_s, *end_s;		/* [slot][compute] */
	double *slot_step_s;			/* [slot] */
	struct dlb_step_times *step;		/* [n_steps] */
};
void dlb_record_init(struct dlb_record *r, int n_computes);
void dlb_record_release(struct dlb_record *r);
/* Keeps a step or leaves it out. When the places are full, every second one is given up. Does not
 * allocate. */
void dlb_record_add(struct dlb_record *r, const struct dlb_engine_program *e);
#endif
