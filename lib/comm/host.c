/* Host: rank 0 receives every rank's array in turn, adds it, and sends the sum back to each. */
#include "comm/allreduce.h"

static int n_chunks(const struct dlb_ranks *r)
{
	(void)r;
	return 1;
}

static int hops(const struct dlb_ranks *r, int rank, struct dlb_hop *hop)
{
	int n = 0;

	if (rank) {
		hop[n++] = (struct dlb_hop){ .to = 0, .n_send = 1, .from = -1 };
		hop[n++] = (struct dlb_hop){ .to = -1, .from = 0, .n_recv = 1 };
		return n;
	}
	for (int i = 1; i < r->n; i++)
		hop[n++] = (struct dlb_hop){ .to = -1, .from = i, .n_recv = 1, .add = true };
	for (int i = 1; i < r->n; i++)
		hop[n++] = (struct dlb_hop){ .to = i, .n_send = 1, .from = -1 };
	return n;
}

const struct dlb_allreduce dlb_allreduce_host = {
	.name = "host",
	.summary = "rank 0 adds all and sends the sum back",
	.n_chunks = n_chunks,
	.hops = hops,
	.in_place = true,
};
