/* The reason for the node of an op. */
#ifndef DLB_PLACE_WHY_H
#define DLB_PLACE_WHY_H
#include "place/place.h"

/* Prints why op is on its node: a line per node with the op's cost there. */
int dlb_place_why(const struct dlb_problem *p, const struct dlb_plan *plan, int op, FILE *f,
		  struct dlb_error *err);
#endif
