/* From a placement to a plan: order, program, proof, prediction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/place.h"

static void set_up(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan)
{
	dlb_plan_init(plan, p->graph->n_ops, p->cluster->n_nodes);
	plan->graph = p->graph;
	plan->batch = p->batch;
	plan->micro_batches = p->micro_batches;
	plan->schedule = p->schedule->name;
	plan->seed = p->seed;
	memcpy(plan->placement, placement, (size_t)plan->n_ops * sizeof *placement);
	dlb_plan_hash(plan);
}

double dlb_place_value_s(const struct dlb_problem *p, const int *placement)
{
	struct dlb_plan plan;
	struct dlb_program program;
	struct dlb_timeline t;
	double value = INFINITY;
	for (int i = 0; i < p->graph->n_ops; i++)
		if (isinf(p->time_s[(size_t)p->group_of[i] * (size_t)p->cluster->n_nodes + (size_t)placement[i]]))
			return INFINITY;
	set_up(p, placement, &plan);
	dlb_schedule_order(&plan, p->cost, p->schedule, p->ranked_scale);
	if (dlb_program_compile(&plan, p->cost, plan.batch, p->n_state, &program, NULL) == 0) {
		bool fits = true;
		for (int d = 0; d < plan.n_nodes; d++)
			fits &= (double)program.node[d].arena_bytes + (double)program.node[d].scratch_bytes +
				(double)program.node[d].state_bytes <= p->memory_bytes[d];
		if (fits && dlb_program_simulate(&program, p->cost, p->ranked_scale, 0, 0, false, &t, NULL) == 0) {
			value = t.step_s;
			dlb_timeline_release(&t, plan.n_nodes);
		}
		dlb_program_release(&program);
	}
	dlb_plan_release(&plan);
	return value;
}

double dlb_place_lack_bytes(const struct dlb_problem *p, const int *placement)
{
	struct dlb_plan plan;
	struct dlb_program program;
	double most = INFINITY;
	set_up(p, placement, &plan);
	dlb_schedule_order(&plan, p->cost, p->schedule, p->ranked_scale);
	if (dlb_plan_check(&plan, p->cost, NULL) == 0 &&
	    dlb_program_compile(&plan, p->cost, plan.batch, p->n_state, &program, NULL) == 0) {
		most = 0;
		for (int d = 0; d < plan.n_nodes; d++) {
			double over = (double)program.node[d].arena_bytes + (double)program.node[d].scratch_bytes +
				      (double)program.node[d].state_bytes - p->memory_bytes[d];
			if (over > most)
				most = over;
		}
		dlb_program_release(&program);
	}
	dlb_plan_release(&plan);
	return most;
}

static void keep_times(const struct dlb_problem *p, const struct dlb_program *g, const struct dlb_timeline *t, struct dlb_plan *plan)
{
	double most = 0, sum = 0;
	int n = 0;
	plan->value_s = t->step_s;
	plan->timeline = dlb_arena_array(&plan->arena, (size_t)plan->n_nodes, sizeof *plan->timeline);
	plan->n_spans = dlb_arena_array(&plan->arena, (size_t)plan->n_nodes, sizeof *plan->n_spans);
	for (int d = 0; d < plan->n_nodes; d++) {
		struct dlb_node_plan *np = &plan->node[d];
		np->busy_s = t->node[d].busy_s;
		np->wait_s = t->node[d].wait_s;
		np->peak_bytes = (double)g->node[d].arena_bytes + (double)g->node[d].scratch_bytes + (double)g->node[d].state_bytes;
		plan->n_spans[d] = t->n_spans[d];
		plan->timeline[d] = dlb_arena_array(&plan->arena, (size_t)t->n_spans[d] + 1, sizeof **plan->timeline);
		if (t->n_spans[d])
			memcpy(plan->timeline[d], t->span[d], (size_t)t->n_spans[d] * sizeof **plan->timeline);
		if (!p->free_node[d])
			continue;
		n++;
		sum += np->busy_s;
		if (np->busy_s > most)
			most = np->busy_s;
	}
	plan->imbalance = sum > 0 ? most / (sum / n) : 1;
}

int dlb_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan, double *ranked,
		  struct dlb_error *err)
{
	struct dlb_program program;
	struct dlb_timeline t;
	int rc = -1;
	set_up(p, placement, plan);
	dlb_schedule_order(plan, p->cost, p->schedule, p->ranked_scale);
	if (dlb_plan_check(plan, p->cost, err))
		goto no_plan;
	if (dlb_program_compile(plan, p->cost, plan->batch, p->n_state, &program, err))
		goto no_plan;
	if (dlb_program_verify(&program, p->cost, err))
		goto out;
	if (dlb_program_simulate(&program, p->cost, p->ranked_scale, 0, 0, false, &t, err))
		goto out;
	if (ranked)
		*ranked = t.step_s;
	dlb_timeline_release(&t, plan->n_nodes);
	if (dlb_program_simulate(&program, p->cost, p->stated_scale, 0, 0, true, &t, err))
		goto out;
	keep_times(p, &program, &t, plan);
	dlb_timeline_release(&t, plan->n_nodes);
	plan->bound_s = dlb_lower_bound_s(p);
	plan->gap = plan->bound_s > 0 ? plan->value_s / plan->bound_s - 1 : 0;
	rc = 0;
out:
	dlb_program_release(&program);
no_plan:
	if (rc)
		dlb_plan_release(plan);
	return rc;
}
