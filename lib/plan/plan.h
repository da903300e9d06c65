/* The plan: the node of every op, and the order in which each node works.
 *
 * placement[op] is a node. order[node] lists (op, micro-batch) pairs as that node executes them; an
 * update op appears once, with micro_batch -1. The schedule determines the order: schedules are priority
 * rules of one list scheduler (schedule.c) over (op, micro-batch), with a limit of micro-batches in flight.
 * Predictions (value_s, the time-line, busy, wait, peak) come from the simulator, which walks the compiled
 * programs with costs times kappa, without node weights. */
#ifndef DLB_PLAN_PLAN_H
#define DLB_PLAN_PLAN_H
#include "cost/cost.h"
#include "tensor/state_codec.h"

/* The versions of weights that an asynchronous schedule reads (async.c); DEFAULT: 2bw if two versions
 * suffice, else stash. */
enum dlb_staleness {
	DLB_STALE_DEFAULT,
	DLB_STALE_NONE,
	DLB_STALE_STASH,
	DLB_STALE_2BW,
	DLB_STALE_PREDICT,
	DLB_N_STALENESS
};

struct dlb_item { int op, micro_batch; };
struct dlb_span { int op, micro_batch; double start_s, end_s; bool again; };	/* of a time-line */
struct dlb_node_plan {
	struct dlb_item *order; int n_order;
	double busy_s, wait_s;			/* predicted, per step */
	double peak_bytes;			/* planned arena + state */
	double offloaded_bytes; /* of its states, weights and activations, in other memories (offload.h) */
	/* The part of peak_bytes in each memory that the node names. */
	struct dlb_node_memory { const char *name; double bytes[DLB_N_BUFFERS]; } *memory; int n_memories;
};
#define DLB_ALLREDUCE_AUTO "auto"		/* chosen by the size of each sum, recorded in the plan */
enum { DLB_MOST_SIZES = 8 };
enum { DLB_MOST_ZERO = 3 };			/* the highest stage in which replicas divide state */
/* classes of sums that can be compressed: factor, gradient, small */
enum { DLB_N_COMPRESSED = 3 };
/* How replicas combine gradients or weights (sharing.c): members of the plan section of the same names. */
struct dlb_sharing {
	/* how gradients are summed: a row of dlb_allreduces, or DLB_ALLREDUCE_AUTO */
	const char *allreduce;
	/* auto: the algorithm by size, ascending; the first from 0 bytes */
	struct dlb_by_size { int64_t from_bytes; const char *allreduce; } by_size[DLB_MOST_SIZES];
	int n_by_size;				/* 0: not chosen yet (dlb_plan_choose_sums) */
	bool sync;				/* no sum starts before every node has computed its step */
	/* batch statistics are over micro-batch m of all replicas together */
	bool sync_batchnorm;
	/* "split": shares of the batch are in proportion to predicted speed, else even */
	bool by_power;
	/* the user asked for this split, so the next round keeps it */
	bool split_given;
	char compress[48];			/* text of dlb_compress_parse, or "auto" */
	char compress_of[DLB_N_COMPRESSED][48];	/* auto: the choice, by enum dlb_sum_class; "": none yet */
	const char *reduce;			/* "gradients:mean" ... (optim.h); NULL: not given */
	/* "local", "merged": the running maximum of summed moments; NULL: not given */
	const char *max_state;
	/* The alternative to sums: each replica updates with its own gradient, and weights are averaged
	 * (dlb_sharing_averages). */
	/* fraction of the parameters averaged with the ring neighbours after a step */
	double gossip;
	int64_t sync_every;			/* steps between means over all replicas; 0: not given */
	int param_server;			/* node that computes that mean; -1: none, by an allreduce */
	/* 1, 2, 3: replicas divide the optimizer's state (shares.h), 3: the weights too; 0: they divide
	 * nothing */
	int zero;
	/* Samples. */
	/* "even", "sorted": each replica draws from its own shard; NULL: no shards */
	const char *shards;
	double exchange_data;			/* fraction of each shard that is exchanged after an epoch */
	bool feed_host;				/* rank 0 reads and prepares samples for all */
};
/* A candidate of --compress auto for a class of sums (advise.c): times and bytes of a step with it, with
 * earlier classes as chosen and later ones dense. */
struct dlb_advice {
	int cls;				/* enum dlb_sum_class */
	char how[48];
	/* bytes of this class sent by all nodes in a step; the simulated step */
	double bytes, step_s;
	/* stated in dlb-place(1): a bound on "sums", a measurement of "loss"; 0, NULL: none */
	double error; const char *error_of;
	bool chosen;
};
/* The request for ops that run again: chosen by dlb-place for the shortest step that fits, or given by
 * patterns of the names of ops and tensors. Neither: no op runs again. */
struct dlb_recompute { bool chosen; const char *const *pattern; int n; };
/* The data that are kept in another memory of their node (offload.h), by rules of three kinds: the optimizer
 * states of weights whose name matches a rule's pattern; such weights themselves; and activations, that is,
 * outputs of forward ops, whose pattern matches names of ops and tensors. The first matching rule of a kind
 * holds. chosen: dlb-place made the rules. */
enum dlb_offload_kind {
	DLB_OFFLOAD_STATES,
	DLB_OFFLOAD_WEIGHTS,
	DLB_OFFLOAD_ACTIVATIONS,
	DLB_N_OFFLOAD_KINDS
};
struct dlb_offload_rule {
	const char *pattern, *memory;
	enum dlb_offload_kind kind;
};
/* Values of dlb_plan.far. FAR_VIEW: the op is a view of an offloaded output, and runs again on the fetched
 * copy. */
