/* The best division of the nodes into replicas. A full search of every division would take minutes on large
 * clusters. If there are many, all are placed without a search first, and the search is spent on those that
 * are best then. Private to lib/place. */
#ifndef DLB_PLACE_DIVISIONS_H
#define DLB_PLACE_DIVISIONS_H
#include "place/team_plan.h"

/* The best plan of all divisions into R replicas (0: any number); best->plan.n_ops 0: none fits, with err
 * of the last. best: zeroed. */
void dlb_divisions_best(const struct dlb_replicas_task *t, int R, struct dlb_replicas_candidate *best,
			struct dlb_error *err);
/* Outlines (outline.h) in ascending order: number `place`, from 0, in seconds; INFINITY: nothing is known. */
double dlb_divisions_outline_s(const struct dlb_replicas_task *t, int R, int place);
#endif
