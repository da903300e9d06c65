/* Plans with replicas: divides the nodes into teams that each hold the model, and the batch into their
 * shares.
 *
 * Nodes are divided into R teams of K in several ways (teams.h). For each way, any algorithm places the model
 * over one team, and all teams use that placement. The model is placed over team 0 and, if teams are unequal,
 * also over a team whose every part is as slow as the slowest node with that part. Shares of the batch are
 * even or by power, the samples per second that a team is predicted to compute under node weights; both are
 * tried if the user names neither, the present plan is not by power, and teams are unequal. The plan with the
 * shortest ranked step wins.
 *
 * divisions.c searches the divisions, team_plan.c plans one of them over the problem of a team
 * (team_problem.c) with shares by power (power.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/bound.h"
#include "place/divisions.h"
#include "place/replicas.h"
#include "place/team_problem.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "util/mem.h"

double dlb_replicas_bound_s(const struct dlb_problem *p)
{
	const struct dlb_plan *s = p->replicas;
	int *node = dlb_xcalloc((size_t)s->n_nodes, sizeof *node);
	int64_t *share = dlb_xcalloc((size_t)s->n_replicas, sizeof *share);
	double bound = 0;
	dlb_plan_shares(s, p->batch, share);
	for (int r = 0; r < s->n_replicas; r++) {
		struct dlb_team_problem t = { .node = NULL };
		int n = 0;
		for (int k = 0; k < s->n_nodes; k++)
			if (s->replica[r][k] >= 0)
				node[n++] = s->replica[r][k];
		struct dlb_problem unbound = *p;		/* constraints only raise the bound */
		unbound.pin = NULL;
		unbound.before = NULL;
		unbound.n_shares = dlb_sharing_shares(&s->sharing, s->n_replicas);
		unbound.zero = s->sharing.zero;
		if (!share[r])
			continue;
		if (!dlb_team_problem_init(&t, &unbound, node, NULL, n, share[r], NULL))
			bound = fmax(bound, dlb_lower_bound_s(&t.p));
		dlb_team_problem_release(&t);
	}
	free(node);
	free(share);
	return bound;
}

static int check_shares(const struct dlb_problem *p, const struct dlb_sharing *s, struct dlb_error *err)
{
	if (dlb_sharing_divides(s) && p->inverse_every > 0)
		return dlb_fail(err, "/plan/zero",
				"the state of K-FAC is of matrices, which are not divided by elements; leave "
				"zero out, or "
				"take another optimizer");
	return 0;
}

int dlb_place_replicas(const struct dlb_problem *p, const struct dlb_replicas_choice *choice,
		       struct dlb_plan *plan, double *ranked_s, bool *kept, struct dlb_error *err)
{
	struct dlb_replicas_task t = { .p = p,
				       .choice = choice,
				       .limit_s = p->below_s > 0 ? p->below_s : INFINITY };
	struct dlb_replicas_candidate best = { .kept = false };
	const int n = dlb_teams_free_nodes(p), R = choice->n ? choice->n : p->auto_replicas;
	struct dlb_error local = { .status = 0 };
	err = err ? err : &local;
	*kept = false;
	if (p->objective != DLB_STEP)
		return dlb_fail(err, NULL, "replicas are planned for --objective step only");
	if (check_shares(p, &choice->sharing, err))
		return -1;
	if (R > n || R > p->batch)
		return dlb_fail_no(err, NULL,
				   "no plan fits: %d replicas need as many nodes and samples; there are %d "
				   "nodes and a batch of %lld",
				   R, n, (long long)p->batch);
	if (R > 1 && n % R && p->said) {
		char line[120];
		snprintf(line, sizeof line, "%d replicas of %d nodes each: %d node%s without a part", R,
			 n / R, n % R, n % R == 1 ? " is" : "s are");
		p->said(p->tried_arg, line);
	}
	dlb_teams_init(&t.teams, p, choice->current ? choice->now : NULL);
	dlb_divisions_best(&t, R, &best, err);
	dlb_teams_release(&t.teams);
	if (!best.plan.n_ops)
		return -1;
	*plan = best.plan;
	*kept = best.kept;
	if (ranked_s)
		*ranked_s = best.ranked_s;
	return 0;
}

double dlb_replicas_outline_s(const struct dlb_problem *p, const struct dlb_replicas_choice *choice,
			      int place)
{
	struct dlb_replicas_task t = { .p = p, .choice = choice, .limit_s = INFINITY };

	if (p->objective != DLB_STEP)
		return INFINITY;
	dlb_teams_init(&t.teams, p, NULL);
	const double s = dlb_divisions_outline_s(&t, choice->n ? choice->n : p->auto_replicas, place);
	dlb_teams_release(&t.teams);
	return s;
}
