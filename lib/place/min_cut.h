/* Minimum cuts of networks with real capacities, by blocking flows (Dinic, Soviet Math. Dokl. 11, 1970).
 * The result is the value of a flow, hence a lower bound of every cut despite rounding. */
#ifndef DLB_PLACE_MIN_CUT_H
#define DLB_PLACE_MIN_CUT_H
#include <stdint.h>

struct dlb_min_cut {
	int n, n_arcs, cap_arcs;
	int *first, *next, *to;			/* [vertex], [arc]; arc i ^ 1 is the reverse arc */
	double *room, *given;			/* [arc] residual capacity, capacity */
	int *level, *queue, *at, *path;		/* [vertex] */
};
void dlb_min_cut_init(struct dlb_min_cut *c, int n_vertices);
void dlb_min_cut_release(struct dlb_min_cut *c);
void dlb_min_cut_arc(struct dlb_min_cut *c, int from, int to, double capacity);
/* The minimum cut between source and sink. Each visit of an arc takes 1 from *budget; at 0 the function
 * returns the flow found so far. Every call starts from the capacities as added. */
double dlb_min_cut_value(struct dlb_min_cut *c, int source, int sink, int64_t *budget);
#endif
