/* lib/exec on one node: a whole run on the digits, continued from checkpoints bit for bit, stopped for every
 * possible reason; measuring; dry runs; thinning of records; steps left. Several nodes: tests/run.bats. */
#define _XOPEN_SOURCE 700	/* mkdtemp */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "exec/engine.h"
#include "exec/exec.h"
#include "exec/record.h"
#include "exec/run.h"
#include "exec/section.h"
#include "graph/graph_json.h"
#include "graph/order.h"
#include "graph/passes.h"
#include "model/onnx.h"
#include "plan/plan_json.h"
#include "plan/schedule.h"
#include "plan/tensors.h"
#include "util/mem.h"
#include "check.h"

#define MODEL "share/models/digits_mlp.onnx"

static void must(int rc, const struct dlb_error *err)
{
	if (!rc)
		return;
	dlb_error_print(stderr, "test_exec", -1, err);
	abort();
}

static void make_graph(struct dlb_graph *g, int64_t batch, struct dlb_backend *be)
{
	struct dlb_error err = { .what = "" };

	must(dlb_onnx_read(MODEL, g, &err), &err);
	g->training = true;
	must(dlb_graph_fold(g, batch, be, &err) || dlb_graph_find_parameters(g, &err) ||
		     dlb_graph_attach_loss(g, NULL, &err) || dlb_graph_choose_layout(g, &err) ||
		     dlb_graph_differentiate(g, &err) || dlb_graph_index(g),
	     &err);
}

/* A document with everything on the one node of cpu:1. */
static void make_doc(struct dlb_doc *doc, int64_t batch, int micro_batches)
{
	const struct dlb_run_edit edit = { .hyper = { [DLB_HYPER_LR] = 0.1 },
					   .hyper_given = { [DLB_HYPER_LR] = true } };
	struct dlb_error err = { .what = "" };
	struct dlb_backend be;
	struct dlb_graph g;
	struct dlb_cluster cl;
	struct dlb_cost c;
	struct dlb_plan p;

	must(dlb_backend_find("cpu")->open(0, 1, &be, &err), &err);
	make_graph(&g, batch, &be);
	dlb_doc_init(doc, "test");
	dlb_doc_set(doc, "graph", dlb_graph_write(&g));
	must(dlb_cluster_parse("cpu:1", &cl, &err), &err);
	dlb_doc_set(doc, "cluster", dlb_cluster_write(&cl));
	must(dlb_cost_fit(&c, &g, NULL, &cl, &err), &err);
	dlb_doc_set(doc, "cost", dlb_cost_write(&c));
	dlb_plan_init(&p, g.n_ops, 1);
	p.graph = &g;
	p.batch = batch;
	p.micro_batches = micro_batches;
	p.algorithm = p.winner = "single";
	p.schedule = "1f1b";
	for (int i = 0; i < g.n_ops; i++)
		p.placement[i] = 0;
	dlb_plan_hash(&p);
	dlb_schedule_order(&p, &c, dlb_schedule_find("1f1b"), NULL);
	dlb_doc_set(doc, "plan", dlb_plan_write(&p));
	must(dlb_run_section_edit(doc, &edit, &err), &err);
	dlb_plan_release(&p);
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_graph_release(&g);
	be.ops->close(&be);
}

static struct dlb_exec_options options(void)
{
	return (struct dlb_exec_options){ .steps = -1, .epochs = -1, .until_step = -1, .data = "digits:train",
		.transform = "scale=1/16", .shuffled = true, .seed = 1, .until_loss = NAN, .timeout_s = 30 };
}

static int run(const struct dlb_doc *doc, const struct dlb_exec_options *o, struct dlb_report *r,
	       struct dlb_error *err)
{
	struct dlb_comm *c;
	bool paused;
	int rc, who;

	must(dlb_comm_new_alone(&c, err), err);
	rc = dlb_exec_run(c, doc, o, r, &paused, &who, err);
	dlb_comm_free(c);
	return rc;
}

