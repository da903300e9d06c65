/* even: cuts the forward order into parts with equal numbers of ops, one per node that has any kernel, in
 * the order of node ids. Ops without a kernel or room on their node go to the next node that has both. If
 * none has, they stay, and dlb_plan_make reports the shortage. */
#include <math.h>
#include <stdlib.h>
#include "place/contiguous.h"
#include "place/place.h"
#include "place/problem.h"

int dlb_place_even(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	struct dlb_units u;
	int n_nodes = p->cluster->n_nodes, n = 0, rc = 0;
	int *node = dlb_xcalloc((size_t)n_nodes, sizeof *node);
	double *used = dlb_xcalloc((size_t)n_nodes, sizeof *used);
	dlb_units_init(&u, p);
	for (int d = 0; d < n_nodes; d++)
		if (p->free_node[d])
			node[n++] = d;
	int *to = dlb_xcalloc((size_t)u.n + 1, sizeof *to);
	for (int i = 0, part = 0; i < u.n; i++) {
		int able = -1;
		while (part < n - 1 && i >= (int)((int64_t)u.n * (part + 1) / n))
			part++;
		to[i] = -1;
		for (int k = 0; k < n && to[i] < 0; k++) {
			int d = node[(part + k) % n];
			if (isinf(dlb_unit_s(&u, p, i, d)))
				continue;
			able = able < 0 ? d : able;
			if (used[d] + u.bytes[i] <= p->memory_bytes[d])
				to[i] = d;
		}
		to[i] = to[i] < 0 ? able : to[i];
		if (to[i] >= 0)
			used[to[i]] += u.bytes[i];
	}
	for (int g = 0; g < p->n_groups && rc == 0; g++) {
		/* -1: no node can run the whole unit; place it group by group */
		int d = to[u.of_group[g]];
		for (int k = 0; k < n && d < 0; k++)
			if (isfinite(dlb_time_s(p, g, node[k])))
				d = node[k];
		if (d < 0)
			rc = dlb_no_room(p, g, err);
		for (int k = p->group_start[g]; k < p->group_start[g + 1] && rc == 0; k++)
			placement[p->group_op[k]] = d;
	}
	free(to);
	free(used);
	free(node);
	dlb_units_release(&u);
	return rc;
}
