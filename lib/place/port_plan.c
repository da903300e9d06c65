/* Plans under the port model: see port_plan.h. */
#include <math.h>
#include <stdlib.h>
#include "place/bound.h"
#include "place/make.h"
#include "place/moves.h"
#include "place/port_plan.h"
#include "place/problem.h"

double dlb_port_value_s(const struct dlb_problem *p, const int *at, bool weighted, double *load)
{
	struct dlb_port port;
	dlb_port_init(&port, p, weighted);
	double value = dlb_port_lack_bytes(&port, at, NULL) > 0 ? INFINITY : 0;
	if (value == 0) {
		value = dlb_port_throughput_s(&port, at, load);
		if (p->objective == DLB_LATENCY)
			value = dlb_port_latency_s(&port, at, NULL);
	}
	dlb_port_release(&port);
	return value;
}

static int fail_port(const struct dlb_problem *p, const int *at, struct dlb_error *err)
{
	struct dlb_port port;
	int d;
	dlb_port_init(&port, p, false);
	double lack = dlb_port_lack_bytes(&port, at, &d);
	dlb_port_release(&port);
	if (isinf(lack))
		return dlb_fail_no(err, NULL, "no plan fits: an op stands where it has no kernel");
	if (lack > 0)
		return dlb_fail_no(err, NULL,
				   "no plan fits: node %d (%s) needs %.4g MB of %.4g MB: it lacks %.4g MB", d,
				   p->cluster->kind[p->cluster->node[d].kind].name,
				   (p->memory_bytes[d] + lack) / 1e6, p->memory_bytes[d] / 1e6, lack / 1e6);
	return dlb_fail_no(err, NULL, "no plan fits: calls of nodes would wait for one another");
}

/* Nodes run their ops in the graph's order, all micro-batches of an op in a row. */
static void port_orders(const struct dlb_problem *p, struct dlb_plan *plan)
{
	for (int i = 0; i < plan->n_ops; i++)
		plan->node[plan->placement[i]].n_order += p->graph->op[i].phase == DLB_UPDATE ?
								  1 :
								  p->micro_batches;
	for (int d = 0; d < plan->n_nodes; d++) {
		plan->node[d].order = dlb_arena_array(&plan->arena, (size_t)plan->node[d].n_order + 1,
						      sizeof *plan->node[d].order);
		plan->node[d].n_order = 0;
	}
	for (int i = 0; i < plan->n_ops; i++) {
		struct dlb_node_plan *np = &plan->node[plan->placement[i]];
		bool update = p->graph->op[i].phase == DLB_UPDATE;
		for (int m = 0; m < (update ? 1 : p->micro_batches); m++)
			np->order[np->n_order++] = (struct dlb_item){ i, update ? -1 : m };
	}
}

int dlb_port_plan_make(const struct dlb_problem *p, const int *placement, struct dlb_plan *plan,
		       double *ranked, struct dlb_error *err)
{
	int *at = dlb_place_groups_at(p, placement), rc = -1, n = 0;
	double *load = dlb_xcalloc((size_t)p->cluster->n_nodes, sizeof *load), sum = 0, most = 0;
	dlb_plan_set_up(p, placement, plan);
	port_orders(p, plan);
	if (dlb_plan_check_constraints(p, placement, err) || dlb_plan_check(plan, p->cost, err))
		goto out;
	double value = dlb_port_value_s(p, at, true, NULL);
	if (isinf(value)) {
		fail_port(p, at, err);
		goto out;
	}
	if (ranked)
		*ranked = value + dlb_place_migration_share_s(p, placement);
	plan->value_s = dlb_port_value_s(p, at, false, load);
	for (int g = 0; g < p->n_groups; g++)
		plan->node[at[g]].peak_bytes += dlb_group_bytes(p, g);
	for (int d = 0; d < plan->n_nodes; d++) {
		plan->node[d].busy_s = load[d];
		plan->node[d].wait_s = plan->value_s > load[d] ? plan->value_s - load[d] : 0;
		n += p->free_node[d];
		sum += load[d];
		most = load[d] > most ? load[d] : most;
	}
	plan->objective = dlb_objectives[p->objective];
	plan->imbalance = sum > 0 ? most / (sum / n) : 1;
	plan->bound_s = dlb_lower_bound_s(p);
	plan->gap = plan->bound_s > 0 ? plan->value_s / plan->bound_s - 1 : 0;
	rc = 0;
out:
	if (rc)
		dlb_plan_release(plan);
	free(at);
	free(load);
	return rc;
}
