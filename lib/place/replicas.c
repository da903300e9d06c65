/* Plans with replicas: divides the nodes into teams that each hold the model, and the batch into their
 * shares.
 *
 * Nodes are divided into R teams of K in several ways (teams.h). For each way, any algorithm places the
 * model over one team, and all teams use that placement: over team 0 and, if teams are unequal, over a
 * team whose every part is as slow as the slowest node that has it. Shares of the batch are even or by
 * power, the samples per second that a team is predicted to compute under node weights; both are tried if
 * the user names neither, the present plan is not by power, and teams are unequal. The plan with the shortest
 * ranked step wins.
 *
 * A full search of every division would take minutes on large clusters. If there are many, all are placed
 * without a search first, and the search is spent on those that are best then. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "place/bound.h"
#include "place/drafts.h"
#include "place/make.h"
#include "place/problem.h"
#include "place/replicas.h"
#include "place/teams.h"
#include "place/value.h"
#include "plan/by_class.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/sums.h"
#include "plan/timeline.h"
#include "util/hash.h"

/* ---- one team ---- */

/* A problem over some nodes of another problem's cluster. */
struct team_problem {
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_node *node;
	double *weight, *kappa;
	int *pin, *before;
	struct dlb_problem p;
};

static int part_of(const int *node, int n, int x)
{
	for (int k = 0; k < n; k++)
		if (node[k] == x)
			return k;
	return -1;
}

/* Pins and the placement moved from, with nodes as parts of the team. */
static int team_constraints(struct team_problem *t, const struct dlb_problem *whole, const int *node, int n,
			    struct dlb_error *err)
{
	int n_ops = whole->graph->n_ops;
	if (whole->pin) {
		t->p.pin = t->pin = dlb_xcalloc((size_t)n_ops + 1, sizeof *t->pin);
		for (int i = 0; i < n_ops; i++) {
			t->pin[i] = whole->pin[i] < 0 ? -1 : part_of(node, n, whole->pin[i]);
			if (whole->pin[i] >= 0 && t->pin[i] < 0)
				return dlb_fail_no(err, NULL,
						   "no plan fits: op '%s' is pinned to node %d, which is not "
						   "in the first replica",
						   whole->graph->op[i].name, whole->pin[i]);
		}
	}
	if (whole->before) {
		t->p.before = t->before = dlb_xcalloc((size_t)n_ops + 1, sizeof *t->before);
		for (int i = 0; i < n_ops && t->p.before; i++)
			if ((t->before[i] = part_of(node, n, whole->before[i])) < 0)
				t->p.before = NULL; /* state is on other nodes: everything moves */
	}
	return 0;
}

/* 0 if the cluster states neither. */
static double least_memory(const struct dlb_cluster *c, int a, int b)
{
	double least = fmin(dlb_cluster_node_memory(c, a), dlb_cluster_node_memory(c, b));
	return isinf(least) ? 0 : least;
}

/* like: nodes that set the speeds, memory being the lesser of both; NULL: `node`. */
static int team_init(struct team_problem *t, const struct dlb_problem *whole, const int *node,
		     const int *like, int n, int64_t batch, struct dlb_error *err)
{
	t->cluster = *whole->cluster;
	t->cost = *whole->cost;
	t->node = dlb_xcalloc((size_t)n, sizeof *t->node);
	t->weight = dlb_xcalloc((size_t)n, sizeof *t->weight);
	t->kappa = dlb_xcalloc((size_t)n, sizeof *t->kappa);
	for (int k = 0; k < n; k++) {
		const int d = like ? like[k] : node[k];
		t->node[k] = whole->cluster->node[node[k]];
		t->node[k].kind = whole->cluster->node[d].kind;
		t->node[k].speed = whole->cluster->node[d].speed;
		if (d != node[k])
			t->node[k].memory_bytes = least_memory(whole->cluster, node[k], d);
		t->weight[k] = whole->weight ? whole->weight[d] : 1;
		t->kappa[k] = whole->kappa ? whole->kappa[d] : 1;
	}
	t->cluster.node = t->node;
	t->cluster.n_nodes = n;
	t->cost.cluster = &t->cluster;
	t->p = *whole;
	t->p.replicas = NULL;
	t->p.cluster = &t->cluster;
	t->p.cost = &t->cost;
	t->p.weight = t->weight;
	t->p.kappa = t->kappa;
	t->p.batch = batch;
	t->p.excluded = NULL;
	t->p.first = NULL;
	if (team_constraints(t, whole, node, n, err))
		return -1;
	return dlb_problem_init(&t->p, err);
}

