/* Inside lib/exec: the sections of the document that a run stands on, read once. */
#ifndef DLB_EXEC_JOB_H
#define DLB_EXEC_JOB_H
#include "exec/engine.h"
#include "exec/exec.h"

struct dlb_job {
	struct dlb_graph graph;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_plan plan;
	struct dlb_optimizer_choice optimizer;
	double *kappa;				/* [node] measured / predicted of earlier rounds; all 1 without balance */
	int n_state;				/* optimizer states per weight */
	char name[200];				/* the document's, for messages */
};
/* `j` must be zeroed; released in any case. */
int dlb_job_read(struct dlb_job *j, const struct dlb_doc *doc, const struct dlb_exec_options *o, struct dlb_error *err);
void dlb_job_release(struct dlb_job *j);
/* Compiles the plan for a batch of n samples and proves the program. A plan that cannot be run is bad input
 * here (status 2), where for a placer it is an honest no. */
int dlb_job_compile(const struct dlb_job *j, int64_t n, struct dlb_program *p, struct dlb_error *err);
/* What is predicted for program p: busy times, step (kappa multiplied in). Fills report's predictions. */
int dlb_job_predict(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *report, struct dlb_error *err);
/* Fills what a report says of the plan whatever happens; nodes and arrays allocated. */
void dlb_job_report(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *report);
/* imbalance, idle and the error of the prediction, from what the report holds. */
void dlb_report_conclude(struct dlb_report *r);

/* ---- test_loss.c: loss and accuracy on test data, with the weights where they lie ---- */
struct dlb_eval;
/* choice: of the test data, `like` the data trained on. */
int dlb_eval_new(struct dlb_eval **out, const struct dlb_job *j, int node, const struct dlb_data_choice *choice, struct dlb_error *err);
size_t dlb_eval_arena_bytes(const struct dlb_eval *e);
int dlb_eval_ready(struct dlb_eval *e, struct dlb_runtime *runtime, struct dlb_error *err);
/* Collective. A sample that cannot be read ends it on all ranks; *who: on which. */
int dlb_eval_run(struct dlb_eval *e, struct dlb_comm *comm, uint64_t version, double *accuracy, double *loss, int *who,
		 struct dlb_error *err);
void dlb_eval_free(struct dlb_eval *e);
#endif
