/* The rule `log`, the default: corrects the cost model first, then the weights.
 *
 *     kappa_i     measured busy / predicted busy, mean over rounds (kappa.c). If a kappa moved by more than
 *                 5 % relative to the others, the weights are held in that round, so that nothing is
 *                 corrected twice
 *     links       a corrected bandwidth (links.c) corrects the model too; then times of earlier plans are
 *                 invalid
 *     times       of earlier plans are multiplied by the drift common to all nodes
 *     SE          of busy times and of T: standard error within the round, plus the spread between rounds
 *     weights     change only if the round took longer than the corrected model predicted, and some node's
 *                 waiting is more than 0.02 T from the mean
 *     dead band   node i changes only if |v_i - vbar| > max(2 SE_i, 0.005 T)
 *     gain        one eta for all nodes, initially 0.8; halved (at least 0.1) if a node's significant
 *                 v_i - vbar changes sign; 0.8 again at a change point
 *     update      ln w_i += eta * clip(ln((T - vbar) / (T - v_i)), -ln 2, +ln 2)
 *     reopening   after its end, the search begins again if T jumps, or if a node becomes slower or faster
 *                 than the others, even if T does not show it (kappa.c). The limit of rounds then counts anew
 *     noise       a round whose waiting is noise (is_noisy) changes no weights, keeps the best plan, and ends
 *                 the search only by the limit of rounds
 *     stop        A: max v - vbar <= 0.02 T and B: vbar <= 0.03 T for two rounds; or the plan unchanged for
 *                 N rounds, of which the last corrected no kappa; or the return of an earlier plan (a cycle);
 *                 or the limit of rounds. Keeps the best plan
 *
 * To first order the update is w_i *= 1 + eta (v_i - vbar) / T. With shares of load in proportion to the
 * weights and elasticity e of busy time in share, the spread of the log-weights shrinks by a factor 1 - eta
 * e_min per round if eta e_max <= 1 (Hilbert's projective metric). */
#include "balance/rules.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double least_eta = 0.1, change = 0.05, worse_by = 0.01;
static const double ln2 = 0.69314718055994530942;
static const double test_a_within = 0.02, test_b_within = 0.03, dead_band = 0.005,
		    foreseen = 0.03, noisy_se = 0.05, noisy_part = 1.0 / 3;

/* Standard error of the round's T as a measurement of its plan, including the spread between rounds. */
static double step_se_s(const struct dlb_load *l, const struct dlb_balance *b)
{
	return hypot(l->round_se_s, b->spread * l->round_s);
}

/* True if the same plan (the best one, or the last round's) suddenly takes another time. */
static bool change_point(const struct dlb_load *l, const struct dlb_balance *b)
{
	const struct dlb_balance_round *now = &b->history[b->n_history - 1];
	double was = 0, was_se = 0;

	if (b->n_history > 1 && !strcmp(now[-1].plan_hash, now->plan_hash)) {
		was = now[-1].step_s * now->drift;
		was_se = hypot(now[-1].step_se_s, b->spread * now[-1].step_s) * now->drift;
	} else if (b->best_rounds && !strcmp(b->best_plan_hash, now->plan_hash)) {
		was = b->best_step_s;
		was_se = b->best_se_s;
	}
	return was > 0 && fabs(l->round_s - was) > change * was &&
	       fabs(l->round_s - was) > 3 * hypot(step_se_s(l, b), was_se);
}

/* True if no node's waiting is far from the mean, so that weights cannot improve the plan. (Test A alone
 * would also pass with one slow node among many.) */
static bool is_even(const struct dlb_load *l, const double *v, double vbar)
{
	for (int i = 0; i < l->n_nodes; i++)
		if (l->free_node[i] && fabs(v[i] - vbar) > test_a_within * l->round_s)
			return false;
	return true;
}

/* True if the model predicted this round. Then the remaining waiting belongs to the plan (ops that cannot be
 * split, a narrow graph), and the planner knew it. Weights correct only effects that the model cannot
 * express. */
static bool is_foreseen(const struct dlb_load *l, const struct dlb_balance *b)
{
	double predicted_s = l->predicted_s * b->history[b->n_history - 1].drift;

	return predicted_s > 0 &&
	       l->round_s - predicted_s <= fmax(3 * step_se_s(l, b), foreseen * l->round_s);
}

