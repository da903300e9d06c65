/* Data of the page: why ops are on their nodes. For each group of ops that must share a node: its work on
 * every class of nodes, and the predicted step with the group on another node, as --why prints. Each
 * prediction is a simulation, so in large graphs only the groups with the most work have them. */
#include "place/problem.h"
#include "place/value.h"
#include "view/page.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Limit of simulated items (ops times micro-batches) per page: about two seconds. */
static const double most_items = 2e6;

struct group_work { int group; double work_s; };

static int by_work(const void *a, const void *b)
{
	const struct group_work *x = a, *y = b;

	if (x->work_s != y->work_s)
		return x->work_s < y->work_s ? 1 : -1;
	return x->group - y->group;
}

/* Nodes that a group may move to: all, or those of the first replica. */
static bool may_go(const struct dlb_plan *plan, int node)
{
	return plan->n_replicas <= 1 || plan->replica[0][node] >= 0;
}

static void steps(const struct dlb_view *v, const struct dlb_problem *p, struct dlb_emit *e)
{
	const struct dlb_plan *plan = &v->plan;
	size_t n_ops = (size_t)v->graph.n_ops;
	int *placement = dlb_xmalloc((n_ops + 1) * sizeof *placement), targets = 0;
	struct group_work *r = dlb_xmalloc(((size_t)p->n_groups + 1) * sizeof *r);
	double left = most_items, item = (double)n_ops * plan->micro_batches, now;

	for (int d = 0; d < plan->n_nodes; d++)
		targets += may_go(plan, d);
	for (int g = 0; g < p->n_groups; g++)
		r[g] = (struct group_work){ g, dlb_time_s(p, g,
							  plan->placement[p->group_op[p->group_start[g]]]) };
	qsort(r, (size_t)p->n_groups, sizeof *r, by_work);
	memcpy(placement, plan->placement, n_ops * sizeof *placement);
	now = dlb_place_value_s(p, placement);
	dlb_emit_real(e, "now_s", now);
	dlb_emit_open(e, "steps_s", '[');		/* [group, predicted step on each node] */
	for (int i = 0; i < p->n_groups && left >= item * (targets - 1); i++) {
		int first = p->group_start[r[i].group], end = p->group_start[r[i].group + 1],
		    here = plan->placement[p->group_op[first]];

		dlb_emit_open(e, NULL, '[');
		dlb_emit_int(e, NULL, r[i].group);
		for (int d = 0; d < plan->n_nodes; d++) {
			for (int k = first; k < end; k++)
				placement[p->group_op[k]] = d;
			dlb_emit_real(e, NULL,
				      d == here       ? now :
				      may_go(plan, d) ? dlb_place_value_s(p, placement) :
							NAN);
		}
		for (int k = first; k < end; k++)
			placement[p->group_op[k]] = here;
		dlb_emit_close(e, ']');
		left -= item * (targets - 1);
	}
	dlb_emit_close(e, ']');
	free(r);
	free(placement);
}

void dlb_page_why(const struct dlb_view *v, struct dlb_emit *e)
{
	struct dlb_problem p = { 0 };

	if (!v->has_plan)
		return;
	if (!dlb_view_problem(v, &p, NULL)) {
		p.replicas = v->plan.n_replicas > 1 ? &v->plan : NULL;
		dlb_emit_open(e, "why", '{');
		dlb_emit_open(e, "group", '[');
		for (int i = 0; i < v->graph.n_ops; i++)
			dlb_emit_int(e, NULL, p.group_of[i]);
		dlb_emit_close(e, ']');
		dlb_emit_open(e, "class", '[');
		for (int d = 0; d < v->plan.n_nodes; d++)
			dlb_emit_int(e, NULL, p.class_of[d]);
		dlb_emit_close(e, ']');
		dlb_emit_int(e, "classes", p.n_classes);
		dlb_emit_open(e, "work_s", '[');
		for (int k = 0; k < p.n_groups * p.n_classes; k++)
			dlb_emit_real(e, NULL, p.time_s[k]);
		dlb_emit_close(e, ']');
		steps(v, &p, e);
		dlb_emit_close(e, '}');
	}
	dlb_problem_release(&p);
}
