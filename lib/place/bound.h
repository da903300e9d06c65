/* Lower bounds on the step of any plan. */
#ifndef DLB_PLACE_BOUND_H
#define DLB_PLACE_BOUND_H
#include "place/place.h"

/* A certified lower bound on every plan's step: the maximum of total work over total speed (per kind and
 * kernel availability), the critical path on the fastest nodes, and the heaviest group (bound.c). */
double dlb_lower_bound_s(const struct dlb_problem *p);
/* A quick lower bound on the ranked step of any plan over count[class] nodes of each class of p, also with
 * replicas. It holds if no op takes longer for all samples at once than for the same samples in parts. */
double dlb_pool_bound_s(const struct dlb_problem *p, const int *count);
#endif
