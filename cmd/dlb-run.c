/* dlb-run: plan + data -> trained weights + report.
 *
 * Started plainly it is the parent of its ranks (lib/exec/launch.h), or runs a plan of one node by itself;
 * under somebody's mpirun or srun it is one of them. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "comm/await.h"
#include "exec/exec.h"
#include "exec/host_differs.h"
#include "exec/launch.h"
#include "exec/section.h"
#include "exec/unused.h"
#include "util/cli.h"
#include "util/clock.h"
#include "util/deadline.h"
#include "util/input.h"
#include "util/mem.h"

#define TOOL "dlb-run"
#define SAY_AFTER_S 0.4			/* each rank after the one before */

static volatile sig_atomic_t told_to_stop;

static void on_signal(int sig)
{
	(void)sig;
	told_to_stop++;
}

static void catch_signals(void)
{
	const int sigs[] = { SIGTERM, SIGINT, SIGUSR1 };
	struct sigaction a = { .sa_handler = on_signal };

	for (int i = 0; i < DLB_LEN(sigs); i++)
		sigaction(sigs[i], &a, NULL);
}

/* ---- options ---- */

struct options {
	struct dlb_exec_options exec;
	struct dlb_run_edit edit;
	struct dlb_sharing_options sharing;
	struct dlb_strlist slow, groups;
	const char *until;
	bool print_program;
	double *factor;				/* [node] of --slow */
	char init_text[32];
};

/* NODE:FACTOR */
static int parse_slow(const struct dlb_cli *cli, struct options *o)
{
	int n = 0;

	for (int i = 0; i < o->slow.n; i++) {
		char *end, *rest;
		long node = strtol(o->slow.item[i], &end, 10);
		double f = *end == ':' ? strtod(end + 1, &rest) : 0.0;

		if (end == o->slow.item[i] || *end != ':' || rest == end + 1 || *rest || node < 0 || node > 1000000 || !(f >= 1.0) || f > 1e6)
			return dlb_cli_usage(cli, "--slow wants NODE:FACTOR with a factor from 1, not '%s'", o->slow.item[i]);
		for (; n <= node; n++) {
			o->factor = dlb_xrealloc(o->factor, (size_t)n + 1, sizeof *o->factor);
			o->factor[n] = 1.0;
		}
		o->factor[node] = f;
	}
	o->exec.slow = o->factor;
	o->exec.n_slow = n;
	return 0;
}

static int parse_until(const struct dlb_cli *cli, struct options *o)
{
	char *end;

	o->exec.until_loss = NAN;
	if (!o->until)
		return 0;
	if (strncmp(o->until, "loss<", 5))
		return dlb_cli_usage(cli, "--until wants 'loss<X', not '%s'", o->until);
	o->exec.until_loss = strtod(o->until + 5, &end);
	if (end == o->until + 5 || *end || !isfinite(o->exec.until_loss))
		return dlb_cli_usage(cli, "--until wants 'loss<X', not '%s'", o->until);
	return 0;
}

static void warn(void *ctx, const char *line)
{
	dlb_cli_warn(ctx, "%s", line);
}

