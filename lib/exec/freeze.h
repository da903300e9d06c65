/* --freeze-at: weights that are trained only up to a given step.
 *
 * Between two steps rank 0 rebuilds the document's graph, costs and plan without the gradients and updates of
 * these weights (balance/freeze.h). All ranks get the new sections, and the run continues with new programs,
 * as after a round (rounds.c). A run that resumes after that step begins with the frozen graph; rank 0
 * decides it by the newest checkpoint. */
#ifndef DLB_EXEC_FREEZE_H
#define DLB_EXEC_FREEZE_H
#include "exec/command.h"

/* Refuses --freeze-at for patterns that match no weight and for plans whose programs cannot change inside a
 * run. */
int dlb_freeze_check(const struct dlb_run_command *c, const struct dlb_doc *doc, struct dlb_error *err);
/* Freezes on all ranks the weights that were frozen when the newest checkpoint was written. Collective. *who:
 * as dlb_comm_agree. */
int dlb_freeze_resume(struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_doc *doc, int *who,
		      struct dlb_error *err);
/* dlb_exec_options.freeze. */
int dlb_freeze_now(struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_doc *doc,
		   struct dlb_freezing *f, int *who, struct dlb_error *err);
#endif
