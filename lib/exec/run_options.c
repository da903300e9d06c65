/* The options of dlb-run, a row each. See run_options.h. */
#include "exec/run_options.h"

#include <string.h>
#include "plan/sharing.h"

enum { MOST_OPTIONS = 95, DEFAULT_REJOIN_S = 60 };

/* Fills opts with the rows on the length of training, data and optimizer; returns their number. */
static int training_rows(struct dlb_opt *opts, struct dlb_run_command *c, struct dlb_run_text *t)
{
	struct dlb_exec_options *x = &c->exec;
	struct dlb_run_edit *e = &c->edit;
	const struct dlb_opt rows[] = {
		{ 0, "steps", DLB_OPT_INT, &x->steps, "N", "train N more steps", NULL, 0, 1e15 },
		{ 0, "epochs", DLB_OPT_INT, &x->epochs, "E",
		  "train E more epochs (default 1; 100 steps of random data)", NULL, 0, 1e12 },
		{ 0, "until-step", DLB_OPT_INT, &x->until_step, "S",
		  "train up to step S, counted from the first run", NULL, 0, 1e15 },
		{ 0, "until", DLB_OPT_STR, &t->until, "COND", "stop after the first step with loss<X", NULL,
		  0, 0 },
		{ 0, "patience", DLB_OPT_INT, &x->patience, "N", "stop after N steps without a lower loss",
		  NULL, 1, 1e15 },
		{ 0, "data", DLB_OPT_STR, &e->data, "SPEC",
		  "idx:, npy:, images:, tokens:, text:FILE..., digits[:train|:test] or random", NULL, 0, 0 },
		{ 0, "test-data", DLB_OPT_STR, &e->test_data, "SPEC",
		  "measure the loss on these samples at the end, of a classification the accuracy too", NULL, 0, 0 },
		{ 0, "transform", DLB_OPT_STR, &e->transform, "LIST",
		  "steps for each image: scale=1/255,normalise=M/S,resize=S,random-crop=S,flip ...", NULL, 0,
		  0 },
		{ 0, "readers", DLB_OPT_INT, &x->readers, "N",
		  "threads per node that decode images (default: the idle cores)", NULL, 1, 256 },
		{ 0, "order", DLB_OPT_STR, &e->order, "ORDER", "shuffled (default) or sequential", NULL, 0,
		  0 },
		{ 0, "optimizer", DLB_OPT_STR, &e->optimizer, "NAME",
		  "sgd (default), momentum, nesterov, adagrad, rmsprop, adam, adamw, adabelief, "
		  "max-adabelief, kfac",
		  NULL, 0, 0 },
		{ 0, "group", DLB_OPT_LIST, &t->groups, "GLOB:lr=X,weight-decay=Y",
		  "settings of the weights named like GLOB; repeatable", NULL, 0, 0 },
		{ 0, "variant", DLB_OPT_STR, &e->variant, "NAME",
		  "of max-adabelief: corrected (default), denom_corrected, uncorrected, amsgrad", NULL, 0,
		  0 },
		{ 0, "clip-norm", DLB_OPT_REAL, &e->clip_norm, "X",
		  "scale gradients so that their global norm is at most X; 0: no clipping", &e->clip_given, 0,
		  1e38 },
		{ 0, "warmup", DLB_OPT_INT, &e->warmup, "N", "raise the learning rate linearly over N steps",
		  &e->warmup_given, 0, 1e15 },
		{ 0, "lr-schedule", DLB_OPT_STR, &e->lr_schedule, "RULE",
		  "constant (default), cosine[:STEPS[:MIN]] or step:N:FACTOR", NULL, 0, 0 },
		{ 0, "staleness", DLB_OPT_STR, &e->staleness, "RULE",
		  "of an asynchronous plan: 2bw, stash, predict or none", NULL, 0, 0 },
		{ 0, "delay-discount", DLB_OPT_STR, &e->delay_discount, "WHEN",
		  "on or off: scale the rate of weights read D updates late by min(1, 2/(1+D)) (default off)",
		  NULL, 0, 0 },
		{ 0, "seed", DLB_OPT_INT, &e->seed, "N", "of order, dropout and random data (default 1)",
		  &e->seed_given, 0, 9e15 },
		{ 0, "init", DLB_OPT_STR, &e->init, "SEED", "draw initial weights instead of the model's",
		  NULL, 0, 0 },
		{ 0, "name", DLB_OPT_STR, &e->name, "TEXT", "name of the run, for whoever reads the document",
		  NULL, 0, 0 },
		{ 0, "note", DLB_OPT_STR, &e->note, "TEXT", "a remark on the run, likewise", NULL, 0, 0 },
	};

	memcpy(opts, rows, sizeof rows);
	return DLB_LEN(rows);
}

