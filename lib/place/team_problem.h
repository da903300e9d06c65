/* A problem over some nodes of another problem's cluster: those of one team. Private to lib/place. */
#ifndef DLB_PLACE_TEAM_PROBLEM_H
#define DLB_PLACE_TEAM_PROBLEM_H
#include "place/place.h"

struct dlb_team_problem {
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_node *node;
	double *weight, *kappa;
	int *pin, *before;
	struct dlb_problem p;
};
/* The part of node x in the team node[n]; -1: none. */
int dlb_team_part_of(const int *node, int n, int x);
/* t: zeroed by the caller; to be released on failure too. like[n]: nodes that set the speeds; memory is the
 * lesser of like[k] and node[k]; NULL: `node`. -1 with err. */
int dlb_team_problem_init(struct dlb_team_problem *t, const struct dlb_problem *whole, const int *node,
			  const int *like, int n, int64_t batch, struct dlb_error *err);
void dlb_team_problem_release(struct dlb_team_problem *t);
#endif
