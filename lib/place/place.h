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
	bool not_in_place;			/* no op writes its output over an input */
	int micro_batches; int64_t batch;
	const struct dlb_schedule *schedule;
	int chunks;				/* parts per node of placer interleaved; 0: 2 */
	enum dlb_staleness staleness;			/* of an asynchronous schedule */
	const double *weight, *kappa;			/* [node]; NULL: all 1 */
	uint64_t seed;
	int n_state;					/* optimizer states per weight, for memory */
	bool keeps_residuals; /* compressed sums keep a residual of each gradient, which moves with its weight */
	int n_shares; /* replicas that divide the optimizer states, this one included; 0: undivided */
	int zero;     /* stage of --zero (plan.h) */
	bool clip;					/* gradients are clipped by their global norm */
	int inverse_every;				/* of K-FAC's factors; 0: another optimizer */
	enum dlb_objective objective;
	/* ops that run again (recompute.h), as asked for; NULL: none. Borrowed */
	const struct dlb_recompute *recompute;
	const struct dlb_offload *offload; /* tensors kept in another memory; NULL: none. Borrowed */
	enum dlb_state_dtype state_dtype;	/* data type of the stored optimizer states */
	bool quick;				/* less effort, for a plan that is not kept */
	bool in_run; /* all nodes wait for dlb_place_again, so it does not search a large graph */
	bool draft; /* placer auto takes the best of the quick placers, without a search */
	bool brief; /* a plan exists already, so errors need not explain why another does not fit */
	/* the plan is compared with others: its arenas are packed only as tightly as memory needs, its
	 * program is not fully verified, and it has no lower bound and no time-line. dlb_plan_remake
	 * completes the plan that is chosen */
	bool compared;
	int auto_replicas; /* the number of replicas where the user leaves it free; 0: any */
	/* constraints (constraints.h); all NULL or 0: none */
	const int *pin; const bool *excluded;		/* [op] its node or -1; [node] does no work */
	/* [op] a placement that fits, one more start of auto's search; NULL: none */
	const int *first;
	double below_s; /* placers and compared plans: only a value below it is useful; 0: any */
	/* order in which greedy takes ready ops: by upward rank, or by number[op], the greatest first */
	bool by_upward_rank; const double *number;
	const struct dlb_affinity *affinity;		/* of by-kind */
	/* [op]: the node of its state now; migration cost counts */
	const int *before;
	/* with before: ops that may move (< 0: any); steps over which the cost of migration is spread */
	int64_t max_moves; double serve_steps;
	int candidates; /* problems among which the units of search are divided; 0: 1 */
	/* budget of auto: units of search (0: 1), or seconds (0: effort counts) */
	int64_t effort; double search_s;
	double deadline_s;				/* with search_s: clock at its end (dlb_clock_s) */
	int most_ideals;				/* limit for dp; 0: 400,000 */
	/* limit for dp: steps times combinations of nodes visited in each; 0: none */
	double most_dp_work;
	/* dlb_plan_make: teams, shares and sums as in this plan; NULL: one replica */
	const struct dlb_plan *replicas;
	/* the existing plan: a plan with its placement, replicas, shares and schedule keeps its order too,
	 * unless the order of the schedule is faster by more than DLB_KEEP_GAIN; NULL: none */
	const struct dlb_plan *ordered;
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
	/* set to true if a memory limit excludes a plan, or a node for an op; NULL: not reported */
	bool *scarce;
	struct dlb_drafts *drafts; /* cache of drafts and values (drafts.h); NULL: none */
	const bool *drop;				/* [op] named by `recompute`; NULL: none */
	struct dlb_recompute_memo *memo;		/* cache of chosen ops to run again; NULL: none */
	/* Called for every placer that is tried (err: the reason if it gave no plan). May be NULL. */
	void (*tried)(void *arg, const char *name, double ranked_s, double value_s,
		      const struct dlb_error *err);
	void (*said)(void *arg, const char *line);	/* remarks of placers. May be NULL */
	/* warnings: a placer that the user named fell short. May be NULL */
	void (*warned)(void *arg, const char *line);
	void (*progress)(void *arg, int64_t done, int64_t total);	/* of slow placers. May be NULL */
	void *tried_arg;
};
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
/* Whether a plan of p is only compared with others. */
static inline bool dlb_problem_is_compared(const struct dlb_problem *p) { return p->draft || p->compared; }
/* The share of one candidate in n units of search. */
static inline int64_t dlb_search_share(const struct dlb_problem *p, int64_t n)
{
	return p->candidates > 1 ? n / p->candidates : n;
}
static inline bool dlb_problem_has_many_ops(const struct dlb_problem *p) { return p->graph->n_ops > 500; }
/* A draft slower than the best one by at most this factor may be faster after a search. With many ops one
 * move changes little, so the factor is smaller. */
static inline double dlb_search_near(const struct dlb_problem *p)
{
	return dlb_problem_has_many_ops(p) ? 1.05 : 1.1;
}
static inline double dlb_search_effort(const struct dlb_problem *p)
{
	return p->effort > 0 ? (double)p->effort : 1;
}
/* Work of a search per unit of effort, some seconds, in ops times micro-batches ordered or compiled
 * (drafts.h); work of a draft per op and micro-batch. */
#define DLB_SEARCH_WORK 40e6
#define DLB_DRAFT_WORK 80
/* The number of drafts that the effort allows. */
static inline double dlb_search_drafts(const struct dlb_problem *p)
{
	return DLB_SEARCH_WORK * dlb_search_effort(p) /
	       (DLB_DRAFT_WORK * (double)p->graph->n_ops * (double)p->micro_batches);
}
/* A draft is made only if its outline (outline.h) is below this limit. The limit is a little below best_s,
 * the shortest step so far, where the effort allows few drafts for this number of nodes. Where it allows
 * many, the limit is above best_s, since outlines are not exact. */
static inline double dlb_outline_near_s(const struct dlb_problem *p, double best_s)
{
	const double part = dlb_search_drafts(p) / (2. * p->cluster->n_nodes);

	return best_s * (part < 1 ? 0.95 + 0.3 * part * part : 1.25);
}
/* Another schedule may shorten the step of a draft, but by less than this factor. */
#define DLB_OTHER_SCHEDULE 1.25
const struct dlb_placer *dlb_placer_find(const char *name);
/* Whether the default rule tries the placer. */
bool dlb_placer_by_default(const struct dlb_problem *p, const struct dlb_placer *x);
/* Whether the problem is too large for a search to start from every placer. */
bool dlb_problem_is_large(const struct dlb_problem *p);
/* As dlb_place for a model that has a placement: the current one is kept unless the new one's ranked value
 * is less by more than DLB_KEEP_GAIN of it. Sets *kept, and the moved ops and bytes in plan. */
#define DLB_KEEP_GAIN 0.005
int dlb_place_again(const struct dlb_problem *p, const char *algorithm, const int *current,
		    struct dlb_plan *plan, bool *kept, struct dlb_error *err);
/* Sets in plan the number of ops on another node than in `before`, and the bytes of state that move with
 * them. */
void dlb_plan_moved(const struct dlb_problem *p, const int *before, struct dlb_plan *plan);
/* Makes a plan by the algorithm; NULL: the default rule, auto (choose.c). 0; -1 with err. */
int dlb_place(const struct dlb_problem *p, const char *algorithm, struct dlb_plan *plan,
	      struct dlb_error *err);
#endif
