/* Draws time-lines as SVG: one row per node and source, the prediction above the measurement on one scale, so
 * a prediction error is a visible shift. If one is much longer, each gets its own scale, and all predictions
 * are above all measurements. Forward, backward and update have their own colours; a gap is a thin bar in the
 * colour of its wait; with view->transfers messages are arrows. Below the time-lines are busy and waiting
 * time per node, and the loss curve. Nodes without work share one line. */
#include "plan/timeline.h"
#include "view/picture.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dlb_view_svg(const struct dlb_view *v, FILE *f, struct dlb_error *err);

enum {
	WIDTH = 1200,
	LEFT = 150,
	RIGHT = 30,
	LANE = 22,
	GAP = 8,
	PLOT = WIDTH - LEFT - RIGHT,
	MOST_ARROWS = 5000
};

/* Okabe and Ito: blue, bluish green, orange. Busy time, the sum of all three, is slate. */
static const char *const colour[] = { "#0072b2", "#009e73", "#e69f00" };
static const char *const phase_name[] = { "forward", "backward", "update" };
static const char *const wait_name[] = { "starved", "backpressure", "collective", "structural" };
static const char *const wait_colour[] = { "#d55e00", "#cc79a7", "#f0e442", "#bbbbbb" };
static const char again_colour[] = "#7a5195"; /* of an op's second run */
static const char busy_colour[] = "#55617a";
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

/* Neighbouring spans of one phase and micro-batch closer than a third of a pixel are merged. */
static void spans(const struct dlb_view *v, FILE *f, const struct dlb_span *s, int n, double y,
		  double px_per_s)
{
	for (int i = 0; i < n;) {
		double x0 = s[i].start_s * px_per_s, x1 = s[i].end_s * px_per_s;
		int phase = phase_of(v, s[i].op), j = i + 1;

		while (j < n && phase_of(v, s[j].op) == phase && s[j].again == s[i].again &&
		       s[j].micro_batch == s[i].micro_batch && s[j].start_s * px_per_s - x1 < 0.33)
			x1 = s[j++].end_s * px_per_s;
		fprintf(f,
			"<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
			"fill-opacity=\"%s\"><title>",
			LEFT + x0, y, x1 - x0 < 0.2 ? 0.2 : x1 - x0, LANE,
			s[i].again ? again_colour : colour[phase],
			s[i].micro_batch > 0 && s[i].micro_batch % 2 ? "0.7" : "1");
		fprintf(f, "%s%s", phase_name[phase], s[i].again ? ", again" : "");
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
			fprintf(f,
				"<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"white\" "
				"font-size=\"10\">%d</text>\n",
				LEFT + (x0 + x1) / 2, y + LANE - 7, s[i].micro_batch);
		i = j;
	}
}

/* Draws the gaps that are wide enough to be seen, in the colour of their wait. */
static void gaps(FILE *f, const struct dlb_gap *gap, int n, double y, double px_per_s)
{
	for (int i = 0; i < n; i++) {
		double x = LEFT + gap[i].start_s * px_per_s, w = (gap[i].end_s - gap[i].start_s) * px_per_s;

		fprintf(f, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"5\" fill=\"%s\"><title>%s%s",
			x, y + LANE / 2.0 - 2.5, w,
			gap[i].kind < 0 ? copying_colour : wait_colour[gap[i].kind],
			gap[i].kind < 0 ? "" : "waits: ",
			gap[i].kind < 0 ? copying_name : wait_name[gap[i].kind]);
		if (gap[i].peer >= 0)
			fprintf(f, ", for node %d", gap[i].peer);
		fprintf(f, ", %.4g to %.4g ms</title></rect>\n", 1e3 * gap[i].start_s, 1e3 * gap[i].end_s);
	}
}

static void axis(FILE *f, double y, double end_s, double px_per_s)
{
	double unit = pow(10, floor(log10(end_s))), step = end_s / unit > 5 ? unit :
							   end_s / unit > 2 ? unit / 2 :
									      unit / 5;
	char label[32];

	for (double t = 0; t <= end_s * 1.0001; t += step) {
		fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#888888\"/>\n",
			LEFT + t * px_per_s, LEFT + t * px_per_s, y, y + 4);
		text(f, LEFT + t * px_per_s, y + 16, "middle",
		     t > 0 ? dlb_view_seconds(t, label, sizeof label) : "0");
	}
}

/* The rows of one source: scale, and y position per node (below 0: no row). */
struct lanes { const struct dlb_source *s; struct dlb_op_spans when; double px_per_s, *y; };

static void lanes_init(struct lanes *l, const struct dlb_view *v, const struct dlb_source *s,
		       double longest_s)
{
	l->s = s;
	l->px_per_s = PLOT / longest_s;
	l->y = dlb_xmalloc(((size_t)s->n_nodes + 1) * sizeof *l->y);
	for (int i = 0; i < s->n_nodes; i++)
		l->y[i] = -1;
	dlb_op_spans_init(&l->when, v, s);
}

