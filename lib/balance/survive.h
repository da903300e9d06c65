/* A plan without some nodes, for a run that lost them or shall not use them (dlb-run --on-failure replan,
 * --drain). */
#ifndef DLB_BALANCE_SURVIVE_H
#define DLB_BALANCE_SURVIVE_H
#include <stdbool.h>
#include "doc/doc.h"
#include "util/cli.h"

/* Makes doc's plan again without the nodes lost[n] and those that it excludes already; they keep their numbers
 * and get no ops. Replicas are as many as before, or as many as nodes are left if those are fewer. text: one
 * line on the new plan. -1 with err: no node is left, or no plan fits; then doc is unchanged. */
int dlb_survive(const struct dlb_cli *cli, struct dlb_doc *doc, const bool *lost, int n, char text[256],
		struct dlb_error *err);
#endif
