/* Fills a profile: measures every device kind once. Alone, this process measures all; under mpirun the lowest
 * rank that has a kind measures it, one rank after the other, and rank 0 receives all figures. */
#ifndef DLB_EXEC_PROFILING_H
#define DLB_EXEC_PROFILING_H
#include "comm/comm.h"
#include "cost/profile.h"
#include "tensor/backend.h"

enum { DLB_PROFILE_TURNS = 3 };
struct dlb_profile_device { struct dlb_backend *be; const char *kind; };
struct dlb_profile_watch {			/* progress and warn may be NULL */
	/* called before a size's first step and before each turn */
	void (*progress)(void *ctx, const char *kind, int64_t batch);
	void (*warn)(void *ctx, const char *kind, int64_t batch, const struct dlb_error *err);
	void *ctx;
};
/* Measures g on each device at the profile's batch sizes, in real steps of the whole graph: medians over
 * about a second. Sizes take turns. A size that does not run (memory) is left out with a warning; -1 if none
 * runs. Kinds that p already has are measured anew. comm NULL: alone; else all ranks call, with the same
 * graph. */
int dlb_profile_measure(struct dlb_profile *p, const struct dlb_graph *g, const struct dlb_profile_device *d,
			int n_devices, struct dlb_comm *comm, const struct dlb_profile_watch *watch,
			struct dlb_error *err);
#endif
