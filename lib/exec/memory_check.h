/* Whether the hosts of a run have the memory that its processes need. Private to lib/exec. */
#ifndef DLB_EXEC_MEMORY_CHECK_H
#define DLB_EXEC_MEMORY_CHECK_H
#include "exec/run.h"

/* Compiles the program of full batches into r->program[0]. Refuses a run whose processes need more memory
 * than their host, its control group or ulimit allows, before anything large is allocated; warns if that
 * memory is not free now. Collective; -1 with err, on some ranks only: dlb_comm_agree must follow. */
int dlb_run_check_memory(struct run *r, struct dlb_error *err);
#endif
