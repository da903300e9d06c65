/* Schedules: priority rules of the list scheduler that orders (op, micro-batch) pairs. */
#ifndef DLB_PLAN_SCHEDULE_H
#define DLB_PLAN_SCHEDULE_H
#include "plan/plan.h"

struct dlb_schedule {
	const char *name, *summary;
	int rule; /* priority: see schedule.c */
	bool async;
	/* in a pipeline of equal stages: the delay of the step by each stage beyond the first, divided by a
	 * stage's time for a micro-batch; not used for `none` */
	double stage_delay;
};
extern const struct dlb_schedule dlb_schedules[];		/* ends with name NULL */
const struct dlb_schedule *dlb_schedule_find(const char *name);
bool dlb_plan_is_async(const struct dlb_plan *p);
/* whether p->in_flight limits the schedule's micro-batches in flight */
bool dlb_schedule_bounded(const struct dlb_schedule *s);
/* whether a higher limit than the schedule's own fills more idle time */
bool dlb_schedule_fills(const struct dlb_schedule *s);
/* whether the schedule gains from several parts of the model per node (zero-bubble: ZB-V) */
bool dlb_schedule_in_parts(const struct dlb_schedule *s);
/* Step of a pipeline of equal stages with free messages, divided by the work of one stage: (M + (stages - 1)
 * stage_delay) / M; `none`: stages. */
double dlb_schedule_pipeline_factor(const struct dlb_schedule *s, int stages, int micro_batches);
const char *dlb_schedule_names(char *out, size_t size);	/* "1f1b, gpipe ... and none" */
/* Whether p->updates_first would change the order: updates come last so far, and several nodes could wait for
 * each other. */
bool dlb_schedule_can_update_first(const struct dlb_plan *p);
/* Fills p->node[].order for p->placement by list scheduling: event-driven, each node takes the ready (op,
 * m) of best priority; each op runs its micro-batches in index order; limits of micro-batches in flight
 * are raised when no item may run. node_scale[node] multiplies times (NULL: 1). Returns the makespan. */
double dlb_schedule_order(struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_schedule *s,
			  const double *node_scale);
/* c may be NULL in dlb_schedule_order and dlb_program_compile: then p->graph is used, every op takes one
 * second and messages are free. So a graph without costs (for evaluation, for a measurement) can be compiled:
 *
 *     dlb_plan_init(&p, g->n_ops, 1);  p.graph = g;  p.batch = n;  p.micro_batches = 1;
 *     dlb_schedule_order(&p, NULL, dlb_schedule_find("1f1b"), NULL);
 *     dlb_program_compile(&p, NULL, n, 0, &program, err); */
#endif
