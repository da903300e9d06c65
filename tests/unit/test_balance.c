/* balance: both rules in a simulated world, many seeds; formulas computed by hand; change points, roll-backs,
 * cycles; reading and writing the section, and bad sections.
 *
 * The world: nodes work independently, up to a barrier, on a load of many equal units. A planner gives node i
 * units in proportion to weight_i / (model_i kappa_i); the true time is truth_i seconds per unit, and more
 * beyond a cliff (memory that spills). A placement is the number of units of each node. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balance/rules.h"
#include "util/hash.h"
#include "util/rng.h"
#include "check.h"

enum { UNITS = 4000, MOST = 64, SEEDS = 200 };

struct world {
	int n;
	double truth[MOST], model[MOST], cliff[MOST];	/* units beyond cliff cost 3 times as much; 0: none */
	bool model_knows;	/* false: the model's times are those measured, kappa stays 1 */
	double noise;	/* relative, of a round's busy times; visible in its steps */
	double spread, drift;	/* relative, between rounds, invisible in steps: of one node; of all */
	struct dlb_rng rng;
	int share[MOST];				/* the current plan */
};

static const struct dlb_balance_options usual = { .stable = 3, .max_rounds = 60 };

static void place(struct world *w, const struct dlb_balance *b)
{
	double part[MOST], sum = 0;
	int left = UNITS;

	if ((b->keep || b->converged) && b->best_placement) {
		memcpy(w->share, b->best_placement, sizeof *w->share * (size_t)w->n);
		return;
	}
	for (int i = 0; i < w->n; i++)
		sum += part[i] = b->weight[i] / ((w->model_knows ? w->model[i] : 1) * b->kappa[i]);
	for (int i = 0; i < w->n; i++)
		left -= w->share[i] = (int)floor(part[i] / sum * UNITS);
	for (int i = 0; left > 0; i = (i + 1) % w->n, left--)
		w->share[i]++;
}

static double true_busy_s(const struct world *w, int i)
{
	double over = w->cliff[i] > 0 ? fmax(0, w->share[i] - w->cliff[i]) : 0;

	return w->truth[i] * (w->share[i] + 2 * over);
}

static double true_round_s(const struct world *w)
{
	double most = 0;

	for (int i = 0; i < w->n; i++)
		most = fmax(most, true_busy_s(w, i));
	return most;
}

/* With cliffs: bisect on T, units that fit in T. */
static double ideal_s(const struct world *w)
{
	double low = 0, high = 1e9;

	for (int k = 0; k < 200; k++) {
		double T = (low + high) / 2, units = 0;
		for (int i = 0; i < w->n; i++) {
			double u = T / w->truth[i];
			if (w->cliff[i] > 0 && u > w->cliff[i])
				u = w->cliff[i] + (u - w->cliff[i]) / 3;
			units += u;
		}
		if (units < UNITS)
			low = T;
		else
			high = T;
	}
	return high;
}

static double normal(struct dlb_rng *r)
{
	return sqrt(-2 * log(1 - dlb_rng_uniform(r))) * cos(6.283185307179586 * dlb_rng_uniform(r));
}

static void run(struct world *w, const struct dlb_balance *b, struct dlb_load *l, double *room)
{
	double level = exp(w->drift * normal(&w->rng));

	memset(l, 0, sizeof *l);
	l->n_nodes = w->n;
	l->usual_spread = w->spread > 0 ? 0.04 : 0;
	l->busy_s = room;
	l->busy_se_s = room + MOST;
	l->predicted_busy_s = room + 2 * MOST;
	l->structural_s = room + 3 * MOST;
	l->free_node = (bool *)(room + 4 * MOST);
	l->placement = w->share;
	l->n_ops = w->n;
	l->steps = 10;
	for (int i = 0; i < w->n; i++) {
		double e = w->noise * normal(&w->rng) + w->spread * normal(&w->rng);
		l->busy_s[i] = level * true_busy_s(w, i) * fmax(0.5, 1 + e);
		l->busy_se_s[i] = w->noise * l->busy_s[i];
		l->predicted_busy_s[i] = w->model_knows ? w->model[i] * w->share[i] : l->busy_s[i];
		l->structural_s[i] = 0;
		l->free_node[i] = w->share[i] > 0;
		l->predicted_s = w->model_knows ?
					 fmax(l->predicted_s, b->kappa[i] * w->model[i] * w->share[i]) :
					 0;
		if (l->busy_s[i] > l->round_s) {
			l->round_s = l->busy_s[i];
			l->round_se_s = l->busy_se_s[i];
		}
	}
	dlb_hash_hex(dlb_hash_bytes(DLB_HASH_INIT, w->share, sizeof *w->share * (size_t)w->n), l->plan_hash);
}

