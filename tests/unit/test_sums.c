/* Allreduce. Without MPI, the lists of hops: each chunk sums every rank's array once, sends and receives
 * match, the ring of four hop by hop, bytes as by the formula. Then short sums under mpiexec with 3 and 4 ranks;
 * test_allreduce.c has long ones. */
#include "allreduce.h"

/* ---- lists of hops ---- */

enum { MOST = 9 };

/* Simulates the lists of all ranks: mine[rank][chunk] is the set of ranks whose arrays are in the sum. A
 * message carries the set of its chunk at the time of sending. */
static void play(const struct dlb_allreduce *how, const struct dlb_ranks *r)
{
	static struct dlb_hop hop[MOST][4 * MOST + 4];
	unsigned mine[MOST][MOST], mail[MOST][MOST][200];
	int n_chunks = how->n_chunks(r), n_hops[MOST], at[MOST] = { 0 }, n_mail[MOST][MOST] = { { 0 } },
	    n_read[MOST][MOST] = { { 0 } };
	bool sent[MOST] = { false };

	for (int i = 0; i < r->n; i++) {
		n_hops[i] = how->hops(r, i, hop[i]);
		assert(IS(n_hops[i], <=, dlb_allreduce_most_hops(r)));
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

				assert(!h->add || !(got & mine[i][c])); /* nothing is added twice */
				mine[i][c] = h->add ? mine[i][c] | got : got;
			}
			at[i]++;
			sent[i] = false;
			moved = true;
		}
	}
	for (int i = 0; i < r->n; i++) {
		assert(IS(at[i], ==, n_hops[i])); /* no rank waits for ever */
		for (int c = 0; c < n_chunks; c++)
			assert(IS(mine[i][c], ==, (1u << r->n) - 1));
		for (int j = 0; j < r->n; j++)
			assert(IS(n_read[i][j], ==, n_mail[i][j])); /* every message is received */
	}
}

static void lists(void)
{
	for (int a = 0; dlb_allreduces[a]; a++) {
		assert(IS(dlb_allreduce_find(dlb_allreduces[a]->name), ==, dlb_allreduces[a]) &&
		       dlb_allreduces[a]->summary);
		for (int n = 1; n <= MOST; n++)
			for (int g = 1; g <= n; g++) {
				int group[MOST];

				for (int i = 0; i < n; i++)
					/* groups of several sizes, ranks not contiguous */
					group[i] = i * 7 % g;
				play(dlb_allreduces[a], &(struct dlb_ranks){ .n = n, .group = group });
				if (g == 1)
					play(dlb_allreduces[a], &(struct dlb_ranks){ .n = n });
			}
	}
	assert(!dlb_allreduce_find("star"));
}

/* A ring of devices a, b, c, d with chunks 0 to 3: the chunk that each sends to the next in every hop. */
static void four_devices(void)
{
	static const int sends[4][6] = {
		{ 0, 3, 2, 1, 0, 3 }, /* a to b */
		{ 1, 0, 3, 2, 1, 0 }, /* b to c */
		{ 2, 1, 0, 3, 2, 1 }, /* c to d */
		{ 3, 2, 1, 0, 3, 2 }, /* d to a */
	};
	const struct dlb_ranks r = { .n = 4 };
	struct dlb_hop hop[20];

	for (int i = 0; i < 4; i++) {
		assert(IS(dlb_allreduce_ring.hops(&r, i, hop), ==, 6));
		for (int h = 0; h < 6; h++)
			assert(IS(hop[h].to, ==, (i + 1) % 4) && IS(hop[h].from, ==, (i + 3) % 4) &&
			       IS(hop[h].send, ==, sends[i][h]) &&
			       IS(hop[h].recv, ==, sends[(i + 3) % 4][h]) && IS(hop[h].add, ==, (h < 3)) &&
			       IS(hop[h].n_send, ==, 1) && IS(hop[h].n_recv, ==, 1));
	}
}

static void cuts(void)
{
	for (int64_t n = 0; n < 50; n++)
		for (int c = 1; c < 12; c++) {
			assert(IS(dlb_chunk_at(n, c, 0), ==, 0) && IS(dlb_chunk_at(n, c, c), ==, n));
			for (int k = 0; k < c; k++) {
				int64_t size = dlb_chunk_at(n, c, k + 1) - dlb_chunk_at(n, c, k);

				assert(size == n / c || size == n / c + 1);
			}
		}
}

