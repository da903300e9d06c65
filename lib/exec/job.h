/* The sections of the document that a run needs, read once. Private to lib/exec. */
#ifndef DLB_EXEC_JOB_H
#define DLB_EXEC_JOB_H
#include "exec/engine.h"
#include "exec/exec.h"
#include "plan/process_bytes.h"

struct dlb_runtime;

enum { DLB_JOB_ERRORS = 16 }; /* most rounds whose errors count */

struct dlb_job {
	struct dlb_graph graph;
	struct dlb_cluster cluster;
	struct dlb_cost cost;
	struct dlb_plan plan;
	struct dlb_optimizer_choice optimizer;
	double *kappa;	/* [node] measured / predicted in earlier rounds; all 1 without balancing */
	/* ln(measured / predicted) of the last rounds that were predicted with this kappa; corrected: kappa was measured */
	double error[DLB_JOB_ERRORS];
	int n_errors;
	bool corrected;
	int n_state;				/* optimizer states per weight */
	double document_bytes;			/* heap of the document */
	double data_bytes; /* of samples in this rank's memory */
	/* [node] memory of processes under this plan; NULL: not known */
	struct dlb_memory_need *need;
	char name[200];				/* the document's name, for messages */
};
/* `j` must be zeroed; the caller releases it, also after -1. */
int dlb_job_read(struct dlb_job *j, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		 struct dlb_error *err);
/* Reads plan and kappa again. *before: the plan until now, the caller's to release. -1: as dlb_job_read. */
int dlb_job_replan(struct dlb_job *j, const struct dlb_doc *doc, struct dlb_plan *before,
		   struct dlb_error *err);
/* The same where the graph was frozen (dlb_graph_freeze): reads graph, costs, plan and kappa again.
 * *before: those until now, the caller's to release, also after -1. */
int dlb_job_refreeze(struct dlb_job *j, const struct dlb_doc *doc, const struct dlb_exec_options *o,
		     struct dlb_job *before, struct dlb_error *err);
void dlb_job_release(struct dlb_job *j);
/* Compiles the plan for a batch of n samples and proves the program. A plan that cannot run is an error of
 * the input here (status 2); for a placer it is an ordinary result. */
int dlb_job_compile(const struct dlb_job *j, int64_t n, struct dlb_program *p, struct dlb_error *err);
/* Predicts program p: busy times and step, multiplied by kappa, and its interval. Fills report's predictions. */
int dlb_job_predict(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *report,
		    struct dlb_error *err);
/* Memory of node's process, with the sizes of kernels that were not measured. p: of full batches. */
struct dlb_memory_need dlb_job_need(const struct dlb_job *j, const struct dlb_program *p, int node);
/* Fills the members of a report that follow from the plan; allocates nodes and arrays. The second leaves out
 * predicted_process_bytes, which take long to compute. */
void dlb_job_report(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *report);
void dlb_job_report_plan(const struct dlb_job *j, const struct dlb_program *p, struct dlb_report *report);
/* Computes imbalance, idle and the prediction error from the report's other members. */
void dlb_report_conclude(struct dlb_report *r);

/* ---- test_loss.c: loss and accuracy on test data, with the weights in place ---- */
struct dlb_eval;
/* choice: of the test data; `like`: the training data. */
int dlb_eval_new(struct dlb_eval **out, const struct dlb_job *j, int node,
		 const struct dlb_data_choice *choice, struct dlb_error *err);
size_t dlb_eval_arena_bytes(const struct dlb_eval *e);
int dlb_eval_ready(struct dlb_eval *e, struct dlb_runtime *runtime, struct dlb_error *err);
/* Collective. A sample that cannot be read ends it on all ranks; *who: that rank. like: version and replay of the
 * steps. */
int dlb_eval_run(struct dlb_eval *e, struct dlb_comm *comm, const struct dlb_step *like, double *accuracy,
		 double *loss, int *who, struct dlb_error *err);
/* Bytes of its samples in memory. */
double dlb_eval_data_bytes(const struct dlb_eval *e);
void dlb_eval_free(struct dlb_eval *e);
#endif
