/* A program made ready to run, and the parts of a rank's state that it works on. Private to lib/exec.
 *
 *     state     weights, buffers, gradient sums, optimizer state of this node, constants (state.h)
 *     memories  binds its buffers to the node's memories (memories.h)
 *     runtime   what all programs share: back end, messages, an arena, a scratch area (runtime.h)
 *     engine    a compiled program with its kernels prepared and every pointer fixed (here)
 *     slow      makes a node slower than it is (slow.h)
 *     feed      the thread that prepares the next step's samples (feed.h)
 *     record    times of a sample of the steps, in fixed memory (record.h)
 *
 * A run has a few engines over one runtime: full batches, the epoch's short last one, evaluation. */
#ifndef DLB_EXEC_ENGINE_H
#define DLB_EXEC_ENGINE_H
#include "comm/comm.h"
#include "optim/optim.h"
#include "plan/program.h"
#include "plan/timeline.h"

struct dlb_runtime;

struct dlb_sync;				/* sync/sync.h */
struct dlb_kfac;
/* The samples of a step: data and labels by (tensor, m) at the engine's offsets, seeds by m. weight: of this
 * replica's loss in the step's loss. */
struct dlb_fed { char *base; double *seed; double weight; };
struct dlb_feed_item { int tensor, micro_batch; int64_t first, n; size_t bytes, offset; };
struct dlb_step {
	int64_t step;				/* global, from 0 */
	uint64_t seed, version;
	double rate, rate_before; bool has_rate;	/* learning rates of this step and the one before */
	bool replay;	/* kernels of a device may be replayed; start_s and end_s are then of a step before */
	bool timed; /* with replay: the replay takes times of ops, too, and so takes longer */
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
	double offload_s; /* waits for copies of what is offloaded */
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
	bool *compute_again;			/* the op's second run */
	bool *left_out;			/* [op] of a partial runtime: there is no kernel */
	double *start_s, *end_s;		/* [n_computes] of the last step, from its start */
	bool *is_replayed; /* [n_computes] may be, with others; NULL: none is */
	/* [rank] waits of the last step for messages from that node, or for it to take them */
	double *wait_for_s; int n_peers;
	int64_t shrunk;				/* count of the updates so far (dlb_update_desc) */
	/* kernels of a device that are replayed: graphs and ops in them per step, steps in which they were */
	struct { int n, ops; int64_t steps; } replayed;
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
/* Runs one step. -1: the comm broke (err); it breaks too if this node's device reports a failure. */
int dlb_engine_run(struct dlb_engine *e, const struct dlb_step *s, struct dlb_error *err);
/* NULL: this node synchronises nothing. */
const struct dlb_sync *dlb_engine_sync(const struct dlb_engine *e);
/* Runs one iteration of an asynchronous program; of any other program, its one step. */
int dlb_engine_run_iteration(struct dlb_engine *e, const struct dlb_iteration *w, struct dlb_error *err);
/* The loss of a step whose last iteration has run; as dlb_engine_loss. */
int dlb_engine_loss_of(const struct dlb_engine *e, const struct dlb_step *s, double *loss,
		       struct dlb_error *err);
/* *loss: sum over m of seed_m * loss_m in double, of the losses computed on this node; 0: another node
 * computes them. -1: the device reports a failure (err), and *loss is of no use. */
int dlb_engine_loss(const struct dlb_engine *e, const double *seed, double *loss, struct dlb_error *err);
/* The value of (tensor, m), which is on this node, after a run. *copy: NULL, or where a device's value is
 * copied to, for the caller to free; a copy that fails is zeros, and the next dlb_engine_loss reports it. */
const void *dlb_engine_read(const struct dlb_engine *e, int tensor, int m, void **copy);

/* ---- feed.c ---- */
struct dlb_dispatch;
#endif
