/* What would fit where the processes of a plan need more memory than their hosts have. */
#ifndef DLB_BALANCE_REPLAN_MEMORY_H
#define DLB_BALANCE_REPLAN_MEMORY_H
#include "balance/replan_input.h"
#include "plan/process_bytes.h"

/* Writes into the hint of err which options of dlb-place would fit: each is named only if the plan that
 * they make does. Else how much more memory the plan needs. x: of the plan in doc, which is left as it is. */
void dlb_memory_cure(const struct dlb_cli *cli, const struct dlb_doc *doc, const struct dlb_memory_case *x,
		     struct dlb_error *err);

/* ---- for replan.c ---- */

/* Need of the processes of plan, which is in doc; [n_nodes], new. sizes: NULL: guessed. NULL: a plan too
 * large to compile again, or without steps. */
struct dlb_memory_need *dlb_replan_need(const struct dlb_doc *doc, const struct dlb_problem *p,
					struct dlb_plan *plan, dlb_kernel_sizes_fn *sizes);
/* Warns if they need more than the cluster's hosts have. need: as above. */
void dlb_replan_warn_memory(const struct dlb_doc *doc, const struct dlb_replan *o,
			    const struct dlb_problem *p, const struct dlb_memory_need *need);
#endif
