/* Links that lost bandwidth, or have it again (balance/culprit.h, links.c), on the model of fork.h over two hosts:
 * rounds are as long as the simulated step with other bandwidths, or just shorter or longer than the bounds. */
#include "fork_plan.h"
#include "balance/culprit.h"
#include "balance/rules.h"
#include "cluster/cluster.h"
#include "plan/timeline.h"

struct round {
	struct fork f;
	struct dlb_doc d;
	struct dlb_balance_inputs s;
	struct dlb_load l;
	struct dlb_balance b;
	struct dlb_arena a;
	int link; /* the first between the hosts */
};

/* Links between hosts have less than this. */
static const double between_Bps = 1e7;

/* A round as long as it was predicted, of a plan with ops on both nodes. */
static void begin(struct round *x)
{
	struct dlb_error err = { .what = "" };

	memset(x, 0, sizeof *x);
	start(&x->f, &x->d, "cpu:1 host cpu:1 link=rack:1e-6,1.25e6");
	report(&x->d, 3 * FORK_MS, 3 * FORK_MS, 3 * FORK_MS);
	dlb_balance_init(&x->b, 2);
	fork_must(dlb_balance_inputs_read(&x->d, &x->s, &err), &err);
	fork_must(dlb_load_of(&x->s, x->b.kappa, &x->a, &x->l, &err), &err);
	x->l.round_se_s = 0;
	while (x->s.cluster.link[x->link].stated_Bps >= between_Bps)
		x->link++;
	assert(IS(on_node(&x->d, 0), ==, 3));
}

static void finish(struct round *x)
{
	dlb_balance_release(&x->b);
	dlb_arena_release(&x->a);
	dlb_balance_inputs_release(&x->s);
	end(&x->f, &x->d);
}

static void set_all(struct round *x, double factor)
{
	struct dlb_cluster *c = &x->s.cluster;

	for (int k = 0; k < c->n_links; k++)
		if (c->link[k].stated_Bps < between_Bps)
			c->link[k].bandwidth_Bps = c->link[k].stated_Bps * factor;
}

/* Seconds of a step with the present bandwidths. */
static double present_step_s(const struct round *x)
{
	struct dlb_timeline t;
	struct dlb_error err;

	fork_must(dlb_program_simulate(&x->s.program, &x->s.cost,
				       &(struct dlb_simulate_choice){ .keep_spans = false }, &t, &err),
		  &err);
	const double s = t.step_s;
	dlb_timeline_release(&t, 2);
	return s;
}

/* Seconds of a step with `factor` of the stated bandwidth of each link between hosts. They then have that. */
static double step_s(struct round *x, double factor)
{
	set_all(x, factor);
	return present_step_s(x);
}

/* Messages of 16 bytes: with that part of the bandwidth, one takes about as long as the ops of a node. */
static double slow_part(const struct round *x)
{
	return 16 / (3 * FORK_MS) / x->s.cluster.link[x->link].stated_Bps;
}

/* All bandwidths are as stated again: the round is as fast as with them, and much faster than with the present ones. */
static void test_none(void)
{
	struct round x;

	begin(&x);
	const double part = slow_part(&x) / 4, stated_s = step_s(&x, 1), present_s = step_s(&x, part);
	const struct {
		double s, se_s;
		bool none;
	} rows[] = { { stated_s, 0, true },         { 1.04 * stated_s, 0, true },
		     { 1.06 * stated_s, 0, false }, { stated_s, 0.04 * stated_s, false },
		     { .79 * present_s, 0, false }, { present_s, 0, false } };
	assert(IS(present_s, >, 2 * stated_s));
	set_all(&x, part);
	for (int i = 0; i < DLB_LEN(rows); i++) {
		x.l.round_s = rows[i].s;
		x.l.round_se_s = rows[i].se_s;
		x.l.predicted_s = present_s;
		assert(IS(dlb_slow_link_none(&x.s, &x.l), ==, rows[i].none));
	}
	x.l.round_s = stated_s;
	x.l.round_se_s = 0;
	set_all(&x, .9); /* present ones that make no difference */
	assert(IS(dlb_slow_link_none(&x.s, &x.l), ==, false));
	finish(&x);
}

