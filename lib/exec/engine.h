/* Inside lib/exec: what a rank holds, and a program made ready to run.
 *
 *     state     weights, buffers, gradient sums, optimizer state of this node, constants (state.c)
 *     memories  where its buffers lie, of the node's memories (memories.c)
 *     runtime   the back end, the messages, one arena and one scratch area that all programs share
 *     engine    a compiled program with its kernels prepared and every pointer fixed (engine.c, step_op.c)
 *     slow      a node that is to be slower than it is (slow.h)
 *     feed      the thread that prepares the next step's samples (feed.c)
 *     record    times of the steps, thinned out as they grow many (record.c)
 *
 * A run has a few engines over the same runtime: full batches, the epoch's short last one, evaluation. */
#ifndef DLB_EXEC_ENGINE_H
#define DLB_EXEC_ENGINE_H
#include "comm/comm.h"
#include "data/data.h"
#include "exec/slow.h"
#include "optim/optim.h"
#include "plan/program.h"

enum { DLB_MAX_STATES = 3 };

/* ---- state.c ---- */
struct dlb_state {
	const struct dlb_graph *graph;
	struct dlb_backend *be;
	const int *placement;			/* of this node's replica */
	const int *first_placement;		/* of replica 0, whose copy is what is kept */
	int node, rule, n_slots;
	void **value;				/* [tensor] weights and buffers that live here, else NULL */
	void **slot[DLB_MAX_STATES];		/* [tensor] optimizer states of the weights here */
	void **sum;				/* [op] gradient sums of updates here, as many places as dlb_program_sum_places */
	char **copy;				/* [tensor] copies of weights for asynchronous programs, dlb_place_bytes apart */
	size_t *sum_bytes, *copy_bytes;		/* of these, with all their places */
	struct dlb_comm *comm;			/* whose ranks of this host see the sums; NULL: nobody needs to */
	struct dlb_state_constant { int tensor; int64_t n; void *p; } *constant; int n_constants, cap_constants;
	struct dlb_arena arena;
};
/* Allocates and zeroes; with gradient sums: all of them, of K-FAC's layers, or with replicas (their comm, else NULL) of those
 * that cannot be summed where they lie. */
int dlb_state_init(struct dlb_state *s, const struct dlb_graph *g, struct dlb_backend *be, const int *placement, int node,
		   int rule, bool all_sums, struct dlb_comm *replicas, struct dlb_error *err);
/* Whether this rank holds the copy that is kept (checkpoints, saved weights): it is of replica 0. */
static inline bool dlb_state_is_kept(const struct dlb_state *s) { return s->placement == s->first_placement; }
void dlb_state_release(struct dlb_state *s);
/* The node on which a weight or buffer lives, -1: nobody needs it. */
int dlb_state_home(const struct dlb_graph *g, const int *placement, int tensor);
/* Room for the copies of weights, and the places of gradients' sums, that these programs want here. */
int dlb_state_add_copies(struct dlb_state *s, const struct dlb_program *p, int n_programs, struct dlb_error *err);
/* Weights and buffers from the graph's data; where it has none, or with init, drawn from seed. */
int dlb_state_load_graph(struct dlb_state *s, bool init, uint64_t seed, struct dlb_error *err);
/* A constant at n samples in the back end's memory, made when first asked for. NULL with err: no memory. */
void *dlb_state_constant(struct dlb_state *s, const struct dlb_graph *g, int tensor, int64_t n, struct dlb_error *err);
/* init.c: fresh values of weight t by the op that reads it: He for convolutions and dense layers (uniform,
 * PyTorch's default bound), ones and zeros for normalization, zeros for biases. Element i depends on
 * (seed, name, i) alone. */
void dlb_weight_draw(const struct dlb_graph *g, int t, uint64_t seed, void *dst);

/* ---- memories.c ---- */
struct dlb_memories;
/* For a node that names n memories; NULL where there are not two to choose from, and then all of this does nothing. */
void dlb_memories_new(struct dlb_memories **out, struct dlb_binder *binder, int n, const struct dlb_memory_use *use);
void dlb_memories_free(struct dlb_memories *m);
/* Binds the next `bytes` of that kind, at p, to where the program counts them. */
int dlb_memories_put(struct dlb_memories *m, enum dlb_buffers what, void *p, size_t bytes, struct dlb_error *err);
int dlb_memories_put_state(struct dlb_memories *m, const struct dlb_state *s, struct dlb_error *err);

