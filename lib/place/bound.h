/* Lower bounds on the step of any plan. */
#ifndef DLB_PLACE_BOUND_H
#define DLB_PLACE_BOUND_H
#include "place/place.h"

/* A certified lower bound on every plan's step: the maximum of total work over total speed (per kind and
 * kernel availability), the critical path on the fastest nodes, and the heaviest group (bound.c). */
double dlb_lower_bound_s(const struct dlb_problem *p);
#endif
