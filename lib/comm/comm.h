/* Messages between nodes: MPI in one file (comm.c). Rank i is node i.
 *
 * Everything times out: a wait that hears nothing for timeout_s fails with a line that names the peer,
 * and the comm is broken from then on: nothing can be agreed on any more, so the caller prints the
 * line and calls dlb_comm_abort. One node needs no MPI: dlb_comm_new_alone makes a comm of one rank in
 * which every collective is a no-op. Only the thread that made the comm may use it. */
#ifndef DLB_COMM_COMM_H
#define DLB_COMM_COMM_H
#include <stdbool.h>
#include <stddef.h>
#include "util/error.h"

struct dlb_comm;			/* opaque */
struct dlb_request { void *mpi; size_t bytes; int peer; bool active, receives; };

int dlb_comm_new(struct dlb_comm **c, double timeout_s, struct dlb_error *err);	/* MPI_Init_thread */
int dlb_comm_new_alone(struct dlb_comm **c, struct dlb_error *err);		/* one rank, no MPI */
void dlb_comm_free(struct dlb_comm *c);			/* MPI_Finalize */
int dlb_comm_rank(const struct dlb_comm *c);
int dlb_comm_size(const struct dlb_comm *c);
/* Ranks that share this rank's host (itself counted), and whether they need more than its cores. */
int dlb_comm_local_size(const struct dlb_comm *c);
bool dlb_comm_crowded(const struct dlb_comm *c);
void dlb_comm_set_timeout(struct dlb_comm *c, double timeout_s);	/* 0: wait for ever */
bool dlb_comm_broken(const struct dlb_comm *c);
/* Breaks it, for a caller that found out something which leaves the ranks at odds; the first reason is kept. */
void dlb_comm_break(struct dlb_comm *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Starting a message never fails at once: what went wrong is told by the wait for it. A message of another size
 * than the receiver expects breaks the comm. */
void dlb_comm_isend(struct dlb_comm *c, const void *p, size_t bytes, int peer, int tag, struct dlb_request *r);
void dlb_comm_irecv(struct dlb_comm *c, void *p, size_t bytes, int peer, int tag, struct dlb_request *r);
bool dlb_comm_test(struct dlb_comm *c, struct dlb_request *r);	/* true: done (or never started) */
int dlb_comm_wait(struct dlb_comm *c, struct dlb_request *r, struct dlb_error *err);
/* For loops that poll on their own: called each time that nothing has moved, it offers the core to others, and
 * fails when nothing has moved for timeout_s. Start from zero, and again whenever something moved. */
struct dlb_idle { unsigned n; double since_s; };
int dlb_comm_idle(struct dlb_comm *c, struct dlb_idle *i, int peer, const char *what, struct dlb_error *err);
int dlb_comm_bcast(struct dlb_comm *c, void *p, size_t bytes, int root, struct dlb_error *err);
int dlb_comm_barrier(struct dlb_comm *c, struct dlb_error *err);
enum dlb_comm_op { DLB_COMM_SUM, DLB_COMM_MAX, DLB_COMM_MIN };
int dlb_comm_allreduce_f64(struct dlb_comm *c, double *x, int n, enum dlb_comm_op op, struct dlb_error *err);
/* Some ranks of the world (NULL: 0 .. n - 1), for sums of MPI's own over them. Those ranks, all of them and no
 * other, make it together (without a time-out), several of them in the same order. NULL: alone. */
struct dlb_subset;
int dlb_subset_new(struct dlb_subset **s, struct dlb_comm *c, const int *rank, int n, int tag, struct dlb_error *err);
void dlb_subset_free(struct dlb_subset *s, struct dlb_comm *c);
/* x (n float, or double when f64) becomes the sum over the subset; as for messages, the wait tells. */
void dlb_comm_isum(struct dlb_comm *c, struct dlb_subset *s, void *x, int n, bool f64, struct dlb_request *r);
/* Gathers `bytes` of each rank on root, in rank order (recv on root only). */
int dlb_comm_gather(struct dlb_comm *c, const void *p, size_t bytes, void *recv, int root, struct dlb_error *err);
/* All ranks learn the worst rc; when any is non-zero every rank returns -1, with the lowest failing rank's
 * err on all (its rank in *who). A broken comm: -1 at once. */
int dlb_comm_agree(struct dlb_comm *c, int rc, struct dlb_error *err, int *who);
void dlb_comm_abort(struct dlb_comm *c, int status) __attribute__((noreturn));
bool dlb_comm_is_open_mpi(void);			/* whose mpiexec it takes to start us */
const char *dlb_comm_host(const struct dlb_comm *c);	/* this rank's host name */
#endif