static void test_training(const struct dlb_doc *doc, const struct dlb_doc *four)
{
	struct dlb_exec_options o = options();
	struct dlb_report a, b, c;
	struct dlb_error err = { .what = "" };

	o.steps = 8;
	must(run(doc, &o, &a, &err), &err);
	assert(IS(a.steps, ==, 8) && IS(a.n_losses, ==, 8) && SAME(a.stopped, "steps") &&
	       IS(a.step_s, >, 0) && IS(a.n_ops, >, 5));
	assert(IS(a.node[0].busy_s, >, 0) && IS(a.node[0].busy_s, <=, a.step_s * 1.5) &&
	       IS(a.imbalance, ==, 1) && IS(a.predicted_step_s, >, 0));
	assert(a.timeline && IS(a.n_spans[0], >, 5) && isnan(a.accuracy));
	must(run(doc, &o, &b, &err), &err);
	assert(!memcmp(a.loss, b.loss, 8 * sizeof *a.loss));
	must(run(four, &o, &c, &err), &err);		/* micro-batches: the same to rounding */
	for (int i = 0; i < 8; i++)
		assert(IS(fabs(c.loss[i] / a.loss[i] - 1), <, 1e-5));
	dlb_report_release(&a);
	dlb_report_release(&b);
	dlb_report_release(&c);

	/* 1437 samples are 44 batches of 32 and one of 29; three epochs are enough to learn the digits */
	o.steps = -1;
	o.epochs = 3;
	o.test_data = "digits:test";
	must(run(doc, &o, &a, &err), &err);
	assert(IS(a.steps, ==, 135) && SAME(a.stopped, "epochs"));
	assert(IS(a.accuracy, >, 0.75) && IS(a.accuracy, <=, 1) && IS(a.test_loss, >, 0) &&
	       IS(a.test_loss, <, 1));
	dlb_report_release(&a);
}