static void lanes_release(struct lanes *l)
{
	dlb_op_spans_release(&l->when);
	free(l->y);
}

static double lane(const struct dlb_view *v, const struct dlb_program *p, FILE *f, struct lanes *l, int node,
		   double y)
{
	struct dlb_gap *gap;
	int n = dlb_view_gaps(v, p, l->s, &l->when, node, 0.4 / l->px_per_s, &gap);

	l->y[node] = y;
	text(f, LEFT - 8, y + LANE - 6, "end", l->s->name);
	fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"#f1f3f5\"/>\n", LEFT, y,
		l->s->end_s * l->px_per_s, LANE);
	gaps(f, gap, n, y, l->px_per_s);
	spans(v, f, l->s->span[node], l->s->n_spans[node], y, l->px_per_s);
	free(gap);
	return y + LANE + 2;
}

/* Draws an arrow per message, from the op that makes its tensor to the first reader.
 * Overlapping arrows are left out. */
static void arrows(const struct dlb_view *v, FILE *f, const struct lanes *l)
{
	struct dlb_sending *x;
	int n = dlb_view_sendings(v, &l->when, &x), before[4] = { 0 }, drawn = 0;

	for (int i = 0; i < n && drawn < MOST_ARROWS; i++) {
		double from = x[i].from < l->s->n_nodes ? l->y[x[i].from] : -1,
		       to = x[i].to < l->s->n_nodes ? l->y[x[i].to] : -1;
		int at[4] = { (int)(LEFT + x[i].start_s * l->px_per_s), (int)from,
			      (int)(LEFT + x[i].end_s * l->px_per_s), (int)to };
		char b[32];

		if (from < 0 || to < 0 || !memcmp(at, before, sizeof at))
			continue;
		memcpy(before, at, sizeof at);
		drawn++;
		fprintf(f,
			"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#333333\" "
			"stroke-width=\"0.7\" stroke-opacity=\"0.7\" marker-end=\"url(#arrow)\"><title>",
			LEFT + x[i].start_s * l->px_per_s, from + (to > from ? LANE : 0),
			LEFT + x[i].end_s * l->px_per_s, to + (to > from ? 0 : LANE));
		dlb_view_escaped(f, v->graph.tensor[x[i].tensor].name);
		fprintf(f, ", %s from node %d to node %d</title></line>\n",
			dlb_view_bytes(x[i].bytes, b, sizeof b), x[i].from, x[i].to);
	}
	free(x);
}

/* Draws node by node, with all sources of a node together. */
static double together(const struct dlb_view *v, const struct dlb_program *p, FILE *f, struct lanes *l, int n,
		       double y)
{
	int n_nodes = 0;
	char name[64];

	for (int k = 0; k < n; k++)
		n_nodes = l[k].s->n_nodes > n_nodes ? l[k].s->n_nodes : n_nodes;
	for (int i = 0; i < n_nodes; i++) {
		if (dlb_view_idle(v, i))
			continue;
		snprintf(name, sizeof name, "node %d", i);
		text(f, 12, y + LANE - 6, "start", name);
		for (int k = 0; k < n; k++)
			if (i < l[k].s->n_nodes)
				y = lane(v, p, f, &l[k], i, y);
		y += GAP;
	}
	return y;
}

static double timelines(const struct dlb_view *v, FILE *f, double y)
{
	struct dlb_source s[2];
	struct dlb_program program;
	bool plan = dlb_view_predicted(v, &s[0]), report = dlb_view_measured(v, &s[plan]);
	int n = plan + report;
	bool far = n == 2 && dlb_view_far(s[0].end_s, s[1].end_s),
	     has_program = v->has_plan && !dlb_view_program(v, &program, NULL);
	struct lanes l[2];
	char idle[200], line[160], a[32];

	for (int k = 0; k < n; k++)
		lanes_init(&l[k], v, &s[k], far || n == 1 ? s[k].end_s : fmax(s[0].end_s, s[1].end_s));
	for (int k = 0; k < (far ? 2 : n > 0); k++) {
		if (far) {
			snprintf(line, sizeof line, "%s, %s, on a scale of its own: %.2g times the other",
				 s[k].name, dlb_view_seconds(s[k].end_s, a, sizeof a),
				 s[k].end_s / s[1 - k].end_s);
			text(f, LEFT, y + 12, "start", line);
			y += 20;
		}
		y = together(v, has_program ? &program : NULL, f, l + k, far ? 1 : n, y);
		axis(f, y,
		     far    ? s[k].end_s :
		     n == 2 ? fmax(s[0].end_s, s[1].end_s) :
			      s[0].end_s,
		     l[k].px_per_s);
		y += 34;
	}
	for (int k = 0; k < n; k++) {
		if (v->transfers)
			arrows(v, f, &l[k]);
		lanes_release(&l[k]);
	}
	if (has_program)
		dlb_program_release(&program);
	if (n && dlb_view_idle_nodes(v, s[0].n_nodes, idle, sizeof idle)) {
		text(f, 12, y + 4, "start", idle);
		y += 22;
	}
	return y + 6;
}

