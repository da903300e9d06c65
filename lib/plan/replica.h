/* Replicas: groups of nodes that each hold the model and a share of the batch. */
#ifndef DLB_PLAN_REPLICA_H
#define DLB_PLAN_REPLICA_H
#include "plan/program.h"

/* Sets replica[r][k] for n replicas from `replica` (n x n_nodes ints, copied). */
void dlb_plan_set_replicas(struct dlb_plan *p, int n, const int *replica);
int dlb_plan_replica_of(const struct dlb_plan *p, int node);	/* 0 for nodes of no replica */
/* the node of replica 0 with the same part; -1: none */
int dlb_plan_part_of(const struct dlb_plan *p, int node);
/* placement[op] of replica r. */
void dlb_plan_placement_of(const struct dlb_plan *p, int r, int *placement);
/* Nodes with node k's part, in order of replicas: peer[n_replicas]. */
void dlb_plan_peers(const struct dlb_plan *p, int k, int *peer);
/* group[r]: the group of each peer of part k, for sums that are made inside groups first: its host, or if all
 * peers are on one host, its group in the cluster. */
void dlb_plan_peer_groups(const struct dlb_plan *p, const struct dlb_cluster *c, int k, int *group);
/* share[r] of a batch, in proportion to power by largest remainder (ties: the lower r), at least one sample
 * each. If there are fewer samples than replicas, the first replicas get one each, the others 0. */
void dlb_plan_shares(const struct dlb_plan *p, int64_t batch, int64_t *share);
/* Checks that every op is on a node of replica 0, and that there is a sample for each replica. */
int dlb_plan_check_replicas(const struct dlb_plan *p, struct dlb_error *err);
/* Micro-batches of a step of at most `batch` samples. Replicas with common batch statistics, or under an
 * asynchronous schedule, have the same number, that of the smallest share. */
int dlb_plan_micro_batches(const struct dlb_plan *p, int64_t batch);
/* Whether replicas wait for each other in the middle of a step, and so run the order of replica 0: with
 * common batch statistics, with gathered weights, or if gradients' places are freed before the end of the
 * step. */
bool dlb_plan_has_one_order(const struct dlb_plan *p);
/* Makes the plan of replica r alone, without replicas, over the same nodes. Borrows from p; release with
 * dlb_plan_release. */
void dlb_plan_of_replica(const struct dlb_plan *p, int r, int64_t share, struct dlb_plan *out);
/* alike[r]: the first replica that has the same times of its nodes as r, under node_scale (NULL: none), and
 * the same links between them. */
void dlb_plan_alike(const struct dlb_plan *p, const struct dlb_cluster *c, const double *node_scale,
		    int *alike);
/* dlb_schedule_order for every replica of p; replicas that are alike and have equal shares get the same
 * order. */
double dlb_plan_order(struct dlb_plan *p, const struct dlb_cost *c, const double *node_scale);
/* Samples of micro-batch m of M over batch B: sizes differ by at most 1, larger first. M' = min(M, B). */
int64_t dlb_micro_batch_size(int64_t batch, int micro_batches, int m);

/* The program in g that `node` runs (g itself if it is one replica's program). */
const struct dlb_program *dlb_program_of(const struct dlb_program *g, int node);
/* The number of sums over the batch that op computes before its outputs (dlb_op_class.sums); 0: none. */
int64_t dlb_graph_sums(const struct dlb_graph *g, int op, int64_t *n_own);
/* The scope of the statistics of g's batch normalizations under p: "all" replicas, or each "replica";
 * NULL: no such normalization, or one replica. */
const char *dlb_plan_batch_statistics(const struct dlb_plan *p, const struct dlb_graph *g);
#endif
