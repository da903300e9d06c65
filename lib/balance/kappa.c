/* Corrects the cost model: estimates kappa_i from the measurements of each round.
 *
 * Rounds with the same plan differ by more than the steps within a round do (because of a neighbour on the
 * host, or of another placement in memory): by the spread s, which is estimated here too. Let m_i = measured
 * busy / predicted busy by the costs alone, k_i the mean so far over n_i rounds, N the number of nodes
 * measured in this round, and e_i the relative standard error of busy_i within it:
 *
 *     drift    c = median over the nodes of ln m_i - ln k_i. A common change of clock moves no load, so it
 *              is applied at once to every k_i, also of nodes without ops (their relative speed stays), and
 *              to the measured times of earlier plans
 *     mean     d_i = ln m_i - ln k_i - c;  ln k_i += c + d_i / (n_i + 1), n_i <= 4
 *     jump     |d_i| > max(0.05, 3 sqrt((s^2 + e_i^2) (1 + 1/n_i) (1 - 1/N))): k_i = m_i, n_i = 1
 *     spread   E d_i^2 = (s^2 + e_i^2) (1 + 1/n_i) (1 - 1/N): s^2 is the mean over rounds of its estimates
 *              from this equation, at least 0. The initial value counts as one round. A jump does not count,
 *              because it may be a change of speed; right after another jump it counts as the largest
 *              deviation that is no jump
 *
 *     settled  after the search has ended, with k_i = q_i, it begins again if a node differs from the others:
 *              |ln k_i - ln q_i - median| > max(0.05, 5 sqrt((s^2 + e_i^2) (1/n_i + 1/2) (1 - 1/N))). This
 *              also finds a sum of many small changes, and a faster node for which no other node waits
 *
 * kappa_i is k_i, except that nodes of a kind with k equal within their noise get their geometric mean. */
#include "balance/rules.h"
#include "util/stats.h"
#include <math.h>
#include <stdlib.h>

static const double kappa_moved = 0.05, most_rounds = 4, unsettled_se = 5;

struct kappa { double deviation, value, se; int node, kind; };	/* deviation: d_i; se: relative */

/* Collects the nodes that computed in this round, and the drift. */
static int measure(const struct dlb_load *l, const struct dlb_balance *b, struct kappa *k, double *ln_drift)
{
	double *off = dlb_xcalloc((size_t)b->n_nodes + 1, sizeof *off);
	int n = 0;

	for (int i = 0; i < b->n_nodes; i++) {
		if (!(l->predicted_busy_s[i] > 0) || !(l->busy_s[i] > 0))
			continue;
		off[n] = log(l->busy_s[i] / l->predicted_busy_s[i] / b->kappa_mean[i]);
		k[n] = (struct kappa){ .deviation = off[n], .se = l->busy_se_s[i] / l->busy_s[i], .node = i,
				       .kind = l->kind ? l->kind[i] : 0 };
		n++;
	}
	*ln_drift = n ? dlb_quantile(off, n, 0.5) : 0;
	for (int i = 0; i < n; i++)
		k[i].deviation -= *ln_drift;
	free(off);
	return n;
}

/* Expected d_i^2 for a spread of 1: deviation from a mean of n_i rounds, N nodes, common drift removed. */
static double deviation2_of_one(const struct dlb_balance *b, int node, int n)
{
	return n > 1 ? (1 + 1 / b->kappa_rounds[node]) * (1 - 1.0 / n) : 0;
}

static double least_jump(const struct dlb_balance *b, const struct kappa *k, int n)
{
	return fmax(kappa_moved, 3 * hypot(b->spread, k->se) * sqrt(deviation2_of_one(b, k->node, n)));
}

/* Estimates s from this round's deviations. */
static double learn_spread(const struct dlb_balance *b, const struct kappa *k, int n, int *rounds)
{
	double sum = 0, s2 = b->spread * b->spread;
	int known = 0;

	for (int i = 0; i < n; i++) {
		if (!(b->kappa_rounds[k[i].node] > 0) || n < 2)
			continue;
		double jump = least_jump(b, &k[i], n), d = fmin(fabs(k[i].deviation), jump);
		if (fabs(k[i].deviation) > jump && b->kappa_rounds[k[i].node] > 1)
			continue;
		sum += d * d / deviation2_of_one(b, k[i].node, n) - k[i].se * k[i].se;
		known++;
	}
	*rounds = b->spread_rounds + (known > 0);
	return known ? sqrt(fmax(0, s2 + (sum / known - s2) / *rounds)) : b->spread;
}

