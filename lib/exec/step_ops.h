/* The step operations of an engine. prepare.c and its helpers (prepare.h) make them, engine.c calls them in
 * order, step_op.c runs one. Private to lib/exec. */
#ifndef DLB_EXEC_STEP_OPS_H
#define DLB_EXEC_STEP_OPS_H
#include "exec/clip.h"
#include "exec/engine.h"
#include "exec/state.h"
#include "exec/sync/sync.h"

enum step_op_kind {
	STEP_POST,
	STEP_WAIT,
	STEP_WAIT_SENT,
	STEP_SEND,
	STEP_RETURN,
	STEP_RUN,
	STEP_COPY,
	STEP_SEED,
	STEP_FETCH,
	STEP_STORE,
	STEP_COPIED,
	STEP_COMPUTED,
	STEP_REDUCE,
	STEP_REDUCED,
	STEP_SQUARES,
	STEP_NORM,
	STEP_TRUST
};

/* A kernel's output that can be written to this rank's memory or to the receiver's; the faster destination is
 * chosen. */
struct dest_choice {
	void **out;			/* the kernel's pointer to the output */
	void *here, *there;
	struct dlb_channel *channel;
	/* kernel_s: of the last run; best_s: least time so far of kernel and send, [there?] */
	double kernel_s, best_s[2];
	int n_tried[2];
	bool is_there;
};

/* Sender: a message that the receiver can read in the sender's memory (program.h: zero-copy), or that is
 * copied. */
struct zero_copy {
	int compute;			/* of the kernel that computes the message; -1: unknown */
	/* copied_s: the channel's, at the last send; best_s: least time so far of kernel and send, [in
	 * place?] */
	double copied_s, best_s[2];
	int n, n_tried[2];
	bool in_place;			/* the last message was read in place */
};
/* Receiver: the sender's memory as mapped here, and which of the messages in flight are read there. */
struct remote_src { char *there; size_t stride; int copies; bool *in_place; };	/* in_place: [ring] */

/* Optimizer states of a weight, a weight, or an activation of a micro-batch: places in the node's offload
 * store (far) and in its arena (near). */
struct offloaded {
	int n;
	bool own; /* the engine owns the room at far */
	void *near[DLB_MAX_STATES], *far[DLB_MAX_STATES];
	size_t bytes; /* of each */
	int64_t copy; /* the last copy requested; on a device: its transfer */
};

struct step_op {
	enum step_op_kind kind;
	struct offloaded *offloaded; /* of FETCH, STORE and their ends */
	struct dlb_request *request;
	struct dlb_channel *channel;	/* of a message through shared memory; NULL: by MPI */
	void *there;			/* the receiver's place */
	/* of a kernel and of the send of its output; NULL: written here */
	struct dest_choice *dest_choice;
	struct zero_copy *zero_copy;	/* of a send; NULL: always copied */
	struct remote_src *remote_src;	/* of a received message; NULL: always copied to its place here */
	int peer, tag, m, compute, op;
	void *p;			/* address of a message or copy */
	char *mirror;			/* of a message or seed: its bytes in host memory, [ring]; NULL: not needed */
	int instr;			/* of a kernel: its instruction */
	/* of samples and seeds: the step operation of the last kernel that uses their place before; or as in
	 * struct dlb_transfer */
	int after;
	int post;			/* of a wait: the operation that posts the message's place */
	double xfer_s;			/* of a wait for a message by MPI: its predicted seconds */
	size_t bytes, offset;		/* offset: of a copy's source in the samples */
	struct dlb_kernel *kernel;
	void **in, **out;
	uint64_t vertex;
	int64_t first_sample;
	bool update, preconditioned;	/* preconditioned: of an update: K-FAC preconditions its gradient */
	double rate_scale;		/* of an update: factor of the learning rate */
	int watched;			/* of an update: weight that is checked to be finite, -1 */
	enum dlb_dtype dtype;		/* of a seed */
	int iteration, dynamic;		/* of the instruction; the first dynamic operand, -1: none */
	int predict;			/* most updates to predict; 0: not a prediction */
	int loss;			/* the output that is the loss of its micro-batch, -1: none */
};

/* A pointer, *at, that follows the step. It points to copy (step mod copies) of a place; or to a received
 * message, here or in the sender's memory; or to a weight. The newest version of a weight is `live` updates
 * older than the step's, and the wanted version is `version` updates older. Old and predicted versions are in
 * the copies. */
struct dynamic_operand {
	const struct remote_src *remote_src;
	void **at;
	char *base, *now;
	size_t stride;
	int copies, live, version, next;
	bool weight, expected;
};

/* Bytes in a device's memory and in host memory, where replicas exchange them. after: of a copy to the device,
 * as in struct dlb_transfer. places: steps use so many arrays in turn, stride bytes apart. */
