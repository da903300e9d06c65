/* Allreduce: the sum of every rank's array, in place, with the same bits on all ranks.
 *
 * An algorithm is a list of hops for each rank, made from the number of ranks (and their groups) alone: which
 * chunks go to whom, which come from whom, and whether they are added or replace what is there. One engine
 * runs any such list; what predicts it, counts its bytes or prints it reads the same list. A ring of four,
 * what rank 0 does with its chunks 0 to 3:
 *
 *   hop   0 1 2 | 3 4 5         first half: reduce-scatter, what comes is added
 *   sends 0 3 2 | 1 0 3         second half: allgather, what comes replaces
 *   gets  3 2 1 | 0 3 2
 *
 * Every chunk is summed once, along one path, and then copied, so all ranks hold the same bits; which ones depends
 * on where the chunks are cut: the caller cuts (per tensor: dlb-document(5)). The engine works in segments,
 * a few in flight in each direction, so that adding hides behind receiving.
 * P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms, J. Parallel Distrib. Comput. 69, 2009. */
#ifndef DLB_COMM_ALLREDUCE_H
#define DLB_COMM_ALLREDUCE_H
#include <stdint.h>
#include "comm/comm.h"

/* The ranks that sum together; group[i] is rank i's group (NULL: one group). */
struct dlb_ranks { int n; const int *group; };

/* Chunks [send, send + n_send) go to rank `to` (-1: none) and [recv, recv + n_recv) come from `from`. */
struct dlb_hop {
	int to, from;
	int send, n_send, recv, n_recv;
	bool add;
};
struct dlb_allreduce {
	const char *name, *summary;
	int (*n_chunks)(const struct dlb_ranks *r);
	/* Writes rank `rank`'s hops, at most dlb_allreduce_most_hops, and returns their number. */
	int (*hops)(const struct dlb_ranks *r, int rank, struct dlb_hop *hop);
};
extern const struct dlb_allreduce *const dlb_allreduces[];	/* ring first; ends with NULL */
extern const struct dlb_allreduce dlb_allreduce_ring, dlb_allreduce_tree, dlb_allreduce_host, dlb_allreduce_hierarchical;
const struct dlb_allreduce *dlb_allreduce_find(const char *name);	/* NULL: none */
int dlb_allreduce_most_hops(const struct dlb_ranks *r);
/* Where chunk k of `n_chunks` of an array of n begins; k = n_chunks: its end. */
static inline int64_t dlb_chunk_at(int64_t n, int n_chunks, int k) { return n / n_chunks * k + n % n_chunks * k / n_chunks; }

/* One collective that may run again and again: x (n float32, borrowed) is summed over the ranks of c. `at`
 * (n_chunks + 1, borrowed during the call) says where its chunks begin; NULL: equal ones. All ranks give the
 * same n, cuts, algorithm and tag; collectives that overlap in time differ in their tags. */
struct dlb_collective;
int dlb_collective_new(struct dlb_collective **out, struct dlb_comm *c, const struct dlb_allreduce *how, const int *group,
		       float *x, int64_t n, const int64_t *at, int tag, struct dlb_error *err);
void dlb_collective_free(struct dlb_collective *k);
void dlb_collective_start(struct dlb_collective *k);
/* Moves what can be moved without waiting; true when done (or broken: _wait tells). */
bool dlb_collective_test(struct dlb_collective *k);
int dlb_collective_wait(struct dlb_collective *k, struct dlb_error *err);
int64_t dlb_collective_bytes_sent(const struct dlb_collective *k);	/* by this rank, each time */
#endif
