/* Divides the nodes into teams in several ways: see teams.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/teams.h"

enum { MOST_GROUPS = 8, MOST_PIPELINES = 2 };	/* groups tried with one node per team, and with more */
static const double same = 1e-9;		/* times within this relative difference count as equal */

/* ---- the tree of groups ---- */

static int depth(const struct dlb_cluster *c, int group)
{
	int d = 0;
	for (; group >= 0; group = c->group[group].parent)
		d++;
	return d;
}

/* The ancestor of `group` at `level` levels below the root. */
static int ancestor(const struct dlb_cluster *c, int group, int level)
{
	for (int d = depth(c, group); d > level; d--)
		group = c->group[group].parent;
	return group;
}

static bool is_in(const struct dlb_cluster *c, int node, int group)
{
	int at = c->node[node].group;
	while (at >= 0 && at != group)
		at = c->group[at].parent;
	return group < 0 || at == group;
}

static const struct dlb_teams *sorted;		/* for the three comparisons: qsort passes no argument */

static int by_group(const void *a, const void *b)
{
	const struct dlb_cluster *c = sorted->p->cluster;
	int x = *(const int *)a, y = *(const int *)b, gx = c->node[x].group, gy = c->node[y].group;
	int least = depth(c, gx) < depth(c, gy) ? depth(c, gx) : depth(c, gy);
	for (int level = 1; level <= least; level++) {
		int p = ancestor(c, gx, level), q = ancestor(c, gy, level);
		if (p != q)
			return p < q ? -1 : 1;
	}
	return x - y;
}

static int by_part(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	const struct dlb_node *p = &sorted->p->cluster->node[x], *q = &sorted->p->cluster->node[y];
	if (p->kind != q->kind)
		return p->kind - q->kind;
	if (p->speed != q->speed)
		return p->speed > q->speed ? -1 : 1;
	return x - y;
}

static int by_speed(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	double s = sorted->alone_s[x], t = sorted->alone_s[y];
	if (s < t * (1 - same) || (isfinite(s) && isinf(t)))
		return -1;
	if (t < s * (1 - same) || (isfinite(t) && isinf(s)))
		return 1;
	return by_group(a, b);
}

/* ---- speeds of nodes ---- */

static double alone_s(const struct dlb_problem *p, int node)
{
	double s = 0;
	for (int i = 0; i < p->graph->n_ops; i++)
		s += dlb_cost_op_s(p->cost, i, node, (double)p->batch);
	return s;
}

static bool may_work(const struct dlb_problem *p, int node)
{
	return !p->excluded || !p->excluded[node];
}

int dlb_teams_free_nodes(const struct dlb_problem *p)
{
	int n = 0;
	for (int i = 0; i < p->cluster->n_nodes; i++)
		n += may_work(p, i);
	return n;
}

void dlb_teams_init(struct dlb_teams *t, const struct dlb_problem *p, const struct dlb_plan *now)
{
	const struct dlb_cluster *c = p->cluster;
	double least = INFINITY, most = 0;
	*t = (struct dlb_teams){ .p = p, .now = now };
	t->alone_s = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *t->alone_s);
	for (int i = 0; i < c->n_nodes; i++) {
		const struct dlb_node *x = &c->node[i];
		int like = 0;			/* an earlier node with the same times */
		while (like < i && (c->node[like].kind != x->kind || c->node[like].speed != x->speed ||
				    c->node[like].n_memories || x->n_memories))
			like++;
		t->alone_s[i] = like < i ? t->alone_s[like] : alone_s(p, i);
	}
	for (int i = 0; i < c->n_nodes; i++) {
		t->alone_s[i] *= p->kappa ? p->kappa[i] : 1;
		if (may_work(p, i)) {
			least = fmin(least, t->alone_s[i]);
			most = fmax(most, t->alone_s[i]);
		}
	}
	t->differ = most > least * (1 + same);
}