/* Fills opts with the rows of files, replicas and the run itself; returns their number. */
static int run_rows(struct dlb_opt *opts, struct dlb_run_command *c, struct dlb_run_text *t)
{
	struct dlb_exec_options *x = &c->exec;
	struct dlb_run_edit *e = &c->edit;
	const struct dlb_opt rows[] = {
		{ 0, "checkpoint", DLB_OPT_STR, &x->checkpoint, "DIR",
		  "continue from the newest checkpoint in DIR; write one at the end", NULL, 0, 0 },
		{ 0, "checkpoint-every", DLB_OPT_INT, &x->checkpoint_every, "N",
		  "write a checkpoint after every N steps too", NULL, 1, 1e15 },
		{ 0, "save", DLB_OPT_STR, &x->save, "FILE", "write the trained weights (.onnx: the model)",
		  NULL, 0, 0 },
		{ 0, "merge", DLB_OPT_FLAG, &x->merge, NULL,
		  "add adapters to the weights that --save and --save-best write", NULL, 0, 0 },
		{ 0, "loss-log", DLB_OPT_STR, &x->loss_log, "FILE", "write one loss per line and step", NULL,
		  0, 0 },
		{ 0, "step-log", DLB_OPT_STR, &x->step_log, "FILE",
		  "write loss, times and bytes of each step, one JSON object per line", NULL, 0, 0 },
		{ 0, "metrics", DLB_OPT_STR, &x->metrics, "FILE",
		  "keep step, loss, times and waits in FILE, as text for Prometheus", NULL, 0, 0 },
		{ 0, "eval-every", DLB_OPT_INT, &x->eval_every, "N",
		  "measure on the test data after every N steps too", NULL, 1, 1e15 },
		{ 0, "save-best", DLB_OPT_STR, &x->save_best, "FILE",
		  "write the weights with the least test loss of --eval-every", NULL, 0, 0 },
		{ 0, "slow", DLB_OPT_LIST, &t->slow, "NODE:FACTOR[@STEP]",
		  "make every op of a node FACTOR times slower (from step STEP on), for experiments; "
		  "repeatable",
		  NULL, 0, 0 },
		{ 0, "freeze-at", DLB_OPT_LIST, &t->freeze, "GLOB@STEP",
		  "train the weights named like GLOB no longer from step STEP on; repeatable", NULL, 0, 0 },
		{ 0, "drain", DLB_OPT_LIST, &c->drain, "NODE",
		  "plan again, so that this node gets no ops; repeatable", NULL, 0, 0 },
		{ 0, "release", DLB_OPT_STR, &t->release, "WHAT",
		  "idle: plan again, so that nodes without which a step is as fast get no ops", NULL, 0, 0 },
		{ 0, "rounds", DLB_OPT_STR, &t->rounds, "N",
		  "balance the load N times, or auto: to the end, in rounds of steps", NULL, 0, 0 },
		{ 0, "round-steps", DLB_OPT_INT, &x->round_steps, "K", "steps of a round (default 20)", NULL,
		  5, 1e9 },
		{ 0, "scenario", DLB_OPT_STR, &c->scenario, "FILE",
		  "with --dry-run and --rounds: simulate them on a cluster that changes as FILE says", NULL,
		  0, 0 },
		DLB_SHARING_OPTS(&c->sharing),
		{ 0, "timeout", DLB_OPT_REAL, &x->timeout_s, "S",
		  "end the run when a node makes no progress for S seconds (default 30)", NULL, 0, 1e9 },
		{ 0, "heartbeat", DLB_OPT_REAL, &x->heartbeat_s, "S",
		  "end the run when a node gives no sign of life for S seconds (default 3)", NULL, 0, 1e9 },
		{ 0, "on-event", DLB_OPT_STR, &x->on_event, "CMD",
		  "run this command when a node is lost, with DLB_EVENT, DLB_NODE, DLB_STEP, DLB_MESSAGE",
		  NULL, 0, 0 },
		{ 0, "on-failure", DLB_OPT_STR, &t->on_failure, "WHAT",
		  "stop (default), or replan: go on from the last checkpoint without the lost node", NULL, 0,
		  0 },
		{ 0, "rejoin", DLB_OPT_REAL, &x->rejoin_s, "S",
		  "with replan: look every S seconds whether a lost node can be put back (default 60; 0: "
		  "never)",
		  NULL, 0, 1e9 },
		{ 0, "buddy-every", DLB_OPT_INT, &x->buddy_every, "K",
		  "with replan: copy each node's state into memory, on another host too, after every K steps",
		  NULL, 1, 1e15 },
		{ 0, "torch-batchnorm", DLB_OPT_FLAG, &e->torch_batchnorm, NULL,
		  "update the running variance by PyTorch's rule (unbiased)", NULL, 0, 0 },
		{ 0, "allow-nonfinite", DLB_OPT_FLAG, &x->allow_nonfinite, NULL,
		  "continue when the loss is not finite", NULL, 0, 0 },
		{ 0, "no-gpu-graph", DLB_OPT_FLAG, &x->no_gpu_graph, NULL,
		  "start each kernel of a GPU by itself, not many at once as a CUDA graph", NULL, 0, 0 },
		{ 0, "dry-run", DLB_OPT_FLAG, &x->dry_run, NULL, "simulate the programs; train nothing", NULL,
		  0, 0 },
		{ 0, "print-program", DLB_OPT_FLAG, &c->print_program, NULL,
		  "print the compiled programs and stop", NULL, 0, 0 },
	};

	memcpy(opts, rows, sizeof rows);
	return DLB_LEN(rows);
}

