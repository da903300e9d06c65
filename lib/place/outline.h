/* Outlines: estimates of the step of a division into replicas, found without an order or a program. Divisions
 * and numbers of micro-batches with the shortest outlines are planned first, those with far longer outlines
 * never.
 *
 * The model is cut into contiguous parts over a team, balanced under the memory that placers estimate. A
 * team's step is the time of its slowest part, plus that of the other parts for one micro-batch, plus the
 * messages at the cuts (contiguous.h). With shares by power the step is the harmonic mean of the teams'
 * steps, with even shares that of the slowest team. The sums of gradients take their lower bound
 * (plan/sums.h). An outline leaves out contention for links, bubbles of a schedule, and ops that run again,
 * so most steps are longer. A plan with another cut, or with several parts per node, may be a little shorter.
 * Private to lib/place. */
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
	/* [unit] bytes: with the activations in flight; of weights, gradients and states alone, which suffice
	 * with ops that run again and fewer micro-batches in flight */
	double *bytes, *least_bytes;
	bool is_made;
};
void dlb_outline_init(struct dlb_outline *s, const struct dlb_replicas_task *t, int R);
void dlb_outline_release(struct dlb_outline *s);
/* Seconds of a step with teams formed by `way`, or over all nodes if R is 1 (way: ignored); INFINITY: some op
 * has no kernel there, or the nodes of a team have no room for weights, gradients and states. */
double dlb_outline_s(struct dlb_outline *s, const struct dlb_team_way *way);
#endif
