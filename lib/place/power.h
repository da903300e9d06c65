/* Shares of the batch by the power of replicas. Private to lib/place.
 *
 * A replica's power is its samples per second at its share. Fixed costs of a step make the power depend on
 * the share, so the powers are computed again at the new shares; when shares and powers agree, all replicas
 * take equally long. */
#ifndef DLB_PLACE_POWER_H
#define DLB_PLACE_POWER_H
#include "place/place.h"

/* Sets shared->power, in its arena, to the shares whose longest step is shortest. placement: of replica 0.
 * *most_samples: raised to the largest share that was tried. -1 with err. */
int dlb_replicas_find_power(const struct dlb_problem *p, const int *placement, struct dlb_plan *shared,
			    int64_t *most_samples, struct dlb_error *err);
#endif
