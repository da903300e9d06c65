/* Time-lines as a picture. One row a node and source: what was predicted above what was measured, on one
 * scale, so that an error of the prediction is a shift that the eye sees. Forward, backward and update
 * have their colours; a gap is waiting. Below: busy and waiting time per node, and the loss curve. */
#include "view/view.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dlb_view_svg(const struct dlb_view *v, FILE *f, struct dlb_error *err);

enum { WIDTH = 1200, LEFT = 150, RIGHT = 30, LANE = 22, GAP = 8, PLOT = WIDTH - LEFT - RIGHT };

/* Okabe and Ito: blue, bluish green, orange; waiting in pale grey. */
static const char *const colour[] = { "#0072b2", "#009e73", "#e69f00" };
static const char *const phase_name[] = { "forward", "backward", "update" };
static const char *const wait_name[] = { "starved", "backpressure", "collective", "structural" };
static const char *const wait_colour[] = { "#d55e00", "#cc79a7", "#f0e442", "#bbbbbb" };
static const char copying_colour[] = "#56b4e9", copying_name[] = "copying, other";

void dlb_view_escaped(FILE *f, const char *s)
{
	for (; *s; s++)
		switch (*s) {
		case '<': fputs("&lt;", f); break;
		case '>': fputs("&gt;", f); break;
		case '&': fputs("&amp;", f); break;
		default: fputc((unsigned char)*s < ' ' ? ' ' : *s, f);
		}
}

static void text(FILE *f, double x, double y, const char *anchor, const char *s)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	dlb_view_escaped(f, s);
	fprintf(f, "</text>\n");
}

static int phase_of(const struct dlb_view *v, int op)
{
	return v->has_graph && op >= 0 && op < v->graph.n_ops ? (int)v->graph.op[op].phase : DLB_FORWARD;
}

/* Neighbouring spans of one phase and micro-batch closer than a third of a pixel are drawn as one. */
static void lane(const struct dlb_view *v, FILE *f, const struct dlb_span *s, int n, double y, double px_per_s)
{
	fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"#eeeeee\"/>\n", LEFT, y, PLOT, LANE);
	for (int i = 0; i < n;) {
		double x0 = s[i].start_s * px_per_s, x1 = s[i].end_s * px_per_s;
		int phase = phase_of(v, s[i].op), j = i + 1;

		while (j < n && phase_of(v, s[j].op) == phase && s[j].micro_batch == s[i].micro_batch &&
		       s[j].start_s * px_per_s - x1 < 0.33)
			x1 = s[j++].end_s * px_per_s;
		fprintf(f, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" fill-opacity=\"%s\"><title>",
			LEFT + x0, y, x1 - x0 < 0.2 ? 0.2 : x1 - x0, LANE, colour[phase],
			s[i].micro_batch > 0 && s[i].micro_batch % 2 ? "0.7" : "1");
		fprintf(f, "%s", phase_name[phase]);
		if (s[i].micro_batch >= 0)
			fprintf(f, ", micro-batch %d", s[i].micro_batch);
		if (v->has_graph && s[i].op >= 0 && s[i].op < v->graph.n_ops) {
			fputs(", ", f);
			dlb_view_escaped(f, v->graph.op[s[i].op].name);
			if (j > i + 1)
				fprintf(f, " and %d more", j - i - 1);
		}
		fprintf(f, ", %.4g to %.4g ms</title></rect>\n", 1e3 * s[i].start_s, 1e3 * s[j - 1].end_s);
		if (x1 - x0 > 14 && s[i].micro_batch >= 0)
			fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"white\" font-size=\"10\">%d</text>\n",
				LEFT + (x0 + x1) / 2, y + LANE - 7, s[i].micro_batch);
		i = j;
	}
}

static double last_end(struct dlb_span *const *span, const int *n_spans, int n_nodes)
{
	double end = 0;

	for (int i = 0; span && i < n_nodes; i++)
		for (int k = 0; k < n_spans[i]; k++)
			end = fmax(end, span[i][k].end_s);
	return end;
}

