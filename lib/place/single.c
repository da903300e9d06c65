/* single: everything on the one node that finishes it first. */
#include <math.h>
#include "place/place.h"
#include "place/problem.h"

int dlb_place_single(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	double best_s = INFINITY;
	int best = -1, n_nodes = p->cluster->n_nodes, largest = -1;
	for (int d = 0; d < n_nodes; d++) {
		double s = 0, bytes = 0;
		for (int g = 0; g < p->n_groups; g++) {
			s += dlb_time_s(p, g, d);
			bytes += p->state_bytes[g] + p->activation_bytes[g];
		}
		if (isfinite(s) && (largest < 0 || p->memory_bytes[d] > p->memory_bytes[largest]))
			largest = d;
		if (s < best_s && bytes <= p->memory_bytes[d]) {
			best_s = s;
			best = d;
		}
	}
	for (int g = 0; largest < 0 && g < p->n_groups; g++) {
		int d = 0;
		while (d < n_nodes && isinf(dlb_time_s(p, g, d)))
			d++;
		if (d == n_nodes)		/* no node has a kernel: the error names this op */
			return dlb_no_room(p, g, err);
	}
	if (largest < 0)
		return dlb_fail_no(err, NULL, "no plan fits: no single node has kernels for all ops");
	if (best < 0)			/* dlb_plan_make reports the shortage */
		best = largest;
	for (int i = 0; i < p->graph->n_ops; i++)
		placement[i] = best;
	return 0;
}
