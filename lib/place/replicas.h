/* Placement of several replicas: teams of nodes, shares of the batch, one placement for all. */
#ifndef DLB_PLACE_REPLICAS_H
#define DLB_PLACE_REPLICAS_H
#include "place/place.h"

struct dlb_replicas_choice {
	int n;					/* 0: the number predicted to be fastest */
	/* if the user named no split: even or by the teams' speeds, whichever is faster */
	struct dlb_sharing sharing;
	bool keeps_shares;			/* n is the current number, and shares stay as they are */
	const struct dlb_plan *now;		/* the current plan, whose teams are kept unless others are
						 * better; NULL: none */
	const char *algorithm; /* NULL: auto */
	const int *current; /* placement of the ops over the same teams; NULL: none */
};
/* dlb_place for several replicas or, with a current placement, dlb_place_again. ranked_s: receives the ranked
 * step of the plan; may be NULL. */
int dlb_place_replicas(const struct dlb_problem *p, const struct dlb_replicas_choice *choice,
		       struct dlb_plan *plan, double *ranked_s, bool *kept, struct dlb_error *err);
/* The outline (outline.h) at position `place`, from 0, of those plans in ascending order, in seconds;
 * INFINITY: none. */
double dlb_replicas_outline_s(const struct dlb_problem *p, const struct dlb_replicas_choice *choice,
			      int place);
/* A lower bound on the step of any plan with the teams and shares of p->replicas. */
double dlb_replicas_bound_s(const struct dlb_problem *p);
#endif