/* Rounds until the true round time is first within 5 % of ideal (61: never); *last: the ratio at the end. */
static int loop(struct world *w, const struct dlb_rule *rule, const struct dlb_balance_options *o,
		double *last, int *end)
{
	double room[5 * MOST], ideal = ideal_s(w);
	struct dlb_balance b;
	struct dlb_load l;
	int first = 61;

	dlb_balance_init(&b, w->n);
	for (*end = 0; *end < o->max_rounds && !b.converged; ++*end) {
		place(w, &b);
		if (true_round_s(w) <= 1.05 * ideal && first > *end)
			first = *end;
		run(w, &b, &l, room);
		assert(!rule->update(&l, o, &b, NULL));
		double sum = 0;
		for (int i = 0; i < w->n; i++) {
			assert(IS(b.weight[i], >=, 1e-4) && isfinite(b.weight[i]) && IS(b.kappa[i], >, 0));
			sum += b.weight[i];
		}
		assert(IS(fabs(sum - w->n), <, 1e-9 * w->n));
	}
	place(w, &b);
	if (true_round_s(w) <= 1.05 * ideal && first > *end)
		first = *end;
	*last = true_round_s(w) / ideal;
	dlb_balance_release(&b);
	return first;
}

enum setting { SPREAD, NOISY, CLIFF, ONE_SLOW, KNOWN, ALIKE };
static const char *const setting_name[] = { "8 nodes, 5x spread",
					    "the same, 5% noise",
					    "cost cliff",
					    "64 nodes, one 2x slow",
					    "8 nodes, wrong model corrected",
					    "8 nodes alike, 1% noise" };

static void set_up(struct world *w, enum setting s, uint64_t seed)
{
	memset(w, 0, sizeof *w);
	dlb_rng_init(&w->rng, seed);
	w->n = s == ONE_SLOW ? 64 : 8;
	for (int i = 0; i < w->n; i++) {
		w->truth[i] = s == ONE_SLOW ? (i == 0 ? 2 : 1) :
			      s == ALIKE    ? 1 :
					      1 + 4 * dlb_rng_uniform(&w->rng);
		w->model[i] = 1;
	}
	if (s == CLIFF)		/* the fastest node spills beyond half of what it would get */
		for (int i = 0; i < w->n; i++)
			w->cliff[i] = i == 0 ? 600 : 0;
	if (s == CLIFF)
		w->truth[0] = 1;
	w->model_knows = s == KNOWN;
	w->noise = s == NOISY ? 0.05 / sqrt(10) : s == ALIKE ? 0.01 : 0;
}

/* How often and how soon the rule comes within 5 %, and its result at the end. */
static void many(const struct dlb_rule *rule, enum setting s, int *missed, int *median, double *worst_end)
{
	int count[62] = { 0 }, seen = 0;

	*missed = 0;
	*worst_end = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w;
		double last;
		int end;
		set_up(&w, s, seed);
		int first = loop(&w, rule, &usual, &last, &end);
		count[first]++;
		*missed += last > 1.05;
		*worst_end = fmax(*worst_end, last);
	}
	for (*median = 0; *median < 61 && (seen += count[*median]) * 2 < SEEDS; ++*median)
		;
	printf("%-7s %-28s 5%% after %2d rounds (median), ends outside in %3d of %d, worst end %.3f\n",
	       rule->name, setting_name[s], *median, *missed, SEEDS, *worst_end);
}

static void test_world(void)
{
	const struct dlb_rule *log_rule = dlb_rule_find("log"), *patent = dlb_rule_find("patent");
	int missed, median;
	double worst;

	assert(log_rule && patent && !dlb_rule_find("lag"));
	for (const struct dlb_rule *r = dlb_rules; r->name; r++)
		assert(IS(dlb_rule_find(r->name), ==, r) && r->summary && r->update);
	many(log_rule, SPREAD, &missed, &median, &worst);
	assert(IS(missed, ==, 0) && IS(median, <=, 3));
	many(log_rule, NOISY, &missed, &median, &worst);
	assert(IS(missed, <=, SEEDS / 20) && IS(median, <=, 4));
	many(log_rule, CLIFF, &missed, &median, &worst);
	assert(IS(missed, <=, SEEDS / 20) && IS(median, <=, 6));
	many(log_rule, ONE_SLOW, &missed, &median, &worst);
	assert(IS(missed, ==, 0) && IS(median, <=, 3));
	many(log_rule, KNOWN, &missed, &median, &worst);
	assert(IS(missed, ==, 0) && IS(median, <=, 1));
	many(log_rule, ALIKE, &missed, &median, &worst);
	assert(IS(missed, ==, 0) && IS(median, ==, 0));
	/* A weakness of the plain rule: its test says balanced at once although the round takes 1.98 times
	 * the ideal. */
	many(patent, ONE_SLOW, &missed, &median, &worst);
	assert(IS(missed, ==, SEEDS) && IS(worst, >, 1.9));
	many(patent, SPREAD, &missed, &median, &worst);
}

/* Equal nodes with 1 % noise and times 15 % off the profile: no unit of work moves in 20 rounds (except
 * events of 3 sigma, which the gate would refuse); a node that is slowed down in round 20 gets less work at
 * once. */
