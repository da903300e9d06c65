/* largest-first: fills the nodes in topological order of ops, one node after the other, by descending
 * memory; among equals the faster node comes first. */
#include <math.h>
#include <stdlib.h>
#include "place/place.h"
#include "place/problem.h"

struct node_size { double bytes, time_s; int node; };
static int larger(const void *a, const void *b)
{
	const struct node_size *x = a, *y = b;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	if (x->time_s != y->time_s)
		return x->time_s < y->time_s ? -1 : 1;
	return x->node - y->node;
}

int dlb_place_largest_first(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	int n_nodes = p->cluster->n_nodes, rc = 0;
	struct node_size *order = dlb_xcalloc((size_t)n_nodes, sizeof *order);
	double *used = dlb_xcalloc((size_t)n_nodes, sizeof *used);
	for (int d = 0; d < n_nodes; d++) {
		order[d] = (struct node_size){ p->memory_bytes[d], 0, d };
		for (int g = 0; g < p->n_groups; g++)
			if (isfinite(dlb_time_s(p, g, d)))
				order[d].time_s += dlb_time_s(p, g, d);
	}
	qsort(order, (size_t)n_nodes, sizeof *order, larger);
	for (int g = 0; g < p->n_groups && rc == 0; g++) {
		int to = -1;
		for (int k = 0; k < n_nodes && to < 0; k++) {
			int d = order[k].node;
			if (isfinite(dlb_time_s(p, g, d)) &&
			    used[d] + dlb_group_bytes(p, g) <= p->memory_bytes[d])
				to = d;
		}
		if (to < 0) {
			rc = dlb_no_room(p, g, err);
			break;
		}
		used[to] += dlb_group_bytes(p, g);
		for (int k = p->group_start[g]; k < p->group_start[g + 1]; k++)
			placement[p->group_op[k]] = to;
	}
	free(order);
	free(used);
	return rc;
}
