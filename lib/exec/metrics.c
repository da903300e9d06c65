/* Prometheus' text format. See metrics.h. Format: prometheus.io, "Exposition formats", version 0.0.4. */
#include "exec/metrics.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/timeline.h"
#include "util/clock.h"
#include "util/escape.h"
#include "util/latest.h"
#include "util/mem.h"

#define EVERY_S 1.0

static const char *const waits[DLB_N_WAITS] = {
	[DLB_WAIT_STARVED] = "starved",
	[DLB_WAIT_BACKPRESSURE] = "backpressure",
	[DLB_WAIT_COLLECTIVE] = "collective",
	[DLB_WAIT_STRUCTURAL] = "structural",
};

struct dlb_metrics {
	const struct dlb_cluster *cluster;
	struct dlb_latest *file;
	struct dlb_node_step *sum;	/* [n_nodes] over the steps of this start */
	double put_s;			/* when the last content was put */
	bool said;			/* a failure was reported */
};

int dlb_metrics_new(struct dlb_metrics **out, const char *path, const struct dlb_cluster *cluster,
		    struct dlb_error *err)
{
	struct dlb_metrics *m = *out = dlb_xcalloc(1, sizeof *m);

	m->cluster = cluster;
	m->sum = dlb_xcalloc((size_t)cluster->n_nodes + 1, sizeof *m->sum);
	m->put_s = -HUGE_VAL;
	return dlb_latest_new(&m->file, path, err);
}

void dlb_metrics_add(struct dlb_metrics *m, const struct dlb_node_step *node)
{
	for (int i = 0; i < m->cluster->n_nodes; i++) {
		struct dlb_node_step *s = &m->sum[i];

		s->busy_s += node[i].busy_s;
		s->data_wait_s += node[i].data_wait_s;
		s->bytes_sent += node[i].bytes_sent;
		for (int k = 0; k < DLB_N_WAITS; k++)
			s->waits_s[k] += node[i].waits_s[k];
	}
}

bool dlb_metrics_is_due(const struct dlb_metrics *m)
{
	return dlb_clock_s() - m->put_s >= EVERY_S;
}

/* ---- text ---- */

static void put_value(FILE *f, double x)
{
	if (isnan(x))
		fputs(" NaN\n", f);
	else if (isinf(x))
		fputs(x > 0 ? " +Inf\n" : " -Inf\n", f);
	else
		fprintf(f, " %.17g\n", x);
}

static void head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(FILE *f, const char *name, const char *type, const char *help, double x)
{
	head(f, name, type, help);
	fputs(name, f);
	put_value(f, x);
}

static void known(FILE *f, const char *name, const char *help, double x)
{
	if (!isnan(x))
		one(f, name, "gauge", help, x);
}

/* Writes a label. In its value, control characters are made visible, backslashes and quotes escaped. */
static void put_label(FILE *f, const char *name, const char *value)
{
	char shown[512];

	dlb_escape(value, shown, sizeof shown);
	fprintf(f, "%s=\"", name);
	for (const char *p = shown; *p; p++)
		fprintf(f, *p == '\\' || *p == '"' ? "\\%c" : "%c", *p);
	putc('"', f);
}

static void put_run(FILE *f, const struct dlb_metrics_now *now)
{
	one(f, "dlb_running", "gauge", "1 while the run trains, 0 after its end.", now->running);
	one(f, "dlb_steps_total", "counter", "Steps done, counted from the first start.", (double)now->step);
	one(f, "dlb_epoch", "gauge", "Epoch, from 0.", (double)now->epoch);
	one(f, "dlb_samples_total", "counter", "Samples trained since this start.", (double)now->samples);
	one(f, "dlb_rounds_total", "counter", "Rounds of balancing since this start.", (double)now->rounds);
	if (now->step && !isnan(now->rate)) {
		one(f, "dlb_loss", "gauge", "Loss of the last step.", now->loss);
		one(f, "dlb_learning_rate", "gauge", "Learning rate of the last step.", now->rate);
	}
	known(f, "dlb_samples_per_second", "Samples per second, mean over the last seconds.",
	      now->samples_per_s);
	known(f, "dlb_step_seconds", "Seconds of a step, mean over the last seconds.", now->step_s);
	known(f, "dlb_step_predicted_seconds", "Seconds of a step as predicted.", now->predicted_s);
}

static void put_nodes(FILE *f, const struct dlb_metrics *m, const struct dlb_metrics_now *now)
{
	const int n = m->cluster->n_nodes;
	static const struct {
		const char *name, *help;
		size_t member;
	} sums[] = {
		{ "dlb_node_busy_seconds_total", "Seconds in which the node computed.",
		  offsetof(struct dlb_node_step, busy_s) },
		{ "dlb_node_data_wait_seconds_total", "Seconds in which the node waited for samples.",
		  offsetof(struct dlb_node_step, data_wait_s) },
		{ "dlb_node_sent_bytes_total", "Bytes that the node sent.",
		  offsetof(struct dlb_node_step, bytes_sent) },
	};

	head(f, "dlb_node_info", "gauge", "Host and kind of device of the node.");
	for (int i = 0; i < n; i++) {
		const struct dlb_node *node = &m->cluster->node[i];

		fprintf(f, "dlb_node_info{node=\"%d\",", i);
		put_label(f, "host", node->host ? node->host : "");
		putc(',', f);
		put_label(f, "kind", m->cluster->kind[node->kind].name);
		fputs("} 1\n", f);
	}
	for (int k = 0; k < DLB_LEN(sums); k++) {
		head(f, sums[k].name, "counter", sums[k].help);
		for (int i = 0; i < n; i++) {
			fprintf(f, "%s{node=\"%d\"}", sums[k].name, i);
			put_value(f, *(const double *)(const void *)((const char *)&m->sum[i] +
								     sums[k].member));
		}
	}
	head(f, "dlb_node_wait_seconds_total", "counter",
	     "Seconds in which the node waited for other nodes, by kind of wait.");
	for (int i = 0; i < n; i++)
		for (int k = 0; k < DLB_N_WAITS; k++) {
			fprintf(f, "dlb_node_wait_seconds_total{node=\"%d\",wait=\"%s\"}", i, waits[k]);
			put_value(f, m->sum[i].waits_s[k]);
		}
	if (!now->weight)
		return;
	head(f, "dlb_node_weight", "gauge", "Node weight of balancing: more load for a greater one.");
	for (int i = 0; i < n; i++) {
		fprintf(f, "dlb_node_weight{node=\"%d\"}", i);
		put_value(f, now->weight[i]);
	}
}

void dlb_metrics_put(struct dlb_metrics *m, const struct dlb_metrics_now *now)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	put_run(f, now);
	put_nodes(f, m, now);
	fclose(f);
	dlb_latest_put(m->file, text, n);
	free(text);
	m->put_s = dlb_clock_s();
}

bool dlb_metrics_failed(struct dlb_metrics *m, struct dlb_error *err)
{
	if (m->said || !dlb_latest_failed(m->file, err))
		return false;
	return m->said = true;
}

bool dlb_metrics_free(struct dlb_metrics *m, double wait_s, struct dlb_error *err)
{
	bool failed;

	if (!m)
		return false;
	failed = dlb_latest_free(m->file, wait_s, err) && !m->said;
	free(m->sum);
	free(m);
	return failed;
}
