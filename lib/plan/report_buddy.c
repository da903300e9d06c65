/* The report's member on copies of the nodes' state (dlb-run --buddy-every).
 *
 *     "buddy": {"every": 1, "bytes": 5.2e6, "sent_bytes": 5.2e6, "buddies": [1, 0], "link_s": 0.004,
 *               "predicted_time_s": 0.001, "copies": 300, "time_s": 0.0012, "removed": ["/dev/shm/dlb-copies.6f"]} */
#include <math.h>
#include "plan/report.h"

void dlb_report_buddy_write(const struct dlb_report *r, json_t *report)
{
	const struct dlb_report_buddy *b = &r->buddy;
	json_t *o, *list;

	if (!b->every)
		return;
	o = json_pack("{sI}", "every", (json_int_t)b->every);
	dlb_set_number(o, "bytes", b->bytes);
	dlb_set_number(o, "sent_bytes", b->sent_bytes);
	list = json_array();
	for (int i = 0; i < r->n_nodes && b->sent_bytes > 0; i++)
		json_array_append_new(list, json_integer(b->buddy[i]));
	json_object_set_new(o, "buddies", list);
	dlb_set_number(o, "link_s", b->link_s);
	dlb_set_number(o, "predicted_time_s", b->predicted_time_s);
	if (isfinite(b->time_s)) {
		dlb_set_int(o, "copies", b->copies);
		dlb_set_number(o, "time_s", b->time_s);
		list = json_array();
		for (int i = 0; i < b->n_folders; i++)
			json_array_append_new(list, json_string(b->folder[i]));
		json_object_set_new(o, "removed", list);
	}
	json_object_set_new(report, "buddy", o);
}

static int read_buddies(const struct dlb_ref *o, struct dlb_report *out, struct dlb_error *err)
{
	struct dlb_ref list = { .v = NULL };
	int n = 0;

	if (dlb_get_array(o, "buddies", DLB_NEED, &list, &n, err))
		return -1;
	if (n != out->n_nodes && (n || out->buddy.sent_bytes > 0))
		return dlb_ref_fail(&list, err, "has %d entries, there are %d nodes", n, out->n_nodes);
	out->buddy.buddy = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *out->buddy.buddy);
	for (int i = 0; i < n; i++) {
		const struct dlb_ref e = dlb_ref_index(&list, i);
		const json_int_t node = json_integer_value(e.v);

		if (!json_is_integer(e.v) || node < -1 || node >= n)
			return dlb_ref_fail(&e, err, "must be a node");
		out->buddy.buddy[i] = (int)node;
	}
	return 0;
}

static int read_folders(const struct dlb_ref *o, struct dlb_report *out, struct dlb_error *err)
{
	struct dlb_report_buddy *b = &out->buddy;
	struct dlb_ref list = { .v = NULL };
	int n = 0;

	if (dlb_get_array(o, "removed", DLB_OPT, &list, &n, err))
		return -1;
	n = list.v ? n : 0;
	b->folder = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *b->folder);
	for (; b->n_folders < n; b->n_folders++) {
		const struct dlb_ref e = dlb_ref_index(&list, b->n_folders);

		if (!json_is_string(e.v))
			return dlb_ref_fail(&e, err, "must be a string");
		b->folder[b->n_folders] = dlb_arena_strdup(&out->arena, json_string_value(e.v));
	}
	return 0;
}

int dlb_report_buddy_read(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err)
{
	static const char *const known[] = { "every",   "bytes",  "sent_bytes",
					     "buddies", "link_s", "predicted_time_s",
					     "copies",  "time_s", "removed",
					     NULL };
	struct dlb_report_buddy *b = &out->buddy;
	struct dlb_ref o = { .v = NULL };

	b->time_s = NAN;
	if (dlb_get_object(report, "buddy", DLB_OPT, &o, err))
		return -1;
	if (!o.v)
		return 0;
	return dlb_ref_known(&o, known, err) ||
			       dlb_get_int(&o, "every", DLB_NEED, 1, INT64_MAX, &b->every, err) ||
			       dlb_get_real(&o, "bytes", DLB_NEED, 0, 1e18, &b->bytes, err) ||
			       dlb_get_real(&o, "sent_bytes", DLB_NEED, 0, 1e18, &b->sent_bytes, err) ||
			       dlb_get_real(&o, "link_s", DLB_NEED, 0, 1e18, &b->link_s, err) ||
			       dlb_get_real(&o, "predicted_time_s", DLB_NEED, 0, 1e18, &b->predicted_time_s,
					    err) ||
			       dlb_get_int(&o, "copies", DLB_OPT, 0, INT64_MAX, &b->copies, err) ||
			       dlb_get_real(&o, "time_s", DLB_OPT, 0, 1e18, &b->time_s, err) ||
			       read_buddies(&o, out, err) || read_folders(&o, out, err) ?
		       -1 :
		       0;
}
