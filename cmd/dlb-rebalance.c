/* dlb-rebalance: report -> balance; --test asks whether the load is balanced. */
#include <stdio.h>

#include "balance/balance.h"
#include "util/cli.h"

/* Exit status of --test: 0 balanced, 1 not balanced or not yet run, 2 bad document. */
static int test(const struct dlb_cli *cli, const struct dlb_doc *doc)
{
	struct dlb_error err = { .what = "" };
	struct dlb_cluster cl;
	struct dlb_balance b;
	int status;

	if (!dlb_doc_section(doc, "balance"))
		return 1;
	if (dlb_cluster_read(doc, &cl, &err))
		return dlb_cli_die(cli, &err);
	if (dlb_balance_read(doc, cl.n_nodes, &b, &err)) {
		dlb_cluster_release(&cl);
		return dlb_cli_die(cli, &err);
	}
	status = b.converged ? 0 : 1;
	dlb_balance_release(&b);
	dlb_cluster_release(&cl);
	return status;
}

static void tell(const struct dlb_cli *cli, const struct dlb_balance *b)
{
	const struct dlb_balance_round *r = &b->history[b->n_history - 1];
	double t = r->step_s;
	char culprit[160];

	dlb_cli_say(
		cli,
		"round %d: %.6g s a step, %.6g s predicted; waiting beyond what is structural: mean %.1f%%, "
		"max %.1f%%; rounds differ by %.1f%%%s%s%s",
		r->round, t, r->predicted_step_s, 100 * r->mean_excess_s / t, 100 * r->max_excess_s / t,
		100 * b->spread, r->held ? "; the model moved, weights held" : "",
		r->rolled_back ? "; worse than the best, rolled back" : "",
		r->changed ? "; something changed" : "");
	dlb_culprit_tell(&b->culprit, t, culprit, sizeof culprit);
	if (culprit[0])
		dlb_cli_say(cli, "%s", culprit);
	if (b->links_told)
		dlb_cli_say(cli, "%s", b->links_told);
	if (r->noisy)
		dlb_cli_say(cli, "waiting for noise to end: %.1f%% of a step is waiting that neither the plan nor a "
				 "node's speed explains%s",
			    100 * r->mean_excess_s / t, b->converged ? "" : "; the best plan is kept");
	else if (!b->converged && b->reason)
		dlb_cli_say(cli,
			    "balancing repeats itself (%s): back at the plan or the time of an earlier round",
			    b->reason);
	if (b->split_stays)
		dlb_cli_say(cli, "no samples move between replicas, as dlb-place --split even asks");
	if (!b->converged)
		return;
	dlb_cli_say(cli, "converged after %d rounds (%s), %.6g s a step", b->round, b->reason,
		    b->best_step_s);
	if (!r->test_b && r->mean_excess_s > 0)
		dlb_cli_warn(cli,
			     "nodes still wait %.1f%% of a step beyond what is structural: %.6g s a step, "
			     "and no plan can take less than %.6g s",
			     100 * r->mean_excess_s / t, b->best_step_s, b->floor_s);
}

int main(int argc, char **argv)
{
	const char *rule_name = "log";
	int64_t stable = 3, max_rounds = 50;
	bool only_test = false;
	const struct dlb_opt opts[] = {
		{ 0, "rule", DLB_OPT_STR, &rule_name, "NAME", "log or patent (default log)", NULL, 0, 0 },
		{ 0, "stable", DLB_OPT_INT, &stable, "N", "rounds the plan has to stay the same (default 3)",
		  NULL, 1, 1e6 },
		{ 0, "max-rounds", DLB_OPT_INT, &max_rounds, "N", "stop after so many rounds (default 50)",
		  NULL, 1, 1e6 },
		{ 0, "test", DLB_OPT_FLAG, &only_test, NULL, "exit 0 if balanced, 1 if not; write nothing",
		  NULL, 0, 0 },
	};
	struct dlb_cli cli = {
		.tool = "dlb-rebalance",
		.usage = "[OPTION...] [FILE]",
		.summary = "compute node weights for the next plan from the last round's waiting times",
		.opts = opts,
		.n_opts = DLB_LEN(opts),
		.max_operands = 1
	};
	struct dlb_error err = { .what = "" };
	const struct dlb_rule *rule;
	struct dlb_balance b;
	struct dlb_doc doc;
	int rc;

	if (dlb_cli_parse(&cli, argc, argv))
		return cli.status;
	rule = dlb_rule_find(rule_name);
	if (!rule)
		return dlb_cli_usage(&cli, "no rule '%s': log or patent", rule_name);
	if (dlb_doc_read(&doc, cli.n_operands ? cli.operands[0] : NULL, &err))
		return dlb_cli_die(&cli, &err);
	static const char alone[] = "--test makes no new weights";
	const struct dlb_unused unused[] = { { "rule", only_test, alone },
					     { "stable", only_test, alone },
					     { "max-rounds", only_test, alone },
					     { NULL, false, NULL } };
	dlb_cli_warn_unused(&cli, unused);
	if (only_test) {
		rc = test(&cli, &doc);
		dlb_doc_release(&doc);
		dlb_cli_release(&cli);
		return rc;
	}
	const struct dlb_balance_options o = { .stable = (int)stable, .max_rounds = (int)max_rounds };
	rc = dlb_rebalance(&doc, rule, &o, &b, &err);
	if (!rc) {
		tell(&cli, &b);
		dlb_balance_release(&b);
		dlb_doc_provenance(&doc, cli.tool, argc, argv);
		rc = dlb_doc_write(&doc, stdout, &err);
	}
	dlb_doc_release(&doc);
	rc = rc ? dlb_cli_die(&cli, &err) : dlb_cli_close_stdout(&cli);
	dlb_cli_release(&cli);
	return rc;
}
