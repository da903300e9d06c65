/* The best division of the nodes into replicas. A full search of every division would take minutes on large
 * clusters. If there are many divisions, each first gets a draft, a plan made without a search; then only the
 * best drafts are searched. Private to lib/place. */
#ifndef DLB_PLACE_DIVISIONS_H
#define DLB_PLACE_DIVISIONS_H
#include "place/team_plan.h"

/* Sets *best, zeroed by the caller, to the best plan of all divisions into R replicas (0: any number).
 * best->plan.n_ops 0: none fits, and err is that of the last division. */
void dlb_divisions_best(const struct dlb_replicas_task *t, int R, struct dlb_replicas_candidate *best,
			struct dlb_error *err);
/* The outline (outline.h) at position `place`, from 0, in ascending order, in seconds; INFINITY: there is no
 * division. */
double dlb_divisions_outline_s(const struct dlb_replicas_task *t, int R, int place);
#endif
