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
extern const char *const dlb_staleness_names[DLB_N_STALENESS];	/* [DLB_STALE_DEFAULT]: "default" */
int dlb_staleness_find(const char *name);			/* -1: no such name; also for "default" */

struct dlb_item { int op, micro_batch; };
struct dlb_span { int op, micro_batch; double start_s, end_s; };	/* of a time-line */
struct dlb_node_plan {
	struct dlb_item *order; int n_order;
	double busy_s, wait_s;			/* predicted, per step */
	double peak_bytes;			/* planned arena + state */
	/* The part of it in each memory that the node names. */
	struct dlb_node_memory { const char *name; double bytes[DLB_N_BUFFERS]; } *memory; int n_memories;
};
#define DLB_ALLREDUCE_AUTO "auto"		/* by size of each sum, as recorded in the plan */
enum { DLB_MOST_SIZES = 8 };
/* classes of sums that can be compressed: factor, gradient, small */
enum { DLB_N_COMPRESSED = 3 };
/* How replicas combine gradients or weights (sharing.c): members of the plan section of the same names. */
struct dlb_sharing {
	/* how gradients are summed: a row of dlb_allreduces, or DLB_ALLREDUCE_AUTO */
	const char *allreduce;
	/* auto: ascending, the first from 0 */
	struct dlb_by_size { int64_t from_bytes; const char *allreduce; } by_size[DLB_MOST_SIZES];
	int n_by_size;				/* 0: not chosen yet (dlb_plan_choose_sums) */
	bool sync;				/* no sum starts before every node has computed its step */
	/* batch statistics are over micro-batch m of all replicas together */
	bool sync_batchnorm;
	/* "split": shares of the batch by predicted speed, not even */
	bool by_power;
	char compress[48];			/* text of dlb_compress_parse, or "auto" */
	char compress_of[DLB_N_COMPRESSED][48];	/* auto: the choice, by enum dlb_sum_class; "": none yet */
	const char *reduce;			/* "gradients:mean" ... (optim.h); NULL: not given */
	/* "local", "merged": the running maximum of summed moments; NULL: not given */
	const char *max_state;
	/* Or each replica updates with its own gradient, and weights are averaged (dlb_sharing_averages). */
	/* fraction of the parameters averaged with the ring neighbours after a step */
	double gossip;
	int64_t sync_every;			/* steps between means over all replicas; 0: not given */
	int param_server;			/* node that computes that mean; -1: none, an allreduce */
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
struct dlb_plan {
	struct dlb_arena arena;
	int n_ops, n_nodes, micro_batches;
	int64_t batch;
	/* parts per node of placer interleaved; 0: its default (kept for the next round) */
	int chunks;
	/* most micro-batches in flight on a node; 0: the schedule's limit */
	int in_flight;
	int most_in_flight;			/* the limit in use (set by dlb_schedule_order) */
	int *placement;				/* [op] */
	struct dlb_node_plan *node;
	const char *algorithm, *schedule;	/* as requested; `winner`: the algorithm that made the plan */
	const char *winner;
	bool algorithm_given;			/* -a NAME was given (kept for the next round) */
	uint64_t seed;
	/* outputs may overwrite inputs that are not read later (program.h) */
	bool in_place;
	bool draft;				/* a candidate of a search: its arena is not minimized */
	enum dlb_staleness staleness, staleness_used;	/* asynchronous schedules: as requested; in use */
	double fill_s;				/* asynchronous: seconds of filling and draining per run */
	const char *objective;			/* "throughput", "latency"; NULL: the step */
	int64_t effort;				/* of auto; 0: limited by time, or another algorithm */
	const char *optimizer;			/* whose states memory was counted for */
	/* Replicas: groups of nodes that each hold the model and a share of the batch (replica.c). */
	int n_replicas;				/* 1: none */
	/* [r][k]: the node with node k's part in replica r, -1: none; [0][k] is k. NULL for one replica */
	int **replica;
	/* [node] its row and column there, -1: none; set by dlb_plan_set_replicas */
	int *replica_of, *part_of;
	double *power;				/* [r] shares of a batch are proportional to it; NULL: even */
	struct dlb_sharing sharing;
	struct dlb_advice *advice; int n_advice;	/* of --compress auto, in the arena */
	bool clip;				/* gradients are clipped by their global norm (program.h) */
	double clip_norm;			/* that norm; 0: not given */
	int inverse_every;			/* K-FAC: steps between inversions; 0: another optimizer */
	double value_s, bound_s, gap;		/* predicted step, lower bound, value/bound - 1 */
	double imbalance;			/* max busy / mean busy over nodes that may take load */
	double moved_bytes; int moved_ops;	/* against the plan it replaces */
	double migration_s;			/* of moving them, if counted */
	/* [op] its pinned node or -1; [node] does no work; NULL: none */
	int *pin; bool *excluded;
	const char *affinity;			/* table of by-kind; NULL: another algorithm */
	/* "keep-affinity", "all": fused activations of another kind of device; NULL: no table */
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
json_t *dlb_plan_write(const struct dlb_plan *p);
/* Reads and checks; a placement edited by hand whose order no longer matches it is scheduled again
 * (*rescheduled set). Colocation, kernels and ids are checked. */
int dlb_plan_read(const struct dlb_doc *d, const struct dlb_cost *c, struct dlb_plan *p, bool *rescheduled,
		  struct dlb_error *err);
/* Reads only the options (algorithm, schedule, micro-batches, batch, seed, optimizer), which a new plan
 * takes over from one made for another graph, cluster or cost. */
int dlb_plan_read_options(const struct dlb_doc *d, const struct dlb_cost *c, struct dlb_plan *p,
			  struct dlb_error *err);
/* A section's "timeline" member (timeline_json.c). Reading leaves *span NULL if there is none; n_ops < 0: ops
 * are not checked. */
json_t *dlb_spans_write(struct dlb_span *const *span, const int *n_spans, int n_nodes);
int dlb_spans_read(const struct dlb_ref *r, int n_nodes, int n_ops, struct dlb_arena *a,
		   struct dlb_span ***span, int **n_spans, struct dlb_error *err);
/* Members "replicas" and "power" of an object: the nodes of each replica, and their shares. */
void dlb_plan_write_teams(const struct dlb_plan *p, json_t *o);
int dlb_plan_read_teams(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err);
int dlb_plan_check(const struct dlb_plan *p, const struct dlb_cost *c, struct dlb_error *err);
/* ---- sharing (sharing.c) ---- */
/* Options of dlb-place and dlb-run; NULL, false: not given. */
struct dlb_sharing_options {
	const char *allreduce, *compress; bool sync, async, sync_batchnorm;
	double gossip, exchange_data; bool gossip_given, exchange_data_given;
	int64_t sync_every; bool sync_every_given;
	const char *param_server, *shards, *feed, *reduce, *max_state;
};
#define DLB_SHARING_OPTS(o) \
	{ 0, \
	  "allreduce", \
	  DLB_OPT_STR, \
	  &(o)->allreduce, \
	  "NAME", \
	  "how replicas sum gradients: auto (default), ring, tree, host, hierarchical, doubling or mpi", \
	  NULL, \
	  0, \
	  0 }, \
		{ 0, \
		  "compress", \
		  DLB_OPT_STR, \
		  &(o)->compress, \
		  "HOW", \
		  "what they send less: none (default), bf16, cholesky[:TOL], cholesky:R, " \
		  "cholesky:per-hop, lowrank:R or auto", \
		  NULL, \
		  0, \
		  0 }, \
		{ 0, \
		  "reduce", \
		  DLB_OPT_STR, \
		  &(o)->reduce, \
		  "WHAT", \
		  "what replicas sum: gradients or moments, :mean (default) or :sum", \
		  NULL, \
		  0, \
		  0 }, \
		{ 0, \
		  "max-state", \
		  DLB_OPT_STR, \
		  &(o)->max_state, \
		  "WHOSE", \
		  "running maximum of moments: merged (default) or local, each replica's own", \
		  NULL, \
		  0, \
		  0 }, \
		{ 0,          "sync", DLB_OPT_FLAG, \
		  &(o)->sync, NULL,   "sum when every node has computed its step", \
		  NULL,       0,      0 }, \
		{ 0, \
		  "async-allreduce", \
		  DLB_OPT_FLAG, \
		  &(o)->async, \
		  NULL, \
		  "sum each gradient as soon as it is there (default)", \
		  NULL, \
		  0, \
		  0 }, \
		{ 0, \
		  "sync-batchnorm", \
		  DLB_OPT_FLAG, \
		  &(o)->sync_batchnorm, \
		  NULL, \
		  "normalise by the statistics of all replicas together", \
		  NULL, \
		  0, \
		  0 }, \
		{ 0, \
		  "gossip", \
		  DLB_OPT_REAL, \
		  &(o)->gossip, \
		  "RHO", \
		  "average this share of the weights with two neighbours, in place of sums", \
		  &(o)->gossip_given, \
		  0, \
		  1 }, \
		{ 0, \
		  "param-server", \
		  DLB_OPT_STR, \
		  &(o)->param_server, \
		  "NODE", \
		  "node that holds the weights: push and pull in place of sums; none", \
		  NULL, \
		  0, \
		  0 }, \
		{ 0, \
		  "sync-every", \
		  DLB_OPT_INT, \
		  &(o)->sync_every, \
		  "N", \
		  "steps between means of all replicas (gossip 25, sorted 2; server 1)", \
		  &(o)->sync_every_given, \
		  0, \
		  1000000000 }, \
		{ 0, \
		  "shards", \
		  DLB_OPT_STR, \
		  &(o)->shards, \
		  "HOW", \
		  "each replica draws from its own samples: even, sorted (by label) or none", \
		  NULL, \
		  0, \
		  0 }, \
		{ 0, \
		  "exchange-data", \
		  DLB_OPT_REAL, \
		  &(o)->exchange_data, \
		  "RHO", \
		  "share of each replica's samples exchanged after an epoch", \
		  &(o)->exchange_data_given, \
		  0, \
		  1 }, \
	{ \
		0, "feed", DLB_OPT_STR, &(o)->feed, "WHO", \
			"who reads samples: local, each node its own, or host, rank 0 for all", NULL, 0, 0 \
	}
/* Rows for dlb_cli_warn_unused (sharing_unused.c): options above without effect, given that s holds.
 * optimizer: of the plan or run; statistics: batch normalizations train. */
struct dlb_unused;				/* row[DLB_SHARING_UNUSED] */
enum { DLB_SHARING_UNUSED = 24 };
void dlb_sharing_unused(const struct dlb_sharing *s, int n_replicas, const char *optimizer, bool statistics,
			struct dlb_unused *row);
/* ---- compression (by_class.c, advise.c) ---- */
#define DLB_COMPRESS_AUTO "auto"		/* by class of sums, as recorded in the plan */
extern const char *const dlb_compressed_names[DLB_N_COMPRESSED];
bool dlb_sharing_compresses(const struct dlb_sharing *s);	/* true for auto too */
void dlb_sharing_write_compression(const struct dlb_sharing *s, json_t *plan);
int dlb_sharing_read_compression(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err);
void dlb_advice_write(const struct dlb_plan *p, json_t *plan);
int dlb_advice_read(const struct dlb_ref *plan, struct dlb_plan *p, struct dlb_error *err);
/* If p's compression is "auto": simulates the candidates of each class, chooses by seconds saved and
 * stated error, and fills compress_of and advice. node_scale: as dlb_program_simulate; n_state: as
 * dlb_program_compile. */
int dlb_plan_advise(struct dlb_plan *p, const struct dlb_cost *c, int n_state, const double *node_scale,
		    struct dlb_error *err);
/* If sums use DLB_ALLREDUCE_AUTO and the plan has no choice yet (sums.c): chooses for each size the
 * algorithm predicted to be fastest between the replicas. The choice depends on their nodes and links
 * only, not on the placement within them. */
void dlb_plan_choose_sums(struct dlb_plan *p, const struct dlb_cost *c);
void dlb_sharing_init(struct dlb_sharing *s);			/* the defaults */
/* Applies options to s; -1 with err for bad ones. */
int dlb_sharing_apply(const struct dlb_sharing_options *o, struct dlb_sharing *s, struct dlb_error *err);
bool dlb_sharing_asks(const struct dlb_sharing_options *o);	/* whether an option needs replicas */
/* Whether weights are averaged instead of summing gradients; the algorithm's name for reports; whether
 * step `step` ends with a mean over all replicas. */
bool dlb_sharing_averages(const struct dlb_sharing *s);
const char *dlb_sharing_name(const struct dlb_sharing *s);
/* The algorithm of a sum of so many bytes; and of all sums, as text: "ring", "auto: doubling, ring from
 * 65536 bytes". */
struct dlb_allreduce;
const struct dlb_allreduce *dlb_sharing_sum(const struct dlb_sharing *s, double bytes);
const char *dlb_sharing_sums(const struct dlb_sharing *s, char *text, size_t size);
bool dlb_sharing_meets(const struct dlb_sharing *s, int64_t step);
/* Tensors sent per weight: 2 if moments are summed instead of the gradient. */
int dlb_sharing_tensors(const struct dlb_sharing *s);
/* Whether each replica's gradient is that of the mean loss of its own samples, not of its part of the
 * batch's loss. */
bool dlb_sharing_own_mean(const struct dlb_sharing *s);
/* Steps between means over all replicas, as given or by default; 0: never. */
int64_t dlb_sharing_every(const struct dlb_sharing *s);
/* A warning line if the options are known to cost accuracy; else NULL. */
const char *dlb_sharing_advice(const struct dlb_sharing *s);
/* Refuses incompatible options and unknown nodes. */
int dlb_sharing_check(const struct dlb_plan *p, struct dlb_error *err);
void dlb_sharing_write(const struct dlb_sharing *s, json_t *plan);
int dlb_sharing_read(const struct dlb_ref *plan, struct dlb_sharing *s, struct dlb_error *err);
/* Applies options to the document's plan section, if it has replicas; *advice: dlb_sharing_advice of the
 * result. */
int dlb_sharing_edit(struct dlb_doc *doc, const struct dlb_sharing_options *o, const char **advice,
		     struct dlb_error *err);

/* ---- replicas (replica.c) ---- */
/* Sets replica[r][k] for n replicas from `replica` (n x n_nodes ints, copied). */
void dlb_plan_set_replicas(struct dlb_plan *p, int n, const int *replica);
int dlb_plan_replica_of(const struct dlb_plan *p, int node);	/* 0 for nodes of no replica */
/* the node of replica 0 with the same part; -1: none */
int dlb_plan_part_of(const struct dlb_plan *p, int node);
/* placement[op] of replica r. */
void dlb_plan_placement_of(const struct dlb_plan *p, int r, int *placement);
/* Nodes with node k's part, in order of replicas: peer[n_replicas]. */
void dlb_plan_peers(const struct dlb_plan *p, int k, int *peer);
/* group[r]: the group of each peer of part k, for sums that go inside groups first: hosts, or on one host
 * the groups that nodes are in. */
void dlb_plan_peer_groups(const struct dlb_plan *p, const struct dlb_cluster *c, int k, int *group);
/* share[r] of a batch, in proportion to power by largest remainder (ties: the lower r), at least one
 * sample each. Fewer samples than replicas: the first get one each, the others 0. */
void dlb_plan_shares(const struct dlb_plan *p, int64_t batch, int64_t *share);
/* Checks that every op is on a node of replica 0, and that there is a sample for each replica. */
int dlb_plan_check_replicas(const struct dlb_plan *p, struct dlb_error *err);
/* Micro-batches of a step of at most `batch` samples. Replicas with common batch statistics, or under an
 * asynchronous schedule, have the same number, that of the smallest share. */
int dlb_plan_micro_batches(const struct dlb_plan *p, int64_t batch);
/* Makes the plan of replica r alone, without replicas, over the same nodes. Borrows from p; release with
 * dlb_plan_release. */
void dlb_plan_of_replica(const struct dlb_plan *p, int r, int64_t share, struct dlb_plan *out);
/* dlb_schedule_order for every replica of p. */
double dlb_plan_order(struct dlb_plan *p, const struct dlb_cost *c, const double *node_scale);
/* Samples of micro-batch m of M over batch B: sizes differ by at most 1, larger first. M' = min(M, B). */
int64_t dlb_micro_batch_size(int64_t batch, int micro_batches, int m);

/* ---- schedules (schedule.c) ---- */
struct dlb_schedule { const char *name, *summary; /* priority: see schedule.c */ int rule; bool async; };
extern const struct dlb_schedule dlb_schedules[];		/* ends with name NULL */
const struct dlb_schedule *dlb_schedule_find(const char *name);
bool dlb_plan_is_async(const struct dlb_plan *p);
/* p->in_flight limits its micro-batches in flight */
bool dlb_schedule_bounded(const struct dlb_schedule *s);
bool dlb_schedule_fills(const struct dlb_schedule *s);	/* a higher limit than its own fills more idle time */
/* gains by several parts of the model per node (zero-bubble: ZB-V) */
bool dlb_schedule_in_parts(const struct dlb_schedule *s);
const char *dlb_schedule_names(char *out, size_t size);	/* "1f1b, gpipe ... and none" */
/* Fills p->node[].order for p->placement by list scheduling: event-driven, each node takes the ready (op,
 * m) of best priority; each op runs its micro-batches in index order; limits of micro-batches in flight
 * are raised when no item may run. node_scale[node] multiplies times (NULL: 1). Returns the makespan. */
double dlb_schedule_order(struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_schedule *s,
			  const double *node_scale);
/* c may be NULL here and in dlb_program_compile: then p->graph is used, every op takes one second and
 * messages are free. So a graph without costs (for evaluation, for a measurement) can be compiled:
 *
 *     dlb_plan_init(&p, g->n_ops, 1);  p.graph = g;  p.batch = n;  p.micro_batches = 1;
 *     dlb_schedule_order(&p, NULL, dlb_schedule_find("1f1b"), NULL);
 *     dlb_program_compile(&p, NULL, n, 0, &program, err); */
#endif
