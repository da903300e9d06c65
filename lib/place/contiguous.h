/* Contiguous placements, which cut the forward order: shared by placers. */
#ifndef DLB_PLACE_CONTIGUOUS_H
#define DLB_PLACE_CONTIGUOUS_H
#include "place/place.h"

/* Contiguous placements cut the forward order. A unit is one forward op with the backward and update ops
 * that follow it; forward ops colocated with an earlier one belong to its unit. */
struct dlb_units {
	int n, *of_group;				/* [group] -> unit */
	double *time_s;					/* [unit][class of nodes] */
	double *bytes;					/* [unit] as dlb_group_bytes */
	/* [n + 1] bytes of one micro-batch that cross the cut before unit i */
	double *forward_bytes, *backward_bytes;
};
static inline double dlb_unit_s(const struct dlb_units *u, const struct dlb_problem *p, int unit, int node)
{
	return u->time_s[(size_t)unit * (size_t)p->n_classes + (size_t)p->class_of[node]];
}
void dlb_units_init(struct dlb_units *u, const struct dlb_problem *p);
void dlb_units_release(struct dlb_units *u);
/* Units start[k] .. start[k+1] (n_parts + 1 borders) go to node[k]. */
void dlb_units_place(const struct dlb_units *u, const struct dlb_problem *p, int n_parts, const int *start,
		     const int *node, int *placement);
/* Parts in their order: part k goes to node[k]. any_size: memory does not limit them. */
struct dlb_parts {
	int n;
	const int *node;
	bool any_size;
};
/* Fills each part with units up to most_s seconds (of all micro-batches) and up to its memory, from the first
 * part forwards or from the last part backwards. start: n + 1 borders. false: some units are in no part. */
bool dlb_units_fill(const struct dlb_units *u, const struct dlb_problem *p, const struct dlb_parts *parts,
		    double most_s, bool from_end, int *start);
/* The least time of the slowest part, in seconds, for which the parts hold all units; INFINITY: none.
 * start: n + 1 borders, filled from the first part forwards. */
double dlb_units_balance(const struct dlb_units *u, const struct dlb_problem *p,
			 const struct dlb_parts *parts, int *start);
/* Estimated seconds of a step: slowest part + (sum of the others) / M + the messages of a micro-batch at each
 * cut. */
double dlb_units_step_s(const struct dlb_units *u, const struct dlb_problem *p, int n_parts, const int *start,
			const int *node);
#endif
