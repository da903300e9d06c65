/* Plans made again, on a model whose best plans are known by arithmetic (fork.h): ops move towards faster
 * nodes, and stay where they are told to; which of several plans an option takes; options that are refused,
 * each with one line. */
#include <unistd.h>
#include "fork_plan.h"
#include "balance/release.h"
#include "balance/replan_offload.h"
#include "balance/replan_zero.h"
#include "balance/survive.h"
#include "optim/optim.h"
#include "place/make.h"
#include "place/problem.h"
#include "place/replicas.h"
#include "plan/plan_json.h"
#include "plan/schedule.h"
#include "plan/sharing.h"

/* Three ops a node; with 0.5 and 1.5 a node's op takes 2 ms or two thirds of one, so 1 and 5 are best. The
 * stated step is without weights. */
static void test_weights(void)
{
	struct fork f;
	struct dlb_doc d;

	start(&f, &d, "cpu:2");
	assert(IS(on_node(&d, 0), ==, 3) && IS(on_node(&d, 1), ==, 3) && takes_ms(number(&d, "value_s"), 3));
	assert(IS(number(&d, "moved_ops"), ==, 0));
	weigh(&d, 1.5, 0.5);
	move(&d, plain());
	assert(IS(on_node(&d, 0), ==, 5) && takes_ms(number(&d, "value_s"), 5));
	weigh(&d, 0.5, 1.5);
	move(&d, plain());
	assert(IS(on_node(&d, 0), ==, 1) && IS(on_node(&d, 1), ==, 5));
	/* kappa, measured over predicted, is part of the stated step */
	dlb_doc_put(&d, "balance", json_pack("{s:[f,f],s:[f,f]}", "weights", 1., 1., "kappa", 1., 2.));
	move(&d, plain());
	assert(IS(on_node(&d, 0), ==, 4) && takes_ms(number(&d, "value_s"), 4));
	end(&f, &d);
}

/* With 0.9 and 1.1 no op had better move (3.33 ms; two and four take 3.64): plan and order stay. */
static void test_kept(void)
{
	struct fork f;
	struct dlb_doc d;

	start(&f, &d, "cpu:2");
	json_object_set_new(dlb_doc_section(&d, "plan"), "algorithm", json_string("etf"));
	json_t *was = json_deep_copy(dlb_doc_section(&d, "plan"));
	weigh(&d, 0.9, 1.1);
	replan(&d, plain());
	assert(json_equal(member(&d, "hash"), json_object_get(was, "hash")));
	assert(IS(number(&d, "moved_ops"), ==, 0) && IS(number(&d, "moved_bytes"), ==, 0));
	assert(SAME(json_string_value(member(&d, "algorithm")), "etf"));
	for (size_t i = 0; i < 2; i++)
		assert(json_equal(json_object_get(json_array_get(member(&d, "nodes"), i), "order"),
				  json_object_get(json_array_get(json_object_get(was, "nodes"), i),
						  "order")));
	json_decref(was);
	end(&f, &d);
}

/* The placement stays as asked for, whatever the weights; by the balance's word it becomes the best measured
 * one, if that is of this graph. */
static void test_told(void)
{
	static const int best[OPS + 1] = { 1, 0, 0, 0, 0, 0, 0 };
	struct fork f;
	struct dlb_doc d;

	for (int way = 0; way < 5; way++) {
		start(&f, &d, "cpu:2");
		json_t *was = json_incref(member(&d, "hash"));
		struct dlb_balance b;
		dlb_balance_init(&b, 2);
		b.weight[0] = 0.5;
		b.weight[1] = 1.5;
		b.keep = way == 1 || way == 3 || way == 4;
		b.converged = way == 2;
		b.best_placement = memcpy(dlb_arena_array(&b.arena, OPS + 1, sizeof *best), best,
					  sizeof best);
		b.n_placement = way == 3 ? OPS : OPS + 1;
		dlb_doc_put(&d, "balance", dlb_balance_write(&b));
		dlb_balance_release(&b);
		struct dlb_replan o = plain();
		o.stay = way == 0 || way == 4;
		move(&d, o);
		const bool stays = o.stay || way == 3;
		assert(IS(on_node(&d, 0), ==, stays ? 3 : 5));
		assert(stays == json_equal(member(&d, "hash"), was));
		assert(IS(number(&d, "moved_ops") > 0, ==, !stays));
		json_decref(was);
		end(&f, &d);
	}
}

