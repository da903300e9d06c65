/* The plan of a placement under the port model (port.h), which has no program and no time-line. Private to
 * lib/place. */
#ifndef DLB_PLACE_PORT_PLAN_H
#define DLB_PLACE_PORT_PLAN_H
#include "place/place.h"

/* As dlb_plan_make. */
int dlb_port_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan,
		       double *ranked, struct dlb_error *err);
/* The objective, in seconds, of the placement at[group] = node; weighted: under node weights. INFINITY: it
 * does not fit. load: [node] receives each node's load in seconds; may be NULL. */
double dlb_port_value_s(const struct dlb_problem *p, const int *at, bool weighted, double *load);
#endif
