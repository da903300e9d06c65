/* The plan of one division of the nodes into teams: the model over one team, the shares of the batch, and the
 * placement of all teams. Private to lib/place. */
#ifndef DLB_PLACE_TEAM_PLAN_H
#define DLB_PLACE_TEAM_PLAN_H
#include "place/replicas.h"
#include "place/teams.h"

struct dlb_replicas_task {
	const struct dlb_problem *p;
	const struct dlb_replicas_choice *choice;
	struct dlb_teams teams;
	double limit_s; /* only plans with a shorter step are useful */
};
/* ranked_s without a plan: no plan that fits has a shorter step. most_samples: the largest share of a replica
 * in all plans that were tried. */
struct dlb_replicas_candidate {
	struct dlb_plan plan;
	double ranked_s;
	bool kept;
	int64_t most_samples;
};
/* The best plan of a way; 1: the way does not apply, since all teams are equal. */
int dlb_team_plan_make(const struct dlb_replicas_task *t, int R, const struct dlb_team_way *way,
		       struct dlb_replicas_candidate *best, struct dlb_error *err);
/* Initializes *shared to a plan of R replicas of K nodes, team[r * K + k], without placement and shares; the
 * caller releases it. */
void dlb_team_plan_share_out(const struct dlb_replicas_task *t, int R, int K, const int *team,
			     struct dlb_plan *shared);
/* Whether dlb_plan_sums_bound_s is a bound for the sums of these plans. */
bool dlb_team_plan_bounds_sums(const struct dlb_replicas_task *t);
/* The plan without replicas, as a candidate of auto. */
int dlb_team_plan_one(const struct dlb_replicas_task *t, struct dlb_replicas_candidate *c,
		      struct dlb_error *err);
/* Replaces *best by `other` if that is better by more than `gain` of it. Returns whether it did. */
bool dlb_team_plan_better(struct dlb_replicas_candidate *best, struct dlb_replicas_candidate *other,
			  double gain);
/* Remarks on the result of a way. err: why there is no plan; NULL: there is one. */
void dlb_team_plan_say(const struct dlb_replicas_task *t, int R, const struct dlb_team_way *way,
		       const struct dlb_replicas_candidate *c, const struct dlb_error *err);
#endif
