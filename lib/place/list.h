/* List scheduling: what greedy, heft, peft and etf have in common.
 *
 * A unit is a group of ops that go together, placed once for all its M micro-batches; it is ready when the
 * producers of its first op's inputs are placed. With one micro-batch t and all M of them T seconds, first(i) and
 * last(i) the times when op i's first and last micro-batch are there, c the time of a message:
 *
 *     arrives(i,d) = max over inputs p of first(p) + c(p,d)        the pipeline fills
 *     starts(i,d)  = when the node has T seconds free after that
 *     ends(i,d)    = starts(i,d) + T(i,d)                          all M in the node's queue
 *     EFT(i,d)     = max(ends(i,d), max over p of last(p) + c(p,d) + t(i,d))
 *
 * Where messages take a core's time (shared memory: the sender's), M of them are work. It is counted in T of the op that
 * asks for them: what its producers' nodes do is planned already. */
#ifndef DLB_PLACE_LIST_H
#define DLB_PLACE_LIST_H
#include "place/place.h"

struct dlb_span_s { double start_s, end_s; };
struct dlb_busy { struct dlb_span_s *span; int n, size; };	/* ascending, apart */
/* Of one unit, [node]: see above, and T with what it copies. */
struct dlb_unit_times { double *arrives, *last, *work; };
void dlb_unit_times_init(struct dlb_unit_times *l, int n_nodes);
void dlb_unit_times_release(struct dlb_unit_times *l);
struct dlb_finish { double arrives, work, starts, ends, eft; };	/* on one node */
struct dlb_ways { double *latency_s, *Bps, *copies; };	/* [to]; copies: 1 or 0; NULL: not asked for yet */

struct dlb_list {
	const struct dlb_problem *p;
	int *placement;				/* [op], borrowed; -1: not placed yet */
	bool insertion;				/* gaps between what is placed may be filled; else only the end */
	double *used_bytes;			/* [node] */
	struct dlb_busy *busy;			/* [node] with insertion */
	double *queue_s;			/* [node] the end of its queue without */
	double *first, *last;			/* [op] */
	struct dlb_ways *way;			/* [from] */
	int *has_inputs_of;			/* [node] 1 + the unit some input of whose first op is there, as last asked for */
	int *waits;				/* [unit] producers of its first op's inputs that are not placed yet */
	int *ready, n_ready;			/* units; put appends, whoever takes one removes it */
	int64_t n;				/* samples of the largest micro-batch */
};
void dlb_list_init(struct dlb_list *s, const struct dlb_problem *p, int *placement, bool insertion);
void dlb_list_release(struct dlb_list *s);
/* Kernel, and room for the unit's bytes (dlb_group_bytes). */
bool dlb_list_able(const struct dlb_list *s, int unit, double bytes, int node);
/* When the unit's inputs would be on each node, and what it would work there. */
void dlb_list_times(struct dlb_list *s, int unit, struct dlb_unit_times *l);
void dlb_list_finish(const struct dlb_list *s, int unit, int node, const struct dlb_unit_times *l, struct dlb_finish *f);
/* Places it; the units that it makes ready come at the end of the ready ones. */
void dlb_list_put(struct dlb_list *s, int unit, int node, const struct dlb_finish *f);

/* The ready unit of the highest priority (ties: the first in the graph) to the node of the least EFT + bias
 * (bias NULL: 0; ties: where the inputs are), until all are placed. 0; -1 with err. */
int dlb_list_schedule(const struct dlb_problem *p, const double *priority /* [unit] */, const double *bias /* [unit][node] */,
		      bool insertion, int *placement, struct dlb_error *err);
#endif
