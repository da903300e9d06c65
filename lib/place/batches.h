/* The choice of the batch. */
#ifndef DLB_PLACE_BATCHES_H
#define DLB_PLACE_BATCHES_H
#include "place/place.h"

/* value_s: seconds per step of the plan for that batch; INFINITY: no plan fits the nodes' memory. */
struct dlb_batch_trial { int64_t batch; double value_s; };
#define DLB_BATCH_NEAR 0.01		/* a larger batch must save more than this fraction of a sample's time */
struct dlb_batch_search {
	/* Plans for a batch. -1 with err, of status 1 where no plan fits. */
	int (*plan)(void *arg, int64_t batch, double *value_s, struct dlb_error *err);
	void *arg;
	int64_t first, least;			/* the first batch tried; the least one allowed */
	/* results; trial: sorted by batch, owned by the caller */
	struct dlb_batch_trial *trial;
	int n_trials;
	/* of the batches that fit: the smallest whose seconds per sample are within DLB_BATCH_NEAR of the
	 * least; the largest */
	int64_t chosen, largest;
	bool bounded;				/* a larger batch than `largest` was tried and does not fit */
};
/* Doubles the batch from s->first until no plan fits (halves it if the first does not fit), then bisects
 * between the largest batch that fits and the smallest that does not, to a sixteenth. Assumes that memory
 * grows with the batch. -1 with err if no batch fits; err states the shortage. */
int dlb_place_batch(struct dlb_batch_search *s, struct dlb_error *err);
#endif
