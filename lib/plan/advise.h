/* The choice of --compress auto. */
#ifndef DLB_PLAN_ADVISE_H
#define DLB_PLAN_ADVISE_H
#include "plan/plan.h"

/* If p's compression is "auto": simulates the candidates of each class, chooses by seconds saved and
 * stated error, and fills compress_of and advice. node_scale: as dlb_program_simulate; n_state: as
 * dlb_program_compile. */
int dlb_plan_advise(struct dlb_plan *p, const struct dlb_cost *c, int n_state, const double *node_scale,
		    struct dlb_error *err);
#endif
