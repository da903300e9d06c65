/* HEFT: places groups by descending upward rank (the longest path to the end of the step, with means over
 * nodes), each on the node that would finish it first, in a gap if one is long enough. Topcuoglu, Hariri,
 * Wu, IEEE TPDS 13(3), 2002. */
#include <stdlib.h>
#include "place/eft.h"
#include "place/list.h"

int dlb_place_heft(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	double *rank = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *rank);
	dlb_upward_rank_s(p, rank);
	int rc = dlb_list_schedule(p, rank, NULL, true, placement, err);
	free(rank);
	return rc;
}