static void team_release(struct team_problem *t)
{
	dlb_problem_release(&t->p);
	free(t->node);
	free(t->weight);
	free(t->kappa);
	free(t->pin);
	free(t->before);
}

/* ---- shares and bounds ---- */

/* The nodes that take part in the step of a replica by itself, in ascending order: its own; where all nodes meet in
 * a step, or rank 0 feeds them, all. Returns their number. */
static int nodes_of_replica(const struct dlb_problem *p, const struct dlb_plan *plan, int r, int *node)
{
	const bool all = p->clip || p->inverse_every > 0 || plan->sharing.feed_host;
	int n = 0;
	for (int d = 0; d < plan->n_nodes; d++)
		if (all || (plan->part_of[d] >= 0 && plan->replica_of[d] == r))
			node[n++] = d;
	return n;
}

/* A plan of one replica, over a cluster of some nodes of p's alone. */
struct replica_alone {
	struct dlb_plan plan;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_node *node;
	double *scale; /* ranked */
};

static void replica_alone_init(struct replica_alone *x, const struct dlb_problem *p,
			       const struct dlb_plan *plan, int r, int64_t share)
{
	const size_t n_nodes = (size_t)plan->n_nodes;
	int *node = dlb_xcalloc(2 * n_nodes, sizeof *node), *at = node + n_nodes,
	    n = nodes_of_replica(p, plan, r, node);
	dlb_plan_of_replica(plan, r, share, &x->plan);
	x->plan.graph = p->graph;
	x->plan.draft = true; /* times do not depend on where places are in the arena */
	x->plan.n_nodes = n;
	x->cluster = *p->cluster;
	x->cost = *p->cost;
	x->node = dlb_xcalloc((size_t)n, sizeof *x->node);
	x->scale = dlb_xcalloc((size_t)n, sizeof *x->scale);
	for (int k = 0; k < n; k++) {
		at[node[k]] = k;
		x->node[k] = p->cluster->node[node[k]];
		x->scale[k] = p->ranked_scale[node[k]];
	}
	for (int i = 0; i < x->plan.n_ops; i++)
		x->plan.placement[i] = at[x->plan.placement[i]];
	x->cluster.node = x->node;
	x->cluster.n_nodes = n;
	x->cost.cluster = &x->cluster;
	free(node);
}

static void replica_alone_release(struct replica_alone *x)
{
	dlb_plan_release(&x->plan);
	free(x->node);
	free(x->scale);
}

/* Seconds of replica r's step over a share of samples, without gradient sums, under kappa and weights. */
static int replica_s(const struct dlb_problem *p, const struct dlb_plan *plan, int r, int64_t share,
		     double *step_s, struct dlb_error *err)
{
	struct replica_alone x;
	struct dlb_program program;
	replica_alone_init(&x, p, plan, r, share);
	dlb_schedule_order(&x.plan, &x.cost, p->schedule, x.scale);
	int rc = dlb_program_compile(&x.plan, &x.cost, share, p->n_state, &program, err);
	if (rc == 0) {
		rc = dlb_program_step_s(&program, &x.cost, x.scale, step_s, err);
		dlb_program_release(&program);
	}
	replica_alone_release(&x);
	return rc;
}

/* What is known of replicas by themselves: seconds of steps over shares, of replicas that are alike. */
struct took {
	int alike;
	int64_t share;
	double s;
};
/* The search of the shares with the shortest longest step. */
struct power_search {
	const struct dlb_problem *p;
	struct dlb_plan *shared;
	int R, *alike, *order; /* [replica]; in which their steps are found */
	int64_t *share;
	double *step_s;
	struct took *took;
	int n, cap;
};

static void power_init(struct power_search *x, const struct dlb_problem *p, struct dlb_plan *shared)
{
	const bool meet = p->clip || p->inverse_every > 0 || shared->sharing.feed_host ||
			  dlb_sharing_divides(&shared->sharing);
	const size_t R = (size_t)shared->n_replicas;

	*x = (struct power_search){ .p = p,
				    .shared = shared,
				    .R = (int)R,
				    .alike = dlb_xcalloc(R, sizeof *x->alike),
				    .order = dlb_xcalloc(R, sizeof *x->order),
				    .share = dlb_xcalloc(R, sizeof *x->share),
				    .step_s = dlb_xcalloc(R, sizeof *x->step_s) };
	for (int r = 0; r < x->R; r++)
		x->order[r] = x->alike[r] = r;
	if (!meet) /* else a replica by itself is not all that takes part */
		dlb_plan_alike(shared, p->cluster, p->ranked_scale, x->alike);
}

