/* The progress line, the log of steps and the metrics. See watch.h. */
#include "exec/watch.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "exec/dispatch.h"
#include "exec/metrics.h"
#include "exec/run.h"
#include "exec/status.h"
#include "plan/timeline.h"
#include "util/clock.h"
#include "util/mem.h"

enum { NUMBERS = sizeof(struct dlb_node_step) / sizeof(double) };
#define MEMORY_S 5.0	/* seconds over which the line's means are taken, with decreasing weight */
#define TELL_EVERY_S 0.2
#define WORTH_SAYING 0.02		/* share of a step: shorter waits are not shown */

/* Decaying sums: after t seconds, a step's part has shrunk by the factor exp(-t / MEMORY_S). */
struct decayed_means {
	double steps, samples, step_s;
	/* longest: node whose messages are waited for; -1: none */
	struct node_mean { double message_s, collective_s, longest_s; int longest; } *node;
};

struct dlb_watch {
	const struct run *r;
	int n_nodes, length;
	struct dlb_node_step mine;		/* of the last step on this node */
	bool has_mine;				/* `mine` is not sent yet; equal on all ranks */
	char decision[DLB_ROUND_TEXT];
	struct dlb_step_row row;		/* of the last step; its nodes' times are not known yet */
	bool has_row;
	struct dlb_node_step *node;		/* [n_nodes], rank 0 */
	double *fetched;
	struct dlb_step_log *log;
	struct dlb_metrics *metrics;
	double *weight;			/* [n_nodes] node weights, for the metrics */
	int64_t samples;
	struct decayed_means mean;
	double predicted_s, start_s, first_s, told_s;	/* first_s: end of the first step */
	int64_t total;
};

int dlb_watch_length(const struct dlb_exec_options *o, int n_nodes)
{
	return o->step_log || o->metrics || (o->verbose && !o->quiet) ? n_nodes * NUMBERS : 0;
}

/* Predicts the seconds of a step for the line and the metrics; the report simulates the program again. */
static int predict(struct dlb_watch *w, struct dlb_error *err)
{
	const struct run *r = w->r;

	return dlb_program_step_s(&r->program[0], &r->job.cost, r->job.kappa, &w->predicted_s, err);
}

int dlb_watch_new(struct dlb_watch **out, const struct run *r, struct dlb_error *err)
{
	struct dlb_watch *w = *out = dlb_xcalloc(1, sizeof *w);
	const size_t n = (size_t)r->job.plan.n_nodes;

	w->r = r;
	w->n_nodes = (int)n;
	w->length = dlb_watch_length(r->o, w->n_nodes);
	w->predicted_s = NAN;
	w->node = dlb_xcalloc(n + 1, sizeof *w->node);
	w->weight = dlb_xcalloc(n + 1, sizeof *w->weight);
	w->fetched = dlb_xcalloc((size_t)w->length + 1, sizeof *w->fetched);
	w->mean.node = dlb_xcalloc(n + 1, sizeof *w->mean.node);
	for (size_t i = 0; i < n; i++)
		w->mean.node[i].longest = -1;
	if (r->rank)
		return 0;
	if ((r->o->metrics || (r->o->progress && r->o->verbose && !r->o->quiet)) && predict(w, err))
		return -1;
	if (r->o->metrics && dlb_metrics_new(&w->metrics, r->o->metrics, &r->job.cluster, err))
		return -1;
	return !r->o->step_log ? 0 : dlb_step_log_open(&w->log, r->o->step_log, r->at.step, w->n_nodes, err);
}

int dlb_watch_replanned(struct dlb_watch *w, struct dlb_error *err)
{
	return isnan(w->predicted_s) ? 0 : predict(w, err);
}

void dlb_watch_decided(struct dlb_watch *w, const char *text)
{
	snprintf(w->decision, sizeof w->decision, "%s", text);
	w->row.decision = w->decision;
	dlb_watch_event(w, "%s", text);
}

/* ---- metrics ---- */

/* The node weights of the document; NULL: it has none. */
static const double *weights(const struct dlb_watch *w)
{
	const json_t *list = json_object_get(dlb_doc_section(w->r->doc, "balance"), "weights");

	if (json_array_size(list) != (size_t)w->n_nodes)
		return NULL;
	for (int i = 0; i < w->n_nodes; i++)
		w->weight[i] = json_number_value(json_array_get(list, (size_t)i));
	return w->weight;
}

static void warn_metrics(const struct dlb_watch *w, const struct dlb_error *err)
{
	char line[DLB_STATUS_BYTES];

	snprintf(line, sizeof line, "--metrics: %.500s; training goes on", err->what);
	if (w->r->o->warn)
		w->r->o->warn(w->r->o->warn_ctx, line);
}

