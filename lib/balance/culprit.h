/* Which node or link makes the others wait in a round, and the likely cause (balance.h). */
#ifndef DLB_BALANCE_CULPRIT_H
#define DLB_BALANCE_CULPRIT_H
#include "balance/balance.h"

/* Sets b->culprit, of the round that s has the report and l the load of; b: the balance after it. Slow nodes
 * are found in the round that corrects their speed, data and links in every round. */
void dlb_culprit_find(const struct dlb_balance_inputs *s, const struct dlb_load *l, struct dlb_balance *b);
/* slow_link.c: sets *c, with names of the cluster, if a slow link explains the round and the speeds of all nodes
 * do not. predicted_s: T by the costs and speeds that the plan was made with. */
void dlb_slow_link_find(const struct dlb_balance_inputs *s, const struct dlb_load *l, double predicted_s,
			struct dlb_culprit *c);
#endif
