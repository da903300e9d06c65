/* dlb-run: plan + data -> trained weights + report. Options, and how the run was started; lib/exec/command.h
 * does the rest. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "balance/freeze.h"
#include "balance/live.h"
#include "balance/release.h"
#include "balance/replan_memory.h"
#include "balance/scenario.h"
#include "balance/survive.h"
#include "exec/command.h"
#include "exec/host_probe.h"
#include "exec/launch.h"
#include "plan/sharing.h"
#include "util/mem.h"

static volatile sig_atomic_t told_to_stop, told_to_pause;

static void on_signal(int sig)
{
	if (sig == SIGUSR2)
		told_to_pause++;
	else
		told_to_stop++;
}

/* worker: a parent has started this rank, and may tell it to stop at the next checkpoint. */
static void catch_signals(bool worker)
{
	const int sigs[] = { SIGTERM, SIGINT, SIGUSR1, SIGUSR2 };
	struct sigaction a = { .sa_handler = on_signal };

	for (int i = 0; i < DLB_LEN(sigs) - !worker; i++)
		sigaction(sigs[i], &a, NULL);
}

/* What --slow fills: factors at the start, and changes in the order of their steps. The caller frees both. */
struct slow_text { double *factor; int n; struct dlb_slow_change *change; int n_changes, cap; };

/* NODE:FACTOR[@STEP] */
static int parse_slow_item(const struct dlb_cli *cli, const char *text, struct dlb_slow_change *c, bool *at)
{
	char *end, *rest = NULL;
	const long node = strtol(text, &end, 10);
	const double f = *end == ':' ? strtod(end + 1, &rest) : 0.0;

	*at = rest && *rest == '@';
	*c = (struct dlb_slow_change){ (int)node, f, 0 };
	if (end == text || *end != ':' || rest == end + 1 || node < 0 || node > 1000000 ||
	    !(f >= (*at ? 1e-6 : 1.0)) || f > 1e6 ||
	    (*at ? !dlb_cli_is_count(rest + 1, INT64_C(1) << 50, &c->step) : *rest))
		return dlb_cli_usage(cli,
				     "--slow wants NODE:FACTOR with a factor from 1, or NODE:FACTOR@STEP, not "
				     "'%s'",
				     text);
	return 0;
}

static void add_change(struct slow_text *s, struct dlb_slow_change c)
{
	int i = s->n_changes;

	DLB_GROW(s->change, s->n_changes, s->cap);
	for (s->n_changes++; i > 0 && s->change[i - 1].step > c.step; i--)
		s->change[i] = s->change[i - 1];
	s->change[i] = c;
}

/* No change may make a node faster than it is. A product of rounded numbers may be 1 % off. */
static int check_slow(const struct dlb_cli *cli, const struct slow_text *s)
{
	for (int i = 0; i < s->n_changes; i++) {
		const struct dlb_slow_change *c = &s->change[i];
		double f = c->node < s->n ? s->factor[c->node] : 1.0;

		for (int k = 0; k <= i; k++)
			f *= s->change[k].node == c->node ? s->change[k].factor : 1.0;
		if (f < 0.99)
			return dlb_cli_usage(cli,
					     "--slow %d:%g@%lld: node %d cannot be faster than it is; a factor "
					     "below 1 takes back an earlier one",
					     c->node, c->factor, (long long)c->step, c->node);
	}
	return 0;
}

/* --slow: fills s and x. */
static int parse_slow(const struct dlb_cli *cli, const struct dlb_strlist *list, struct slow_text *s,
		      struct dlb_exec_options *x)
{
	for (int i = 0; i < list->n; i++) {
		struct dlb_slow_change c;
		bool at;

		if (parse_slow_item(cli, list->item[i], &c, &at))
			return -1;
		if (at) {
			add_change(s, c);
			continue;
		}
		for (; s->n <= c.node; s->n++) {
			s->factor = dlb_xrealloc(s->factor, (size_t)s->n + 1, sizeof *s->factor);
			s->factor[s->n] = 1.0;
		}
		s->factor[c.node] = c.factor;
	}
	x->slow = s->factor;
	x->n_slow = s->n;
	x->slow_change = s->change;
	x->n_slow_changes = s->n_changes;
	return check_slow(cli, s);
}

/* GLOB@STEP, repeatable: fills *out, by step; new, with globs of their own. */
static int parse_freeze(const struct dlb_cli *cli, const struct dlb_strlist *list, struct dlb_freeze_at **out,
			struct dlb_exec_options *x)
{
	struct dlb_freeze_at *f = *out = dlb_xcalloc((size_t)list->n + 1, sizeof *f);

