/* Waiting for rank 0 while its work takes unknown time (it reads a pipe whose writer is slow). The others
 * notice within the time-out if rank 0 died or was stopped. */
#ifndef DLB_COMM_AWAIT_H
#define DLB_COMM_AWAIT_H
#include "comm/comm.h"

/* Collective. Rank 0 runs work(ctx) in a second thread and sends the others several signs of life per
 * timeout_s (that of c; 0: no limit). The others fail when they hear nothing for timeout_s. work must not
 * call MPI. Returns on rank 0 the result of work, which fills err; on the others 0; -1 with err if the comm
 * is broken. */
int dlb_comm_await(struct dlb_comm *c, double timeout_s, int (*work)(void *ctx, struct dlb_error *err),
		   void *ctx, struct dlb_error *err);
/* Collective. The same where every rank has work, such as writing files to a slow disk: no rank is declared
 * lost while its work continues. Returns when all ranks have finished; on each rank the result of its own
 * work. */
int dlb_comm_await_all(struct dlb_comm *c, int (*work)(void *ctx, struct dlb_error *err), void *ctx,
		       struct dlb_error *err);
#endif