/* Computes v_i, and their mean and maximum over F. */
static void find_excess(const struct dlb_load *l, double *v, struct dlb_balance_round *r)
{
	double sum = 0;
	int n = 0;

	for (int i = 0; i < l->n_nodes; i++) {
		v[i] = fmax(0, l->round_s - l->busy_s[i] - l->structural_s[i]);
		if (!l->free_node[i])
			continue;
		sum += v[i];
		r->max_excess_s = fmax(r->max_excess_s, v[i]);
		n++;
	}
	r->mean_excess_s = n ? sum / n : 0;
	r->test_a = r->max_excess_s - r->mean_excess_s <= test_a_within * l->round_s;
	r->test_b = r->mean_excess_s <= test_b_within * l->round_s;
}

static void update_weights(const struct dlb_load *l, const double *v, double vbar, struct dlb_balance *b)
{
	double T = l->round_s;
	bool turned = false, acted = false;

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < b->n_nodes; i++) {
			double d = v[i] - vbar, se = hypot(l->busy_se_s[i], step_se_s(l, b));
			if (!l->free_node[i] || fabs(d) <= fmax(2 * se, dead_band * T))
				continue;
			if (pass == 0) {	/* first the gain: one for all nodes */
				turned |= b->last_sign[i] * d < 0;
				b->last_sign[i] = d > 0 ? 1 : -1;
				continue;
			}
			double step = T - v[i] > 0 ? log((T - vbar) / (T - v[i])) : ln2;
			b->weight[i] *= exp(b->eta * fmax(-ln2, fmin(ln2, step)));
			acted = true;
		}
		if (pass == 0 && turned)
			b->eta = fmax(least_eta, b->eta / 2);
	}
	if (acted)
		dlb_balance_rescale(b);
}

/* Updates the best plan, the one with the shortest measured time. A plan that is measured again gets the mean
 * of its rounds since the last one that corrected a node's speed. */
static void note_best(const struct dlb_load *l, struct dlb_balance *b)
{
	if (b->best_rounds && !strcmp(b->best_plan_hash, l->plan_hash)) {
		int n = b->history[b->n_history - 1].held ? 0 : b->best_rounds;

		b->best_rounds = n + 1;
		b->best_se_s = hypot(n * b->best_se_s, step_se_s(l, b)) / (n + 1);
		b->best_step_s += (l->round_s - b->best_step_s) / (n + 1);
		return;
	}
	if (b->best_rounds && l->round_s >= b->best_step_s)
		return;
	b->best_step_s = l->round_s;
	b->best_se_s = step_se_s(l, b);
	b->best_rounds = 1;
	memcpy(b->best_plan_hash, l->plan_hash, sizeof b->best_plan_hash);
	b->best_weight = dlb_arena_array(&b->arena, (size_t)b->n_nodes + 1, sizeof *b->best_weight);
	memcpy(b->best_weight, b->history[b->n_history - 1].weight,
	       (size_t)b->n_nodes * sizeof *b->best_weight);
	dlb_balance_hold_plan(b, l);
}

/* True if this round's plan ran before, with another plan between, since the last change point. */
static bool is_cycle(const struct dlb_balance *b)
{
	const struct dlb_balance_round *now = &b->history[b->n_history - 1];

	if (now->changed || b->n_history < 3 || !strcmp(now[-1].plan_hash, now->plan_hash))
		return false;
	for (int i = b->n_history - 2; i >= 0; i--) {
		if (!strcmp(b->history[i].plan_hash, now->plan_hash))
			return true;
		if (b->history[i].changed || b->history[i].round <= b->first_round)
			break;
	}
	return false;
}

static bool is_worse(const struct dlb_load *l, const struct dlb_balance *b)
{
	return strcmp(b->best_plan_hash, l->plan_hash) && l->round_s > (1 + worse_by) * b->best_step_s &&
	       l->round_s - b->best_step_s > 3 * hypot(step_se_s(l, b), b->best_se_s);
}

/* True if nodes wait for a reason that is neither in the plan nor in a node's speed. There are three signs:
 * the steps differ much within the round; T has jumped but no kappa has; all nodes wait for more than a third
 * of T, though with an uneven load one would be busy, and the corrected model leaves more than a third of T
 * unexplained. The third sign may also come from an error of the model, so after 3 N rounds of a plan it no
 * longer counts. */
