/* What the progress line, the log of steps and the metrics are told: times of several nodes, with a clock,
 * an engine and files of this program's own in place of the library's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/dispatch.h"
#include "exec/metrics.h"
#include "exec/run.h"
#include "exec/status.h"
#include "plan/timeline.h"
#include "util/clock.h"
#include "check.h"

enum { NODES = 3, MEMORY_S = 5 };

static double clock_s;
static int64_t total;
static double predicted_s;
static bool write_fails;

double dlb_clock_s(void) { return clock_s; }
double dlb_clock_thread_cpu_s(void) { return clock_s; }
void dlb_sleep_s(double s) { clock_s += s; }

int64_t dlb_run_total_steps(const struct run *r)
{
	(void)r;
	return total;
}

int dlb_program_step_s(const struct dlb_program *p, const struct dlb_cost *c, const double *kappa, double *s,
		       struct dlb_error *err)
{
	(void)p;
	(void)c;
	(void)kappa;
	*s = predicted_s;
	return predicted_s < 0 ? dlb_fail(err, NULL, "no prediction") : 0;
}

/* ---- an engine ---- */

static struct dlb_engine_program view;
static bool sums;

struct dlb_engine_program *dlb_engine_view(struct dlb_engine *e)
{
	(void)e;
	return &view;
}

const struct dlb_sync *dlb_engine_sync(const struct dlb_engine *e)
{
	(void)e;
	return sums ? (const void *)&sums : NULL;
}

const struct dlb_sync_times *dlb_sync_times(const struct dlb_sync *x)
{
	static struct dlb_sync_times times;

	assert((const void *)x == &sums);
	for (int k = 0; k < DLB_N_SUM_CLASSES; k++)
		times.bytes[k] = 1 << k;
	return &times;
}

double dlb_dispatch_bytes(const struct dlb_dispatch *d)
{
	assert(d);
	return 1000;
}

/* ---- files ---- */

static struct dlb_step_row row;
static struct dlb_node_step nodes_of_row[NODES];
static int n_rows, n_added, n_puts, n_closed;
static struct dlb_metrics_now now;
static double weight_of_now[NODES];
static bool due;

int dlb_step_log_open(struct dlb_step_log **out, const char *path, int64_t step, int n_nodes,
		      struct dlb_error *err)
{
	(void)err;
	assert(SAME(path, "log") && IS(step, ==, 40) && IS(n_nodes, ==, NODES));
	*out = (void *)&row;
	return 0;
}

void dlb_step_log_write(struct dlb_step_log *l, const struct dlb_step_row *r)
{
	assert((void *)l == &row && IS(r->n_nodes, ==, NODES));
	row = *r;
	memcpy(nodes_of_row, r->node, sizeof nodes_of_row);
	n_rows++;
}

int dlb_step_log_wrong(const struct dlb_step_log *l, struct dlb_error *err)
{
	(void)l;
	return write_fails ? dlb_fail(err, NULL, "the disk is full") : 0;
}

int dlb_step_log_drain(struct dlb_step_log *l, struct dlb_error *err) { return dlb_step_log_wrong(l, err); }

void dlb_step_log_close(struct dlb_step_log *l, double wait_s) { n_closed += l != NULL && wait_s == 7; }

int dlb_metrics_new(struct dlb_metrics **out, const char *path, const struct dlb_cluster *c,
		    struct dlb_error *err)
{
	(void)c;
	(void)err;
	assert(SAME(path, "metrics"));
	*out = (void *)&now;
	return 0;
}

void dlb_metrics_add(struct dlb_metrics *m, const struct dlb_node_step *node)
{
	assert((void *)m == &now && IS(node[1].busy_s, ==, nodes_of_row[1].busy_s));
	n_added++;
}

bool dlb_metrics_is_due(const struct dlb_metrics *m)
{
	(void)m;
	return due;
}

void dlb_metrics_put(struct dlb_metrics *m, const struct dlb_metrics_now *n)
{
	assert((void *)m == &now);
	now = *n;
	if (n->weight)
		memcpy(weight_of_now, n->weight, sizeof weight_of_now);
	n_puts++;
}

bool dlb_metrics_failed(struct dlb_metrics *m, struct dlb_error *err)
{
	(void)m;
	if (write_fails)
		dlb_fail(err, NULL, "no space");
	return write_fails;
}

