/* The rule `patent`: steps S5 and S6 of the method exactly as published, for comparison.
 *
 *     balanced   max u - mean u <= 0.02 T: weights and plan stay
 *     update     w_i *= 1 + u_i / sum(u) - 1/n, rescaled to sum n (unchanged if no node waits)
 *     stop       after N rounds with the same plan
 *
 * The update is not damped, so it may never settle. A round that returns to an earlier plan or step time,
 * with another between, gets the reason "cycle", which has no other effect.
 *
 * u_i are raw waiting times of all nodes. The cost model is not corrected, and no plan is rolled back. */
#include "balance/rules.h"
#include <math.h>
#include <string.h>

static const double balanced_within = 0.02, same_time = 0.005;

static bool same_plan(const struct dlb_balance_round *a, const struct dlb_balance_round *b)
{
	return !strcmp(a->plan_hash, b->plan_hash);
}

static bool near(const struct dlb_balance_round *a, const struct dlb_balance_round *b, double within)
{
	return fabs(a->step_s - b->step_s) <= within * a->step_s;
}

/* True if this round returns to an earlier one: to the same plan, or to the same time after different plans
 * with different times. */
static bool cycles(const struct dlb_balance *b)
{
	const struct dlb_balance_round *h = b->history;
	int now = b->n_history - 1;

	while (now > 0 && same_plan(&h[now - 1], &h[now]))
		now--;
	for (int i = 0; i < now; i++) {
		bool left = false;
		for (int k = i + 1; k < now; k++)
			left |= !near(&h[i], &h[k], balanced_within) && !same_plan(&h[i], &h[k]);
		if (same_plan(&h[i], &h[now]) || (left && near(&h[i], &h[now], same_time)))
			return true;
	}
	return false;
}

int dlb_rule_patent(const struct dlb_load *l, const struct dlb_balance_options *o, struct dlb_balance *b,
		    struct dlb_error *err)
{
	struct dlb_balance_round *r = dlb_balance_begin(b, l, "patent");
	double sum = 0, most = 0, mean;
	int n = b->n_nodes;

	(void)err;
	for (int i = 0; i < n; i++) {
		double u = fmax(0, l->round_s - l->busy_s[i]);
		sum += u;
		most = fmax(most, u);
	}
	mean = sum / n;
	r->max_excess_s = most;
	r->mean_excess_s = mean;
	r->test_a = most - mean <= balanced_within * l->round_s;
	if (!r->test_a && sum > 0) {
		for (int i = 0; i < n; i++)
			b->weight[i] *= 1 + fmax(0, l->round_s - l->busy_s[i]) / sum - 1.0 / n;
		dlb_balance_rescale(b);
	}
	b->best_step_s = l->round_s;		/* the last plan is the one kept at the end */
	b->converged = b->stable >= o->stable || dlb_balance_rounds(b) >= o->max_rounds;
	b->reason = b->stable >= o->stable ? "unchanged" :
		    cycles(b)              ? "cycle" :
		    b->converged           ? "rounds" :
					     NULL;
	b->keep = b->converged;
	if (b->converged)
		dlb_balance_hold_plan(b, l);
	return 0;
}