/* Fills opts[MOST_OPTIONS]; returns the number of rows. */
static int fill_rows(struct dlb_opt *opts, struct dlb_run_command *c, struct dlb_run_text *t)
{
	struct dlb_run_edit *e = &c->edit;
	int n = training_rows(opts, c, t);

	n += run_rows(opts + n, c, t);
	for (int h = 0; h < DLB_N_HYPER; h++) {
		const struct dlb_hyper *p = &dlb_hypers[h];

		opts[n++] = (struct dlb_opt){ 0,       p->option,          DLB_OPT_REAL, &e->hyper[h], p->arg,
					      p->help, &e->hyper_given[h], p->min,       p->option_max };
	}
	return n;
}

static void set_defaults(struct dlb_exec_options *x)
{
	x->steps = x->epochs = x->until_step = -1;
	x->timeout_s = 30;
	x->heartbeat_s = 3;
	x->round_steps = 20;
	x->rejoin_s = DEFAULT_REJOIN_S;
}

int dlb_run_options_parse(struct dlb_cli *cli, struct dlb_run_command *c, struct dlb_run_text *t)
{
	struct dlb_exec_options *x = &c->exec;
	struct dlb_opt opts[MOST_OPTIONS];
	int rc;

	set_defaults(x);
	cli->n_opts = fill_rows(opts, c, t);
	cli->opts = opts;
	rc = dlb_cli_parse(cli, c->argc, c->argv);
	cli->opts = NULL; /* opts lives in this function only */
	cli->n_opts = 0;
	if (!rc) {
		cli->status = 2;
		rc = dlb_run_text_parse(t, c);
	}
	x->quiet = cli->quiet;
	x->verbose = cli->verbose;
	c->edit.steps = x->steps;
	c->edit.until_step = x->until_step;
	c->edit.group = t->groups.item;
	c->edit.n_groups = t->groups.n;
	return rc;
}