bool dlb_metrics_free(struct dlb_metrics *m, double wait_s, struct dlb_error *err)
{
	n_closed += m != NULL && wait_s == 7;
	return dlb_metrics_failed(m, err);
}

/* ---- what is told ---- */

static struct dlb_status_told told;
static char text[DLB_STATUS_BYTES], warned[DLB_STATUS_BYTES];
static int n_told, n_trains;

static void progress(void *ctx, const struct dlb_status_told *t)
{
	assert(ctx == &n_told);
	told = *t;
	snprintf(text, sizeof text, "%s", t->text);
	n_told++;
}

static void warn(void *ctx, const char *line)
{
	assert(ctx == &n_told);
	snprintf(warned, sizeof warned, "%s", line);
}

static void trains(void *ctx, int64_t step, bool from_copies, const struct dlb_begin *begin)
{
	(void)begin;
	assert(ctx == &n_told && IS(step, ==, 41) && from_copies);
	n_trains++;
}

static struct dlb_exec_options options;
static struct run run;
static double wait_for_s[NODES];

/* Rank 0 of three nodes, after 40 steps of an earlier run. */
static struct dlb_watch *watch(int rank)
{
	struct dlb_error err = { .what = "" };
	struct dlb_watch *w;

	run = (struct run){ .o = &options, .rank = rank, .first_step = 40, .from_copies = true, .round = 5 };
	run.at.step = 40;
	run.job.plan.n_nodes = NODES;
	view = (struct dlb_engine_program){ .wait_for_s = wait_for_s };
	memset(wait_for_s, 0, sizeof wait_for_s);
	clock_s = 100;
	n_told = n_trains = n_rows = n_added = n_puts = n_closed = 0;
	due = sums = write_fails = false;
	assert(IS(dlb_watch_new(&w, &run, &err), ==, 0));
	return w;
}

static void set_options(bool verbose, const char *log, const char *metrics)
{
	options = (struct dlb_exec_options){ .verbose = verbose,
					     .step_log = log,
					     .metrics = metrics,
					     .progress = progress,
					     .progress_ctx = &n_told,
					     .trains = trains,
					     .warn = warn,
					     .warn_ctx = &n_told };
}

/* A step of 16 samples that takes s seconds by the engine, and by the clock. */
static void step(struct dlb_watch *w, double s, double clock)
{
	clock_s += clock;
	view.times.step_s = s;
	dlb_watch_times(w, NULL);
	run.at.step++;
	run.at.position += 16;
	dlb_watch_step(w, 16, 0.5);
}

/* The line of the times that are set. */
static const char *line(const struct dlb_status *s, bool verbose)
{
	static char expected[DLB_STATUS_BYTES];

	dlb_status_text(s, !verbose, expected);
	return expected;
}

static void lengths(void)
{
	const int numbers = sizeof(struct dlb_node_step) / sizeof(double);

	set_options(false, NULL, NULL);
	assert(IS(dlb_watch_length(&options, 3), ==, 0));
	options.verbose = true;
	assert(IS(dlb_watch_length(&options, 3), ==, 3 * numbers));
	options.quiet = true;
	assert(IS(dlb_watch_length(&options, 3), ==, 0));
	options.metrics = "metrics";
	assert(IS(dlb_watch_length(&options, 2), ==, 2 * numbers));
	options.metrics = NULL;
	options.step_log = "log";
	assert(IS(dlb_watch_length(&options, 1), ==, numbers));
}