/* A plan that is given is made as it is; of an algorithm that is asked for, whatever is there. */
static void test_given(void)
{
	struct fork f;
	struct dlb_doc d, other;
	struct dlb_plan next;
	struct dlb_error err = { .what = "" };
	struct dlb_replan o = plain();

	start(&f, &d, "cpu:2");
	fork_doc(&f, &other);
	weigh(&other, 0.5, 1.5);
	replan(&other, plain());
	fork_must(dlb_plan_read(&other, &f.c, &next, NULL, &err), &err);
	next.winner = "heft";
	o.next = &next;
	move(&d, o);
	assert(IS(on_node(&d, 0), ==, 1) && SAME(json_string_value(member(&d, "algorithm")), "heft"));
	assert(IS(number(&d, "moved_ops"), >, 0));
	dlb_plan_release(&next);
	dlb_doc_release(&other);
	o = plain();
	o.algorithm = "single";
	replan(&d, o);
	assert(IS(abs(on_node(&d, 0) - on_node(&d, 1)), ==, OPS));
	assert(SAME(json_string_value(member(&d, "algorithm")), "single"));
	/* kept for the next plan, too */
	replan(&d, plain());
	assert(IS(abs(on_node(&d, 0) - on_node(&d, 1)), ==, OPS));
	end(&f, &d);
}

/* A plan of other costs: its options hold, its placement does not. */
static void test_stale(void)
{
	struct fork f;
	struct dlb_doc d;
	struct dlb_replan o = plain();

	start(&f, &d, "cpu:2");
	o.micro_batches = 4;
	o.micro_batches_given = true;
	replan(&d, o);
	json_t *plan = json_deep_copy(dlb_doc_section(&d, "plan"));
	json_object_set_new(json_object_get(plan, "inputs"), "cost", json_string("0123456789abcdef"));
	dlb_doc_put(&d, "plan", plan);
	weigh(&d, 0.5, 1.5);
	replan(&d, plain());
	assert(IS(on_node(&d, 0), ==, 1) && IS(number(&d, "micro_batches"), ==, 4));
	assert(IS(number(&d, "moved_ops"), ==, 0));
	end(&f, &d);
}

/* The power of the second of two replicas over the first one's. */
static double power_ratio(const struct dlb_doc *doc)
{
	const json_t *power = member(doc, "power");

	assert(IS(json_array_size(member(doc, "replicas")), ==, 2) && IS(json_array_size(power), ==, 2));
	return json_number_value(json_array_get(power, 1)) / json_number_value(json_array_get(power, 0));
}

/* Shares of replicas by power: 8 samples over weights 0.5 and 1.5 are 2 and 6; even ones 4 and 4. An even
 * split that was asked for stays, and becomes one by power when that is asked for. */
static void test_shares(void)
{
	struct fork f;
	struct dlb_doc d;
	struct dlb_replan o = plain();

	start(&f, &d, "cpu:2");
	weigh(&d, 0.5, 1.5);
	o.replicas = "2";
	o.split = "even";
	replan(&d, o);
	assert(IS(power_ratio(&d), ==, 1));
	assert(SAME(json_string_value(member(&d, "split")), "even"));
	replan(&d, plain());
	assert(IS(power_ratio(&d), ==, 1));
	o.replicas = NULL;
	o.split = "power";
	replan(&d, o);
	assert(IS(fabs(power_ratio(&d) - 3), <, 1e-6));
	end(&f, &d);
}

/* -- lost and idle nodes -- */

static void test_survive(void)
{
	struct fork f;
	struct dlb_doc d;
	struct dlb_error err = { .what = "" };
	char text[DLB_RELEASE_TEXT];

	start(&f, &d, "cpu:3");
	assert(IS(on_node(&d, 1), ==, 2));
	fork_must(dlb_survive(&cli, &d, (bool[]){ false, true, false }, 3, text, &err), &err);
	assert(SAME(text, "2 of 3 nodes are left") && IS(on_node(&d, 0), ==, 3) && IS(on_node(&d, 1), ==, 0));
	/* lost before */
	fork_must(dlb_survive(&cli, &d, (bool[]){ true, false, false }, 3, text, &err), &err);
	assert(SAME(text, "1 of 3 nodes are left") && IS(on_node(&d, 2), ==, OPS));
	assert(IS(dlb_survive(&cli, &d, (bool[]){ false, false, true }, 3, text, &err), ==, -1));
	assert(SAME(err.what, "no node is left") && IS(on_node(&d, 2), ==, OPS));
	end(&f, &d);

	/* fewer nodes than replicas */
	start(&f, &d, "cpu:3");
	struct dlb_replan o = plain();
	o.replicas = "3";
	replan(&d, o);
	fork_must(dlb_survive(&cli, &d, (bool[]){ false, false, true }, 3, text, &err), &err);
	assert(SAME(text, "2 of 3 nodes are left, 2 replicas instead of 3: other bits from here on"));
	assert(IS(json_array_size(member(&d, "replicas")), ==, 2));
	end(&f, &d);
}

