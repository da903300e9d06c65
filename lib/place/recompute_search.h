/* Shared by the files that choose ops to run again: the plan with the present choice, and the bytes that its
 * nodes lack. Private to lib/place/recompute_*.c. */
#ifndef DLB_PLACE_RECOMPUTE_SEARCH_H
#define DLB_PLACE_RECOMPUTE_SEARCH_H
#include "place/problem.h"
#include "plan/program.h"

enum { DLB_RECOMPUTE_BISECTIONS = 12 };

/* A choice compiled before: the bytes that nodes lacked, and the makespan of its order. */
struct dlb_recompute_compiled {
	bool *again;
	double *lack, order_s;
};
struct dlb_recompute_search {
	const struct dlb_problem *p;
	struct dlb_plan *plan;
	bool draft;
	struct dlb_program program;
	struct dlb_arena arena;
	/* [node of replica 0] the largest bytes that a node with its part lacks, in any replica; < 0: there
	 * is room */
	double *lack;
	double below_s, order_s; /* see dlb_recompute_choose; the makespan of the last order */
	int in_flight;
	/* cache of the search by segments, in which similar limits drop the same ops */
	struct dlb_recompute_compiled seen[DLB_RECOMPUTE_BISECTIONS];
	int n_seen;
	struct dlb_error *err;
};

/* Orders and compiles with the present plan->again; sets the bytes that nodes lack. -1 with err. */
int dlb_recompute_compile(struct dlb_recompute_search *c);
void dlb_recompute_drop_program(struct dlb_recompute_search *c);
/* Sets the bytes that nodes lack with the present plan->again, and keeps no program. A choice seen before is
 * not compiled again. -1 with err. */
int dlb_recompute_find_lack(struct dlb_recompute_search *c);
/* The most bytes that a node lacks; 0: all have room. */
double dlb_recompute_most_lacking(const struct dlb_recompute_search *c);
static inline bool dlb_recompute_fits(const struct dlb_recompute_search *c)
{
	return dlb_recompute_most_lacking(c) <= 0;
}

/* Whether a place of a node holds an output of an op of that node that may run again. */
bool dlb_recompute_may_drop(const struct dlb_recompute_search *c, const struct dlb_program *g,
			    const struct dlb_place *x, int node);
/* Calls see(arg, i, place, phase) for each place that instruction i reads or writes. phase: of its op; -1:
 * the instruction computes no op, for example a message. */
void dlb_recompute_each_use(const struct dlb_program *g, const struct dlb_node_program *np,
			    void (*see)(void *arg, int i, int place, int phase), void *arg);

/* Both searches set plan->again. 1: the plan fits; 0: it does not; -1 with err. By segments
 * (recompute_segments.c): of the chains of all nodes that lack memory after dlb_recompute_compile. */
int dlb_recompute_by_segments(struct dlb_recompute_search *c);
/* By peaks (recompute_peaks.c). 2: a plan that fits takes below_s or more, since every turn only adds ops. */
int dlb_recompute_by_peaks(struct dlb_recompute_search *c);
#endif
