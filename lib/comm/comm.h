/* Messages between nodes. Only comm.c includes MPI. Rank i is node i.
 *
 * Everything times out: a wait in which nothing arrives for timeout_s fails with an error that names the
 * peer. The comm is then broken and ranks can agree on nothing more, so the caller prints the error and calls
 * dlb_comm_abort. One node needs no MPI: dlb_comm_new_alone makes a comm of one rank, in which every
 * collective is a no-op. Only the thread that made the comm may use it, but for dlb_comm_lose. */
#ifndef DLB_COMM_COMM_H
#define DLB_COMM_COMM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/error.h"

struct dlb_comm;			/* opaque */
struct dlb_channel;
struct dlb_request {
	void *mpi;
	size_t bytes;
	int peer;
	bool active, receives;
	struct dlb_channel *channel;	/* NULL: sent by MPI */
	/* of channel messages: */
	uint32_t nth;			/* number within the channel */
	/* read in the sender's memory; complete only when the receiver has returned it */
	bool in_place, returned;
	const void *from; void *to;	/* set until the receiver has posted the place */
	struct dlb_request *later;
};

/* Starts MPI (MPI_Init_thread). If the ranks do not all start, or end, within timeout_s, deadline.h ends the
 * process. */
int dlb_comm_new(struct dlb_comm **c, double timeout_s, struct dlb_error *err);
int dlb_comm_new_alone(struct dlb_comm **c, struct dlb_error *err);		/* one rank, no MPI */
void dlb_comm_free(struct dlb_comm *c);			/* MPI_Finalize */
int dlb_comm_rank(const struct dlb_comm *c);
int dlb_comm_size(const struct dlb_comm *c);
/* Number of ranks on this rank's host, itself included; whether that is more than its cores. */
int dlb_comm_local_size(const struct dlb_comm *c);
bool dlb_comm_crowded(const struct dlb_comm *c);
void dlb_comm_set_timeout(struct dlb_comm *c, double timeout_s);	/* 0: wait for ever */
double dlb_comm_timeout_s(const struct dlb_comm *c);
bool dlb_comm_broken(const struct dlb_comm *c);
/* All tags of messages. A tag is the first one of its use plus a number. PROGRAM, FEED and WEIGHTS begin a
 * communicator each, in which tags count from 0, since MPI promises no more than 32768 of them (MPICH has
 * 2^28). A tag that is too large breaks the comm. */
enum {
	DLB_TAG_PROGRAM = 0, /* + number of the message in its program */
	DLB_TAG_PROBE = 77, /* before there is a program */
	DLB_TAG_FEED = 1 << 27, /* + node that the samples are for */
	DLB_TAG_WEIGHTS = 1 << 28, /* weights that a parameter server gives at the start */
	DLB_TAG_STATE, /* the mean of all state over the replicas */
	DLB_TAG_MOVE, /* state that moves when the plan changes */
	DLB_TAG_COPY, /* copies of state, in order (exec/buddy.h) */
	DLB_TAG_BUCKETS, /* dlb_tag_of_bucket */
};
/* Messages of one bucket of gradients, factors or weights. A dense sum and an average use the first tag
 * alone, a compressor (compressor.h) all. */
enum {
	DLB_TAG_DENSE, DLB_TAG_FLAGS, DLB_TAG_WARM, DLB_TAG_P, DLB_TAG_Q, DLB_TAG_SCATTER, DLB_TAG_GATHER,
	DLB_TAG_THIRD, DLB_TAG_WHOLE, DLB_TAG_HOPS, DLB_N_BUCKET_TAGS,
};
static inline int dlb_tag_of_bucket(int bucket) { return DLB_TAG_BUCKETS + bucket * DLB_N_BUCKET_TAGS; }
/* Tags of subsets of ranks (dlb_subset_new), apart from those of messages. */
enum { DLB_TAG_ALL_RANKS, DLB_TAG_NORMS };
/* Breaks the comm with this reason, when the caller finds the ranks inconsistent. The first reason is
 * kept. */