static int lines(const char *path)
{
	FILE *f = fopen(path, "r");
	int n = 0, c;

	assert(f);
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static bool exists(const char *dir, const char *name)
{
	char path[512];
	struct stat s;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return stat(path, &s) == 0;
}

static void test_checkpoints(const struct dlb_doc *doc, const char *dir)
{
	struct dlb_exec_options o = options();
	struct dlb_report all, part;
	struct dlb_error err = { .what = "" };
	char log[256], ck[256], command[600];

	snprintf(log, sizeof log, "%s/log", dir);
	snprintf(ck, sizeof ck, "%s/a/ck", dir);
	o.steps = 100;			/* beyond the first epoch */
	must(run(doc, &o, &all, &err), &err);
	o.checkpoint = ck;
	o.checkpoint_every = 10;
	o.loss_log = log;
	o.steps = 37;
	must(run(doc, &o, &part, &err), &err);
	assert(!memcmp(part.loss, all.loss, 37 * sizeof *all.loss) && IS(lines(log), ==, 37));
	assert(exists(ck, "step-30") && exists(ck, "step-37") && !exists(ck, "step-20") &&
	       !exists(ck, ".new-step-37"));
	dlb_report_release(&part);
	/* As if killed after the log had step 37 and the last checkpoint step 30. */
	snprintf(command, sizeof command, "rm -r '%s/step-37'", ck);
	assert(IS(system(command), ==, 0));
	o.steps = -1;
	o.until_step = 100;
	must(run(doc, &o, &part, &err), &err);
	assert(IS(part.first_step, ==, 30) && IS(part.steps, ==, 70) &&
	       !memcmp(part.loss, all.loss + 30, 70 * sizeof *all.loss));
	assert(IS(lines(log), ==, 100));
	dlb_report_release(&part);
	must(run(doc, &o, &part, &err), &err);		/* a run without remaining steps is no error */
	assert(IS(part.steps, ==, 0) && IS(part.first_step, ==, 100));
	dlb_report_release(&part);

	/* Instead of a damaged checkpoint the one before it is used; if that is damaged too, the run is
	 * refused. */
	for (int i = 0; i < 2; i++) {
		snprintf(command, sizeof command, i ? "echo '{' > '%s/step-100/manifest.json'" :
			 "truncate -s 100 '%s/step-100/part-0.safetensors'", ck);
		assert(IS(system(command), ==, 0));
		must(run(doc, &o, &part, &err), &err);
		assert(IS(part.first_step, ==, 90) && IS(part.steps, ==, 10) &&
		       !memcmp(part.loss, all.loss + 90, 10 * sizeof *all.loss));
		dlb_report_release(&part);
	}
	snprintf(command, sizeof command, "for m in '%s'/step-*/manifest.json; do echo '{' > $m; done", ck);
	assert(IS(system(command), ==, 0) && IS(run(doc, &o, &part, &err), ==, -1) && err.what[0]);
	dlb_report_release(&part);
	dlb_report_release(&all);
}

static void test_stopping(const struct dlb_doc *doc, const char *dir)
{
	static volatile sig_atomic_t stop = 1;
	struct dlb_exec_options o = options();
	struct dlb_report r;
	struct dlb_error err = { .what = "" };
	struct dlb_doc wild;
	struct dlb_run_edit edit = { .hyper = { [DLB_HYPER_LR] = 1e30 },
				     .hyper_given = { [DLB_HYPER_LR] = true } };
	char ck[256];

	snprintf(ck, sizeof ck, "%s/stop", dir);
	o.until_loss = 1.5;
	must(run(doc, &o, &r, &err), &err);
	assert(SAME(r.stopped, "loss") && IS(r.loss[r.n_losses - 1], <, 1.5) &&
	       IS(r.loss[r.n_losses - 2], >=, 1.5));
	dlb_report_release(&r);
	o = options();
	o.patience = 3;
	must(run(doc, &o, &r, &err), &err);
	assert(SAME(r.stopped, "patience") && IS(r.n_losses, >, 3));
	dlb_report_release(&r);
	o = options();
	o.epochs = 50;
	o.stop = &stop;
	o.checkpoint = ck;
	must(run(doc, &o, &r, &err), &err);
	assert(SAME(r.stopped, "signal") && IS(r.steps, ==, 1) && exists(ck, "step-1"));
	dlb_report_release(&r);

	/* A loss that is not finite ends the run, unless allowed. */
	make_doc(&wild, 32, 1);
	must(dlb_run_section_edit(&wild, &edit, &err), &err);
	o = options();
	o.steps = 30;
	assert(IS(run(&wild, &o, &r, &err), ==, -1) && HAS(err.what, "loss"));
	dlb_report_release(&r);
	o.allow_nonfinite = true;
	must(run(&wild, &o, &r, &err), &err);
	assert(IS(r.steps, ==, 30));
	dlb_report_release(&r);
	o.data = "nothing";
	assert(IS(run(&wild, &o, &r, &err), ==, -1));
	dlb_report_release(&r);
	dlb_doc_release(&wild);
}

static void test_measure(void)
{
	struct dlb_error err = { .what = "" };
	struct dlb_backend be;
	struct dlb_graph g;
	struct dlb_measurement *m;
	double *s, sum = 0;

	must(dlb_backend_find("cpu")->open(0, 1, &be, &err), &err);
	make_graph(&g, 32, &be);
	s = dlb_xcalloc((size_t)g.n_ops, sizeof *s);
	must(dlb_measurement_open(&g, &be, 16, &m, &err), &err);
	must(dlb_measurement_run(m, 1, 2, &err), &err);
	must(dlb_measurement_run(m, 0, 1, &err), &err);
	dlb_measurement_medians(m, s, NULL, NULL);
	dlb_measurement_free(m);
	for (int i = 0; i < g.n_ops; i++) {
		assert(isfinite(s[i]) && IS(s[i], >=, 0) && (s[i] > 0 || dlb_graph_is_view(&g, i)));
		sum += s[i];
	}
	assert(IS(sum, <, 1));
	free(s);
	dlb_graph_release(&g);
	be.ops->close(&be);
}

static void test_dry_run(const struct dlb_doc *doc)
{
	const double slow[] = { 2.0 };
	struct dlb_exec_options o = options();
	struct dlb_report r;
	struct dlb_error err = { .what = "" };

	o.slow = slow;
	o.n_slow = 1;
	must(dlb_exec_dry_run(doc, &o, &r, &err), &err);
	assert(r.dry_run && IS(fabs(r.node[0].busy_s / r.node[0].predicted_busy_s - 2), <, 1e-9));
	assert(IS(fabs(r.step_s / r.predicted_step_s - 2), <, 0.01) && IS(r.n_ops, >, 5) &&
	       IS(r.n_losses, ==, 0));
	dlb_report_release(&r);
}

/* Ops of steps that the record does not want are not timed: the step has other times than its ops then. */
static void test_record(bool rare)
{
	const int most = rare ? DLB_RECORD_SLOTS / 4 : DLB_RECORD_SLOTS;
	struct dlb_record r;
	double start[2] = { 0, 0 }, end[2] = { 0, 0 };
	struct dlb_engine_program e = { .n_computes = 2, .start_s = start, .end_s = end };
	int timed = 0;

	dlb_record_init(&r, 2, rare);
	for (int i = 0; i < 20000; i++) {
		e.times.step_s = i;
		if (dlb_record_wants_ops(&r)) {
			start[0] = start[1] = i;
			end[0] = end[1] = i + 1;
			timed++;
		}
		dlb_record_add(&r, &e);
	}
	assert(IS(r.n_slots, >, most / 2 - 1) && IS(r.n_slots, <=, most) && IS(r.n_steps, <=, DLB_RECORD_STEPS));
	assert(IS(timed, <=, (rare ? 120 : 400)));
	for (int i = 0; i < r.n_slots; i++)
		assert(IS(r.slot_step_s[i], ==, (double)(i * r.stride)) &&
		       IS(r.start_s[2 * i], ==, r.slot_step_s[i]) &&
		       IS(r.end_s[2 * i + 1], ==, r.slot_step_s[i] + 1));
	for (int i = 0; i < r.n_steps; i++)
		assert(IS(r.step[i].step_s, ==, (double)(i * r.step_stride)));
	dlb_record_release(&r);
}

/* Steps left are those that are made until a limit is reached, from every step before it. */
static void test_left(void)
{
	for (int count = 1; count <= 13; count++)
		for (int limit = 0; limit < 12; limit++) {
			static struct run r;
			struct dlb_progress_state at[64] = { { .step = 0 } };
			int n = 0;

			r.size[0] = 4;
			r.count = count;
			r.end_step = limit % 3 ? 5 * (limit % 3) : INT64_MAX;
			r.end_epoch = limit % 4 ? limit % 4 : limit % 3 ? INT64_MAX : 2;
			r.end_position = count > 4 && limit % 2 ? 4 : 0;
			while (!dlb_run_limit_reached(&r, &at[n])) {
				assert(IS(n, <, 63));
				at[n + 1] = at[n];
				dlb_run_advance(&r, &at[++n]);
			}
			assert(IS(n, >, 0));
			for (int i = 0; i <= n; i++) {
				r.at = at[i];
				assert(IS(dlb_run_left_steps(&r), ==, n - i));
			}
			r.end_step = r.end_epoch = INT64_MAX;
			assert(IS(dlb_run_left_steps(&r), ==, INT64_MAX) &&
			       !dlb_run_limit_reached(&r, &at[n]));
		}
}

int main(void)
{
	char dir[] = "/tmp/dlb-test-XXXXXX", command[64];
	struct dlb_doc doc, four;

	if (access(MODEL, R_OK)) {
		puts("no " MODEL " (run from the top of the source tree)");
		return 77;
	}
	assert(mkdtemp(dir));
	test_record(false);
	test_record(true);
	test_left();
	make_doc(&doc, 32, 1);
	make_doc(&four, 32, 4);
	test_training(&doc, &four);
	test_checkpoints(&doc, dir);
	test_stopping(&doc, dir);
	test_measure();
	test_dry_run(&doc);
	dlb_doc_release(&doc);
	dlb_doc_release(&four);
	snprintf(command, sizeof command, "rm -r %s", dir);
	assert(IS(system(command), ==, 0));
	puts("exec: training, micro-batches, checkpoints, reasons to stop, measuring, dry runs, records");
	return 0;
}
