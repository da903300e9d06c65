/* What a move does to a step, estimated in O(degree) of what moves: for searches to tell which moves are worth ordering the
 * program for (which is O(ops x micro-batches)).
 *
 *     step ~ chains P + share L      P: longest path of one micro-batch, messages in it; L: load of the busiest node
 *
 * A pipeline of M micro-batches fills and drains in P and takes the slowest node's time for the other M - 1: chains 1, share
 * (M - 1) / M. One micro-batch at a time: chains M. Without a flush: only the load. Never less than L.
 *
 * head[op] and tail[op] are the longest paths to an op and from it, of the placement as it was when it was last taken over.
 * With them, the longest path through ops that move is known from their neighbours: ops that move and follow one another are
 * one piece, and pieces on the longest path lengthen or shorten it one by one. What other path becomes the longest when it
 * shrinks is not looked for, nor who waits for a busy node: it is an estimate. */
#ifndef DLB_PLACE_ESTIMATE_H
#define DLB_PLACE_ESTIMATE_H
#include "place/place.h"

struct dlb_estimate_arc { int to; double bytes; };	/* an op before or after; bytes of one micro-batch */
struct dlb_estimate {
	struct dlb_arena arena;
	const struct dlb_problem *p;
	const int *at;					/* [group], the caller's */
	double chains, share;
	int *pred_start, *succ_start;			/* [op] */
	struct dlb_estimate_arc *pred, *succ;
	double *time_s, *scale;				/* [op][kind] of one micro-batch; [node] */
	struct dlb_way *way;				/* [from][to] */
	double *head, *tail;				/* [op] seconds before it begins; after it has ended */
	double *load;					/* [node] seconds of all micro-batches */
	double path_s, value_s;
	int *was;					/* [group] where it was, while a move is looked at; -1: stays */
	int *op, n_op, *piece;				/* ops that move, ascending; [op] the first op of its piece, -1 */
	double *new_head, *through, *through_new;	/* [op]; [first op of a piece] */
};
/* false: too many nodes for a table of ways. */
bool dlb_estimate_init(struct dlb_estimate *e, const struct dlb_problem *p, const int *at);
void dlb_estimate_release(struct dlb_estimate *e);
/* Takes at[] over as it is: O(ops + edges + nodes). */
void dlb_estimate_take(struct dlb_estimate *e);
/* By how much the step is longer since then: at[group[i]] was before[i], all else as then. */
double dlb_estimate_change_s(struct dlb_estimate *e, const int *group, const int *before, int n);
/* The same with the longest path of all that there are: O(ops + edges), a small part of what ordering takes. */
double dlb_estimate_walk_s(struct dlb_estimate *e, const int *group, const int *before, int n);
#endif
