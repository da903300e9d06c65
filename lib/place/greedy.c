/* Greedy: each group of ops, in topological order, to the node that would finish it first, counting the work
 * already queued there and the time to bring its inputs over (list.h). Earliest finish time is HEFT's rule
 * without its order and without filling gaps. */
#include <stdlib.h>
#include "place/list.h"

int dlb_place_greedy(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	double *priority = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *priority);
	for (int u = 0; u < p->n_groups; u++)
		priority[u] = -u;
	int rc = dlb_list_schedule(p, priority, NULL, false, placement, err);
	free(priority);
	return rc;
}
