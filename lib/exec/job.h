/* A job: the sections of the document that a run needs, read once. Private to lib/exec. */
#ifndef DLB_EXEC_JOB_H
#define DLB_EXEC_JOB_H
#include "exec/engine.h"
#include "exec/exec.h"
#include "plan/process_bytes.h"

struct dlb_runtime;

enum { DLB_JOB_ERRORS = 16 }; /* largest number of rounds whose errors are used */

struct dlb_job {
	struct dlb_graph graph;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_plan plan;
	struct dlb_optimizer_choice optimizer;
	double *kappa;	/* [node] measured / predicted in earlier rounds; all 1 without balancing */
	/* ln(measured / predicted) of the last rounds that were predicted with this kappa; corrected: kappa
	 * comes from earlier rounds */
	double error[DLB_JOB_ERRORS];
	int n_errors;
	bool corrected;
	int n_state;				/* optimizer states per weight */
	double document_bytes;			/* heap memory of the document */
	double data_bytes; /* bytes of samples in this rank's memory */
	/* [node] memory that the node's process needs under this plan; NULL: not computed */
	struct dlb_memory_need *need;
	char name[200];				/* the document's name, for messages */
};
/* `j` must be zeroed; the caller releases it, also after -1. */
int dlb_job_read(struct dlb_job *j, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_error *err);
/* Reads plan and kappa again. *before: the previous plan, which the caller releases. -1: as dlb_job_read. */
int dlb_job_replan(struct dlb_job *j, const struct dlb_doc *doc, struct dlb_plan *before,
		   struct dlb_error *err);
/* Reads kappa, the errors of the last rounds and the seconds to prepare samples again, for the same plan. */
int dlb_job_correct(struct dlb_job *j, const struct dlb_doc *doc, struct dlb_error *err);
/* Reads graph, costs, plan and kappa again after weights of the graph were frozen (dlb_graph_freeze).
 * *before: the previous ones, which the caller releases, also after -1. */
int dlb_job_refreeze(struct dlb_job *j, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		     struct dlb_job *before, struct dlb_error *err);
void dlb_job_release(struct dlb_job *j);
/* Compiles the plan for a batch of n samples and verifies the program. A plan that cannot run is an error of
 * the input here (status 2), although for a placement algorithm it is an ordinary result. */
int dlb_job_compile(const struct dlb_job *j, int64_t n, struct dlb_program *p, struct dlb_error *err);
/* Predicts program p by simulation with costs multiplied by kappa. Fills the report's predictions: the step
 * time with its interval, busy times. */
int dlb_job_predict(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *report,
		    struct dlb_error *err);
/* Memory that the node's process needs, including kernels whose sizes were not measured. p: the program of
 * full batches. */
struct dlb_memory_need dlb_job_need(const struct dlb_job *j, const struct dlb_program *p, int node);
/* Fills the members of a report that follow from the plan; allocates nodes and arrays. dlb_job_report_plan
 * leaves out predicted_process_bytes, whose computation takes long. */
void dlb_job_report(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *report);
void dlb_job_report_plan(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *report);
/* Computes imbalance, idle and the prediction error from the report's other members. */
void dlb_report_conclude(struct dlb_report *r);

/* ---- test_loss.c: loss and accuracy on test data; reads the run's weights in place ---- */
struct dlb_eval;
/* choice: the test data. */
int dlb_eval_new(struct dlb_eval **out, const struct dlb_job *j, int node,
		 const struct dlb_data_choice *choice, struct dlb_error *err);
size_t dlb_eval_arena_bytes(const struct dlb_eval *e);
int dlb_eval_ready(struct dlb_eval *e, struct dlb_runtime *runtime, struct dlb_error *err);
/* Collective. A sample that cannot be read ends the evaluation on all ranks; *who: the rank that failed.
 * like: gives version and replay of the evaluation's steps. */
int dlb_eval_run(struct dlb_eval *e, struct dlb_comm *comm, const struct dlb_step *like, double *accuracy,
		 double *loss, int *who, struct dlb_error *err);
/* Bytes of the test samples in memory. */
double dlb_eval_data_bytes(const struct dlb_eval *e);
void dlb_eval_free(struct dlb_eval *e);
#endif
