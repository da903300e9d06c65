/* Asynchronous schedules: versions of weights, and steps that overlap. */
#ifndef DLB_PLAN_ASYNC_H
#define DLB_PLAN_ASYNC_H
#include "plan/program.h"

extern const char *const dlb_staleness_names[DLB_N_STALENESS];	/* [DLB_STALE_DEFAULT]: "default" */
int dlb_staleness_find(const char *name);			/* -1: no such name; also for "default" */

/* Unrolls `steps` steps of g, from an empty pipeline to an empty one: places have no copies, micro-batch m
 * of step s is numbered s * M + m (m -1: -1 - s), each message has a tag of its own, and
 * dlb_instr.iteration is the step. For the verifier and the simulator. */
void dlb_program_unroll(const struct dlb_program *g, int steps, struct dlb_program *out);
static inline int dlb_unrolled(int micro_batches, int step, int m)
{
	return m < 0 ? -1 - step : step * micro_batches + m;
}
#endif
