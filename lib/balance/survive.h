/* A plan without some nodes, for a run that has lost them or must not use them (dlb-run --on-failure replan,
 * --drain). */
#ifndef DLB_BALANCE_SURVIVE_H
#define DLB_BALANCE_SURVIVE_H
#include <stdbool.h>
#include "doc/doc.h"
#include "util/cli.h"

/* Makes doc's plan again without the nodes in lost[n] and those that it excludes already; these nodes keep
 * their numbers and get no ops. The number of replicas stays, unless fewer nodes are left: then it is the
 * number of nodes. text: one line on the new plan. -1 with err: no node is left, or no plan fits; then doc is
 * unchanged. */
int dlb_survive(const struct dlb_cli *cli, struct dlb_doc *doc, const bool *lost, int n, char text[256],
		struct dlb_error *err);
#endif
