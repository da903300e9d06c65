/* Seconds of one allreduce in place, interleaved, for arrays of float from 1 KB to the size given: MPI's,
 * gloo's if there is a peer, and each of ours.
 *   mpiexec -n 2 allreduce MOST_MB ROUNDS NAME:FROM_BYTES,... [PYTHON SCRIPT RENDEZVOUS]
 * The third argument is a plan's choice by size (.plan.allreduce_by_size). Every rank starts its own peer
 * (allreduce_peer.py) on its core; while one side sums, the other side blocks. Rank 0 prints one line per
 * size: bytes; median seconds of MPI_Allreduce, of gloo ("-": none) and of each of our algorithms; bytes sent
 * by rank 0 (ring); the ring's time over MPI's, over gloo's, and over the faster of these two; the least time
 * of our algorithms over the faster of these two, with the algorithm's name (the best possible choice by
 * size); and the same for the plan's choice. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/allreduce.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/rng.h"
#include "util/stats.h"

enum { MOST_ROUNDS = 101, MOST_WAYS = 12, MPI_WAY = 0, GLOO = 1, OURS = 2 };

struct peer { FILE *to, *from; };

static void fail(const char *what)
{
	fprintf(stderr, "allreduce: %s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void start_peer(struct peer *p, char **argv, int rank, int size)
{
	int to[2], from[2];
	char r[16], n[16], line[64];

	snprintf(r, sizeof r, "%d", rank);
	snprintf(n, sizeof n, "%d", size);
	if (pipe(to) || pipe(from))
		fail("no pipe");
	switch (fork()) {
	case -1:
		fail("no process for the peer");
		break;
	case 0:
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[1]);
		close(from[0]);
		execl(argv[0], argv[0], argv[1], argv[2], r, n, (char *)NULL);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	p->to = fdopen(to[1], "w");
	p->from = fdopen(from[0], "r");
	if (!fgets(line, sizeof line, p->from) || strcmp(line, "ready\n"))
		fail("the peer does not start");
}

static double ask_peer(struct peer *p, int64_t n)
{
	char line[64];

	fprintf(p->to, "%lld\n", (long long)n);
	fflush(p->to);
	if (!fgets(line, sizeof line, p->from))
		fail("the peer has gone");
	return atof(line);
}

/* Times the slowest rank; all start together. */
static double timed(struct dlb_comm *c, int way, struct dlb_collective *k, struct peer *peer, float *x,
		    int64_t n)
{
	struct dlb_error err;
	double start_s, s;

	for (int64_t i = 0; i < n; i++)
		x[i] = 1;
	MPI_Barrier(MPI_COMM_WORLD);
	start_s = dlb_clock_s();
	if (way == MPI_WAY) {
		MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	} else if (way >= OURS) {
		dlb_collective_start(k);
		if (dlb_collective_wait(k, &err))
			fail(err.what);
	}
	s = way == GLOO ? ask_peer(peer, n) : dlb_clock_s() - start_s;
	if (dlb_comm_allreduce_f64(c, &s, 1, DLB_COMM_MAX, &err) ||
	    (way != GLOO && x[n - 1] != (float)dlb_comm_size(c)))
		fail("wrong sum");
	return s;
}

/* Another order in each round, the same on all ranks, because an algorithm profits from the caches of the one
 * before. */
static void shuffle(struct dlb_rng *rng, int *order, int n)
{
	for (int i = 0; i < n; i++) {
		int k = (int)dlb_rng_below(rng, (uint64_t)i + 1);

		order[i] = order[k];
		order[k] = i;
	}
}

/* The algorithm that the plan chose for this number of bytes. */
static int chosen_way(const char *by_size, int64_t bytes)
{
	int way = OURS;
	char name[32];
	long long from;

	for (const char *at = by_size; at && sscanf(at, "%31[^:]:%lld", name, &from) == 2 && from <= bytes;
	     at = at ? at + 1 : NULL) {
		for (way = OURS; strcmp(dlb_allreduces[way - OURS]->name, name); way++)
			if (!dlb_allreduces[way - OURS + 1])
				fail("no such algorithm");
		at = strchr(at, ',');
	}
	return way;
}

