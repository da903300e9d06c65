/* An engine: a program prepared to run, with the parts of a rank's state that it uses. Private to lib/exec.
 *
 *     state     weights, buffers, gradient sums, optimizer state of this node, constants (state.h)
 *     memories  binds the state's buffers to the node's memories (memories.h)
 *     runtime   shared by all programs: back end, messages, an arena, a scratch area (runtime.h)
 *     engine    a compiled program with its kernels prepared and every pointer fixed (here)
 *     slow      slows a node down artificially (slow.h)
 *     feed      the thread that prepares the next step's samples (feed.h)
 *     record    times of a sample of the steps, in fixed memory (record.h)
 *
 * A run has several engines over one runtime: for full batches, for the epoch's shorter last batch, for
 * evaluation. */
#ifndef DLB_EXEC_ENGINE_H
#define DLB_EXEC_ENGINE_H
#include "comm/comm.h"
#include "optim/optim.h"
#include "plan/program.h"
#include "plan/timeline.h"

struct dlb_runtime;

struct dlb_sync;				/* sync/sync.h */
struct dlb_kfac;
/* The samples of a step. base: data and labels of each (tensor, m) at the engine's offsets; seed: [m];
 * weight: of this replica's loss in the step's loss. */
struct dlb_fed { char *base; double *seed; double weight; };
struct dlb_feed_item { int tensor, micro_batch; int64_t first, n; size_t bytes, offset; };
struct dlb_step {
	int64_t step;				/* global, from 0 */
	uint64_t seed, version;
	double rate, rate_before; bool has_rate;	/* learning rates of this step and the one before */
	/* kernels of a device may be replayed; start_s and end_s then belong to an earlier step */
	bool replay;
	bool timed; /* with replay: the replay also measures the times of ops, and so takes longer */
	const struct dlb_fed *fed;
};
struct dlb_step_times {
	/* comm_s: seconds that messages took; comm_hidden_s: the part of comm_s in which this node computed.
	 * Copies to a node of this host are measured. Times of MPI's messages are computed from the links;
	 * the part for which this node did not wait counts as hidden. */
	double comm_s, comm_hidden_s;
	/* of messages that a kernel wrote directly into the receiver's memory */
	double in_place_bytes;
	double step_s, busy_s, waits_s[DLB_N_WAITS], bytes_sent, data_wait_s;
	/* sum_s, sum_hidden_s: synchronisation of replicas (sync/sync.h); command_s: waits for the command to
	 * sum (--sync) */
	double sum_s, sum_hidden_s, command_s;
	double offload_s; /* waits for copies of offloaded tensors */
	double class_s[DLB_N_SUM_CLASSES], class_hidden_s[DLB_N_SUM_CLASSES];
};
/* An iteration of the loop over steps first .. end - 1; the pipeline is empty before and after these steps.
 * Step s is step[s % n]; the array holds all steps that the iteration works on. */
struct dlb_iteration { int64_t iteration, first, end; const struct dlb_step *step; int64_t n; };

struct dlb_engine;				/* engine.c */
struct dlb_engine_program {			/* the public part of an engine */
	const struct dlb_program *program;
	int node;
	struct dlb_feed_item *feed; int n_feed; size_t feed_bytes;
	int n_computes;				/* kernels that run in a step */
	/* [n_computes]; compute_op: id in the graph; for an accumulate, its update op */
	int *compute_op, *compute_m;
	/* false: an accumulate, or the first half of an op whose second half is the next compute */
	bool *compute_is_op;
	bool *compute_again;			/* the op's second run */
	bool *left_out;			/* [op] in a partial runtime: the op has no kernel */
	double *start_s, *end_s;		/* [n_computes] of the last step, from its start */
	bool *is_replayed; /* [n_computes] the compute may be part of a replayed group; NULL: none is */
	/* [rank] seconds of the last step in which this rank waited for messages from that node, or for that
	 * node to receive messages */
	double *wait_for_s; int n_peers;
	/* sum of the counts of all update kernels so far (dlb_update_desc) */
	int64_t shrunk;
	/* replayed kernels of a device: graphs per step, ops in them per step, number of steps with a
	 * replay */
	struct { int n, ops; int64_t steps; } replayed;
	int not_finite;	/* the first convolution weight that an update made non-finite; -1: none */
	/* of the last step; the caller fills step_s and data_wait_s, and adds its own waits to
	 * waits_s[DLB_WAIT_COLLECTIVE] */
	struct dlb_step_times times;
};
/* Prepares every kernel and pointer of runtime->comm's rank. tensor_of: [tensor of p's graph] the id in the
 * state's graph; NULL: both graphs are the same. When the engine runs, runtime->arena must be large enough
 * for the program's arena. runtime->scratch_bytes may grow. */
int dlb_engine_new(struct dlb_engine **out, struct dlb_runtime *runtime, const struct dlb_program *p,
		   int node, const struct dlb_optimizer_choice *optimizer, const int *tensor_of,
		   struct dlb_error *err);
void dlb_engine_free(struct dlb_engine *e);
struct dlb_engine_program *dlb_engine_view(struct dlb_engine *e);
/* The kernel of compute number i. */
const struct dlb_kernel *dlb_engine_kernel(const struct dlb_engine *e, int i);
/* Runs one step. -1: the comm broke (err). A failure of this node's device also breaks the comm. */
int dlb_engine_run(struct dlb_engine *e, const struct dlb_step *s, struct dlb_error *err);
/* The synchronisation of replicas; NULL: this node synchronises nothing. */
const struct dlb_sync *dlb_engine_sync(const struct dlb_engine *e);
/* Runs one iteration of an asynchronous program; of any other program, its one step. */
int dlb_engine_run_iteration(struct dlb_engine *e, const struct dlb_iteration *w, struct dlb_error *err);
/* The loss of a step whose last iteration has run; otherwise as dlb_engine_loss. */
int dlb_engine_loss_of(const struct dlb_engine *e, const struct dlb_step *s, double *loss,
		       struct dlb_error *err);
/* *loss: sum over m of seed_m * loss_m in double, over the losses computed on this node; 0: another node
 * computes them. -1: the device reports a failure (err), and *loss is invalid. */
int dlb_engine_loss(const struct dlb_engine *e, const double *seed, double *loss, struct dlb_error *err);
/* The value of (tensor, m), which is on this node, after a run. *copy: NULL, or the host copy of a device's
 * value, which the caller frees. If the copy fails, it is zeros, and the next dlb_engine_loss reports the
 * failure. */
const void *dlb_engine_read(const struct dlb_engine *e, int tensor, int m, void **copy);

/* ---- feed.c ---- */
struct dlb_dispatch;
#endif
