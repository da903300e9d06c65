/* Placement: chooses the node of every op.
 *
 * A problem is a graph with costs, node weights and limits. A placer is an algorithm that fills
 * placement[]: one file and one row of dlb_placers[] (place_list.h). choose.c chooses among placers.
 *
 * weight[node] (mean 1) divides the node's predicted compute time in every algorithm and in the value that
 * ranks candidates. kappa[node] (measured/predicted) always multiplies it, in stated predictions too. An
 * op is placed once for all M micro-batches: its time on a node is the sum over m of its time for size[m]
 * samples. */
#ifndef DLB_PLACE_PLACE_H
#define DLB_PLACE_PLACE_H
#include "place/port.h"
#include "plan/program.h"

/* The value of a plan: the simulated step under the schedule or, under the port model, the load of the most
 * loaded node or the time of one batch (port.h). */
enum dlb_objective { DLB_STEP, DLB_THROUGHPUT, DLB_LATENCY, DLB_N_OBJECTIVES };
extern const char *const dlb_objectives[];		/* names, closed by NULL */

struct dlb_problem {
	const struct dlb_graph *graph; const struct dlb_cluster *cluster; const struct dlb_cost *cost;
	bool not_in_place;			/* no output overwrites an input */
	int micro_batches; int64_t batch;
	const struct dlb_schedule *schedule;
	int chunks;				/* parts per node of placer interleaved; 0: 2 */
	enum dlb_staleness staleness;			/* of an asynchronous schedule */
	const double *weight, *kappa;			/* [node]; NULL: all 1 */
	uint64_t seed;
	int n_state;					/* optimizer states per weight, for memory */
	bool clip;					/* gradients are clipped by their global norm */
	int inverse_every;				/* of K-FAC's factors; 0: another optimizer */
	enum dlb_objective objective;
	/* constraints (constraints.h); all NULL or 0: none */
	const int *pin; const bool *excluded;		/* [op] its node or -1; [node] does no work */
	/* order in which greedy takes ready ops; [op], the greatest first */
	bool by_upward_rank; const double *number;
	const struct dlb_affinity *affinity;		/* of by-kind */
	/* [op]: the node of its state now; migration cost counts */
	const int *before;
	/* with before: ops that may move (< 0: any); steps over which the cost of migration is spread */
	int64_t max_moves; double serve_steps;
	/* of auto: units of search (0: 1); or seconds (0: effort counts) */
	int64_t effort; double search_s;
	double deadline_s;				/* with search_s: when it ends (dlb_clock_s) */
	int most_ideals;				/* that dp visits (0: 400,000) */
	/* steps of dp times combinations of nodes visited by each (0: any) */
	double most_dp_work;
	/* dlb_plan_make: teams, shares and sums as in this plan; NULL: one replica */
	const struct dlb_plan *replicas;
	/* made by dlb_problem_init */
	struct dlb_arena arena;
	/* [op] -> group (colocation class), groups in topological order */
	int n_groups; int *group_of;
	int *group_start, *group_op;			/* ops of group g */
	/* [node] -> class of nodes with equal times, numbered by first node */
	int n_classes, *class_of, *class_count;
	/* [group][class]: all M micro-batches, kappa / weight; INFINITY: cannot */
	double *time_s;
	double *state_bytes;				/* [group]: weights, optimizer states, ... */
	double *activation_bytes;			/* [group]: of one micro-batch, kept till backward */
	double *memory_bytes;				/* [node] limit, INFINITY: none */
	/* [node] kappa; kappa / weight: factors of compute times */
	double *stated_scale, *ranked_scale;
	bool *free_node;				/* [node] has a kernel for at least one group */
	/* Called for every candidate of the default rule (err: the reason if it gave no plan). May be
	 * NULL. */
	void (*tried)(void *arg, const char *name, double ranked_s, double value_s,
		      const struct dlb_error *err);
	void (*said)(void *arg, const char *line);	/* remarks of placers. May be NULL */
	/* likewise: a placer asked for by name fell short. May be NULL */
	void (*warned)(void *arg, const char *line);
	void (*progress)(void *arg, int64_t done, int64_t total);	/* of slow placers. May be NULL */
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
/* the default rule tries it */
bool dlb_placer_by_default(const struct dlb_problem *p, const struct dlb_placer *x);

/* Makes `plan` from a placement: orders by the schedule, compiles, verifies, simulates. *ranked is the
 * simulated step under the weights, by which candidates are compared; plan->value_s the stated one. */
int dlb_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan, double *ranked,
		  struct dlb_error *err);
/* The ranked value alone, for searches; INFINITY: does not fit or cannot run. */
double dlb_place_value_s(const struct dlb_problem *p, const int *placement);
/* The same of a plan, with its replicas and shares. */
double dlb_place_plan_s(const struct dlb_problem *p, const struct dlb_plan *plan);
/* A cheap approximation of that value: the makespan of the ordered items, without link sharing and memory
 * limits. */
