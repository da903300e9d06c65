/* What the rules share; not for others. */
#ifndef DLB_BALANCE_RULES_H
#define DLB_BALANCE_RULES_H
#include "balance/balance.h"

#define DLB_ETA 0.8			/* the gain at first, and after a change point */
#define DLB_LEAST_WEIGHT 1e-3

int dlb_rule_log(const struct dlb_load *l, const struct dlb_balance_options *o, struct dlb_balance *b, struct dlb_error *err);
int dlb_rule_patent(const struct dlb_load *l, const struct dlb_balance_options *o, struct dlb_balance *b, struct dlb_error *err);

/* Starts a round: a new row of history with the weights in force, the count of equal plans. A change of
 * rule begins from equal weights. */
struct dlb_balance_round *dlb_balance_begin(struct dlb_balance *b, const struct dlb_load *l, const char *rule);
/* Forgets what was learnt of plans (best one, gain, signs), not weights, kappa and history. */
void dlb_balance_forget(struct dlb_balance *b);
/* Corrects kappa, and s, by the round's busy times; sets the history's drift. Returns whether some kappa moved by more
 * than 5 % against the others (kappa.c). */
bool dlb_balance_mend(const struct dlb_load *l, struct dlb_balance *b);
/* Relative standard error of kappa; busy_se: of the node's busy time within the last round, relative. */
double dlb_balance_kappa_se(const struct dlb_balance *b, int node, double busy_se);
/* best_placement = this round's. */
void dlb_balance_hold_plan(struct dlb_balance *b, const struct dlb_load *l);
/* w_i >= 1e-3, then sum = n. */
void dlb_balance_rescale(struct dlb_balance *b);
#endif
