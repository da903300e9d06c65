/* Local search under the port model: annealing from a valid placement by moves of classes and clusters of
 * them.
 *
 * A search stops when its budget of proposals is spent or, if it has a deadline, at the deadline. With a
 * deadline the result depends on the clock, else only on port, start and seed. */
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
	double bound_s;				/* lower bound: reaching it ends the search */
	int *best;				/* [class], valid */
	double best_s;
};
bool dlb_search_over(const struct dlb_search *s);
/* One annealing run of `proposals` from the valid placement `from`, from temperature `hot` (a fraction of
 * the value). Improves s->best; `from` becomes the final placement. soft: memory may be exceeded on the
 * way, at a penalty. */
void dlb_anneal_throughput(struct dlb_search *s, int *from, int64_t proposals, double hot, bool soft);
/* Annealing level by level, from the coarsest graph, hot, to single classes; together: clusters contain
 * only classes that share a node in `from`. Throughput. (multilevel.c) */
void dlb_search_multilevel(struct dlb_search *s, const int *from, bool together, int64_t proposals,
			   double hot);
/* Exact window search from the best: takes a window of a few classes and gives them the best of all their
 * placements on a few nodes, until many windows in a row gain nothing. Throughput. (window.c) */
void dlb_search_windows(struct dlb_search *s);
void dlb_anneal_latency(struct dlb_search *s, int *from, int64_t proposals, double hot, bool soft);
/* The same for a step, over groups of the problem (anneal_step.c). Budget is in (op, micro-batch) pairs
 * ordered; a simulation counts as twelve orderings, a move that is not ordered as the groups it moves. */
struct dlb_step_search {
	struct dlb_rng rng;
	double deadline_s;			/* as above */
	int64_t budget;
	double bound_s;
	int *best;				/* [group]; fits */
	double best_s;				/* simulated */
};
bool dlb_step_search_over(const struct dlb_step_search *s);
/* One annealing run from `from`, for `items` pairs; hot 0: descent. */
void dlb_anneal_step(const struct dlb_problem *p, struct dlb_step_search *s, int *from, int64_t items,
		     double hot);
/* Descent from the best with every move simulated. */
void dlb_refine_step(const struct dlb_problem *p, struct dlb_step_search *s, int64_t items);
/* Simulates every placement if there are at most `most`; returns whether the best is proved optimal. */
bool dlb_exhaust_step(const struct dlb_problem *p, struct dlb_step_search *s, int most);
/* Annealing runs until the search is over; starts[n_starts]: placements to start from, the best first.
 * cold: only descents from the best. */
void dlb_search_run(struct dlb_search *s, int *const *starts, int n_starts, bool cold);
#endif
