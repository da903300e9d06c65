/* Recursive doubling: each rank exchanges its whole array with the rank 1, 2, 4, ... away, and both add. This
 * takes the least number of hops, log2 n, if n is a power of two. Otherwise the first few ranks add up in
 * pairs before, and share the sum after. Both ranks of a pair add the same two numbers, so all ranks hold the
 * same bits. */
#include "comm/allreduce.h"

static int n_chunks(const struct dlb_ranks *r)
{
	(void)r;
	return 1;
}

/* The largest power of two that is not above n. */
static int power_below(int n)
{
	int most = 1;

	while (2 * most <= n)
		most *= 2;
	return most;
}

static int hops(const struct dlb_ranks *r, int member, struct dlb_hop *hop)
{
	int n = 0, most = power_below(r->n), over, place;

	/* number of pairs (0, 1), (2, 3), ... whose odd ranks take no part in the exchange */
	over = r->n - most;
	if (member < 2 * over && member % 2) {
		hop[n++] = (struct dlb_hop){ .to = member - 1, .n_send = 1, .from = -1 };
		hop[n++] = (struct dlb_hop){ .to = -1, .from = member - 1, .n_recv = 1 };
		return n;
	}
	if (member < 2 * over)
		hop[n++] = (struct dlb_hop){ .to = -1, .from = member + 1, .n_recv = 1, .add = true };
	place = member < 2 * over ? member / 2 : member - over;
	for (int k = 1; k < most; k *= 2) {
		int other = place ^ k;
		int peer = other < over ? 2 * other : other + over;

		hop[n++] = (struct dlb_hop){
			.to = peer, .n_send = 1, .from = peer, .n_recv = 1, .add = true
		};
	}
	if (member < 2 * over)
		hop[n++] = (struct dlb_hop){ .to = member + 1, .n_send = 1, .from = -1 };
	return n;
}

/* After k exchanges 2^k ranks hold the same sum. */
static bool holds_copy(const struct dlb_ranks *r, int member, int hop)
{
	const int over = r->n - power_below(r->n), paired = member < 2 * over;
	const int place = paired ? member / 2 : member - over, exchanges = hop - (paired ? 1 : 0);

	return exchanges > 0 && (place & ((1 << exchanges) - 1));
}

const struct dlb_allreduce dlb_allreduce_doubling = {
	.name = "doubling",
	.summary = "whole arrays between ranks 1, 2, 4, ... apart; fewest hops",
	.n_chunks = n_chunks,
	.hops = hops,
	.holds_copy = holds_copy,
};
