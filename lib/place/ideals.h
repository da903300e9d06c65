/* Ideals of the class graph: sets of items that hold, with each item, all its predecessors. The devices of
 * a contiguous placement hold successive differences of a chain of ideals.
 *
 * An item is a class, or several that form a cycle. Ideals are numbered by size, 0 the empty one, n - 1
 * all items; `down` leads from an ideal to those with one item less. A family may be a part of all ideals,
 * for example the prefixes of an order; results hold within the family. */
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
/* All ideals; false, with nothing allocated, if there are more than `most`. */
bool dlb_ideals_all(struct dlb_ideals *s, const struct dlb_port *port, int most);
/* The prefixes of n_orders topological orders: the first is depth first, the second breadth first, the others
 * are drawn from seed. */
void dlb_ideals_orders(struct dlb_ideals *s, const struct dlb_port *port, int n_orders, uint64_t seed);
static inline bool dlb_ideal_has(const struct dlb_ideals *s, int ideal, int item)
{
	return s->bits[(size_t)ideal * (size_t)s->words + (size_t)item / 64] >> (item & 63) & 1;
}
void dlb_ideals_release(struct dlb_ideals *s);

/* Limits of dp. */
struct dlb_dp_limits {
	int most_ideals;				/* with more, dp is not run over all */
	int64_t most_steps;				/* 0: any number */
	double deadline_s;				/* of dlb_clock_s; 0: none */
	/* Called at intervals with the ideals done and in all. May be NULL. */
	void (*progress)(void *arg, int64_t done, int64_t total); void *progress_arg;
};
/* The best placement whose devices hold successive differences of a chain in the family (dp.c): at[class]
 * = node. Returns its value: the throughput objective exactly, or the latency with stages one after
 * another, an upper bound of the true one. bound: a value already reached (INFINITY: none), which prunes.
 * limits: NULL: none. INFINITY: nothing fits, or the limits were exceeded. */
double dlb_dp(const struct dlb_ideals *s, const struct dlb_port *port, bool latency, double bound,
	      const struct dlb_dp_limits *limits, int *at);
/* The best contiguous placement of a port problem (isolated.c): over all ideals if the limits allow (*beyond
 * DLB_DP_NOTHING), else over a few orders. Returns its value; INFINITY: nothing fits. */
enum dlb_dp_beyond { DLB_DP_NOTHING, DLB_DP_IDEALS, DLB_DP_STEPS };
double dlb_contiguous(const struct dlb_port *port, bool latency, const struct dlb_dp_limits *limits, int *at,
		      enum dlb_dp_beyond *beyond);
#endif
