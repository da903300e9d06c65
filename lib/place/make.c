/* Makes a plan from a placement: order, program, verification, prediction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/bound.h"
#include "place/fit.h"
#include "place/make.h"
#include "place/moves.h"
#include "place/order.h"
#include "place/port_plan.h"
#include "place/problem.h"
#include "place/recompute.h"
#include "place/replicas.h"
#include "plan/offload.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/timeline.h"

static void share_out(const struct dlb_plan *from, struct dlb_plan *plan)
{
	size_t R = (size_t)from->n_replicas, n = (size_t)plan->n_nodes;
	int *flat = dlb_xcalloc(R * n, sizeof *flat);
	for (size_t r = 0; r < R; r++)
		memcpy(flat + r * n, from->replica[r], n * sizeof *flat);
	dlb_plan_set_replicas(plan, from->n_replicas, flat);
	free(flat);
	plan->sharing = from->sharing;
	if (from->power) {
		plan->power = dlb_arena_array(&plan->arena, R, sizeof *plan->power);
		memcpy(plan->power, from->power, R * sizeof *plan->power);
	}
}

void dlb_plan_set_up(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan)
{
	dlb_plan_init(plan, p->graph->n_ops, p->cluster->n_nodes);
	plan->graph = p->graph;
	plan->batch = p->batch;
	plan->micro_batches = p->micro_batches;
	plan->schedule = p->schedule->name;
	plan->staleness = p->staleness;
	plan->seed = p->seed;
	plan->in_place = !p->not_in_place;
	plan->clip = p->clip;
	plan->inverse_every = p->inverse_every;
	plan->n_shares = p->n_shares;
	plan->sharing.zero = p->zero;
	memcpy(plan->placement, placement, (size_t)plan->n_ops * sizeof *placement);
	if (p->replicas)
		share_out(p->replicas, plan);
	if (p->recompute)
		plan->recompute = *p->recompute;
	if (p->offload)
		plan->offload = *p->offload;
	dlb_offload_mark(plan, p->graph);
	plan->state_dtype = p->state_dtype;
	if (p->drop)
		dlb_recompute_named(p, plan);
	dlb_plan_hash(plan);
}

int dlb_plan_check_constraints(const struct dlb_problem *p, const int *placement, struct dlb_error *err)
{
	for (int i = 0; i < p->graph->n_ops; i++) {
		int d = placement[i];
		if (p->excluded && p->excluded[d])
			return dlb_fail_no(err, NULL,
					   "no plan fits: op '%s' stands on node %d, which is left out",
					   p->graph->op[i].name, d);
		if (p->pin && p->pin[i] >= 0 && p->pin[i] != d)
			return dlb_fail_no(err, NULL,
					   "no plan fits: op '%s' stands on node %d and is pinned to node %d",
					   p->graph->op[i].name, d, p->pin[i]);
	}
	return 0;
}

static void keep_memories(const struct dlb_problem *p, int d, const struct dlb_node_program *program,
			  struct dlb_plan *plan)
{
	const struct dlb_node *node = &p->cluster->node[d];
	struct dlb_node_plan *np = &plan->node[d];
	np->n_memories = program->use ? node->n_memories : 0;
	np->memory = dlb_arena_array(&plan->arena, (size_t)np->n_memories + 1, sizeof *np->memory);
	for (int i = 0; i < np->n_memories; i++) {
		np->memory[i].name = dlb_arena_strdup(&plan->arena, p->cluster->memory[node->memory[i]].name);
		memcpy(np->memory[i].bytes, program->use->bytes[i], sizeof np->memory[i].bytes);
	}
}

static void keep_spans(const struct dlb_timeline *t, struct dlb_plan *plan)
{
	plan->timeline = dlb_arena_array(&plan->arena, (size_t)plan->n_nodes, sizeof *plan->timeline);
	plan->n_spans = dlb_arena_array(&plan->arena, (size_t)plan->n_nodes, sizeof *plan->n_spans);
	for (int d = 0; d < plan->n_nodes; d++) {
		const size_t n = (size_t)t->n_spans[d];
		plan->n_spans[d] = t->n_spans[d];
		plan->timeline[d] = dlb_arena_array(&plan->arena, n + 1, sizeof **plan->timeline);
		if (n)
			memcpy(plan->timeline[d], t->span[d], n * sizeof **plan->timeline);
	}
}

static void keep_times(const struct dlb_problem *p, const struct dlb_program *g, const struct dlb_timeline *t,
		       struct dlb_plan *plan)
{
	double most = 0, sum = 0;
	int n = 0;
	plan->value_s = t->step_s;
	plan->fill_s = t->fill_s;
	plan->staleness_used = g->staleness;
	if (!dlb_problem_is_compared(p))
		keep_spans(t, plan);
	for (int d = 0; d < plan->n_nodes; d++) {
		struct dlb_node_plan *np = &plan->node[d];
		np->busy_s = t->node[d].busy_s;
		np->wait_s = t->node[d].wait_s;
		const struct dlb_node_program *program = &dlb_program_of(g, d)->node[d];
		np->peak_bytes = (double)program->arena_bytes + (double)program->scratch_bytes +
				 (double)program->state_bytes;
		np->offloaded_bytes = dlb_program_offloaded_bytes(dlb_program_of(g, d), d, p->cluster, NULL);
		keep_memories(p, d, program, plan);
		if (!p->free_node[d])
			continue;
		n++;
		sum += np->busy_s;
		if (np->busy_s > most)
			most = np->busy_s;
	}
	plan->imbalance = sum > 0 ? most / (sum / n) : 1;
}

/* Simulates the stated step, with spans, and the ranked step, which differs only under node weights. */
static int simulate(const struct dlb_problem *p, const struct dlb_program *program, struct dlb_plan *plan,
		    double *ranked, struct dlb_error *err)
{
	struct dlb_timeline t;
	size_t n = (size_t)plan->n_nodes * sizeof *p->ranked_scale;
	bool weighted = memcmp(p->ranked_scale, p->stated_scale, n) != 0;
	if (ranked && weighted && dlb_program_step_s(program, p->cost, p->ranked_scale, ranked, err))
		return -1;
	if (dlb_program_simulate(program, p->cost,
				 &(struct dlb_simulate_choice){ .node_scale = p->stated_scale,
								.keep_spans = !dlb_problem_is_compared(p) },
				 &t, err))
		return -1;
	if (ranked && !weighted)
		*ranked = t.step_s;
	keep_times(p, program, &t, plan);
	dlb_timeline_release(&t, plan->n_nodes);
	return 0;
}