static int parse(struct dlb_cli *cli, int argc, char **argv, struct options *o)
{
	struct dlb_exec_options *x = &o->exec;
	struct dlb_run_edit *e = &o->edit;
	const struct dlb_opt opts[] = {
		{ 0, "steps", DLB_OPT_INT, &x->steps, "N", "train N more steps", NULL, 0, 1e15 },
		{ 0, "epochs", DLB_OPT_INT, &x->epochs, "E", "train E more epochs (default 1; 100 steps of random data)", NULL, 0, 1e12 },
		{ 0, "until-step", DLB_OPT_INT, &x->until_step, "S", "train up to step S in all", NULL, 0, 1e15 },
		{ 0, "until", DLB_OPT_STR, &o->until, "COND", "stop when 'loss<X' holds for a step", NULL, 0, 0 },
		{ 0, "patience", DLB_OPT_INT, &x->patience, "N", "stop after N steps without a new least loss", NULL, 1, 1e15 },
		{ 0, "data", DLB_OPT_STR, &e->data, "SPEC", "idx:, npy:, images:, tokens:, text:FILE..., digits[:train|:test] or random", NULL, 0, 0 },
		{ 0, "test-data", DLB_OPT_STR, &e->test_data, "SPEC", "measure loss and accuracy on these at the end", NULL, 0, 0 },
		{ 0, "transform", DLB_OPT_STR, &e->transform, "LIST", "of each image: scale=1/255,normalise=M/S,resize=S,random-crop=S,flip ...", NULL, 0, 0 },
		{ 0, "readers", DLB_OPT_INT, &x->readers, "N", "threads a node that decode images (default: the cores that are free)", NULL, 1, 256 },
		{ 0, "order", DLB_OPT_STR, &e->order, "ORDER", "shuffled (default) or sequential", NULL, 0, 0 },
		{ 0, "optimizer", DLB_OPT_STR, &e->optimizer, "NAME", "sgd (default), momentum, nesterov, adagrad, rmsprop, adam, adamw, adabelief, max-adabelief, kfac", NULL, 0, 0 },
		{ 0, "lr", DLB_OPT_REAL, &e->hyper[DLB_HYPER_LR], "X", "learning rate", &e->hyper_given[DLB_HYPER_LR], 0, 1e38 },
		{ 0, "momentum", DLB_OPT_REAL, &e->hyper[DLB_HYPER_MOMENTUM], "X", "of momentum and nesterov", &e->hyper_given[DLB_HYPER_MOMENTUM], 0, 1 },
		{ 0, "alpha", DLB_OPT_REAL, &e->hyper[DLB_HYPER_ALPHA], "X", "of rmsprop", &e->hyper_given[DLB_HYPER_ALPHA], 0, 1 },
		{ 0, "beta1", DLB_OPT_REAL, &e->hyper[DLB_HYPER_BETA1], "X", "of the adams and adabeliefs", &e->hyper_given[DLB_HYPER_BETA1], 0, 1 },
		{ 0, "beta2", DLB_OPT_REAL, &e->hyper[DLB_HYPER_BETA2], "X", "of the adams and adabeliefs", &e->hyper_given[DLB_HYPER_BETA2], 0, 1 },
		{ 0, "eps", DLB_OPT_REAL, &e->hyper[DLB_HYPER_EPS], "X", "what keeps denominators from 0", &e->hyper_given[DLB_HYPER_EPS], 0, 1 },
		{ 0, "weight-decay", DLB_OPT_REAL, &e->hyper[DLB_HYPER_DECAY], "X", "weight decay", &e->hyper_given[DLB_HYPER_DECAY], 0, 1e9 },
		{ 0, "group", DLB_OPT_LIST, &o->groups, "GLOB:lr=X,weight-decay=Y", "of the weights named like GLOB; repeatable", NULL, 0, 0 },
		{ 0, "damping", DLB_OPT_REAL, &e->hyper[DLB_HYPER_DAMPING], "X", "of kfac: on the diagonal of its factors (default 0.01)", &e->hyper_given[DLB_HYPER_DAMPING], 0, 1e38 },
		{ 0, "factor-decay", DLB_OPT_REAL, &e->hyper[DLB_HYPER_FACTOR_DECAY], "X", "of kfac's factors' averages (default 0.95)", &e->hyper_given[DLB_HYPER_FACTOR_DECAY], 0, 1 },
		{ 0, "inverse-every", DLB_OPT_REAL, &e->hyper[DLB_HYPER_INVERSE_EVERY], "N", "of kfac: steps from one inversion to the next (default 10)", &e->hyper_given[DLB_HYPER_INVERSE_EVERY], 1, 1e9 },
		{ 0, "kl-clip", DLB_OPT_REAL, &e->hyper[DLB_HYPER_KL_CLIP], "X", "of kfac: how far a step may go, 0: no limit (default 0.001)", &e->hyper_given[DLB_HYPER_KL_CLIP], 0, 1e38 },
		{ 0, "variant", DLB_OPT_STR, &e->variant, "NAME", "of max-adabelief: corrected (default), denom_corrected, uncorrected, amsgrad", NULL, 0, 0 },
		{ 0, "clip-norm", DLB_OPT_REAL, &e->clip_norm, "X", "shorten all gradients together to a norm of at most X; 0: no more", &e->clip_given, 0, 1e38 },
		{ 0, "warmup", DLB_OPT_INT, &e->warmup, "N", "let the learning rate grow over N steps", &e->warmup_given, 0, 1e15 },
		{ 0, "lr-schedule", DLB_OPT_STR, &e->lr_schedule, "RULE", "constant (default), cosine[:STEPS[:MIN]] or step:N:FACTOR", NULL, 0, 0 },
		{ 0, "staleness", DLB_OPT_STR, &e->staleness, "RULE", "of an asynchronous plan: 2bw, stash, predict or none", NULL, 0, 0 },
		{ 0, "delay-discount", DLB_OPT_STR, &e->delay_discount, "WHEN", "on or off: weights read D updates late learn at lr min(1, 2/(1+D)) (default off)", NULL, 0, 0 },
		{ 0, "seed", DLB_OPT_INT, &e->seed, "N", "of order, dropout and random data (default 1)", &e->seed_given, 0, 9e15 },
		{ 0, "init", DLB_OPT_STR, &e->init, "SEED", "draw fresh weights instead of the model's", NULL, 0, 0 },
		{ 0, "checkpoint", DLB_OPT_STR, &x->checkpoint, "DIR", "continue from the newest checkpoint there; leave one at the end", NULL, 0, 0 },
		{ 0, "checkpoint-every", DLB_OPT_INT, &x->checkpoint_every, "N", "and after every N steps", NULL, 1, 1e15 },
		{ 0, "save", DLB_OPT_STR, &x->save, "FILE", "write the trained weights (.onnx: the model)", NULL, 0, 0 },
		{ 0, "loss-log", DLB_OPT_STR, &x->loss_log, "FILE", "write the loss of each step, a line each", NULL, 0, 0 },
		{ 0, "step-log", DLB_OPT_STR, &x->step_log, "FILE", "write loss, times and bytes of each step, a JSON object a line", NULL, 0, 0 },
		{ 0, "eval-every", DLB_OPT_INT, &x->eval_every, "N", "measure on the test data after every N steps too", NULL, 1, 1e15 },
		{ 0, "save-best", DLB_OPT_STR, &x->save_best, "FILE", "write the weights that had the least test loss of these", NULL, 0, 0 },
		{ 0, "slow", DLB_OPT_LIST, &o->slow, "NODE:FACTOR", "stretch every op of a node, for experiments", NULL, 0, 0 },
		DLB_SHARING_OPTS(&o->sharing),
		{ 0, "timeout", DLB_OPT_REAL, &x->timeout_s, "S", "give up when a node is silent for so long (default 30)", NULL, 0, 1e9 },
		{ 0, "torch-batchnorm", DLB_OPT_FLAG, &e->torch_batchnorm, NULL, "running variance by PyTorch's rule", NULL, 0, 0 },
		{ 0, "allow-nonfinite", DLB_OPT_FLAG, &x->allow_nonfinite, NULL, "go on when the loss is not finite", NULL, 0, 0 },
		{ 0, "dry-run", DLB_OPT_FLAG, &x->dry_run, NULL, "let the simulator walk the programs", NULL, 0, 0 },
		{ 0, "print-program", DLB_OPT_FLAG, &o->print_program, NULL, "print the compiled programs and stop", NULL, 0, 0 },
	};

	x->steps = x->epochs = x->until_step = -1;
	x->timeout_s = 30;
	x->stop = &told_to_stop;
	cli->opts = opts;
	cli->n_opts = DLB_LEN(opts);
	int rc = dlb_cli_parse(cli, argc, argv);

	cli->opts = NULL;		/* the rows end with this function */
	cli->n_opts = 0;
	if (rc)
		return 1;
	x->quiet = cli->quiet;
	x->verbose = cli->verbose;
	x->warn = warn;
	x->warn_ctx = cli;
	cli->status = 2;
	e->steps = x->steps;
	e->group = o->groups.item;
	e->n_groups = o->groups.n;
	e->until_step = x->until_step;
	return parse_slow(cli, o) || parse_until(cli, o);
}

