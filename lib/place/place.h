/* Placement: which node does which op.
 *
 * A problem is a graph with costs, weights and limits; a placer is one file and one row of dlb_placers[]
 * (place_list.h) that fills placement[]. Choosing among placers is choose.c (the default rule), not a placer.
 *
 * weight[node] (mean 1) divides the node's predicted compute time in every algorithm and in the value
 * that ranks candidates; kappa[node] (measured/predicted) multiplies it always, also in the predictions
 * that are stated. An op is placed once for all M micro-batches: its time on a node is
 * sum over m of its time for size[m] samples. */
#ifndef DLB_PLACE_PLACE_H
#define DLB_PLACE_PLACE_H
#include "place/port.h"
#include "plan/program.h"

/* What a plan is judged by: the simulated step under the schedule; or, under the port model, the load of the most
 * loaded node or the time of one batch (port.h). */
enum dlb_objective { DLB_STEP, DLB_THROUGHPUT, DLB_LATENCY, DLB_N_OBJECTIVES };
extern const char *const dlb_objectives[];		/* names, closed by NULL */

struct dlb_problem {
	const struct dlb_graph *graph; const struct dlb_cluster *cluster; const struct dlb_cost *cost;
	bool not_in_place;			/* no output overwrites an input */
	int micro_batches; int64_t batch;
	const struct dlb_schedule *schedule;
	int chunks;				/* parts a node gets of placer interleaved; 0: 2 */
	enum dlb_staleness staleness;			/* of an asynchronous schedule */
	const double *weight, *kappa;			/* [node]; NULL: all 1 */
	uint64_t seed;
	int n_state;					/* optimizer states per weight, for memory */
	bool clip;					/* gradients are clipped by their global norm */
	int inverse_every;				/* of K-FAC's factors; 0: another optimizer */
	enum dlb_objective objective;
	/* constraints (constraints.h); all NULL or 0: none */
	const int *pin; const bool *excluded;		/* [op] its node or -1; [node] does no work */
	bool by_upward_rank; const double *number;	/* order in which greedy takes ready ops; [op], the greatest first */
	const struct dlb_affinity *affinity;		/* of by-kind */
	const int *before;				/* [op]: where its state is now; what moving costs counts */
	int64_t max_moves; double serve_steps;		/* with before: ops that may move (< 0: any); steps moving is spread over */
	int64_t effort; double search_s;		/* of auto: units of search (0: 1); seconds instead (0: effort counts) */
	double deadline_s;				/* with search_s: when it ends (dlb_clock_s) */
	int most_ideals;				/* that dp looks at (0: 400,000) */
	double most_dp_work;				/* steps of dp times the combinations of nodes that each looks at (0: any) */
	const struct dlb_plan *replicas;		/* dlb_plan_make: teams, shares and sums as in this plan; NULL: one replica */
	/* made by dlb_problem_init */
	struct dlb_arena arena;
	int n_groups; int *group_of;			/* [op] -> group (colocation class), groups in topological order */
	int *group_start, *group_op;			/* ops of group g */
	int n_classes, *class_of, *class_count;		/* [node] -> class, numbered by their first nodes: alike in all their times */
	double *time_s;					/* [group][class]: all M micro-batches, kappa / weight; INFINITY: cannot */
	double *state_bytes;				/* [group]: weights, states, ... wherever it is */
	double *activation_bytes;			/* [group]: of one micro-batch, kept till backward */
	double *memory_bytes;				/* [node] limit, INFINITY: none */
	double *stated_scale, *ranked_scale;		/* [node] kappa; kappa / weight: what multiplies compute times */
	bool *free_node;				/* [node] has a kernel for at least one group */
	/* Told of every candidate of the default rule, as it is tried (err: why there is no such plan). May be NULL. */
	void (*tried)(void *arg, const char *name, double ranked_s, double value_s, const struct dlb_error *err);
	void (*said)(void *arg, const char *line);	/* remarks of placers. May be NULL */
	void (*warned)(void *arg, const char *line);	/* likewise: what was asked for by name is not had */
	void (*progress)(void *arg, int64_t done, int64_t total);	/* of a placer that takes long. May be NULL */
	void *tried_arg;
};
int dlb_problem_init(struct dlb_problem *p, struct dlb_error *err);
void dlb_problem_release(struct dlb_problem *p);
static inline double dlb_time_s(const struct dlb_problem *p, int group, int node)
{
	return p->time_s[(size_t)group * (size_t)p->n_classes + (size_t)p->class_of[node]];
}

struct dlb_placer {
	const char *name, *summary;
	/* Fills placement[n_ops]. 0; -1 with err (status 1: nothing fits). */
	int (*place)(const struct dlb_problem *p, int *placement, struct dlb_error *err);
	bool trivial;
	bool by_default;				/* tried by the default rule */
};
extern const struct dlb_placer dlb_placers[];		/* ends with name NULL */
#define PLACER(id, ...) int dlb_place_##id(const struct dlb_problem *p, int *placement, struct dlb_error *err);
#include "place/place_list.h"
#undef PLACER
const struct dlb_placer *dlb_placer_find(const char *name);
bool dlb_placer_by_default(const struct dlb_problem *p, const struct dlb_placer *x);	/* the default rule tries it */

/* Makes `plan` from a placement: order by the schedule, program, verify, simulate. *ranked is the
 * simulated step under the weights (what candidates are compared by); plan->value_s the stated one. */
int dlb_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan, double *ranked,
		  struct dlb_error *err);