static void put_metrics(struct dlb_watch *w, bool running)
{
	const struct run *r = w->r;
	const bool any = w->mean.steps > 0.0;
	struct dlb_error err;

	dlb_metrics_put(w->metrics,
			&(struct dlb_metrics_now){ .running = running,
						   .step = r->at.step,
						   .epoch = r->at.epoch,
						   .samples = w->samples,
						   .rounds = r->round,
						   .loss = w->row.has_loss ? w->row.loss : NAN,
						   .rate = any ? w->row.rate : NAN,
						   .samples_per_s = any ? w->mean.samples / w->mean.step_s : NAN,
						   .step_s = any ? w->mean.step_s / w->mean.steps : NAN,
						   .predicted_s = w->predicted_s,
						   .weight = weights(w) });
	if (dlb_metrics_failed(w->metrics, &err))
		warn_metrics(w, &err);
}

static void close_metrics(struct dlb_watch *w, double wait_s)
{
	struct dlb_error err;

	if (w->metrics && w->start_s > 0.0)
		put_metrics(w, false);
	if (dlb_metrics_free(w->metrics, wait_s, &err))
		warn_metrics(w, &err);
}

void dlb_watch_free(struct dlb_watch *w, double wait_s)
{
	if (!w)
		return;
	dlb_step_log_close(w->log, wait_s);
	close_metrics(w, wait_s);
	free(w->node);
	free(w->weight);
	free(w->fetched);
	free(w->mean.node);
	free(w);
}

void dlb_watch_start(struct dlb_watch *w)
{
	w->start_s = dlb_clock_s();
	w->total = dlb_run_total_steps(w->r);
	if (w->metrics)
		put_metrics(w, true);
}

/* ---- times that nodes send to rank 0 ---- */

void dlb_watch_times(struct dlb_watch *w, struct dlb_engine *e)
{
	const struct dlb_engine_program *v = dlb_engine_view(e);
	const struct dlb_sync *x = dlb_engine_sync(e);
	struct dlb_node_step *m = &w->mine;

	w->row.step_s = v->times.step_s;
	if (!w->length)
		return;
	*m = (struct dlb_node_step){ .busy_s = v->times.busy_s,
				     .data_wait_s = v->times.data_wait_s,
				     .bytes_sent = v->times.bytes_sent };
	memcpy(m->waits_s, v->times.waits_s, sizeof m->waits_s);
	for (int k = 0; x && k < DLB_N_SUM_CLASSES; k++)
		m->sum_bytes += dlb_sync_times(x)->bytes[k];
	m->bytes_sent += m->sum_bytes + (w->r->dispatch ? dlb_dispatch_bytes(w->r->dispatch) : 0.0);
	for (int i = 0; i < w->n_nodes; i++) {
		if (v->wait_for_s[i] <= m->waited_for_s)
			continue;
		m->waited_for = 1.0 + i;
		m->waited_for_s = v->wait_for_s[i];
	}
	w->has_mine = true;
}

void dlb_watch_put(struct dlb_watch *w, double *x)
{
	if (!w->length)
		return;
	memset(x, 0, (size_t)w->length * sizeof *x);
	if (w->has_mine)
		memcpy(x + w->r->rank * NUMBERS, &w->mine, sizeof w->mine);
	w->has_mine = false;
}

static void mean_of_node(struct node_mean *m, const struct dlb_node_step *n, double keep)
{
	const int who = (int)n->waited_for - 1;

	m->message_s = m->message_s * keep + n->waits_s[DLB_WAIT_STARVED] + n->waits_s[DLB_WAIT_BACKPRESSURE];
	m->collective_s = m->collective_s * keep + n->waits_s[DLB_WAIT_COLLECTIVE];
	m->longest_s *= keep;
	if (who == m->longest)
		m->longest_s += n->waited_for_s;
	else if (n->waited_for_s > m->longest_s) {
		m->longest = who;
		m->longest_s = n->waited_for_s;
	}
}

void dlb_watch_take(struct dlb_watch *w, const double *x)
{
	if (!w->length || !w->has_row || w->r->rank)
		return;
	memcpy(w->node, x, (size_t)w->n_nodes * sizeof *w->node);
	for (int i = 0; i < w->n_nodes; i++)
		mean_of_node(&w->mean.node[i], &w->node[i], exp(-w->row.step_s / MEMORY_S));
	w->has_row = false;
	w->row.node = w->node;
	w->row.n_nodes = w->n_nodes;
	if (w->log)
		dlb_step_log_write(w->log, &w->row);
	if (w->metrics) {
		dlb_metrics_add(w->metrics, w->node);
		if (dlb_metrics_is_due(w->metrics))
			put_metrics(w, true);
	}
}

int dlb_watch_fetch(struct dlb_watch *w, struct dlb_comm *comm, struct dlb_error *err)
{
	if (!w->has_mine)
		return 0;
	dlb_watch_put(w, w->fetched);
	if (dlb_comm_allreduce_f64(comm, w->fetched, w->length, DLB_COMM_SUM, err))
		return -1;
	dlb_watch_take(w, w->fetched);
	return 0;
}