/* ---- what is common to all ways of being started ---- */

static void set_report(struct dlb_doc *doc, const struct dlb_report *report)
{
	static const char *const inputs[] = { "plan", NULL };
	json_t *section = dlb_report_write(report);

	json_object_set_new(section, "inputs", dlb_doc_input_hashes(doc, inputs));
	dlb_doc_set(doc, "report", section);
}

/* Only the program tells how late weights are read. */
static void warn_discount(const struct dlb_cli *cli, const struct dlb_doc *doc, const struct dlb_report *report)
{
	const char *rule = json_string_value(json_object_get(dlb_doc_section(doc, "plan"), "staleness"));
	struct dlb_unused row[] = { { "delay-discount", rule && (!strcmp(rule, "stash") || !strcmp(rule, "none")),
				      "no weight of this plan is read more than one update late" }, { NULL, false, NULL } };

	for (int i = 0; i < report->n_delays; i++)
		row[0].unused &= report->delay[i].most <= 1;
	dlb_cli_warn_unused(cli, row);
}

static int write_result(struct dlb_doc *doc, const struct dlb_report *report, FILE *f, struct dlb_error *err)
{
	set_report(doc, report);
	return dlb_doc_write(doc, f, err);
}

/* What is about to run, for -v. */
static void say_what(const struct dlb_cli *cli, const struct dlb_doc *doc)
{
	const json_t *plan = dlb_doc_section(doc, "plan"), *optimizer = json_object_get(dlb_doc_section(doc, "run"), "optimizer");
	const char *schedule = json_string_value(json_object_get(plan, "schedule")), *rule = json_string_value(json_object_get(optimizer, "name"));
	const json_int_t M = json_integer_value(json_object_get(plan, "micro_batches"));

	dlb_cli_say(cli, "%lld samples a step in %lld micro-batch%s, schedule %s, optimizer %s; predicted %.6g ms a step",
		    (long long)json_integer_value(json_object_get(plan, "batch")), (long long)M, M == 1 ? "" : "es", schedule ? schedule : "not said",
		    rule ? rule : "not said", json_number_value(json_object_get(plan, "value_s")) * 1e3);
}

