/* Hierarchical: each group sums at its leader (its lowest rank), the leaders form a ring, then leaders
 * send the sum back. Each of the g groups sends 2 (g - 1) / g of the array to others, however many ranks
 * it has. */
#include "comm/allreduce.h"

static int group_of(const struct dlb_ranks *r, int rank)
{
	return r->group ? r->group[rank] : 0;
}

static int leader_of(const struct dlb_ranks *r, int rank)
{
	int i = 0;

	while (group_of(r, i) != group_of(r, rank))
		i++;
	return i;
}

/* Number of leaders before `rank`; rank = n: of all leaders. */
static int leaders_before(const struct dlb_ranks *r, int rank)
{
	int n = 0;

	for (int i = 0; i < rank; i++)
		n += leader_of(r, i) == i;
	return n;
}

static int nth_leader(const struct dlb_ranks *r, int k)
{
	int i = 0;

	while (leader_of(r, i) != i || leaders_before(r, i) != k)
		i++;
	return i;
}

static int n_chunks(const struct dlb_ranks *r)
{
	return leaders_before(r, r->n);
}

static int hops(const struct dlb_ranks *r, int rank, struct dlb_hop *hop)
{
	int n_leaders = n_chunks(r), leader = leader_of(r, rank), n = 0, n_ring;
	const struct dlb_ranks leaders = { .n = n_leaders };

	if (leader != rank) {
		hop[n++] = (struct dlb_hop){ .to = leader, .n_send = n_leaders, .from = -1 };
		hop[n++] = (struct dlb_hop){ .to = -1, .from = leader, .n_recv = n_leaders };
		return n;
	}
	for (int i = rank + 1; i < r->n; i++)
		if (leader_of(r, i) == rank)
			hop[n++] = (struct dlb_hop){ .to = -1, .from = i, .n_recv = n_leaders, .add = true };
	n_ring = dlb_allreduce_ring.hops(&leaders, leaders_before(r, rank), hop + n);
	for (int i = 0; i < n_ring; i++, n++) {
		hop[n].to = nth_leader(r, hop[n].to);
		hop[n].from = nth_leader(r, hop[n].from);
	}
	for (int i = rank + 1; i < r->n; i++)
		if (leader_of(r, i) == rank)
			hop[n++] = (struct dlb_hop){ .to = i, .n_send = n_leaders, .from = -1 };
	return n;
}

const struct dlb_allreduce dlb_allreduce_hierarchical = {
	.name = "hierarchical", .summary = "inside each group to its leader, a ring of leaders, and back",
	.n_chunks = n_chunks, .hops = hops, .in_place = true,
};