/* ---- engine.c ---- */
struct dlb_sync;				/* sync/sync.h */
struct dlb_kfac;
struct dlb_runtime {
	struct dlb_backend *be;
	struct dlb_comm *comm;
	struct dlb_state *state;
	struct dlb_memories *memories;
	const struct dlb_cost *cost;		/* how long messages take; NULL: not told */
	struct dlb_kfac *kfac;			/* K-FAC's layers here (kfac.h); NULL: none */
	struct dlb_compress_state *compress;		/* what compression of sums keeps from step to step; borrowed */
	int64_t last_step;			/* that the run ends with; INT64_MAX: not known */
	struct dlb_subset *norms;		/* all ranks, for the norms of asynchronous steps; NULL: alone, or there are none */
	const struct dlb_cluster *cluster;	/* for sums that go by groups; NULL where there are no replicas */
	struct dlb_sync *averages;		/* of weights, in place of sums of gradients; NULL: none; borrowed */
	char *arena; size_t arena_bytes;
	bool arena_is_shared;			/* it is of the comm's shared memory, else of the back end's */
	/* Messages of these programs between ranks of one host go through shared memory: into the receiver's arena. */
	const struct dlb_program *program; int n_programs;
	struct dlb_cell *cells;
	char **arena_of; struct dlb_cell **cell_of;	/* [rank] NULL: not so with that rank; cells: a tag each, by program */
	void *scratch; size_t scratch_bytes;
	struct dlb_slow slow;
};
/* What a step brings along: samples and labels by (tensor, m) at offsets the engine chose, seeds by m. */
struct dlb_fed { char *base; double *seed; double weight; };	/* weight: of this replica's loss in the step's */
struct dlb_feed_item { int tensor, micro_batch; int64_t first, n; size_t bytes, offset; };
struct dlb_step {
	int64_t step;				/* global, from 0 */
	uint64_t seed, version;
	double rate, rate_before; bool has_rate;	/* learning rates of this step and the one before */
	const struct dlb_fed *fed;
};
struct dlb_step_times {
	/* Messages: seconds that they took, and of those the ones in which this node computed. Copying to a node of this
	 * host is measured; what MPI moves is reckoned by the links, and of its time what the wait for it did not take is hidden. */
	double comm_s, comm_hidden_s;
	double in_place_bytes;			/* of messages that a kernel wrote where they are read */
	double step_s, busy_s, waits_s[DLB_N_WAITS], bytes_sent, data_wait_s;
	double sum_s, sum_hidden_s, command_s;		/* synchronisation of replicas (sync/sync.h); waiting for the command (--sync) */
	double class_s[DLB_N_SUM_CLASSES], class_hidden_s[DLB_N_SUM_CLASSES];
};
/* An iteration of the loop, of a run of steps from `first` up to before `end` with an empty pipeline before and after. Step s is
 * step[s % n]; n covers those that the iteration has to do with. */
struct dlb_iteration { int64_t iteration, first, end; const struct dlb_step *step; int64_t n; };

struct dlb_engine;				/* engine.c */
struct dlb_engine_program {			/* what others may know of it */
	const struct dlb_program *program;
	int node;
	struct dlb_feed_item *feed; int n_feed; size_t feed_bytes;
	int n_computes;				/* kernels run a step */
	int *compute_op, *compute_m;		/* [n_computes]; op: the graph's, accumulate: its update op */
	bool *compute_is_op;			/* false: accumulate, or the first half of an op: the next compute is its second */
	double *start_s, *end_s;		/* [n_computes] of the last step, from its start */
	double *wait_for_s; int n_peers;	/* [rank] of the last step's waits for messages: for those of that node, or for it to take them */
	int64_t shrunk;				/* what updates counted so far (dlb_update_desc) */
	int not_finite;				/* weight of a convolution that an update left not finite, the first one; -1: none */
	struct dlb_step_times times;		/* of the last step; step_s, collective and data_wait_s are the caller's */
};
/* Prepares every kernel and pointer of runtime->comm's rank. graph ids of state are those of tensor_of[] (NULL:
 * the same graph). runtime->arena must hold the program's arena by the time it runs; scratch_bytes grows. */
