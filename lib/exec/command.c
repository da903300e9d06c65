/* dlb-run: reads the document, applies the options to it, and writes it with its report. */
#include <stdlib.h>
#include <string.h>
#include "exec/command.h"
#include "comm/await.h"
#include "exec/freeze.h"
#include "exec/restart.h"
#include "exec/unused.h"
#include "plan/by_class.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "util/mem.h"

/* -v: prints batch, schedule, optimizer and predicted time before the run. */
static void say_run(const struct dlb_cli *cli, const struct dlb_doc *doc)
{
	const json_t *plan = dlb_doc_section(doc, "plan"),
		     *optimizer = json_object_get(dlb_doc_section(doc, "run"), "optimizer");
	const char *schedule = json_string_value(json_object_get(plan, "schedule")),
		   *rule = json_string_value(json_object_get(optimizer, "name"));
	const json_int_t M = json_integer_value(json_object_get(plan, "micro_batches"));

	dlb_cli_say(cli,
		    "%lld samples a step in %lld micro-batch%s, schedule %s, optimizer %s; predicted %.6g ms "
		    "a step",
		    (long long)json_integer_value(json_object_get(plan, "batch")), (long long)M,
		    M == 1 ? "" : "es", schedule ? schedule : "not said", rule ? rule : "not said",
		    json_number_value(json_object_get(plan, "value_s")) * 1e3);
}

/* --eval-every and --save-best need test data and an interval. c: has the document's settings already. */
static int check_measuring(const struct dlb_run_command *c, struct dlb_error *err)
{
	const struct dlb_exec_options *x = &c->exec;

	if (x->save_best && !x->eval_every)
		return dlb_refuse(err, NULL, "give --eval-every N",
				  "--save-best '%s': nothing is measured during training", x->save_best);
	if (x->save_best && x->save && !strcmp(x->save_best, x->save))
		return dlb_refuse(err, NULL, "give another name",
				  "--save-best and --save name the same file '%s'", x->save);
	if (x->eval_every && !x->test_data && !x->dry_run && !c->print_program)
		return dlb_refuse(err, NULL, "give --test-data SPEC",
				  "--eval-every %lld: there are no test data", (long long)x->eval_every);
	return 0;
}

bool dlb_command_remembers(const struct dlb_doc *doc)
{
	const char *how = json_string_value(json_object_get(dlb_doc_section(doc, "plan"), "compress"));

	return how && strcmp(how, "none") && strcmp(how, "bf16");
}

const char *dlb_command_fixed_plan(const struct dlb_doc *doc)
{
	const json_t *plan = dlb_doc_section(doc, "plan");
	const char *compress = json_string_value(json_object_get(plan, "compress"));

	if (json_object_get(plan, "replicas") && json_object_get(plan, "param_server"))
		return "the replicas of a parameter server cannot change their programs inside a run";
	if (compress && !strcmp(compress, DLB_COMPRESS_AUTO))
		return "--compress auto may choose another compression for the next plan, and residuals of "
		       "one do not fit another";
	return NULL;
}

bool dlb_command_averages(const struct dlb_doc *doc)
{
	static const char *const word[] = { "gossip", "sync_every", "param_server" };
	const json_t *plan = dlb_doc_section(doc, "plan");

	for (int i = 0; i < DLB_LEN(word) && json_object_get(plan, "replicas"); i++)
		if (json_object_get(plan, word[i]))
			return true;
	return false;
}

bool dlb_command_is_async(const struct dlb_doc *doc)
{
	const char *schedule = json_string_value(json_object_get(dlb_doc_section(doc, "plan"), "schedule"));
	const struct dlb_schedule *s = schedule ? dlb_schedule_find(schedule) : NULL;

	return s && s->async;
}

