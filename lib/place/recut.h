/* Cuts a pipeline again for other speeds of its nodes, without a search. */
#ifndef DLB_PLACE_RECUT_H
#define DLB_PLACE_RECUT_H
#include "place/place.h"

/* Sets placement[op] to contiguous parts in the order of nodes of `current`, with the least estimated step
 * (dlb_units_step_s). Nodes without work come last in this order, and may get some. O(units x log + nodes);
 * nothing is simulated. false: `current` is no pipeline with one part per node, or no such cut fits. */
bool dlb_place_recut(const struct dlb_problem *p, const int *current, int *placement);
#endif
