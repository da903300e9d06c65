/* Suggestions if the processes of a plan need more memory than their hosts have. */
#ifndef DLB_BALANCE_REPLAN_MEMORY_H
#define DLB_BALANCE_REPLAN_MEMORY_H
#include "balance/replan_input.h"
#include "plan/process_bytes.h"

/* Writes into the hint of err the options of dlb-place with which a plan would fit, by plans made with each;
 * if there are none, the additional memory that the plan needs. x: of the plan in doc; doc is unchanged. */
void dlb_memory_cure(const struct dlb_cli *cli, const struct dlb_doc *doc, const struct dlb_memory_case *x,
		     struct dlb_error *err);

/* ---- for replan.c ---- */

/* The memory need of the processes of plan, which is in doc: [n_nodes], new. sizes NULL: sizes of kernels are
 * guessed. Returns NULL if the plan is too large to compile again, or has no simulated step. */
struct dlb_memory_need *dlb_replan_need(const struct dlb_doc *doc, const struct dlb_problem *p,
					struct dlb_plan *plan, dlb_kernel_sizes_fn *sizes);
/* Warns if the processes need more memory than the cluster's hosts have. need: as above. */
void dlb_replan_warn_memory(const struct dlb_doc *doc, const struct dlb_replan *o,
			    const struct dlb_problem *p, const struct dlb_memory_need *need);
#endif
