/* The gate and rounds of a run, on a model whose best plans are known by arithmetic (fork.h): a change that
 * does not pay is refused, at both sides of its bound; the margin of error; cycles; plans that stay; what a
 * round says. */
#include "fork_plan.h"
#include "balance/live.h"
#include "balance/rules.h"
#include "place/moves.h"
#include "place/make.h"
#include "plan/plan_json.h"
#include "plan/sharing.h"
#include "plan/tensors.h"

/* A round of the plan with three ops a node, of which node 0 has become half as fast: 6 ms, where four and
 * two ops would take 4. So a plan that moves an op saves 6 - 4 * 1.02 ms a step, and costs two steps. */
static const double round_s = 6 * FORK_MS, saved_s = (6 - 4 * 1.02) * FORK_MS, two_steps_s = 12 * FORK_MS;

struct gated {
	struct fork f;
	struct dlb_doc d;
	struct dlb_balance_inputs s;
	struct dlb_load l;
	struct dlb_balance b;
	struct dlb_arena a;
};

/* replicas: their number; 1: none. */
static void begin_gate_of(struct gated *x, const char *replicas)
{
	struct dlb_error err = { .what = "" };
	struct dlb_replan o = plain();

	memset(x, 0, sizeof *x);
	start(&x->f, &x->d, "cpu:2");
	o.replicas = replicas;
	replan(&x->d, o);
	report(&x->d, round_s, 6 * FORK_MS, 3 * FORK_MS);
	dlb_balance_init(&x->b, 2);
	fork_must(dlb_balance_inputs_read(&x->d, &x->s, &err), &err);
	fork_must(dlb_load_of(&x->s, x->b.kappa, &x->a, &x->l, &err), &err);
	x->b.kappa[0] = 2;
	x->b.round = x->b.n_history = 1;
	x->b.history = dlb_arena_array(&x->b.arena, 4, sizeof *x->b.history);
	x->b.history[0] = (struct dlb_balance_round){ .round = 1, .step_s = round_s, .drift = 1 };
	snprintf(x->b.history[0].plan_hash, sizeof x->b.history[0].plan_hash, "%s", x->s.plan.hash);
	x->b.best_step_s = round_s;
	snprintf(x->b.best_plan_hash, sizeof x->b.best_plan_hash, "%s", x->s.plan.hash);
}

static void begin_gate(struct gated *x) { begin_gate_of(x, "1"); }

static void end_gate(struct gated *x)
{
	dlb_balance_release(&x->b);
	dlb_arena_release(&x->a);
	dlb_balance_inputs_release(&x->s);
	end(&x->f, &x->d);
}

static const char *gate(struct gated *x, struct dlb_balance_options o)
{
	struct dlb_error err = { .what = "" };

	fork_must(dlb_balance_gate(&x->s, &x->l, &o, &x->b, &err), &err);
	return x->b.history[x->b.n_history - 1].decision;
}

/* The seconds in which two weights of 4000 bytes move, one after the other, between the nodes; only one op
 * moves of the weights here. */
static double moving_s(const struct gated *x)
{
	double busy_s[2] = { 0, 0 };

	for (int i = 0; i < OPS; i++) {
		const int was = x->s.plan.placement[i], is = x->b.next->placement[i];

		for (int d = 0; d < 2 && was != is; d++)
			busy_s[d] += dlb_cost_xfer_s(&x->s.cost, 4000, was, is);
	}
	return fmax(busy_s[0], busy_s[1]);
}

/* With a weight that is trained move its states, and what compressed sums remember of its gradient. */
static void test_moved_bytes(void)
{
	struct gated x;

	begin_gate(&x);
	struct dlb_problem p = { .graph = &x.s.graph, .n_state = 2 };
	int weight = 0;

	while (x.s.graph.tensor[weight].kind != DLB_T_WEIGHT)
		weight++;
	const int home = dlb_graph_home(&x.s.graph, weight);
	const enum dlb_phase was = x.s.graph.op[home].phase;

	for (int trained = 0; trained < 2; trained++) {
		x.s.graph.op[home].phase = trained ? DLB_UPDATE : DLB_FORWARD;
		p.keeps_residuals = false;
		assert(IS(dlb_place_moved_bytes(&p, weight, home), ==, trained ? 3 * 4000 : 4000));
		p.keeps_residuals = true;
		assert(IS(dlb_place_moved_bytes(&p, weight, home), ==, trained ? 4 * 4000 : 4000));
	}
	x.s.graph.op[home].phase = was;
	end_gate(&x);
}

