/* Internal to lib/balance: functions shared by the rules. */
#ifndef DLB_BALANCE_RULES_H
#define DLB_BALANCE_RULES_H
#include "balance/balance.h"

#define DLB_ETA 0.8			/* initial gain, also after a change point */
#define DLB_LEAST_WEIGHT 1e-3

int dlb_rule_log(const struct dlb_load *l, const struct dlb_balance_options *o, struct dlb_balance *b,
		 struct dlb_error *err);
int dlb_rule_patent(const struct dlb_load *l, const struct dlb_balance_options *o, struct dlb_balance *b,
		    struct dlb_error *err);

/* Starts a round: adds a row of history with the present weights and counts equal plans. After a
 * change of rule, weights start equal. */
struct dlb_balance_round *dlb_balance_begin(struct dlb_balance *b, const struct dlb_load *l,
					    const char *rule);
/* Rounds of the present search: since the change point that began it. */
static inline int dlb_balance_rounds(const struct dlb_balance *b) { return b->round - b->first_round + 1; }
/* Forgets measurements of plans (best one, gain, signs); keeps weights, kappa and history. */
void dlb_balance_forget(struct dlb_balance *b);
/* Corrects kappa and s by the round's busy times; sets the history's drift. Returns true if a kappa moved by
 * more than 5 % relative to the others (kappa.c). */
bool dlb_balance_correct_kappa(const struct dlb_load *l, struct dlb_balance *b);
/* Corrects the bandwidths of links, in b and in s->cluster, by the round, whose slow links are in b->culprit
 * (links.c). Returns true if one changed; b->links_told then names it. */
bool dlb_balance_correct_links(struct dlb_balance_inputs *s, const struct dlb_load *l, struct dlb_balance *b);
/* Relative standard error of kappa. busy_se: relative standard error of the node's busy time within the last
 * round. */
double dlb_balance_kappa_se(const struct dlb_balance *b, int node, double busy_se);
/* True if, since the search ended, the kappa of a node has moved relative to the others by more than 5 % and
 * by more than its noise (kappa.c). */
bool dlb_balance_unsettled(const struct dlb_load *l, const struct dlb_balance *b);
/* Sets best_placement to this round's placement. */
void dlb_balance_hold_plan(struct dlb_balance *b, const struct dlb_load *l);
/* Raises weights to at least 1e-3, then scales their sum to n. */
void dlb_balance_rescale(struct dlb_balance *b);
#endif
