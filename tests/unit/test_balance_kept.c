/* Kept results of both balancing rules: the section after every round of small simulated runs, whose nodes
 * are unequal and noisy, become slower and faster, are excluded, and whose plans repeat. kept.h says how
 * they are replaced. */
#include <jansson.h>
#include <math.h>
#include "check.h"
#include "kept.h"
#include "balance/rules.h"
#include "util/hash.h"
#include "util/rng.h"

static const char *const kept[] = {
#include "balance_kept.inc"
};

enum { NODES = 4, UNITS = 24, ROUNDS = 26 };

/* The nodes of a run: seconds of a unit, and what changes. */
struct run {
	uint64_t seed;
	double unit_s[NODES], noise, step_noise, structural_s;
	int slow_at, slow_node, fast_at, lost_at; /* rounds; 0: never */
	bool predicted, simulated;
};

/* Units of each node in proportion to weight over kappa, whole ones. */
static void plan(const struct dlb_balance *b, int *share, const double *predicted)
{
	double sum = 0, before = 0;
	int given = 0;

	for (int i = 0; i < NODES; i++)
		sum += b->weight[i] / b->kappa[i] / predicted[i];
	for (int i = 0; i < NODES; i++) {
		before += b->weight[i] / b->kappa[i] / predicted[i] / sum;
		share[i] = (int)lround(before * UNITS + 0.0137) - given;
		given += share[i];
	}
}

static void measure(const struct run *x, int round, const int *share, const double *predicted,
		    struct dlb_rng *r, const struct dlb_balance *b, struct dlb_load *l)
{
	double busiest = 0, expected = 0;

	for (int i = 0; i < NODES; i++) {
		double s = x->unit_s[i];

		if (x->slow_at && round >= x->slow_at && i == x->slow_node)
			s *= 2.5;
		if (x->fast_at && round >= x->fast_at && i == 1)
			s /= 3;
		l->busy_s[i] = share[i] * s * (1 + x->noise * (dlb_rng_uniform(r) - 0.5));
		l->busy_se_s[i] = x->step_noise * l->busy_s[i];
		l->predicted_busy_s[i] = x->predicted ? share[i] * predicted[i] : l->busy_s[i];
		l->structural_s[i] = x->structural_s * i;
		l->free_node[i] = !(x->lost_at && round >= x->lost_at && i == 3) && share[i] > 0;
		l->kind[i] = i / 2;
		busiest = fmax(busiest, l->busy_s[i] + l->structural_s[i]);
		expected = fmax(expected, b->kappa[i] * share[i] * predicted[i] + l->structural_s[i]);
	}
	l->round_s = busiest * (x->seed % 5 ? 1 : 1 + 0.5 * (round == 7 || round == 8));
	l->round_se_s = x->step_noise * busiest;
	l->predicted_s = x->predicted ? expected : 0;
	dlb_hash_hex(dlb_hash_bytes(DLB_HASH_INIT, share, NODES * sizeof *share), l->plan_hash);
}

static void keep_section(const char *name, int round, const struct dlb_balance *b)
{
	json_t *all = dlb_balance_write(b), *last = json_object_get(all, "history");
	const struct dlb_balance_round *r = &b->history[b->n_history - 1];

	if (round < ROUNDS) /* of the history only the last round */
		while (json_array_size(last) > 1)
			json_array_remove(last, 0);
	kept_json(all);
	kept_line(name, "%d: %.5g s, %.4g %.4g %.4g %.4g%s%s%s%s %s", round, r->step_s, b->weight[0],
		  b->weight[1], b->weight[2], b->weight[3], b->keep ? " keep" : "", r->held ? " held" : "",
		  r->changed ? " changed" : "", r->noisy ? " noisy" : "", b->reason ? b->reason : "");
	json_decref(all);
}

static void run(const struct dlb_rule *rule, const struct run *x)
{
	double busy[NODES], busy_se[NODES], predicted_busy[NODES], structural[NODES], predicted[NODES];
	bool free_node[NODES];
	int kind[NODES], share[NODES];
	struct dlb_load l = { .n_nodes = NODES,
			      .busy_s = busy,
			      .busy_se_s = busy_se,
			      .predicted_busy_s = predicted_busy,
			      .structural_s = structural,
			      .free_node = free_node,
			      .kind = kind,
			      .placement = share,
			      .n_ops = NODES,
			      .steps = 10,
			      .usual_spread = x->simulated ? 0 : 0.04,
			      .bound_s = 1 };
	const struct dlb_balance_options o = { .stable = 3, .max_rounds = 20, .simulated = x->simulated };
	struct dlb_balance b;
	struct dlb_rng r;
	char name[32];

	dlb_rng_init(&r, x->seed);
	dlb_balance_init(&b, NODES);
	snprintf(name, sizeof name, "%s %d", rule->name, (int)x->seed);
	for (int i = 0; i < NODES; i++)
		predicted[i] = x->predicted && i != 2 ? x->unit_s[i] : 1;
	for (int round = 1; round <= ROUNDS; round++) {
		int was[NODES];

		memcpy(was, share, sizeof was);
		if (!b.keep || !b.best_placement)
			plan(&b, share, predicted);
		else
			memcpy(share, b.best_placement, sizeof share);
		l.moved_ops = 0;
		for (int i = 0; i < NODES && round > 1; i++)
			l.moved_ops += share[i] != was[i];
		measure(x, round, share, predicted, &r, &b, &l);
		l.links_changed = x->seed % 4 == 3 && round == 6;
		l.samples_changed = x->seed % 4 == 2 && round == 9;
		assert(!rule->update(&l, &o, &b, NULL));
		keep_section(name, round, &b);
	}
	dlb_balance_release(&b);
}

int main(int argc, char **argv)
{
	for (const struct dlb_rule *rule = dlb_rules; rule->name; rule++)
		for (uint64_t seed = 1; seed <= 14; seed++) {
			struct run x = { .seed = seed,
					 .noise = seed % 3 == 0 ? 0.1 :
						  seed % 3 == 1 ? 0.01 :
								  0,
					 .step_noise = seed % 3 == 0 ? 0.06 :
						       seed % 3 == 1 ? 0.004 :
								       0,
					 .structural_s = seed % 4 == 0 ? 0.3 : 0,
					 .slow_at = seed % 2 ? 10 : 0,
					 .slow_node = (int)(seed % 3),
					 .fast_at = seed % 5 == 2 ? 14 : 0,
					 .lost_at = seed % 7 == 6 ? 5 : 0,
					 .predicted = seed % 4 < 3,
					 .simulated = seed % 3 == 2 };
			for (int i = 0; i < NODES; i++)
				x.unit_s[i] = 0.5 + 0.25 * (double)((seed * 7 + (uint64_t)i * 5) % 6);
			run(rule, &x);
		}
	return kept_end(argc, argv, kept, DLB_LEN(kept));
}
