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

static void problem(struct dlb_problem *p, struct dag *d, int M, const char *schedule, const double *weight,
		    uint64_t seed)
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
