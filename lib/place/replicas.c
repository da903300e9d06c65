/* Replicas: which nodes form one, which part each plays, how the batch is shared out.
 *
 * Nodes are put in the order of the tree of groups, so that neighbours in it sit close. R teams of K nodes are cut from it
 * in two ways, and the plan that is simulated faster wins:
 *
 *     inside    team r is nodes rK .. rK + K-1: a pipeline's stages sit closest, sums of gradients go between groups
 *     across    team r is nodes r, r + R, ...: those that sum the same gradients sit closest
 *
 * A team's nodes play their parts in order of kind and speed, so that part k meets like devices in all teams where
 * there are such. The model is placed over one team by any algorithm, and all play the same parts: over team 0, and, where
 * teams are unequal, over one that plays each part as slowly as the slowest node that has it does. A team's power is the
 * samples per second that it is predicted to compute. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "place/place.h"

/* ---- a team by itself ---- */

/* A problem over some nodes of another one's cluster. */
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

/* Pins and the placement that is moved from, in parts. */
static int team_wishes(struct team_problem *t, const struct dlb_problem *whole, const int *node, int n, struct dlb_error *err)
{
	int n_ops = whole->graph->n_ops;
	if (whole->pin) {
		t->p.pin = t->pin = dlb_xcalloc((size_t)n_ops + 1, sizeof *t->pin);
		for (int i = 0; i < n_ops; i++) {
			t->pin[i] = whole->pin[i] < 0 ? -1 : part_of(node, n, whole->pin[i]);
			if (whole->pin[i] >= 0 && t->pin[i] < 0)
				return dlb_fail_no(err, NULL, "no plan fits: op '%s' is pinned to node %d, which is not in the first replica",
						   whole->graph->op[i].name, whole->pin[i]);
		}
	}
	if (whole->before) {
		t->p.before = t->before = dlb_xcalloc((size_t)n_ops + 1, sizeof *t->before);
		for (int i = 0; i < n_ops && t->p.before; i++)
			if ((t->before[i] = part_of(node, n, whole->before[i])) < 0)
				t->p.before = NULL;		/* it came from other nodes: everything moves */
	}
	return 0;
}

/* 0 where the cluster states neither. */
static double least_memory(const struct dlb_cluster *c, int a, int b)
{
	double least = fmin(dlb_cluster_node_memory(c, a), dlb_cluster_node_memory(c, b));
	return isinf(least) ? 0 : least;
}

/* like: as fast as these nodes are, with as much memory as both have; NULL: as `node`. */
static int team_init(struct team_problem *t, const struct dlb_problem *whole, const int *node, const int *like, int n, int64_t batch,
		     struct dlb_error *err)
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
	memset(&t->p.arena, 0, sizeof t->p.arena);
	t->p.n_groups = 0;
	t->p.replicas = NULL;
	t->p.cluster = &t->cluster;
	t->p.cost = &t->cost;
	t->p.weight = t->weight;
	t->p.kappa = t->kappa;
	t->p.batch = batch;
	t->p.excluded = NULL;
	if (team_wishes(t, whole, node, n, err))
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

/* ---- teams ---- */

static int depth(const struct dlb_cluster *c, int group)
{
	int d = 0;
	for (; group >= 0; group = c->group[group].parent)
		d++;
	return d;
}

/* The group `up` levels below the root on the way to `group`. */
static int ancestor(const struct dlb_cluster *c, int group, int level)
{
	for (int d = depth(c, group); d > level; d--)
		group = c->group[group].parent;
	return group;
}

static const struct dlb_cluster *sorted;		/* of by_group and by_part, which qsort gives no argument */

static int by_group(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b, gx = sorted->node[x].group, gy = sorted->node[y].group;
	int least = depth(sorted, gx) < depth(sorted, gy) ? depth(sorted, gx) : depth(sorted, gy);
	for (int level = 1; level <= least; level++) {
		int p = ancestor(sorted, gx, level), q = ancestor(sorted, gy, level);
		if (p != q)
			return p < q ? -1 : 1;
	}
	return x - y;
}

static int by_part(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	const struct dlb_node *p = &sorted->node[x], *q = &sorted->node[y];
	if (p->kind != q->kind)
		return p->kind - q->kind;
	if (p->speed != q->speed)
		return p->speed > q->speed ? -1 : 1;
	return x - y;
}