/* Measuring while training, as far as options tell; o: with what the document says. */
static int check_measuring(const struct options *o, struct dlb_error *err)
{
	const struct dlb_exec_options *x = &o->exec;

	if (x->save_best && !x->eval_every)
		return dlb_refuse(err, NULL, "give --eval-every N", "--save-best '%s': nothing is measured during training", x->save_best);
	if (x->save_best && x->save && !strcmp(x->save_best, x->save))
		return dlb_refuse(err, NULL, "give another name", "--save-best and --save name the same file '%s'", x->save);
	if (x->eval_every && !x->test_data && !x->dry_run && !o->print_program)
		return dlb_refuse(err, NULL, "give --test-data SPEC", "--eval-every %lld: there are no test data", (long long)x->eval_every);
	return 0;
}

/* The optimizer that runs, by the document as it is. */
static const char *optimizer_of(const struct dlb_doc *doc)
{
	json_t *o = json_object_get(dlb_doc_section(doc, "run"), "optimizer");

	return json_string_value(json_object_get(o ? o : dlb_doc_section(doc, "plan"), o ? "name" : "optimizer"));
}

/* Reads the document, applies the options to it, reads them back. */
static int open_doc(struct dlb_doc *doc, const struct dlb_cli *cli, struct options *o, int argc, char **argv, struct dlb_error *err)
{
	struct dlb_unused unused[DLB_RUN_UNUSED];
	const char *advice;

	if (dlb_doc_read(doc, cli->n_operands ? cli->operands[0] : NULL, err))
		return -1;
	char before[32];
	snprintf(before, sizeof before, "%s", optimizer_of(doc) ? optimizer_of(doc) : "");
	if (dlb_sharing_edit(doc, &o->sharing, &advice, err) || dlb_run_section_edit(doc, &o->edit, err) || dlb_run_section_read(doc, &o->exec, o->init_text, err) ||
	    dlb_exec_advise(doc, &o->exec, optimizer_of(doc) && strcmp(before, optimizer_of(doc)), err) ||
	    check_measuring(o, err)) {
		dlb_doc_release(doc);
		return -1;
	}
	if (advice)
		dlb_cli_warn(cli, "%s", advice);
	dlb_run_unused(doc, &o->exec, o->print_program, unused);
	dlb_cli_warn_unused(cli, unused);
	say_what(cli, doc);
	dlb_doc_provenance(doc, TOOL, argc, argv);
	return 0;
}

/* ---- one of several ranks ---- */

static void worker_progress(void *ctx, const struct dlb_status_told *told)
{
	(void)ctx;
	fprintf(stderr, "\1progress %lld %lld %d %s\n", (long long)told->done, (long long)told->total, told->stays, told->text);
}