/* Adds to the error, if ops were chosen to run again, the memory with which the plan would fit. Returns
 * -1. */
static int say_lack(const struct dlb_problem *p, const struct dlb_program *g, struct dlb_error *err)
{
	char more[DLB_LACK_TEXT];

	if (!p->recompute || !p->recompute->chosen || dlb_error_status(err) != 1 ||
	    !dlb_program_lack_text(g, p->cluster, more))
		return -1;
	return dlb_hint(err, "with ops that run again it fits with %s; try more micro-batches or nodes",
			more);
}

/* As dlb_order_compile, but -1 with err also if a plan that is only compared has no order below
 * p->below_s. */
static int order_below(const struct dlb_problem *p, struct dlb_plan *plan, bool draft,
		       struct dlb_program *program, struct dlb_error *err)
{
	const double *below_s = dlb_problem_is_compared(p) && p->below_s > 0 ? &p->below_s : NULL;
	const int rc = dlb_order_compile(p, plan, draft, below_s, program, err);

	return rc > 0 ? dlb_fail_no(err, NULL, "a step takes %.6g ms or more", p->below_s * 1e3) : rc;
}

/* Makes the plan in the order of p->ordered (as_ordered) or of the schedule. */
static int make_plan(const struct dlb_problem *p, const int *placement, bool as_ordered,
		     struct dlb_plan *plan, double *ranked, struct dlb_error *err)
{
	struct dlb_program program;
	int rc = -1;
	dlb_plan_set_up(p, placement, plan);
	const bool draft = dlb_problem_is_compared(p) || dlb_fit_is_large(plan);
	if (dlb_plan_check_constraints(p, placement, err))
		goto no_plan;
	if (!as_ordered)
		dlb_fit_order(p, plan, 0);
	else if (!dlb_order_take(p, plan))
		goto no_plan;
	if (dlb_plan_check(plan, p->cost, err) ||
	    (as_ordered ? dlb_fit_compile(p, plan, draft, &program, err) :
			  order_below(p, plan, draft, &program, err)))
		goto no_plan;
	if ((dlb_problem_is_compared(p) ? dlb_program_verify_choices : dlb_program_verify)(&program, p->cost,
											   err)) {
		say_lack(p, &program, err);
		goto out;
	}
	if (simulate(p, &program, plan, ranked, err))
		goto out;
	if (ranked)
		*ranked += dlb_place_migration_share_s(p, placement);
	if (!dlb_problem_is_compared(p))
		plan->bound_s = p->replicas ? dlb_replicas_bound_s(p) : dlb_lower_bound_s(p);
	plan->gap = plan->bound_s > 0 ? plan->value_s / plan->bound_s - 1 : 0;
	rc = 0;
out:
	dlb_program_release(&program);
no_plan:
	if (rc)
		dlb_plan_release(plan);
	return rc;
}