/* Refuses --rounds for plans that cannot change inside a run. */
static int check_rounds(const struct dlb_run_command *c, const struct dlb_doc *doc, struct dlb_error *err)
{
	const char *fixed = dlb_command_fixed_plan(doc);

	if (!c->exec.rounds || c->exec.dry_run || c->print_program)
		return 0;
	if (!fixed && json_object_get(dlb_doc_section(doc, "plan"), "shards"))
		fixed = "samples do not move between the shards of replicas inside a run";
	if (fixed)
		return dlb_refuse(err, NULL, "use the loop of dlb-rebalance(1), run by run", "--rounds: %s",
				  fixed);
	return 0;
}

/* Refuses changes of --slow during a dry run, which simulates one step. */
static int check_slow(const struct dlb_run_command *c, struct dlb_error *err)
{
	const struct dlb_exec_options *x = &c->exec;

	if (!x->n_slow_changes || !x->dry_run)
		return 0;
	return dlb_refuse(err, NULL, "give the factor without @STEP",
			  "--slow %d:%g@%lld: --dry-run simulates one step", x->slow_change[0].node,
			  x->slow_change[0].factor, (long long)x->slow_change[0].step);
}

/* --scenario needs --dry-run and a number of rounds. */
static int check_scenario(const struct dlb_run_command *c, struct dlb_error *err)
{
	if (!c->scenario || c->print_program)
		return 0;
	if (!c->exec.dry_run)
		return dlb_refuse(err, NULL, "give --dry-run", "--scenario '%.200s': real nodes follow none",
				  c->scenario);
	if (!c->exec.rounds || c->exec.rounds == INT64_MAX)
		return dlb_refuse(err, NULL, "give --rounds N",
				  "--scenario '%.200s': its rounds have no number", c->scenario);
	return 0;
}

/* The name of the optimizer that the run will use. */
static const char *optimizer_of(const struct dlb_doc *doc)
{
	json_t *o = json_object_get(dlb_doc_section(doc, "run"), "optimizer");

	return json_string_value(
		json_object_get(o ? o : dlb_doc_section(doc, "plan"), o ? "name" : "optimizer"));
}

int dlb_command_read(const struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_error *err)
{
	return dlb_doc_read(doc, c->cli->n_operands ? c->cli->operands[0] : NULL, err);
}

/* --drain: makes a plan without these nodes. */
static int drain(const struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_error *err)
{
	const int n = (int)json_array_size(json_object_get(dlb_doc_section(doc, "cluster"), "nodes"));
	bool *out = dlb_xcalloc((size_t)n + 1, sizeof *out);
	struct dlb_error why;
	char text[256];
	int rc = 0;

	for (int i = 0; i < c->drain.n && !rc; i++) {
		char *end;
		const long node = strtol(c->drain.item[i], &end, 10);

		if (end == c->drain.item[i] || *end || node < 0 || node >= n)
			rc = dlb_fail(err, NULL, "--drain '%s': there are nodes 0 to %d", c->drain.item[i],
				      n - 1);
		else
			out[node] = true;
	}
	if (!rc && c->drain.n) {
		rc = c->survive(c->cli, doc, out, n, text, &why);
		if (rc)
			dlb_fail(err, NULL, "--drain: %s", why.what);
		else if (strchr(text, ','))
			dlb_cli_warn(c->cli, "--drain: %s", text);
	}
	free(out);
	return rc;
}

/* --release idle: makes a plan without the nodes that it does not need. */
static int release(const struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_error *err)
{
	struct dlb_error why;
	char text[400];

	if (!c->releases || json_array_size(json_object_get(dlb_doc_section(doc, "cluster"), "nodes")) < 2)
		return 0;
	if (c->release(c->cli, doc, text, &why))
		return dlb_fail(err, NULL, "--release idle: %s", why.what);
	dlb_cli_warn(c->cli, "--release idle: %s", text);
	return 0;
}