	x->freeze_at = f;
	for (int i = 0; i < list->n; i++) {
		const char *text = list->item[i], *at = strrchr(text, '@');
		int64_t step;
		int k = x->n_freeze_at;

		if (!at || at == text || !dlb_cli_is_count(at + 1, INT64_C(1) << 50, &step))
			return dlb_cli_usage(cli, "--freeze-at wants GLOB@STEP with a step from 1, not '%s'",
					     text);
		for (x->n_freeze_at++; k > 0 && f[k - 1].step > step; k--)
			f[k] = f[k - 1];
		f[k] = (struct dlb_freeze_at){ dlb_xprintf("%.*s", (int)(at - text), text), step };
	}
	return 0;
}

static void release_freeze(struct dlb_freeze_at *f)
{
	for (int i = 0; f && f[i].glob; i++)
		free((char *)(uintptr_t)f[i].glob);
	free(f);
}

/* --until 'loss<X': sets *loss to X; NaN without the option. */
static int parse_until(const struct dlb_cli *cli, const char *until, double *loss)
{
	char *end;

	*loss = NAN;
	if (!until)
		return 0;
	*loss = strncmp(until, "loss<", 5) ? NAN : strtod(until + 5, &end);
	if (!isfinite(*loss) || end == until + 5 || *end)
		return dlb_cli_usage(cli, "--until wants 'loss<X', not '%s'", until);
	return 0;
}

/* --rounds N or auto. */
static int parse_rounds(const struct dlb_cli *cli, const char *rounds, int64_t *n)
{
	*n = rounds ? INT64_MAX : 0;
	if (!rounds || !strcmp(rounds, "auto") || dlb_cli_is_count(rounds, INT64_MAX, n))
		return 0;
	return dlb_cli_usage(cli, "--rounds wants a number from 1 or auto, not '%s'", rounds);
}

/* --release idle. */
static int parse_release(const struct dlb_cli *cli, const char *what, bool *releases)
{
	*releases = what && !strcmp(what, "idle");
	return !what || *releases ? 0 : dlb_cli_usage(cli, "--release wants idle, not '%s'", what);
}

/* --on-failure stop or replan. */
static int parse_failure(const struct dlb_cli *cli, const char *what, bool *replan)
{
	*replan = what && !strcmp(what, "replan");
	if (!what || *replan || !strcmp(what, "stop"))
		return 0;
	return dlb_cli_usage(cli, "--on-failure wants stop or replan, not '%s'", what);
}

static void warn(void *ctx, const char *line)
{
	dlb_cli_warn(ctx, "%s", line);
}

/* Options that are parsed further. */
struct option_text {
	const char *until, *rounds, *on_failure, *release;
	struct dlb_strlist slow, groups, freeze;
	struct dlb_freeze_at *freeze_at;	/* of freeze */
};

enum { MOST_OPTIONS = 95, DEFAULT_REJOIN_S = 60 };

/* Fills opts with the rows of what is trained, on which data and by which rule; returns their number. */
static int training_rows(struct dlb_opt *opts, struct dlb_run_command *c, struct option_text *t)
{
	struct dlb_exec_options *x = &c->exec;
	struct dlb_run_edit *e = &c->edit;
	const struct dlb_opt rows[] = {
		{ 0, "steps", DLB_OPT_INT, &x->steps, "N", "train N more steps", NULL, 0, 1e15 },
		{ 0, "epochs", DLB_OPT_INT, &x->epochs, "E",
		  "train E more epochs (default 1; 100 steps of random data)", NULL, 0, 1e12 },
		{ 0, "until-step", DLB_OPT_INT, &x->until_step, "S",
		  "train up to step S, counted from the first run", NULL, 0, 1e15 },
		{ 0, "until", DLB_OPT_STR, &t->until, "COND", "stop after the first step with loss<X", NULL, 0,
		  0 },
		{ 0, "patience", DLB_OPT_INT, &x->patience, "N",
		  "stop after N steps without a lower loss", NULL, 1, 1e15 },
		{ 0, "data", DLB_OPT_STR, &e->data, "SPEC",
		  "idx:, npy:, images:, tokens:, text:FILE..., digits[:train|:test] or random", NULL, 0, 0 },
		{ 0, "test-data", DLB_OPT_STR, &e->test_data, "SPEC",
		  "measure loss and accuracy on these samples at the end", NULL, 0, 0 },
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
		  "on or off: scale the rate of weights read D updates late by min(1, 2/(1+D)) (default off)", NULL, 0,
		  0 },
		{ 0, "seed", DLB_OPT_INT, &e->seed, "N", "of order, dropout and random data (default 1)",
		  &e->seed_given, 0, 9e15 },
		{ 0, "init", DLB_OPT_STR, &e->init, "SEED", "draw initial weights instead of the model's", NULL,
		  0, 0 },
		{ 0, "name", DLB_OPT_STR, &e->name, "TEXT", "name of the run, for whoever reads the document",
		  NULL, 0, 0 },
		{ 0, "note", DLB_OPT_STR, &e->note, "TEXT", "a remark on the run, likewise", NULL, 0, 0 },
	};

	memcpy(opts, rows, sizeof rows);
	return DLB_LEN(rows);
}

