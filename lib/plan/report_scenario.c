/* The report's member on simulated rounds of a cluster that changes (dlb-run --scenario).
 *
 *     "scenario": {"rounds": 100,
 *                  "ways": [{"name": "log", "efficiency": 0.81, "schedule_efficiency": 0.93, "step_s": 0.013,
 *                            "moved_ops": 52}, ...]} */
#include "plan/report.h"

void dlb_report_scenario_write(const struct dlb_report *r, json_t *report)
{
	json_t *list;

	if (!r->n_ways)
		return;
	list = json_array();
	for (int i = 0; i < r->n_ways; i++) {
		const struct dlb_report_way *w = &r->way[i];

		json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:I}", "name", w->name, "efficiency",
						      w->efficiency, "schedule_efficiency",
						      w->schedule_efficiency, "step_s", w->step_s,
						      "moved_ops", (json_int_t)w->moved_ops));
	}
	json_object_set_new(report, "scenario",
			    json_pack("{s:I, s:o}", "rounds", (json_int_t)r->rounds, "ways", list));
}

static int read_way(const struct dlb_ref *r, struct dlb_report *out, struct dlb_report_way *w,
		    struct dlb_error *err)
{
	static const char *const known[] = { "name",   "efficiency", "schedule_efficiency",
					     "step_s", "moved_ops",  NULL };
	const char *name = NULL;

	if (dlb_ref_known(r, known, err) || dlb_get_str(r, "name", DLB_NEED, &name, err) ||
	    dlb_get_real(r, "efficiency", DLB_NEED, 0, 1e18, &w->efficiency, err) ||
	    dlb_get_real(r, "schedule_efficiency", DLB_OPT, 0, 1e18, &w->schedule_efficiency, err) ||
	    dlb_get_real(r, "step_s", DLB_NEED, 0, 1e18, &w->step_s, err) ||
	    dlb_get_int(r, "moved_ops", DLB_NEED, 0, INT64_MAX, &w->moved_ops, err))
		return -1;
	w->name = dlb_arena_strdup(&out->arena, name);
	return 0;
}

int dlb_report_scenario_read(const struct dlb_ref *report, struct dlb_report *out, struct dlb_error *err)
{
	static const char *const known[] = { "rounds", "ways", NULL };
	struct dlb_ref o = { .v = NULL }, list;
	int n = 0;

	if (dlb_get_object(report, "scenario", DLB_OPT, &o, err))
		return -1;
	if (!o.v)
		return 0;
	if (dlb_ref_known(&o, known, err) ||
	    dlb_get_int(&o, "rounds", DLB_NEED, 1, INT64_MAX, &out->rounds, err) ||
	    dlb_get_array(&o, "ways", DLB_NEED, &list, &n, err))
		return -1;
	out->way = dlb_arena_array(&out->arena, (size_t)n + 1, sizeof *out->way);
	for (out->n_ways = 0; out->n_ways < n; out->n_ways++) {
		struct dlb_ref e = dlb_ref_index(&list, out->n_ways);

		if (read_way(&e, out, &out->way[out->n_ways], err))
			return -1;
	}
	return 0;
}
