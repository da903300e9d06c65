/* Writes Chrome trace events (JSON array format): process 0 is the prediction, process 1 the measurement,
 * with a thread per node. Times are microseconds, as the format requires. */
#include <errno.h>
#include <string.h>
#include "view/view.h"

int dlb_view_trace(const struct dlb_view *v, FILE *f, struct dlb_error *err);

static void name_event(json_t *events, const char *what, int pid, int tid, const char *name)
{
	json_array_append_new(events, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M",
						"pid", pid, "tid", tid, "args", "name", name));
}

static void spans(const struct dlb_view *v, json_t *events, int pid, int node, const struct dlb_span *s,
		  int n)
{
	for (int i = 0; i < n; i++) {
		const char *name = v->has_graph && s[i].op >= 0 && s[i].op < v->graph.n_ops
			? v->graph.op[s[i].op].name : "op";

		json_t *args = json_pack("{s:i, s:i}", "op", s[i].op, "micro_batch", s[i].micro_batch);

		if (s[i].again)
			json_object_set_new(args, "again", json_true());
		json_array_append_new(events,
				      json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "name", name,
						"cat", s[i].again ? "again" : dlb_view_phase_name(v, s[i].op),
						"ph", "X", "ts", s[i].start_s * 1e6, "dur",
						(s[i].end_s - s[i].start_s) * 1e6, "pid", pid, "tid", node,
						"args", args));
	}
}

static void process(const struct dlb_view *v, json_t *events, int pid, const char *name,
		    struct dlb_span *const *span, const int *n_spans, int n_nodes)
{
	if (!span)
		return;
	name_event(events, "process_name", pid, 0, name);
	for (int i = 0; i < n_nodes; i++) {
		char node[32];

		snprintf(node, sizeof node, "node %d", i);
		name_event(events, "thread_name", pid, i, node);
		spans(v, events, pid, i, span[i], n_spans[i]);
	}
}

int dlb_view_trace(const struct dlb_view *v, FILE *f, struct dlb_error *err)
{
	json_t *events, *root;
	int rc;

	if (!(v->has_plan && v->plan.timeline) && !(v->has_report && v->report.timeline)) {
		dlb_fail(err, NULL, "no time-line in the document");
		return dlb_hint(err, "dlb-place writes the predicted one, dlb-run the measured one");
	}
	events = json_array();
	if (v->has_plan)
		process(v, events, 0, "predicted", v->plan.timeline, v->plan.n_spans, v->plan.n_nodes);
	if (v->has_report)
		process(v, events, 1, v->report.dry_run ? "simulated" : "measured", v->report.timeline,
			v->report.n_spans, v->report.n_nodes);
	root = json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ms");
	rc = json_dumpf(root, f, JSON_COMPACT);
	if (rc)
		dlb_fail(err, NULL, "cannot write the trace: %s", strerror(errno));
	json_decref(root);
	fputc('\n', f);
	return rc;
}
