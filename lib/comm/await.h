/* Waiting for rank 0, which does something that may take any time (it reads a pipe whose writer is slow),
 * without waiting for ever should it have died or been stopped. */
#ifndef DLB_COMM_AWAIT_H
#define DLB_COMM_AWAIT_H
#include "comm/comm.h"

/* Collective. Rank 0 calls work(ctx) in a thread of its own and tells the others that it is alive, several
 * times in every timeout_s (that of c; 0: they wait for ever); they fail when they hear nothing for so long.
 * work calls nothing of MPI. On rank 0 the result is that of work, which fills err; 0 on the others; -1 with
 * err where the comm is broken. */
int dlb_comm_await(struct dlb_comm *c, double timeout_s, int (*work)(void *ctx, struct dlb_error *err), void *ctx,
		   struct dlb_error *err);
/* Collective. The same for work that every rank has, as writing its files to a disk that may be slow: none is
 * given up while its work goes on. Returns when all have ended, on each rank the result of its own work. */
int dlb_comm_await_all(struct dlb_comm *c, int (*work)(void *ctx, struct dlb_error *err), void *ctx,
		       struct dlb_error *err);
#endif
