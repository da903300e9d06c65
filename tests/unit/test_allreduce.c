/* Allreduce: the lists of hops on paper (every rank's array is summed once into every chunk, sends and receives
 * pair up, the ring of four devices hop by hop, the bytes are the formula's), then under mpiexec with 1 to 4
 * ranks: sums are right, all ranks hold the same bits, a second run has the same, arrays of any length. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include "comm/allreduce.h"
#include "util/mem.h"

enum { MOST = 9 };

/* ---- on paper ---- */

/* Plays the lists of all ranks: mine[rank][chunk] is the set of ranks whose array is summed in there. A message
 * carries the set that its chunk has when it is sent. */
static void play(const struct dlb_allreduce *how, const struct dlb_ranks *r)
{
	static struct dlb_hop hop[MOST][4 * MOST + 4];
	unsigned mine[MOST][MOST], mail[MOST][MOST][200];
	int n_chunks = how->n_chunks(r), n_hops[MOST], at[MOST] = { 0 }, n_mail[MOST][MOST] = { { 0 } }, n_read[MOST][MOST] = { { 0 } };
	bool sent[MOST] = { false };

	for (int i = 0; i < r->n; i++) {
		n_hops[i] = how->hops(r, i, hop[i]);
		assert(n_hops[i] <= dlb_allreduce_most_hops(r));
		for (int c = 0; c < n_chunks; c++)
			mine[i][c] = 1u << i;
	}
	for (bool moved = true; moved;) {
		moved = false;
		for (int i = 0; i < r->n; i++) {
			const struct dlb_hop *h = &hop[i][at[i]];

			if (at[i] == n_hops[i])
				continue;
			if (!sent[i]) {
				for (int c = h->send; h->to >= 0 && c < h->send + h->n_send; c++)
					mail[i][h->to][n_mail[i][h->to]++] = mine[i][c];
				sent[i] = moved = true;
			}
			if (h->from >= 0 && n_read[h->from][i] + h->n_recv > n_mail[h->from][i])
				continue;
			for (int c = h->recv; h->from >= 0 && c < h->recv + h->n_recv; c++) {
				unsigned got = mail[h->from][i][n_read[h->from][i]++];

				assert(!h->add || !(got & mine[i][c]));	/* nothing is added twice */
				mine[i][c] = h->add ? mine[i][c] | got : got;
			}
			at[i]++;
			sent[i] = false;
			moved = true;
		}
	}
	for (int i = 0; i < r->n; i++) {
		assert(at[i] == n_hops[i]);				/* nobody waits for ever */
		for (int c = 0; c < n_chunks; c++)
			assert(mine[i][c] == (1u << r->n) - 1);
		for (int j = 0; j < r->n; j++)
			assert(n_read[i][j] == n_mail[i][j]);		/* nothing is left lying */
	}
}

static void lists(void)
{
	for (int a = 0; dlb_allreduces[a]; a++) {
		assert(dlb_allreduce_find(dlb_allreduces[a]->name) == dlb_allreduces[a] && dlb_allreduces[a]->summary);
		for (int n = 1; n <= MOST; n++)
			for (int g = 1; g <= n; g++) {
				int group[MOST];

				for (int i = 0; i < n; i++)
					group[i] = i * 7 % g;		/* of several sizes, not in a row */
				play(dlb_allreduces[a], &(struct dlb_ranks){ n, group });
				if (g == 1)
					play(dlb_allreduces[a], &(struct dlb_ranks){ n, NULL });
			}
	}
	assert(!dlb_allreduce_find("star"));
}

/* Devices a, b, c, d with parts 0 to 3 of what they hold: what each passes on to the next in every hop. */
static void four_devices(void)
{
	static const int sends[4][6] = {
		{ 0, 3, 2, 1, 0, 3 },		/* a to b */
		{ 1, 0, 3, 2, 1, 0 },		/* b to c */
		{ 2, 1, 0, 3, 2, 1 },		/* c to d */
		{ 3, 2, 1, 0, 3, 2 },		/* d to a */
	};
	const struct dlb_ranks r = { .n = 4 };
	struct dlb_hop hop[20];

	for (int i = 0; i < 4; i++) {
		assert(dlb_allreduce_ring.hops(&r, i, hop) == 6);
		for (int h = 0; h < 6; h++)
			assert(hop[h].to == (i + 1) % 4 && hop[h].from == (i + 3) % 4 && hop[h].send == sends[i][h] &&
			       hop[h].recv == sends[(i + 3) % 4][h] && hop[h].add == (h < 3) && hop[h].n_send == 1 && hop[h].n_recv == 1);
	}
}

static void cuts(void)
{
	for (int64_t n = 0; n < 50; n++)
		for (int c = 1; c < 12; c++) {
			assert(dlb_chunk_at(n, c, 0) == 0 && dlb_chunk_at(n, c, c) == n);
			for (int k = 0; k < c; k++) {
				int64_t size = dlb_chunk_at(n, c, k + 1) - dlb_chunk_at(n, c, k);

				assert(size == n / c || size == n / c + 1);
			}
		}
}