static void test_gate(void)
{
	struct gated x;
	double price_s;

	/* steps enough: it moves; the price is two steps and the state's move */
	begin_gate(&x);
	assert(SAME(gate(&x, (struct dlb_balance_options){ .left_steps = 1e9, .simulated = true }), "moves"));
	assert(x.b.next && !x.b.keep && takes_ms(x.b.expected_s, 4) && IS(x.b.best_step_s, ==, round_s));
	assert(IS(fabs(x.b.history[0].gain_s / saved_s - 1), <, 5e-3));
	price_s = x.b.history[0].price_s;
	assert(IS(fabs(price_s - two_steps_s - moving_s(&x)), <, 1e-12) && IS(moving_s(&x), >, 0));
	const double gain_s = x.b.history[0].gain_s;
	end_gate(&x);

	/* at both sides of the bound, steps by gain against the price: of the steps that are left, of what the last
	 * change took, and of the rounds that are left of the limit, ten steps each */
	for (int way = 0; way < 6; way++) {
		const bool pays = way % 2;
		const double bound = price_s / gain_s, little = pays ? 1 + 1e-9 : 1 - 1e-9;
		struct dlb_balance_options o = { .left_steps = bound * little, .simulated = true };

		begin_gate(&x);
		if (way / 2 == 1) {
			o.left_steps = 100 * bound;
			o.change_s = o.left_steps * gain_s / little - price_s;
		} else if (way / 2 == 2) {
			o.left_steps = 0;
			o.max_rounds = 3; /* two rounds are left, 20 steps: enough; or none are */
			x.b.first_round = pays ? 1 : -1;
		}
		assert(SAME(gate(&x, o), pays ? "moves" : "does not pay"));
		assert(IS(x.b.keep, ==, !pays) && IS(x.b.next != NULL, ==, pays) && !x.b.converged);
		if (!pays)
			assert(IS(x.b.expected_s, ==, round_s));
		end_gate(&x);
	}
}

/* The margin of error: of earlier predictions, but those before a change point and those with corrected
 * kappa; of the round's time; of kappa. What is left of the gain tells which one counted. */
static void test_margin(void)
{
	static const struct {
		double measured, se, kappa_rounds, spread;
		bool held, changed;
		double margin;
	} rows[] = {
		{ 0, 0, 1, 0, false, false, 0.02 },    { 5.5, 0, 1, 0, false, false, 0.1 },
		{ 5.5, 0, 1, 0, true, false, 0.02 },   { 5.5, 0, 1, 0, false, true, 0.02 },
		{ 4.5, 0, 1, 0, false, false, 0.02 },  { 0, 0.05, 1, 0, false, false, 0.15 },
		{ 0, 0, 1, 0.06, false, false, 0.06 }, { 0, 0, 4, 0.06, false, false, 0.03 },
		{ 0, 0, 0, 0.06, false, false, 0.06 }, { 0, 0, 9, 0.06, false, false, 0.02 },
	};

	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct gated x;

		begin_gate(&x);
		x.b.history[1] = x.b.history[0];
		x.b.n_history = x.b.round = 2;
		x.b.history[0].held = rows[i].held;
		x.b.history[0].changed = rows[i].changed;
		x.b.history[0].expected_s = rows[i].measured > 0 ? 2.5 * FORK_MS : 0;
		x.b.history[0].step_s = rows[i].measured * FORK_MS;
		x.b.history[0].drift = 2;
		x.l.round_se_s = rows[i].se * round_s;
		x.b.spread = rows[i].spread;
		for (int d = 0; d < 2; d++)
			x.b.kappa_rounds[d] = rows[i].kappa_rounds;
		gate(&x, (struct dlb_balance_options){ .left_steps = 1e9, .simulated = true });
		const double left_s = (6 - 4 * (1 + rows[i].margin)) * FORK_MS;
		assert(IS(fabs(x.b.history[1].gain_s - left_s), <, 5e-3 * FORK_MS));
		end_gate(&x);
	}
}

/* A plan that ran before is a cycle, but for the first round of corrected kappa; rounds before a change point
 * or the search do not count. */
