/* Options of dlb-run whose text has a form of its own (exec/run_text.h): taken apart, put in order, refused. */
#include "check.h"
#include "exec/run_text.h"
#include "util/mem.h"
#include <math.h>

static const struct dlb_cli cli = { .tool = "test" };

struct texts {
	const char *slow[5], *freeze[4], *until, *rounds, *on_failure, *release;
};

/* Parses them; t and c are the caller's. */
static int parse(const struct texts *x, struct dlb_run_text *t, struct dlb_run_command *c)
{
	memset(c, 0, sizeof *c);
	c->cli = &cli;
	*t = (struct dlb_run_text){
		.until = x->until, .rounds = x->rounds, .on_failure = x->on_failure, .release = x->release
	};
	t->slow.item = dlb_xcalloc(DLB_LEN(x->slow), sizeof *t->slow.item);
	t->freeze.item = dlb_xcalloc(DLB_LEN(x->freeze), sizeof *t->freeze.item);
	while (t->slow.n < DLB_LEN(x->slow) && x->slow[t->slow.n]) {
		t->slow.item[t->slow.n] = x->slow[t->slow.n];
		t->slow.n++;
	}
	while (t->freeze.n < DLB_LEN(x->freeze) && x->freeze[t->freeze.n]) {
		t->freeze.item[t->freeze.n] = x->freeze[t->freeze.n];
		t->freeze.n++;
	}
	return dlb_run_text_parse(t, c);
}

static void test_taken(void)
{
	static const struct texts none = { .until = NULL },
				  all = { .slow = { "3:2.5", "1:4@20", "0:1.5", "1:.25@30", "1:1@5" },
					  .freeze = { "a*@30", "b@c@2", "d@30" },
					  .until = "loss<.5",
					  .rounds = "7",
					  .on_failure = "replan",
					  .release = "idle" },
				  others = { .rounds = "auto", .on_failure = "stop" };
	static const int change_at[] = { 5, 20, 30 }, freeze_at[] = { 2, 30, 30 };
	static const double factor[] = { 1, 4, .25 };
	static const char *const glob[] = { "b@c", "a*", "d" };
	struct dlb_run_text t;
	struct dlb_run_command c;

	assert(IS(parse(&none, &t, &c), ==, 0));
	assert(IS(c.exec.n_slow, ==, 0) && IS(c.exec.n_slow_changes, ==, 0) &&
	       IS(c.exec.n_freeze_at, ==, 0) && isnan(c.exec.until_loss) && IS(c.exec.rounds, ==, 0) &&
	       !c.exec.replan && !c.releases);
	dlb_run_text_release(&t);

	assert(IS(parse(&all, &t, &c), ==, 0));
	assert(IS(c.exec.n_slow, ==, 4) && IS(c.exec.slow[0], ==, 1.5) && IS(c.exec.slow[1], ==, 1) &&
	       IS(c.exec.slow[2], ==, 1) && IS(c.exec.slow[3], ==, 2.5));
	assert(IS(c.exec.n_slow_changes, ==, 3));
	for (int i = 0; i < 3; i++) { /* by their steps */
		const struct dlb_slow_change *x = &c.exec.slow_change[i];
		assert(IS(x->node, ==, 1) && IS(x->step, ==, change_at[i]) && IS(x->factor, ==, factor[i]));
	}
	assert(IS(c.exec.n_freeze_at, ==, 3)); /* of equal steps in their order; the last @ begins the step */
	for (int i = 0; i < 3; i++)
		assert(SAME(c.exec.freeze_at[i].glob, glob[i]) &&
		       IS(c.exec.freeze_at[i].step, ==, freeze_at[i]));
	assert(IS(c.exec.until_loss, ==, .5) && IS(c.exec.rounds, ==, 7) && c.exec.replan && c.releases);
	dlb_run_text_release(&t);

	assert(IS(parse(&others, &t, &c), ==, 0) && IS(c.exec.rounds, ==, INT64_MAX) && !c.exec.replan);
	dlb_run_text_release(&t);
}

static void test_refused(void)
{
	static const struct texts rows[] = { { .slow = { "1" } },
					     { .slow = { ":2" } },
					     { .slow = { "1:" } },
					     { .slow = { "-1:2" } },
					     { .slow = { "1000001:2" } },
					     { .slow = { "1:.5" } },
					     { .slow = { "1:2e6" } },
					     { .slow = { "1:2x" } },
					     { .slow = { "1:2@" } },
					     { .slow = { "1:2@x" } },
					     { .slow = { "1:1e-7@3" } },
					     { .slow = { "1:.5@3" } },
					     { .slow = { "1:nan" } },
					     { .slow = { "1:2", "1:.4@3" } },
					     { .slow = { "1:2@5", "1:.5@4" } },
					     { .slow = { "0:2", "1:.5@4" } },
					     { .freeze = { "a" } },
					     { .freeze = { "@3" } },
					     { .freeze = { "a@" } },
					     { .freeze = { "a@x" } },
					     { .freeze = { "a@3", "b" } },
					     { .until = "loss" },
					     { .until = "loss<" },
					     { .until = "loss<x" },
					     { .until = "loss<1x" },
					     { .until = "loss<inf" },
					     { .until = "loss>1" },
					     { .rounds = "x" },
					     { .rounds = "-1" },
					     { .on_failure = "go" },
					     { .release = "all" },
					     { .release = "" },
					     { .on_failure = "" } };

	for (int i = 0; i < DLB_LEN(rows); i++) {
		struct dlb_run_text t;
		struct dlb_run_command c;

		if (!parse(&rows[i], &t, &c)) {
			printf("row %d is taken\n", i);
			abort();
		}
		dlb_run_text_release(&t);
	}
}

int main(void)
{
	test_taken();
	if (!freopen("/dev/null", "w", stderr)) /* a line for each refusal */
		abort();
	test_refused();
	puts("texts of options: taken apart, refused");
	return 0;
}
