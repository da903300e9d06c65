/* Minimum cuts of networks with real capacities, by blocking flows (Dinic, Soviet Math. Dokl. 11, 1970). What is returned
 * is the value of a flow, so it is a bound from below of every cut whatever rounding does. */
#ifndef DLB_PLACE_MIN_CUT_H
#define DLB_PLACE_MIN_CUT_H
#include <stdint.h>

struct dlb_min_cut {
	int n, n_arcs, cap_arcs;
	int *first, *next, *to;			/* [vertex], [arc]; arc i ^ 1 is the way back */
	double *room, *given;			/* [arc] left, as added */
	int *level, *queue, *at, *path;		/* [vertex] */
};
void dlb_min_cut_init(struct dlb_min_cut *c, int n_vertices);
void dlb_min_cut_release(struct dlb_min_cut *c);
void dlb_min_cut_arc(struct dlb_min_cut *c, int from, int to, double capacity);
/* Least capacity between source and sink; takes the looks at arcs that it needed from *budget and gives up with the flow
 * that there is when none are left. Arcs are as they were added, each time. */
double dlb_min_cut_value(struct dlb_min_cut *c, int source, int sink, int64_t *budget);
#endif
