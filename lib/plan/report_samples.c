/* /report/samples and /balance/samples: seconds to prepare a sample.
 *
 *     [{"node": 0, "tensor": "x", "time_s": 5e-3}, ...]
 *
 * A run measures them; dlb-rebalance keeps those of the last run that did. cost/samples.c reads them into the
 * cost model. */
#include "plan/report.h"

json_t *dlb_samples_write(const struct dlb_report_sample *sample, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++) {
		json_t *x = json_object();

		dlb_set_int(x, "node", sample[i].node);
		dlb_set_str(x, "tensor", sample[i].tensor);
		dlb_set_real(x, "time_s", sample[i].time_s);
		json_array_append_new(list, x);
	}
	return list;
}

static int read_sample(const struct dlb_ref *x, int n_nodes, struct dlb_arena *a, struct dlb_report_sample *s,
		       struct dlb_error *err)
{
	static const char *const known[] = { "node", "tensor", "time_s", NULL };
	int64_t node = 0;

	if (dlb_ref_known(x, known, err) || dlb_get_int(x, "node", DLB_NEED, 0, n_nodes - 1, &node, err) ||
	    dlb_get_str(x, "tensor", DLB_NEED, &s->tensor, err) ||
	    dlb_get_real(x, "time_s", DLB_NEED, 0, 1e6, &s->time_s, err))
		return -1;
	s->node = (int)node;
	s->tensor = dlb_arena_strdup(a, s->tensor);
	return 0;
}

int dlb_samples_read(const struct dlb_ref *section, int n_nodes, struct dlb_arena *a,
		     struct dlb_report_sample **sample, int *n, struct dlb_error *err)
{
	struct dlb_ref list = { .v = NULL };

	*n = 0;
	if (dlb_get_array(section, "samples", DLB_OPT, &list, n, err))
		return -1;
	*sample = dlb_arena_array(a, (size_t)*n + 1, sizeof **sample);
	for (int i = 0; i < *n; i++) {
		const struct dlb_ref x = dlb_ref_index(&list, i);

		if (read_sample(&x, n_nodes, a, &(*sample)[i], err))
			return -1;
	}
	return 0;
}

int dlb_report_starved(const struct dlb_report *r, double *sample_s)
{
	int node = 0;

	for (int i = 1; i < r->n_nodes; i++)
		if (r->node[i].data_wait_s > r->node[node].data_wait_s)
			node = i;
	*sample_s = 0;
	for (int i = 0; i < r->n_samples; i++)
		if (r->sample[i].node == (r->feed.bytes > 0 ? 0 : node))
			*sample_s += r->sample[i].time_s;
	return node;
}