static int n_free(const struct dlb_problem *p)
{
	int n = 0;
	for (int i = 0; i < p->cluster->n_nodes; i++)
		n += !p->excluded || !p->excluded[i];
	return n;
}

/* Seconds of a step that a node would do alone: by the cost model as it stands, so that what a round measures does not form
 * other teams. */
static double alone_s(const struct dlb_problem *p, int node)
{
	double s = 0;
	for (int i = 0; i < p->graph->n_ops; i++)
		s += dlb_cost_op_s(p->cost, i, node, (double)p->batch);
	return s;
}

/* like[k]: of the nodes that play part k, the one that would take longest; false: all teams are as team 0. */
static bool slowest_of_parts(const struct dlb_problem *p, const int *team, int R, int K, int *like)
{
	bool differ = false;
	for (int k = 0; k < K; k++) {
		double most = -1, least = INFINITY;
		for (int r = 0; r < R; r++) {
			int d = team[r * K + k];
			double s = alone_s(p, d) * (p->kappa ? p->kappa[d] : 1) / (p->weight ? p->weight[d] : 1);
			if (s > most) {
				most = s;
				like[k] = d;
			}
			least = fmin(least, s);
		}
		differ |= most > least * (1 + 1e-9);
	}
	return differ;
}

/* Leaves the slowest of n nodes out, of equal ones the last, until n_used are left. */
static void leave_slowest(const struct dlb_problem *p, int *order, int n, int n_used)
{
	double *s = dlb_xcalloc((size_t)n + 1, sizeof *s);
	for (int i = 0; i < n && n_used < n; i++)
		s[i] = alone_s(p, order[i]);
	for (; n > n_used; n--) {
		int worst = 0;
		for (int i = 1; i < n; i++)
			if (s[i] >= s[worst] * (1 - 1e-9) || isinf(s[i]))
				worst = i;
		memmove(order + worst, order + worst + 1, (size_t)(n - worst - 1) * sizeof *order);
		memmove(s + worst, s + worst + 1, (size_t)(n - worst - 1) * sizeof *s);
	}
	free(s);
}

/* Of so many nodes: each number up to 16; beyond that the most replicas of 1, 2, 3 ... nodes each. */
static bool worth_trying(int R, int n)
{
	return n <= 16 || n / R != n / (R + 1);
}

/* team[r * K + k] of the nodes that may work */
static void form_teams(const struct dlb_problem *p, int R, bool inside, int *team)
{
	const struct dlb_cluster *c = p->cluster;
	int n = 0, K = n_free(p) / R, *order = dlb_xcalloc((size_t)c->n_nodes, sizeof *order);
	for (int i = 0; i < c->n_nodes; i++)
		if (!p->excluded || !p->excluded[i])
			order[n++] = i;
	sorted = c;
	qsort(order, (size_t)n, sizeof *order, by_group);
	leave_slowest(p, order, n, R * K);
	for (int r = 0; r < R; r++) {
		for (int k = 0; k < K; k++)
			team[r * K + k] = order[inside ? r * K + k : k * R + r];
		qsort(team + r * K, (size_t)K, sizeof *team, by_part);
	}
	free(order);
}

/* ---- shares and bounds ---- */

/* Seconds of replica r's step over a share of samples, without the sums. */
static int replica_s(const struct dlb_problem *p, const struct dlb_plan *plan, int r, int64_t share, double *step_s, struct dlb_error *err)
{
	struct dlb_plan one;
	struct dlb_program program;
	struct dlb_timeline t;
	dlb_plan_of_replica(plan, r, share, &one);
	one.graph = p->graph;
	dlb_schedule_order(&one, p->cost, p->schedule, p->stated_scale);
	int rc = dlb_program_compile(&one, p->cost, share, p->n_state, &program, err);
	if (rc == 0) {
		rc = dlb_program_simulate(&program, p->cost, p->stated_scale, 0, 0, false, &t, err);
		if (rc == 0) {
			*step_s = t.step_s;
			dlb_timeline_release(&t, one.n_nodes);
		}
		dlb_program_release(&program);
	}
	dlb_plan_release(&one);
	return rc;
}

/* A replica's power is its samples per second at the share it has. What a step costs whatever its samples makes that depend
 * on the share, so it is asked again at the shares found; where shares and powers agree, all replicas take equally
 * long. The shares whose longest step is shortest stay. */