/* A round that a slower link explains names it; one that the speed of the nodes explains to a tenth does not. */
static void test_find(void)
{
	struct round x;
	struct dlb_culprit c = { .cause = DLB_CAUSE_NONE };

	begin(&x);
	const double part = slow_part(&x);
	x.l.round_s = step_s(&x, part);
	x.l.predicted_s = step_s(&x, 1);
	assert(IS(x.l.round_s, >, 1.5 * x.l.predicted_s));
	dlb_slow_link_find(&x.s, &x.l, &c);
	assert(IS((int)c.cause, ==, DLB_CAUSE_LINK) && IS(fabs(c.step_s / x.l.predicted_s - 1), <, 1e-9) &&
	       IS(c.stated_Bps, ==, x.s.cluster.link[x.link].stated_Bps) &&
	       IS(fabs(c.measured_Bps / (part * c.stated_Bps) - 1), <, .15));
	c = (struct dlb_culprit){ .cause = DLB_CAUSE_NONE };
	x.l.round_se_s = .5 * x.l.round_s; /* noise */
	dlb_slow_link_find(&x.s, &x.l, &c);
	assert(IS((int)c.cause, ==, DLB_CAUSE_NONE));
	x.l.round_se_s = 0;
	for (int i = 0; i < 2; i++)
		x.l.busy_s[i] = .9 * x.l.predicted_busy_s[i] * x.l.round_s / x.l.predicted_s;
	dlb_slow_link_find(&x.s, &x.l, &c);
	assert(IS((int)c.cause, ==, DLB_CAUSE_NONE));
	finish(&x);
}

/* A corrected link has the bandwidth that the round shows. */
static void test_now(void)
{
	struct round x;
	bool seen;

	begin(&x);
	const double part = slow_part(&x) / 8;
	struct dlb_link *link = &x.s.cluster.link[x.link];
	const double stated_s = step_s(&x, 1);
	link->bandwidth_Bps = 3 * part * link->stated_Bps;
	const double between_s = present_step_s(&x);
	link->bandwidth_Bps = part * link->stated_Bps;
	x.l.round_s = present_step_s(&x);
	assert(IS(dlb_slow_link_now(&x.s, &x.l, x.link, &seen), ==, part) && seen);
	x.l.round_s = stated_s;
	assert(IS(fabs(dlb_slow_link_now(&x.s, &x.l, x.link, &seen) - 1), <, 1e-12) && seen);
	x.l.round_se_s = .04 * stated_s;
	assert(IS(dlb_slow_link_now(&x.s, &x.l, x.link, &seen), ==, part) && seen);
	x.l.round_se_s = 0;
	x.l.round_s = between_s;
	assert(IS(fabs(dlb_slow_link_now(&x.s, &x.l, x.link, &seen) / (3 * part) - 1), <, .15) && seen);
	link->bandwidth_Bps = .5 * link->stated_Bps;
	x.l.round_s = stated_s;
	assert(IS(dlb_slow_link_now(&x.s, &x.l, x.link, &seen), ==, .5) && !seen);
	finish(&x);
}

/* A corrected link that no plan needs is tried again after `patience` rounds; a trial of four rounds without a
 * late one restores the usual patience. */
static void test_unseen(void)
{
	struct round x;
	struct dlb_balance_link link = { .factor = .5, .patience = 3 };

	begin(&x);
	link.link = x.link;
	x.b.link = &link;
	x.b.n_links = 1;
	x.l.predicted_s = x.l.round_s = step_s(&x, 1);
	x.s.cluster.link[x.link].bandwidth_Bps *= .5;
	for (int round = 1; round < 3; round++)
		assert(!dlb_balance_correct_links(&x.s, &x.l, &x.b) && IS(link.unseen, ==, round) &&
		       IS(link.factor, ==, .5) && !x.b.links_told);
	assert(dlb_balance_correct_links(&x.s, &x.l, &x.b) && HAS(x.b.links_told, "again, to try it"));
	assert(IS(link.factor, ==, 1) && IS(link.unseen, ==, 0) && IS(link.patience, ==, 6) &&
	       IS(link.trial, ==, 4) &&
	       IS(x.s.cluster.link[x.link].bandwidth_Bps, ==, x.s.cluster.link[x.link].stated_Bps));
	for (int left = 3; left >= 0; left--)
		assert(!dlb_balance_correct_links(&x.s, &x.l, &x.b) && IS(link.trial, ==, left) &&
		       IS(link.patience, ==, left ? 6 : 16));
	x.b.link = NULL;
	x.b.n_links = 0;
	finish(&x);
}