static void take(struct dlb_balance *b, const struct kappa *k, int n, double ln_drift)
{
	double *mean = &b->kappa_mean[k->node], *rounds = &b->kappa_rounds[k->node], gain = 1;

	if (*rounds > 0 && fabs(k->deviation) <= least_jump(b, k, n)) {
		*rounds = fmin(*rounds + 1, most_rounds);
		gain = 1 / *rounds;
	} else {
		*rounds = 1;
	}
	*mean *= exp(ln_drift + gain * k->deviation);
}

static int by_kind_then_value(const void *a, const void *b)
{
	const struct kappa *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->value < y->value ? -1 : x->value > y->value;
}

static bool alike(const struct kappa *a, const struct kappa *b)
{
	return a->kind == b->kind && b->value <= (1 + fmax(kappa_moved, 3 * hypot(a->se, b->se))) * a->value;
}

/* Nodes of a kind with kappas within 5 %, or within their noise, are equal: they share one kappa, so that
 * noise moves no work between them. */
static void pool(struct kappa *k, int n)
{
	qsort(k, (size_t)n, sizeof *k, by_kind_then_value);
	for (int i = 0, end; i < n; i = end) {
		double sum = 0;
		for (end = i; end < n && alike(&k[i], &k[end]); end++)
			sum += log(k[end].value);
		for (int j = i; j < end && end - i > 1; j++)
			k[j].value = exp(sum / (end - i));
	}
}

bool dlb_balance_unsettled(const struct dlb_load *l, const struct dlb_balance *b)
{
	double *off, median;
	bool moved = false;
	int n = 0;

	if (!b->settled)
		return false;
	off = dlb_xcalloc((size_t)b->n_nodes + 1, sizeof *off);
	for (int i = 0; i < b->n_nodes; i++)
		if (l->predicted_busy_s[i] > 0 && l->busy_s[i] > 0)
			off[n++] = log(b->kappa_mean[i] / b->settled[i]);
	median = n ? dlb_quantile(off, n, 0.5) : 0;
	for (int i = 0; i < b->n_nodes && n; i++) {
		if (!(l->predicted_busy_s[i] > 0) || !(l->busy_s[i] > 0))
			continue;
		double noise = hypot(b->spread, l->busy_se_s[i] / l->busy_s[i]) *
			       sqrt((1 / fmax(1, b->kappa_rounds[i]) + 0.5) * (1 - 1.0 / n));
		moved |= fabs(log(b->kappa_mean[i] / b->settled[i]) - median) >
			 fmax(kappa_moved, unsettled_se * noise);
	}
	free(off);
	return moved;
}

double dlb_balance_kappa_se(const struct dlb_balance *b, int node, double busy_se)
{
	return hypot(b->spread, busy_se) / sqrt(fmax(1, b->kappa_rounds[node]));
}

bool dlb_balance_correct_kappa(const struct dlb_load *l, struct dlb_balance *b)
{
	struct kappa *k = dlb_arena_array(&b->arena, (size_t)b->n_nodes + 1, sizeof *k);
	double ln_drift, spread;
	int n = measure(l, b, k, &ln_drift), rounds;
	bool moved = false;

	spread = learn_spread(b, k, n, &rounds);
	for (int i = 0; i < n; i++)
		take(b, &k[i], n, ln_drift);
	b->spread = spread;
	b->spread_rounds = rounds;
	for (int i = 0; i < n; i++) {
		k[i].value = b->kappa_mean[k[i].node];
		k[i].se = dlb_balance_kappa_se(b, k[i].node, k[i].se);
	}
	pool(k, n);
	b->history[b->n_history - 1].drift = exp(ln_drift);
	for (int i = 0; i < b->n_nodes && n; i++)
		if (!(l->predicted_busy_s[i] > 0)) {
			b->kappa_mean[i] *= exp(ln_drift);
			b->kappa[i] *= exp(ln_drift);
		}
	for (int i = 0; i < n; i++) {
		moved |= fabs(k[i].value / b->kappa[k[i].node] * exp(-ln_drift) - 1) > kappa_moved;
		b->kappa[k[i].node] = k[i].value;
	}
	return moved;
}
