/* Ideals of the class graph that contiguity is about: sets of items that hold, with each item, all that comes
 * before it. Devices of a contiguous placement take successive differences of a chain of ideals.
 *
 * An item is one or more classes that cannot be apart (a cycle of classes). Ideals are numbered by size, 0 the
 * empty one, n - 1 all items; `down` leads from an ideal to those with one item less. A family need not be all
 * ideals: the prefixes of an order are one too, and what is said here holds within the family. */
#ifndef DLB_PLACE_IDEALS_H
#define DLB_PLACE_IDEALS_H
#include "place/port.h"

struct dlb_ideal_below { int ideal, item; };
struct dlb_ideals {
	struct dlb_arena arena;
	int n_items, *item_of;				/* [class] -> item, items in a topological order */
	int *class_start, *class_list;			/* classes of an item */
	int n, *down_start;
	struct dlb_ideal_below *down;				/* [down_start[i] .. down_start[i+1]) */
	int words; uint64_t *bits;			/* [ideal][words] items in it */
};
/* All ideals; false (and nothing kept) when there are more than `most`. */
bool dlb_ideals_all(struct dlb_ideals *s, const struct dlb_port *port, int most);
/* The prefixes of n_orders topological orders: depth first, from the heaviest, the lightest ... drawn from seed. */
void dlb_ideals_orders(struct dlb_ideals *s, const struct dlb_port *port, int n_orders, uint64_t seed);
static inline bool dlb_ideal_has(const struct dlb_ideals *s, int ideal, int item)
{
	return s->bits[(size_t)ideal * (size_t)s->words + (size_t)item / 64] >> (item & 63) & 1;
}
void dlb_ideals_release(struct dlb_ideals *s);

/* How far dp goes. */
struct dlb_dp_limits {
	int most_ideals;				/* more are not looked at */
	int64_t most_steps;				/* 0: any number */
	double deadline_s;				/* of dlb_clock_s; 0: none */
	/* Told now and then how many ideals of how many are done. May be NULL. */
	void (*progress)(void *arg, int64_t done, int64_t total); void *progress_arg;
};
/* The best placement whose devices hold successive differences of a chain in the family (dp.c). at[class] = node.
 * Returns its value: throughput as is; latency as if stages came one after another, which the true one does not
 * exceed. bound: a value known to be reached (INFINITY: none), which makes it faster. INFINITY: nothing fits, or it
 * would go beyond the limits (NULL: none). */
double dlb_dp(const struct dlb_ideals *s, const struct dlb_port *port, bool latency, double bound, const struct dlb_dp_limits *limits,
	      int *at);
/* From a port problem to its best contiguous placement (isolated.c): over all ideals within the limits (*beyond DLB_DP_NOTHING),
 * else over a few orders. INFINITY: nothing fits. */
enum dlb_dp_beyond { DLB_DP_NOTHING, DLB_DP_IDEALS, DLB_DP_STEPS };
double dlb_contiguous(const struct dlb_port *port, bool latency, const struct dlb_dp_limits *limits, int *at,
		      enum dlb_dp_beyond *beyond);
#endif