static void test_alike(void)
{
	const struct dlb_balance_options ever = { .stable = 1000, .max_rounds = 1000 };
	const struct dlb_rule *r = dlb_rule_find("log");
	double room[5 * MOST];
	int moved = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w = { .n = 4, .model_knows = true, .noise = 0.01 };
		struct dlb_balance b;
		struct dlb_load l;
		bool equal = true;
		dlb_rng_init(&w.rng, seed);
		for (int i = 0; i < w.n; i++) {
			w.truth[i] = 1.15;
			w.model[i] = 1;
		}
		dlb_balance_init(&b, w.n);
		for (int round = 0; round < 22; round++) {
			b.converged = b.keep = false;	/* ask the planner every time */
			w.truth[2] = round < 20 ? 1.15 : 2.3;
			place(&w, &b);
			for (int i = 0; i < w.n && round <= 20; i++)
				equal &= w.share[i] == UNITS / w.n;
			run(&w, &b, &l, room);
			assert(!r->update(&l, &ever, &b, NULL));
		}
		moved += !equal;
		assert(IS(w.share[2], <, UNITS / w.n * 2 / 3));
		dlb_balance_release(&b);
	}
	printf("equal nodes, 20 rounds: something moved in %d of %d runs\n", moved, SEEDS);
	assert(IS(moved, <=, SEEDS / 50));
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Hosts on which rounds of one plan differ by much more than the steps of a round show: 8 % per node, and 20
 * % for all nodes together. Two and four nodes whose speeds the model does not know. The spread is estimated,
 * and the plan stays the same near the best (the test keeps it if the gain is below the noise of kappa, as
 * the gate does). */
static void test_spread(void)
{
	const struct dlb_rule *r = dlb_rule_find("log");
	double room[5 * MOST], learnt[SEEDS], ends[SEEDS];
	int opened = 0;

	for (int n = 2; n <= 4; n += 2) {
		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			struct world w = {
				.n = n, .model_knows = true, .noise = 0.01, .spread = 0.08, .drift = 0.2
			};
			struct dlb_balance b;
			struct dlb_load l;
			dlb_rng_init(&w.rng, seed);
			for (int i = 0; i < n; i++) {
				w.truth[i] = 1 + i;
				w.model[i] = 1;
			}
			dlb_balance_init(&b, n);
			for (int round = 0; round < 12; round++) {
				place(&w, &b);
				run(&w, &b, &l, room);
				assert(!r->update(&l, &usual, &b, NULL));
				b.keep |= round > 4;		/* the gate sees no more gains */
				opened += round > 0 && b.history[round].changed;
			}
			place(&w, &b);
			learnt[seed - 1] = b.spread;
			ends[seed - 1] = true_round_s(&w) / ideal_s(&w);
			dlb_balance_release(&b);
		}
		qsort(learnt, SEEDS, sizeof *learnt, by_size);
		qsort(ends, SEEDS, sizeof *ends, by_size);
		printf("%d nodes, rounds spread by 8 %% and drift by 20 %%: spread learnt %.3f (median; %.3f "
		       "to %.3f for nine of ten), "
		       "end %.3f (median; nine of ten below %.3f), changes seen in %d of %d rounds\n",
		       n, learnt[SEEDS / 2], learnt[SEEDS / 20], learnt[SEEDS - SEEDS / 20], ends[SEEDS / 2],
		       ends[SEEDS * 9 / 10], opened, SEEDS * 11);
		assert(IS(learnt[SEEDS / 2], >, 0.05) && IS(learnt[SEEDS / 2], <, 0.11));
		assert(IS(ends[SEEDS / 2], <, 1.06) && IS(ends[SEEDS * 9 / 10], <, 1.15));
		assert(IS(opened, <, SEEDS * 11 / 20));
		opened = 0;
	}
}

static struct dlb_load two(double *room, double T, double busy0, double busy1, const char *hash,
			   const int *placement)
{
	struct dlb_load l = { .n_nodes = 2,
			      .round_s = T,
			      .busy_s = room,
			      .busy_se_s = room + 2,
			      .predicted_busy_s = room + 4,
			      .structural_s = room + 6,
			      .free_node = (bool *)(room + 8),
			      .placement = placement,
			      .n_ops = placement ? 2 : 0,
			      .steps = 10,
			      .bound_s = 1 };

	memset(room, 0, 10 * sizeof *room);
	room[0] = room[4] = busy0;
	room[1] = room[5] = busy1;
	l.free_node[0] = l.free_node[1] = true;
	snprintf(l.plan_hash, sizeof l.plan_hash, "%s", hash);
	return l;
}

static bool near(double a, double b)
{
	return fabs(a - b) <= 1e-12 * fabs(b);
}