static void power_release(struct power_search *x)
{
	free(x->alike);
	free(x->order);
	free(x->share);
	free(x->step_s);
	free(x->took);
}

/* Seconds of replica r's step over its share. */
static int took_s(struct power_search *x, int r, double *s, struct dlb_error *err)
{
	for (int i = 0; i < x->n; i++)
		if (x->took[i].alike == x->alike[r] && x->took[i].share == x->share[r]) {
			*s = x->took[i].s;
			return 0;
		}
	if (replica_s(x->p, x->shared, r, x->share[r], s, err))
		return -1;
	DLB_GROW(x->took, x->n, x->cap);
	x->took[x->n++] = (struct took){ x->alike[r], x->share[r], *s };
	return 0;
}

/* Puts the replicas that should take longest first, so that one that takes too long ends a round early. */
static void slowest_first(struct power_search *x, const double *power)
{
	for (int i = 1; i < x->R; i++)
		for (int k = i; k > 0; k--) {
			int *a = &x->order[k - 1], *b = &x->order[k], was = *a;

			if ((double)x->share[*a] / power[*a] >= (double)x->share[*b] / power[*b])
				break;
			*a = *b;
			*b = was;
		}
}

/* Sets the shares by `power` and finds the longest step with them: all steps, unless one takes below_s or
 * more. */
static int find_longest(struct power_search *x, double *power, double below_s, double *longest_s,
			struct dlb_error *err)
{
	x->shared->power = power;
	dlb_plan_shares(x->shared, x->shared->batch, x->share);
	for (int r = 0; r < x->R; r++)
		x->share[r] = x->share[r] ? x->share[r] : 1;
	slowest_first(x, power);
	*longest_s = 0;
	for (int i = 0; i < x->R && *longest_s < below_s; i++) {
		const int r = x->order[i];

		if (took_s(x, r, &x->step_s[r], err))
			return -1;
		*longest_s = fmax(*longest_s, x->step_s[r]);
	}
	return 0;
}

/* A replica's power is its samples per second at its share. Fixed costs of a step make the power depend on
 * the share, so the powers are computed again at the new shares; when shares and powers agree, all
 * replicas take equally long. Returns the shares with the shortest longest step. */
static int find_power(const struct dlb_problem *p, const int *placement, struct dlb_plan *shared,
		      struct dlb_error *err)
{
	enum { ROUNDS = 8 };
	struct power_search x;
	const size_t R = (size_t)shared->n_replicas;
	double *power = dlb_arena_array(&shared->arena, R, sizeof *power),
	       *next = dlb_xcalloc(R, sizeof *next), best_s = INFINITY;
	int rc = 0;

	power_init(&x, p, shared);
	memcpy(shared->placement, placement, (size_t)shared->n_ops * sizeof *placement);
	for (int r = 0; r < x.R; r++)
		next[r] = 1;
	for (int round = 0; round < ROUNDS; round++) {
		double longest_s;

		rc = find_longest(&x, next, best_s, &longest_s, err);
		if (rc || longest_s >= best_s)
			break;
		best_s = longest_s;
		for (int r = 0; r < x.R; r++) {
			power[r] = (double)x.share[r];
			next[r] = x.step_s[r] > 0 ? power[r] / x.step_s[r] : 1;
		}
	}
	shared->power = power;
	free(next);
	power_release(&x);
	return rc;
}

/* Numbers of replicas of n nodes to try: all up to 16; beyond that the most replicas of 1, 2, 3 ... nodes
 * each. */
static bool worth_trying(int R, int n)
{
	return n <= 16 || n / R != n / (R + 1);
}

double dlb_replicas_bound_s(const struct dlb_problem *p)
{
	const struct dlb_plan *s = p->replicas;
	int *node = dlb_xcalloc((size_t)s->n_nodes, sizeof *node);
	int64_t *share = dlb_xcalloc((size_t)s->n_replicas, sizeof *share);
	double bound = 0;
	dlb_plan_shares(s, p->batch, share);
	for (int r = 0; r < s->n_replicas; r++) {
		struct team_problem t = { .node = NULL };
		int n = 0;
		for (int k = 0; k < s->n_nodes; k++)
			if (s->replica[r][k] >= 0)
				node[n++] = s->replica[r][k];
		struct dlb_problem unbound = *p;		/* constraints only raise it */
		unbound.pin = NULL;
		unbound.before = NULL;
		unbound.n_shares = dlb_sharing_shares(&s->sharing, s->n_replicas);
		unbound.zero = s->sharing.zero;
		if (share[r] && team_init(&t, &unbound, node, NULL, n, share[r], NULL) == 0) {
			double b = dlb_lower_bound_s(&t.p);
			bound = b > bound ? b : bound;
			team_release(&t);
		}
	}
	free(node);
	free(share);
	return bound;
}

