/* Data of the page: time-lines. Times are integers, in ticks of a power of ten seconds. A span is five
 * numbers, [op, micro-batch, ticks since the end of the previous span, ticks, number of further spans merged
 * into it, or -1 minus that number if the op runs again]; a gap [kind, peer, start, ticks]; a message [from,
 * to, tensor, micro-batch, start, end, bytes]. */
#include "view/page.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_SPANS = 200000, MOST_GAPS = 60000, MOST_SENDINGS = 20000 };

static int64_t ticks(double s, double tick_s)
{
	return (int64_t)llround(s / tick_s);
}

/* True if span b is merged with the previous one: same phase and micro-batch, both or neither run again, and
 * closer than near_s. */
static bool joins(const struct dlb_view *v, const struct dlb_span *a, const struct dlb_span *b, double end_s,
		  double near_s)
{
	return near_s > 0 && b->micro_batch == a->micro_batch && b->again == a->again &&
	       b->start_s - end_s < near_s && v->has_graph && a->op < v->graph.n_ops &&
	       b->op < v->graph.n_ops && v->graph.op[a->op].phase == v->graph.op[b->op].phase;
}

/* Writes the spans of a node, merged; e NULL: only counts them. */
static int64_t spans(const struct dlb_view *v, const struct dlb_span *s, int n, double near_s, double tick_s,
		     struct dlb_emit *e)
{
	int64_t count = 0, now = 0;

	for (int i = 0, j; i < n; i = j, count++) {
		double end_s = s[i].end_s;

		for (j = i + 1; j < n && joins(v, &s[i], &s[j], end_s, near_s); j++)
			end_s = fmax(end_s, s[j].end_s);
		if (!e)
			continue;
		int64_t from = ticks(s[i].start_s, tick_s), to = ticks(end_s, tick_s);

		dlb_emit_int(e, NULL, s[i].op);
		dlb_emit_int(e, NULL, s[i].micro_batch);
		dlb_emit_int(e, NULL, from - now);
		dlb_emit_int(e, NULL, to - from);
		dlb_emit_int(e, NULL, s[i].again ? i - j : j - i - 1);
		now = to;
	}
	return count;
}

/* Smallest near_s, found by doubling, that leaves at most MOST_SPANS spans; 0 if no span must be merged. */
static double nearness(const struct dlb_view *v, const struct dlb_source *s)
{
	double near_s = 0;

	for (;;) {
		int64_t n = 0;

		for (int i = 0; i < s->n_nodes; i++)
			n += spans(v, s->span[i], s->n_spans[i], near_s, 1, NULL);
		if (n <= MOST_SPANS || near_s > s->end_s)
			return near_s;
		near_s = near_s > 0 ? 2 * near_s : s->end_s * 1e-6;
	}
}

static void gaps(const struct dlb_view *v, const struct dlb_program *p, const struct dlb_source *s,
		 const struct dlb_op_spans *w, double tick_s, struct dlb_emit *e)
{
	dlb_emit_open(e, "gaps", '[');
	for (int i = 0; i < s->n_nodes; i++) {
		struct dlb_gap *gap;
		double least_s = s->end_s * 1e-5;
		int n = dlb_view_gaps(v, p, s, w, i, least_s, &gap);

		while (n > MOST_GAPS / s->n_nodes + 100) {
			free(gap);
			least_s *= 2;
			n = dlb_view_gaps(v, p, s, w, i, least_s, &gap);
		}
		dlb_emit_open(e, NULL, '[');
		for (int k = 0; k < n; k++) {
			dlb_emit_int(e, NULL, gap[k].kind);
			dlb_emit_int(e, NULL, gap[k].peer);
			dlb_emit_int(e, NULL, ticks(gap[k].start_s, tick_s));
			dlb_emit_int(e, NULL, ticks(gap[k].end_s - gap[k].start_s, tick_s));
		}
		dlb_emit_close(e, ']');
		free(gap);
	}
	dlb_emit_close(e, ']');
}

static void sendings(const struct dlb_view *v, const struct dlb_op_spans *w, double tick_s,
		     struct dlb_emit *e)
{
	struct dlb_sending *x;
	int n = dlb_view_sendings(v, w, &x);

	dlb_emit_int(e, "sendings_left_out", n > MOST_SENDINGS ? n - MOST_SENDINGS : 0);
	dlb_emit_open(e, "sendings", '[');
	for (int i = 0; i < n && i < MOST_SENDINGS; i++) {
		dlb_emit_int(e, NULL, x[i].from);
		dlb_emit_int(e, NULL, x[i].to);
		dlb_emit_int(e, NULL, x[i].tensor);
		dlb_emit_int(e, NULL, x[i].micro_batch);
		dlb_emit_int(e, NULL, ticks(x[i].start_s, tick_s));
		dlb_emit_int(e, NULL, ticks(x[i].end_s, tick_s));
		dlb_emit_real(e, NULL, x[i].bytes);
	}
	dlb_emit_close(e, ']');
	free(x);
}

static void timeline(const struct dlb_view *v, const struct dlb_program *p, const struct dlb_source *s,
		     const char *key, struct dlb_emit *e)
{
	double tick_s = pow(10, floor(log10(s->end_s)) - 7), near_s = nearness(v, s);
	struct dlb_op_spans w;

	dlb_op_spans_init(&w, v, s);
	dlb_emit_open(e, key, '{');
	dlb_emit_str(e, "name", s->name);
	dlb_emit_real(e, "tick_s", tick_s);
	dlb_emit_int(e, "end", ticks(s->end_s, tick_s));
	dlb_emit_bool(e, "joined", near_s > 0);
	dlb_emit_open(e, "spans", '[');
	for (int i = 0; i < s->n_nodes; i++) {
		dlb_emit_open(e, NULL, '[');
		spans(v, s->span[i], s->n_spans[i], near_s, tick_s, e);
		dlb_emit_close(e, ']');
	}
	dlb_emit_close(e, ']');
	gaps(v, p, s, &w, tick_s, e);
	sendings(v, &w, tick_s, e);
	dlb_emit_close(e, '}');
	dlb_op_spans_release(&w);
}

void dlb_page_times(const struct dlb_view *v, const struct dlb_program *p, struct dlb_emit *e)
{
	struct dlb_source s;

	if (dlb_view_predicted(v, &s))
		timeline(v, p, &s, "predicted", e);
	if (dlb_view_measured(v, &s))
		timeline(v, p, &s, "measured", e);
}
