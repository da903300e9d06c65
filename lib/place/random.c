/* random: places each group on a random node with its kernels and room for it, from the seed. For tests:
 * losses must not depend on the placement. */
#include <math.h>
#include <stdlib.h>
#include "place/place.h"
#include "place/problem.h"
#include "util/rng.h"

int dlb_place_random(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	int n_nodes = p->cluster->n_nodes, rc = 0;
	double *used = dlb_xcalloc((size_t)n_nodes, sizeof *used);
	int *able = dlb_xcalloc((size_t)n_nodes, sizeof *able);
	struct dlb_rng rng;
	dlb_rng_init(&rng, p->seed);
	for (int g = 0; g < p->n_groups && rc == 0; g++) {
		int n = 0;
		for (int d = 0; d < n_nodes; d++)
			if (isfinite(dlb_time_s(p, g, d)) &&
			    used[d] + dlb_group_bytes(p, g) <= p->memory_bytes[d])
				able[n++] = d;
		if (!n) {
			rc = dlb_no_room(p, g, err);
			break;
		}
		int to = able[dlb_rng_below(&rng, (uint64_t)n)];
		used[to] += dlb_group_bytes(p, g);
		for (int k = p->group_start[g]; k < p->group_start[g + 1]; k++)
			placement[p->group_op[k]] = to;
	}
	free(used);
	free(able);
	return rc;
}
