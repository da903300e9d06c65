/* Inside the searches of the greatest load: a placement, its loads, and what a move of one class changes.
 *
 * cnt[net][place] counts a net's readers by place; with it, what a class pays and saves by a move is known from
 * its own nets, and only the loads of the two nodes change. Minimised is not the greatest load, which is deaf to
 * most moves, but a power norm of all loads, (sum of load^q)^(1/q). */
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
	bool soft; double strength;		/* loads of the reference for each memory's worth too much */
	int *near_start, *near;			/* classes that share a net */
	int *member, *pos;			/* members of nodes: lists in rows of n */
	int *size;				/* [node] */
};
/* at is the caller's and is moved about. soft: memory may be exceeded, at a price. */
void dlb_loads_init(struct dlb_loads *a, struct dlb_search *s, int *at, bool soft);
void dlb_loads_release(struct dlb_loads *a);
/* q = 2^bits; ref: the load whose power is 1. */
void dlb_loads_set_exponent(struct dlb_loads *a, int bits, double ref);
double dlb_loads_power(const struct dlb_loads *a, double load);
/* The load that counts, of node d with so much work and so many bytes. Even a byte too much counts. */
double dlb_loads_burden(const struct dlb_loads *a, int d, double load, double used);
/* What the loads of the class's node and of `to` gain when it moves there. */
void dlb_loads_gains(const struct dlb_loads *a, int c, int to, double *at_from, double *at_to);
bool dlb_loads_may(const struct dlb_loads *a, int c, int to);
void dlb_loads_move(struct dlb_loads *a, int c, int to, double df, double dt);	/* df, dt: its gains */
void dlb_loads_keep_best(struct dlb_loads *a);		/* in the search, if it is */
int dlb_loads_busiest(const struct dlb_loads *a);
int dlb_loads_below(struct dlb_loads *a, int n);	/* drawn from 0 .. n - 1 */
int dlb_loads_neighbour(struct dlb_loads *a, int c);	/* drawn; -1: none */
#endif
