/* HEFT: groups by descending upward rank (the longest way to the end of the step, means over nodes), each to the
 * node that would finish it first, in a gap where one is long enough.
 * Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002. */
#include <stdlib.h>
#include "place/list.h"

int dlb_place_heft(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	double *rank = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *rank);
	dlb_upward_rank_s(p, rank);
	int rc = dlb_list_schedule(p, rank, NULL, true, placement, err);
	free(rank);
	return rc;
}