static void test_cycle(void)
{
	char hash[17];
	struct gated x;

	begin_gate(&x);
	gate(&x, (struct dlb_balance_options){ .left_steps = 1e9, .simulated = true });
	memcpy(hash, x.b.next->hash, sizeof hash);
	end_gate(&x);
	for (int way = 0; way < 6; way++) {
		begin_gate(&x);
		for (int i = 1; i < 4; i++)
			x.b.history[i] = x.b.history[0];
		x.b.n_history = x.b.round = way == 4 ? 2 : 3;
		for (int i = 0; i < 3; i++)
			x.b.history[i].round = i + 1;
		memcpy(x.b.history[0].plan_hash, hash, sizeof hash);
		x.b.history[1].changed = way == 1;
		x.b.first_round = way == 2 ? 2 : way == 3 ? 1 : 0;
		x.b.history[x.b.n_history - 1].held = way >= 4;
		/* the best plan's time is measured with the correction */
		x.b.n_placement = 0;
		const char *decision = gate(&x, (struct dlb_balance_options){ .left_steps = 1e9,
									      .simulated = true });
		const bool repeats = way != 1 && way != 2;
		assert(SAME(decision, repeats ? "repeats" : "moves") && IS(x.b.keep, ==, repeats));
		assert(IS(x.b.converged, ==, repeats && way != 4));
		if (x.b.converged)
			assert(SAME(x.b.reason, "cycle") && IS(x.b.expected_s, ==, round_s));
		end_gate(&x);
	}
}

/* Nothing is asked of the planner where the rule keeps the plan or has ended; the same plan stays, and its
 * order if it is the best one. */
static void test_gate_stays(void)
{
	for (int way = 0; way < 4; way++) {
		struct gated x;

		begin_gate(&x);
		x.b.keep = way == 0;
		x.b.converged = way == 1;
		x.b.kappa[0] = 1;
		if (way == 3)
			snprintf(x.b.best_plan_hash, sizeof x.b.best_plan_hash, "another");
		const char *decision = gate(&x, (struct dlb_balance_options){ .left_steps = 1e9,
									      .simulated = true });
		assert(!x.b.next && IS(x.b.keep, ==, way == 0 || way == 2));
		assert(way < 2 ? !decision : SAME(decision, "same plan") && IS(x.b.expected_s, ==, round_s));
		end_gate(&x);
	}
}

/* A round in which kappa was corrected, of another plan than the best one: the best plan's measured time
 * is multiplied by the quotient of its simulated ones. All ops on node 0, 6 ms at kappa 1, take 12 at
 * kappa 2. */
static void test_best_now(void)
{
	static const int best[OPS + 1] = { 0 };
	struct gated x;

	for (int way = 0; way < 4; way++) {
		begin_gate(&x);
		x.b.history[0].held = way != 1;
		x.b.history[0].drift = way == 3 ? 2 : 1;
		x.b.best_placement = memcpy(dlb_arena_array(&x.b.arena, OPS + 1, sizeof *best), best,
					    sizeof best);
		x.b.n_placement = way == 2 ? OPS : OPS + 1;
		x.b.best_step_s = 7 * FORK_MS;
		snprintf(x.b.best_plan_hash, sizeof x.b.best_plan_hash, "another");
		gate(&x, (struct dlb_balance_options){ .left_steps = 1e9, .simulated = true });
		const double now_s = (way == 0 ? 14 : 7) * FORK_MS;
		assert(IS(fabs(x.b.history[0].gain_s - (now_s - 4 * 1.02 * FORK_MS)), <, 1e-2 * FORK_MS));
		assert(IS(fabs(x.b.best_step_s - now_s), <, 1e-2 * FORK_MS));
		end_gate(&x);
	}
}

/* Replicas of one node each share 8 samples evenly, 3 ms; with node 0 half as fast, 6 ms, and as three and
 * five 4.5. No op moves. Of a best plan with other shares, the time under the corrected kappa is that of its
 * shares. */
