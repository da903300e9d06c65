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
	bool keeps_residuals; /* compressed sums keep a residual of each gradient, which moves with its weight */
	int n_shares; /* replicas that divide them, of one of which this is; 0: they are whole */
	int zero;     /* and the stage of --zero (plan.h) */
	bool clip;					/* gradients are clipped by their global norm */
	int inverse_every;				/* of K-FAC's factors; 0: another optimizer */
	enum dlb_objective objective;
	/* ops that run again (recompute.h), as asked for; NULL: none. Borrowed */
	const struct dlb_recompute *recompute;
	const struct dlb_offload *offload; /* what is kept in another memory; NULL: nothing. Borrowed */
	enum dlb_state_dtype state_dtype;	/* in which optimizer states are kept */
	bool quick;				/* with less effort: a plan to compare */
	bool in_run; /* of dlb_place_again: nodes wait for it, so a large graph is not searched */
	bool draft; /* of auto: the best of the quick placers, without a search */
	bool brief; /* there is a plan already: that another does not fit need not be explained */
	/* a plan to compare with others: its arenas are made only as small as it needs to fit, it is not
	 * proved, and has no lower bound and no time-line. dlb_plan_remake makes these of the plan that is
	 * taken */
	bool compared;
	int auto_replicas; /* where the number of replicas is free: this one; 0: any */
	/* constraints (constraints.h); all NULL or 0: none */
	const int *pin; const bool *excluded;		/* [op] its node or -1; [node] does no work */
	/* of auto: a placement that fits, from which it searches too; [op], NULL: none */
	const int *first;
	double below_s; /* of placers and of plans to compare: only a value below it is of use; 0: any */
	/* order in which greedy takes ready ops; [op], the greatest first */
	bool by_upward_rank; const double *number;
	const struct dlb_affinity *affinity;		/* of by-kind */
	/* [op]: the node of its state now; migration cost counts */
	const int *before;
	/* with before: ops that may move (< 0: any); steps over which the cost of migration is spread */
	int64_t max_moves; double serve_steps;
	int candidates; /* with so many others the units of search are shared (0: 1, with none) */
	/* of auto: units of search (0: 1); or seconds (0: effort counts) */
	int64_t effort; double search_s;
	double deadline_s;				/* with search_s: when it ends (dlb_clock_s) */
	int most_ideals;				/* that dp visits (0: 400,000) */
	/* steps of dp times combinations of nodes visited by each (0: any) */
	double most_dp_work;
	/* dlb_plan_make: teams, shares and sums as in this plan; NULL: one replica */
	const struct dlb_plan *replicas;
	/* the plan that is there: a plan with its placement, replicas, shares and schedule keeps its order too,
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
	/* set where memory keeps a plan or an op from where it would be without limits; NULL: nobody asks */
	bool *scarce;
	struct dlb_drafts *drafts; /* of replicas (drafts.h); NULL: none are kept */
	const bool *drop;				/* [op] named by `recompute`; NULL: none */
	struct dlb_recompute_memo *memo;		/* of what was chosen; NULL: nothing is */
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
/* Whether a plan of p is only to be compared with others. */
static inline bool dlb_problem_is_compared(const struct dlb_problem *p) { return p->draft || p->compared; }
/* n units of work of a search, divided by the candidates that share it. */
static inline int64_t dlb_search_share(const struct dlb_problem *p, int64_t n)
{
	return p->candidates > 1 ? n / p->candidates : n;
}
static inline bool dlb_problem_has_many_ops(const struct dlb_problem *p) { return p->graph->n_ops > 500; }
/* What is at most so much slower as a draft may be faster after a search: of many ops each moves little. */
static inline double dlb_search_near(const struct dlb_problem *p)
{
	return dlb_problem_has_many_ops(p) ? 1.05 : 1.1;
}
static inline double dlb_search_effort(const struct dlb_problem *p)
{
	return p->effort > 0 ? (double)p->effort : 1;
}
/* The work of a search for a unit of effort, in ops times micro-batches that are ordered or compiled
 * (drafts.h): some seconds; and the work of a draft for each op and micro-batch. */
#define DLB_SEARCH_WORK 40e6
#define DLB_DRAFT_WORK 80
/* The drafts that the effort allows. */
static inline double dlb_search_drafts(const struct dlb_problem *p)
{
	return DLB_SEARCH_WORK * dlb_search_effort(p) /
	       (DLB_DRAFT_WORK * (double)p->graph->n_ops * (double)p->micro_batches);
}
/* A draft is made only if its outline (outline.h) is below this. Where the effort allows few drafts for this
 * number of nodes, a little less than best_s, the shortest so far; where it allows many, more than that, as
 * outlines are not exact. */
static inline double dlb_outline_near_s(const struct dlb_problem *p, double best_s)
{
	const double part = dlb_search_drafts(p) / (2. * p->cluster->n_nodes);

	return best_s * (part < 1 ? 0.95 + 0.3 * part * part : 1.25);
}
/* Drafts under another schedule may take less than a draft, but not by this factor. */
#define DLB_OTHER_SCHEDULE 1.25
const struct dlb_placer *dlb_placer_find(const char *name);
/* the default rule tries it */
bool dlb_placer_by_default(const struct dlb_problem *p, const struct dlb_placer *x);
/* Too large to start from every placer. */
bool dlb_problem_is_large(const struct dlb_problem *p);
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
#endif