static void show_status(void *ctx, const struct dlb_status_told *told)
{
	dlb_status_line_show(ctx, told);
}

/* Rank 0 has the document; all get it. */
static int share_doc(struct dlb_comm *c, struct dlb_doc *doc, struct dlb_error *err)
{
	char *text = NULL;
	size_t n = 0;
	int rc;

	if (dlb_comm_rank(c) == 0) {
		text = json_dumps(doc->root, JSON_COMPACT | JSON_REAL_PRECISION(17));
		n = text ? strlen(text) : 0;
	}
	rc = dlb_comm_bcast(c, &n, sizeof n, 0, err);
	if (!rc && dlb_comm_rank(c))
		text = dlb_xmalloc(n + 1);
	if (!rc)
		rc = dlb_comm_bcast(c, text, n, 0, err);
	if (!rc && dlb_comm_rank(c))
		rc = dlb_doc_parse(doc, text, n, "<stdin>", err);
	free(text);
	return rc;
}

static int status_of(const struct dlb_error *err) { return err->status ? err->status : 2; }

/* To the parent, if there is one. */
static void say(const char *folder, int rank, const struct dlb_error *err)
{
	char line[1200] = "";
	FILE *f = fmemopen(line, sizeof line - 1, "w");	/* one write: ranks share this stderr */

	if (folder)
		fprintf(f, "\1error %d ", status_of(err));
	dlb_error_print(f, TOOL, rank, err);
	fclose(f);
	fputs(line, stderr);
}

/* A task of srun's that found no other: the first one says it. */
static int alone_in_step(struct dlb_comm *c, const struct dlb_error *err)
{
	if (dlb_launch_speaks())
		say(NULL, -1, err);
	dlb_comm_free(c);
	return status_of(err);
}

/* Open MPI 4.1's mpirun waits for a daemon that it cannot reach, for minutes, and that one for mpirun. */
static void tell_of_daemons(const struct dlb_comm *c)
{
	if (!dlb_comm_is_open_mpi() || dlb_comm_local_size(c) == dlb_comm_size(c) || getenv("SLURM_STEP_ID"))
		return;
	fprintf(stderr, "%s[%d]: if a host is cut off, mpirun here and orted there may stay for minutes: end them with kill -KILL\n", TOOL,
		dlb_comm_rank(c));
}

/* The one line of a failed run. Ranks that agree leave it to the one that knows; a rank that has lost
 * touch says it for itself and takes the job down. */
static int rank_failed(struct dlb_comm *c, const char *folder, const struct dlb_error *err, int who)
{
	int status = status_of(err);

	if (!folder && dlb_comm_broken(c))	/* the first one's end mostly ends the others before they say the same */
		dlb_sleep_s(SAY_AFTER_S * (dlb_comm_rank(c) < 5 ? dlb_comm_rank(c) : 5));
	if (dlb_comm_broken(c) || dlb_comm_rank(c) == who)
		say(folder, dlb_comm_rank(c), err);
	if (!folder && dlb_comm_broken(c))
		tell_of_daemons(c);
	if (dlb_comm_broken(c))
		dlb_comm_abort(c, status);
	dlb_comm_free(c);
	return folder ? 0 : status;	/* the parent knows; mpiexec would take a second or two over a status */
}

static int write_rank0(struct dlb_doc *doc, const struct dlb_report *report, const char *folder, struct dlb_error *err)
{
	char *path = folder ? dlb_launch_out(folder) : NULL;
	FILE *f = folder ? fopen(path, "wb") : stdout;
	int rc = f ? write_result(doc, report, f, err) : dlb_fail(err, NULL, "cannot write '%s'", path);

	if (f && folder && fclose(f) && !rc)
		rc = dlb_fail(err, NULL, "cannot write '%s'", path);
	if (!folder && fflush(stdout) && !rc)
		rc = dlb_fail(err, NULL, "cannot write standard output");
	free(path);
	return rc;
}

/* What a signal handler says when MPI does not come back, and how. Lower ranks first, so that one line mostly is enough:
 * the end of a rank ends the others. */
static struct { char before[64], after[160]; int rank; } last_words;

static void hung(const char *what)
{
	const double s = SAY_AFTER_S * (last_words.rank < 5 ? last_words.rank : 5);
	const struct timespec wait = { .tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - (double)(time_t)s)) };
	char line[512];

	nanosleep(&wait, NULL);
	strcpy(line, last_words.before);
	strncat(line, what, sizeof line / 2);
	strcat(line, last_words.after);
	if (write(2, line, strlen(line)))
		_exit(2);
	_exit(2);
}

