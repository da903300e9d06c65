/* greedy: places each group of ops, in topological order, on the node that would finish it first, with
 * queued work and the transfer of its inputs counted (list.h). This is HEFT's earliest finish time without
 * its order (unless --priority asks for it) and without filling gaps. */
#include <stdlib.h>
#include "place/eft.h"
#include "place/list.h"

/* A group has the highest priority of its ops. */
static double number_of(const struct dlb_problem *p, int group)
{
	double most = p->number[p->group_op[p->group_start[group]]];
	for (int k = p->group_start[group]; k < p->group_start[group + 1]; k++)
		most = p->number[p->group_op[k]] > most ? p->number[p->group_op[k]] : most;
	return most;
}

int dlb_place_greedy(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	double *priority = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *priority);
	if (p->by_upward_rank)
		dlb_upward_rank_s(p, priority);
	for (int u = 0; u < p->n_groups && !p->by_upward_rank; u++)
		priority[u] = p->number ? number_of(p, u) : -u;
	int rc = dlb_list_schedule(p, priority, NULL, false, placement, err);
	free(priority);
	return rc;
}
