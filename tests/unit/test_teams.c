/* Teams of replicas (place/teams.h), on clusters of unlike nodes, some of them excluded, against plain code:
 *   the slowest nodes are left out; teams are cut from the others in their order, or in that of their speed;
 *   the slowest node of each part is found, and whether teams are equal;
 *   the groups that are tried by themselves are those whose R fastest nodes do most. */
#include "check.h"
#include "place_cases.h"
#include "place/teams.h"
#include "plan/replica.h"

enum { MOST = 24 };
static int n_shuffled, n_left, n_groups, n_pipelines, n_unlike;

/* Whether node a comes before node b in the tree of groups: at the first level, from the root, at which their
 * groups differ, the lower number; else the lower node. */
static bool comes_before(const struct dlb_cluster *c, int a, int b)
{
	int path[2][MOST], n[2] = { 0 };

	for (int k = 0; k < 2; k++)
		for (int g = c->node[k ? b : a].group; g >= 0; g = c->group[g].parent) {
			memmove(path[k] + 1, path[k], (size_t)n[k] * sizeof path[k][0]);
			path[k][0] = g;
			n[k]++;
		}
	for (int i = 0; i < n[0] && i < n[1]; i++)
		if (path[0][i] != path[1][i])
			return path[0][i] < path[1][i];
	return a < b;
}

/* Nodes of a group, -1: of all, that may work: at most `most`, the fastest ones and of equal ones the first, in
 * their order in the tree of groups. */
static int used(const struct dlb_teams *t, int group, int most, int *node)
{
	const struct dlb_cluster *c = t->p->cluster;
	int n = 0;

	for (int i = 0; i < c->n_nodes; i++) {
		int faster = 0, in = c->node[i].group;
		while (in >= 0 && in != group)
			in = c->group[in].parent;
		if (t->p->excluded[i] || (group >= 0 && in != group))
			continue;
		for (int k = 0; k < c->n_nodes; k++) {
			in = c->node[k].group;
			while (in >= 0 && in != group)
				in = c->group[in].parent;
			faster += !t->p->excluded[k] && (group < 0 || in == group) &&
				  (t->alone_s[k] < t->alone_s[i] ||
				   (t->alone_s[k] == t->alone_s[i] && comes_before(c, k, i)));
		}
		if (faster >= most)
			continue;
		int at = n++;
		for (; at > 0 && comes_before(c, i, node[at - 1]); at--)
			node[at] = node[at - 1];
		node[at] = i;
	}
	return n;
}

static double power(const struct dlb_teams *t, int group, int R)
{
	int node[MOST];
	double sum = 0;

	for (int i = 0, n = used(t, group, R, node); i < n; i++)
		sum += 1 / t->alone_s[node[i]];
	return sum;
}

static void expect_form(const struct dlb_teams *t, int R, const struct dlb_team_way *way)
{
	int node[MOST], team[MOST], n = used(t, way->group, MOST, node), K = way->one ? 1 : n / R, rank[MOST];

	assert(IS(dlb_teams_form(t, R, way, team), ==, K));
	n_left += n > R * K;
	n_pipelines += way->group >= 0 && K > 1;
	n = used(t, way->group, R * K, node);
	assert(IS(n, ==, R * K));
	for (int i = 0; i < n; i++) { /* of node i among the used ones: by speed, or as they are */
		rank[i] = 0;
		for (int k = 0; k < n; k++)
			rank[i] += way->cut != DLB_CUT_ALIKE ?
					   k < i :
					   t->alone_s[node[k]] < t->alone_s[node[i]] ||
						   (t->alone_s[node[k]] == t->alone_s[node[i]] && k < i);
	}
	for (int r = 0; r < R; r++) {
		int found = 0;
		for (int i = 0; i < n; i++) {
			const int of = way->cut == DLB_CUT_INSIDE ? rank[i] / K : rank[i] % R;
			for (int k = 0; of == r && k < K; k++)
				if (team[r * K + k] == node[i])
					found += way->cut != DLB_CUT_ALIKE || k == rank[i] / R;
		}
		assert(IS(found, ==, K));
		for (int k = 1; k < K && way->cut != DLB_CUT_ALIKE; k++) { /* equal parts on equal nodes */
			const int a = team[r * K + k - 1], b = team[r * K + k];
			const struct dlb_node *x = &t->p->cluster->node[a], *y = &t->p->cluster->node[b];
			assert(x->kind < y->kind ||
			       (x->kind == y->kind &&
				(x->speed > y->speed || (x->speed == y->speed && a < b))));
		}
	}
}

