/* Placement: which node does which op.
 *
 * A problem is a graph with costs, weights and limits; a placer is one file and one row of dlb_placers[]
 * that fills placement[]. Choosing among placers is choose.c (the default rule), not a placer.
 *
 * weight[node] (mean 1) divides the node's predicted compute time in every algorithm and in the value
 * that ranks candidates; kappa[node] (measured/predicted) multiplies it always, also in the predictions
 * that are stated. An op is placed once for all M micro-batches: its time on a node is
 * sum over m of its time for size[m] samples. */
#ifndef DLB_PLACE_PLACE_H
#define DLB_PLACE_PLACE_H
#include "plan/program.h"

struct dlb_problem {
	const struct dlb_graph *graph; const struct dlb_cluster *cluster; const struct dlb_cost *cost;
	int micro_batches; int64_t batch;
	const struct dlb_schedule *schedule;
	const double *weight, *kappa;			/* [node]; NULL: all 1 */
	uint64_t seed;
	int n_state;					/* optimizer states per weight, for memory */
	/* made by dlb_problem_init */
	struct dlb_arena arena;
	int n_groups; int *group_of;			/* [op] -> group (colocation class), groups in topological order */
	int *group_start, *group_op;			/* ops of group g */
	double *time_s;					/* [group][node]: all M micro-batches, kappa / weight; INFINITY: cannot */
	double *stays_bytes;				/* [group]: weights, states, ... wherever it is */
	double *activation_bytes;			/* [group]: of one micro-batch, kept till backward */
	double *memory_bytes;				/* [node] limit, INFINITY: none */
};
int dlb_problem_init(struct dlb_problem *p, struct dlb_error *err);
void dlb_problem_release(struct dlb_problem *p);

struct dlb_placer {
	const char *name, *summary;
	/* Fills placement[n_ops]. 0; -1 with err (status 1: nothing fits). */
	int (*place)(const struct dlb_problem *p, int *placement, struct dlb_error *err);
	bool trivial;					/* tried by the default rule */
};
extern const struct dlb_placer dlb_placers[];		/* ends with name NULL */
const struct dlb_placer *dlb_placer_find(const char *name);

/* Makes `plan` from a placement: order by the schedule, program, verify, simulate. *ranked is the
 * simulated step under the weights (what candidates are compared by); plan->value_s the stated one. */
int dlb_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan, double *ranked,
		  struct dlb_error *err);
/* algorithm NULL: the default rule (greedy, proportional and the trivial ones; the least ranked wins). */
int dlb_place(const struct dlb_problem *p, const char *algorithm, struct dlb_plan *plan, struct dlb_error *err);
/* Certified: no plan's step can be shorter. max of total work over total speed (per kind and kernel
 * availability), critical path at the fastest nodes, heaviest group. */
double dlb_lower_bound_s(const struct dlb_problem *p);
/* "why op went to its node": a line per node with what it would have cost there. */
int dlb_place_why(const struct dlb_problem *p, const struct dlb_plan *plan, int op, FILE *f, struct dlb_error *err);

/* ---- shared by placers (eft.c) ---- */
/* HEFT's upward rank over groups, mean times (Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002). */
void dlb_upward_rank_s(const struct dlb_problem *p, double *rank /* n_groups */);
#endif
