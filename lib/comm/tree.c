/* Tree: sums go up a binomial tree to rank 0 and down again, 2 ceil(log2 n) hops one after the other. */
#include "comm/allreduce.h"

static int n_chunks(const struct dlb_ranks *r)
{
	(void)r;
	return 1;
}

static int hops(const struct dlb_ranks *r, int rank, struct dlb_hop *hop)
{
	int n = 0, top = 1;

	for (; top < r->n && !(rank & top); top *= 2)	/* from the children, nearest first */
		if (rank + top < r->n)
			hop[n++] = (struct dlb_hop){ .to = -1, .from = rank + top, .n_recv = 1, .add = true };
	if (rank) {
		hop[n++] = (struct dlb_hop){ .to = rank - top, .n_send = 1, .from = -1 };
		hop[n++] = (struct dlb_hop){ .to = -1, .from = rank - top, .n_recv = 1 };
	}
	for (top /= 2; top; top /= 2)
		if (rank + top < r->n)
			hop[n++] = (struct dlb_hop){ .to = rank + top, .n_send = 1, .from = -1 };
	return n;
}

const struct dlb_allreduce dlb_allreduce_tree = {
	.name = "tree",
	.summary = "up and down a binomial tree; fewest hops for small arrays",
	.n_chunks = n_chunks,
	.hops = hops,
	.in_place = true,
};