static void prepare_last_words(const char *folder, double timeout_s)
{
	last_words.rank = dlb_launch_rank() < 0 ? 0 : dlb_launch_rank();
	snprintf(last_words.before, sizeof last_words.before, "%s%s[%d]: ", folder ? "\1error 2 " : "", TOOL, last_words.rank);
	snprintf(last_words.after, sizeof last_words.after,
		 " not complete after %g s: is a rank stopped, or a host cut off? A longer --timeout helps when one is only slow\n", timeout_s);
	dlb_deadline_words(hung);
}

/* Rank 0's document: from the parent's file, or from a pipe whose writer may take its time. */
struct source { struct dlb_doc *doc; const struct dlb_cli *cli; struct options *o; const char *folder; int argc; char **argv; };

static int read_source(void *ctx, struct dlb_error *err)
{
	const struct source *s = ctx;
	char *in;
	int rc;

	if (!s->folder)
		return open_doc(s->doc, s->cli, s->o, s->argc, s->argv, err);
	in = dlb_launch_in(s->folder);
	dlb_input_set_max_text(UINT64_MAX);	/* what our parent has read, and made longer */
	rc = dlb_doc_read(s->doc, in, err);
	unlink(in);		/* nothing is left behind should the parent be killed */
	free(in);
	return rc;
}

/* folder: that of our parent, or NULL under somebody else's mpirun. */
static int run_rank(struct dlb_cli *cli, struct options *o, const char *folder, int argc, char **argv)
{
	struct dlb_error err = { .what = "" };
	struct dlb_report report = { .n_nodes = 0 };
	struct dlb_doc doc = { .root = NULL };
	struct dlb_comm *c;
	struct dlb_status_line line;
	struct source source = { &doc, cli, o, folder, argc, argv };
	int rc, who = 0;

	prepare_last_words(folder, o->exec.timeout_s);
	if (folder)
		dlb_launch_worker_init(folder);
	if (dlb_comm_new(&c, folder ? 0 : o->exec.timeout_s, &err)) {	/* the parent knows better who is missing */
		say(folder, dlb_launch_rank(), &err);
		dlb_comm_abort(NULL, status_of(&err));	/* at exit OpenBLAS waits for threads that it had no memory to start */
	}
	dlb_comm_set_timeout(c, o->exec.timeout_s);
	if (dlb_launch_check(dlb_comm_size(c), &err))
		return alone_in_step(c, &err);
	rc = dlb_comm_await(c, o->exec.timeout_s, read_source, &source, &err);
	if (dlb_comm_agree(c, rc, &err, &who) || share_doc(c, &doc, &err))
		return rank_failed(c, folder, &err, who);
	rc = dlb_run_section_read(&doc, &o->exec, o->init_text, &err);
	dlb_status_line_open(&line, stderr, TOOL, cli->quiet, cli->verbose);
	if (folder && dlb_comm_rank(c) == 0)
		fputs("\1ready\n", stderr);
	o->exec.progress = folder ? worker_progress : show_status;
	o->exec.progress_ctx = &line;
	rc = rc || dlb_exec_run(c, &doc, &o->exec, &report, &who, &err) ? -1 : 0;
	dlb_status_line_clear(&line);
	if (!rc && dlb_comm_rank(c) == 0)
		warn_discount(cli, &doc, &report);
	if (!rc && dlb_comm_rank(c) == 0)
		rc = write_rank0(&doc, &report, folder, &err);
	if (!dlb_comm_broken(c) && dlb_comm_agree(c, rc, &err, rc ? NULL : &who))
		rc = -1;
	dlb_report_release(&report);
	dlb_doc_release(&doc);
	if (rc)
		return rank_failed(c, folder, &err, who);
	if (folder && dlb_comm_rank(c) == 0)
		fputs("\1done\n", stderr);
	if (folder)
		dlb_comm_set_timeout(c, 0);	/* the parent ends who does not end, and has the result */
	dlb_comm_free(c);
	return 0;
}

/* ---- started plainly ---- */