static bool is_noisy(const struct dlb_load *l, const double *v, const struct dlb_balance_options *o,
		     const struct dlb_balance *b)
{
	const struct dlb_balance_round *r = &b->history[b->n_history - 1];
	double least = INFINITY;

	if (r->test_b || r->held)
		return false;
	if (l->round_se_s > noisy_se * l->round_s || r->changed)
		return true;
	for (int i = 0; i < l->n_nodes; i++)
		least = l->free_node[i] ? fmin(least, v[i]) : least;
	return l->predicted_s > 0 && b->stable < 3 * o->stable && least > noisy_part * l->round_s &&
	       l->round_s - l->predicted_s * r->drift > noisy_part * l->round_s;
}

static void stop(struct dlb_balance *b, const char *reason)
{
	const size_t n = (size_t)b->n_nodes;

	b->converged = b->keep = true;
	b->reason = reason;
	b->expected_s = b->best_step_s;
	b->settled = memcpy(dlb_arena_array(&b->arena, n + 1, sizeof *b->settled), b->kappa_mean,
			    n * sizeof *b->settled);
}

/* Rounds of the present plan in a row, without the noisy ones. */
static int quiet_rounds(const struct dlb_balance *b)
{
	int n = 0;

	for (int i = 0; i < b->stable && i < b->n_history; i++)
		n += !b->history[b->n_history - 1 - i].noisy;
	return n;
}

/* True if this round is the last. kept: the plan was held, so its return is no cycle. */
static bool stops(const struct dlb_balance_options *o, struct dlb_balance *b, bool kept)
{
	const struct dlb_balance_round *r = &b->history[b->n_history - 1];
	bool balanced = r->test_a && r->test_b;

	if (r->noisy) {
		if (dlb_balance_rounds(b) >= o->max_rounds)
			stop(b, "rounds");
	} else if (!r->held && balanced && b->n_history > 1 && r[-1].test_a && r[-1].test_b && !r[-1].held &&
	    !r->changed) {
		stop(b, "balanced");
	} else if (!r->held && quiet_rounds(b) >= o->stable) { /* the planner chose the same plan N times */
		stop(b, r->test_b ? "unchanged" : "floor");
	} else if (!kept && is_cycle(b)) {
		stop(b, "cycle");
	} else if (dlb_balance_rounds(b) >= o->max_rounds) {
		stop(b, "rounds");
	}
	return b->converged;
}

int dlb_rule_log(const struct dlb_load *l, const struct dlb_balance_options *o, struct dlb_balance *b,
		 struct dlb_error *err)
{
	struct dlb_balance_round *r = dlb_balance_begin(b, l, "log");
	double *v = dlb_arena_array(&b->arena, (size_t)b->n_nodes + 1, sizeof *v);
	bool kept = b->keep, reopened;

	(void)err;
	r->held = dlb_balance_correct_kappa(l, b) || l->links_changed || l->samples_changed;
	b->best_step_s *= r->drift;
	b->best_se_s *= r->drift;
	r->changed = l->links_changed || change_point(l, b) || (b->converged && dlb_balance_unsettled(l, b));
	reopened = b->converged && r->changed;
	if (reopened) {
		b->stable = 1;
		b->first_round = b->round;
	}
	if (r->changed)		/* before the end of a search the round is treated as noise */
		dlb_balance_forget(b);
	find_excess(l, v, r);
	note_best(l, b);
	b->expected_s = 0;
	if (b->converged) {		/* a balanced run keeps its plan until something changes */
		b->expected_s = b->best_step_s;
		return 0;
	}
	b->keep = false;
	b->reason = NULL;
	r->noisy = !reopened && is_noisy(l, v, o, b);
	if (stops(o, b, kept))
		return 0;
	if (b->hold > 0) {
		b->hold--;
		b->keep = true;
	} else if (!r->held && is_worse(l, b)) {
		r->rolled_back = b->keep = true;
		memcpy(b->weight, b->best_weight, (size_t)b->n_nodes * sizeof *b->weight);
		b->eta = fmax(least_eta, b->eta / 2);
		b->hold = b->hold_off;
		b->hold_off *= 2;
	} else if (!r->noisy && !r->held && !is_foreseen(l, b) && !is_even(l, v, r->mean_excess_s)) {
		update_weights(l, v, r->mean_excess_s, b);
	}
	if (r->noisy) {
		b->keep = true;
		b->reason = "noise";
	}
	if (b->keep)
		b->expected_s = b->best_step_s;
	return 0;
}