/* Predicted bytes are those of the formulas. Every byte that is sent is received. */
static void bytes_on_paper(void)
{
	for (int n = 2; n <= MOST; n++) {
		const struct dlb_ranks r = { .n = n };
		const int64_t size = 1000 * n;
		int hops;

		for (int i = 0; i < n; i++) {
			assert(IS(dlb_allreduce_bytes(&dlb_allreduce_ring, &r, i, size, NULL, 4, &hops), ==,
				  2 * (n - 1) * size / n * 4));
			assert(IS(hops, ==, 2 * (n - 1)));
			assert(IS(dlb_allreduce_bytes(&dlb_allreduce_host, &r, i, size, NULL, 2, &hops), ==,
				  (i ? 1 : n - 1) * size * 2));
		}
		for (int a = 0; dlb_allreduces[a]; a++) {
			int64_t sum = 0;
			int most = n >= 8 ? 8 : n >= 4 ? 4 : 2, log = n >= 8 ? 3 : n >= 4 ? 2 : 1;

			for (int i = 0; i < n; i++)
				sum += dlb_allreduce_bytes(dlb_allreduces[a], &r, i, size, NULL, 8, NULL);
			/* n - 1 times in, n - 1 times out; doubling: log2 times each, ranks outside the
			 * exchange once in and once out */
			assert(IS(sum, ==,
				  (dlb_allreduces[a] == &dlb_allreduce_doubling ?
					   log * most + 2 * (n - most) :
					   2 * (n - 1)) *
					  size * 8));
		}
	}
	for (int a = 0; dlb_allreduces[a]; a++)
		assert(dlb_allreduce_bytes(dlb_allreduces[a], &(struct dlb_ranks){ .n = 1 }, 0, 99, NULL, 4,
					   NULL) == 0);
}

static void members(void)
{
	static const int rank[] = { 5, 2, 9 };
	const struct dlb_ranks some = { .n = 3, .rank = rank }, all = { .n = 3 };

	assert(IS(dlb_ranks_member(&some, 9), ==, 2) && IS(dlb_ranks_member(&some, 5), ==, 0) &&
	       IS(dlb_ranks_member(&some, 0), ==, -1));
	assert(IS(dlb_ranks_member(&all, 2), ==, 2) && IS(dlb_ranks_member(&all, 3), ==, -1));
}

/* ---- on ranks ---- */

static int rank_main(void)
{
	static const int64_t length[] = { 0, 1, 7, 65537 };
	static const int group[] = { 0, 1, 0, 1 };
	struct dlb_comm *c;
	struct dlb_error err;

	if (dlb_comm_new(&c, 30, &err))
		return 1;
	for (int a = 0; dlb_allreduces[a]; a++)
		for (int i = 0; i < DLB_LEN(length); i++)
			sum(c,
			    (struct dlb_collective_desc){
				    .how = dlb_allreduces[a],
				    .n = length[i],
				    .ranks = { .n = dlb_comm_size(c), .group = group } },
			    &kinds[(a + i) % (DLB_LEN(kinds) - dlb_allreduces[a]->external)]);
	again(c, &dlb_allreduce_ring, 3000);
	again(c, &dlb_allreduce_doubling, 3000);
	uneven(c, 300);
	together(c);
	subsets(c, 701);
	narrow(c);
	lost(c, DLB_WIRE_BF16, 500);
	lost(c, DLB_WIRE_BLOCKS, 31);
	dlb_comm_free(c);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 2)
		return odd_one(argv[1], argv[2]);
	if (argc > 1)
		return rank_main();
	cuts();
	four_devices();
	lists();
	bytes_on_paper();
	members();
	if (!dlb_comm_is_open_mpi() || system("mpiexec --version >/dev/null 2>&1")) {
		puts("no mpiexec of Open MPI");
		return 77;
	}
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	for (int n = 3; n <= 4; n++)
		assert(IS(start(argv[0], n, "rank", ""), ==, 0));
	assert(IS(start(argv[0], 2, "ring", "cuts"), ==, 42));
	assert(IS(start(argv[0], 2, "ring", "type"), ==, 42));
	puts("allreduce: lists of 1 to 9 ranks on paper, short sums, one that differs");
	return 0;
}
