/* Inside lib/exec: replicas that update by their own gradients and average their weights.
 *
 *     gossip    after a step each replica averages a random share of its weights with its two neighbours in the ring of
 *               replicas. All draw the same share, keyed by seed, step and tensor, so no indices travel, and every weight's
 *               mean over the replicas stays what it is (each coordinate is mixed by a doubly stochastic matrix: S. Boyd, A. Ghosh, B. Prabhakar,
 *               D. Shah, Randomized gossip algorithms, IEEE Trans. Inf. Theory 52, 2006).
 *     mean      every so many steps all weights become the mean over all replicas, through lib/comm/allreduce.h: the same
 *               bits everywhere.
 *     server    every so many steps each pushes its weights to one node, which makes the mean, weighted by the shares of
 *               the batch, in the order of replicas, and all pull that: the same bits everywhere. It serves while it
 *               computes, where it is a replica itself.
 *
 * Optimizer states stay local. Buckets are the program's (as for gradients, and the same in all programs of
 * a run); exchange.c passes its calls on to here. */
#ifndef DLB_EXEC_AVERAGE_H
#define DLB_EXEC_AVERAGE_H
#include "exec/exchange.h"

struct dlb_average;
/* *out stays NULL on nodes that have nothing to do. seed: of the masks. Borrows all. */
int dlb_average_new(struct dlb_average **out, struct dlb_comm *c, const struct dlb_program *p, int node,
		    const struct dlb_cluster *cluster, struct dlb_state *state, uint64_t seed, struct dlb_error *err);
void dlb_average_free(struct dlb_average *a);
/* Of step `step`, of which p is the program (its shares weigh what is pushed to a server). */
void dlb_average_begin(struct dlb_average *a, int64_t step, const struct dlb_program *p);
/* Every weight of bucket b is updated. */
void dlb_average_start(struct dlb_average *a, int b);
void dlb_average_nudge(struct dlb_average *a);
/* Until bucket b's weights are the step's. */
int dlb_average_wait(struct dlb_average *a, int b, double *waited_s, struct dlb_error *err);
const struct dlb_exchange_times *dlb_average_times(const struct dlb_average *a);
/* Collective over all ranks: weights, running statistics and optimizer states become their mean over the replicas, the same bits everywhere: at the
 * end of a run and before a checkpoint, so that going on from there is the same in memory and from the folder. Where gradients are
 * summed nothing happens. a: NULL on nodes without. *apart: how far the weights were from that mean, the root of the mean
 * square over the replicas relative to its norm; NAN: they are always the same. */
int dlb_average_all(struct dlb_average *a, struct dlb_comm *c, const struct dlb_plan *p, double *apart, struct dlb_error *err);
/* Collective over all ranks: nodes fetch a parameter server's weights, where there is one (fetch.c), and prove that theirs
 * are those. *checksum: of what this node holds. */
int dlb_fetch_weights(struct dlb_comm *c, const struct dlb_plan *p, struct dlb_state *s, uint64_t *checksum, struct dlb_error *err);
/* The end of the step: a server has served everybody. */
int dlb_average_settle(struct dlb_average *a, struct dlb_error *err);
#endif