double dlb_place_order_s(const struct dlb_problem *p, const int *placement);
/* Seconds to move state from p->before to placement (0 if before is NULL); and those per served step,
 * which ranked values include (moves.c). */
double dlb_place_migration_s(const struct dlb_problem *p, const int *placement);
static inline double dlb_place_migration_share_s(const struct dlb_problem *p, const int *placement)
{
	return p->before && p->serve_steps > 0 ? dlb_place_migration_s(p, placement) / p->serve_steps : 0;
}
/* Undoes moves until at most p->max_moves ops are on another node than in p->before. */
int dlb_place_limit_moves(const struct dlb_problem *p, int *placement, struct dlb_error *err);
/* The largest shortage of memory of a node, in bytes: 0 if all fits, INFINITY if an op's node has no
 * kernel for it. */
double dlb_place_lack_bytes(const struct dlb_problem *p, const int *placement);
/* As dlb_place for a model that has a placement: the current one is kept unless the new one's ranked value
 * is less by more than DLB_KEEP_GAIN of it. Sets *kept, and the moved ops and bytes in plan. */
#define DLB_KEEP_GAIN 0.005
int dlb_place_again(const struct dlb_problem *p, const char *algorithm, const int *current,
		    struct dlb_plan *plan, bool *kept, struct dlb_error *err);
/* Sets in plan the number of ops on another node than in `before`, and the bytes of state that move with
 * them. */
void dlb_plan_moved(const struct dlb_problem *p, const int *before, struct dlb_plan *plan);
/* algorithm NULL: the default rule (greedy, proportional and the trivial ones; the least ranked wins). */
int dlb_place(const struct dlb_problem *p, const char *algorithm, struct dlb_plan *plan,
	      struct dlb_error *err);
/* ---- replicas (replicas.c) ---- */
struct dlb_replicas_choice {
	int n;					/* 0: the number predicted to be fastest */
	struct dlb_sharing sharing;
	bool any_split;				/* shares even or by the teams' speeds, whichever is faster */
	const struct dlb_plan *now;		/* the current plan, whose teams are kept unless others are
						 * better; NULL: none */
};
/* dlb_place for several replicas or, with a current placement of the same teams, dlb_place_again. */
int dlb_place_replicas(const struct dlb_problem *p, const struct dlb_replicas_choice *choice,
		       const char *algorithm, const int *current, struct dlb_plan *plan, bool *kept,
		       struct dlb_error *err);
/* A lower bound on the step of any plan with the teams and shares of p->replicas. */
double dlb_replicas_bound_s(const struct dlb_problem *p);
/* A certified lower bound on every plan's step: the maximum of total work over total speed (per kind and
 * kernel availability), the critical path on the fastest nodes, and the heaviest group (bound.c). */
double dlb_lower_bound_s(const struct dlb_problem *p);
/* --schedule auto (schedules.c): tries all schedules and, without micro_batches_given, 1, 2, 4 ...
 * micro-batches. Those of the least ranked step become p's, which is initialized again. Trials use the
 * placement for 1f1b, made by place(arg, p, ...), and for schedules that gain by several parts per node
 * also that of placer interleaved; the best schedules are then placed by themselves. trial[] (new, the
 * caller frees it): all trials, INFINITY if nothing fits. */
struct dlb_trial { const char *schedule; int micro_batches; double value_s; };
int dlb_place_schedule(struct dlb_problem *p, bool micro_batches_given,
		       int (*place)(void *arg, const struct dlb_problem *p, struct dlb_plan *plan,
				    struct dlb_error *err),
		       void *arg, struct dlb_trial **trial, int *n_trials, struct dlb_error *err);
/* Prints why op is on its node: a line per node with the op's cost there. */
int dlb_place_why(const struct dlb_problem *p, const struct dlb_plan *plan, int op, FILE *f,
		  struct dlb_error *err);

/* ---- shared by placers (eft.c, contiguous.c) ---- */
/* Estimated bytes of a group on a node, with the micro-batches that are in flight. Placers use it to
 * respect limits; the verifier decides. */
double dlb_group_bytes(const struct dlb_problem *p, int group);
int dlb_no_room(const struct dlb_problem *p, int group, struct dlb_error *err);	/* returns -1, status 1 */
/* Contiguous placements cut the forward order. A unit is one forward op with the backward and update ops
 * that follow it; forward ops colocated with an earlier one belong to its unit. */
struct dlb_units {
	int n, *of_group;				/* [group] -> unit */
	double *time_s;					/* [unit][class of nodes] */
	double *bytes;					/* [unit] as dlb_group_bytes */
	/* [n + 1]: of one micro-batch across the cut before unit i */
	double *forward_bytes, *backward_bytes;
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
/* Seconds of a message between two nodes: an estimate of the mean over pairs, 0 on the same node counted. */
double dlb_mean_xfer_s(const struct dlb_problem *p, double bytes);
/* HEFT's upward rank over groups, mean times (Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002). */
void dlb_upward_rank_s(const struct dlb_problem *p, double *rank /* n_groups */);
#endif
