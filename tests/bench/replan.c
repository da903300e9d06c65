/* Seconds of planning again after one node weight changed, as a run does between rounds: the node that works longest
 * becomes half as fast. See replan.
 * Arguments: a document with a plan, rounds. Columns: ops, nodes, micro-batches, then medians of seconds:
 *   problem        costs of groups on nodes, from the sections in memory (JSON excluded)
 *   placement      the parts of the pipeline are cut again
 *   order          the items of each node in order, by the schedule
 *   program        compiled, verified and simulated: all of dlb_plan_make less the order
 * and the simulated step in milliseconds, with the slower node: of the existing plan, and of the new plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "balance/replan_input.h"
#include "place/make.h"
#include "place/problem.h"
#include "place/recut.h"
#include "place/value.h"
#include "util/clock.h"
#include "util/mem.h"
#include "util/stats.h"

enum { N_TIMES = 4 };

static int fail(const struct dlb_error *err)
{
	fprintf(stderr, "replan: %s\n", err->what);
	return 2;
}

static int busiest(const struct dlb_plan *plan)
{
	int most = 0;
	for (int d = 1; d < plan->n_nodes; d++)
		if (plan->node[d].busy_s > plan->node[most].busy_s)
			most = d;
	return most;
}

/* Plans again with the busiest node's weight changed; fills the seconds of each part. 0, or the exit status. */
static int plan_again(struct replan_input *in, struct dlb_doc *doc, struct dlb_replan *o, double weight,
		      double times[N_TIMES], double *before_s, double *after_s)
{
	struct dlb_error err = { .status = 0 };
	struct dlb_problem p;
	struct dlb_plan plan;
	int *placement = dlb_xcalloc((size_t)in->graph.n_ops, sizeof *placement), rc = 0;

	in->balance.weight[busiest(&in->plan)] = weight;
	const double start = dlb_clock_s();
	if (dlb_replan_problem(doc, o, in, &p, &err)) {
		free(placement);
		return fail(&err);
	}
	p.in_run = p.draft = true;
	const double problem = dlb_clock_s();
	if (!dlb_place_recut(&p, in->plan.placement, placement)) {
		fprintf(stderr, "replan: the plan is no pipeline\n");
		rc = 2;
	}
	const double placed = dlb_clock_s();
	if (!rc)
		dlb_place_order_s(&p, placement);
	const double ordered = dlb_clock_s();
	if (!rc && dlb_plan_make(&p, placement, &plan, after_s, &err))
		rc = fail(&err);
	const double made = dlb_clock_s();
	times[0] = problem - start;
	times[1] = placed - problem;
	times[2] = ordered - placed;
	times[3] = made - ordered - times[2];
	if (!rc) {
		dlb_plan_release(&plan);
		*before_s = dlb_place_value_s(&p, in->plan.placement);
	}
	dlb_problem_release(&p);
	free(placement);
	return rc;
}

/* All node weights 1, as before the first round. */
static void set_weights(struct replan_input *in)
{
	const size_t n = (size_t)in->cluster.n_nodes;
	in->has_balance = true;
	in->balance.weight = dlb_arena_array(&in->arena, n, sizeof *in->balance.weight);
	in->balance.kappa = dlb_arena_array(&in->arena, n, sizeof *in->balance.kappa);
	for (size_t d = 0; d < n; d++)
		in->balance.weight[d] = in->balance.kappa[d] = 1;
}

int main(int argc, char **argv)
{
	const int rounds = argc > 2 ? atoi(argv[2]) : 5;
	struct dlb_cli cli = { .tool = "replan", .quiet = true }, quiet;
	struct dlb_replan o = dlb_replan_in_run(&cli, &quiet);
	struct replan_input in = { .stale = false };
	struct dlb_error err = { .status = 0 };
	struct dlb_doc doc;
	double times[N_TIMES][99], before_s = 0, after_s = 0;

	if (argc < 2 || rounds < 1 || rounds > 99)
		return fprintf(stderr, "usage: replan DOCUMENT [ROUNDS]\n"), 2;
	if (dlb_doc_read(&doc, argv[1], &err) || dlb_replan_read(&doc, &o, &in, &err))
		return fail(&err);
	if (!in.has_plan)
		return fprintf(stderr, "replan: %s has no plan\n", argv[1]), 2;
	set_weights(&in);
	for (int k = 0; k < rounds; k++) {
		double t[N_TIMES];
		const int rc = plan_again(&in, &doc, &o, k % 2 ? .5 : .51, t, &before_s, &after_s);
		if (rc)
			return rc;
		for (int i = 0; i < N_TIMES; i++)
			times[i][k] = t[i];
	}
	printf("%7d %6d %3d", in.graph.n_ops, in.cluster.n_nodes, in.plan.micro_batches);
	for (int i = 0; i < N_TIMES; i++)
		printf(" %9.3f", dlb_median(times[i], rounds));
	printf(" %9.3f %9.3f\n", before_s * 1e3, after_s * 1e3);
	dlb_replan_release(&in);
	dlb_doc_release(&doc);
	return 0;
}