static void test_formulas(void)
{
	const struct dlb_rule *log_rule = dlb_rule_find("log"), *patent = dlb_rule_find("patent");
	struct dlb_balance b;
	double room[10];
	int placement[2] = { 0, 1 };

	/* patent: u = 0, 4; sum 4; w0 *= 1 + 0 - 1/2, w1 *= 1 + 1 - 1/2 */
	dlb_balance_init(&b, 2);
	struct dlb_load l = two(room, 10, 10, 6, "a", placement);
	assert(!patent->update(&l, &usual, &b, NULL));
	assert(near(b.weight[0], 0.5) && near(b.weight[1], 1.5) && IS(b.kappa[0], ==, 1) && !b.converged &&
	       IS(b.round, ==, 1));
	/* balanced (max u - mean u = 0.15 <= 0.02 T): weights stay; the same plan for three rounds ends it */
	for (int i = 0; i < 3; i++) {
		l = two(room, 10, 10, 9.7, "b", placement);
		assert(!patent->update(&l, &usual, &b, NULL));
		assert(near(b.weight[0], 0.5) && b.history[i + 1].test_a && IS(b.converged, ==, (i == 2)));
	}
	assert(SAME(b.reason, "unchanged") && b.keep && b.best_placement && IS(b.best_placement[1], ==, 1));
	dlb_balance_release(&b);

	/* patent: back at the plan of an earlier round (a), then at the time of one (e and g, f in between):
	 * only the reason changes; the limit of rounds ends the search with that reason */
	static const struct { const char *plan; double step_s; const char *reason;
	} turn[] = {
		{ "a", 10, NULL },       { "b", 9.5, NULL },    { "a", 10, "cycle" },
		{ "b", 9.5, "cycle" },   { "b", 9.5, "cycle" }, { "e", 12, NULL },
		{ "d", 10.04, "cycle" }, { "f", 11, NULL },     { "g", 12.05, "cycle" },
	};
	double w = 1, other = 1, scale;
	dlb_balance_init(&b, 2);
	for (size_t i = 0; i < sizeof turn / sizeof *turn; i++) {
		const struct dlb_balance_options nine = { .stable = 3, .max_rounds = 9 };
		l = two(room, turn[i].step_s, turn[i].step_s, turn[i].step_s - 1, turn[i].plan, placement);
		assert(!patent->update(&l, &nine, &b, NULL));
		assert(turn[i].reason ? b.reason && !strcmp(b.reason, turn[i].reason) : !b.reason);
		w = fmax(w * 0.5, 1e-3);
		other *= 1.5;
		scale = 2 / (w + other);
		w *= scale;
		other *= scale;
		assert(near(b.weight[0], w) && near(b.weight[1], other));
		assert(IS(b.converged, ==, (i == 8)) && IS(b.keep, ==, b.converged));
	}
	dlb_balance_release(&b);

	/* patent: no node waits */
	dlb_balance_init(&b, 2);
	l = two(room, 10, 10, 10, "a", placement);
	assert(!patent->update(&l, &usual, &b, NULL) && IS(b.weight[0], ==, 1) && IS(b.weight[1], ==, 1));
	dlb_balance_release(&b);

	/* log: v = 0, 4; vbar = 2; ln w1 += 0.8 ln(8/6), ln w0 += 0.8 ln(8/10) */
	dlb_balance_init(&b, 2);
	l = two(room, 10, 10, 6, "a", placement);
	assert(!log_rule->update(&l, &usual, &b, NULL));
	double w0 = pow(8.0 / 10, 0.8), w1 = pow(8.0 / 6, 0.8);
	assert(near(b.weight[0], 2 * w0 / (w0 + w1)) && near(b.weight[1], 2 * w1 / (w0 + w1)) &&
	       IS(b.eta, ==, 0.8));
	assert(near(b.history[0].mean_excess_s, 2) && !b.history[0].test_a && !b.history[0].test_b &&
	       !b.history[0].held);
	/* the sign turns: the gain is halved first */
	l = two(room, 10.2, 6, 10.2, "b", placement);
	b.best_step_s = 20;
	assert(!log_rule->update(&l, &usual, &b, NULL) && near(b.eta, 0.4));
	dlb_balance_release(&b);

	/* kappa: a node twice as slow; weights do not change, kappa changes at once; the structural wait is
	 * subtracted */
	dlb_balance_init(&b, 2);
	l = two(room, 12, 10, 5, "a", placement);
	room[4] = room[5] = 5;
	room[6] = room[7] = 2;
	assert(!log_rule->update(&l, &usual, &b, NULL));
	assert(near(b.kappa[0], 2) && near(b.kappa[1], 1) && IS(b.weight[0], ==, 1) && b.history[0].held);
	assert(near(b.history[0].max_excess_s, 5) && near(b.history[0].mean_excess_s, 2.5));
	/* a change common to both nodes does not hold the weights */
	l = two(room, 13.2, 11, 5.5, "a", placement);
	room[4] = room[5] = 5;
	assert(!log_rule->update(&l, &usual, &b, NULL) && !b.history[1].held && near(b.kappa[0], 2.2));
	dlb_balance_release(&b);

	/* other changes: drift at once, the mean of two rounds, the spread by the formula of kappa.c; a jump
	 * changes kappa at once, and counts in the spread as the largest difference that is no jump, but only if
	 * it follows a jump */
	dlb_balance_init(&b, 2);
	l = two(room, 12, 10, 5, "a", placement);
	room[4] = room[5] = 5;
	l.usual_spread = 0.04;
	assert(!log_rule->update(&l, &usual, &b, NULL) && IS(b.spread, ==, 0.04) &&
	       IS(b.spread_rounds, ==, 1));
	l = two(room, 13.2, 11 * 1.02, 5.5 / 1.02, "a", placement);
	room[4] = room[5] = 5;
	assert(!log_rule->update(&l, &usual, &b, NULL) && IS(b.kappa_rounds[0], ==, 2) &&
	       near(b.history[1].drift, 1.1));
	assert(near(b.kappa[0], 2.2 * sqrt(1.02)) && near(b.kappa[1], 1.1 / sqrt(1.02)) &&
	       near(b.best_step_s, 13.2));
	double s2 = (0.0016 + log(1.02) * log(1.02)) / 2;
	assert(near(b.spread, sqrt(s2)) && IS(b.spread_rounds, ==, 2));
	l = two(room, 26, 22, 5.5, "a", placement);
	room[4] = room[5] = 5;
	assert(!log_rule->update(&l, &usual, &b, NULL) && IS(b.kappa_rounds[0], ==, 1) &&
	       near(b.kappa[0], 4.4) && near(b.kappa[1], 1.1));
	assert(near(b.spread, sqrt(s2)) && IS(b.spread_rounds, ==, 2) && b.history[2].held);
	/* back again: it was noise */
	l = two(room, 13, 11, 5.5, "a", placement);
	room[4] = room[5] = 5;
	const double jump = 3 * sqrt(s2) * sqrt(2 * 0.5);
	assert(!log_rule->update(&l, &usual, &b, NULL) && IS(b.kappa_rounds[0], ==, 1) &&
	       near(b.kappa[0], 2.2));
	assert(near(b.spread, sqrt(s2 + (jump * jump - s2) / 3)) && IS(b.spread_rounds, ==, 3));
	dlb_balance_release(&b);

	/* nodes within 5 % count as equal; predicted waiting changes no weight, more waiting does */
	dlb_balance_init(&b, 2);
	l = two(room, 10, 5.1, 5, "a", placement);
	room[4] = room[5] = 5;
	l.predicted_s = 9.8;
	assert(!log_rule->update(&l, &usual, &b, NULL) && IS(b.kappa[0], ==, b.kappa[1]) &&
	       near(b.kappa[0], sqrt(1.02)));
	l = two(room, 12, 10, 5, "b", placement);
	l.predicted_s = 12;
	b.best_step_s = 20;
	assert(!log_rule->update(&l, &usual, &b, NULL) && IS(b.weight[0], ==, 1));
	l = two(room, 12.5, 10, 5, "c", placement);
	l.predicted_s = 12;
	b.best_step_s = 20;
	assert(!log_rule->update(&l, &usual, &b, NULL) && IS(b.weight[0], <, 1));
	dlb_balance_release(&b);

	/* clip: never more than a factor 2^eta apart from the mean in a round */
	dlb_balance_init(&b, 2);
	l = two(room, 10, 10, 0.01, "a", placement);
	assert(!log_rule->update(&l, &usual, &b, NULL) &&
	       IS(b.weight[1] / b.weight[0], <=, pow(4, 0.8) * (1 + 1e-12)));
	dlb_balance_release(&b);
}

