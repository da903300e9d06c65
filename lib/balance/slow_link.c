/* Finds the link that has lost bandwidth in a round, or has regained it. See culprit.h.
 *
 * The round is simulated with the measured speeds of the nodes. If it took much longer than the simulated
 * step, each candidate link is given the smaller bandwidth with which the simulated step equals the measured
 * one. The slow link is the one for which the waiting of all nodes, by kind of wait, is then nearest to the
 * measured waiting (least squares). The nodes of a run wait meanwhile, so the search is limited: if it ends
 * before all candidates are tried, no link is named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "balance/culprit.h"
#include "plan/replica.h"
#include "plan/timeline.h"
#include "util/mem.h"

static const double late_part = 0.2; /* fraction of a step; predictions err by less */
/* A standard error above both is noise, not a slow link: fractions of a step, and of its part that was not
 * predicted. */
static const double steady_part = 0.03, sure_part = 1.0 / 6;
static const double near_part = 0.05; /* fraction of a step by which the simulated step may differ */
static const double same_part = 0.01; /* fraction of a step; waits that differ by less count as equal */
enum { MOST_LINKS = 16, MOST_TRIES = 12, USUAL_TRIES = 4 }; /* tries: simulations per link */
static const double most_instructions = 3e6; /* simulated in a search: a few seconds */
static const int kinds[] = { DLB_WAIT_STARVED, DLB_WAIT_BACKPRESSURE, DLB_WAIT_COLLECTIVE };

/* The costs with a copy of the cluster, whose links may be changed. */
struct trial {
	const struct dlb_balance_inputs *s;
	double *scale;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	double off2; /* of the last simulation: squares of differences in waiting */
	double left; /* simulations that may still be made */
};

/* Seconds of a step with the links of x; INFINITY: it cannot be simulated. */
static double simulate(struct trial *x)
{
	struct dlb_timeline t;
	double step_s = INFINITY;

	x->left--;
	if (!dlb_program_simulate(&x->s->program, &x->cost,
				  &(struct dlb_simulate_choice){ .node_scale = x->scale }, &t, NULL)) {
		step_s = t.step_s;
		x->off2 = 0;
		for (int i = 0; i < x->s->plan.n_nodes; i++)
			for (size_t w = 0; w < DLB_LEN(kinds); w++)
				x->off2 += pow(t.node[i].waits_s[kinds[w]] -
						       x->s->report.node[i].waits_s[kinds[w]],
					       2);
		dlb_timeline_release(&t, x->s->plan.n_nodes);
	}
	return step_s;
}

/* The same with the present bandwidth of link k multiplied by factor. */
static double step_with(struct trial *x, int k, double factor)
{
	const double present = x->cluster.link[k].bandwidth_Bps;

	x->cluster.link[k].bandwidth_Bps = present * factor;
	const double step_s = simulate(x);
	x->cluster.link[k].bandwidth_Bps = present;
	return step_s;
}

/* A range of factors of a bandwidth; the search begins with `first`. */
struct factors {
	double least, most, first;
};
static const struct factors slower = { 1e-6, 1, 0.1 };

/* The factor of link k's present bandwidth with which a step takes step_s; 0: there is none in the range.
 * all_s: the step with factor 1. Searches by secants, since a step takes a + b / factor where the link
 * decides. */
static double factor_for(struct trial *x, int k, double step_s, double all_s, struct factors range)
{
	double before = 1, before_s = all_s, factor = range.first;

	for (int i = 0; i < MOST_TRIES && x->left > 0; i++) {
		const double now_s = step_with(x, k, factor),
			     b = (now_s - before_s) / (1 / factor - 1 / before);

		if (fabs(now_s - step_s) < near_part * step_s)
			return factor;
		before = factor;
		before_s = now_s;
		factor = b > 0 && isfinite(b) ? 1 / (1 / factor + (step_s - now_s) / b) : factor / 10;
		if (!(factor > range.least) || factor >= range.most)
			return 0;
	}
	return 0;
}

/* The node whose waiting exceeds its structural wait most. */
static int waits_most(const struct dlb_balance_inputs *s, const struct dlb_load *l)
{
	int node = 0;

	for (int i = 1; i < l->n_nodes; i++)
		if (s->report.node[i].wait_s - l->structural_s[i] >
		    s->report.node[node].wait_s - l->structural_s[node])
			node = i;
	return node;
}

static void mark_route(const struct dlb_cluster *cl, int from, int to, bool *chosen)
{
	int route[DLB_MAX_ROUTE];
	const int n = from == to ? 0 : dlb_cluster_route(cl, from, to, route);

	for (int i = 0; i < n; i++)
		chosen[route[i]] = true;
}

/* Marks the links over which the node sends messages, and over which it sums with the next replica. */
static void mark_used(const struct dlb_balance_inputs *s, int node, bool *chosen)
{
	const struct dlb_node_program *np = &dlb_program_of(&s->program, node)->node[node];
	const struct dlb_plan *p = &s->plan;

	for (int i = 0; i < np->n_instr; i++)
		if (np->instr[i].verb == DLB_SEND)
			mark_route(&s->cluster, node, np->instr[i].peer, chosen);
	const int part = p->n_replicas > 1 ? dlb_plan_part_of(p, node) : -1,
		  r = part < 0 ? 0 : (dlb_plan_replica_of(p, node) + 1) % p->n_replicas;
	if (part >= 0 && p->replica[r][part] >= 0)
		mark_route(&s->cluster, node, p->replica[r][part], chosen);
}

/* Marks the candidate links: all of a small cluster; in a larger one those that the plan uses or, if the
 * search has too few simulations for them, those that the longest waiting node uses. left: simulations. */