static void axis(FILE *f, double y, double end_s, double px_per_s)
{
	double unit = pow(10, floor(log10(end_s))), step = end_s / unit > 5 ? unit : end_s / unit > 2 ? unit / 2 : unit / 5;
	char label[32];

	for (double t = 0; t <= end_s * 1.0001; t += step) {
		fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#888888\"/>\n", LEFT + t * px_per_s,
			LEFT + t * px_per_s, y, y + 4);
		text(f, LEFT + t * px_per_s, y + 16, "middle", t > 0 ? dlb_view_seconds(t, label, sizeof label) : "0");
	}
}

static double timelines(const struct dlb_view *v, FILE *f, double y)
{
	bool plan = v->has_plan && v->plan.timeline, report = v->has_report && v->report.timeline;
	int n_nodes = plan ? v->plan.n_nodes : report ? v->report.n_nodes : 0;
	double end = fmax(plan ? last_end(v->plan.timeline, v->plan.n_spans, n_nodes) : 0,
			  report ? last_end(v->report.timeline, v->report.n_spans, v->report.n_nodes) : 0);
	double px_per_s;

	if (!n_nodes || !(end > 0))
		return y;
	px_per_s = PLOT / end;
	for (int i = 0; i < n_nodes; i++) {
		char name[64];

		snprintf(name, sizeof name, "node %d", i);
		text(f, 12, y + LANE - 6, "start", name);
		if (plan) {
			text(f, LEFT - 8, y + LANE - 6, "end", "predicted");
			lane(v, f, v->plan.timeline[i], v->plan.n_spans[i], y, px_per_s);
			y += LANE + 2;
		}
		if (report && i < v->report.n_nodes) {
			text(f, LEFT - 8, y + LANE - 6, "end", v->report.dry_run ? "simulated" : "measured");
			lane(v, f, v->report.timeline[i], v->report.n_spans[i], y, px_per_s);
			y += LANE + 2;
		}
		y += GAP;
	}
	axis(f, y, end, px_per_s);
	return y + 40;
}

static double bar(FILE *f, double x, double y, double width, const char *fill, const char *title)
{
	if (width > 0)
		fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>%s</title></rect>\n",
			x, y, width, LANE, fill, title);
	return x + fmax(0, width);
}

/* Where each node's step went: busy, then its waits by kind, then what is left of the step: copying to other nodes of the
 * host, and what no clock was put to. */
static double bars(const struct dlb_view *v, FILE *f, double y)
{
	const struct dlb_report *r = &v->report;
	double most = 0;
	char s[32], line[96];

	if (!v->has_report)
		return y;
	for (int i = 0; i < r->n_nodes; i++)
		most = fmax(fmax(most, r->step_s), r->node[i].busy_s + r->node[i].wait_s);
	if (!(most > 0))
		return y;
	text(f, 12, y + 12, "start", "busy and waiting, seconds per step");
	y += 22;
	for (int i = 0; i < r->n_nodes; i++) {
		const double px_per_s = PLOT * 0.8 / most;
		double x = LEFT;

		snprintf(line, sizeof line, "node %d", i);
		text(f, 12, y + LANE - 6, "start", line);
		x = bar(f, x, y, px_per_s * r->node[i].busy_s, colour[0], "busy");
		for (int k = 0; k < DLB_N_WAITS; k++)
			x = bar(f, x, y, px_per_s * r->node[i].waits_s[k], wait_colour[k], wait_name[k]);
		x = bar(f, x, y, px_per_s * (r->step_s - r->node[i].busy_s - r->node[i].wait_s), copying_colour, copying_name);
		snprintf(line, sizeof line, "busy %s", dlb_view_seconds(r->node[i].busy_s, s, sizeof s));
		text(f, x + 6, y + LANE - 6, "start", line);
		y += LANE + GAP;
	}
	return y + 16;
}