/* ---- on ranks ---- */

static float value(int rank, int64_t i)
{
	return (float)((i * 37 + rank * 101) % 1009 - 500) / 7.0f;
}

static void sum(struct dlb_comm *c, const struct dlb_allreduce *how, int64_t n, const int64_t *at)
{
	static const int group[] = { 0, 1, 0, 1 };
	int rank = dlb_comm_rank(c), size = dlb_comm_size(c);
	float *x = dlb_xmalloc(((size_t)n + 1) * sizeof *x), *first = dlb_xmalloc(((size_t)n + 1) * sizeof *first);
	struct dlb_collective *k;
	struct dlb_error err;

	assert(dlb_collective_new(&k, c, how, group, x, n, at, 11, &err) == 0);
	for (int round = 0; round < 2; round++) {
		for (int64_t i = 0; i < n; i++)
			x[i] = value(rank, i);
		x[n] = 42;
		dlb_collective_start(k);
		if (round)
			while (!dlb_collective_test(k))
				;
		assert(dlb_collective_wait(k, &err) == 0);
		assert(x[n] == 42);
		for (int64_t i = 0; i < n; i++) {
			double want = 0;

			for (int p = 0; p < size; p++)
				want += (double)value(p, i);
			assert(fabs((double)x[i] - want) <= 1e-5 * (double)size * 100);
		}
		if (round)
			assert(!memcmp(first, x, (size_t)n * sizeof *x));
		memcpy(first, x, (size_t)n * sizeof *x);
	}
	assert(dlb_comm_bcast(c, first, (size_t)n * sizeof *x, 0, &err) == 0);
	assert(!memcmp(first, x, (size_t)n * sizeof *x));
	if (how == &dlb_allreduce_ring && n % size == 0 && !at)
		assert(dlb_collective_bytes_sent(k) == 2 * (size - 1) * (n / size) * (int64_t)sizeof *x);
	dlb_collective_free(k);
	free(first);
	free(x);
}

/* Two at a time, each with its own tag, started in another order by odd ranks. */
static void together(struct dlb_comm *c)
{
	enum { N = 200000 };
	float *x[2] = { dlb_xmalloc(N * sizeof(float)), dlb_xmalloc(N * sizeof(float)) };
	struct dlb_collective *k[2];
	struct dlb_error err;
	int rank = dlb_comm_rank(c), size = dlb_comm_size(c);

	for (int b = 0; b < 2; b++) {
		for (int i = 0; i < N; i++)
			x[b][i] = (float)(rank + b);
		assert(dlb_collective_new(&k[b], c, &dlb_allreduce_ring, NULL, x[b], N, NULL, 20 + b, &err) == 0);
	}
	dlb_collective_start(k[rank % 2]);
	dlb_collective_start(k[1 - rank % 2]);
	for (bool done[2] = { false, false }; !done[0] || !done[1];)
		for (int b = 0; b < 2; b++)
			done[b] = dlb_collective_test(k[b]);
	for (int b = 0; b < 2; b++) {
		assert(dlb_collective_wait(k[b], &err) == 0);
		for (int i = 0; i < N; i++)
			assert(x[b][i] == (float)(size * (size - 1) / 2 + b * size));
		dlb_collective_free(k[b]);
		free(x[b]);
	}
}

static int rank_main(void)
{
	static const int64_t length[] = { 0, 1, 2, 3, 7, 1000, 65536, 65537, 700001 };
	struct dlb_comm *c;
	struct dlb_error err;

	if (dlb_comm_new(&c, 30, &err))
		return 1;
	for (int a = 0; dlb_allreduces[a]; a++)
		for (size_t i = 0; i < sizeof length / sizeof *length; i++)
			sum(c, dlb_allreduces[a], length[i], NULL);
	int64_t at[5] = { 0 };						/* chunks of very different sizes */
	for (int i = 1; i <= dlb_comm_size(c); i++)
		at[i] = i * i * 5000 - 5000;
	sum(c, &dlb_allreduce_ring, at[dlb_comm_size(c)], at);
	together(c);
	dlb_comm_free(c);
	return 0;
}

int main(int argc, char **argv)
{
	(void)argc;
	if (argc > 1)
		return rank_main();
	cuts();
	four_devices();
	lists();
	if (!dlb_comm_is_open_mpi() || system("mpiexec --version >/dev/null 2>&1")) {
		puts("no mpiexec of Open MPI");
		return 77;
	}
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	for (int n = 1; n <= 4; n++) {
		char command[1024];
		int status;

		snprintf(command, sizeof command, "mpiexec -n %d --oversubscribe --bind-to none '%s' rank >/dev/null 2>&1", n, argv[0]);
		status = system(command);
		assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	puts("allreduce: lists of 1 to 9 ranks on paper, sums of 1 to 4 ranks, the same bits on all");
	return 0;
}
