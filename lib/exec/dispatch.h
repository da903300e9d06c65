/* Inside lib/exec: rank 0 reads and prepares for all, and sends each node its shares (--feed host).
 *
 * A share is sent when it has been prepared and a place for it has been posted: shares of the next steps while the last one
 * is in use. Where nodes hang in groups (of the cluster document), the first rank of each group receives what its group is
 * fed and hands it on inside; the group of rank 0 and nodes in no group get theirs from rank 0:
 *
 *     step                    s                 s + 1             s + 2
 *     rank 0           sends share s + 2
 *     first of a group                   hands on share s + 2
 *     the others                                             are fed share s + 2
 *
 * Everything is moved by the thread that owns the comm, at the beginning of a step; only what the step needs is waited for. */
#ifndef DLB_EXEC_DISPATCH_H
#define DLB_EXEC_DISPATCH_H
#include "exec/engine.h"

/* What a node is fed in a step. As it travels (plan/feed_load.c): weight, seeds, then from the next multiple of 64 on the items at
 * their offsets. */
struct dlb_dispatch_share { const struct dlb_program *program; const struct dlb_feed_item *item; int n_items; size_t bytes; };

struct dlb_dispatch;
/* Collective. Engine i is of program[i] (of the whole plan). Borrows all but err. */
int dlb_dispatch_new(struct dlb_dispatch **out, struct dlb_comm *c, const struct dlb_cluster *cluster, const struct dlb_program *program,
		     struct dlb_engine *const *e, int n_engines, int slots, struct dlb_error *err);
void dlb_dispatch_free(struct dlb_dispatch *d);
/* Steps between sending a share and its use: one, or two by way of groups' first ranks. From cluster and number of ranks alone. */
int dlb_dispatch_levels_of(const struct dlb_cluster *cluster, int n_ranks);
int dlb_dispatch_levels(const struct dlb_dispatch *d);
int dlb_dispatch_nodes(const struct dlb_dispatch *d);
const struct dlb_dispatch_share *dlb_dispatch_share(const struct dlb_dispatch *d, int node, int which);
char *dlb_dispatch_place(const struct dlb_dispatch *d, int node, int slot);	/* NULL: passes by here not */
char *dlb_dispatch_own(const struct dlb_dispatch *d, int slot);
/* The next share is for engine `which`; its slot is free by then. */
int dlb_dispatch_ask(struct dlb_dispatch *d, int which, struct dlb_error *err);
/* Share n is here, and later ones on their way; filled: prepared so far (rank 0). */
int dlb_dispatch_take(struct dlb_dispatch *d, int64_t n, int64_t filled, struct dlb_error *err);
/* Nothing is on its way any more; all were asked for alike, and rank 0 has prepared them all. */
int dlb_dispatch_settle(struct dlb_dispatch *d, int64_t filled, struct dlb_error *err);
double dlb_dispatch_bytes(const struct dlb_dispatch *d);	/* sent by this rank in a full step */
#endif
