/* Estimates, in O(degree), how much a move changes the step. Searches order the program, in O(ops x
 * micro-batches), only for moves with a good estimate.
 *
 *     step ~ chains P + share L      P: longest path of one micro-batch, messages in it; L: load of the busiest node
 *
 * A pipeline of M micro-batches fills and drains in P and takes the slowest node's time for the other M -
 * 1: chains 1, share (M - 1) / M. One micro-batch at a time: chains M. Without a flush: only the load.
 * Never less than L.
 *
 * head[op] and tail[op] are the longest paths to an op and from it in the placement of the last
 * dlb_estimate_take. They give the longest path through moved ops from their neighbours. Moved ops that
 * follow one another form a piece, and each piece on the longest path lengthens or shortens it. The estimate
 * leaves out another path that becomes the longest, and waits for busy nodes. */
#ifndef DLB_PLACE_ESTIMATE_H
#define DLB_PLACE_ESTIMATE_H
#include "place/place.h"

/* predecessor or successor; bytes of one micro-batch */
struct dlb_estimate_arc { int to; double bytes; };
struct dlb_estimate {
	struct dlb_arena arena;
	const struct dlb_problem *p;
	const int *at;					/* [group], the caller's */
	double chains, share;
	int *pred_start, *succ_start;			/* [op] */
	struct dlb_estimate_arc *pred, *succ;
	double *time_s, *scale;				/* [op][kind] of one micro-batch; [node] */
	struct dlb_way *way;				/* [from][to] */
	double *head, *tail;				/* [op] seconds before its start; after its end */
	double *load;					/* [node] seconds of all micro-batches */
	double path_s, value_s;
	/* [group] its node before the move under evaluation; -1: not moved */
	int *was;
	/* moved ops, ascending; [op] the first op of its piece, -1 */
	int *op, n_op, *piece;
	double *new_head, *through, *through_new;	/* [op]; [first op of a piece] */
};
/* false: too many nodes for a table of ways. */
bool dlb_estimate_init(struct dlb_estimate *e, const struct dlb_problem *p, const int *at);
void dlb_estimate_release(struct dlb_estimate *e);
/* Makes at[] the placement that moves start from: O(ops + edges + nodes). */
void dlb_estimate_take(struct dlb_estimate *e);
/* Seconds by which the step exceeds that of the placement taken last, in which the node of group[i] was
 * before[i]; the other groups did not move. */
double dlb_estimate_change_s(struct dlb_estimate *e, const int *group, const int *before, int n);
/* The same with the true longest path: O(ops + edges), a small part of the cost of ordering. */
double dlb_estimate_walk_s(struct dlb_estimate *e, const int *group, const int *before, int n);
#endif
