/* Shared by the tests of placement: problems from random graphs, and a failure that prints the seed. */
#pragma once
#include "random_dag.h"
#include "place/place.h"
#include "place/problem.h"
#include "plan/schedule.h"

static void die(const char *what, uint64_t seed, const struct dlb_error *err)
{
	fprintf(stderr, "seed %llu: %s: %s %s\n", (unsigned long long)seed, what, err->where, err->what);
	abort();
}

static inline void problem(struct dlb_problem *p, struct dag *d, int M, const char *schedule,
			   const double *weight, uint64_t seed)
{
	struct dlb_error err;
	*p = (struct dlb_problem){ .graph = &d->g,
				   .cluster = &d->cl,
				   .cost = &d->c,
				   .micro_batches = M,
				   .batch = d->g.batch,
				   .schedule = dlb_schedule_find(schedule),
				   .weight = weight,
				   .seed = seed,
				   .n_state = 1 };
	if (dlb_problem_init(p, &err))
		die("problem", seed, &err);
}

/* A training graph of 3 to 32 forward ops, every third a chain. */
static inline void random_training(struct dag *d, uint64_t seed, const char *cluster, struct dlb_rng *r)
{
	const struct dag_options o = { .seed = seed,
				       .n_forward = 3 + (int)dlb_rng_below(r, 30),
				       .training = true,
				       .chain = seed % 3 == 0,
				       .colocate = dlb_rng_uniform(r),
				       .cluster = cluster,
				       .batch = 12 };
	dag_init(d, &o);
}

/* Places each class of colocated ops on a node at random. */
static inline void random_plan(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_rng *r)
{
	const struct dlb_graph *g = p->graph;
	int *group = malloc((size_t)g->n_ops * sizeof *group);
	dlb_graph_groups(g, group);
	dlb_plan_init(plan, g->n_ops, p->cluster->n_nodes);
	plan->graph = g;
	plan->batch = p->batch;
	plan->micro_batches = p->micro_batches;
	plan->schedule = p->schedule->name;
	for (int i = 0; i < g->n_ops; i++)
		plan->placement[i] = group[i] < i ? plan->placement[group[i]] :
						    (int)dlb_rng_below(r, (uint64_t)p->cluster->n_nodes);
	free(group);
}

/* Releases a random graph, its problem and its plan. */
static inline void case_release(struct dag *d, struct dlb_problem *p, struct dlb_plan *plan)
{
	dlb_plan_release(plan);
	dlb_problem_release(p);
	dag_release(d);
}
