/* Local search under the port model: annealing from a valid placement, moving classes and clumps of them.
 *
 * A search stops when its budget of proposals is spent, or, when it has a deadline, at the deadline: then the
 * result depends on the clock, else only on port, start and seed. */
#ifndef DLB_PLACE_SEARCH_H
#define DLB_PLACE_SEARCH_H
#include "place/port.h"
#include "util/rng.h"

struct dlb_problem;

struct dlb_search {
	const struct dlb_port *port;
	bool latency;
	struct dlb_rng rng;
	double deadline_s;			/* of dlb_clock_s; 0: none */
	int64_t budget;				/* proposals left */
	double bound_s;				/* nothing is better: reaching it ends the search */
	int *best;				/* [class], valid */
	double best_s;
};
bool dlb_search_over(const struct dlb_search *s);
/* One cooling from `from` (valid), `proposals` long, from temperature `hot` (a share of the value). Betters
 * s->best; leaves where it ended in from. soft: on its way memory may be exceeded, at a price. */
void dlb_anneal_throughput(struct dlb_search *s, int *from, int64_t proposals, double hot, bool soft);
/* Coolings level by level, from the coarsest graph's clumps of classes, hot, to classes; together: clumps of what stands
 * together in `from` only. Throughput. (multilevel.c) */
void dlb_search_multilevel(struct dlb_search *s, const int *from, bool together, int64_t proposals, double hot);
/* Exact steps from the best: windows of a few classes, each set to the best of all placements of its classes on a few nodes,
 * until many in a row gain nothing. Throughput. (window.c) */
void dlb_search_windows(struct dlb_search *s);
void dlb_anneal_latency(struct dlb_search *s, int *from, int64_t proposals, double hot);
/* The same for a step, over groups of the problem (anneal_step.c). Budget is in (op, micro-batch) pairs ordered;
 * a simulation counts for twelve orderings, a move that is not ordered for what it moves. */
struct dlb_step_search {
	struct dlb_rng rng;
	double deadline_s;			/* as above */
	int64_t budget;
	double bound_s;
	int *best;				/* [group]; fits */
	double best_s;				/* simulated */
};
bool dlb_step_search_over(const struct dlb_step_search *s);
/* One cooling from `from`, for so many pairs; hot 0: descent. */
void dlb_anneal_step(const struct dlb_problem *p, struct dlb_step_search *s, int *from, int64_t items, double hot);
/* Descent from the best, every move simulated. */
void dlb_refine_step(const struct dlb_problem *p, struct dlb_step_search *s, int64_t items);
/* Simulates every placement if there are no more than `most`; whether the best is known to be so. */
bool dlb_exhaust_step(const struct dlb_problem *p, struct dlb_step_search *s, int most);
/* Many coolings, until the search is over; starts[n_starts] are placements to begin with (the first is the best). cold:
 * only down, from the best. */
void dlb_search_run(struct dlb_search *s, int *const *starts, int n_starts, bool cold);
#endif
