/* Even: the forward order cut into parts of equally many ops, one a node, in the order of node ids. */
#include <stdlib.h>
#include "place/place.h"

int dlb_place_even(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	struct dlb_units u;
	int n = p->cluster->n_nodes, rc = 0;
	int *start = dlb_xcalloc((size_t)n + 1, sizeof(int)), *node = dlb_xcalloc((size_t)n, sizeof(int));
	dlb_units_init(&u, p);
	for (int k = 0; k <= n; k++)
		start[k] = (int)((int64_t)u.n * k / n);
	for (int k = 0; k < n; k++)
		node[k] = k;
	dlb_units_place(&u, p, n, start, node, placement);
	(void)err;
	free(start);
	free(node);
	dlb_units_release(&u);
	return rc;
}