static void test_gate_shares(void)
{
	struct gated x;

	begin_gate_of(&x, "2");
	assert(SAME(gate(&x, (struct dlb_balance_options){ .left_steps = 1e9, .simulated = true }), "moves"));
	assert(takes_ms(x.b.expected_s, 4.5) && IS(x.b.next->n_replicas, ==, 2) &&
	       x.b.next->sharing.by_power);
	assert(IS(x.b.history[0].price_s, ==, two_steps_s));
	end_gate(&x);

	begin_gate_of(&x, "2");
	x.s.plan.sharing.split_given = true;
	assert(SAME(gate(&x, (struct dlb_balance_options){ .left_steps = 1e9, .simulated = true }),
		    "same plan"));
	end_gate(&x);

	begin_gate_of(&x, "2");
	x.b.history[0].held = true;
	x.b.best_placement = x.s.plan.placement;
	x.b.n_placement = OPS + 1;
	x.b.best_teams = dlb_balance_teams_of(&x.s.plan, &x.b.arena);
	x.b.best_teams.power = (double[]){ 6, 2 }; /* 4.5 ms, 9 with node 0 half as fast */
	x.b.best_step_s = 5 * FORK_MS;
	snprintf(x.b.best_plan_hash, sizeof x.b.best_plan_hash, "another");
	gate(&x, (struct dlb_balance_options){ .left_steps = 1e9, .simulated = true });
	assert(takes_ms(x.b.best_step_s, 10));
	end_gate(&x);
}

/* Memory became less: where the present plan fits no longer, any that fits is better, whatever it takes;
 * where none fits, the best one measured stays. */
static void test_gate_memory(void)
{
	struct gated x;

	begin_gate(&x);
	x.s.cluster.node[0].memory_bytes = x.s.plan.node[0].peak_bytes - 1;
	x.b.kappa[0] = 1;
	x.b.kappa[1] = 3;
	assert(SAME(gate(&x, (struct dlb_balance_options){ .left_steps = 1, .simulated = true }), "moves"));
	assert(!x.b.keep && x.b.next && IS(x.b.expected_s, ==, x.b.next->value_s) &&
	       takes_ms(x.b.expected_s, 12));
	end_gate(&x);

	begin_gate(&x);
	x.s.cluster.node[0].memory_bytes = x.s.cluster.node[1].memory_bytes = 5000;
	assert(SAME(gate(&x, (struct dlb_balance_options){ .left_steps = 1e9, .simulated = true }),
		    "no plan fits"));
	assert(x.b.keep && !x.b.next && IS(x.b.expected_s, ==, round_s));
	end_gate(&x);
}

/* What followed a round, where the gate is not asked: by the rule that has none; after the end of the search;
 * while its waiting is noise. */
static void test_without_gate(void)
{
	static const struct {
		const char *rule;
		double step_ms, busy_ms, se;
		int rounds;
		const char *decision;
	} rows[] = { { "patent", 3, 2, 0, 1, "moves" },
		     { "log", 3.003, 3, 0, 1, "same plan" },
		     { "log", 3.003, 3, 0, 2, "ended" },
		     { "log", 12, 3, 4, 2, "noise" } };

	for (int i = 0; i < DLB_LEN(rows); i++) {
		const struct dlb_balance_options o = { .stable = 3, .max_rounds = 50 };
		struct fork f;
		struct dlb_doc d;
		struct dlb_balance b = { .n_nodes = 0 };
		struct dlb_error err = { .what = "" };

		start(&f, &d, "cpu:2");
		for (int k = 0; k < rows[i].rounds; k++) {
			report(&d, rows[i].step_ms * FORK_MS, 3 * FORK_MS, rows[i].busy_ms * FORK_MS);
			json_object_set_new(dlb_doc_section(&d, "report"), "step_se_s",
					    json_real(rows[i].se * FORK_MS));
			dlb_balance_release(&b);
			fork_must(dlb_rebalance(&d, dlb_rule_find(rows[i].rule), &o, &b, &err), &err);
		}
		assert(IS(b.n_history, ==, rows[i].rounds) && !b.split_stays);
		assert(SAME(b.history[b.n_history - 1].decision, rows[i].decision));
		const json_t *history = json_object_get(dlb_doc_section(&d, "balance"), "history");
		assert(IS(json_array_size(history), ==, rows[i].rounds));
		dlb_balance_release(&b);
		end(&f, &d);
	}
}

