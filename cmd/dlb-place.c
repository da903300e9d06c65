/* dlb-place: cost + balance (node weights) -> plan. The options; lib/balance/replan.h makes the plan. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include "balance/replan.h"
#include "plan/sharing.h"
#include "util/clock.h"

static int list(const struct dlb_cli *cli)
{
	for (const struct dlb_placer *p = dlb_placers; p->name; p++)
		printf("%-14s %s%s\n", p->name, p->summary, p->by_default ? " (tried by default)" : "");
	return dlb_cli_close_stdout(cli);
}

/* Each compiled program takes and frees some megabytes: malloc keeps them for the next program, because the
 * system zeroes pages that are given back and taken again. */
static void let_malloc_keep(void)
{
	enum { KEPT = 64 * 1024 * 1024 };

	mallopt(M_MMAP_THRESHOLD, KEPT / 2);
	mallopt(M_TRIM_THRESHOLD, KEPT);
}

/* Reads the document, plans, and writes it; returns the exit status. */
static int place(struct dlb_cli *cli, struct dlb_replan *o, int argc, char **argv)
{
	struct dlb_error err = { .what = "" };
	static struct dlb_doc doc;	/* never freed: freeing takes a tenth of a large graph's time */

	if (dlb_doc_read(&doc, cli->n_operands ? cli->operands[0] : NULL, &err))
		return dlb_cli_die(cli, &err);
	int no_plan = dlb_replan(o, &doc, &err);
	dlb_cli_release(cli);				/* the plan has the content of the lists */
	if (no_plan)
		return dlb_cli_die(cli, &err);
	dlb_doc_provenance(&doc, cli->tool, argc, argv);
	if (dlb_doc_write(&doc, stdout, &err))
		return dlb_cli_die(cli, &err);
	return dlb_cli_close_stdout(cli);
}

enum { MOST_OPTIONS = 60 };

/* Fills opts with the rows of the search, the schedule and the training that is planned for; returns their number. */
static int search_rows(struct dlb_opt *opts, struct dlb_replan *o)
{
	const struct dlb_opt rows[] = {
		{ 'a', "algorithm", DLB_OPT_STR, &o->algorithm, "NAME", "placement algorithm (default: auto)",
		  NULL, 0, 0 },
		{ 0, "objective", DLB_OPT_STR, &o->objective, "NAME",
		  "step, throughput or latency (default: what the cluster's links are made for)", NULL, 0,
		  0 },
		{ 0, "effort", DLB_OPT_INT, &o->effort, "N", "units of search (default 1)", NULL, 1,
		  1 << 20 },
		{ 0, "time", DLB_OPT_REAL, &o->search_s, "S",
		  "seconds to search, in place of --effort; plans then differ from run to run", NULL, 1e-3,
		  1e6 },
		{ 0, "batch", DLB_OPT_STR, &o->batch, "N",
		  "samples per step; auto: the fastest per sample that fits (default: the profile's)", NULL,
		  0, 0 },
		{ 'm', "micro-batches", DLB_OPT_INT, &o->micro_batches, "M",
		  "micro-batches per step (default 1)", &o->micro_batches_given, 1, 1 << 20 },
		{ 0, "schedule", DLB_OPT_STR, &o->schedule, "NAME",
		  "1f1b (default), gpipe, interleaved, zero-bubble, none, async or auto", NULL, 0, 0 },
		{ 0, "chunks", DLB_OPT_INT, &o->chunks, "V",
		  "parts per node with --schedule interleaved (default 2)", NULL, 1, 1024 },
		{ 0, "staleness", DLB_OPT_STR, &o->staleness, "RULE",
		  "of async: 2bw, stash, predict or none (default 2bw, else stash)", NULL, 0, 0 },
		{ 0, "in-place", DLB_OPT_STR, &o->in_place, "WHEN",
		  "on or off: an output may overwrite an input that no later op reads (default on)", NULL, 0,
		  0 },
		{ 0, "recompute", DLB_OPT_LIST, &o->recompute, "WHAT",
		  "none (default), auto or GLOB: outputs dropped, then computed again; repeatable", NULL, 0,
		  0 },
		{ 0, "offload", DLB_OPT_LIST, &o->offload, "WHAT",
		  "none (default), auto or [weights:|activations:]GLOB=MEMORY: where optimizer states, "
		  "weights and activations are kept; repeatable",
		  NULL, 0, 0 },
		{ 0, "state-dtype", DLB_OPT_STR, &o->state_dtype, "TYPE",
		  "f32 (default), bf16 or 8bit: in which the optimizer's states are kept", NULL, 0, 0 },
		{ 0, "front", DLB_OPT_FLAG, &o->front, NULL,
		  "also plan for less and less memory; dlb-view shows step time against memory", NULL, 0, 0 },
		{ 0, "seed", DLB_OPT_INT, &o->seed, "N", "for random placements and searches (default 1)",
		  &o->seed_given, 0, 0 },
		{ 0, "optimizer", DLB_OPT_STR, &o->optimizer, "NAME",
		  "optimizer to plan for; dlb-run uses it by default (default sgd)", NULL, 0, 0 },
		{ 0, "clip-norm", DLB_OPT_REAL, &o->clip_norm, "X",
		  "clip gradients by their global norm; 0: do not clip", &o->clip_given, 0, 1e38 },
	};

	memcpy(opts, rows, sizeof rows);
	return DLB_LEN(rows);
}