static void turn(const struct dlb_rule *r, struct dlb_balance *b, double T, double busy0, double busy1,
		 const char *hash, const int *placement)
{
	double room[10];
	struct dlb_load l = two(room, T, busy0, busy1, hash, placement);

	assert(!r->update(&l, &usual, b, NULL));
}

static void test_stops(void)
{
	const struct dlb_rule *r = dlb_rule_find("log");
	static const int one[2] = { 0, 1 }, other[2] = { 1, 0 };
	struct dlb_balance b;

	/* A and B for two rounds */
	dlb_balance_init(&b, 2);
	turn(r, &b, 10, 10, 9.9, "a", one);
	assert(!b.converged);
	turn(r, &b, 10, 10, 9.9, "a", one);
	assert(b.converged && SAME(b.reason, "balanced") && b.keep && IS(b.best_placement[0], ==, 0));
	/* stays converged; a jump restarts the search */
	turn(r, &b, 10.1, 10, 9.9, "a", one);
	assert(b.converged);
	turn(r, &b, 14, 14, 9.9, "a", one);
	assert(!b.converged && !b.keep && b.history[3].changed && IS(b.eta, ==, 0.8));
	dlb_balance_release(&b);

	/* A is the distance between most and mean, whatever the mean: .5 - .25 of 10 is too much, .25 - .25 is none */
	dlb_balance_init(&b, 2);
	turn(r, &b, 10, 10, 9.5, "a", one);
	assert(!b.history[0].test_a && b.history[0].test_b);
	turn(r, &b, 10, 9.75, 9.75, "a", one);
	assert(b.history[1].test_a && b.history[1].test_b);
	/* one balanced round is not enough: the one before, or the one after, is not */
	assert(!b.converged);
	turn(r, &b, 10, 10, 9.5, "b", other);
	assert(!b.history[2].test_a && !b.converged);
	dlb_balance_release(&b);

	/* unchanged for three rounds, but condition B is unreachable: the floor */
	dlb_balance_init(&b, 2);
	for (int i = 0; i < 3; i++)
		turn(r, &b, 10, 10, 7, "a", one);
	assert(b.converged && SAME(b.reason, "floor") && IS(b.floor_s, ==, 1));
	dlb_balance_release(&b);

	/* a node slower by 30 % in the last of these rounds, which T hardly shows: the planner is asked first, and
	 * what the plan took before counts no longer */
	dlb_balance_init(&b, 2);
	for (int i = 0; i < 4; i++) {
		double room[10];
		struct dlb_load l = two(room, i < 2 ? 10 : 10.4, 10, i < 2 ? 7 : 9.1, "a", one);

		room[5] = 7;
		assert(!r->update(&l, &usual, &b, NULL));
		assert(IS(b.history[i].held, ==, i == 2) && IS(b.converged, ==, i == 3));
		assert(IS(b.best_step_s, ==, i < 2 ? 10 : 10.4));
	}
	assert(SAME(b.reason, "floor"));
	dlb_balance_release(&b);

	/* worse by more than 1 %: rolled back to the best weights; they are held for one round, then may
	 * change */
	dlb_balance_init(&b, 2);
	turn(r, &b, 10, 10, 8, "a", one);
	assert(!b.keep && IS(b.weight[1], >, 1));
	turn(r, &b, 12, 12, 7, "b", other);
	assert(b.keep && b.history[1].rolled_back && IS(b.weight[0], ==, 1) &&
	       IS(b.best_placement[0], ==, 0) && IS(b.hold, ==, 1) && IS(b.hold_off, ==, 2));
	turn(r, &b, 10, 10, 8, "a", one);
	assert(b.keep && IS(b.hold, ==, 0) && !b.converged && IS(b.best_rounds, ==, 2));
	turn(r, &b, 10, 10, 8, "a", one);
	assert(!b.keep && !b.converged && IS(b.stable, ==, 2));
	/* the other plan again: a cycle, ended on the best */
	turn(r, &b, 12, 12, 7, "b", other);
	assert(b.converged && SAME(b.reason, "cycle") && b.keep && IS(b.best_placement[0], ==, 0));
	dlb_balance_release(&b);

	/* the limit of rounds */
	dlb_balance_init(&b, 2);
	const struct dlb_balance_options few = { .stable = 9, .max_rounds = 2 };
	double room[10];
	struct dlb_load l = two(room, 10, 10, 7, "a", one);
	assert(!r->update(&l, &few, &b, NULL) && !b.converged);
	assert(!r->update(&l, &few, &b, NULL) && b.converged && SAME(b.reason, "rounds"));
	dlb_balance_release(&b);
}