/* Sums that fade with time, from which the line has its rates; and the time that is left. */
static void rates(void)
{
	static const double s[] = { 0.5, 2, 0.25, 1 };
	double steps = 0, samples = 0, seconds = 0, last_s = 0;

	set_options(true, NULL, NULL);
	predicted_s = 0.75;
	total = 10;
	struct dlb_watch *w = watch(0);

	dlb_watch_start(w);
	for (int i = 0; i < 4; i++) {
		const double keep = exp(-s[i] / MEMORY_S);

		step(w, s[i], 3);
		steps = steps * keep + 1;
		samples = samples * keep + 16;
		seconds = seconds * keep + s[i];
		last_s = i ? 3.0 * (10 - (i + 1)) : 3.0 * 9;
		const struct dlb_status want = {
			41 + i, 50, 0.5, samples / seconds, seconds / steps, 0.75, last_s, -1, -1, 0, NULL
		};

		run.job.graph.loss = 3;
		assert(IS(n_told, ==, i + 1) && SAME(text, line(&want, true)));
		assert(IS(told.done, ==, i + 1) && IS(told.total, ==, 10) && !told.permanent);
	}
	assert(IS(n_trains, ==, 1));
	step(w, 1, 0.19); /* too soon */
	assert(IS(n_told, ==, 4));
	step(w, 1, 0.0100001);
	assert(IS(n_told, ==, 5));
	dlb_watch_event(w, "event %d", 7);
	assert(IS(n_told, ==, 6) && told.permanent && HAS(text, "; event 7"));
	dlb_watch_decided(w, "moved");
	assert(IS(n_told, ==, 7) && told.permanent && HAS(text, "; moved"));
	options.verbose = false;
	dlb_watch_event(w, "event");
	assert(IS(n_told, ==, 7));
	dlb_watch_free(w, 7);
	w = watch(1); /* other ranks tell nothing */
	dlb_watch_start(w);
	step(w, 1, 3);
	dlb_watch_event(w, "event");
	assert(IS(n_told, ==, 0) && IS(n_trains, ==, 0));
	dlb_watch_free(w, 7);
}

/* Times of the nodes, as the sum of a step brings them. */
static void put_node(double *x, int node, double message_s, double collective_s, int waited_for,
		     double waited_for_s)
{
	struct dlb_node_step n = { .busy_s = 1 + node,
				   .waited_for = 1 + waited_for,
				   .waited_for_s = waited_for_s };

	n.waits_s[DLB_WAIT_STARVED] = message_s / 4;
	n.waits_s[DLB_WAIT_BACKPRESSURE] = message_s * 3 / 4;
	n.waits_s[DLB_WAIT_COLLECTIVE] = collective_s;
	memcpy(x + (size_t)node * sizeof n / sizeof *x, &n, sizeof n);
}

/* Which node waits, and for which: "waits for": -1 for none. */
static void waits(void)
{
	static const struct {
		double message_s[NODES], collective_s[NODES];
		int waited_for[NODES];
		double waited_for_s[NODES], said_s;
		const char *said;
	} cases[] = {
		{ { 0, 0, 0 }, { 0, 0, 0 }, { -1, -1, -1 }, { 0, 0, 0 }, 0, NULL },
		{ { 0, 0.5, 0.25 },
		  { 0, 0, 0 },
		  { -1, 2, 0 },
		  { 0, 0.5, 0.25 },
		  0.5,
		  "node 1 waits 500 ms for node 2" },
		{ { 0, 0.125, 0.5 },
		  { 0, 0, 0.25 },
		  { -1, 2, 0 },
		  { 0, 0.125, 0.5 },
		  0.75,
		  "node 2 waits 750 ms for node 0" },
		/* more in sums over all nodes: for the one that came last */
		{ { 0, 0, 0.25 },
		  { 0.5, 0.125, 0.5 },
		  { -1, -1, 0 },
		  { 0, 0, 0.25 },
		  0.75,
		  "node 2 waits 750 ms for node 1" },
		{ { 0, 0, 0.5 },
		  { 0.5, 0.125, 0.5 },
		  { -1, -1, 0 },
		  { 0, 0, 0.5 },
		  1,
		  "node 2 waits 1 s for node 0" },
		/* too short a wait, and one just long enough */
		{ { 0.019, 0, 0 }, { 0, 0, 0 }, { 1, -1, -1 }, { 0.019, 0, 0 }, 0, NULL },
		{ { 0.021, 0, 0 },
		  { 0, 0, 0 },
		  { 1, -1, -1 },
		  { 0.021, 0, 0 },
		  0.021,
		  "node 0 waits 21 ms for node 1" },
		/* a wait that nobody is known for */
		{ { 0.5, 0, 0 }, { 0, 0, 0 }, { -1, -1, -1 }, { 0, 0, 0 }, 0, NULL },
	};

	set_options(true, NULL, NULL);
	for (int i = 0; i < DLB_LEN(cases); i++) {
		double x[NODES * sizeof(struct dlb_node_step) / sizeof(double)];
		struct dlb_watch *w = watch(0);

		dlb_watch_start(w);
		step(w, 1, 1);
		for (int k = 0; k < NODES; k++)
			put_node(x, k, cases[i].message_s[k], cases[i].collective_s[k],
				 cases[i].waited_for[k], cases[i].waited_for_s[k]);
		dlb_watch_take(w, x);
		dlb_watch_event(w, "x");
		assert(cases[i].said ? HAS(text, cases[i].said) : !strstr(text, "waits"));
		dlb_watch_free(w, 7);
	}
}