/* Replicas that wait while the user's even split keeps samples from moving. */
static void test_split_stays(void)
{
	for (int way = 0; way < 5; way++) {
		const struct dlb_balance_options o = { .stable = 3, .max_rounds = 50 };
		struct fork f;
		struct dlb_doc d;
		struct dlb_balance b;
		struct dlb_error err = { .what = "" };
		struct dlb_replan r = plain();

		start(&f, &d, "cpu:2");
		r.replicas = way == 1 ? "1" : "2";
		r.split = way == 1 || way == 2 ? NULL : way == 3 ? "power" : "even";
		replan(&d, r);
		report(&d, 6 * FORK_MS, 6 * FORK_MS, (way == 4 ? 6 : 3) * FORK_MS);
		fork_must(dlb_rebalance(&d, dlb_rule_find("log"), &o, &b, &err), &err);
		assert(IS(b.split_stays, ==, way == 0));
		dlb_balance_release(&b);
		end(&f, &d);
	}
}

/* -- rounds of a run -- */

/* The text of a round begins so and ends with the time that deciding took. */
static bool tells(const char *text, const char *begin)
{
	const char *end = "; decided in ";
	double ms = -1;

	if (strncmp(text, begin, strlen(begin)) || strncmp(text + strlen(begin), end, strlen(end)) ||
	    sscanf(text + strlen(begin) + strlen(end), "%lf ms", &ms) != 1 || ms < 0 || ms > 1e5) {
		fprintf(stderr, "'%s' is not '%s%s%g'\n", text, begin, end, ms);
		return false;
	}
	return true;
}

/* A node that becomes half as fast in round 2 of a run loses an op; with one step left it keeps it. Then it
 * is named no more, and the plan stays. The first jump counts as 5 % in the spread, so the margin of round 2
 * is the root of half its square: 6 - 4 * 1.0354 ms. */
static void test_live(void)
{
	for (int way = 0; way < 2; way++) {
		struct fork f;
		struct dlb_doc d;
		struct dlb_live live = { .simulated = true };
		struct dlb_error err = { .what = "" };
		struct dlb_round_decision r = { .left_steps = 1000000 };
		char text[300];

		start(&f, &d, "cpu:2");
		const double ms = number(&d, "value_s") * 1e3;
		report(&d, ms * 1e-3, 3e-3, 3e-3);
		fork_must(dlb_live_round(&live, &cli, &d, &r, &err), &err);
		snprintf(
			text, sizeof text,
			"round 1: %.4g ms a step, %.4g ms predicted, excess waiting 0.0 %%: stays: same plan",
			ms, ms);
		assert(!r.moves && tells(r.text, text));
		report(&d, 6e-3, 6e-3, 3e-3);
		r.left_steps = way ? 1 : INT64_MAX;
		fork_must(dlb_live_round(&live, &cli, &d, &r, &err), &err);
		assert(IS(r.moves, ==, !way) && IS(on_node(&d, 0), ==, way ? 3 : 2));
		snprintf(text, sizeof text,
			 "round 2: 6 ms a step, %.4g ms predicted, excess waiting 25.0 %%, something "
			 "changed, the model was "
			 "corrected; node 0 is slow at computing: as others of its kind, a step would take "
			 "%.4g ms (-50 %%): ",
			 ms, 6 * ms / (ms + 3));
		if (way)
			snprintf(text + strlen(text), sizeof text - strlen(text),
				 "stays: another plan does not pay, it would save 1.86 ms a step and take 12 "
				 "ms");
		else
			snprintf(text + strlen(text), sizeof text - strlen(text),
				 "1 op moves with %.4g MB of state, 4 ms a step expected",
				 number(&d, "moved_bytes") / 1e6);
		assert(tells(r.text, text));
		r = (struct dlb_round_decision){ .left_steps = 1 };
		report(&d, way ? 6e-3 : 4e-3, way ? 6e-3 : 4e-3, way ? 3e-3 : 4e-3);
		fork_must(dlb_live_round(&live, &cli, &d, &r, &err), &err);
		assert(!r.moves && !strstr(r.text, "slow at computing") && HAS(r.text, ": stays: "));
		assert(IS(live.inputs.plan.moved_ops, ==, !way)); /* of the plan that the round began with */
		dlb_live_release(&live);
		assert(!live.is_read && !live.other_plan && IS(live.inputs.graph.n_ops, ==, 0));
		end(&f, &d);
	}
}