void dlb_comm_break(struct dlb_comm *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* From any thread: reports that a rank is lost. This rank's waits then break the comm with `line`; the first
 * line is kept. */
void dlb_comm_lose(struct dlb_comm *c, const char *line);
/* Starts a message. Errors are returned by the wait. A message whose size differs from the receiver's `bytes`
 * breaks the comm. */
void dlb_comm_isend(struct dlb_comm *c, const void *p, size_t bytes, int peer, int tag,
		    struct dlb_request *r);
void dlb_comm_irecv(struct dlb_comm *c, void *p, size_t bytes, int peer, int tag, struct dlb_request *r);
bool dlb_comm_test(struct dlb_comm *c, struct dlb_request *r);	/* true: done, or never started */
int dlb_comm_wait(struct dlb_comm *c, struct dlb_request *r, struct dlb_error *err);
/* For a caller's own polling loop: call it after each pass without progress. It yields the core, and fails
 * after timeout_s without progress. *i: zero at first and after any progress; sends_wakeup: the peer wakes
 * this rank. */
struct dlb_idle { unsigned n; double since_s, last_s; bool sends_wakeup; uint32_t wakeups_seen; };
int dlb_comm_idle(struct dlb_comm *c, struct dlb_idle *i, int peer, const char *what, struct dlb_error *err);
/* Advances messages under way; for calls between pieces of other work. */
void dlb_comm_progress(struct dlb_comm *c);
int dlb_comm_bcast(struct dlb_comm *c, void *p, size_t bytes, int root, struct dlb_error *err);
int dlb_comm_barrier(struct dlb_comm *c, struct dlb_error *err);
enum dlb_comm_op { DLB_COMM_SUM, DLB_COMM_MAX, DLB_COMM_MIN };
int dlb_comm_allreduce_f64(struct dlb_comm *c, double *x, int n, enum dlb_comm_op op, struct dlb_error *err);
/* A subset of n world ranks (rank NULL: 0 .. n - 1), for MPI's own sums. Collective over exactly those ranks;
 * they create several subsets in the same order. */
struct dlb_subset;
int dlb_subset_new(struct dlb_subset **s, struct dlb_comm *c, const int *rank, int n, int tag,
		   struct dlb_error *err);
void dlb_subset_free(struct dlb_subset *s, struct dlb_comm *c);
/* Starts the sum of x (n float, or double if f64) over the subset, in place; errors are returned by the
 * wait. */
void dlb_comm_isum(struct dlb_comm *c, struct dlb_subset *s, void *x, int n, bool f64, struct dlb_request *r);
/* Gathers `bytes` of each rank on root, in rank order (recv on root only). */
int dlb_comm_gather(struct dlb_comm *c, const void *p, size_t bytes, void *recv, int root,
		    struct dlb_error *err);
/* If rc is non-zero on any rank, returns -1 on all, with err of the lowest failing rank (its number in *who).
 * A broken comm: -1 at once. */
int dlb_comm_agree(struct dlb_comm *c, int rc, struct dlb_error *err, int *who);
/* Gathers `bytes` of each rank of this host on all of them, in the order of dlb_comm_local. */
int dlb_comm_gather_local(struct dlb_comm *c, const void *p, size_t bytes, void *recv, struct dlb_error *err);
int dlb_comm_local(const struct dlb_comm *c, int i); /* the i-th rank of this host, of dlb_comm_local_size */
bool dlb_comm_is_local(const struct dlb_comm *c, int rank);
void dlb_comm_abort(struct dlb_comm *c, int status) __attribute__((noreturn));
bool dlb_comm_is_open_mpi(void);			/* decides which mpiexec starts ranks */
/* most bytes, header included, that MPI sends over TCP without a handshake */
size_t dlb_comm_eager_bytes(void);
const char *dlb_comm_host(const struct dlb_comm *c);	/* this rank's host name */

/* ---- memory shared with the ranks of this host ----
 * A block of this rank's region: whole pages of zeros that every near rank may read and write. NULL: not
 * available (a single rank, no room, or no such memory on this system). Local call: other ranks need the
 * offset. */
void *dlb_comm_alloc(struct dlb_comm *c, size_t bytes);
void dlb_comm_release(struct dlb_comm *c, void *p);
/* Makes the whole pages within this part of a block private; their contents are lost. Most Linux kernels
 * use huge pages for private memory only. */
void dlb_comm_private(struct dlb_comm *c, void *p, size_t bytes);
bool dlb_comm_near(const struct dlb_comm *c, int rank);	/* shares memory with this rank; true for itself */
size_t dlb_comm_offset(const struct dlb_comm *c, const void *p); /* SIZE_MAX: not in this rank's region */
/* within one block, no page private */
bool dlb_comm_shares(const struct dlb_comm *c, const void *p, size_t bytes);
/* The wakeup of a near rank, which ends its sleep in a wait. NULL: the rank is not near, or it polls because
 * each rank has a core. */
struct dlb_wakeup *dlb_comm_wakeup(const struct dlb_comm *c, int rank);
/* address here of an offset in a near rank's region */
void *dlb_comm_there(const struct dlb_comm *c, int rank, size_t offset);

/* A channel: messages of one kind from one near rank to another, in order. The receiver posts a place in
 * memory that the sender can write. The sender copies the message there as soon as the place is posted
 * (during any wait or test), or has written it there directly; then no copy is made. A zero-copy message
 * needs no copy either: the receiver reads it in the sender's memory, if both can address it, and then
 * returns it. Every message of a zero-copy channel is returned, copied ones too. The cell lies in the
 * receiver's region, zeroed. Each end has a struct dlb_channel, zeroed except `cell`. */
enum { DLB_CELL_WAYS = 8 };
struct dlb_cell {
	/* by the receiver: numbers of places, messages so far */
	_Alignas(64) _Atomic uint32_t posted, returned;
	_Alignas(64) _Atomic uint32_t filled;		/* by the sender: number of messages so far */
	/* of the last messages: entry n mod DLB_CELL_WAYS for message n */
	_Atomic unsigned char in_place[DLB_CELL_WAYS];
};
struct dlb_copy_tuner { double s[2], last[2]; unsigned n; };	/* comm/shared.h */
struct dlb_channel {
	struct dlb_cell *cell;
	struct dlb_wakeup *wakeup;	/* of the other end (dlb_comm_wakeup); NULL: it polls */
	uint32_t n, n_returned;		/* messages so far, at this end; returned (receiver) */
	struct dlb_request *first;	/* oldest message whose place is not posted (sender) */
	struct dlb_channel *next;	/* next channel with such messages */
	double copied_s;		/* seconds spent on copies so far (sender) */
	struct dlb_copy_tuner copy_tuner;	/* of these copies */
};
void dlb_channel_post(struct dlb_channel *ch, int peer, struct dlb_request *r);
/* Whether the place of the next message is posted, so that the sender may write the message there
 * directly. */
bool dlb_channel_ready(const struct dlb_channel *ch);
/* A message of `bytes` bytes from p to `there`, the place that `peer` posted; p = there: no copy. */
struct dlb_message { const void *p; void *there; size_t bytes; int peer; };
void dlb_channel_send(struct dlb_comm *c, struct dlb_channel *ch, const struct dlb_message *m,
		      struct dlb_request *r);
/* The same on a zero-copy channel. in_place: the receiver reads the message at p; else it is copied. r
 * completes when the receiver has returned the message. */
void dlb_channel_send_zero_copy(struct dlb_comm *c, struct dlb_channel *ch, const struct dlb_message *m,
				bool in_place, struct dlb_request *r);
/* For the receiver: whether message r, which has arrived, is read in the sender's memory. dlb_channel_return
 * returns the oldest message to the sender. */
bool dlb_channel_is_in_place(const struct dlb_request *r);
void dlb_channel_return(struct dlb_channel *ch);
#endif