int dlb_watch_wrong(const struct dlb_watch *w, struct dlb_error *err)
{
	return w->log ? dlb_step_log_wrong(w->log, err) : 0;
}

int dlb_watch_drain(struct dlb_watch *w, struct dlb_error *err)
{
	return w->log ? dlb_step_log_drain(w->log, err) : 0;
}

/* ---- the progress line, on rank 0 ---- */

/* Finds the node that waits most and the node that it waits for: the one whose messages it waited longest for
 * or, in sums over all nodes, the one that came last, which itself waited least. */
static void find_waiting(const struct dlb_watch *w, struct dlb_status *s)
{
	const struct node_mean *m = w->mean.node;
	int most = 0, last = 0;

	for (int i = 1; i < w->n_nodes; i++) {
		if (m[i].message_s + m[i].collective_s > m[most].message_s + m[most].collective_s)
			most = i;
		if (m[i].collective_s < m[last].collective_s)
			last = i;
	}
	s->waits = s->waited_for = -1;
	if (w->n_nodes < 2 || !(w->mean.steps > 0.0) ||
	    m[most].message_s + m[most].collective_s < WORTH_SAYING * w->mean.step_s)
		return;
	s->waited_for = m[most].longest_s >= m[most].collective_s ? m[most].longest : last;
	if (s->waited_for < 0 || s->waited_for == most)
		return;
	s->waits = most;
	s->wait_s = (m[most].message_s + m[most].collective_s) / w->mean.steps;
}

static double left_s(const struct dlb_watch *w, int64_t done, double now_s)
{
	const double each = done > 1 ? (now_s - w->first_s) / (double)(done - 1) : now_s - w->start_s;

	return w->total > done ? each * (double)(w->total - done) : w->total ? 0.0 : NAN;
}

static void tell(struct dlb_watch *w, const char *event)
{
	const struct run *r = w->r;
	const int64_t done = r->at.step - r->first_step;
	const double now_s = dlb_clock_s();
	struct dlb_status s = { .step = r->at.step,
				.last_step = w->total ? r->first_step + w->total : 0,
				.waits = -1,
				.event = event,
				.loss = w->row.has_loss ? w->row.loss : NAN,
				.samples_per_s = w->mean.samples / w->mean.step_s,
				.step_s = w->mean.step_s / w->mean.steps,
				.predicted_s = w->predicted_s,
				.left_s = left_s(w, done, now_s) };
	char text[DLB_STATUS_BYTES];

	if (w->length)
		find_waiting(w, &s);
	dlb_status_text(&s, !r->o->verbose, text);
	r->o->progress(r->o->progress_ctx, &(struct dlb_status_told){ done, w->total, event != NULL, text });
	w->told_s = now_s;
}

void dlb_watch_step(struct dlb_watch *w, int64_t samples, double loss)
{
	const struct run *r = w->r;
	const double now_s = dlb_clock_s(), keep = exp(-w->row.step_s / MEMORY_S);

	w->has_row = w->length > 0;
	w->row.step = r->at.step;
	/* the epoch of this step's samples */
	w->row.epoch = r->at.position ? r->at.epoch : r->at.epoch - 1;
	w->row.has_loss = r->job.graph.loss >= 0;
	w->row.loss = loss;
	w->row.rate = dlb_optimizer_rate(&r->job.optimizer, r->at.step - 1);
	w->row.wall_s = now_s - w->start_s;
	w->row.test_loss = w->row.accuracy = w->row.eval_s = NAN;
	w->row.decision = NULL;
	if (r->rank || !r->o->progress)
		return;
	if (r->at.step - r->first_step == 1) {
		w->first_s = now_s;
		if (r->o->trains)
			r->o->trains(r->o->progress_ctx, r->at.step, r->from_copies, &r->begin);
	}
	w->mean.steps = w->mean.steps * keep + 1.0;
	w->mean.samples = w->mean.samples * keep + (double)samples;
	w->samples += samples;
	w->mean.step_s = w->mean.step_s * keep + w->row.step_s;
	if (now_s - w->told_s >= TELL_EVERY_S)
		tell(w, NULL);
}

void dlb_watch_measured(struct dlb_watch *w, double test_loss, double accuracy, double eval_s)
{
	w->row.test_loss = test_loss;
	w->row.accuracy = accuracy;
	w->row.eval_s = eval_s;
}

void dlb_watch_event(struct dlb_watch *w, const char *fmt, ...)
{
	char event[DLB_STATUS_BYTES];
	va_list ap;

	if (w->r->rank || !w->r->o->progress || !w->r->o->verbose)
		return;
	va_start(ap, fmt);
	vsnprintf(event, sizeof event, fmt, ap);
	va_end(ap);
	tell(w, event);
}
