/* Shares by power: see power.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/power.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/timeline.h"
#include "util/mem.h"

/* Lists, in ascending order, the nodes that take part in the step of a replica by itself: its own nodes, or
 * all nodes if all of them synchronise within a step or rank 0 feeds them. Returns their number. */
static int nodes_of_replica(const struct dlb_problem *p, const struct dlb_plan *plan, int r, int *node)
{
	const bool all = p->clip || p->inverse_every > 0 || plan->sharing.feed_host;
	int n = 0;
	for (int d = 0; d < plan->n_nodes; d++)
		if (all || (plan->part_of[d] >= 0 && plan->replica_of[d] == r))
			node[n++] = d;
	return n;
}

/* A plan of one replica, over a cluster that has only the nodes that take part. */
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
	x->plan.draft = true; /* times do not depend on offsets in the arena */
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

/* A step found already: s seconds over `share` samples, for all replicas that are alike. */
struct took {
	int alike;
	int64_t share;
	double s;
};
/* The search for the shares whose longest step is shortest. */
struct power_search {
	const struct dlb_problem *p;
	struct dlb_plan *shared;
	int R, *alike, *order; /* [replica] the first one like it; [R] order in which steps are found */
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
	if (!meet) /* else other nodes take part in a replica's step too */
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

/* Sorts the replicas by expected time, the longest first, so that a step that is too long ends the round
 * early. */
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

/* Sets the shares by `power`, and finds the longest step with them; stops at the first step of below_s or
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

int dlb_replicas_find_power(const struct dlb_problem *p, const int *placement, struct dlb_plan *shared,
			    int64_t *most_samples, struct dlb_error *err)
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
	for (int i = 0; i < x.n; i++)
		*most_samples = x.took[i].share > *most_samples ? x.took[i].share : *most_samples;
	free(next);
	power_release(&x);
	return rc;
}
