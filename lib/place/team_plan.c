/* The plan of one division into teams: see team_plan.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "place/drafts.h"
#include "place/make.h"
#include "place/power.h"
#include "place/problem.h"
#include "place/team_plan.h"
#include "place/team_problem.h"
#include "place/value.h"
#include "plan/by_class.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/sums.h"
#include "util/mem.h"

/* R teams of K nodes: team[R][K]. like[K]: the slowest node of each part. */
struct formed {
	int R, K;
	int *team, *like;
};

void dlb_team_plan_share_out(const struct dlb_replicas_task *t, int R, int K, const int *team,
			     struct dlb_plan *shared)
{
	const struct dlb_problem *p = t->p;
	int n_nodes = p->cluster->n_nodes,
	    *replica = dlb_xcalloc((size_t)R * (size_t)n_nodes, sizeof *replica);
	dlb_plan_init(shared, p->graph->n_ops, n_nodes);
	shared->graph = p->graph;
	shared->batch = p->batch;
	shared->micro_batches = p->micro_batches;
	shared->schedule = p->schedule->name;
	shared->in_place = !p->not_in_place;
	shared->staleness = p->staleness;
	shared->clip = p->clip;
	shared->sharing = t->choice->sharing;
	for (int i = 0; i < R * n_nodes; i++)
		replica[i] = -1;
	for (int r = 0; r < R; r++)
		for (int k = 0; k < K; k++)
			replica[r * n_nodes + team[k]] = team[r * K + k];
	dlb_plan_set_replicas(shared, R, replica);
	free(replica);
}

/* If the number of replicas is free, fails if a team has less memory than the weights, gradients and states
 * of the model: then no placement over it fits. one: the problem over team 0. */
static int check_memory(const struct dlb_replicas_task *t, const struct formed *f,
			const struct dlb_problem *one, struct dlb_error *err)
{
	for (int r = 0; r < f->R && !t->choice->n; r++) {
		double have = 0;
		char whose[40], text[DLB_STATES_TEXT];

		for (int k = 0; k < f->K; k++)
			have += t->p->memory_bytes[f->team[r * f->K + k]];
		snprintf(whose, sizeof whose, "the nodes of replica %d", r);
		if (dlb_problem_states_exceed(one, have, whose, text, sizeof text))
			return dlb_fail_no(err, NULL, "no plan fits: %s", text);
	}
	return 0;
}

/* Places the model over one team: placement[op] becomes a node of team 0. The speeds are those of `like` if
 * the way takes the slowest nodes, else those of team 0. */
static int place_team(const struct dlb_replicas_task *t, const struct dlb_team_way *way,
		      const struct formed *f, bool unlike, int *placement, struct dlb_replicas_candidate *c,
		      struct dlb_error *err)
{
	const int K = f->K, *team = f->team;
	struct dlb_team_problem one = { .node = NULL };
	struct dlb_plan first = { .n_ops = 0 };
	bool stays = t->choice->current && !way->by;
	int rc = -1, n_ops = t->p->graph->n_ops;
	struct dlb_problem shared = *t->p;
	shared.n_shares = dlb_sharing_shares(&t->choice->sharing, f->R);
	shared.zero = t->choice->sharing.zero;
	if (dlb_team_problem_init(&one, &shared, team, way->slowest ? f->like : NULL, K, t->p->batch / f->R,
				  err))
		goto out;
	/* if teams differ, this one's step says little: another may be slower, or this one may get fewer
	 * samples */
	one.p.below_s = unlike ? 0 : t->p->below_s;
	if (t->p->scarce)
		*t->p->scarce |= dlb_draft_may_lack(&one.p);
	if (check_memory(t, f, &one.p, err))
		goto out;
	for (int i = 0; i < n_ops && stays; i++) {
		placement[i] = dlb_team_part_of(team, K, t->choice->current[i]);
		stays = placement[i] >= 0;
	}
	rc = stays ? dlb_place_again(&one.p, t->choice->algorithm, placement, &first, &c->kept, err) :
		     dlb_place(&one.p, way->by ? way->by : t->choice->algorithm, &first, err);
	if (rc == 0) {
		for (int i = 0; i < n_ops; i++)
			placement[i] = team[first.placement[i]];
		c->plan.winner = first.winner;
		c->plan.algorithm = way->by ? "default" : first.algorithm;
		c->plan.algorithm_given = t->choice->algorithm && first.algorithm_given;
	}
out:
	dlb_plan_release(&first);
	dlb_team_problem_release(&one);
	return rc;
}

