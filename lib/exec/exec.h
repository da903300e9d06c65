/* The executor: one rank's part of a run. Interprets its program with real kernels and messages.
 *
 * State (weights, gradient sums, optimizer state, buffers) is keyed by tensor name, so that a checkpoint
 * loads on any other number of nodes. See engine.c for the step loop, run.c for the job around it,
 * checkpoint*.c, feed.c; launch.c starts the ranks.
 *
 * The document's run section says what is trained on and how; dlb-run keeps it in the document:
 *     {"data":"idx:/abs/images,/abs/labels", "test_data":SPEC, "transform":"scale=1/255",
 *      "order":"shuffled"|"sequential", "seed":1, "init":7, "optimizer":{"name":"sgd","lr":0.01},
 *      "weights":{"path":"/abs/model.onnx","sha256":"..."}, "torch_batchnorm":false} */
#ifndef DLB_EXEC_EXEC_H
#define DLB_EXEC_EXEC_H
#include <signal.h>
#include "comm/comm.h"
#include "data/data.h"
#include "optim/optim.h"
#include "exec/status.h"
#include "plan/report.h"

struct dlb_exec_options {
	int64_t steps, epochs, until_step;	/* -1: not asked. None asked: one epoch, or 100 steps of endless data */
	const char *data, *test_data, *transform, *checkpoint, *save, *loss_log;
	const char *step_log, *save_best;	/* see watch.h, evaluate.c */
	int64_t eval_every;			/* 0: only at the end */
	const char *init;			/* seed of fresh weights, NULL: those of the model */
	bool shuffled, dry_run, allow_nonfinite, torch_batchnorm;
	int64_t checkpoint_every;		/* 0: only at the end */
	int64_t readers;			/* threads a node that decode images; 0: by the cores that are free */
	uint64_t seed;
	double until_loss; int64_t patience; double timeout_s;	/* NAN, 0: not asked */
	const double *slow; int n_slow;		/* [node] factor >= 1; NULL: none */
	bool quiet, verbose;
	const volatile sig_atomic_t *stop;	/* set from outside: stop after this step; may be NULL */
	void (*progress)(void *ctx, const struct dlb_status_told *told);	/* rank 0; may be NULL */
	void *progress_ctx;
	void (*warn)(void *ctx, const char *line);	/* rank 0: what the user should know of, though the run goes on; may be NULL */
	void *warn_ctx;
};
/* Runs the whole job on this rank; rank 0's report is filled. All ranks return the same status, with the
 * failing rank's err and its number in *who. */
int dlb_exec_run(struct dlb_comm *comm, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_report *report, int *who, struct dlb_error *err);
/* Everything that can be known to be wrong before a rank is started: sections, program, its proof. */
int dlb_exec_check(const struct dlb_doc *doc, const struct dlb_exec_options *o, int *n_nodes, struct dlb_error *err);
/* --compress auto, where the plan does not say yet how sums travel, or `again`: writes that into its section. */
int dlb_exec_advise(struct dlb_doc *doc, const struct dlb_exec_options *o, bool again, struct dlb_error *err);
/* Prints the compiled programs as text. */
int dlb_exec_print_program(const struct dlb_doc *doc, const struct dlb_exec_options *o, FILE *f, struct dlb_error *err);
/* The same report from the simulator. */
int dlb_exec_dry_run(const struct dlb_doc *doc, const struct dlb_exec_options *o, struct dlb_report *report,
		     struct dlb_error *err);
/* Real steps of the whole graph on one node, timed op by op: for dlb-profile. Several may be open at the same time and take
 * turns. No MPI. Updates are plain SGD with a rate of zero, so that weights stay what they are. Borrows g and be. */
struct dlb_measurement;
int dlb_measurement_open(const struct dlb_graph *g, struct dlb_backend *be, int64_t n, struct dlb_measurement **out,
			 struct dlb_error *err);
/* So many steps that do not count, then `repeats` that are added to those before. */
int dlb_measurement_run(struct dlb_measurement *m, int warm_up, int repeats, struct dlb_error *err);
/* Of the steps that counted: [op] medians in seconds, NAN for ops that did not run; scratch_bytes, packed_bytes: [op], may
 * be NULL. */
void dlb_measurement_medians(const struct dlb_measurement *m, double *op_s, double *scratch_bytes, double *packed_bytes);
void dlb_measurement_free(struct dlb_measurement *m);		/* NULL: nothing */
#endif
