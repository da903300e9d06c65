/* Predicts the memory that a rank's process will hold: report.nodes[].predicted_process_bytes, beside the
 * measured process_bytes (util/process.h). */
#ifndef DLB_EXEC_PROCESS_PLAN_H
#define DLB_EXEC_PROCESS_PLAN_H
#include "exec/job.h"

/* Bytes of node's process at the end of a run of p, the program of full batches: anonymous memory, and shared
 * memory that it has touched, its own and that of nodes on its host. Not in it: test data and image files
 * in memory, checkpoints under way, and what a back end takes on its device. */
double dlb_process_plan(const struct dlb_job *j, const struct dlb_program *p, int node);
#endif
