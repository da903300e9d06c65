/* Time-lines in the plan and in the report: a list per node of [op, micro_batch, start_s, end_s]. Spans of
 * micro-batch -1 are updates. A fifth element, true, marks an op's second run (again.h). */
#include "plan/plan.h"
#include "plan/timeline_json.h"

json_t *dlb_spans_write(struct dlb_span *const *span, const int *n_spans, int n_nodes)
{
	json_t *all = json_array();

	for (int n = 0; n < n_nodes; n++) {
		json_t *list = json_array();

		for (int i = 0; i < n_spans[n]; i++) {
			const struct dlb_span *s = &span[n][i];

			json_t *row = json_pack("[iioo]", s->op, s->micro_batch, dlb_doc_number(s->start_s),
						dlb_doc_number(s->end_s));
			if (s->again)
				json_array_append_new(row, json_true());
			json_array_append_new(list, row);
		}
		json_array_append_new(all, list);
	}
	return all;
}

static int read_span(const struct dlb_ref *r, int n_ops, struct dlb_span *s, struct dlb_error *err)
{
	int64_t v[2];
	double t[2];

	bool again = json_is_array(r->v) && json_array_size(r->v) == 5 &&
		     json_is_true(json_array_get(r->v, 4));

	if (!json_is_array(r->v) || (json_array_size(r->v) != 4 && !again))
		return dlb_ref_fail(r, err, "must be an array of 4 numbers, and true for a second run");
	for (int i = 0; i < 4; i++) {
		struct dlb_ref e = dlb_ref_index(r, i);

		if (i < 2 ? dlb_ref_int(&e, -i, INT32_MAX, &v[i], err) :
			    dlb_ref_real(&e, 0, 1e18, &t[i - 2], err))
			return -1;
	}
	if (n_ops >= 0 && v[0] >= n_ops)
		return dlb_ref_fail(r, err, "no op %lld: the graph has %d ops", (long long)v[0], n_ops);
	*s = (struct dlb_span){ (int)v[0], (int)v[1], t[0], t[1], again };
	return 0;
}

int dlb_spans_read(const struct dlb_ref *r, int n_nodes, int n_ops, struct dlb_arena *a,
		   struct dlb_span ***span, int **n_spans, struct dlb_error *err)
{
	struct dlb_ref all;
	int n = 0;

	if (dlb_get_array(r, "timeline", DLB_OPT, &all, &n, err))
		return -1;
	if (!all.v)
		return 0;
	if (n != n_nodes)
		return dlb_ref_fail(&all, err, "%d time-lines for %d nodes", n, n_nodes);
	*span = dlb_arena_array(a, (size_t)n + 1, sizeof **span);
	*n_spans = dlb_arena_array(a, (size_t)n + 1, sizeof **n_spans);
	for (int i = 0; i < n; i++) {
		struct dlb_ref list = dlb_ref_index(&all, i);

		if (!json_is_array(list.v))
			return dlb_ref_fail(&list, err, "must be an array");
		(*n_spans)[i] = (int)json_array_size(list.v);
		(*span)[i] = dlb_arena_array(a, (size_t)(*n_spans)[i] + 1, sizeof ***span);
		for (int k = 0; k < (*n_spans)[i]; k++) {
			struct dlb_ref e = dlb_ref_index(&list, k);

			if (read_span(&e, n_ops, &(*span)[i][k], err))
				return -1;
		}
	}
	return 0;
}