/* The node whose messages are waited for longest, over several steps. */
static void longest_waits(void)
{
	double x[NODES * sizeof(struct dlb_node_step) / sizeof(double)] = { 0 };

	set_options(true, NULL, NULL);
	struct dlb_watch *w = watch(0);

	dlb_watch_start(w);
	step(w, 1, 1);
	put_node(x, 0, 0.5, 0, 2, 0.5);
	dlb_watch_take(w, x);
	step(w, 1, 1);
	put_node(x, 0, 0.5, 0, 2, 0.25); /* 0.5 exp(-1 / 5) + 0.25 is more than the next 0.6 */
	dlb_watch_take(w, x);
	step(w, 1, 1);
	put_node(x, 0, 0.6, 0, 1, 0.5);
	dlb_watch_take(w, x);
	dlb_watch_event(w, "x");
	assert(HAS(text, "node 0 waits") && HAS(text, " for node 2"));
	step(w, 1, 1);
	put_node(x, 0, 0.6, 0, 1, 0.55);
	dlb_watch_take(w, x);
	dlb_watch_event(w, "x");
	assert(HAS(text, " for node 1"));
	dlb_watch_free(w, 7);
}

/* A row of the log is that of the step before, with this node's own times. */
static void rows(void)
{
	double x[NODES * sizeof(struct dlb_node_step) / sizeof(double)];
	struct dlb_error err = { .what = "" };
	struct dlb_comm *comm;

	set_options(false, "log", NULL);
	struct dlb_watch *w = watch(0);
	run.dispatch = (void *)&run;
	sums = true;
	run.job.graph.loss = -1;
	dlb_watch_start(w);
	view.times.busy_s = 0.25;
	view.times.data_wait_s = 0.125;
	view.times.bytes_sent = 3;
	view.times.waits_s[DLB_WAIT_STARVED] = 0.5;
	wait_for_s[1] = 0.25;
	wait_for_s[2] = 0.25;
	step(w, 2, 4);
	dlb_watch_measured(w, 0.75, 0.5, 0.125);
	dlb_watch_decided(w, "stay");
	dlb_watch_put(w, x);
	for (int i = (int)(sizeof(struct dlb_node_step) / sizeof(double)); i < DLB_LEN(x); i++)
		assert(IS(x[i], ==, 0));
	put_node(x, 1, 0, 0, -1, 0);
	put_node(x, 2, 0, 0, -1, 0);
	dlb_watch_take(w, x);
	assert(IS(n_rows, ==, 1) && IS(row.step, ==, 41) && !row.has_loss && IS(row.step_s, ==, 2) &&
	       IS(row.wall_s, ==, 4));
	assert(IS(row.test_loss, ==, 0.75) && IS(row.accuracy, ==, 0.5) && IS(row.eval_s, ==, 0.125));
	assert(SAME(row.decision, "stay") && IS(row.epoch, ==, 0));
	assert(IS(nodes_of_row[0].busy_s, ==, 0.25) && IS(nodes_of_row[0].data_wait_s, ==, 0.125));
	assert(IS(nodes_of_row[0].sum_bytes, ==, (1 << DLB_N_SUM_CLASSES) - 1));
	assert(IS(nodes_of_row[0].bytes_sent, ==, 3 + 1000 + (1 << DLB_N_SUM_CLASSES) - 1));
	assert(IS(nodes_of_row[0].waits_s[DLB_WAIT_STARVED], ==, 0.5));
	assert(IS(nodes_of_row[0].waited_for, ==, 2) && IS(nodes_of_row[0].waited_for_s, ==, 0.25));
	assert(IS(nodes_of_row[1].busy_s, ==, 2) && IS(nodes_of_row[2].busy_s, ==, 3));
	dlb_watch_take(w, x); /* no further row without a step */
	assert(IS(n_rows, ==, 1));
	run.at.epoch = 3; /* the last step of epoch 2 */
	run.at.position = -16;
	step(w, 2, 4);
	assert(IS(dlb_comm_new_alone(&comm, &err), ==, 0) && IS(dlb_watch_fetch(w, comm, &err), ==, 0));
	assert(IS(n_rows, ==, 2) && IS(row.step, ==, 42) && IS(row.epoch, ==, 2) && !row.decision &&
	       isnan(row.test_loss));
	assert(isnan(row.accuracy) && isnan(row.eval_s) && IS(nodes_of_row[1].busy_s, ==, 0));
	assert(IS(dlb_watch_fetch(w, comm, &err), ==, 0) && IS(n_rows, ==, 2));
	assert(IS(dlb_watch_wrong(w, &err), ==, 0) && IS(dlb_watch_drain(w, &err), ==, 0));
	write_fails = true;
	assert(IS(dlb_watch_wrong(w, &err), ==, -1) && IS(dlb_watch_drain(w, &err), ==, -1));
	dlb_comm_free(comm);
	dlb_watch_free(w, 7);
	assert(IS(n_closed, ==, 1));
	run.dispatch = NULL;
	predicted_s = -1; /* which nobody wants */
	w = watch(2);
	assert(IS(dlb_watch_replanned(w, &err), ==, 0));
	view.times.busy_s = 0.5;
	step(w, 2, 4);
	dlb_watch_put(w, x);
	for (int i = 0; i < DLB_LEN(x); i++)
		assert(IS(x[i], ==, i == 2 * DLB_LEN(x) / 3 ? 0.5 : 0));
	dlb_watch_free(w, 7);
}