struct mirror { void *device, *host; size_t bytes; int after, places; size_t stride; };
/* A bucket of replicas on a device: n pieces, out, are copied to host memory before its collective, and n
 * pieces, in, to the device after it. share[i]: where the collective leaves the bytes of in[i]; NULL: in
 * in[i].host. kept[i]: the share of a gradient that is copied to the device once the norm has read all of
 * in[i]; 0 bytes: none. */
struct mirrored { struct mirror *out, *in, *kept; const void **share; int n; };
/* A send or a sum over replicas whose bytes are on the way from a device to host memory. */
struct outgoing { const struct step_op *a; struct dlb_request *request; int64_t step; char *mirror; };

/* The share of a gradient that its update does not read in the gradient's place, but in a copy or in the
 * buffer of the sum. to: where the share is copied when the sum is complete; NULL: not copied. in: the
 * update's pointer to the share. */
struct kept_share { char *gradient, *to; void **in; size_t first_byte, bytes; };

/* The first half of an update whose moments are summed over the replicas. Both moments are contiguous. */
struct first_half {
	struct dlb_kernel *kernel;
	void *in[1], *out[2 + DLB_MAX_STATES];
	char *moments;
	size_t bytes;
};

/* Step operations [first, end): kernels of a device between which the host has nothing to do. */
/* recording[timed?]; NULL: not yet recorded */
struct segment {
	int first, end;
	struct dlb_recording *recording[2];
	bool replayed;
};

struct dlb_engine {
	struct dlb_engine_program view;	/* first: dlb_engine_view */
	struct dlb_runtime *runtime;
	const struct dlb_graph *graph;
	const struct dlb_node_program *np;
	const int *tensor_of;
	struct step_op *step_op; int n_step_ops;
	struct dlb_request *request;	/* [n_step_ops]; for operations that start a message */
	struct dlb_channel *channel;	/* [n_step_ops]; likewise */
	int cell;			/* cell of tag 0 among the runtime's; -1: all messages go by MPI */
	/* while preparing: [tag] newest operation that starts such a message; [operation] the previous one */
	int *newest, *older;
	struct dlb_kernel **kernel; int n_kernels;
	struct dlb_kernel **of_op;	/* while preparing: [first half?][op][class of size] */
	struct first_half *half;	/* [op] of updates; NULL: gradients are summed, not moments */
	struct kept_share *kept;	/* [op] of updates; NULL: all read gradients in their places */
	struct mirrored *mirrored;	/* [bucket]; NULL: the back end computes in host memory, or nothing is exchanged */
	void **host; int n_host, cap_host;	/* memory of mirrors */
	void **own; int n_own, cap_own;		/* device: arrays of dlb_step_op_alloc */
	/* those before first_outgoing have started */
	struct outgoing *outgoing; int first_outgoing, n_outgoing;
	double **sums;			/* [op] statistics of ops that run in halves; NULL: there are none */
	struct { int64_t n; } size[2];
	const void **loss;		/* [m], NULL: computed on another node */
	struct dlb_least_cpu *least;	/* [compute] */
	bool *queued;			/* [compute] its kernel is between two marks in this iteration */
	double *took_s;			/* [compute] its last duration, without --slow */
	struct dynamic_operand *dynamic; int n_dynamic, cap_dynamic;
	struct remote_src **remote_src;	/* [place] of zero-copy messages; NULL: copied to its place */
	struct offloaded **offloaded; /* [place] NULL: nothing is offloaded */
	/* has room for activations of this engine; NULL: none are offloaded */
	struct dlb_offload_store *store;
	/* [tensor] while preparing: the place where a divided weight is whole */
	int *whole;
	int *update_at;			/* [tensor] asynchronous: instruction that updates the weight, -1 */
	int ring;	/* steps that may be under way, each with its requests and sum of losses */
	double *loss_sum;		/* [ring] */
	double *grad_scale;		/* [ring] asynchronous, clipped: factor of the step's gradients */
	enum dlb_dtype loss_dtype;
	struct dlb_sync *sync;		/* of the replicas; NULL: none here */
	struct dlb_sync *own_sync;	/* the same if it is this engine's; NULL: the runtime's */
	struct dlb_clip clip;
	struct dlb_trust_region trust;
	struct segment *segment; int n_segments;	/* in their order; none: nothing is replayed */
	bool warm;			/* all kernels have run */
	struct dlb_arena arena;
};

/* The address of tensor t of micro-batch m on this rank. NULL with err: it is on another node, or no memory
 * for a constant. operands.c */
void *dlb_step_op_resolve(struct dlb_engine *e, int t, int m, struct dlb_error *err);

/* ---- step_op.c ---- */
/* One pass over the operations. */
struct op_pass {
	struct dlb_engine *e;
	const struct dlb_iteration *w;
	double origin_s;		/* clock time at which it began */
	struct dlb_run run;		/* arguments of kernels; grad_scale: factor of clipping, 0: none */
	double trust;			/* factor of preconditioned gradients */
	int64_t not_finite;
	bool replays;			/* segments are replayed; their kernels are not timed */
	/* of the operation that runs */
	const struct dlb_step *s;
	int64_t step;
	struct dlb_request *request;
};
/* ---- transfers.c: nodes that compute on a device ----
 * Neither MPI nor the other ranks of the host reach a device's memory. A message, and a gradient or weight
 * that replicas exchange, goes through a mirror in host memory (of buckets: mirrors.c). Copies run beside
 * kernels. A copy to host memory waits for the kernels that are queued at that time, and the message or sum
 * starts when its bytes have arrived. A copy from host memory waits for the last reader of the place, and
 * later kernels wait for the copy. Samples are copied in the same way. */
