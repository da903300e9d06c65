/* State of a search that minimizes the greatest load: a placement, its loads, and their change by a move
 * of one class.
 *
 * cnt[net][place] counts a net's readers by place. It gives the change of transfers by a move from the
 * class's own nets; only the loads of two nodes change. The search minimizes a power norm of all loads,
 * (sum of load^q)^(1/q), since most moves leave the greatest load unchanged. */
#ifndef DLB_PLACE_LOADS_H
#define DLB_PLACE_LOADS_H
#include "place/search.h"

struct dlb_loads {
	struct dlb_search *s;
	const struct dlb_port *port;
	int *at, *cnt;				/* [class]; [net][place] */
	double *load, *used;			/* [node] seconds, bytes */
	double *power, energy, ref, q;		/* (load / ref)^q, their sum */
	int q_bits;
	bool soft; double strength;		/* penalty, in reference loads, per node's memory exceeded */
	int *near_start, *near;			/* classes that share a net */
	int *member, *pos;			/* classes of each node: lists in rows of n */
	int *size;				/* [node] */
};
/* at is the caller's and is changed by moves. soft: memory may be exceeded, at a penalty. */
void dlb_loads_init(struct dlb_loads *a, struct dlb_search *s, int *at, bool soft);
void dlb_loads_release(struct dlb_loads *a);
/* q = 2^bits; ref: the load whose power is 1. */
void dlb_loads_set_exponent(struct dlb_loads *a, int bits, double ref);
double dlb_loads_power(const struct dlb_loads *a, double load);
/* Load of node d plus the penalty for bytes beyond its memory; the penalty starts above 0 with the first
 * byte. */
double dlb_loads_burden(const struct dlb_loads *a, int d, double load, double used);
/* If class c moves to node `to`: the changes of load of its present node and of `to`, in seconds. */
void dlb_loads_gains(const struct dlb_loads *a, int c, int to, double *at_from, double *at_to);
bool dlb_loads_may(const struct dlb_loads *a, int c, int to);
void dlb_loads_move(struct dlb_loads *a, int c, int to, double df, double dt);	/* df, dt: its gains */
/* Records the placement in the search if it is the best so far. */
void dlb_loads_keep_best(struct dlb_loads *a);
int dlb_loads_busiest(const struct dlb_loads *a);
int dlb_loads_below(struct dlb_loads *a, int n);	/* drawn from 0 .. n - 1 */
int dlb_loads_neighbour(struct dlb_loads *a, int c);	/* drawn; -1: none */
#endif