/* ---- the plan ---- */

struct task {
	const struct dlb_problem *p;
	const struct dlb_replicas_choice *choice;
	const char *algorithm;			/* NULL: the default */
	const int *current;			/* the current placement; NULL: none */
	struct dlb_teams teams;
	double limit_s; /* plans whose step is not shorter are of no use */
};
/* ranked_s without a plan: it does not fit, or its step is at least so long */
struct replica_candidate { struct dlb_plan plan; double ranked_s; bool kept; };

/* R teams of K nodes: team[R][K]. like[K]: nodes as slow as the slowest in each place of a team. */
struct formed { int R, K; int *team, *like; };

/* The step that a plan of p must not reach to be of use; INFINITY: any. */
static double limit_of(const struct dlb_problem *p) { return p->below_s > 0 ? p->below_s : INFINITY; }

/* A plan of R replicas without placement and shares. */
static void share_out(const struct task *t, const struct formed *f, struct dlb_plan *shared)
{
	const int R = f->R, K = f->K, *team = f->team;
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

/* Where the number of replicas is free: fails if a team has less memory than the weights, gradients and
 * states of the model, which no placement over it can mend. one: over team 0. */
static int check_memory(const struct task *t, const struct formed *f, const struct dlb_problem *one,
			struct dlb_error *err)
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

/* The model over one team: placement[op] is a node of team 0. Its nodes are as slow as `like` if the way
 * takes the slowest, else as team 0. */
static int place_team(const struct task *t, const struct dlb_team_way *way, const struct formed *f,
		      bool unlike, int *placement, struct replica_candidate *c, struct dlb_error *err)
{
	const int K = f->K, *team = f->team;
	struct team_problem one = { .node = NULL };
	struct dlb_plan first = { .n_ops = 0 };
	bool stays = t->current && !way->by;
	int rc = -1, n_ops = t->p->graph->n_ops;
	struct dlb_problem shared = *t->p;
	shared.n_shares = dlb_sharing_shares(&t->choice->sharing, f->R);
	shared.zero = t->choice->sharing.zero;
	if (team_init(&one, &shared, team, way->slowest ? f->like : NULL, K, t->p->batch / f->R, err))
		goto out;
	/* of unlike teams another may be the slowest, or this one gets fewer samples */
	one.p.below_s = unlike ? 0 : t->p->below_s;
	if (t->p->scarce)
		*t->p->scarce |= dlb_draft_may_lack(&one.p);
	if (check_memory(t, f, &one.p, err))
		goto out;
	for (int i = 0; i < n_ops && stays; i++) {
		placement[i] = part_of(team, K, t->current[i]);
		stays = placement[i] >= 0;
	}
	rc = stays ? dlb_place_again(&one.p, t->algorithm, placement, &first, &c->kept, err) :
		     dlb_place(&one.p, way->by ? way->by : t->algorithm, &first, err);
	if (rc == 0) {
		for (int i = 0; i < n_ops; i++)
			placement[i] = team[first.placement[i]];
		c->plan.winner = first.winner;
		c->plan.algorithm = way->by ? "default" : first.algorithm;
		c->plan.algorithm_given = t->algorithm && first.algorithm_given;
	}
out:
	dlb_plan_release(&first);
	team_release(&one);
	return rc;
}

/* Sets shares and sums, then makes the whole plan. A step of limit_s or more is of no use. */
static int make(const struct task *t, const struct dlb_plan *teams, bool by_power, const int *placement,
		double limit_s, struct replica_candidate *c, struct dlb_error *err)
{
	struct dlb_plan shared = *teams, of_team = c->plan;
	struct dlb_problem whole = *t->p;
	memset(&shared.arena, 0, sizeof shared.arena);
	shared.sharing.by_power = by_power;
	shared.power = NULL;
	if (t->choice->keeps_shares) {
		shared.power = t->choice->now->power;
	} else if (by_power && find_power(t->p, placement, &shared, err)) {
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

/* Replaces *best by `other` if that is better by more than `gain` of it. Returns whether it did. */
static bool better(struct replica_candidate *best, struct replica_candidate *other, double gain)
{
	if (best->plan.n_ops && !(other->ranked_s < best->ranked_s * (1 - gain))) {
		dlb_plan_release(&other->plan);
		return false;
	}
	dlb_plan_release(&best->plan);
	*best = *other;
	return true;
}

/* The better of even shares and of shares by power, as asked for; both only where teams are unlike. By power
 * comes first: then an even plan counts only if that gains no more than DLB_KEEP_GAIN. */
static int split(const struct task *t, const struct dlb_plan *teams, bool unlike, const int *placement,
		 const struct replica_candidate *one, struct replica_candidate *best, struct dlb_error *err)
{
	const struct dlb_sharing *sharing = &t->choice->sharing;
	const bool any = !sharing->split_given && !sharing->by_power && !t->choice->keeps_shares,
		   by_power = any ? unlike : sharing->by_power;
	const struct dlb_plan none = { .n_ops = 0 };
	struct replica_candidate power = *one;
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
	if (power.plan.n_ops)
		better(best, &power, DLB_KEEP_GAIN);
	else if (!best->plan.n_ops)
		best->ranked_s = fmin(best->ranked_s, power.ranked_s);
	return best->plan.n_ops ? 0 : -1;
}

/* Whether dlb_plan_sums_bound_s holds for these sums. */
static bool are_bounded(const struct task *t, const struct dlb_sharing *s)
{
	return !dlb_sharing_divides(s) && !dlb_sharing_averages(s) && !dlb_sharing_compresses(s) &&
	       t->p->inverse_every <= 0;
}

/* Fails if the sums of gradients alone take as long as a step may. */
static int check_sums(const struct task *t, const struct dlb_plan *teams, const int *placement,
		      struct dlb_error *err)
{
	const double sums_s = isfinite(t->limit_s) && are_bounded(t, &teams->sharing) ?
				      dlb_plan_sums_bound_s(teams, t->p->cost, placement) :
				      0;

	return sums_s < t->limit_s ?
		       0 :
		       dlb_fail_no(err, NULL, "the sums of gradients take %.6g ms or more", sums_s * 1e3);
}

/* The best plan of a way; 1: the way does not apply, since all teams are equal. */
static int place_teams(const struct task *t, int R, const struct dlb_team_way *way,
		       struct replica_candidate *best, struct dlb_error *err)
{
	const size_t n_nodes = (size_t)t->p->cluster->n_nodes;
	struct formed f = { .R = R,
			    .team = dlb_xcalloc(n_nodes + 1, sizeof *f.team),
			    .like = dlb_xcalloc(n_nodes + 1, sizeof *f.like) };
	int *placement = dlb_xcalloc((size_t)t->p->graph->n_ops + 1, sizeof *placement);
	int rc = 1;
	f.K = dlb_teams_form(&t->teams, R, way, f.team);
	bool unlike = dlb_teams_slowest(&t->teams, f.team, R, f.K, f.like);
	struct replica_candidate one = { .kept = false };
	struct dlb_plan teams;
	*best = (struct replica_candidate){ .ranked_s = INFINITY };
	if (way->slowest && !unlike)
		goto out;
	rc = place_team(t, way, &f, unlike, placement, &one, err);
	if (rc) {
		best->ranked_s = unlike ? INFINITY : t->limit_s;
		goto out;
	}
	share_out(t, &f, &teams);
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

static void say(const struct task *t, int R, const struct dlb_team_way *way,
		const struct replica_candidate *c, const struct dlb_error *err)
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

/* The plan without replicas, as a candidate of auto. */
static int place_one(const struct task *t, struct replica_candidate *c, struct dlb_error *err)
{
	*c = (struct replica_candidate){ .ranked_s = INFINITY };
	if (t->p->scarce)
		*t->p->scarce |= dlb_draft_may_lack(t->p);
	int rc = t->current ? dlb_place_again(t->p, t->algorithm, t->current, &c->plan, &c->kept, err) :
			      dlb_place(t->p, t->algorithm, &c->plan, err);
	if (rc == 0)
		c->ranked_s = dlb_place_plan_s(t->p, &c->plan, NULL);
	else
		c->ranked_s = t->limit_s;
	return rc;
}

/* A way to divide the nodes into R teams, with the ranked step of its draft (INFINITY: it does not fit). out:
 * it cannot be better than what there is. */
struct division {
	int R;
	struct dlb_team_way way;
	bool searched, out;
	double draft_s, bound_s, about_s; /* bound: no plan has a shorter step */
};
static bool is_now(const struct division *d) { return d->way.cut == DLB_CUT_NOW; }
struct divisions {
	struct division *at;
	int n, cap;
};

/* Whether both ways give R replicas the same nodes and the same placers. */
static bool alike(const struct task *t, int R, const struct dlb_team_way *a, const struct dlb_team_way *b)
{
	const size_t n_nodes = (size_t)t->p->cluster->n_nodes;
	int *of_a = dlb_xcalloc(2 * n_nodes + 1, sizeof *of_a), *of_b = of_a + n_nodes;
	bool same = a->slowest == b->slowest && a->by == b->by &&
		    dlb_teams_form(&t->teams, R, a, of_a) == dlb_teams_form(&t->teams, R, b, of_b) &&
		    !memcmp(of_a, of_b, n_nodes * sizeof *of_a);

	free(of_a);
	return same;
}

/* Adds the ways for R replicas, of those that are alike the first. */
static void add_ways(const struct task *t, int R, struct divisions *d)
{
	struct dlb_team_way way[DLB_MOST_WAYS] = { { .cut = DLB_CUT_INSIDE, .group = -1 } };
	const int n = R == 1 ? 1 : dlb_teams_ways(&t->teams, R, t->algorithm != NULL, way);

	for (int i = 0; i < n; i++) {
		bool again = false;

		for (int k = 0; k < i && !again; k++)
			again = alike(t, R, &way[i], &way[k]);
		if (again)
			continue;
		DLB_GROW(d->at, d->n, d->cap);
		d->at[d->n++] = (struct division){
			.R = R, .way = way[i], .searched = true, .draft_s = INFINITY
		};
	}
}

/* [nodes] of the division, its teams one after the other; returns their number. Owned by the caller. */
static int *nodes_of(const struct task *t, const struct division *d, int *n)
{
	const int n_nodes = t->p->cluster->n_nodes;
	int *node = dlb_xcalloc((size_t)n_nodes + 1, sizeof *node);

	*n = 0;
	if (d->R > 1) {
		*n = d->R * dlb_teams_form(&t->teams, d->R, &d->way, node);
		return node;
	}
	for (int i = 0; i < n_nodes; i++)
		if (t->p->free_node[i])
			node[(*n)++] = i;
	return node;
}

static uint64_t hash_of(const struct task *t, const struct division *d)
{
	const int32_t number[] = { d->R, d->way.slowest, t->choice->sharing.zero };
	int n, *node = nodes_of(t, d, &n);
	uint64_t h = dlb_hash_bytes(DLB_HASH_INIT, node, (size_t)n * sizeof *node);

	h = dlb_hash_bytes(h, number, sizeof number);
	free(node);
	return d->way.by ? dlb_hash_str(h, d->way.by) : h;
}

/* Sets the bound of the division's step, and what it is about if all its teams are pipelines that fill and
 * drain. */
static void set_bound(const struct task *t, struct division *d)
{
	int n, *node = nodes_of(t, d, &n), *count = dlb_xcalloc((size_t)t->p->n_classes + 1, sizeof *count);

	for (int i = 0; i < n; i++)
		count[t->p->class_of[node[i]]]++;
	d->bound_s = dlb_pool_bound_s(t->p, count);
	d->about_s = d->bound_s * (1 + (double)(n / d->R - 1) / t->p->micro_batches);
	free(node);
	free(count);
}

/* Whether the nodes of the division cannot do a step in best_s, by far: an op may take a little less for each
 * of fewer samples; or they are far slower than others under another schedule. */
static bool is_hopeless(const struct task *t, const struct division *d, double best_s)
{
	static const double FAR = 1.1, OTHER_SCHEDULE = 1.25;
	const double other_s = dlb_draft_least_s(t->p, hash_of(t, d));
	if (isfinite(other_s) && other_s > dlb_draft_least_s(t->p, 0) * OTHER_SCHEDULE)
		return true;
	return isfinite(best_s) && d->bound_s > best_s * FAR;
}

/* 0: *c is its best plan; 1: it is the same as another division; -1: it does not fit. */
static int try_division(const struct task *t, const struct division *d, struct replica_candidate *c,
			struct dlb_error *err)
{
	bool scarce = false;
	struct dlb_problem watched = *t->p;
	struct task own = *t;

	watched.scarce = &scarce;
	own.p = &watched;
	int rc = d->R == 1 ? place_one(&own, c, err) : place_teams(&own, d->R, &d->way, c, err);

	if (rc <= 0)
		say(t, d->R, &d->way, c, rc ? err : NULL);
	/* where memory is scarce nothing is known of a division without a plan under other schedules or with ops
	 * that run again */
	dlb_draft_keep(t->p, hash_of(t, d), rc > 0 || (rc && scarce) ? INFINITY : c->ranked_s, scarce);
	if (t->p->scarce)
		*t->p->scarce |= scarce;
	return rc;
}

/* The shortest draft that there is; NULL: none fits, or all are out. */
static struct division *best_draft(struct divisions *d)
{
	struct division *best = NULL;

	for (int i = 0; i < d->n; i++)
		if (!d->at[i].searched && !d->at[i].out && (!best || d->at[i].draft_s < best->draft_s))
			best = &d->at[i];
	return best;
}

static int by_about(const void *a, const void *b)
{
	const struct division *x = *(struct division *const *)a, *y = *(struct division *const *)b;

	if (x->about_s != y->about_s)
		return x->about_s < y->about_s ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* [n] the divisions, those that promise most first, so that a good one limits the others. Owned by the
 * caller. */
static struct division **in_order(const struct task *t, struct divisions *d)
{
	struct division **order = dlb_xcalloc((size_t)d->n + 1, sizeof *order);

	for (int i = 0; i < d->n; i++) {
		set_bound(t, &d->at[i]);
		order[i] = &d->at[i];
	}
	qsort(order, (size_t)d->n, sizeof *order, by_about);
	return order;
}

/* Sets the drafts of all divisions. best: gets the best plan of those that were not known, and marks it as
 * searched; NULL: no plan is asked for. Where the number of replicas is free, only drafts near the best
 * count. */
static void make_drafts(const struct task *t, struct divisions *d, struct replica_candidate *best,
			struct dlb_error *err)
{
	const bool again = t->p->recompute && t->p->recompute->chosen;
	struct dlb_problem brief = *t->p;
	struct task one = *t;
	struct division *made = NULL, **order = in_order(t, d);
	double least_s = INFINITY;

	one.p = &brief;
	for (int i = 0; i < d->n; i++) {
		struct division *x = order[i];
		const struct dlb_draft *known = dlb_draft_find(t->p, dlb_draft_key(t->p, hash_of(t, x)));
		struct replica_candidate c;
		struct dlb_error why = { .status = 0 };

		x->searched = is_now(x) && !best;
		/* without ops that run again it is the same, and there is a plan of it */
		x->out = !is_now(x) && (known ? again && !known->again && isfinite(known->ranked_s) :
						is_hopeless(t, x, least_s));
		x->draft_s = known ? known->ranked_s : INFINITY;
		brief.brief = isfinite(fmin(least_s, limit_of(t->p)));
		one.limit_s = t->choice->n ?
				      limit_of(t->p) :
				      fmin(limit_of(t->p), least_s * dlb_search_near(t->p) * (1 + 1e-9));
		brief.below_s = isfinite(one.limit_s) ? one.limit_s : 0;
		if (!known && !x->out) {
			const int rc = try_division(&one, x, &c, &why);
			x->draft_s = rc > 0 ? INFINITY : c.ranked_s;
			if (rc == 0 && best && c.ranked_s < least_s) {
				dlb_plan_release(&best->plan);
				*best = c;
				made = x;
			} else if (rc == 0) {
				dlb_plan_release(&c.plan);
			}
		}
		if (why.what[0] && err)
			*err = why;
		least_s = fmin(least_s, x->draft_s);
	}
	free(order);
	if (made)
		made->searched = true;
}

/* The MOST_SEARCHED divisions with the shortest drafts are searched, and the current teams; where the number
 * of replicas is free, only those near the best. */
static void choose_searched(const struct task *t, struct divisions *d)
{
	enum { MOST_SEARCHED = 4 };
	struct dlb_problem draft = *t->p;
	struct task drafts = *t;
	struct division *x;
	double most_s = INFINITY;

	if (d->n <= MOST_SEARCHED)
		return;
	draft.draft = true;
	drafts.p = &draft;
	make_drafts(&drafts, d, NULL, NULL);
	for (int k = 0; k < MOST_SEARCHED && (x = best_draft(d)) != NULL && !(x->draft_s > most_s); k++) {
		x->searched = true;
		most_s = k || t->choice->n ? most_s : x->draft_s * dlb_search_near(t->p);
	}
}

/* The best plan of all divisions without a search. */
static void draft_divisions(const struct task *t, struct divisions *d, struct replica_candidate *best,
			    struct dlb_error *err)
{
	make_drafts(t, d, best, err);
	struct division *known = best_draft(d);
	struct replica_candidate c;

	if (known && (!best->plan.n_ops || known->draft_s < best->ranked_s) &&
	    !try_division(t, known, &c, err))
		better(best, &c, 0);
}

/* Searches the divisions that are marked for it. Returns the best; NULL: none fits, with err of the last. */
static const struct division *search_marked(const struct task *t, const struct divisions *d,
					    struct replica_candidate *best, struct dlb_error *err)
{
	const struct division *taken = NULL;
	int now = 0; /* replicas of the current teams, which are the first division into so many */

	for (int i = 0; i < d->n; i++) {
		const struct division *x = &d->at[i];
		struct replica_candidate c;
		struct dlb_error why = { .status = 0 };

		now = is_now(x) ? x->R : now;
		int rc = x->searched ? try_division(t, x, &c, &why) : 1;
		if (rc == 0) { /* teams, too, are kept unless the gain is large enough */
			const double gain = x->R == now && !is_now(x) && best->plan.n_replicas == now ?
						    DLB_KEEP_GAIN :
						    0;
			if (better(best, &c, gain))
				taken = x;
		} else if (rc < 0 && !best->plan.n_ops) {
			*err = why;
		}
	}
	return taken;
}

/* The best plan of all divisions; plan.n_ops 0: none fits, with err of the last. Where the number of replicas
 * is free, the divisions share one search, and the best is then searched with all effort. */
static void search_divisions(const struct task *t, struct divisions *d, struct replica_candidate *best,
			     struct dlb_error *err)
{
	struct dlb_problem shared = *t->p;
	struct task sharing = *t;
	struct replica_candidate c;
	int n = 0;

	choose_searched(t, d);
	for (int i = 0; i < d->n; i++)
		n += d->at[i].searched;
	shared.candidates = t->choice->n ? 1 : n;
	sharing.p = &shared;
	const struct division *taken = search_marked(&sharing, d, best, err);
	if (taken && shared.candidates > 1 && !try_division(t, taken, &c, err))
		better(best, &c, 0);
}

/* Divided state lies in host memory, where replicas exchange it. */
static int check_shares(const struct dlb_problem *p, const struct dlb_sharing *s, struct dlb_error *err)
{
	if (dlb_sharing_divides(s) && p->inverse_every > 0)
		return dlb_fail(err, "/plan/zero",
				"the state of K-FAC is of matrices, which are not divided by elements; leave "
				"zero out, or "
				"take another optimizer");
	for (int d = 0; d < p->cluster->n_nodes && dlb_sharing_divides(s); d++) {
		const struct dlb_device_kind *kind = &p->cluster->kind[p->cluster->node[d].kind];
		if (!(p->excluded && p->excluded[d]) && strncmp(kind->backend, "cpu", 3))
			return dlb_refuse(
				err, NULL, "leave --zero out, or --exclude the node",
				"node %d (%s) has memory of its own, and optimizer state is divided in "
				"host memory only",
				d, kind->name);
	}
	return 0;
}

int dlb_place_replicas(const struct dlb_problem *p, const struct dlb_replicas_choice *choice,
		       const char *algorithm, const int *current, struct dlb_plan *plan, double *ranked_s,
		       bool *kept, struct dlb_error *err)
{
	struct task t = {
		.p = p, .choice = choice, .algorithm = algorithm, .current = current, .limit_s = limit_of(p)
	};
	struct replica_candidate best = { .kept = false };
	struct divisions d = { .n = 0 };
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
	dlb_teams_init(&t.teams, p, current ? choice->now : NULL);
	for (int r = 1; r <= n && r <= p->batch; r++)
		if (R ? r == R : worth_trying(r, n))
			add_ways(&t, r, &d);
	(p->draft ? draft_divisions : search_divisions)(&t, &d, &best, err);
	free(d.at);
	dlb_teams_release(&t.teams);
	if (!best.plan.n_ops)
		return -1;
	*plan = best.plan;
	*kept = best.kept;
	if (ranked_s)
		*ranked_s = best.ranked_s;
	return 0;
}
