/* Earliest finish times: shared by placers. */
#ifndef DLB_PLACE_EFT_H
#define DLB_PLACE_EFT_H
#include "place/place.h"

/* Seconds of a message between two nodes: an estimate of the mean over pairs, 0 on the same node counted. */
double dlb_mean_xfer_s(const struct dlb_problem *p, double bytes);
/* HEFT's upward rank over groups, mean times (Topcuoglu, Hariri, Wu, IEEE TPDS 13(3), 2002). */
void dlb_upward_rank_s(const struct dlb_problem *p, double *rank /* n_groups */);
#endif
