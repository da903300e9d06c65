/* Leaves out nodes that a plan does not need (dlb-run --release idle). */
#ifndef DLB_BALANCE_RELEASE_H
#define DLB_BALANCE_RELEASE_H
#include "doc/doc.h"
#include "util/cli.h"

#define DLB_RELEASE_SLOWER 0.01 /* of the predicted step: a plan so much slower counts as as fast */
enum { DLB_RELEASE_TEXT = 400 };
/* Gives doc the plan on the fewest nodes that is as fast by its predicted step and has as many replicas.
 * Leaves out one node after the other to find it, that which is busy least first. Nodes left out keep their
 * numbers, as with dlb_survive. text: one line that names them, or says that there are none. -1 with err:
 * doc has no plan with a predicted step. */
int dlb_release_idle(const struct dlb_cli *cli, struct dlb_doc *doc, char text[DLB_RELEASE_TEXT],
		     struct dlb_error *err);
#endif
