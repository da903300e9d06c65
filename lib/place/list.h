/* List scheduling, the common part of greedy, heft, peft and etf.
 *
 * A unit is a group of colocated ops, placed once for all M micro-batches. It is ready when the producers
 * of its first op's inputs are placed. One micro-batch takes t seconds, all M take T; first(i) and last(i)
 * are the times at which op i's first and last micro-batch are done, c is the time of a message:
 *
 *     arrives(i,d) = max over inputs p of first(p) + c(p,d)        the pipeline fills
 *     starts(i,d)  = when the node has T seconds free after that
 *     ends(i,d)    = starts(i,d) + T(i,d)                          all M in the node's queue
 *     EFT(i,d)     = max(ends(i,d), max over p of last(p) + c(p,d) + t(i,d))
 *
 * A message that occupies a core (shared memory: the sender's) is work. This work is counted in T of the
 * receiving op, since the nodes of its producers are chosen already. */
#ifndef DLB_PLACE_LIST_H
#define DLB_PLACE_LIST_H
#include "place/place.h"

struct dlb_span_s { double start_s, end_s; };
struct dlb_busy { struct dlb_span_s *span; int n, size; };	/* ascending, disjoint */
/* Times of one unit, [node]: arrives, last(p) + c, and T with copies. */
struct dlb_unit_times { double *arrives, *last, *work; };
void dlb_unit_times_init(struct dlb_unit_times *l, int n_nodes);
void dlb_unit_times_release(struct dlb_unit_times *l);
struct dlb_finish { double arrives, work, starts, ends, eft; };	/* on one node */
struct dlb_ways { double *latency_s, *Bps, *copies; };	/* [to]; copies: 1 or 0; NULL: not computed yet */

struct dlb_list {
	const struct dlb_problem *p;
	int *placement;				/* [op], borrowed; -1: not placed yet */
	/* new work may fill gaps between placed work; else it goes to the end of the queue */
	bool insertion;
	double *used_bytes;			/* [node] */
	struct dlb_busy *busy;			/* [node] with insertion */
	double *queue_s;			/* [node] the end of its queue, without insertion */
	double *first, *last;			/* [op] */
	struct dlb_ways *way;			/* [from] */
	/* [node] 1 + the last unit with an input of its first op there */
	int *has_inputs_of;
	/* [unit] producers of its first op's inputs that are not placed yet */
	int *waits;
	int *ready, n_ready;			/* units; dlb_list_put appends, the caller removes */
	int64_t n;				/* samples of the largest micro-batch */
};
void dlb_list_init(struct dlb_list *s, const struct dlb_problem *p, int *placement, bool insertion);
void dlb_list_release(struct dlb_list *s);
/* Whether the node has a kernel and room for the unit's bytes (dlb_group_bytes). */
bool dlb_list_able(const struct dlb_list *s, int unit, double bytes, int node);
/* The arrival of the unit's inputs at each node, and its work there. */
void dlb_list_times(struct dlb_list *s, int unit, struct dlb_unit_times *l);
void dlb_list_finish(const struct dlb_list *s, int unit, int node, const struct dlb_unit_times *l,
		     struct dlb_finish *f);
/* Places the unit; appends the units that become ready. */
void dlb_list_put(struct dlb_list *s, int unit, int node, const struct dlb_finish *f);

/* Repeatedly places the ready unit of the highest priority (ties: the first in the graph) on the node of
 * the least EFT + bias (bias NULL: 0; ties: a node with its inputs). 0; -1 with err. */
int dlb_list_schedule(const struct dlb_problem *p, const double *priority /* [unit] */,
		      const double *bias /* [unit][node] */, bool insertion, int *placement,
		      struct dlb_error *err);
#endif
