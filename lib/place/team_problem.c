/* The problem of one team: see team_problem.h. */
#include <math.h>
#include <stdlib.h>
#include "place/problem.h"
#include "place/team_problem.h"
#include "util/mem.h"

int dlb_team_part_of(const int *node, int n, int x)
{
	for (int k = 0; k < n; k++)
		if (node[k] == x)
			return k;
	return -1;
}

/* Translates nodes into parts of the team: for pins, and for the placement from which ops move. */
static int team_constraints(struct dlb_team_problem *t, const struct dlb_problem *whole, const int *node,
			    int n, struct dlb_error *err)
{
	int n_ops = whole->graph->n_ops;
	if (whole->pin) {
		t->p.pin = t->pin = dlb_xcalloc((size_t)n_ops + 1, sizeof *t->pin);
		for (int i = 0; i < n_ops; i++) {
			t->pin[i] = whole->pin[i] < 0 ? -1 : dlb_team_part_of(node, n, whole->pin[i]);
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
			if ((t->before[i] = dlb_team_part_of(node, n, whole->before[i])) < 0)
				t->p.before = NULL; /* state is on other nodes: everything moves */
	}
	return 0;
}

/* The lesser memory of nodes a and b in bytes; 0: the cluster states neither. */
static double least_memory(const struct dlb_cluster *c, int a, int b)
{
	double least = fmin(dlb_cluster_node_memory(c, a), dlb_cluster_node_memory(c, b));
	return isinf(least) ? 0 : least;
}

int dlb_team_problem_init(struct dlb_team_problem *t, const struct dlb_problem *whole, const int *node,
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
	t->p.arena = (struct dlb_arena){ 0 }; /* these belong to the original */
	t->p.memo = NULL;
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

void dlb_team_problem_release(struct dlb_team_problem *t)
{
	dlb_problem_release(&t->p);
	free(t->node);
	free(t->weight);
	free(t->kappa);
	free(t->pin);
	free(t->before);
}
