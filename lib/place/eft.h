/* Earliest finish times: shared by placers. */
#ifndef DLB_PLACE_EFT_H
#define DLB_PLACE_EFT_H
#include "place/place.h"

/* Estimated seconds of a message, as a mean over all pairs of nodes, including pairs of the same node (0
 * s). */
double dlb_mean_xfer_s(const struct dlb_problem *p, double bytes);
/* HEFT's upward rank over groups, mean times (Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002). */
void dlb_upward_rank_s(const struct dlb_problem *p, double *rank /* n_groups */);
#endif