static void metrics(void)
{
	double x[NODES * sizeof(struct dlb_node_step) / sizeof(double)] = { 0 };
	struct dlb_doc doc = { .root = json_pack("{s:{s:[f, f, f]}}", "balance", "weights", 0.5, 0.25,
						 0.25) };

	set_options(false, NULL, "metrics");
	predicted_s = 0.75;
	struct dlb_watch *w = watch(0);
	run.doc = &doc;
	memset(nodes_of_row, 0, sizeof nodes_of_row);
	dlb_watch_start(w);
	assert(IS(n_puts, ==, 1) && now.running && IS(now.step, ==, 40) && IS(now.rounds, ==, 5) &&
	       isnan(now.step_s));
	assert(isnan(now.rate) && isnan(now.samples_per_s) && IS(now.predicted_s, ==, 0.75) &&
	       IS(weight_of_now[0], ==, 0.5));
	assert(IS(weight_of_now[1], ==, 0.25) && IS(now.samples, ==, 0));
	step(w, 2, 3);
	dlb_watch_take(w, x);
	assert(IS(n_added, ==, 1) && IS(n_puts, ==, 1));
	due = true;
	step(w, 2, 3);
	dlb_watch_take(w, x);
	assert(IS(n_added, ==, 2) && IS(n_puts, ==, 2) && IS(now.samples, ==, 32) &&
	       fabs(now.step_s - 2) < 1e-12);
	assert(fabs(now.samples_per_s - 8) < 1e-12 && IS(now.loss, ==, 0.5) && IS(now.step, ==, 42));
	predicted_s = 0.5;
	assert(IS(dlb_watch_replanned(w, NULL), ==, 0));
	write_fails = true;
	dlb_watch_free(w, 7);
	assert(IS(n_puts, ==, 3) && !now.running && IS(now.predicted_s, ==, 0.5) && IS(n_closed, ==, 1));
	assert(SAME(warned, "--metrics: no space; training goes on"));
	json_decref(doc.root);
	set_options(true, NULL, NULL); /* a prediction that fails */
	predicted_s = -1;
	struct dlb_error err = { .what = "" };

	assert(IS(dlb_watch_new(&w, &run, &err), ==, -1) && SAME(err.what, "no prediction"));
	dlb_watch_free(w, 7);
	dlb_watch_free(NULL, 7);
}

int main(void)
{
	lengths();
	rates();
	waits();
	longest_waits();
	rows();
	metrics();
	return 0;
}
