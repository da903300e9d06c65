/* The report's member on nodes that were lost during the run, and put back (dlb-run --on-failure replan).
 *
 *     "events": [{"step": 409, "node": 1, "cause": "node 1 (host a) is silent ...", "notice_s": 2.8,
 *                 "resume_s": 1.9, "from_step": 408, "copies": true},
 *                {"step": 450, "node": 1, "rejoined": true, "cause": "host a answers again", "resume_s": 1.2}, ...] */
#include <math.h>
#include "plan/report.h"

void dlb_report_events_write(const struct dlb_report *r, json_t *report)
{
	json_t *list = r->n_events ? json_array() : NULL;

	for (int i = 0; i < r->n_events; i++) {
		const struct dlb_report_event *e = &r->event[i];
		json_t *o = json_object();

		if (e->step >= 0)
			dlb_set_int(o, "step", e->step);
		dlb_set_int(o, "node", e->node);
		if (e->rejoined)
			json_object_set_new(o, "rejoined", json_true());
		dlb_set_str(o, "cause", e->cause);
		dlb_set_finite(o, "notice_s", e->notice_s);
		dlb_set_finite(o, "resume_s", e->resume_s);
		if (e->went_on)
			dlb_set_int(o, "from_step", e->from_step);
		if (e->copies)
			json_object_set_new(o, "copies", json_true());
		json_array_append_new(list, o);
	}
	if (list)
		json_object_set_new(report, "events", list);
}

static int read_event(const struct dlb_ref *r, struct dlb_report *out, struct dlb_report_event *e,
		      struct dlb_error *err)
{
	static const char *const known[] = { "step",     "node",      "rejoined", "cause", "notice_s",
					     "resume_s", "from_step", "copies",   NULL };
	const char *cause = NULL;
	int64_t node = 0;

	*e = (struct dlb_report_event){ .step = -1, .notice_s = NAN, .resume_s = NAN };
	if (!json_is_object(r->v))
		return dlb_ref_fail(r, err, "must be an object");
	if (dlb_ref_known(r, known, err) || dlb_get_int(r, "step", DLB_OPT, 0, INT64_MAX, &e->step, err) ||
	    dlb_get_int(r, "node", DLB_NEED, 0, INT32_MAX, &node, err) ||
	    dlb_get_bool(r, "rejoined", DLB_OPT, &e->rejoined, err) ||
	    dlb_get_str(r, "cause", DLB_NEED, &cause, err) ||
	    dlb_get_real(r, "notice_s", DLB_OPT, 0, 1e18, &e->notice_s, err) ||
	    dlb_get_real(r, "resume_s", DLB_OPT, 0, 1e18, &e->resume_s, err) ||
	    dlb_get_int(r, "from_step", DLB_OPT, 0, INT64_MAX, &e->from_step, err) ||
	    dlb_get_bool(r, "copies", DLB_OPT, &e->copies, err))
		return -1;
	e->went_on = json_object_get(r->v, "from_step") != NULL;
	e->node = (int)node;
	e->cause = dlb_arena_strdup(&out->arena, cause);
	return 0;
}

int dlb_report_events_read(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err)
{
	struct dlb_ref list = { .v = NULL };
	int n = 0;

	if (dlb_get_array(report, "events", DLB_OPT, &list, &n, err))
		return -1;
	n = list.v ? n : 0;
	out->event = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *out->event);
	for (out->n_events = 0; out->n_events < n; out->n_events++) {
		struct dlb_ref e = dlb_ref_index(&list, out->n_events);

		if (read_event(&e, out, &out->event[out->n_events], err))
			return -1;
	}
	return 0;
}