/* A plan that is made of another order, or of other placements of one op or of several. */
static void test_live_ops(void)
{
	static const struct {
		int n;
		double bytes;
		const char *says;
	} rows[] = { { 0, 0, "" },
		     { 1, 0, "1 op moves with 0 MB of state" },
		     { 2, 3.5e6, "2 ops move with 3.5 MB of state" } };

	for (int i = 0; i < DLB_LEN(rows); i++) {
		json_t *plan = json_pack("{si, sf}", "moved_ops", rows[i].n, "moved_bytes", rows[i].bytes);
		char text[60];

		assert(IS(dlb_live_tell_ops(plan, text, sizeof text), ==, (int)strlen(rows[i].says)) &&
		       SAME(text, rows[i].says));
		json_decref(plan);
	}
}

/* Replicas whose nodes differ exchange samples, and no op moves; at most six shares are told. */
static void test_live_shares(void)
{
	for (int n = 6; n <= 7; n++) {
		struct fork f;
		struct dlb_doc d;
		struct dlb_live live = { .simulated = true };
		struct dlb_error err = { .what = "" };
		struct dlb_round_decision r = { .left_steps = 1000000 };
		struct dlb_replan o = plain();
		char text[40], *at;

		snprintf(text, sizeof text, "cpu:%d", n);
		start(&f, &d, text);
		snprintf(text, sizeof text, "%d", n);
		o.replicas = text;
		o.batch = "64";
		replan(&d, o);
		double busy_s[7];
		for (int i = 0; i < n; i++)
			busy_s[i] = (i ? 8 : 16) * 1e-3;
		report_of(&d, 16e-3, busy_s, n);
		fork_must(dlb_live_round(&live, &cli, &d, &r, &err), &err);
		assert(r.moves && (at = strstr(r.text, ": replicas share samples as ")));
		const json_t *power = member(&d, "power");
		char shares[100] = ": replicas share samples as ";
		for (int i = 0; i < 6; i++)
			snprintf(shares + strlen(shares), sizeof shares - strlen(shares), "%s%.4g",
				 i ? " : " : "", json_number_value(json_array_get(power, (size_t)i)));
		snprintf(shares + strlen(shares), sizeof shares - strlen(shares), "%s, ",
			 n > 6 ? " ..." : "");
		assert(IS(strncmp(at, shares, strlen(shares)), ==, 0) &&
		       HAS(at, " ms a step expected; decided in "));
		dlb_live_release(&live);
		end(&f, &d);
	}
}

/* A node that waits for its data is named first. */
static void test_starved(void)
{
	struct fork f;
	struct dlb_doc d;
	struct dlb_live live = { .simulated = true };
	struct dlb_error err = { .what = "" };
	struct dlb_round_decision r = { .left_steps = 1000000 };
	static const struct {
		double first_ms, second_ms;
		const char *says;
	} rows[] = { { 0.6, 0.5, "; node 0 waits 15.0 % of a step for data: " },
		     { 0.3, 0.4, "; node 1 waits 10.0 % of a step for data: " },
		     { 0.19, 0.19, NULL } };

	start(&f, &d, "cpu:2");
	for (int i = 0; i < DLB_LEN(rows); i++) {
		report(&d, 4 * FORK_MS, 3 * FORK_MS, 3 * FORK_MS);
		json_t *nodes = json_object_get(dlb_doc_section(&d, "report"), "nodes");
		json_object_set_new(json_array_get(nodes, 0), "data_wait_s",
				    json_real(rows[i].first_ms * FORK_MS));
		json_object_set_new(json_array_get(nodes, 1), "data_wait_s",
				    json_real(rows[i].second_ms * FORK_MS));
		fork_must(dlb_live_round(&live, &cli, &d, &r, &err), &err);
		assert(rows[i].says ? HAS(r.text, rows[i].says) : !strstr(r.text, "for data"));
	}
	dlb_live_release(&live);
	end(&f, &d);
}

int main(void)
{
	test_moved_bytes();
	test_gate();
	test_margin();
	test_cycle();
	test_gate_stays();
	test_best_now();
	test_gate_shares();
	test_gate_memory();
	test_without_gate();
	test_split_stays();
	test_live_ops();
	test_live();
	test_live_shares();
	test_starved();
	puts("test_gate: bounds of the gate, its margin, cycles, shares, memory; what rounds do and say");
	return 0;
}
