/* Moves the borders of the parts of a plan with replicas, judged by the step of the whole plan. The placement
 * over one team considers neither the sums of gradients nor the other teams. Private to lib/place. */
#ifndef DLB_PLACE_BORDERS_H
#define DLB_PLACE_BORDERS_H
#include "place/place.h"

/* Improves *plan, of p with replicas, and its ranked step: moves the borders between its contiguous parts
 * while the step gets shorter. Shares stay as they are. The effort bounds the number of plans made. A plan
 * stays unchanged if it has no such parts, or if ops are pinned or move from other nodes. */
void dlb_borders_move(const struct dlb_problem *p, struct dlb_plan *plan, double *ranked_s);
#endif