static double bar(FILE *f, double x, double y, double width, const char *fill, const char *title)
{
	if (width > 0)
		fprintf(f,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
			"fill=\"%s\"><title>%s</title></rect>\n",
			x, y, width, LANE, fill, title);
	return x + fmax(0, width);
}

/* Draws the parts of each node's step: busy, waits by kind, and the rest: copies to other nodes of
 * the host, and unmeasured time. */
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

		if (dlb_view_idle(v, i))
			continue;
		snprintf(line, sizeof line, "node %d", i);
		text(f, 12, y + LANE - 6, "start", line);
		x = bar(f, x, y, px_per_s * r->node[i].busy_s, busy_colour, "busy");
		for (int k = 0; k < DLB_N_WAITS; k++)
			x = bar(f, x, y, px_per_s * r->node[i].waits_s[k], wait_colour[k], wait_name[k]);
		x = bar(f, x, y, px_per_s * (r->step_s - r->node[i].busy_s - r->node[i].wait_s),
			copying_colour, copying_name);
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
	fprintf(f,
		"<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.0f\" fill=\"none\" "
		"stroke=\"#cccccc\"/>\n<polyline fill=\"none\" "
		"stroke=\"#0072b2\" stroke-width=\"1.5\" points=\"",
		LEFT, y, PLOT, height);
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
		/* the run may use another optimizer than the plan: the report's prediction is for the
		 * run's */
		snprintf(line, sizeof line, "%s, schedule %s, %d micro-batch%s; step predicted %s",
			 v->plan.winner ? v->plan.winner : v->plan.algorithm, v->plan.schedule,
			 v->plan.micro_batches, v->plan.micro_batches == 1 ? "" : "es",
			 dlb_view_seconds(v->has_report ? v->report.predicted_step_s : v->plan.value_s, a,
					  sizeof a));
		if (v->has_report)
			snprintf(line + strlen(line), sizeof line - strlen(line), ", %s %s",
				 v->report.dry_run ? "simulated" : "measured",
				 dlb_view_seconds(v->report.step_s, b, sizeof b));
		fprintf(f, "<g font-size=\"15\">");
		text(f, 12, y, "start", line);
		fprintf(f, "</g>\n");
		y += 18;
	}
	if (dlb_view_other_optimizer(v)) {
		snprintf(line, sizeof line,
			 "the time-line called predicted is the plan's, made for %s (%s a step); what ran "
			 "was %s",
			 v->plan.optimizer, dlb_view_seconds(v->plan.value_s, a, sizeof a),
			 v->report.optimizer);
		text(f, 12, y, "start", line);
		y += 18;
	}
	for (int i = 0; i < DLB_N_PHASES; i++, x += 110) {
		fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, y,
			colour[i]);
		text(f, x + 18, y + 11, "start", phase_name[i]);
	}
	if (v->has_plan && v->plan.again) {
		fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, y,
			again_colour);
		text(f, x + 18, y + 11, "start", "again");
		x += 110;
	}
	for (int k = 0; k < DLB_N_WAITS - !v->has_report; k++, x += 118) {
		fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, y,
			wait_colour[k]);
		text(f, x + 18, y + 11, "start", wait_name[k]);
	}
	if (v->has_report) {
		fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, y,
			busy_colour);
		text(f, x + 18, y + 11, "start", "busy");
		x += 70;
	}
	fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, y,
		copying_colour);
	text(f, x + 18, y + 11, "start", copying_name);
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
		return dlb_hint(err,
				"dlb-place and dlb-run make what a time-line shows; -f dot draws the graph");
	}
	m = open_memstream(&body, &n);
	if (!m)
		return dlb_fail(err, NULL, "out of memory");
	y = losses(v, m, bars(v, m, timelines(v, m, heading(v, m))));
	fclose(m);
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d "
		"%.0f\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
		"fill=\"white\"/>\n%s",
		WIDTH, y, WIDTH, y,
		v->transfers ? "<defs><marker id=\"arrow\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" "
			       "markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L6 3L0 "
			       "6\" fill=\"none\" stroke=\"#333333\"/></marker></defs>\n" :
			       "");
	fwrite(body, 1, n, f);
	fprintf(f, "</svg>\n");
	free(body);
	return 0;
}
