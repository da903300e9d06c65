/* Which node or link makes the others wait in a round, and the likely cause (balance.h). */
#ifndef DLB_BALANCE_CULPRIT_H
#define DLB_BALANCE_CULPRIT_H
#include "balance/balance.h"

/* Sets b->culprit, of the round that s has the report and l the load of, if a link is: before the round corrects
 * the model. */
void dlb_culprit_find_link(const struct dlb_balance_inputs *s, const struct dlb_load *l,
			   struct dlb_balance *b);
/* The same for data, which are found in every round, and for slow nodes, in the round that corrects their speed;
 * b: the balance after it. */
void dlb_culprit_find(const struct dlb_balance_inputs *s, const struct dlb_load *l, struct dlb_balance *b);

/* ---- slow_link.c ---- */
/* Sets *c, with names of the cluster, if a slow link explains the round and the speeds of all nodes do not.
 * predicted_s: T by the costs and speeds that the plan was made with. */
void dlb_slow_link_find(const struct dlb_balance_inputs *s, const struct dlb_load *l, double predicted_s,
			struct dlb_culprit *c);
/* The factor of the stated bandwidth of link k that the round shows, where it has been corrected to a smaller one:
 * the present one, unless the round was so much faster that a larger one explains it. *seen: whether the plan
 * uses the link so much that the stated bandwidth would change the step. */
double dlb_slow_link_now(const struct dlb_balance_inputs *s, const struct dlb_load *l, int k, bool *seen);
/* Whether the round was so fast as with the stated bandwidths of all links, and much faster than with theirs now. */
bool dlb_slow_link_none(const struct dlb_balance_inputs *s, const struct dlb_load *l);
#endif