static int find_power(const struct dlb_problem *p, const int *placement, struct dlb_plan *shared, struct dlb_error *err)
{
	enum { ROUNDS = 8 };
	int R = shared->n_replicas, rc = 0;
	int64_t *share = dlb_xcalloc((size_t)R, sizeof *share);
	double *power = dlb_arena_array(&shared->arena, (size_t)R, sizeof *power), *next = dlb_xcalloc((size_t)R, sizeof *next), best_s = INFINITY;
	for (int r = 0; r < R; r++)
		next[r] = 1;
	memcpy(shared->placement, placement, (size_t)shared->n_ops * sizeof *placement);
	for (int round = 0; round < ROUNDS && rc == 0; round++) {
		double longest_s = 0;
		shared->power = next;
		dlb_plan_shares(shared, shared->batch, share);
		for (int r = 0; r < R && rc == 0; r++) {
			double step_s = 0, n = (double)(share[r] ? share[r] : 1);
			rc = replica_s(p, shared, r, share[r] ? share[r] : 1, &step_s, err);
			longest_s = step_s > longest_s ? step_s : longest_s;
			next[r] = step_s > 0 ? n / step_s : 1;
			share[r] = (int64_t)n;
		}
		if (longest_s >= best_s)
			break;
		best_s = longest_s;
		for (int r = 0; r < R; r++)
			power[r] = (double)share[r];
	}
	shared->power = power;
	free(next);
	free(share);
	return rc;
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
		struct dlb_problem unbound = *p;		/* wishes only raise it */
		unbound.pin = NULL;
		unbound.before = NULL;
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

/* How teams are formed, which one the model is placed over, and by what where nobody says. */
struct way { bool inside, slowest; const char *by; };

/* One way, as a plan; 1: there is none such: all teams are alike, or the algorithm is said. current: the placement to stay near, NULL: none. */
static int place_teams(const struct dlb_problem *p, const struct dlb_replicas_choice *choice, int R, struct way way, const char *algorithm,
		       const int *current, struct dlb_plan *plan, double *ranked, bool *kept, struct dlb_error *err)
{
	int n_nodes = p->cluster->n_nodes, K = n_free(p) / R, rc = -1, n_ops = p->graph->n_ops;
	int *team = dlb_xcalloc((size_t)n_nodes, sizeof *team), *replica = dlb_xcalloc((size_t)R * (size_t)n_nodes, sizeof *replica);
	int *placement = dlb_xcalloc((size_t)n_ops + 1, sizeof *placement), *part = dlb_xcalloc((size_t)n_nodes, sizeof *part);
	int *like = dlb_xcalloc((size_t)K + 1, sizeof *like);
	struct team_problem t = { .node = NULL };
	struct dlb_plan shared, first = { .n_ops = 0 };
	struct dlb_problem whole = *p;
	bool stays = current != NULL;
	const char *winner;

	dlb_plan_init(&shared, n_ops, n_nodes);
	form_teams(p, R, way.inside, team);
	if ((way.slowest && !slowest_of_parts(p, team, R, K, like)) || (way.by && algorithm)) {
		rc = 1;
		goto out;
	}
	shared.graph = p->graph;
	shared.batch = p->batch;
	shared.micro_batches = p->micro_batches;
	shared.schedule = p->schedule->name;
	shared.in_place = !p->not_in_place;
	shared.staleness = p->staleness;
	shared.clip = p->clip;
	shared.sharing = choice->sharing;
	for (int i = 0; i < R * n_nodes; i++)
		replica[i] = -1;
	for (int i = 0; i < n_nodes; i++)
		part[i] = -1;
	for (int k = 0; k < K; k++)
		part[team[k]] = k;
	for (int r = 0; r < R; r++)
		for (int k = 0; k < K; k++)
			replica[r * n_nodes + team[k]] = team[r * K + k];
	dlb_plan_set_replicas(&shared, R, replica);
	if (team_init(&t, p, team, way.slowest ? like : NULL, K, p->batch / R, err)) {
		team_release(&t);
		goto out;
	}
	stays &= !way.by;
	for (int i = 0; i < n_ops && stays; i++) {
		placement[i] = part[current[i]];
		stays = placement[i] >= 0;
	}
	if (stays ? dlb_place_again(&t.p, algorithm, placement, &first, kept, err) : dlb_place(&t.p, way.by ? way.by : algorithm, &first, err)) {
		team_release(&t);
		goto out;
	}
	winner = first.winner;
	for (int i = 0; i < n_ops; i++)
		placement[i] = team[first.placement[i]];
	team_release(&t);
	if (choice->sharing.by_power && find_power(p, placement, &shared, err))
		goto out;
	memcpy(shared.placement, placement, (size_t)n_ops * sizeof *placement);
	dlb_plan_choose_sums(&shared, p->cost);
	whole.replicas = &shared;
	if (dlb_plan_make(&whole, placement, plan, ranked, err))
		goto out;
	plan->winner = winner;
	plan->algorithm = way.by ? "default" : first.algorithm;
	plan->algorithm_given = algorithm && first.algorithm_given;
	rc = 0;
out:
	dlb_plan_release(&first);
	dlb_plan_release(&shared);
	free(team);
	free(replica);
	free(placement);
	free(part);
	free(like);
	return rc;
}

static void say(const struct dlb_problem *p, int R, struct way way, double value_s, const struct dlb_error *err)
{
	char line[240], how[80];
	if (!p->said)
		return;
	snprintf(how, sizeof how, "%d replicas, %s groups%s%s", R, way.inside ? "inside" : "across",
		 way.slowest ? ", placed for the slowest" : "", way.by ? ", one node each" : "");
	if (err)
		snprintf(line, sizeof line, "%s: %.150s", how, err->what);
	else
		snprintf(line, sizeof line, "%s: step %.6g ms", how, value_s * 1e3);
	p->said(p->tried_arg, line);
}

/* Plan without replicas, as a candidate of auto. */
static int place_one(const struct dlb_problem *p, const char *algorithm, const int *current, struct dlb_plan *plan, double *ranked,
		     bool *kept, struct dlb_error *err)
{
	int rc = current ? dlb_place_again(p, algorithm, current, plan, kept, err) : dlb_place(p, algorithm, plan, err);
	if (rc == 0)
		*ranked = plan->value_s;
	return rc;
}

int dlb_place_replicas(const struct dlb_problem *p, const struct dlb_replicas_choice *choice, const char *algorithm, const int *current,
		       struct dlb_plan *plan, bool *kept, struct dlb_error *err)
{
	/* What fits one team best does not say what fits all: one node of each is tried too, as the least that is to be had. */
	static const struct way ways[] = {
		{ true, false, NULL }, { false, false, NULL }, { true, true, NULL }, { false, true, NULL }, { true, true, "single" }, { false, true, "single" },
	};
	int n = n_free(p);
	bool found = false;
	double best = INFINITY;
	struct dlb_error local = { .status = 0 };
	err = err ? err : &local;
	*kept = false;
	if (p->objective != DLB_STEP)
		return dlb_fail(err, NULL, "replicas are planned for --objective step only");
	if (choice->n > n || choice->n > p->batch)
		return dlb_fail_no(err, NULL, "no plan fits: %d replicas need as many nodes and samples; there are %d nodes and a batch of %lld",
				   choice->n, n, (long long)p->batch);
	if (choice->n > 1 && n % choice->n && p->said) {
		char line[120];
		snprintf(line, sizeof line, "%d replicas of %d nodes each: %d node%s without a part", choice->n, n / choice->n, n % choice->n,
			 n % choice->n == 1 ? " is" : "s are");
		p->said(p->tried_arg, line);
	}
	for (int R = choice->n ? choice->n : 1; R <= (choice->n ? choice->n : n) && R <= p->batch; R++) {
		if (!choice->n && !worth_trying(R, n))
			continue;
		for (size_t i = 0; i < DLB_LEN(ways); i++) {
			struct dlb_plan other;
			struct dlb_error why = { .status = 0 };
			double ranked = INFINITY;
			bool stays = false;
			if (i && (R == 1 || n / R == 1))		/* the same teams, of one node each */
				continue;
			int rc = R == 1 ? place_one(p, algorithm, current, &other, &ranked, &stays, &why) :
				 place_teams(p, choice, R, ways[i], algorithm, current, &other, &ranked, &stays, &why);
			if (rc > 0)
				continue;
			say(p, R, ways[i], rc ? 0 : other.value_s, rc ? &why : NULL);
			if (rc) {
				if (!found)
					*err = why;
				continue;
			}
			if (!found || ranked < best) {
				if (found)
					dlb_plan_release(plan);
				*plan = other;
				best = ranked;
				*kept = stays;
				found = true;
			} else {
				dlb_plan_release(&other);
			}
		}
	}
	return found ? 0 : -1;
}