enum { DLB_FAR_NONE = -1, DLB_FAR_VIEW = -2 };
struct dlb_offload {
	bool chosen;
	const struct dlb_offload_rule *rule;
	int n;
};
struct dlb_plan {
	struct dlb_arena arena;
	int n_ops, n_nodes, micro_batches;
	int64_t batch;
	/* parts per node of algorithm interleaved; 0: its default (kept for the next round) */
	int chunks;
	/* most micro-batches in flight on a node; 0: the schedule's limit */
	int in_flight;
	int most_in_flight;			/* the limit in use (set by dlb_schedule_order) */
	/* updates run as soon as their gradients are computed, which frees the gradients' memory; always true
	 * of a plan of one node */
	bool updates_first;
	int *placement;				/* [op] */
	struct dlb_node_plan *node;
	const char *algorithm, *schedule;	/* as requested; `winner`: the algorithm that made the plan */
	const char *winner;
	bool algorithm_given;			/* -a NAME was given (kept for the next round) */
	uint64_t seed;
	/* [op] whether its outputs are dropped after the forward phase and it runs again (again.h); NULL: no
	 * op does */
	bool *again;
	struct dlb_recompute recompute;		/* as requested */
	struct dlb_offload offload;
	/* [op] the rule of offload by which its outputs are kept in another memory, or one of DLB_FAR_*;
	 * NULL: none are (dlb_offload_mark) */
	const int *far;
	enum dlb_state_dtype state_dtype; /* type in which optimizer states are kept (small_states.h) */
	/* outputs may overwrite inputs that are not read later (program.h) */
	bool in_place;
	/* a candidate of a search: its arenas are reduced no further than to arena_room bytes ([node], owned
	 * by the caller; NULL: not at all) */
	bool draft;
	const double *arena_room;
	/* a candidate of a search: scheduling ends early if the makespan cannot be below this; 0: never */
	double order_below_s;
	double makespan_s; /* of the last order, by its schedule and under node weights; 0: no order yet */
	enum dlb_staleness staleness, staleness_used;	/* asynchronous schedules: as requested; in use */
	double fill_s;				/* asynchronous: seconds of filling and draining per run */
	const char *objective;			/* "throughput", "latency"; NULL: the step */
	int64_t effort;				/* of algorithm auto; 0: limited by time, or not auto */
	const char *optimizer;			/* the optimizer for whose states memory was counted */
	/* Replicas: groups of nodes that each hold the model and a share of the batch (replica.c). */
	int n_replicas;				/* 1: none */
	/* [r][k]: the node with node k's part in replica r, -1: none; [0][k] is k. NULL for one replica */
	int **replica;
	/* [node] its row and column in `replica`, -1: none; set by dlb_plan_set_replicas */
	int *replica_of, *part_of;
	double *power;				/* [r] shares of a batch are proportional to it; NULL: even */
	struct dlb_sharing sharing;
	/* in the plan of one replica: the number of shares of the optimizer's state, and this replica's
	 * share; n_shares 0: another plan, or the state is whole */
	int n_shares, share;
	/* [tensor] in an evaluation: whether each replica has a share of the weight; NULL: as sharing says */
	const bool *gathered;
	/* in the plan of one replica: the number of replicas; 0: another plan */
	int of_replicas;
	struct dlb_advice *advice; int n_advice;	/* of --compress auto, in the arena */
	bool clip;				/* gradients are clipped by their global norm (program.h) */
	double clip_norm;			/* limit of that norm; 0: not given */
	int inverse_every;			/* K-FAC: steps between inversions; 0: another optimizer */
	double value_s, bound_s, gap;		/* predicted step, lower bound, value/bound - 1 */
	double imbalance;			/* max busy / mean busy over nodes that may take load */
	double moved_bytes; int moved_ops;	/* compared with the plan that this one replaces */
	double migration_s;			/* seconds of moving them, if counted */
	/* pin [op]: its pinned node, -1: none; excluded [node]: it does no work; NULL: none */
	int *pin; bool *excluded;
	const char *affinity;			/* table of algorithm by-kind; NULL: another algorithm */
	/* "keep-affinity": a fused Relu whose kind in the table differs becomes an op again; "all": it stays
	 * fused; NULL: no table */
	const char *rewrites;
	/* "upward-rank", "given": order of ready ops; NULL: the graph's */
	const char *priority;
	struct dlb_span **timeline; int *n_spans;	/* [node], may be NULL */
	char hash[17];				/* of the placement, replicas and shares */
	/* borrowed; the planned graph. Needed by dlb_schedule_order and dlb_program_compile without a cost,
	 * else may be NULL */
	const struct dlb_graph *graph;
};
/* Sets p->hash from p->placement, the replicas and their shares. */
void dlb_plan_hash(struct dlb_plan *p);
void dlb_plan_init(struct dlb_plan *p, int n_ops, int n_nodes);
void dlb_plan_release(struct dlb_plan *p);
/* Copies the origin of plan `like` to p: the requested algorithm, the one that won, the effort. */
static inline void dlb_plan_say_origin(struct dlb_plan *p, const struct dlb_plan *like)
{
	p->winner = like->winner;
	p->algorithm = like->algorithm;
	p->algorithm_given = like->algorithm_given;
	p->effort = like->effort;
}
int dlb_plan_check(const struct dlb_plan *p, const struct dlb_cost *c, struct dlb_error *err);
#endif
