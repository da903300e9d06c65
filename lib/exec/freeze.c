/* Freezes weights during a run. See freeze.h. */
#include "exec/freeze.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/await.h"
#include "exec/checkpoint.h"
#include "graph/graph_json.h"
#include "graph/passes.h"
#include "plan/schedule.h"
#include "util/mem.h"

/* ---- before the start ---- */

static int refuse_plan(const struct dlb_freeze_at *f, const char *what, struct dlb_error *err)
{
	return dlb_refuse(err, NULL,
			  "train to that step with --checkpoint and --save W, and go on with a document of "
			  "dlb-profile --freeze --weights W",
			  "--freeze-at '%.100s@%lld': %s", f->glob, (long long)f->step, what);
}

static int check_plan(const struct dlb_run_command *c, const struct dlb_doc *doc, struct dlb_error *err)
{
	const struct dlb_freeze_at *f = c->exec.freeze_at;
	const json_t *optimizer = json_object_get(dlb_doc_section(doc, "run"), "optimizer");
	const char *rule = json_string_value(json_object_get(optimizer, "name")),
		   *fixed = dlb_command_fixed_plan(doc);

	if (fixed)
		return refuse_plan(f, fixed, err);
	if (json_integer_value(json_object_get(dlb_doc_section(doc, "plan"), "zero")) == 3)
		return refuse_plan(
			f, "replicas that have shares of weights (--zero 3) cannot freeze them inside a run",
			err);
	if (dlb_command_averages(doc))
		return refuse_plan(f, "replicas that average weights would freeze different ones", err);
	if (dlb_command_remembers(doc))
		return refuse_plan(
			f, "what compressed sums remember of a gradient is kept by its place in the graph",
			err);
	if (dlb_command_is_async(doc))
		return refuse_plan(f, "an asynchronous schedule has several steps under way", err);
	if (rule && !strcmp(rule, "kfac"))
		return refuse_plan(f, "kfac's factors of a layer cannot change inside a run", err);
	return 0;
}

/* Applies all rows of --freeze-at in turn to a copy of the graph, as the run will. */
static int try_all(const struct dlb_run_command *c, const struct dlb_doc *doc, struct dlb_error *err)
{
	struct dlb_graph g = { .n_ops = 0 };
	struct dlb_arena a = { 0 };
	int rc = dlb_graph_read(doc, &g, err);

	for (int i = 0; i < c->exec.n_freeze_at && !rc; i++) {
		const struct dlb_freeze_at *f = &c->exec.freeze_at[i];
		struct dlb_patterns p = { .what = "--freeze-at" };
		struct dlb_frozen frozen;

		rc = dlb_patterns_add(&p, f->glob, &a, err) || dlb_graph_freeze(&g, &p, &frozen, err) ? -1 :
													0;
		if (!rc && !frozen.weights)
			dlb_cli_warn(c->cli,
				     "--freeze-at '%s@%lld' has no effect: these weights are frozen already",
				     f->glob, (long long)f->step);
	}
	dlb_graph_release(&g);
	dlb_arena_release(&a);
	return rc;
}

int dlb_freeze_check(const struct dlb_run_command *c, const struct dlb_doc *doc, struct dlb_error *err)
{
	if (!c->exec.n_freeze_at || c->exec.dry_run || c->print_program)
		return 0;
	return check_plan(c, doc, err) || try_all(c, doc, err) ? -1 : 0;
}

/* ---- freezing ---- */

struct freeze_work {
	struct dlb_run_command *command;
	struct dlb_doc *doc;
	struct dlb_freezing *f;
};

static int freeze(void *ctx, struct dlb_error *err)
{
	struct freeze_work *w = ctx;
	const struct dlb_run_command *c = w->command;
	struct dlb_freezing *f = w->f;
	const char **glob = dlb_xcalloc((size_t)f->n + 1, sizeof *glob);
	int rc;

	for (int i = 0; i < f->n; i++)
		glob[i] = c->exec.freeze_at[f->first + i].glob;
	rc = c->freeze(c->live, c->cli, w->doc, glob, f->n, f->text, err);
	free(glob);
	return rc;
}

int dlb_freeze_now(struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_doc *doc,
		   struct dlb_freezing *f, int *who, struct dlb_error *err)
{
	static const char *const sections[] = { "graph", "profile", "cost", "balance", "plan" };
	struct freeze_work w = { .command = c, .doc = doc, .f = f };
	/* planning may take longer than --timeout, so rank 0 sends signs of life meanwhile */
	const int rc = dlb_comm_await(comm, c->exec.timeout_s, freeze, &w, err);

	if (dlb_comm_agree(comm, rc, err, who) || dlb_comm_bcast(comm, f->text, sizeof f->text, 0, err))
		return -1;
	return f->text[0] ? dlb_command_share(comm, doc, sections, DLB_LEN(sections), err) : 0;
}

/* The step of the newest checkpoint; 0: there is none. */
static int64_t newest_step(const char *folder)
{
	char *path = folder ? dlb_checkpoint_newest(folder) : NULL;
	const char *number = path ? strrchr(path, '-') : NULL;
	const int64_t step = number ? strtoll(number + 1, NULL, 10) : 0;

	free(path);
	return step;
}

int dlb_freeze_resume(struct dlb_run_command *c, struct dlb_comm *comm, struct dlb_doc *doc, int *who,
		      struct dlb_error *err)
{
	struct dlb_exec_options *x = &c->exec;
	struct dlb_freezing f = { .text = "" };
	int64_t step = 0;

	if (!x->n_freeze_at)
		return 0;
	if (dlb_comm_rank(comm) == 0)
		step = newest_step(x->checkpoint);
	if (dlb_comm_bcast(comm, &step, sizeof step, 0, err))
		return -1;
	while (x->n_frozen < x->n_freeze_at && x->freeze_at[x->n_frozen].step <= step)
		x->n_frozen++;
	x->frozen_step = step;
	if (!x->n_frozen)
		return 0;
	f.n = x->n_frozen;
	if (dlb_freeze_now(c, comm, doc, &f, who, err))
		return -1;
	if (dlb_comm_rank(comm) == 0 && f.text[0])
		dlb_cli_warn(c->cli, "--freeze-at: from the checkpoint of step %lld on, %s", (long long)step,
			     f.text);
	return 0;
}
