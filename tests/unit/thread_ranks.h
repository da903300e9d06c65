/* Ranks that are threads of this program: a communicator in place of the library's, with the collectives
 * that measuring takes. `me` is the rank of the calling thread. The program says what happens when all
 * ranks have met. */
#ifndef DLB_TESTS_THREAD_RANKS_H
#define DLB_TESTS_THREAD_RANKS_H
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "check.h"

enum { RANKS = 5 };
struct dlb_comm {
	int rank;
};
static void all_have_met(void); /* called by rank 0, while the others wait */

static int n_ranks;
static pthread_barrier_t all_are_here;
static struct {
	int rc;
	struct dlb_error err;
	const void *in;
} shared[RANKS];
static _Thread_local int me;

int dlb_comm_size(const struct dlb_comm *c)
{
	(void)c;
	return n_ranks;
}

int dlb_comm_rank(const struct dlb_comm *c) { return c->rank; }

int dlb_comm_barrier(struct dlb_comm *c, struct dlb_error *err)
{
	(void)err;
	pthread_barrier_wait(&all_are_here);
	if (!c->rank)
		all_have_met();
	pthread_barrier_wait(&all_are_here);
	return 0;
}

int dlb_comm_agree(struct dlb_comm *c, int rc, struct dlb_error *err, int *who)
{
	int found = 0;

	(void)who;
	shared[c->rank].rc = rc;
	if (rc)
		shared[c->rank].err = *err;
	pthread_barrier_wait(&all_are_here);
	for (int r = n_ranks - 1; r >= 0; r--)
		if (shared[r].rc) {
			found = -1;
			*err = shared[r].err;
		}
	dlb_comm_barrier(c, err);
	return found;
}

int dlb_comm_gather(struct dlb_comm *c, const void *p, size_t bytes, void *recv, int root,
		    struct dlb_error *err)
{
	shared[c->rank].in = p;
	pthread_barrier_wait(&all_are_here);
	for (int r = 0; r < n_ranks && c->rank == root; r++)
		memcpy((char *)recv + (size_t)r * bytes, shared[r].in, bytes);
	return dlb_comm_barrier(c, err);
}

int dlb_comm_bcast(struct dlb_comm *c, void *p, size_t bytes, int root, struct dlb_error *err)
{
	shared[c->rank].in = p;
	pthread_barrier_wait(&all_are_here);
	if (c->rank != root)
		memcpy(p, shared[root].in, bytes);
	return dlb_comm_barrier(c, err);
}

int dlb_comm_allreduce_f64(struct dlb_comm *c, double *x, int n, enum dlb_comm_op op, struct dlb_error *err)
{
	double *most = calloc((size_t)n + 1, sizeof *most);

	assert(IS(op, ==, DLB_COMM_MAX));
	shared[c->rank].in = x;
	pthread_barrier_wait(&all_are_here);
	for (int i = 0; i < n; i++)
		most[i] = -INFINITY;
	for (int i = 0; i < n; i++)
		for (int r = 0; r < n_ranks; r++)
			most[i] = fmax(most[i], ((const double *)shared[r].in)[i]);
	pthread_barrier_wait(&all_are_here);
	memcpy(x, most, (size_t)n * sizeof *x);
	free(most);
	return dlb_comm_barrier(c, err);
}

/* Runs f(rank) on each of n ranks at once. */
struct rank_thread {
	struct dlb_comm comm;
	void (*f)(struct dlb_comm *comm);
};

static inline void *run_rank(void *ctx)
{
	struct rank_thread *t = ctx;

	me = t->comm.rank;
	t->f(&t->comm);
	return NULL;
}

static inline void run_ranks(int n, void (*f)(struct dlb_comm *comm))
{
	struct rank_thread rank[RANKS];
	pthread_t thread[RANKS];

	n_ranks = n;
	pthread_barrier_init(&all_are_here, NULL, (unsigned)n);
	for (int r = 0; r < n; r++) {
		rank[r] = (struct rank_thread){ { r }, f };
		assert(!pthread_create(&thread[r], NULL, run_rank, &rank[r]));
	}
	for (int r = 0; r < n; r++)
		pthread_join(thread[r], NULL);
	pthread_barrier_destroy(&all_are_here);
}
#endif