int dlb_command_edit(struct dlb_run_command *c, struct dlb_doc *doc, struct dlb_error *err)
{
	const struct dlb_cli *cli = c->cli;
	struct dlb_unused unused[DLB_RUN_UNUSED];
	const char *advice;
	char before[32];

	snprintf(before, sizeof before, "%s", optimizer_of(doc) ? optimizer_of(doc) : "");
	if (dlb_sharing_edit(doc, &c->sharing, &advice, err) || dlb_run_section_edit(doc, &c->edit, err) ||
	    drain(c, doc, err) || release(c, doc, err) ||
	    dlb_run_section_read(doc, &c->exec, c->init_text, err) ||
	    dlb_exec_advise(doc, &c->exec, optimizer_of(doc) && strcmp(before, optimizer_of(doc)), err) ||
	    check_measuring(c, err) || check_slow(c, err) || check_scenario(c, err) ||
	    check_rounds(c, doc, err) || dlb_freeze_check(c, doc, err) || dlb_restart_check(c, err)) {
		dlb_doc_release(doc);
		return -1;
	}
	if (advice)
		dlb_cli_warn(cli, "%s", advice);
	dlb_run_unused(doc, &c->exec, c->print_program, c->scenario, unused);
	dlb_cli_warn_unused(cli, unused);
	say_run(cli, doc);
	dlb_doc_provenance(doc, cli->tool, c->argc, c->argv);
	return 0;
}

/* Warns if --delay-discount has no effect, since no weight is read more than one update late. Only the
 * compiled program shows that. */
static void warn_discount(const struct dlb_cli *cli, const struct dlb_doc *doc,
			  const struct dlb_report *report)
{
	const char *rule = json_string_value(json_object_get(dlb_doc_section(doc, "plan"), "staleness"));
	struct dlb_unused row[] = { { "delay-discount",
				      rule && (!strcmp(rule, "stash") || !strcmp(rule, "none")),
				      "no weight of this plan is read more than one update late" },
				    { NULL, false, NULL } };

	for (int i = 0; i < report->n_delays; i++)
		row[0].unused &= report->delay[i].most <= 1;
	dlb_cli_warn_unused(cli, row);
}

int dlb_command_write(const struct dlb_run_command *c, struct dlb_doc *doc, const struct dlb_report *report,
		      FILE *f, struct dlb_error *err)
{
	warn_discount(c->cli, doc, report);
	dlb_report_set(doc, report);
	return dlb_doc_write(doc, f, err);
}

static void show_status(void *ctx, const struct dlb_status_told *told)
{
	dlb_status_line_show(ctx, told);
}

static void tell_parent(void *ctx, const struct dlb_status_told *told)
{
	(void)ctx;
	fprintf(stderr, "\1progress %lld %lld %d %s\n", (long long)told->done, (long long)told->total,
		told->permanent, told->text);
}

static void tell_training(void *ctx, int64_t step, bool copies, const struct dlb_begin *begin)
{
	char text[DLB_BEGIN_TEXT];

	(void)ctx;
	dlb_begin_text(begin, text);
	fprintf(stderr, "\1trains %lld %d %s\n", (long long)step, copies, text);
}

/* ---- rounds inside the run ---- */

struct round_work {
	struct dlb_run_command *command;
	struct dlb_doc *doc;
	const struct dlb_report *report;
	struct dlb_round_decision *decision;
};

static int rebalance(void *ctx, struct dlb_error *err)
{
	const struct round_work *w = ctx;

	dlb_report_set(w->doc, w->report);
	return w->command->rebalance(w->command->live, w->command->cli, w->doc, w->decision, err);
}

int dlb_command_share(struct dlb_comm *comm, struct dlb_doc *doc, const char *const *section, int n_sections,
		      struct dlb_error *err)
{
	struct dlb_doc got;
	char *text = NULL;
	size_t n = 0;
	int rc;