/* The limit of rounds counts from the last change point after the end of a search. A node that becomes faster
 * reopens a search though T stays; so do many small steps of a node, each within the jump of 5 %. */
static void test_reopen(void)
{
	const struct dlb_rule *r = dlb_rule_find("log");
	static const int one[2] = { 0, 1 };
	const struct dlb_balance_options four = { .stable = 9, .max_rounds = 4 };
	struct dlb_balance b;
	double room[10];

	for (int way = 0; way < 3; way++) {
		dlb_balance_init(&b, 2);
		for (int i = 0; i < 7; i++) {
			struct dlb_load l = two(room, 10, 10, 7, "a", one);
			l.predicted_s = 9;
			room[4] = 10;
			room[5] = 7;
			assert(!r->update(&l, &four, &b, NULL) && IS(b.converged, ==, i >= 3));
		}
		assert(SAME(b.reason, "rounds") && IS(b.first_round, ==, 1) && b.settled);
		/* slower by 2 at once; faster by 2 at once; slower by 2 % a round */
		for (int i = 0; i < (way < 2 ? 8 : 20); i++) {
			double f = way == 0 ? 2 : way == 1 ? 0.5 : pow(1.02, i + 1);
			struct dlb_load l = two(room, fmax(10, 7 * f), 10, 7 * f, "a", one);
			room[4] = 10;
			room[5] = 7;
			assert(!r->update(&l, &four, &b, NULL));
			if (way < 2)
				assert(IS(b.converged, ==, i >= 3));
			if (i == 0 && way < 2)
				assert(b.history[7].changed && IS(b.first_round, ==, 8) && IS(b.stable, ==, 1) &&
				       !b.keep);
		}
		assert(IS(b.first_round, >, 7));
		dlb_balance_release(&b);
	}
}

/* Waiting that nothing explains: no weight changes and no end is concluded, whether steps differ, T jumps, or
 * the model explains too little; the last is taken for a fault of the model after 9 rounds. */
