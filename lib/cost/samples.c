/* Seconds to prepare a sample of each fed tensor: /report/samples of the last run, else /balance/samples,
 * which remain when a new plan replaces the report. See cost.h.
 *
 *     [{"node": 0, "tensor": "x", "time_s": 5e-3}, ...]
 *
 * A run measures them; dlb-rebalance keeps those of the last run that did. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "cost/cost.h"
#include "util/mem.h"

json_t *dlb_sample_times_write(const struct dlb_sample_time *sample, int n)
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

static int read_sample(const struct dlb_ref *x, int n_nodes, struct dlb_arena *a, struct dlb_sample_time *s,
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

int dlb_sample_times_read(const struct dlb_ref *section, int n_nodes, struct dlb_arena *a,
			  struct dlb_sample_time **sample, int *n, struct dlb_error *err)
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

/* The fed tensor of that name; -1: the graph has none. */
static int find_fed(const struct dlb_graph *g, const char *name)
{
	int t = 0;

	while (t < g->n_tensors && (g->tensor[t].producer >= 0 || strcmp(g->tensor[t].name, name)))
		t++;
	return t < g->n_tensors ? t : -1;
}

/* Adds one row of the list to sum[kind][tensor] and n[kind][tensor]. */
static void add_row(const struct dlb_sample_time *x, const struct dlb_cost *c, double **sum, int **n)
{
	const int t = find_fed(c->graph, x->tensor);

	if (x->node >= c->cluster->n_nodes || t < 0)
		return;
	sum[c->cluster->node[x->node].kind][t] += x->time_s;
	n[c->cluster->node[x->node].kind][t]++;
}

/* Sums become the mean of each kind's nodes; of all nodes for a kind without any. */
static void average(const struct dlb_cost *c, double **sum, int **n)
{
	for (int t = 0; t < c->graph->n_tensors; t++) {
		double all = 0;
		int n_all = 0;

		for (int k = 0; k < c->n_kinds; k++) {
			all += sum[k][t];
			n_all += n[k][t];
		}
		for (int k = 0; k < c->n_kinds && n_all; k++)
			sum[k][t] = n[k][t] ? sum[k][t] / n[k][t] : all / n_all;
	}
}

/* The list in a section, memory in a; *n 0: none. */
static int read_list(const struct dlb_doc *d, const char *name, struct dlb_arena *a,
		     struct dlb_sample_time **sample, int *n, struct dlb_error *err)
{
	struct dlb_ref section;

	*n = 0;
	if (!dlb_doc_section(d, name))
		return 0;
	section = dlb_ref_root(d, name);
	return json_is_object(section.v) ? dlb_sample_times_read(&section, INT_MAX, a, sample, n, err) : 0;
}

/* Zeroed arrays [kind][tensor] in *sample_s: those that are there, else new. */
static void clear(struct dlb_cost *c, double ***sample_s)
{
	const size_t n_tensors = (size_t)c->graph->n_tensors + 1;

	if (!*sample_s) {
		*sample_s = dlb_arena_array(&c->arena, (size_t)c->n_kinds + 1, sizeof **sample_s);
		for (int k = 0; k < c->n_kinds; k++)
			(*sample_s)[k] = dlb_arena_array(&c->arena, n_tensors, sizeof ***sample_s);
	}
	for (int k = 0; k < c->n_kinds; k++)
		memset((*sample_s)[k], 0, n_tensors * sizeof ***sample_s);
}

int dlb_cost_read_samples(const struct dlb_doc *d, bool reported, struct dlb_cost *c, double ***sample_s,
			  struct dlb_error *err)
{
	const size_t n_tensors = (size_t)c->graph->n_tensors + 1;
	struct dlb_arena scratch = { 0 };
	struct dlb_sample_time *sample = NULL;
	int n_samples = 0, rc = reported ? read_list(d, "report", &scratch, &sample, &n_samples, err) : 0;

	if (!rc && !n_samples)
		rc = read_list(d, "balance", &scratch, &sample, &n_samples, err);
	if (!rc && (n_samples || *sample_s))
		clear(c, sample_s);
	if (!rc && n_samples) {
		int **n = dlb_arena_array(&scratch, (size_t)c->n_kinds + 1, sizeof *n);

		for (int k = 0; k < c->n_kinds; k++)
			n[k] = dlb_arena_array(&scratch, n_tensors, sizeof **n);
		for (int i = 0; i < n_samples; i++)
			add_row(&sample[i], c, *sample_s, n);
		average(c, *sample_s, n);
	}
	dlb_arena_release(&scratch);
	return rc;
}

double dlb_cost_sample_s(const struct dlb_cost *c, int tensor, int node)
{
	return c->sample_s ? c->sample_s[c->cluster->node[node].kind][tensor] : 0;
}
