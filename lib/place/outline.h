/* Outlines: estimates of the step of a division into replicas, found without an order or a program. The
 * divisions and numbers of micro-batches with the least outlines are planned first, and those with far longer
 * ones never.
 *
 * The model is cut into contiguous parts over a team, balanced under the memory that placers estimate. Each
 * team's step is its slowest part, the others' once per micro-batch, and the messages at the cuts
 * (contiguous.h). Teams with shares by power are as fast as their harmonic mean, with even ones as the slowest.
 * The sums of gradients take their bound (plan/sums.h). An outline leaves out contention for links, bubbles of
 * a schedule, and ops that run again, so most steps are longer; another cut, or a pipeline that is more than
 * one part a node, may be a little shorter. Private to lib/place. */
#ifndef DLB_PLACE_OUTLINE_H
#define DLB_PLACE_OUTLINE_H
#include "place/contiguous.h"
#include "place/team_plan.h"
#include "place/team_problem.h"

/* Times and bytes of the model over any node of t->p, with the even share of R replicas. */
struct dlb_outline {
	const struct dlb_replicas_task *t;
	int R;
	struct dlb_team_problem all;
	struct dlb_units units;
	/* [unit]: with what is in flight; weights, gradients and states alone, which is what fits with ops that run
	 * again and fewer micro-batches in flight */
	double *bytes, *least_bytes;
	bool is_made;
};
void dlb_outline_init(struct dlb_outline *s, const struct dlb_replicas_task *t, int R);
void dlb_outline_release(struct dlb_outline *s);
/* Seconds of a step with teams formed by `way`, or over all nodes if R is 1 (way: ignored); INFINITY: some op
 * has no kernel there, or the nodes of a team have no room for weights, gradients and states. */
double dlb_outline_s(struct dlb_outline *s, const struct dlb_team_way *way);
#endif