/* Fills opts with the rows of files, replicas and the run itself; returns their number. */
static int run_rows(struct dlb_opt *opts, struct dlb_run_command *c, struct option_text *t)
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
static int fill_rows(struct dlb_opt *opts, struct dlb_run_command *c, struct option_text *t)
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

/* Returns 0, or non-zero: main then returns cli->status. The caller frees what is in slow and the lists of
 * t. */
static int parse(struct dlb_cli *cli, struct dlb_run_command *c, struct slow_text *slow,
		 struct option_text *t)
{
	struct dlb_exec_options *x = &c->exec;
	struct dlb_opt opts[MOST_OPTIONS];
	int rc;

	x->steps = x->epochs = x->until_step = -1;
	x->timeout_s = 30;
	x->heartbeat_s = 3;
	x->round_steps = 20;
	x->rejoin_s = DEFAULT_REJOIN_S;
	x->stop = &told_to_stop;
	x->pause = &told_to_pause;
	cli->n_opts = fill_rows(opts, c, t);
	cli->opts = opts;
	rc = dlb_cli_parse(cli, c->argc, c->argv);
	cli->opts = NULL;		/* opts lives in this function only */
	cli->n_opts = 0;
	if (!rc) {
		cli->status = 2;
		rc = parse_slow(cli, &t->slow, slow, x) || parse_freeze(cli, &t->freeze, &t->freeze_at, x) ||
		     parse_until(cli, t->until, &x->until_loss) || parse_rounds(cli, t->rounds, &x->rounds) ||
		     parse_failure(cli, t->on_failure, &x->replan) ||
		     parse_release(cli, t->release, &c->releases);
	}
	x->quiet = cli->quiet;
	x->verbose = cli->verbose;
	x->warn = warn;
	x->warn_ctx = cli;
	c->edit.steps = x->steps;
	c->edit.until_step = x->until_step;
	c->edit.group = t->groups.item;
	c->edit.n_groups = t->groups.n;
	return rc;
}

int main(int argc, char **argv)
{
	struct dlb_cli cli = { .tool = "dlb-run", .usage = "[OPTION...] [FILE]",
			       .summary = "train by a plan, and report times and losses", .max_operands = 1 };
	struct dlb_live live = { .is_read = false };
	struct dlb_run_command command = { .cli = &cli,
					   .argc = argc,
					   .argv = argv,
					   .rebalance = dlb_live_round,
					   .live = &live,
					   .survive = dlb_survive,
					   .release = dlb_release_idle,
					   .freeze = dlb_freeze,
					   .memory_cure = dlb_memory_cure,
					   .play = dlb_scenario_run };
	struct option_text text = { .until = NULL };
	struct dlb_error err;
	struct slow_text slow = { .n = 0 };
	int status;

	if (argc == 3 && !strcmp(argv[1], DLB_HOST_CLEAN)) {	/* only host_probe.c passes it */
		dlb_host_clean(argv[2]);
		return 0;
	}
	if (argc > 4 && (!strcmp(argv[1], DLB_WORKER) || !strcmp(argv[1], DLB_REMOTE_WORKER)) &&
	    !dlb_begin_parse(argv[3], &command.exec.begin)) {
		command.remote = !strcmp(argv[1], DLB_REMOTE_WORKER);
		command.folder = argv[2];			/* only launch.c passes it */
		command.exec.copies = strcmp(argv[4], "-") ? argv[4] : NULL;
		argv[4] = argv[0];
		command.argc -= 4;
		command.argv += 4;
	}
	if (parse(&cli, &command, &slow, &text)) {
		status = cli.status;
	} else {
		const bool simulated = command.exec.dry_run || command.print_program;

		catch_signals(command.folder);
		if (command.folder || (!simulated && (dlb_launch_joined() || dlb_launch_check(0, &err))))
			status = dlb_command_rank(&command);
		else
			status = dlb_command_plain(&command);
		if (!command.folder && status == 0)
			status = dlb_cli_close_stdout(&cli);
	}
	dlb_live_release(&live);
	free(slow.factor);
	free(slow.change);
	free(text.slow.item);
	release_freeze(text.freeze_at);
	free(text.freeze.item);
	free(text.groups.item);
	free(command.drain.item);
	return status;
}