static void choose_links(const struct dlb_balance_inputs *s, const struct dlb_load *l, double left,
			 bool *chosen)
{
	const int n_links = s->cluster.n_links;
	int n = 0;

	for (int k = 0; k < n_links; k++)
		chosen[k] = n_links <= MOST_LINKS;
	if (n_links <= MOST_LINKS)
		return;
	for (int node = 0; node < s->plan.n_nodes; node++)
		mark_used(s, node, chosen);
	for (int k = 0; k < n_links; k++)
		n += chosen[k];
	if (n * USUAL_TRIES <= left)
		return;
	memset(chosen, 0, (size_t)n_links * sizeof *chosen);
	mark_used(s, waits_most(s, l), chosen);
}

/* Tries the chosen links, and sets *c to the one that explains the round best. all_s: the simulated step with
 * the present bandwidths. */
static void try_links(struct trial *x, const bool *chosen, double step_s, double all_s, struct dlb_culprit *c)
{
	const struct dlb_cluster *cl = &x->s->cluster;
	const struct dlb_culprit before = *c;
	double best = INFINITY;

	for (int k = 0; k < cl->n_links; k++) {
		const double factor = chosen[k] ? factor_for(x, k, step_s, all_s, slower) : 0,
			     off = sqrt(x->off2);

		if (!(factor > 0) || off >= best + same_part * step_s)
			continue;
		if (off > best - same_part * step_s) { /* explains it as well */
			if (c->n_links < DLB_EQUAL_LINKS)
				c->at[c->n_links] = k;
			c->n_links++;
			c->or_link = dlb_link_name(cl, k);
			best = fmin(best, off);
			continue;
		}
		best = off;
		*c = (struct dlb_culprit){ .cause = DLB_CAUSE_LINK,
					   .n_links = 1,
					   .at = { k },
					   .link = dlb_link_name(cl, k),
					   .measured_Bps = cl->link[k].bandwidth_Bps * factor,
					   .stated_Bps = cl->link[k].stated_Bps,
					   .step_s = all_s };
	}
	if (x->left <= 0)
		*c = before;
}

static double instructions_of(const struct dlb_balance_inputs *s)
{
	double n = 0;

	for (int node = 0; node < s->plan.n_nodes; node++)
		n += dlb_program_of(&s->program, node)->node[node].n_instr;
	return n;
}

/* Initializes x with the speeds of the nodes as the round measured them. x must not move. */
static void trial_init(struct trial *x, const struct dlb_balance_inputs *s, const struct dlb_load *l)
{
	const size_t n_links = (size_t)s->cluster.n_links;

	*x = (struct trial){ .s = s,
			     .cluster = s->cluster,
			     .cost = s->cost,
			     .scale = dlb_xcalloc((size_t)l->n_nodes + 1, sizeof *x->scale),
			     .left = most_instructions / (instructions_of(s) + 1) };
	for (int i = 0; i < l->n_nodes; i++)
		x->scale[i] = l->predicted_busy_s[i] > 0 ? l->busy_s[i] / l->predicted_busy_s[i] : 1;
	x->cluster.link = dlb_xcalloc(n_links + 1, sizeof *x->cluster.link);
	memcpy(x->cluster.link, s->cluster.link, n_links * sizeof *x->cluster.link);
	x->cost.cluster = &x->cluster;
}

static void trial_release(struct trial *x)
{
	free(x->cluster.link);
	free(x->scale);
}

void dlb_slow_link_find(const struct dlb_balance_inputs *s, const struct dlb_load *l, struct dlb_culprit *c)
{
	const double step_s = l->round_s;
	struct trial x;

	if (!s->cluster.n_links || l->predicted_s > (1 - late_part) * step_s ||
	    l->round_se_s > fmax(steady_part * step_s, sure_part * (step_s - l->predicted_s)))
		return;
	trial_init(&x, s, l);
	const double all_s = simulate(&x);
	bool *chosen = dlb_xcalloc((size_t)s->cluster.n_links, sizeof *chosen);
	choose_links(s, l, x.left, chosen);
	if (all_s < (1 - late_part) * step_s)
		try_links(&x, chosen, step_s, all_s, c);
	free(chosen);
	trial_release(&x);
}

double dlb_slow_link_now(const struct dlb_balance_inputs *s, const struct dlb_load *l, int k, bool *seen)
{
	const struct dlb_link *link = &s->cluster.link[k];
	const double present = link->bandwidth_Bps / link->stated_Bps, step_s = l->round_s;
	struct trial x;
	double more = 1;

	trial_init(&x, s, l);
	const double all_s = simulate(&x), stated_s = step_with(&x, k, 1 / present);
	*seen = all_s - stated_s > near_part * all_s;
	if (*seen && l->round_se_s <= steady_part * step_s && step_s < (1 - late_part) * all_s)
		more = step_s < (1 + near_part) * stated_s ?
			       1 / present :
			       factor_for(&x, k, step_s, all_s,
					  (struct factors){ 1, 1 / present, sqrt(1 / present) });
	trial_release(&x);
	return more > 1 ? present * more : present;
}

bool dlb_slow_link_none(const struct dlb_balance_inputs *s, const struct dlb_load *l)
{
	const double step_s = l->round_s;
	struct trial x;

	if (l->round_se_s > steady_part * step_s || l->predicted_s <= step_s)
		return false;
	trial_init(&x, s, l);
	const double all_s = simulate(&x);
	for (int k = 0; k < s->cluster.n_links; k++)
		x.cluster.link[k].bandwidth_Bps = x.cluster.link[k].stated_Bps;
	const double stated_s = simulate(&x);
	trial_release(&x);
	return step_s < (1 - late_part) * all_s && step_s < (1 + near_part) * stated_s;
}