/* Of each part the slowest node under its weight, the first of equal ones; whether there is a slower one. */
static void expect_slowest(const struct dlb_teams *t, int R, const struct dlb_team_way *way)
{
	int team[MOST], like[MOST], K = dlb_teams_form(t, R, way, team);
	const bool differ = dlb_teams_slowest(t, team, R, K, like);
	bool any = false;

	for (int k = 0; k < K; k++) {
		int slowest = team[k];
		for (int r = 0; r < R; r++) {
			const int d = team[r * K + k];
			const double s = t->alone_s[d] / t->p->weight[d],
				     most = t->alone_s[slowest] / t->p->weight[slowest];
			slowest = s > most ? d : slowest;
			any |= fabs(s / (t->alone_s[team[k]] / t->p->weight[team[k]]) - 1) > 1e-6;
		}
		assert(IS(like[k], ==, slowest));
	}
	assert(IS(differ, ==, any));
	n_unlike += any;
}

/* Moves groups to other parents and nodes to other groups, at random. */
static void shuffle(struct dlb_cluster *c, struct dlb_rng *r)
{
	for (int g = 1; g < c->n_groups; g++) { /* neighbours in number under other parents */
		const int other = (int)dlb_rng_below(r, (uint64_t)g);
		struct dlb_group *a = &c->group[other], *b = &c->group[g];
		const int was = a->parent;
		bool leaves = a->parent >= 0 && b->parent >= 0;

		for (int k = 0; k < c->n_groups; k++)
			leaves &= c->group[k].parent != g && c->group[k].parent != other;
		if (!leaves)
			continue;
		a->parent = b->parent;
		b->parent = was;
	}
	for (int i = c->n_nodes - 1; i > 0; i--) { /* groups of nodes far apart */
		const int k = (int)dlb_rng_below(r, (uint64_t)i + 1);
		const struct dlb_node was = c->node[i];

		c->node[i] = c->node[k];
		c->node[k] = was;
		n_shuffled++;
	}
}

static void test_teams(uint64_t seed)
{
	static const char *const clusters[] = {
		"cpu:2 host cpu/4:3 host cpu:1*0.5 cpu:2",
		"3(rack 2(host cpu:2)) link=shm:5e-6,1.2e10 link=rack:1e-5,1.25e9 link=site:3e-5,1.25e9",
		"cpu:5", "cpu:1 host cpu/2:2*0.25 cpu:4",
		"2(rack 2(host cpu:2)) cpu:2 rack host cpu:3 cpu/2:1 host cpu:1"
	};
	struct dag_options o = { .seed = seed,
				 .n_forward = 4,
				 .training = true,
				 .cluster = clusters[seed % DLB_LEN(clusters)],
				 .batch = 24 };
	struct dlb_rng r;
	struct dlb_teams t;
	struct dlb_problem p;
	struct dag d;
	struct dlb_team_way way[DLB_MOST_WAYS];
	bool excluded[MOST] = { false };
	double kappa[MOST], weight[MOST];

	dlb_rng_init(&r, seed);
	dag_init(&d, &o);
	assert(IS(d.cl.n_nodes, <=, (int)MOST));
	if (seed % 3 == 1)
		shuffle(&d.cl, &r);
	for (int i = 0; i < d.cl.n_nodes; i++) {
		kappa[i] = 1 + (double)dlb_rng_below(&r, 4);
		weight[i] = seed % 5 ? 1 : 1 + (double)dlb_rng_below(&r, 2);
		excluded[i] = i > 1 && dlb_rng_below(&r, 8) == 0;
	}
	problem(&p, &d, 2, "1f1b", NULL, seed);
	p.kappa = kappa;
	p.weight = weight;
	p.excluded = excluded;
	dlb_teams_init(&t, &p, NULL);
	for (int R = 1; R <= dlb_teams_free_nodes(&p); R++) {
		const int n = dlb_teams_ways(&t, R, false, way);
		double before = INFINITY;
		bool tried[MOST] = { false };
		assert(IS(n, >, 0) && IS((int)way[0].cut, ==, DLB_CUT_INSIDE) && IS(way[0].group, <, 0) &&
		       !way[0].by);
		struct dlb_team_way
			given[DLB_MOST_WAYS]; /* by an algorithm that is given: whole teams, of all nodes */
		const int n_given = dlb_teams_ways(&t, R, true, given);
		assert(IS(n_given, >, 0));
		for (int i = 0; i < n_given; i++)
			assert(!given[i].by && !given[i].one && IS(given[i].group, <, 0));
		for (int i = 0; i < n; i++) {
			expect_form(&t, R, &way[i]);
			expect_slowest(&t, R, &way[i]);
			if (way[i].group >= 0 && way[i].one) {
				const double now = power(&t, way[i].group, R);
				assert(IS(now, <=, before * (1 + 1e-9)));
				before = now;
				tried[way[i].group] = true;
				n_groups++;
			}
		}
		for (int g = 0; g < d.cl.n_groups;
		     g++) { /* the others are slower, too small, or their parent */
			int node[MOST];
			const int all = used(&t, g, MOST, node);
			assert(tried[g] || all < R || all == used(&t, d.cl.group[g].parent, MOST, node) ||
			       power(&t, g, R) <= before * (1 + 1e-9));
		}
	}
	dlb_teams_release(&t);
	dlb_problem_release(&p);
	dag_release(&d);
}