/* Sets the shares, then makes the whole plan. A step of limit_s or more is useless. */
static int make(const struct dlb_replicas_task *t, const struct dlb_plan *teams, bool by_power,
		const int *placement, double limit_s, struct dlb_replicas_candidate *c, struct dlb_error *err)
{
	struct dlb_plan shared = *teams, of_team = c->plan;
	struct dlb_problem whole = *t->p;
	memset(&shared.arena, 0, sizeof shared.arena);
	shared.sharing.by_power = by_power;
	shared.power = NULL;
	if (t->choice->keeps_shares) {
		shared.power = t->choice->now->power;
		c->most_samples = t->p->batch;
	} else if (by_power && dlb_replicas_find_power(t->p, placement, &shared, &c->most_samples, err)) {
		dlb_arena_release(&shared.arena);
		return -1;
	}
	memcpy(shared.placement, placement, (size_t)shared.n_ops * sizeof *placement);
	whole.replicas = &shared;
	whole.below_s = isfinite(limit_s) ? limit_s : 0;
	int rc = dlb_plan_make(&whole, placement, &c->plan, &c->ranked_s, err);
	if (rc)
		c->ranked_s = limit_s;
	dlb_arena_release(&shared.arena);
	if (rc == 0) {
		c->plan.winner = of_team.winner;
		c->plan.algorithm = of_team.algorithm;
		c->plan.algorithm_given = of_team.algorithm_given;
	}
	return rc;
}

bool dlb_team_plan_better(struct dlb_replicas_candidate *best, struct dlb_replicas_candidate *other,
			  double gain)
{
	if (best->plan.n_ops && !(other->ranked_s < best->ranked_s * (1 - gain))) {
		dlb_plan_release(&other->plan);
		return false;
	}
	dlb_plan_release(&best->plan);
	*best = *other;
	return true;
}

/* Makes the plan with even shares or by power, as asked for. If neither is asked for and teams differ, makes
 * both, the one by power first. The even plan is taken unless the one by power is better by more than
 * DLB_KEEP_GAIN; this limits the step of the even plan. */
static int split(const struct dlb_replicas_task *t, const struct dlb_plan *teams, bool unlike,
		 const int *placement, const struct dlb_replicas_candidate *one,
		 struct dlb_replicas_candidate *best, struct dlb_error *err)
{
	const struct dlb_sharing *sharing = &t->choice->sharing;
	const bool any = !sharing->split_given && !sharing->by_power && !t->choice->keeps_shares,
		   by_power = any ? unlike : sharing->by_power;
	const struct dlb_plan none = { .n_ops = 0 };
	struct dlb_replicas_candidate power = *one;
	struct dlb_error ignored = { .status = 0 };
	double limit_s = t->limit_s;

	*best = *one;
	best->ranked_s = power.ranked_s = INFINITY;
	if (!by_power || make(t, teams, true, placement, limit_s, &power, err))
		power.plan = none;
	else
		limit_s = fmin(limit_s, power.ranked_s / (1 - DLB_KEEP_GAIN));
	if ((by_power && !any) || make(t, teams, false, placement, limit_s, best, by_power ? &ignored : err))
		best->plan = none;
	const int64_t most_samples = power.most_samples > best->most_samples ? power.most_samples :
									       best->most_samples;
	if (power.plan.n_ops)
		dlb_team_plan_better(best, &power, DLB_KEEP_GAIN);
	else if (!best->plan.n_ops)
		best->ranked_s = fmin(best->ranked_s, power.ranked_s);
	best->most_samples = most_samples;
	return best->plan.n_ops ? 0 : -1;
}

bool dlb_team_plan_bounds_sums(const struct dlb_replicas_task *t)
{
	const struct dlb_sharing *s = &t->choice->sharing;

	return !dlb_sharing_divides(s) && !dlb_sharing_averages(s) && !dlb_sharing_compresses(s) &&
	       t->p->inverse_every <= 0;
}