/* Allocates host memory that the engine owns and frees. NULL with err. */
void *dlb_transfers_alloc(struct dlb_engine *e, size_t bytes, struct dlb_error *err);
void dlb_transfers_free(struct dlb_engine *e);
char *dlb_transfers_mirror(const struct op_pass *t, const struct step_op *a);	/* of this step; NULL: not needed */
/* Copies bytes at `from` to a->p, after mark `after` (struct dlb_transfer). The bytes at `from` must not
 * change before the iteration ends. */
void dlb_transfers_in(const struct op_pass *t, const struct step_op *a, const void *from, size_t bytes, int after);
/* Copies the tensors of a FETCH or, with out, of a STORE, when all queued kernels have run. */
void dlb_transfers_offloaded(const struct op_pass *t, const struct step_op *a, bool out);
void dlb_transfers_send(struct op_pass *t, const struct step_op *a);
void dlb_transfers_reduce(struct op_pass *t, const struct step_op *a);
void dlb_transfers_reduced(struct op_pass *t, const struct step_op *a);	/* copies the results back */
/* Starts the messages and sums whose bytes have arrived in host memory, in the order of the program. finish:
 * waits until all have started; called before this rank waits for another rank. -1 with err: the device
 * reports a failure. */
int dlb_transfers_start(struct dlb_engine *e, struct dlb_error *err);
int dlb_transfers_finish(struct dlb_engine *e, struct dlb_error *err);

/* ---- segments.c: kernels that are replayed ----
 * To queue a kernel takes the host longer than a small kernel runs. So an engine's kernels between two points where
 * the host must act are recorded (dlb_backend_ops.record) when all have run once, and from then on replayed with
 * one call. Such points are messages, samples and seeds, sums over replicas and norms. Marks inside a
 * recording would cost as much time as it saves, so a training step whose ops are timed queues every kernel
 * by itself. */
void dlb_segments_find(struct dlb_engine *e);	/* of a prepared engine */
void dlb_segments_free(struct dlb_engine *e);
/* Called before an iteration; whether its segments are replayed. */
bool dlb_segments_replay(const struct op_pass *t);
/* The mark that is passed when kernel `step_op`, which is queued already, has run. */
int dlb_segments_mark_after(const struct op_pass *t, int step_op);
int dlb_segment_run(struct op_pass *t, struct segment *g, struct dlb_error *err);
/* Seconds from the start of a replayed segment to its end. Both marks must have been passed. */
double dlb_segment_seconds(const struct dlb_engine *e, const struct segment *g);
/* Sets start_s and end_s of the ops of a segment that was replayed with marks between them. */
void dlb_segment_times(struct dlb_engine *e, const struct segment *g);

/* Mark 0 begins the iteration; two marks are around each kernel; one is where a message's place is posted. */
int dlb_step_op_mark(int compute, bool end);
/* Whether kernels are queued; else the host waits for each. */
bool dlb_step_ops_queue(const struct dlb_engine *e);
/* Sets t's run for kernel a of this step. */
void dlb_step_op_set_run(struct op_pass *t, const struct step_op *a, int64_t step, uint64_t version);
/* The host's work beside queued kernels: advances messages, sums and transfers. */
int dlb_step_op_beside(struct op_pass *t, struct dlb_error *err);
/* begin: begins an iteration; if kernels are queued, sets the mark from which they are timed. end: waits for
 * the device and reads the times. -1 with err. */
int dlb_step_op_begin(struct op_pass *t, struct dlb_error *err);
int dlb_step_op_end(struct op_pass *t, struct dlb_error *err);
/* Runs operation a for `step`. -1 with err. */
int dlb_step_op_run(struct op_pass *t, const struct step_op *a, int64_t step, struct dlb_error *err);

/* ---- prepare.c ---- */
/* Makes step operations of the instructions, with their kernels and pointers. -1 with err. */
int dlb_step_ops_prepare(struct dlb_engine *e, const struct dlb_optimizer_choice *c, struct dlb_error *err);
/* Allocates the sums of ops that run in halves, the first halves of updates, and the records of kept
 * shares. -1 with err. */
int dlb_step_ops_make_sums(struct dlb_engine *e, struct dlb_error *err);
/* Frees the arrays of dlb_step_op_alloc on a device. */
void dlb_step_ops_free(struct dlb_engine *e);
/* Opens the synchronisation with the other replicas. -1 with err. */
int dlb_step_ops_open_sync(struct dlb_engine *e, struct dlb_error *err);
#endif