/* The teams of the current plan are tried first, where it has as many and all its nodes may work. */
static void test_now(void)
{
	/* replicas of parts 0 and 2: nodes 3 and 1, and nodes 0 and 4; node 2 has no part */
	static const int replica[] = { 3, -1, 1, -1, -1, 0, -1, 4, -1, -1 }, expected[] = { 3, 1, 0, 4 };
	const struct dag_options o = {
		.seed = 1, .n_forward = 4, .training = true, .cluster = "cpu:5", .batch = 24
	};
	struct dlb_team_way way[DLB_MOST_WAYS];
	bool excluded[5] = { false };
	struct dlb_teams t;
	struct dlb_problem p;
	struct dlb_plan plan;
	struct dag d;
	int team[MOST];

	dag_init(&d, &o);
	problem(&p, &d, 2, "1f1b", NULL, 1);
	p.excluded = excluded;
	dlb_plan_init(&plan, d.g.n_ops, 5);
	dlb_plan_set_replicas(&plan, 2, replica);
	for (int i = 0; i < 5; i++) {
		dlb_teams_init(&t, &p, i < 4 ? &plan : NULL);
		excluded[2] = i == 1;
		excluded[4] = i == 2;
		const int R = i == 3 ? 3 : 2, n = dlb_teams_ways(&t, R, false, way);
		assert(IS(n, >, 0) && IS(way[0].cut == DLB_CUT_NOW, ==, i < 2));
		for (int k = 1; k < n; k++)
			assert(IS((int)way[k].cut, !=, DLB_CUT_NOW));
		if (i < 2)
			assert(IS(dlb_teams_form(&t, 2, &way[0], team), ==, 2) &&
			       !memcmp(team, expected, sizeof expected));
		dlb_teams_release(&t);
	}
	plan.n_nodes = 4; /* of another cluster */
	excluded[2] = excluded[4] = false;
	dlb_teams_init(&t, &p, &plan);
	dlb_teams_ways(&t, 2, false, way);
	assert(IS((int)way[0].cut, !=, DLB_CUT_NOW));
	dlb_teams_release(&t);
	dlb_plan_release(&plan);
	dlb_problem_release(&p);
	dag_release(&d);
}

int main(void)
{
	test_now();
	for (int seed = 1; seed <= check_cases(100); seed++)
		test_teams((uint64_t)seed);
	assert(IS(n_shuffled, >, 0) && IS(n_left, >, 0) && IS(n_groups, >, 0) && IS(n_pipelines, >, 0) &&
	       IS(n_unlike, >, 0));
	printf("%d divisions that leave nodes out, %d groups tried by themselves\n", n_left, n_groups);
	return 0;
}