/* Fails if the sums of gradients alone take as long as a step may. */
static int check_sums(const struct dlb_replicas_task *t, const struct dlb_plan *teams, const int *placement,
		      struct dlb_error *err)
{
	const double sums_s = isfinite(t->limit_s) && dlb_team_plan_bounds_sums(t) ?
				      dlb_plan_sums_bound_s(teams, t->p->cost, placement) :
				      0;

	return sums_s < t->limit_s ?
		       0 :
		       dlb_fail_no(err, NULL, "the sums of gradients take %.6g ms or more", sums_s * 1e3);
}

int dlb_team_plan_make(const struct dlb_replicas_task *t, int R, const struct dlb_team_way *way,
		       struct dlb_replicas_candidate *best, struct dlb_error *err)
{
	const size_t n_nodes = (size_t)t->p->cluster->n_nodes;
	struct formed f = { .R = R,
			    .team = dlb_xcalloc(n_nodes + 1, sizeof *f.team),
			    .like = dlb_xcalloc(n_nodes + 1, sizeof *f.like) };
	int *placement = dlb_xcalloc((size_t)t->p->graph->n_ops + 1, sizeof *placement);
	int rc = 1;
	f.K = dlb_teams_form(&t->teams, R, way, f.team);
	bool unlike = dlb_teams_slowest(&t->teams, f.team, R, f.K, f.like);
	struct dlb_replicas_candidate one = { .most_samples = (t->p->batch + R - 1) / R };
	struct dlb_plan teams;
	*best = (struct dlb_replicas_candidate){ .ranked_s = INFINITY, .most_samples = one.most_samples };
	if (way->slowest && !unlike)
		goto out;
	rc = place_team(t, way, &f, unlike, placement, &one, err);
	if (rc) {
		best->ranked_s = unlike ? INFINITY : t->limit_s;
		goto out;
	}
	dlb_team_plan_share_out(t, R, f.K, f.team, &teams);
	dlb_plan_choose_sums(&teams, t->p->cost);
	best->ranked_s = t->limit_s;
	rc = check_sums(t, &teams, placement, err) ? -1 :
						     split(t, &teams, unlike, placement, &one, best, err);
	dlb_plan_release(&teams);
out:
	free(f.team);
	free(f.like);
	free(placement);
	return rc;
}

void dlb_team_plan_say(const struct dlb_replicas_task *t, int R, const struct dlb_team_way *way,
		       const struct dlb_replicas_candidate *c, const struct dlb_error *err)
{
	char line[320], how[120] = "";
	if (!t->p->said)
		return;
	if (R > 1)
		dlb_team_way_name(&t->teams, way, how, sizeof how);
	int n = snprintf(line, sizeof line, "%d replica%s%s%s%s%s", R, R > 1 ? "s, " : "", how,
			 !err && c->plan.sharing.by_power && R > 1 ? ", split by power" : "",
			 t->p->draft ? ", before the search" : "", ": ");
	if (err)
		snprintf(line + n, sizeof line - (size_t)n, "%.150s", err->what);
	else
		snprintf(line + n, sizeof line - (size_t)n, "step %.6g ms", c->plan.value_s * 1e3);
	t->p->said(t->p->tried_arg, line);
}

int dlb_team_plan_one(const struct dlb_replicas_task *t, struct dlb_replicas_candidate *c,
		      struct dlb_error *err)
{
	*c = (struct dlb_replicas_candidate){ .ranked_s = INFINITY, .most_samples = t->p->batch };
	if (t->p->scarce)
		*t->p->scarce |= dlb_draft_may_lack(t->p);
	int rc = t->choice->current ? dlb_place_again(t->p, t->choice->algorithm, t->choice->current,
						      &c->plan, &c->kept, err) :
				      dlb_place(t->p, t->choice->algorithm, &c->plan, err);
	if (rc == 0)
		c->ranked_s = dlb_place_plan_s(t->p, &c->plan, NULL);
	else
		c->ranked_s = t->limit_s;
	return rc;
}
