/* Filling a profile: every device kind measured once, by whoever has it. Alone, that is this process; under mpirun
 * the lowest rank with a kind measures it, one rank after the other, and rank 0 gets all. */
#ifndef DLB_EXEC_PROFILING_H
#define DLB_EXEC_PROFILING_H
#include "comm/comm.h"
#include "cost/profile.h"
#include "tensor/backend.h"

enum { DLB_PROFILE_TURNS = 3 };
struct dlb_profile_device { struct dlb_backend *be; const char *kind; };
struct dlb_profile_watch {			/* both may be NULL */
	void (*progress)(void *ctx, const char *kind, int64_t batch);	/* before a size's first step and each of its turns */
	void (*warn)(void *ctx, const char *kind, int64_t batch, const struct dlb_error *err);
	void *ctx;
};
/* Measures g on each device at the profile's batch sizes, in real steps of the whole graph: medians over about a
 * second of them. Sizes take turns. A size that does not run (memory) is warned of and left out, unless none runs.
 * Kinds that p has already are measured anew. comm NULL: alone; else all ranks call, with the same graph. */
int dlb_profile_measure(struct dlb_profile *p, const struct dlb_graph *g, const struct dlb_profile_device *d, int n_devices,
			struct dlb_comm *comm, const struct dlb_profile_watch *watch, struct dlb_error *err);
#endif