/* Fills opts with the rows of constraints, replicas and output; returns their number. */
static int constraint_rows(struct dlb_opt *opts, struct dlb_replan *o, bool *list_them)
{
	const struct dlb_opt rows[] = {
		{ 0, "pin", DLB_OPT_LIST, &o->constraints.pin, "OP=NODE",
		  "place this op, by name or id, on that node; none: remove all pins; repeatable", NULL, 0,
		  0 },
		{ 0, "exclude", DLB_OPT_LIST, &o->constraints.exclude, "NODE",
		  "give this node no work; none: remove all exclusions; repeatable", NULL, 0, 0 },
		{ 0, "priority", DLB_OPT_STR, &o->constraints.priority, "NAME",
		  "order in which greedy takes ready ops: graph, upward-rank or given", NULL, 0, 0 },
		{ 0, "affinity", DLB_OPT_STR, &o->constraints.affinity, "TABLE",
		  "of by-kind: a file, or one of share/affinity (default: default)", NULL, 0, 0 },
		{ 0, "rewrites", DLB_OPT_STR, &o->constraints.rewrites, "WHICH",
		  "keep-affinity: do not fuse activations that the table gives to another kind; "
		  "all: fuse them (default: keep-affinity)",
		  NULL, 0, 0 },
		{ 0, "from", DLB_OPT_STR, &o->constraints.from, "FILE",
		  "document of the plan to move ops from (default: the input)", NULL, 0, 0 },
		{ 0, "max-moves", DLB_OPT_INT, &o->constraints.max_moves, "N",
		  "most ops that may change their node", NULL, 0, 1 << 30 },
		{ 0, "serve", DLB_OPT_REAL, &o->constraints.serve_steps, "STEPS",
		  "steps over which the cost of moving is spread (default 1000)", NULL, 1, 1e15 },
		{ 0, "replicas", DLB_OPT_STR, &o->replicas, "R",
		  "groups of nodes that each hold the model: a number or auto (default 1)", NULL, 0, 0 },
		{ 0, "split", DLB_OPT_STR, &o->split, "HOW",
		  "split the batch over replicas: even or power, by predicted speed (default even; power "
		  "where nodes differ and it is faster)",
		  NULL, 0, 0 },
		DLB_SHARING_OPTS(&o->sharing),
		{ 0, "zero", DLB_OPT_STR, &o->zero, "STAGE",
		  "replicas divide the optimizer's state: 0: no (default), 1, 2: gradients' places too, 3: "
		  "weights too, or auto",
		  NULL, 0, 0 },
		{ 0, "no-timeline", DLB_OPT_FLAG, &o->no_timeline, NULL, "leave the predicted time-line out",
		  NULL, 0, 0 },
		{ 0, "list", DLB_OPT_FLAG, list_them, NULL, "list the algorithms", NULL, 0, 0 },
	};

	memcpy(opts, rows, sizeof rows);
	return DLB_LEN(rows);
}

/* Fills opts[MOST_OPTIONS]; returns the number of rows. */
static int fill_rows(struct dlb_opt *opts, struct dlb_replan *o, bool *list_them)
{
	const int n = search_rows(opts, o);

	return n + constraint_rows(opts + n, o, list_them);
}

int main(int argc, char **argv)
{
	struct dlb_replan o = {
		.micro_batches = 1, .seed = 1, .constraints.max_moves = -1, .started_s = dlb_clock_s()
	};
	bool list_them = false;
	struct dlb_opt opts[MOST_OPTIONS];
	struct dlb_cli cli = { .tool = "dlb-place",
			       .usage = "[OPTION...] [FILE]",
			       .summary = "place every op on a node",
			       .opts = opts,
			       .n_opts = fill_rows(opts, &o, &list_them),
			       .max_operands = 1 };

	o.cli = &cli;
	if (dlb_cli_parse(&cli, argc, argv))
		return cli.status;
	if (list_them)
		return list(&cli);
	let_malloc_keep();
	if (dlb_replan_take_zero(&o) || dlb_replan_check(&o))
		return 2;
	return place(&cli, &o, argc, argv);
}