int dlb_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan, double *ranked,
		  struct dlb_error *err)
{
	struct dlb_plan kept;
	double now_s, kept_s;
	if (p->objective != DLB_STEP)
		return dlb_port_plan_make(p, placement, plan, ranked, err);
	if (!dlb_order_is_placed(p, placement) || make_plan(p, placement, true, &kept, &kept_s, NULL))
		return make_plan(p, placement, false, plan, ranked, err);
	bool is_made = !make_plan(p, placement, false, plan, &now_s, NULL);
	if (is_made && now_s < kept_s * (1 - DLB_KEEP_GAIN)) {
		dlb_plan_release(&kept);
	} else {
		if (is_made)
			dlb_plan_release(plan);
		*plan = kept;
		now_s = kept_s;
	}
	if (ranked)
		*ranked = now_s;
	return 0;
}

/* Makes the complete plan of `was`, which was only compared. With all effort, and without a limit, other ops
 * may be chosen to run again than in `was`. If that plan takes longer, the plan keeps the order of `was`. */
static int remake(const struct dlb_problem *p, const struct dlb_plan *was, struct dlb_plan *plan,
		  struct dlb_error *err)
{
	struct dlb_problem ordered = *p;
	struct dlb_plan kept;

	if (dlb_plan_make(p, was->placement, plan, NULL, err))
		return -1;
	ordered.ordered = was;
	if (p->objective != DLB_STEP || plan->value_s <= was->value_s * (1 + 1e-9) ||
	    make_plan(&ordered, was->placement, true, &kept, NULL, NULL))
		return 0;
	if (kept.value_s < plan->value_s) {
		dlb_plan_release(plan);
		*plan = kept;
	} else {
		dlb_plan_release(&kept);
	}
	return 0;
}

int dlb_plan_remake(const struct dlb_problem *p, struct dlb_plan *plan, struct dlb_error *err)
{
	struct dlb_problem whole = *p;
	struct dlb_plan was = *plan;
	whole.compared = whole.draft = false;
	whole.replicas = was.n_replicas > 1 ? &was : NULL;
	if (remake(&whole, &was, plan, err)) {
		*plan = was;
		return -1;
	}
	dlb_plan_say_origin(plan, &was);
	plan->moved_ops = was.moved_ops;
	plan->moved_bytes = was.moved_bytes;
	plan->n_advice = was.n_advice;
	plan->advice = dlb_arena_array(&plan->arena, (size_t)was.n_advice + 1, sizeof *plan->advice);
	if (was.n_advice)
		memcpy(plan->advice, was.advice, (size_t)was.n_advice * sizeof *plan->advice);
	dlb_plan_release(&was);
	return 0;
}
