/* Teams of replicas (place/teams.h), on clusters of unlike nodes, some of them excluded, against plain code:
 *   the slowest nodes are left out; teams are cut from the others in their order, or in that of their speed;
 *   the groups that are tried by themselves are those whose R fastest nodes do most. */
#include "check.h"
#include "place_cases.h"
#include "place/teams.h"

enum { MOST = 24 };
static int n_left, n_groups, n_pipelines;

/* Nodes of a group, -1: of all, that may work: at most `most`, the fastest ones and of equal ones the first, in
 * their order in the cluster. */
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
				   (t->alone_s[k] == t->alone_s[i] && k < i));
		}
		if (faster < most)
			node[n++] = i;
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
	}
}

static void test_teams(uint64_t seed)
{
	static const char *const clusters[] = {
		"cpu:2 host cpu/4:3 host cpu:1*0.5 cpu:2",
		"3(rack 2(host cpu:2)) link=shm:5e-6,1.2e10 link=rack:1e-5,1.25e9 link=site:3e-5,1.25e9",
		"cpu:5", "cpu:1 host cpu/2:2*0.25 cpu:4"
	};
	struct dag_options o = {
		.seed = seed, .n_forward = 4, .training = true, .cluster = clusters[seed % 4], .batch = 24
	};
	struct dlb_rng r;
	struct dlb_teams t;
	struct dlb_problem p;
	struct dag d;
	struct dlb_team_way way[DLB_MOST_WAYS];
	bool excluded[MOST] = { false };
	double kappa[MOST];

	dlb_rng_init(&r, seed);
	dag_init(&d, &o);
	assert(IS(d.cl.n_nodes, <=, (int)MOST));
	for (int i = 0; i < d.cl.n_nodes; i++) {
		kappa[i] = 1 + (double)dlb_rng_below(&r, 4);
		excluded[i] = i > 1 && dlb_rng_below(&r, 8) == 0;
	}
	problem(&p, &d, 2, "1f1b", NULL, seed);
	p.kappa = kappa;
	p.excluded = excluded;
	dlb_teams_init(&t, &p, NULL);
	for (int R = 1; R <= dlb_teams_free_nodes(&p); R++) {
		const int n = dlb_teams_ways(&t, R, false, way);
		double before = INFINITY;
		bool tried[MOST] = { false };
		for (int i = 0; i < n; i++) {
			expect_form(&t, R, &way[i]);
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

int main(void)
{
	for (int seed = 1; seed <= check_cases(100); seed++)
		test_teams((uint64_t)seed);
	assert(IS(n_left, >, 0) && IS(n_groups, >, 0) && IS(n_pipelines, >, 0));
	printf("%d divisions that leave nodes out, %d groups tried by themselves\n", n_left, n_groups);
	return 0;
}
