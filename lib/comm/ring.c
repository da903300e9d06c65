/* Ring: every rank sends chunks to the next rank, 2 (n - 1) hops; each rank sends 2 (n - 1) / n of the
 * array. Its halves are the first n - 1 hops, in which chunks are summed, and the last n - 1, in which sums
 * are copied. */
#include <string.h>
#include "comm/allreduce.h"

static int n_chunks(const struct dlb_ranks *r)
{
	return r->n;
}

static int mod(int a, int n)
{
	return (a % n + n) % n;
}

static int hops(const struct dlb_ranks *r, int rank, struct dlb_hop *hop)
{
	int n = r->n, n_hops = 2 * (n - 1);

	for (int h = 0; h < n_hops; h++) /* from hop n - 1 on received chunks are complete sums */
		hop[h] = (struct dlb_hop){ .to = mod(rank + 1, n),
					   .from = mod(rank - 1, n),
					   .send = mod(rank - h, n),
					   .n_send = 1,
					   .recv = mod(rank - h - 1, n),
					   .n_recv = 1,
					   .add = h < n - 1 };
	return n_hops;
}

const struct dlb_allreduce dlb_allreduce_ring = {
	.name = "ring",
	.summary = "chunks go round, added up on the way; sends the least",
	.n_chunks = n_chunks,
	.hops = hops,
	.in_place = true,
};

static int scatter_hops(const struct dlb_ranks *r, int member, struct dlb_hop *hop)
{
	hops(r, member, hop);
	return r->n - 1;
}

static int gather_hops(const struct dlb_ranks *r, int member, struct dlb_hop *hop)
{
	int n = hops(r, member, hop);

	memmove(hop, hop + n / 2, (size_t)(n - n / 2) * sizeof *hop);
	return n - n / 2;
}

const struct dlb_allreduce dlb_ring_scatter = {
	.name = "ring's first half",
	.summary = "chunks are summed, each at its owner",
	.n_chunks = n_chunks,
	.hops = scatter_hops,
};
const struct dlb_allreduce dlb_ring_gather = {
	.name = "ring's second half",
	.summary = "owners' chunks go to all",
	.n_chunks = n_chunks,
	.hops = gather_hops,
};