void dlb_teams_release(struct dlb_teams *t)
{
	free(t->alone_s);
	t->alone_s = NULL;
}

bool dlb_teams_slowest(const struct dlb_teams *t, const int *team, int R, int K, int *like)
{
	const struct dlb_problem *p = t->p;
	bool differ = false;
	for (int k = 0; k < K; k++) {
		double most = -1, least = INFINITY;
		for (int r = 0; r < R; r++) {
			int d = team[r * K + k];
			double s = t->alone_s[d] / (p->weight ? p->weight[d] : 1);
			if (s > most) {
				most = s;
				like[k] = d;
			}
			least = fmin(least, s);
		}
		differ |= most > least * (1 + same);
	}
	return differ;
}

/* ---- division ---- */

/* Removes the slowest of n nodes, the last of equal ones, until n_used remain. */
static void leave_slowest(const struct dlb_teams *t, int *order, int n, int n_used)
{
	for (; n > n_used; n--) {
		int worst = 0;
		for (int i = 1; i < n; i++)
			if (t->alone_s[order[i]] >= t->alone_s[order[worst]] * (1 - same) ||
			    isinf(t->alone_s[order[i]]))
				worst = i;
		memmove(order + worst, order + worst + 1, (size_t)(n - worst - 1) * sizeof *order);
	}
}

/* Nodes of a group that are not excluded, in the order of the tree; group -1: all nodes. */
static int nodes_of(const struct dlb_teams *t, int group, int *order)
{
	int n = 0;
	for (int i = 0; i < t->p->cluster->n_nodes; i++)
		if (may_work(t->p, i) && is_in(t->p->cluster, i, group))
			order[n++] = i;
	sorted = t;
	qsort(order, (size_t)n, sizeof *order, by_group);
	return n;
}

static int form_now(const struct dlb_plan *now, int R, int *team)
{
	int K = 0;
	for (int k = 0; k < now->n_nodes; k++)
		K += now->replica[0][k] >= 0;
	for (int r = 0; r < R; r++)
		for (int k = 0, at = 0; k < now->n_nodes; k++)
			if (now->replica[r][k] >= 0)
				team[r * K + at++] = now->replica[r][k];
	return K;
}

int dlb_teams_form(const struct dlb_teams *t, int R, const struct dlb_team_way *way, int *team)
{
	if (way->cut == DLB_CUT_NOW)
		return form_now(t->now, R, team);
	int *order = dlb_xcalloc((size_t)t->p->cluster->n_nodes + 1, sizeof *order);
	int n = nodes_of(t, way->group, order), K = way->one ? 1 : n / R;
	leave_slowest(t, order, n, R * K);
	if (way->cut == DLB_CUT_ALIKE)
		qsort(order, (size_t)(R * K), sizeof *order, by_speed);
	for (int r = 0; r < R; r++) {
		for (int k = 0; k < K; k++)
			team[r * K + k] = order[way->cut == DLB_CUT_INSIDE ? r * K + k : k * R + r];
		if (way->cut != DLB_CUT_ALIKE)
			qsort(team + r * K, (size_t)K, sizeof *team, by_part);
	}
	free(order);
	return K;
}

/* ---- ways to try ---- */

/* Total samples per second of a group's R fastest nodes; 0: it has fewer nodes, or the same as its parent. */
static double power_of(const struct dlb_teams *t, int group, int R, int *order)
{
	int around = nodes_of(t, t->p->cluster->group[group].parent, order), n = nodes_of(t, group, order);
	double sum = 0;
	if (n < R || n == around)
		return 0;
	leave_slowest(t, order, n, R);
	for (int i = 0; i < R; i++)
		sum += 1 / t->alone_s[order[i]];
	return sum;
}