static int run_alone(struct dlb_doc *doc, struct options *o, struct dlb_report *report, struct dlb_error *err)
{
	struct dlb_status_line line;
	struct dlb_comm *c;
	int who, rc;

	if (dlb_comm_new_alone(&c, err))
		return -1;
	dlb_status_line_open(&line, stderr, TOOL, o->exec.quiet, o->exec.verbose);
	o->exec.progress = show_status;
	o->exec.progress_ctx = &line;
	rc = dlb_exec_run(c, doc, &o->exec, report, &who, err);
	dlb_status_line_clear(&line);
	dlb_comm_free(c);
	return rc;
}

/* A plan that was made for more than this host, on which all its nodes run: one line. Before the start where a person reads
 * along; in a log after it, so that a run that fails has its one line alone. */
static bool at_start(const struct dlb_cli *cli) { return cli->verbose || isatty(2); }

static void warn_host(const struct dlb_cli *cli, const struct dlb_doc *doc)
{
	char text[512];

	if (dlb_host_differs(doc, dlb_host_has(), text, sizeof text))
		dlb_cli_warn(cli, "%s", text);
}

static double threads_in_all(const struct dlb_doc *doc)
{
	struct dlb_cluster cl;
	struct dlb_error err;
	double sum = 0;

	if (dlb_cluster_read(doc, &cl, &err))
		return 0;
	for (int i = 0; i < cl.n_nodes; i++)
		sum += cl.kind[cl.node[i].kind].threads;
	dlb_cluster_release(&cl);
	return sum;
}

static int run_plain(struct dlb_cli *cli, struct options *o, struct dlb_doc *doc, int argc, char **argv, struct dlb_error *err)
{
	struct dlb_launch l = { .tool = TOOL, .argc = argc, .argv = argv, .quiet = cli->quiet, .verbose = cli->verbose,
				.stop = &told_to_stop, .timeout_s = o->exec.timeout_s };
	struct dlb_report report = { .n_nodes = 0 };
	int rc;

	if (o->print_program)
		return dlb_exec_print_program(doc, &o->exec, stdout, err);
	if (o->exec.dry_run) {
		rc = dlb_exec_dry_run(doc, &o->exec, &report, err);
	} else {
		if (dlb_exec_check(doc, &o->exec, &l.n_ranks, err))
			return -1;
		l.total_threads = threads_in_all(doc);
		if (at_start(cli))
			warn_host(cli, doc);
		rc = l.n_ranks > 1 ? dlb_launch(&l, doc, stdout, err) : run_alone(doc, o, &report, err);
		if (!rc && !at_start(cli))
			warn_host(cli, doc);
		if (l.n_ranks > 1)
			return rc;
	}
	if (!rc)
		warn_discount(cli, doc, &report);
	if (!rc)
		rc = write_result(doc, &report, stdout, err);
	dlb_report_release(&report);
	return rc;
}

int main(int argc, char **argv)
{
	struct options o = { .print_program = false };
	struct dlb_cli cli = { .tool = TOOL, .usage = "[OPTION...] [FILE]", .summary = "train by a plan, and report what it took",
			       .max_operands = 1 };
	struct dlb_error err = { .what = "" };
	const char *folder = NULL;
	struct dlb_doc doc;
	int status;

	if (argc > 2 && !strcmp(argv[1], "--worker")) {		/* said by launch.c alone */
		folder = argv[2];
		argv[2] = argv[0];
		argc -= 2;
		argv += 2;
	}
	if (parse(&cli, argc, argv, &o)) {
		free(o.factor);
		free(o.slow.item);
		return cli.status;
	}
	catch_signals();
	if (!folder && !o.exec.dry_run && !o.print_program && dlb_launch_check(0, &err)) {
		status = alone_in_step(NULL, &err);
	} else if (folder || (dlb_launch_joined() && !o.exec.dry_run && !o.print_program)) {
		status = run_rank(&cli, &o, folder, argc, argv);
	} else if (open_doc(&doc, &cli, &o, argc, argv, &err)) {
		status = dlb_cli_die(&cli, &err);
	} else {
		status = run_plain(&cli, &o, &doc, argc, argv, &err);
		if (status && err.what[0])
			status = dlb_cli_die(&cli, &err);
		else if (status)
			status = err.status ? err.status : 2;
		dlb_doc_release(&doc);
	}
	free(o.factor);
	free(o.slow.item);
	if (!folder && status == 0)
		status = dlb_cli_close_stdout(&cli);
	return status;
}