/* Six ops on four nodes take as long as on three; on two they take longer. */
static void test_release(void)
{
	struct fork f;
	struct dlb_doc d;
	struct dlb_error err = { .what = "" };
	char text[DLB_RELEASE_TEXT];

	start(&f, &d, "cpu:5");
	fork_must(dlb_release_idle(&cli, &d, text, &err), &err);
	assert(HAS(text, "without nodes ") && HAS(text, " a step takes 2.0"));
	assert(IS(json_array_size(member(&d, "exclude")), ==, 2));
	fork_must(dlb_release_idle(&cli, &d, text, &err), &err);
	assert(HAS(text, "all nodes are needed") && IS(json_array_size(member(&d, "exclude")), ==, 2));
	json_object_del(dlb_doc_section(&d, "plan"), "value_s");
	assert(IS(dlb_release_idle(&cli, &d, text, &err), ==, -1) &&
	       SAME(err.what, "the plan has no predicted step"));
	end(&f, &d);
}

/* -- what is asked of replicas -- */

static void test_choice(void)
{
	struct dlb_replan o = plain();
	struct replan_input in = { .options = &o };
	struct dlb_replicas_choice c = dlb_replan_replicas(&in);

	assert(IS(c.n, ==, 1) && !c.now && !c.sharing.by_power && !c.sharing.split_given && !c.keeps_shares);
	assert(SAME(c.sharing.allreduce, DLB_ALLREDUCE_AUTO));
	o.replicas = "3";
	o.split = "power";
	o.keeps_shares = true;
	c = dlb_replan_replicas(&in);
	assert(IS(c.n, ==, 3) && c.sharing.by_power && c.sharing.split_given && c.keeps_shares);
	o.replicas = "auto";
	o.split = "even";
	c = dlb_replan_replicas(&in);
	assert(IS(c.n, ==, 0) && !c.sharing.by_power && c.sharing.split_given);
	o = plain();
	in.has_plan = true;
	in.plan.n_replicas = 2;
	dlb_sharing_init(&in.plan.sharing);
	in.plan.sharing.by_power = true;
	in.plan.sharing.allreduce = "ring";
	in.plan.sharing.n_by_size = 1;
	snprintf(in.plan.sharing.compress_of[0], sizeof in.plan.sharing.compress_of[0], "int8");
	c = dlb_replan_replicas(&in);
	assert(IS(c.n, ==, 2) && IS(c.now, ==, &in.plan) && c.sharing.by_power && !c.sharing.split_given);
	assert(SAME(c.sharing.allreduce, "ring") && IS(c.sharing.n_by_size, ==, 0) &&
	       SAME(c.sharing.compress_of[0], ""));
	in.plan.n_replicas = 1; /* of one replica nothing was chosen */
	c = dlb_replan_replicas(&in);
	assert(SAME(c.sharing.allreduce, DLB_ALLREDUCE_AUTO));
}

/* -- plans of stages and of offloads, by a maker that counts -- */

static struct maker {
	int calls, fits_from, status, stage[8], rules[8];
} maker;

static int make_counted(const struct replan_input *in, const struct dlb_problem *p, struct dlb_plan *plan,
			struct dlb_error *err)
{
	const int k = maker.calls++;

	assert(IS(k, <, 8));
	maker.stage[k] = in->options->sharing.zero;
	maker.rules[k] = p->offload ? p->offload->n : -1;
	plan->n_replicas = 2;
	if (k >= maker.fits_from)
		return 0;
	return maker.status == 1 ? dlb_fail_no(err, NULL, "does not fit") : dlb_fail(err, NULL, "broken");
}

