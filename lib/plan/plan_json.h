/* The section "plan" of a document. */
#ifndef DLB_PLAN_PLAN_JSON_H
#define DLB_PLAN_PLAN_JSON_H
#include "plan/plan.h"

/* The number of replicas in a section; 1: it has none, or there is no section. */
int dlb_plan_count_replicas(const json_t *section);
json_t *dlb_plan_write(const struct dlb_plan *p);
/* Reads and checks the plan. If the order no longer matches a placement edited by hand, the plan is scheduled
 * again (*rescheduled is set). Colocation, kernels and ids are checked. */
int dlb_plan_read(const struct dlb_doc *d, const struct dlb_cost *c, struct dlb_plan *p, bool *rescheduled,
		  struct dlb_error *err);
/* Reads only the options (algorithm, schedule, micro-batches, batch, seed, optimizer), which a new plan
 * takes over from a plan for another graph, cluster or cost. */
int dlb_plan_read_options(const struct dlb_doc *d, const struct dlb_cost *c, struct dlb_plan *p,
			  struct dlb_error *err);
/* Members "replicas" and "power" of an object: the nodes of each replica, and their shares. */
void dlb_plan_write_replicas(const struct dlb_plan *p, json_t *o);
int dlb_plan_read_replicas(const struct dlb_ref *r, struct dlb_plan *p, struct dlb_error *err);
#endif