static void test_noise(void)
{
	const struct dlb_rule *r = dlb_rule_find("log");
	static const int one[2] = { 0, 1 };
	struct dlb_balance b;
	double room[10];

	for (int way = 0; way < 3; way++) {
		dlb_balance_init(&b, 2);
		turn(r, &b, 10, 10, 9, "a", one);
		const double weight = b.weight[0];
		for (int i = 0; i < 12; i++) {
			double T = way == 1 ? (i % 2 ? 70 : 40) : 40;
			struct dlb_load l = two(room, T, 10, 9, "a", one);
			l.round_se_s = way == 0 ? 4 : 0;
			l.predicted_s = way == 2 ? 10 : way == 1 ? T : 0;
			assert(!r->update(&l, &usual, &b, NULL));
			if (way == 2 && i >= 7)
				continue;
			assert(!b.converged && SAME(b.reason, "noise") && b.keep && b.history[i + 1].noisy &&
			       IS(b.weight[0], ==, weight));
		}
		assert(IS(b.converged, ==, (way == 2)));
		for (int i = 0; i < 3; i++)
			turn(r, &b, 10, 10, 9, "a", one);
		assert(b.converged && strcmp(b.reason, "noise"));
		dlb_balance_release(&b);
	}
	/* steps four times as long as predicted are noise if all nodes wait, and an uneven load if one is busy */
	for (int busy = 0; busy < 2; busy++) {
		dlb_balance_init(&b, 2);
		struct dlb_load l = two(room, 40, busy ? 40 : 10, 9, "a", one);
		l.predicted_s = 10;
		assert(!r->update(&l, &usual, &b, NULL) && IS(b.history[0].noisy, ==, !busy));
		dlb_balance_release(&b);
	}
	/* the limit of rounds holds in noise too */
	dlb_balance_init(&b, 2);
	for (int i = 0; i < 60; i++) {
		struct dlb_load l = two(room, 40, 10, 9, "a", one);
		l.round_se_s = 4;
		assert(!r->update(&l, &usual, &b, NULL));
	}
	assert(b.converged && SAME(b.reason, "rounds"));
	dlb_balance_release(&b);
}

/* 20 seeds of 200 rounds of a balanced run on a shared host, 2 and 4 nodes: it stays as it is. */
static void test_quiet(void)
{
	const struct dlb_rule *r = dlb_rule_find("log");
	double room[5 * MOST];
	int opened = 0, rounds = 0;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct world w = { .n = seed % 2 ? 2 : 4, .model_knows = true, .noise = 0.005, .spread = 0.015 };
		struct dlb_balance b;
		struct dlb_load l;
		dlb_rng_init(&w.rng, seed);
		for (int i = 0; i < w.n; i++)
			w.truth[i] = w.model[i] = 1 + i;
		dlb_balance_init(&b, w.n);
		for (int round = 0; round < 200; round++) {
			bool was = b.converged;
			place(&w, &b);
			run(&w, &b, &l, room);
			assert(!r->update(&l, &usual, &b, NULL));
			opened += was && !b.converged;
			rounds += was;
		}
		dlb_balance_release(&b);
	}
	printf("balanced, 1.5 %% spread: %d of %d rounds began a search again\n", opened, rounds);
	assert(IS(rounds, >, 7000) && IS(opened, <=, 2));
}

/* A node becomes twice as fast in a balanced run on a shared host: T stays, and a search begins again in the round
 * after or the second. */
static void test_faster(void)
{
	const struct dlb_rule *r = dlb_rule_find("log");
	double room[5 * MOST];
	int late[2] = { 0, 0 }, runs = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w = { .n = 2, .model_knows = true, .noise = 0.01, .spread = 0.06 };
		struct dlb_balance b;
		struct dlb_load l;
		int rounds = 0;
		dlb_rng_init(&w.rng, seed);
		w.truth[0] = w.truth[1] = w.model[0] = w.model[1] = 1;
		dlb_balance_init(&b, w.n);
		for (int round = 0; round < 40 && rounds < 10; round++) {
			place(&w, &b);
			run(&w, &b, &l, room);
			assert(!r->update(&l, &usual, &b, NULL));
			if (w.truth[1] < 1)
				rounds++;
			if (rounds && !b.converged)
				break;
			if (b.converged)
				w.truth[1] = 0.5;
		}
		late[0] += rounds > 1;
		late[1] += rounds > 2;
		runs += rounds > 0;
		dlb_balance_release(&b);
	}
	printf("2 nodes, 6 %% spread, one becomes twice as fast: not seen after one round in %d of %d runs, "
	       "after two in %d\n",
	       late[0], runs, late[1]);
	assert(IS(runs, >, SEEDS * 9 / 10) && IS(late[0], <, SEEDS / 5) && IS(late[1], <, SEEDS / 20));
}