static void test_stages(void)
{
	static const struct {
		const char *replicas;
		bool automatic;
		int fits_from, status, calls, rc;
	} rows[] = {
		{ "2", true, 0, 1, 1, 0 },   { "2", true, 1, 1, 2, 0 },    { "2", true, 3, 1, 4, 0 },
		{ "2", true, 9, 1, 4, -1 },  { "2", true, 9, 2, 1, -1 },   { "1", true, 9, 1, 1, -1 },
		{ "2", false, 9, 1, 1, -1 }, { "auto", true, 2, 1, 3, 0 },
	};

	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_replan o = plain();
		struct replan_input in = { .options = &o };
		const struct dlb_problem p = { .n_groups = 0 };
		struct dlb_plan plan;
		struct dlb_error err = { .what = "" };

		o.replicas = rows[i].replicas;
		o.zero_auto = rows[i].automatic;
		o.sharing.zero = 7;
		maker = (struct maker){ .fits_from = rows[i].fits_from, .status = rows[i].status };
		assert(IS(dlb_replan_dividing(&in, &p, make_counted, &plan, &err), ==, rows[i].rc));
		assert(IS(maker.calls, ==, rows[i].calls));
		for (int k = 0; k < maker.calls; k++)
			assert(IS(maker.stage[k], ==, rows[i].automatic ? k : 7));
		assert(IS(o.sharing.zero, ==, 7));
	}
}

/* --zero: a stage, or auto. */
static void test_zero(void)
{
	static const struct {
		const char *text;
		int stage;
		bool automatic, given;
	} rows[] = { { NULL, 5, false, false },
		     { "0", 0, false, true },
		     { "1", 1, false, true },
		     { "3", 3, false, true },
		     { "auto", 5, true, true } };

	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_replan o = plain();

		o.zero = rows[i].text;
		o.sharing.zero = 5;
		assert(IS(dlb_replan_take_zero(&o), ==, 0));
		assert(IS(o.sharing.zero, ==, rows[i].stage) && IS(o.zero_auto, ==, rows[i].automatic) &&
		       IS(o.sharing.zero_given, ==, rows[i].given));
	}
}

/* -- refusals -- */

