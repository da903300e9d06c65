/* Leaves out nodes that a plan does not need (dlb-run --release idle). */
#ifndef DLB_BALANCE_RELEASE_H
#define DLB_BALANCE_RELEASE_H
#include "doc/doc.h"
#include "util/cli.h"

#define DLB_RELEASE_SLOWER 0.01 /* of the predicted step: a plan slower by this counts as equally fast */
enum { DLB_RELEASE_TEXT = 400 };
/* Gives doc the plan on the fewest nodes whose predicted step is equally fast and which has as many replicas.
 * To find it, leaves out one node after the other, the least busy first. Nodes left out keep their numbers,
 * as with dlb_survive. text: one line that names them, or says that there are none. -1 with err: doc has no
 * plan with a predicted step. */
int dlb_release_idle(const struct dlb_cli *cli, struct dlb_doc *doc, char text[DLB_RELEASE_TEXT],
		     struct dlb_error *err);
#endif
