/* Seconds to prepare a sample of each fed tensor: /report/samples of the last run, else /balance/samples, which
 * remain when a new plan replaces the report. See cost.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cost/cost.h"
#include "util/mem.h"

static int find_tensor(const struct dlb_graph *g, const char *name)
{
	int t = 0;

	while (t < g->n_tensors && strcmp(g->tensor[t].name, name))
		t++;
	return t < g->n_tensors ? t : -1;
}

/* Adds one row of the list to sum[kind][tensor] and n[kind][tensor]. */
static int read_row(const struct dlb_ref *x, const struct dlb_cost *c, double **sum, int **n,
		    struct dlb_error *err)
{
	const char *name = NULL;
	int64_t node = 0;
	double s = 0;

	if (dlb_get_int(x, "node", DLB_NEED, 0, INT32_MAX, &node, err) ||
	    dlb_get_str(x, "tensor", DLB_NEED, &name, err) ||
	    dlb_get_real(x, "time_s", DLB_NEED, 0, 1e6, &s, err))
		return -1;
	const int t = find_tensor(c->graph, name);

	if (node >= c->cluster->n_nodes || t < 0)
		return 0;
	sum[c->cluster->node[node].kind][t] += s;
	n[c->cluster->node[node].kind][t]++;
	return 0;
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

/* The list in a section, which *list refers to; *n 0: none. */
static int find_list(const struct dlb_doc *d, const char *name, struct dlb_ref *section, struct dlb_ref *list,
		     int *n, struct dlb_error *err)
{
	*n = 0;
	if (!dlb_doc_section(d, name))
		return 0;
	*section = dlb_ref_root(d, name);
	return json_is_object(section->v) ? dlb_get_array(section, "samples", DLB_OPT, list, n, err) : 0;
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
	struct dlb_ref section, list = { .v = NULL };
	struct dlb_arena counts = { 0 };
	int n_rows = 0, rc = 0, **n;

	if ((reported && find_list(d, "report", &section, &list, &n_rows, err)) ||
	    (!n_rows && find_list(d, "balance", &section, &list, &n_rows, err)))
		return -1;
	if (n_rows || *sample_s)
		clear(c, sample_s);
	if (!n_rows)
		return 0;
	n = dlb_arena_array(&counts, (size_t)c->n_kinds + 1, sizeof *n);
	for (int k = 0; k < c->n_kinds; k++)
		n[k] = dlb_arena_array(&counts, n_tensors, sizeof **n);
	for (int i = 0; i < n_rows && !rc; i++) {
		const struct dlb_ref x = dlb_ref_index(&list, i);

		rc = read_row(&x, c, *sample_s, n, err);
	}
	average(c, *sample_s, n);
	dlb_arena_release(&counts);
	return rc;
}

double dlb_cost_sample_s(const struct dlb_cost *c, int tensor, int node)
{
	return c->sample_s ? c->sample_s[c->cluster->node[node].kind][tensor] : 0;
}
