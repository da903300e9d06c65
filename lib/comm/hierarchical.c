/* Hierarchical: each group sums at its leader (its lowest rank), the leaders form a ring, then leaders
 * send the sum back. Each of the g groups sends 2 (g - 1) / g of the array to others, however many ranks
 * it has. */
#include <stdlib.h>
#include "comm/allreduce.h"
#include "util/mem.h"

struct member {
	int group, rank;
};
/* leader[rank] of each rank's group; leaders in order of rank, and the place of each in that order. */
struct leaders {
	int *leader, *list, *place, n;
};

static int by_group(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	return x->group != y->group ? (x->group > y->group ? 1 : -1) : x->rank - y->rank;
}

static void leaders_init(struct leaders *l, const struct dlb_ranks *r)
{
	const size_t n = (size_t)r->n + 1;
	struct member *m = dlb_xcalloc(n, sizeof *m);

	*l = (struct leaders){ .leader = dlb_xcalloc(n, sizeof(int)),
			       .list = dlb_xcalloc(n, sizeof(int)),
			       .place = dlb_xcalloc(n, sizeof(int)) };
	for (int i = 0; i < r->n; i++)
		m[i] = (struct member){ r->group ? r->group[i] : 0, i };
	if (r->group)
		qsort(m, (size_t)r->n, sizeof *m, by_group);
	for (int i = 0; i < r->n; i++)
		l->leader[m[i].rank] = i && m[i].group == m[i - 1].group ? l->leader[m[i - 1].rank] :
									   m[i].rank;
	for (int i = 0; i < r->n; i++) {
		if (l->leader[i] != i)
			continue;
		l->place[i] = l->n;
		l->list[l->n++] = i;
	}
	free(m);
}

static void leaders_release(struct leaders *l)
{
	free(l->leader);
	free(l->list);
	free(l->place);
}

static int n_chunks(const struct dlb_ranks *r)
{
	struct leaders l;
	int n;

	leaders_init(&l, r);
	n = l.n;
	leaders_release(&l);
	return n;
}

static int leader_hops(const struct dlb_ranks *r, const struct leaders *l, int rank, struct dlb_hop *hop)
{
	const struct dlb_ranks ring = { .n = l->n };
	int n = 0, n_ring;

	for (int i = rank + 1; i < r->n; i++)
		if (l->leader[i] == rank)
			hop[n++] = (struct dlb_hop){ .to = -1, .from = i, .n_recv = l->n, .add = true };
	n_ring = dlb_allreduce_ring.hops(&ring, l->place[rank], hop + n);
	for (int i = 0; i < n_ring; i++, n++) {
		hop[n].to = l->list[hop[n].to];
		hop[n].from = l->list[hop[n].from];
	}
	for (int i = rank + 1; i < r->n; i++)
		if (l->leader[i] == rank)
			hop[n++] = (struct dlb_hop){ .to = i, .n_send = l->n, .from = -1 };
	return n;
}

static int hops(const struct dlb_ranks *r, int rank, struct dlb_hop *hop)
{
	struct leaders l;
	int n = 2;

	leaders_init(&l, r);
	if (l.leader[rank] == rank) {
		n = leader_hops(r, &l, rank, hop);
	} else {
		hop[0] = (struct dlb_hop){ .to = l.leader[rank], .n_send = l.n, .from = -1 };
		hop[1] = (struct dlb_hop){ .to = -1, .from = l.leader[rank], .n_recv = l.n };
	}
	leaders_release(&l);
	return n;
}

const struct dlb_allreduce dlb_allreduce_hierarchical = {
	.name = "hierarchical",
	.summary = "inside each group to its leader, a ring of leaders, and back",
	.n_chunks = n_chunks,
	.hops = hops,
	.in_place = true,
};
