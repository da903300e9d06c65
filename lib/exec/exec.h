/* The executor: one rank's part of a run. Interprets its program with real kernels and messages.
 *
 * State (weights, gradient sums, optimizer state, buffers) is keyed by tensor name, so that a checkpoint
 * loads on any other number of nodes. See exec.c for the step loop, checkpoint.c, migrate.c, feed.c. */
#ifndef DLB_EXEC_EXEC_H
#define DLB_EXEC_EXEC_H
#include "comm/comm.h"
#include "data/data.h"
#include "optim/optim.h"
#include "plan/report.h"

struct dlb_exec_options {
	int64_t steps, epochs, until_step;	/* -1: not asked */
	const char *data, *test_data, *transform, *checkpoint, *save, *loss_log, *init;
	bool shuffled, dry_run, allow_nonfinite, torch_batchnorm;
	int64_t checkpoint_every;
	uint64_t seed;
	double until_loss; int patience; double timeout_s;	/* NAN, 0: not asked */
	const double *slow;			/* [node] factor >= 1; NULL: none */
	bool quiet, verbose;
};
struct dlb_exec;				/* opaque */
/* Runs the whole job on this rank; rank 0's report is filled. All ranks return the same status. */
int dlb_exec_run(struct dlb_comm *comm, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_report *report, struct dlb_error *err);
/* The same report from the simulator. */
int dlb_exec_dry_run(const struct dlb_doc *doc, const struct dlb_exec_options *o, struct dlb_report *report,
		     struct dlb_error *err);
/* One real step of the whole graph on one node of kind `backend`, timing every op: [op] medians in seconds
 * over `repeats` after `warm_up`; NAN for ops that did not run. For dlb-profile; no MPI. */
int dlb_exec_measure(const struct dlb_graph *g, struct dlb_backend *be, int64_t n, int warm_up, int repeats,
		     double *op_s, double *scratch_bytes, double *packed_bytes, struct dlb_error *err);
#endif