/* The ranked value alone (INFINITY: does not fit or cannot run): what a search calls for every candidate. */
double dlb_place_value_s(const struct dlb_problem *p, const int *placement);
/* The same of a plan, with its replicas and shares. */
double dlb_place_plan_s(const struct dlb_problem *p, const struct dlb_plan *plan);
/* Nearly that value, much cheaper: the makespan of ordering the items, messages unshared, memory not looked at. */
double dlb_place_order_s(const struct dlb_problem *p, const int *placement);
/* Seconds of moving state from p->before to placement (0 without), and those spread over the steps to be served, which
 * is what ranked values have in them (moves.c). */
double dlb_place_migration_s(const struct dlb_problem *p, const int *placement);
static inline double dlb_place_migration_share_s(const struct dlb_problem *p, const int *placement)
{
	return p->before && p->serve_steps > 0 ? dlb_place_migration_s(p, placement) / p->serve_steps : 0;
}
/* Takes back moves until no more than p->max_moves ops stand elsewhere than in p->before. */
int dlb_place_limit_moves(const struct dlb_problem *p, int *placement, struct dlb_error *err);
/* Bytes that the node which lacks most lacks: 0 when all fits, INFINITY when ops stand where no kernel is. */
double dlb_place_lack_bytes(const struct dlb_problem *p, const int *placement);
/* As dlb_place for a model that is placed already: the current placement stays unless the new one's ranked
 * value is less by more than DLB_KEEP_GAIN of it, so that a plan moves only for a reason. Sets *kept, and what
 * has moved in plan. */
#define DLB_KEEP_GAIN 0.005
int dlb_place_again(const struct dlb_problem *p, const char *algorithm, const int *current, struct dlb_plan *plan,
		    bool *kept, struct dlb_error *err);
/* Ops of `plan` that stand elsewhere than in `before`, and bytes of state that move with them. */
void dlb_plan_moved(const struct dlb_problem *p, const int *before, struct dlb_plan *plan);
/* algorithm NULL: the default rule (greedy, proportional and the trivial ones; the least ranked wins). */
int dlb_place(const struct dlb_problem *p, const char *algorithm, struct dlb_plan *plan, struct dlb_error *err);
/* ---- replicas (replicas.c) ---- */
struct dlb_replicas_choice {
	int n;					/* 0: as many as are predicted to be fastest */
	struct dlb_sharing sharing;
	bool any_split;				/* even shares, or where teams are unequal by power: what is faster */
	const struct dlb_plan *now;		/* with a current placement: whose teams stay unless others are better; NULL: any */
};
/* dlb_place (or, with a current placement of the same teams, dlb_place_again) for several replicas. */
int dlb_place_replicas(const struct dlb_problem *p, const struct dlb_replicas_choice *choice, const char *algorithm, const int *current,
		       struct dlb_plan *plan, bool *kept, struct dlb_error *err);
/* No plan with the teams and shares of p->replicas can be shorter. */
double dlb_replicas_bound_s(const struct dlb_problem *p);
/* Certified: no plan's step can be shorter. max of total work over total speed (per kind and kernel
 * availability), critical path at the fastest nodes, heaviest group. */
double dlb_lower_bound_s(const struct dlb_problem *p);
/* --schedule auto (schedules.c): of all schedules and, without micro_batches_given, of 1, 2, 4 ... micro-batches those
 * whose plan has the least ranked step become p's, which is made anew. Placements are 1f1b's, made by place(arg, p, ...),
 * and for schedules that gain by several parts a node also that of placer interleaved; those that come out best are then
 * placed for themselves. trial[] (new, freed by the caller) is what was tried, INFINITY where nothing fits. */
struct dlb_trial { const char *schedule; int micro_batches; double value_s; };
int dlb_place_schedule(struct dlb_problem *p, bool micro_batches_given,
		       int (*place)(void *arg, const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err), void *arg,
		       struct dlb_trial **trial, int *n_trials, struct dlb_error *err);
/* "why op went to its node": a line per node with what it would have cost there. */
int dlb_place_why(const struct dlb_problem *p, const struct dlb_plan *plan, int op, FILE *f, struct dlb_error *err);

/* ---- shared by placers (eft.c, contiguous.c) ---- */
/* Bytes of group g on a node that has `in_flight` micro-batches under way, roughly: for placers to keep clear of
 * limits; verify has the last word. */
double dlb_group_bytes(const struct dlb_problem *p, int group);
int dlb_no_room(const struct dlb_problem *p, int group, struct dlb_error *err);	/* the error of placers: -1, status 1 */
/* Contiguous cuts are of the forward order; backward and update follow. A unit is one forward op with all that
 * follows it; forward ops bound to an earlier one belong to that one's unit. */
struct dlb_units {
	int n, *of_group;				/* [group] -> unit */
	double *time_s;					/* [unit][class of nodes] */
	double *bytes;					/* [unit] as dlb_group_bytes */
	double *forward_bytes, *backward_bytes;		/* [n + 1]: of one micro-batch across the cut before unit i */
};
static inline double dlb_unit_s(const struct dlb_units *u, const struct dlb_problem *p, int unit, int node)
{
	return u->time_s[(size_t)unit * (size_t)p->n_classes + (size_t)p->class_of[node]];
}
void dlb_units_init(struct dlb_units *u, const struct dlb_problem *p);
void dlb_units_release(struct dlb_units *u);
/* Units start[k] .. start[k+1] (n_parts + 1 borders) go to node[k]. */
void dlb_units_place(const struct dlb_units *u, const struct dlb_problem *p, int n_parts, const int *start,
		     const int *node, int *placement);
/* Seconds of a message between two nodes, a mean over pairs. */
double dlb_mean_xfer_s(const struct dlb_problem *p, double bytes);
/* HEFT's upward rank over groups, mean times (Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002). */
void dlb_upward_rank_s(const struct dlb_problem *p, double *rank /* n_groups */);
#endif