	if (dlb_comm_size(comm) == 1)
		return 0;
	if (dlb_comm_rank(comm) == 0) {
		json_t *o = json_pack("{ss}", "dlb", "1.0");

		for (int i = 0; i < n_sections; i++)
			if (dlb_doc_section(doc, section[i]))
				json_object_set(o, section[i], dlb_doc_section(doc, section[i]));
		text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17));
		n = strlen(text);
		json_decref(o);
	}
	rc = dlb_comm_bcast(comm, &n, sizeof n, 0, err);
	if (!rc && dlb_comm_rank(comm))
		text = dlb_xmalloc(n + 1);
	rc = rc || dlb_comm_bcast(comm, text, n, 0, err) ? -1 : 0;
	if (!rc && dlb_comm_rank(comm)) {
		rc = dlb_doc_parse(&got, text, n, "<rank 0>", err);
		for (int i = 0; i < n_sections && !rc; i++)
			if (dlb_doc_section(&got, section[i]))
				dlb_doc_set(doc, section[i], json_incref(dlb_doc_section(&got, section[i])));
		if (!rc)
			dlb_doc_release(&got);
	}
	free(text);
	return rc;
}

/* dlb_exec_options.next_plan; ctx: a struct round_work. */
static int next_plan(void *ctx, struct dlb_comm *comm, const struct dlb_report *report,
		     struct dlb_round_decision *d, int *who, struct dlb_error *err)
{
	static const char *const sections[] = { "balance", "plan" };
	struct round_work *w = ctx;
	int rc;

	w->report = report;
	w->decision = d;
	/* planning may take longer than --timeout, so rank 0 sends signs of life meanwhile */
	rc = dlb_comm_await(comm, w->command->exec.timeout_s, rebalance, w, err);
	if (dlb_comm_agree(comm, rc, err, who) || dlb_comm_bcast(comm, d, sizeof *d, 0, err))
		return -1;
	return d->moves ? dlb_command_share(comm, w->doc, sections, DLB_LEN(sections), err) : 0;
}

/* dlb_exec_options.freeze; ctx: a struct round_work. */
static int freeze(void *ctx, struct dlb_comm *comm, struct dlb_freezing *f, int *who, struct dlb_error *err)
{
	const struct round_work *w = ctx;

	return dlb_freeze_now(w->command, comm, w->doc, f, who, err);
}

/* dlb_exec_options.memory_cure; ctx: a struct round_work. */
static void memory_cure(void *ctx, const struct dlb_memory_case *x, struct dlb_error *err)
{
	const struct round_work *w = ctx;

	w->command->memory_cure(w->command->cli, w->doc, x, err);
}

int dlb_command_exec(struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_doc *doc,
		     struct dlb_report *report, bool *paused, int *who, struct dlb_error *err)
{
	struct round_work work = { .command = c, .doc = doc };
	struct dlb_status_line line;
	int rc;

	dlb_status_line_open(&line, stderr, c->cli->tool, c->cli->quiet, c->cli->verbose);
	c->exec.progress = c->folder ? tell_parent : show_status;
	c->exec.trains = c->folder ? tell_training : NULL;
	c->exec.progress_ctx = &line;
	c->exec.next_plan = c->exec.rounds && c->rebalance && dlb_comm_size(comm) > 1 ? next_plan : NULL;
	c->exec.next_plan_ctx = &work;
	c->exec.freeze = freeze;
	c->exec.memory_cure = c->memory_cure ? memory_cure : NULL;
	rc = dlb_freeze_resume(c, comm, doc, who, err) ||
			     dlb_exec_run(comm, doc, &c->exec, report, paused, who, err) ?
		     -1 :
		     0;
	dlb_status_line_clear(&line);
	return rc;
}

int dlb_command_print_error(const struct dlb_run_command *c, int rank, const struct dlb_error *err)
{
	const int status = dlb_error_status(err);
	char line[1200] = "";
	/* the line is printed with one write, since ranks share stderr */
	FILE *f = fmemopen(line, sizeof line - 1, "w");

	if (c->folder)
		fprintf(f, "\1error %d ", status);
	dlb_error_print(f, c->cli->tool, rank, err);
	fclose(f);
	fputs(line, stderr);
	return status;
}
