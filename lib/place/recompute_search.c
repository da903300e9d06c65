/* Compiles a plan whose ops to run again are being chosen, and finds the bytes that its nodes lack. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/fit.h"
#include "place/recompute.h"
#include "place/recompute_search.h"
#include "plan/replica.h"

static double bytes_over(const struct dlb_problem *p, const struct dlb_program *g, int d)
{
	const struct dlb_node_program *np = &dlb_program_of(g, d)->node[d];
	double room = dlb_fit_room(p, g, d), over = (double)np->bound_bytes - room;
	return over > 0 ? over : (double)np->arena_bytes - room;
}

int dlb_recompute_compile(struct dlb_recompute_search *c)
{
	struct dlb_plan *plan = c->plan;
	c->order_s = dlb_fit_order(c->p, plan, c->in_flight);
	if (c->p->memo)
		c->p->memo->n_compiled++;
	if (dlb_fit_compile(c->p, plan, true, &c->program, c->err))
		return -1;
	for (int d = 0; d < plan->n_nodes; d++)
		c->lack[d] = -INFINITY;
	for (int d = 0; d < plan->n_nodes; d++) {
		int part = plan->n_replicas > 1 ? dlb_plan_part_of(plan, d) : d;
		if (part >= 0)
			c->lack[part] = fmax(c->lack[part], bytes_over(c->p, &c->program, d));
	}
	return 0;
}

void dlb_recompute_drop_program(struct dlb_recompute_search *c)
{
	dlb_program_release(&c->program);
	memset(&c->program, 0, sizeof c->program);
}

int dlb_recompute_find_lack(struct dlb_recompute_search *c)
{
	const size_t n_ops = (size_t)c->plan->n_ops, n_nodes = (size_t)c->plan->n_nodes;

	for (int i = 0; i < c->n_seen; i++) {
		const struct dlb_recompute_compiled *x = &c->seen[i];
		if (memcmp(x->again, c->plan->again, n_ops * sizeof *x->again))
			continue;
		memcpy(c->lack, x->lack, n_nodes * sizeof *x->lack);
		c->order_s = x->order_s;
		return 0;
	}
	if (dlb_recompute_compile(c))
		return -1;
	dlb_recompute_drop_program(c);
	if (c->n_seen == DLB_RECOMPUTE_BISECTIONS)
		return 0;
	struct dlb_recompute_compiled *x = &c->seen[c->n_seen++];
	x->again = dlb_arena_array(&c->arena, n_ops + 1, sizeof *x->again);
	x->lack = dlb_arena_array(&c->arena, n_nodes + 1, sizeof *x->lack);
	memcpy(x->again, c->plan->again, n_ops * sizeof *x->again);
	memcpy(x->lack, c->lack, n_nodes * sizeof *x->lack);
	x->order_s = c->order_s;
	return 0;
}

double dlb_recompute_most_lacking(const struct dlb_recompute_search *c)
{
	double most = 0;
	for (int d = 0; d < c->plan->n_nodes; d++)
		most = fmax(most, c->lack[d]);
	return most;
}