int dlb_engine_new(struct dlb_engine **out, struct dlb_runtime *runtime, const struct dlb_program *p, int node,
		   const struct dlb_optimizer_choice *optimizer, const int *tensor_of, struct dlb_error *err);
void dlb_engine_free(struct dlb_engine *e);
struct dlb_engine_program *dlb_engine_view(struct dlb_engine *e);
/* The kernel of compute i. */
const struct dlb_kernel *dlb_engine_kernel(const struct dlb_engine *e, int i);
/* One step, up to its end. -1: the comm broke (err). */
int dlb_engine_run(struct dlb_engine *e, const struct dlb_step *s, struct dlb_error *err);
const struct dlb_sync *dlb_engine_sync(const struct dlb_engine *e);	/* NULL: this node synchronises nothing */
/* One iteration of an asynchronous program (of any other: its one step). */
int dlb_engine_run_iteration(struct dlb_engine *e, const struct dlb_iteration *w, struct dlb_error *err);
/* The loss of a step whose last iteration has been run, as dlb_engine_loss has it. */
double dlb_engine_loss_of(const struct dlb_engine *e, const struct dlb_step *s);
/* Sum over m of seed_m * loss_m in double, of the losses made here; 0 when they are made elsewhere. */
double dlb_engine_loss(const struct dlb_engine *e, const double *seed);
/* Where (tensor, m) lies on this node after a run; NULL when it is not here. */
const void *dlb_engine_at(const struct dlb_engine *e, int tensor, int m);

/* ---- runtime.c ---- */
/* Memory that other ranks of this host see where there are some and kernels compute in the host's, else the back end's;
 * c: NULL: nobody needs to see it. Zeroed. NULL: there is none left. */
void *dlb_visible_alloc(struct dlb_comm *c, struct dlb_backend *be, size_t bytes);
void dlb_visible_free(struct dlb_comm *c, struct dlb_backend *be, void *p);
/* Allocates the arena for what the engines over it need. All ranks call it together, with the same programs (borrowed
 * as long as the runtime; n = 0: none), whose messages then take the shortest way. */
int dlb_runtime_ready(struct dlb_runtime *g, size_t arena_bytes, const struct dlb_program *p, int n_programs, int node,
		     struct dlb_error *err);
void dlb_runtime_release(struct dlb_runtime *g);
/* Of node's program p the cell of tag 0; -1: it is not one of the runtime's. */
int dlb_runtime_first_cell(const struct dlb_runtime *g, const struct dlb_program *p, int node);

/* ---- feed.c ---- */
struct dlb_feed;
struct dlb_dispatch;
/* Reads ahead for any of the engines; data is borrowed. `slots`: as many steps are kept, two or more. dispatch: rank 0 reads for
 * all (data NULL elsewhere); NULL: each for itself. */
int dlb_feed_new(struct dlb_feed **out, struct dlb_data *data, struct dlb_engine *const *e, int n, int slots,
		 struct dlb_dispatch *dispatch, struct dlb_error *err);
void dlb_feed_free(struct dlb_feed *f);
/* Steps that should have been asked for beyond the one in use. */
int dlb_feed_ahead(const struct dlb_feed *f);
/* Asks for the samples from `first` of `epoch` for engine `which`. -1: the comm broke, as for those that follow. */
int dlb_feed_ask(struct dlb_feed *f, int which, int64_t epoch, int64_t first, struct dlb_error *err);
/* The oldest one asked for; valid until the slots-th dlb_feed_ask after this. *wrong -1 with why: some sample could
 * not be read; its place holds zeros, so that the step can be run and all ranks end after it together. */
int dlb_feed_take(struct dlb_feed *f, const struct dlb_fed **fed, int *wrong, struct dlb_error *why, struct dlb_error *err);
/* Nothing of what was asked for is on its way any more; all ranks. */
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
/* Keeps a step (or not): when the places are full every second one is given up. No allocation. */
void dlb_record_add(struct dlb_record *r, const struct dlb_engine_program *e);
#endif