static void test_section(void)
{
	static const char *const bad[][2] = {
		{ "{}", "/balance" },
		{ "{\"weights\":[1]}", "/balance/weights" },
		{ "{\"weights\":[-1,3]}", "/balance/weights/0" },
		{ "{\"weights\":[1,1],\"round\":-1}", "/balance/round" },
		{ "{\"weights\":[1,1],\"kappa\":[1,0]}", "/balance/kappa/1" },
		{ "{\"weights\":[1,1],\"kappa_mean\":[1,-1]}", "/balance/kappa_mean/1" },
		{ "{\"weights\":[1,1],\"kappa_rounds\":[-1,1]}", "/balance/kappa_rounds/0" },
		{ "{\"weights\":[1,1],\"spread\":-1}", "/balance/spread" },
		{ "{\"weights\":[1,1],\"settled\":[0,1]}", "/balance/settled/0" },
		{ "{\"weights\":[1,1],\"first_round\":-1}", "/balance/first_round" },
		{ "{\"weights\":[1,1],\"history\":[{\"step_s\":1,\"drift\":0}]}",
		  "/balance/history/0/drift" },
		{ "{\"weights\":[1,1],\"best_placement\":[0,2]}", "/balance/best_placement/1" },
		{ "{\"weights\":[1,1],\"history\":[3]}", "/balance/history/0" },
		{ "{\"weights\":[1,1],\"history\":[{\"step_s\":-1}]}", "/balance/history/0/step_s" },
		{ "{\"weights\":[1,1],\"best\":{\"step_s\":0}}", "/balance/best/step_s" },
		{ "{\"weights\":[1,1],\"wieghts\":[1,1]}", "/balance" },
		{ "{\"weights\":[1,1],\"links\":{}}", "/balance/links" },
		{ "{\"weights\":[1,1],\"links\":[1]}", "/balance/links/0" },
		{ "{\"weights\":[1,1],\"links\":[{\"link\":0}]}", "/balance/links/0" },
		{ "{\"weights\":[1,1],\"links\":[{\"link\":-1,\"factor\":1}]}", "/balance/links/0/link" },
		{ "{\"weights\":[1,1],\"links\":[{\"link\":0,\"factor\":0}]}", "/balance/links/0/factor" },
		{ "{\"weights\":[1,1],\"links\":[{\"link\":0,\"factor\":1,\"trial\":-1}]}",
		  "/balance/links/0/trial" },
		{ "{\"weights\":[1,1],\"links\":[{\"link\":0,\"factor\":1,\"speed\":1}]}",
		  "/balance/links/0" },
	};
	static const int one[2] = { 0, 1 }, other[2] = { 1, 0 };
	const struct dlb_rule *r = dlb_rule_find("log");
	struct dlb_error err = { .status = 0 };
	struct dlb_balance b, back;
	struct dlb_doc d;

	dlb_balance_init(&b, 2);
	turn(r, &b, 10, 10, 8, "a", one);
	turn(r, &b, 12, 12, 7, "b", other);
	turn(r, &b, 10, 10, 8, "a", one);
	dlb_doc_init(&d, "f.json");
	dlb_doc_put(&d, "balance", dlb_balance_write(&b));
	assert(!dlb_balance_read(&d, 2, &back, &err));
	json_t *again = dlb_balance_write(&back);
	assert(json_equal(again, dlb_doc_section(&d, "balance")));
	json_decref(again);
	/* writing and reading the section changes nothing that follows */
	turn(r, &b, 10, 10, 8, "a", one);
	turn(r, &back, 10, 10, 8, "a", one);
	json_t *x = dlb_balance_write(&b), *y = dlb_balance_write(&back);
	assert(json_equal(x, y));
	json_decref(x);
	json_decref(y);
	dlb_balance_release(&back);
	assert(IS(dlb_balance_read(&d, 3, &back, &err), ==, -1));
	dlb_balance_release(&b);
	dlb_doc_release(&d);

	for (int i = 0; i < DLB_LEN(bad); i++) {
		char *text = dlb_xprintf("{\"dlb\":\"1.0\",\"balance\":%s}", bad[i][0]);
		assert(!dlb_doc_parse(&d, text, strlen(text), "f.json", &err));
		if (dlb_balance_read(&d, 2, &back, &err) != -1 || err.status != 2 ||
		    !strstr(err.where, bad[i][1])) {
			dlb_error_print(stderr, bad[i][0], -1, &err);
			abort();
		}
		dlb_doc_release(&d);
		free(text);
	}
	dlb_doc_init(&d, "f.json");
	assert(!dlb_balance_read(&d, 4, &back, &err) && IS(back.weight[3], ==, 1) && !back.converged &&
	       IS(back.eta, ==, 0.8));
	dlb_balance_release(&back);
	dlb_doc_release(&d);
}

int main(void)
{
	double busy[3] = { 2, 1, 9 };
	const bool free_node[3] = { true, true, false };

	assert(near(dlb_imbalance(busy, free_node, 3), 2 / 1.5) && IS(dlb_imbalance(busy, NULL, 0), ==, 1));
	test_formulas();
	test_stops();
	test_reopen();
	test_noise();
	test_quiet();
	test_faster();
	test_section();
	test_alike();
	test_spread();
	test_world();
	puts("balance: formulas, stops, roll-back, cycles, change points, section, simulated worlds of 200 "
	     "seeds each");
	return 0;
}