/* What a check prints on stderr, and its result. */
static const char *line_of(int (*check)(const struct dlb_replan *o), struct dlb_replan *o, int *rc)
{
	static char text[400];
	const int terminal = dup(2);
	FILE *f = tmpfile();
	size_t n;

	assert(f && terminal >= 0);
	fflush(stderr);
	assert(IS(dup2(fileno(f), 2), ==, 2));
	*rc = check(o);
	fflush(stderr);
	dup2(terminal, 2);
	close(terminal);
	rewind(f);
	n = fread(text, 1, sizeof text - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static int take_zero(const struct dlb_replan *o)
{
	struct dlb_replan copy = *o;

	return dlb_replan_take_zero(&copy);
}

static const struct refusal {
	enum { TEXT, RECOMPUTE, OFFLOAD, EFFORT, ZERO, NOTHING } kind;
	size_t member;
	const char *value, *says;
} refusals[] = {
#define AT(m) offsetof(struct dlb_replan, m)
	{ NOTHING, 0, NULL, NULL },
	{ TEXT, AT(replicas), "0", "--replicas wants a number or auto, not '0'" },
	{ TEXT, AT(replicas), "2x", "--replicas wants a number or auto, not '2x'" },
	{ TEXT, AT(replicas), "1048577", "--replicas wants a number or auto" },
	{ TEXT, AT(replicas), "1048576", NULL },
	{ TEXT, AT(replicas), "auto", NULL },
	{ TEXT, AT(batch), "none", "--batch wants a number of samples or auto, not 'none'" },
	{ TEXT, AT(batch), "1099511627777", "--batch wants a number of samples or auto" },
	{ TEXT, AT(batch), "1099511627776", NULL },
	{ TEXT, AT(batch), "auto", NULL },
	{ TEXT, AT(split), "speed", "--split wants even or power, not 'speed'" },
	{ TEXT, AT(split), "even", NULL },
	{ TEXT, AT(split), "power", NULL },
	{ TEXT, AT(algorithm), "guess", "no algorithm 'guess'; --list names them" },
	{ TEXT, AT(algorithm), "greedy", NULL },
	{ TEXT, AT(objective), "speed", "no objective 'speed'; there are step, throughput and latency" },
	{ TEXT, AT(objective), "latency", NULL },
	{ TEXT, AT(constraints.priority), "rank",
	  "no priority 'rank'; there are graph, upward-rank and given" },
	{ TEXT, AT(constraints.priority), "graph", NULL },
	{ TEXT, AT(constraints.priority), "upward-rank", NULL },
	{ TEXT, AT(constraints.priority), "given", NULL },
	{ TEXT, AT(constraints.rewrites), "some", "--rewrites wants keep-affinity or all, not 'some'" },
	{ TEXT, AT(constraints.rewrites), "all", NULL },
	{ TEXT, AT(constraints.rewrites), "keep-affinity", NULL },
	{ TEXT, AT(in_place), "yes", "--in-place wants on or off, not 'yes'" },
	{ TEXT, AT(in_place), "on", NULL },
	{ TEXT, AT(in_place), "off", NULL },
	{ TEXT, AT(state_dtype), "f16", "--state-dtype wants f32, bf16 or 8bit, not 'f16'" },
	{ TEXT, AT(state_dtype), "bf16", NULL },
	{ TEXT, AT(schedule), "fifo", "no schedule 'fifo'; there are auto, 1f1b, gpipe" },
	{ TEXT, AT(schedule), "auto", NULL },
	{ TEXT, AT(schedule), "1f1b", NULL },
	{ TEXT, AT(staleness), "old", "no rule 'old'; there are 2bw, stash, predict and none" },
	{ TEXT, AT(staleness), "stash", NULL },
	{ TEXT, AT(sharing.feed), "remote", "--feed wants local or host, not 'remote'" },
	{ RECOMPUTE, 0, "none x", "--recompute none excludes another --recompute" },
	{ RECOMPUTE, 0, "x auto", "--recompute auto excludes another --recompute" },
	{ RECOMPUTE, 0, "none", NULL },
	{ RECOMPUTE, 0, "auto", NULL },
	{ RECOMPUTE, 0, "x y", NULL },
	{ OFFLOAD, 0, "none w*=disk", "--offload none excludes another --offload" },
	{ OFFLOAD, 0, "w*=disk auto", "--offload auto excludes another --offload" },
	{ OFFLOAD, 0, "disk",
	  "--offload wants none, auto or [weights:|activations:]GLOB=MEMORY, not 'disk'" },
	{ OFFLOAD, 0, "activations:=disk",
	  "--offload wants none, auto or [weights:|activations:]GLOB=MEMORY, not" },
	{ OFFLOAD, 0, "=disk",
	  "--offload wants none, auto or [weights:|activations:]GLOB=MEMORY, not '=disk'" },
	{ OFFLOAD, 0, "w*=", "--offload wants none, auto or [weights:|activations:]GLOB=MEMORY, not 'w*='" },
	{ OFFLOAD, 0, "w*=disk a=b=c", NULL },
	{ OFFLOAD, 0, "none", NULL },
	{ OFFLOAD, 0, "auto", NULL },
	{ EFFORT, 0, NULL, "--effort and --time exclude each other" },
	{ ZERO, 0, "4", "--zero wants 0, 1, 2, 3 or auto, not '4'" },
	{ ZERO, 0, "00", "--zero wants 0, 1, 2, 3 or auto, not '00'" },
	{ ZERO, 0, "-1", "--zero wants 0, 1, 2, 3 or auto, not '-1'" },
#undef AT
};

static void test_refused(void)
{

	for (int i = 0; i < DLB_LEN(refusals); i++) {
		struct dlb_replan o = plain();
		char text[40];
		const char *item[4] = { NULL };
		struct dlb_strlist list = { item, 0 };
		char *rest;
		int rc;

		snprintf(text, sizeof text, "%s", refusals[i].value ? refusals[i].value : "");
		for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
			item[list.n++] = word;
		if (refusals[i].kind == TEXT)
			*(const char **)((char *)&o + refusals[i].member) = refusals[i].value;
		else if (refusals[i].kind == RECOMPUTE)
			o.recompute = list;
		else if (refusals[i].kind == OFFLOAD)
			o.offload = list;
		else if (refusals[i].kind == ZERO)
			o.zero = refusals[i].value;
		else if (refusals[i].kind == EFFORT)
			o.effort = 1, o.search_s = 0.5;
		const char *line = line_of(refusals[i].kind == ZERO ? take_zero : dlb_replan_check, &o, &rc);
		if (!refusals[i].says) {
			assert(IS(rc, ==, 0) && SAME(line, ""));
			continue;
		}
		assert(IS(rc, ==, 2) && HAS(line, refusals[i].says) && HAS(line, "; try 'test --help'\n"));
		assert(IS(strchr(line, '\n'), ==, line + strlen(line) - 1));
	}
}

int main(void)
{
	test_weights();
	test_kept();
	test_told();
	test_given();
	test_stale();
	test_shares();
	test_survive();
	test_release();
	test_choice();
	test_stages();
	test_zero();
	test_refused();
	puts("test_replan: moves towards faster nodes, plans that stay, given and stale plans, shares, "
	     "stages, refusals");
	return 0;
}
