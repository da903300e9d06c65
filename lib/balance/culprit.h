/* Which node or link makes the others wait in a round, and the likely cause (balance.h). */
#ifndef DLB_BALANCE_CULPRIT_H
#define DLB_BALANCE_CULPRIT_H
#include "balance/balance.h"

/* Sets b->culprit of the round that s has the report and l the load of, before the round corrects the model: data
 * or a link that nodes wait for; none: DLB_CAUSE_NONE. */
void dlb_culprit_find_awaited(const struct dlb_balance_inputs *s, const struct dlb_load *l,
			      struct dlb_balance *b);
/* After that, in a round that corrects the speed of nodes: a slow node takes the place of none, or of a link that
 * the round has not corrected. b: the balance after the round. */
void dlb_culprit_find_slow(const struct dlb_balance_inputs *s, const struct dlb_load *l,
			   struct dlb_balance *b);

/* ---- slow_link.c ---- */
/* Sets *c, with names of the cluster, if a slow link explains the round and the speeds of all nodes do not. */
void dlb_slow_link_find(const struct dlb_balance_inputs *s, const struct dlb_load *l, struct dlb_culprit *c);
/* The factor of the stated bandwidth of link k that the round shows, where it has been corrected to a smaller one:
 * the present one, unless the round was so much faster that a larger one explains it. *seen: whether the plan
 * uses the link so much that the stated bandwidth would change the step. */
double dlb_slow_link_now(const struct dlb_balance_inputs *s, const struct dlb_load *l, int k, bool *seen);
/* Whether the round was so fast as with the stated bandwidths of all links, and much faster than with theirs now. */
bool dlb_slow_link_none(const struct dlb_balance_inputs *s, const struct dlb_load *l);
#endif