/* The groups whose R fastest nodes are fastest, the fastest first. */
static int fastest_groups(const struct dlb_teams *t, int R, int group[MOST_GROUPS])
{
	const struct dlb_cluster *c = t->p->cluster;
	int *order = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *order), n = 0;
	double power[MOST_GROUPS];
	for (int g = 0; g < c->n_groups; g++) {
		double s = power_of(t, g, R, order);
		int at = n < MOST_GROUPS ? n++ : MOST_GROUPS;
		for (; at > 0 && s > power[at - 1] * (1 + same); at--)
			if (at < MOST_GROUPS) {
				power[at] = power[at - 1];
				group[at] = group[at - 1];
			}
		if (at < MOST_GROUPS) {
			power[at] = s;
			group[at] = g;
		}
	}
	while (n > 0 && power[n - 1] == 0)
		n--;
	free(order);
	return n;
}

static bool now_serves(const struct dlb_teams *t, int R)
{
	const struct dlb_plan *now = t->now;
	if (!now || now->n_replicas != R || R < 2 || now->n_nodes != t->p->cluster->n_nodes)
		return false;
	for (int d = 0; d < now->n_nodes; d++)
		if (now->replica_of[d] >= 0 && !may_work(t->p, d))
			return false;
	return true;
}

int dlb_teams_ways(const struct dlb_teams *t, int R, bool algorithm, struct dlb_team_way way[DLB_MOST_WAYS])
{
	/* A placement that is best for one team may be bad for others, so one node per team is tried too. */
	static const struct dlb_team_way usual[] = {
		{ DLB_CUT_INSIDE, -1, false, false, NULL },
		{ DLB_CUT_ACROSS, -1, false, false, NULL },
		{ DLB_CUT_INSIDE, -1, false, true, NULL },
		{ DLB_CUT_ACROSS, -1, false, true, NULL },
		{ DLB_CUT_INSIDE, -1, false, false, "single" },
		{ DLB_CUT_ACROSS, -1, false, false, "single" },
	};
	const int all = dlb_teams_free_nodes(t->p) / R;
	int *order = dlb_xcalloc((size_t)t->p->cluster->n_nodes + 1, sizeof *order), n = 0;
	if (now_serves(t, R))
		way[n++] = (struct dlb_team_way){ DLB_CUT_NOW, -1, false, false, NULL };
	for (size_t i = 0; i < DLB_LEN(usual); i++)
		if ((i == 0 || all > 1) && !(algorithm && usual[i].by))
			way[n++] = usual[i];
	if (t->differ && all > 1) {
		way[n++] = (struct dlb_team_way){ DLB_CUT_ALIKE, -1, false, false, NULL };
		way[n++] = (struct dlb_team_way){ DLB_CUT_ALIKE, -1, false, true, NULL };
		if (!algorithm)
			way[n++] = (struct dlb_team_way){ DLB_CUT_ALIKE, -1, true, false, NULL };
	}
	int group[MOST_GROUPS], n_groups = algorithm ? 0 : fastest_groups(t, R, group);
	for (int i = 0; i < n_groups; i++)
		way[n++] = (struct dlb_team_way){ DLB_CUT_ALIKE, group[i], true, false, NULL };
	for (int i = 0; i < n_groups && i < MOST_PIPELINES; i++)
		if (nodes_of(t, group[i], order) / R > 1)
			way[n++] = (struct dlb_team_way){ DLB_CUT_ALIKE, group[i], false, false, NULL };
	free(order);
	return n;
}

const char *dlb_team_way_name(const struct dlb_teams *t, const struct dlb_team_way *way, char *out,
			      size_t size)
{
	static const char *const cuts[] = { "groups as they are", "inside groups", "across groups",
					    "groups by speed" };
	snprintf(out, size, "%s%s%.40s%s%s", cuts[way->cut], way->group >= 0 ? " in " : "",
		 way->group >= 0 ? t->p->cluster->group[way->group].name : "",
		 way->slowest ? ", placed for the slowest" : "",
		 way->one || way->by ? ", one node each" : "");
	return out;
}
