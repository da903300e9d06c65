/* Which node or link makes the others wait in a round, and the likely cause (balance.h). */
#ifndef DLB_BALANCE_CULPRIT_H
#define DLB_BALANCE_CULPRIT_H
#include "balance/balance.h"

/* Sets b->culprit to data or a link for which nodes wait; DLB_CAUSE_NONE: neither. s has the report and l the
 * load of the round; to be called before the round corrects the model. */
void dlb_culprit_find_awaited(const struct dlb_balance_inputs *s, const struct dlb_load *l,
			      struct dlb_balance *b);
/* To be called after that, with the balance b after the round. If the round corrects the speed of nodes, a
 * slow node becomes the culprit, unless the cause found is data, or a link that the round has corrected. */
void dlb_culprit_find_slow(const struct dlb_balance_inputs *s, const struct dlb_load *l,
			   struct dlb_balance *b);

/* ---- slow_link.c ---- */
/* Sets *c, with names of the cluster, if a slow link explains the round and the speeds of all nodes do not. */
void dlb_slow_link_find(const struct dlb_balance_inputs *s, const struct dlb_load *l, struct dlb_culprit *c);
/* For link k, corrected to a smaller bandwidth: the factor of its stated bandwidth that the round shows. This
 * is the present factor, unless the round was so much faster that a larger one explains it. *seen: whether
 * the plan uses the link so much that the stated bandwidth would change the step. */
double dlb_slow_link_now(const struct dlb_balance_inputs *s, const struct dlb_load *l, int k, bool *seen);
/* Whether the round was as fast as with the stated bandwidths of all links, and much faster than with the
 * present ones. */
bool dlb_slow_link_none(const struct dlb_balance_inputs *s, const struct dlb_load *l);
#endif
