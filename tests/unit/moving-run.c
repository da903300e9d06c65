/* dlb-run for one of several ranks, whose plan changes at random every second step, and with it the node weights,
 * so that replicas change their nodes: moving-run DOC STEPS SEED
 * [CHECKPOINT-FOLDER]. Started by mpirun; writes the document to standard output. tests/rounds.bats compares
 * the losses and weights with those of a run that stays. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "balance/replan.h"
#include "exec/command.h"
#include "util/clock.h"

static int64_t seed;

static int move_at_random(void *live, const struct dlb_cli *cli, struct dlb_doc *doc,
			  struct dlb_round_decision *d, struct dlb_error *err)
{
	struct dlb_replan o = { .cli = cli,
				.micro_batches = 1,
				.seed = seed++,
				.seed_given = true,
				.started_s = dlb_clock_s(),
				.algorithm = "random",
				.constraints.max_moves = -1,
				.no_timeline = true };
	struct dlb_balance b;

	(void)live;
	d->moves = true;
	snprintf(d->text, sizeof d->text, "seed %lld", (long long)o.seed);
	dlb_balance_init(&b, (int)json_array_size(json_object_get(dlb_doc_section(doc, "cluster"), "nodes")));
	b.round = (int)seed;
	for (int i = 0; i < b.n_nodes; i++)
		b.weight[i] = 1 + (seed + i) % b.n_nodes;
	dlb_doc_put(doc, "balance", dlb_balance_write(&b));
	dlb_balance_release(&b);
	return dlb_replan(&o, doc, err);
}

int main(int argc, char **argv)
{
	struct dlb_cli cli = { .tool = "moving-run", .quiet = true };
	struct dlb_run_command c = { .cli = &cli, .argc = argc, .argv = argv, .rebalance = move_at_random };

	if (argc < 4) {
		fputs("moving-run DOC STEPS SEED [CHECKPOINT-FOLDER]\n", stderr);
		return 2;
	}
	cli.operands[0] = argv[1];
	cli.n_operands = 1;
	seed = strtoll(argv[3], NULL, 10);
	c.exec.steps = strtoll(argv[2], NULL, 10);
	c.exec.epochs = c.exec.until_step = -1;
	c.exec.until_loss = NAN;
	c.exec.timeout_s = 60;
	c.exec.quiet = true;
	c.exec.rounds = INT64_MAX;
	c.exec.round_steps = 2;
	c.exec.checkpoint = argc > 4 ? argv[4] : NULL;
	c.edit.steps = c.exec.steps;
	c.edit.until_step = -1;
	return dlb_command_rank(&c);
}