static double losses(const struct dlb_view *v, FILE *f, double y)
{
	const struct dlb_report *r = &v->report;
	double lo = INFINITY, hi = -INFINITY, height = 140;
	int stride, n = v->has_report ? r->n_losses : 0;
	char label[48];

	for (int i = 0; i < n; i++)
		if (isfinite(r->loss[i])) {
			lo = fmin(lo, r->loss[i]);
			hi = fmax(hi, r->loss[i]);
		}
	if (n < 2 || !(hi > lo))
		return y;
	text(f, 12, y + 12, "start", "loss");
	stride = n > 2 * PLOT ? n / (2 * PLOT) : 1;
	fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.0f\" fill=\"none\" stroke=\"#cccccc\"/>\n<polyline fill=\"none\" "
		"stroke=\"#0072b2\" stroke-width=\"1.5\" points=\"", LEFT, y, PLOT, height);
	for (int i = 0; i < n; i += stride)
		if (isfinite(r->loss[i]))
			fprintf(f, "%.1f,%.1f ", LEFT + (double)PLOT * i / (n - 1),
				y + height * (1 - (r->loss[i] - lo) / (hi - lo)));
	fprintf(f, "\"/>\n");
	snprintf(label, sizeof label, "%.4g", hi);
	text(f, LEFT - 8, y + 10, "end", label);
	snprintf(label, sizeof label, "%.4g", lo);
	text(f, LEFT - 8, y + height, "end", label);
	snprintf(label, sizeof label, "step %lld", (long long)r->first_step);
	text(f, LEFT, y + height + 16, "start", label);
	snprintf(label, sizeof label, "step %lld", (long long)(r->first_step + n - 1));
	text(f, WIDTH - RIGHT, y + height + 16, "end", label);
	return y + height + 36;
}

static double heading(const struct dlb_view *v, FILE *f)
{
	char line[256], a[32], b[32];
	double x = LEFT, y = 28;

	if (v->has_plan) {
		snprintf(line, sizeof line, "%s, schedule %s, %d micro-batches; step predicted %s",
			 v->plan.winner ? v->plan.winner : v->plan.algorithm, v->plan.schedule, v->plan.micro_batches,
			 dlb_view_seconds(v->plan.value_s, a, sizeof a));
		if (v->has_report)
			snprintf(line + strlen(line), sizeof line - strlen(line), ", %s %s",
				 v->report.dry_run ? "simulated" : "measured",
				 dlb_view_seconds(v->report.step_s, b, sizeof b));
		fprintf(f, "<g font-size=\"15\">");
		text(f, 12, y, "start", line);
		fprintf(f, "</g>\n");
		y += 18;
	}
	for (int i = 0; i < DLB_N_PHASES; i++, x += 110) {
		fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, y, colour[i]);
		text(f, x + 18, y + 11, "start", phase_name[i]);
	}
	fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"#eeeeee\" stroke=\"#bbbbbb\"/>\n", x, y);
	text(f, x + 18, y + 11, "start", "waiting");
	x += 130;
	for (int k = 0; v->has_report && k < DLB_N_WAITS; k++, x += 120) {
		fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, y, wait_colour[k]);
		text(f, x + 18, y + 11, "start", wait_name[k]);
	}
	if (v->has_report) {
		fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, y, copying_colour);
		text(f, x + 18, y + 11, "start", copying_name);
	}
	return y + 30;
}

int dlb_view_svg(const struct dlb_view *v, FILE *f, struct dlb_error *err)
{
	char *body = NULL;
	size_t n = 0;
	double y;
	FILE *m;

	if (!v->has_plan && !v->has_report) {
		dlb_fail(err, NULL, "no plan and no report in the document");
		return dlb_hint(err, "dlb-place and dlb-run make what a time-line shows; -f dot draws the graph");
	}
	m = open_memstream(&body, &n);
	if (!m)
		return dlb_fail(err, NULL, "out of memory");
	y = losses(v, m, bars(v, m, timelines(v, m, heading(v, m))));
	fclose(m);
	fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
		WIDTH, y, WIDTH, y);
	fwrite(body, 1, n, f);
	fprintf(f, "</svg>\n");
	free(body);
	return 0;
}