static void print_line(int64_t bytes, double t[][MOST_ROUNDS], int rounds, int n_ways, bool has_peer,
		       int64_t sent, int chosen)
{
	double m[MOST_WAYS], best;
	int least = OURS;

	for (int w = 0; w < n_ways; w++)
		m[w] = dlb_median(t[w], rounds);
	for (int w = OURS; w < n_ways; w++)
		if (!dlb_allreduces[w - OURS]->external && m[w] < m[least])
			least = w;
	best = has_peer && m[GLOO] < m[MPI_WAY] ? m[GLOO] : m[MPI_WAY];
	printf("%-10lld", (long long)bytes);
	for (int w = 0; w < n_ways; w++)
		if (w == GLOO && !has_peer)
			printf(" %9s", "-");
		else
			printf(" %9.2e", m[w]);
	printf(" %11lld %8.2f ", (long long)sent, m[OURS] / m[MPI_WAY]);
	if (has_peer)
		printf("%9.2f", m[OURS] / m[GLOO]);
	else
		printf("%9s", "-");
	printf(" %9.2f %10.2f %-12s %9.2f %s\n", m[OURS] / best, m[least] / best,
	       dlb_allreduces[least - OURS]->name, m[chosen] / best, dlb_allreduces[chosen - OURS]->name);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int64_t most = (argc > 1 ? atoi(argv[1]) : 256) * INT64_C(1048576);
	int rounds = argc > 2 ? atoi(argv[2]) : 11, rank, n_ways = OURS;
	bool has_peer = argc > 6;
	static double t[MOST_WAYS][MOST_ROUNDS];
	struct dlb_collective *k[MOST_WAYS] = { NULL };
	struct peer peer = { NULL, NULL };
	struct dlb_rng rng;
	int order[MOST_WAYS];
	struct dlb_comm *c;
	struct dlb_error err;
	float *x, *y = dlb_xmalloc((size_t)most); /* for ours, allocated like gradients of dlb-run; for MPI */

	if (rounds < 1 || rounds > MOST_ROUNDS || dlb_comm_new(&c, 60, &err))
		return 2;
	float *shared = dlb_comm_alloc(c, (size_t)most);	/* NULL: alone on its host */
	x = shared ? shared : dlb_xmalloc((size_t)most);
	signal(SIGPIPE, SIG_IGN);
	dlb_rng_init(&rng, 1);
	rank = dlb_comm_rank(c);
	if (has_peer)
		start_peer(&peer, argv + 4, rank, dlb_comm_size(c));
	if (!rank)
		printf("%-10s %9s %9s", "bytes", "MPI", "gloo");
	for (; dlb_allreduces[n_ways - OURS]; n_ways++)
		if (!rank)
			printf(" %9.9s", dlb_allreduces[n_ways - OURS]->name);
	if (!rank)
		printf(" %11s %8s %9s %9s %10s %-12s %9s\n", "sent_bytes", "ring/MPI", "ring/gloo",
		       "ring/best", "least/best", "", "auto/best");
	for (int64_t bytes = 1024; bytes <= most; bytes *= 4) {
		int64_t n = bytes / 4, sent;
		int some = bytes > 32 << 20 && rounds > 5 ? 5 : rounds;

		for (int w = OURS; w < n_ways; w++)
			if (dlb_collective_new(&k[w], c,
					       &(struct dlb_collective_desc){ .how = dlb_allreduces[w - OURS],
									      .x = x,
									      .n = n,
									      .tag = 7,
									      .ranks.n = dlb_comm_size(c) },
					       &err))
				fail(err.what);
		for (int r = -2; r < some; r++) {
			shuffle(&rng, order, n_ways);
			for (int i = 0; i < n_ways; i++) {
				int w = order[i];
				double s;

				if (w == GLOO && !has_peer)
					continue;
				s = timed(c, w, k[w], &peer, w < OURS ? y : x, n);
				if (r >= 0)
					t[w][r] = s;
			}
		}
		sent = dlb_collective_bytes_sent(k[OURS]);
		for (int w = OURS; w < n_ways; w++)
			dlb_collective_free(k[w]);
		if (!rank)
			print_line(bytes, t, some, n_ways, has_peer, sent,
				   chosen_way(argc > 3 ? argv[3] : NULL, bytes));
	}
	if (has_peer)
		fclose(peer.to);
	if (shared)
		dlb_comm_release(c, shared);
	else
		free(x);
	dlb_comm_free(c);
	free(y);
	return 0;
}
