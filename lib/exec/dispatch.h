/* Rank 0 reads and prepares samples for all nodes and sends each its shares (--feed host). Private to
 * lib/exec.
 *
 * A share is sent when rank 0 has prepared it and the receiver has posted memory for it; so shares of the
 * next steps are sent while this step's share is in use. If nodes are in groups (of the cluster document),
 * the first rank of a group receives all shares of the group and sends them to the group's other ranks. Nodes
 * in rank 0's group and nodes in no group receive their shares from rank 0:
 *
 *     step                    s                 s + 1             s + 2
 *     rank 0           sends share s + 2
 *     first of a group                   passes on share s + 2
 *     the others                                             receive share s + 2
 *
 * The thread that owns the comm moves all messages, at the beginning of a step. It waits only for the
 * messages that the step needs. */
#ifndef DLB_EXEC_DISPATCH_H
#define DLB_EXEC_DISPATCH_H
#include "exec/engine.h"

struct dlb_fed_engines;

/* The samples of one node in one step. The message of a share (plan/feed_load.c) has the weight, the seeds
 * and, from the next multiple of 64 bytes on, the items at their offsets. */
struct dlb_dispatch_share {
	const struct dlb_program *program;
	const struct dlb_feed_item *item;
	int n_items;
	size_t bytes;
};

struct dlb_dispatch;
/* Collective. Borrows all arguments but err. */
int dlb_dispatch_new(struct dlb_dispatch **out, struct dlb_comm *c, const struct dlb_cluster *cluster,
		     const struct dlb_fed_engines *fed, struct dlb_error *err);
void dlb_dispatch_free(struct dlb_dispatch *d);
/* Steps between sending a share and its use: one, or two if first ranks of groups pass it on. Computed from
 * cluster and number of ranks alone. */
int dlb_dispatch_levels_of(const struct dlb_cluster *cluster, int n_ranks);
int dlb_dispatch_levels(const struct dlb_dispatch *d);
int dlb_dispatch_nodes(const struct dlb_dispatch *d);
const struct dlb_dispatch_share *dlb_dispatch_share(const struct dlb_dispatch *d, int node, int which);
/* The memory of a node's share; NULL: this rank does not receive the node's shares */
char *dlb_dispatch_place(const struct dlb_dispatch *d, int node, int slot);
char *dlb_dispatch_own(const struct dlb_dispatch *d, int slot);
/* Requests the next share, for engine `which`, after waiting until its slot is free. */
int dlb_dispatch_ask(struct dlb_dispatch *d, int which, struct dlb_error *err);
/* Waits for share n and advances later ones. filled: shares prepared so far (rank 0). */
int dlb_dispatch_take(struct dlb_dispatch *d, int64_t n, int64_t filled, struct dlb_error *err);
/* Waits until no share is under way. All ranks have requested the same shares, and rank 0 has prepared them
 * all. */
int dlb_dispatch_settle(struct dlb_dispatch *d, int64_t filled, struct dlb_error *err);
double dlb_dispatch_bytes(const struct dlb_dispatch *d);	/* sent by this rank in a full step */
#endif
