/* --freeze-at: weights that are trained up to a step, and no longer.
 *
 * Between two steps rank 0 makes the document's graph, costs and plan anew without their gradients and
 * updates (balance/freeze.h), all ranks get these sections, and the run goes on in new programs, as after
 * a round (rounds.c). A run that continues after that step begins with the frozen graph: rank 0 looks
 * which checkpoint is the newest. */
#ifndef DLB_EXEC_FREEZE_H
#define DLB_EXEC_FREEZE_H
#include "exec/command.h"

/* Refuses what cannot be frozen: patterns that match no weight, plans whose ops do not move inside a run. */
int dlb_freeze_check(const struct dlb_run_command *c, const struct dlb_doc *doc, struct dlb_error *err);
/* Freezes on all ranks what was frozen when the newest checkpoint was made. Collective. *who: as
 * dlb_comm_agree. */
int dlb_freeze_resume(struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_doc *doc, int *who,
		      struct dlb_error *err);
/* dlb_exec_options.freeze. */
int dlb_freeze_now(struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_doc *doc,
		   struct dlb_freezing *f, int *who, struct dlb_error *err);
#endif