/* A first late round makes its links suspect, a second one in a row corrects them; so does one round of a trial. */
static void test_suspect(void)
{
	struct round x;

	begin(&x);
	struct dlb_culprit *c = &x.b.culprit;
	int second = x.link + 1;
	while (x.s.cluster.link[second].stated_Bps >= between_Bps)
		second++;
	const struct dlb_culprit late = { .cause = DLB_CAUSE_LINK,
					  .n_links = 2,
					  .at = { second, x.link },
					  .measured_Bps = 2.5e5,
					  .step_s = 1e-3 };
	x.l.predicted_s = x.l.round_s = 10e-3; /* ten times as long */
	*c = late;
	assert(!dlb_balance_correct_links(&x.s, &x.l, &x.b) && IS(x.b.n_links, ==, 2));
	for (int i = 0; i < 2; i++)
		assert(x.b.link[i].suspected && IS(x.b.link[i].link, ==, late.at[i]) &&
		       IS(x.b.link[i].factor, ==, 1) && IS(x.b.link[i].patience, ==, 16));
	c->cause = DLB_CAUSE_NONE; /* not in a row */
	assert(!dlb_balance_correct_links(&x.s, &x.l, &x.b) && !x.b.link[0].suspected &&
	       !x.b.link[1].suspected);
	*c = late;
	assert(!dlb_balance_correct_links(&x.s, &x.l, &x.b) && !x.b.links_told);
	assert(dlb_balance_correct_links(&x.s, &x.l, &x.b) && IS(x.b.n_links, ==, 2));
	assert(HAS(x.b.links_told, dlb_link_name(&x.s.cluster, second)) &&
	       HAS(x.b.links_told, " (and 1 other) counts with 0.25 MB/s"));
	for (int i = 0; i < 2; i++)
		assert(!x.b.link[i].suspected && IS(fabs(x.b.link[i].factor - .2), <, 1e-12) &&
		       IS(x.b.link[i].patience, ==, 40) &&
		       IS(fabs(x.s.cluster.link[late.at[i]].bandwidth_Bps - 2.5e5), <, 1e-3));
	/* of the present bandwidth, after a trial too: at once */
	for (int i = 0; i < 2; i++)
		x.b.link[i].trial = 2;
	c->measured_Bps = 1.25e5;
	assert(dlb_balance_correct_links(&x.s, &x.l, &x.b));
	for (int i = 0; i < 2; i++)
		assert(IS(fabs(x.b.link[i].factor - .1), <, 1e-12) && IS(x.b.link[i].trial, ==, 0));
	/* more than four links may be it: none is corrected */
	c->n_links = DLB_EQUAL_LINKS + 1;
	x.b.link[0].trial = 2;
	x.l.round_s = x.l.predicted_s = step_s(&x, .1);
	assert(!dlb_balance_correct_links(&x.s, &x.l, &x.b) && IS(x.b.n_links, ==, 2) &&
	       IS(x.b.link[0].trial, ==, 1));
	/* all have their bandwidths again */
	set_all(&x, slow_part(&x));
	for (int i = 0; i < 2; i++)
		x.b.link[i].factor = slow_part(&x);
	c->cause = DLB_CAUSE_NONE;
	x.l.predicted_s = present_step_s(&x);
	struct round other;
	begin(&other);
	x.l.round_s = step_s(&other, 1);
	finish(&other);
	assert(dlb_balance_correct_links(&x.s, &x.l, &x.b) && HAS(x.b.links_told, "again"));
	for (int i = 0; i < 2; i++)
		assert(IS(x.b.link[i].factor, ==, 1) && IS(x.s.cluster.link[late.at[i]].bandwidth_Bps, ==,
							   x.s.cluster.link[late.at[i]].stated_Bps));
	finish(&x);
}

int main(void)
{
	test_none();
	test_find();
	test_now();
	test_unseen();
	test_suspect();
	printf("links that are slow, fast again, unseen\n");
	return 0;
}
