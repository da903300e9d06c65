/* Balancing inside a run (dlb-run --rounds): rounds of dlb-rebalance and dlb-place, between two steps. */
#ifndef DLB_BALANCE_LIVE_H
#define DLB_BALANCE_LIVE_H
#include "balance/balance.h"
#include "exec/exec.h"
#include "util/cli.h"

/* State kept from round to round; zeroed at first. */
struct dlb_live {
	struct dlb_balance_inputs inputs; bool is_read, other_plan;
	const char *rule;			/* NULL: log */
	bool simulated;				/* planning takes no time of the run */
};
/* Forgets the sections that were read: the next round reads all of the document. */
void dlb_live_release(struct dlb_live *l);
/* One round. live: a struct dlb_live, for one document whose report and plan alone change between rounds.
 * doc has the report of the round. Sets its balance and, with d->moves, its plan; d->text states the
 * measurements, the decision and its reason. -1 with err. */
int dlb_live_round(void *live, const struct dlb_cli *cli, struct dlb_doc *doc, struct dlb_round_decision *d,
		   struct dlb_error *err);
/* The ops that moved to make the plan of a section, as "2 ops move with 3.5 MB of state"; "": none did.
 * Returns the length. */
int dlb_live_tell_ops(const json_t *plan, char *text, size_t size);
#endif
