/* Weights whose training ends: the graph without their gradients and updates, its costs, and a plan for it
 * (dlb-run --freeze-at). */
#ifndef DLB_BALANCE_FREEZE_H
#define DLB_BALANCE_FREEZE_H
#include "doc/doc.h"
#include "util/cli.h"

enum { DLB_FREEZE_TEXT = 400 };
/* Freezes the weights of doc's graph that match a pattern (util/patterns.h); replaces its graph, profile
 * and cost. The plan keeps its options, and ops stay where they are unless dlb-place finds a better
 * placement. The balance keeps node weights and kappa, and begins another search. live: the struct dlb_live
 * of the run. text: one line on the frozen weights and the plan; "": all matching weights are frozen already,
 * and doc is unchanged. -1 with err. */
int dlb_freeze(void *live, const struct dlb_cli *cli, struct dlb_doc *doc, const char *const *glob, int n,
	       char text[DLB_FREEZE_TEXT], struct dlb_error *err);
#endif
