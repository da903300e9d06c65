/* Turns a network on accelerators and a host, as placement benchmarks describe
 * it, into sections of a document.
 *
 * A vertex becomes an op that can be planned but not run (no back end has its domain), with one output tensor
 * if any vertex reads it. The cost section holds its times per kind, its output's seconds through a port, and
 * its memory. The cluster charges transfers by the port model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "convert/convert.h"
#include "graph/graph_json.h"
#include "graph/order.h"

static const char domain[] = "converted";

static int by_ends(const void *a, const void *b)
{
	const struct dlb_edge *x = a, *y = b;
	return x->from != y->from ? (x->from < y->from ? -1 : 1) : (x->to > y->to) - (x->to < y->to);
}

/* Names must be unique: of vertices with the same name, all but the first get their id appended. */
static const char *unique_name(const struct dlb_vertex *v, json_t *taken, struct dlb_arena *a)
{
	const char *name = *v->name ? v->name : dlb_arena_printf(a, "#%lld", (long long)v->id);
	while (json_object_get(taken, name))
		name = dlb_arena_printf(a, "%s#%lld", name, (long long)v->id);
	json_object_set_new(taken, name, json_true());
	return name;
}

/* True if phases can be kept: no backward vertex feeds a forward one, which the graph's order forbids. */
static bool phases_hold(const struct dlb_network *net)
{
	for (int i = 0; i < net->n_edges; i++)
		if (net->vertex[net->edge[i].from].backward && !net->vertex[net->edge[i].to].backward)
			return false;
	return true;
}

static void add_tensors(const struct dlb_network *net, const struct dlb_edge *edge, int n, bool phases,
			int *made_by, struct dlb_graph *g)
{
	for (int i = 0; i < n; i++) {
		const struct dlb_vertex *v = &net->vertex[edge[i].from];
		if (made_by[edge[i].from] >= 0)
			continue;
		int t = dlb_graph_add_tensor(g, dlb_arena_printf(&g->arena, "out:%d", edge[i].from),
					     phases && v->backward ? DLB_T_GRADIENT : DLB_T_ACTIVATION);
		g->tensor[t].dtype = DLB_F32;
		g->tensor[t].size_add = v->output_bytes;
		made_by[edge[i].from] = t;
	}
}

static int make_graph(const struct dlb_network *net, struct dlb_graph *g, struct dlb_error *err)
{
	int n_edges = 0, rc;
	size_t n = (size_t)net->n_vertices + 1;
	struct dlb_edge *edge = dlb_xcalloc((size_t)net->n_edges + 1, sizeof *edge);
	int *made_by = dlb_xcalloc(n, sizeof *made_by),
	    *in = dlb_xcalloc((size_t)net->n_edges + 1, sizeof *in);
	int *start = dlb_xcalloc(n + 1, sizeof *start), *first = dlb_xcalloc(n, sizeof *first);
	bool phases = phases_hold(net);
	json_t *taken = json_object();

	g->batch = 1;
	g->dtype = DLB_F32;
	for (int i = 0; i < net->n_vertices; i++) {
		made_by[i] = first[i] = -1;
		g->training |= net->vertex[i].backward;
	}
	for (int i = 0; i < net->n_edges; i++)
		if (net->edge[i].from != net->edge[i].to)
			edge[n_edges++] = net->edge[i];
	qsort(edge, (size_t)n_edges, sizeof *edge, by_ends);
	int kept = 0;
	for (int i = 0; i < n_edges; i++)
		if (!i || by_ends(&edge[i], &edge[i - 1]))
			edge[kept++] = edge[i];
	add_tensors(net, edge, kept, phases, made_by, g);
	for (int i = 0; i < kept; i++)
		start[edge[i].to + 1]++;
	for (int i = 0; i < net->n_vertices; i++)
		start[i + 1] += start[i];
	int *at = dlb_xcalloc(n, sizeof *at);
	for (int i = 0; i < kept; i++)
		in[start[edge[i].to] + at[edge[i].to]++] = made_by[edge[i].from];
	free(at);
	for (int i = 0; i < net->n_vertices; i++) {
		const struct dlb_vertex *v = &net->vertex[i];
		struct dlb_attr attr[2 + 8] = { { .name = "id", .type = DLB_ATTR_INT, .i = v->id },
					    { .name = "colour", .type = DLB_ATTR_INT, .i = v->colour } };
		int n_attr = v->colour >= 0 ? 2 : 1;
		for (int k = 0; k < v->n_attr && k < 8; k++)
			attr[n_attr++] = v->attr[k];
		int op = dlb_graph_add_op(g, phases && v->backward ? DLB_BACKWARD : DLB_FORWARD,
					  &(struct dlb_op_spec){ .name = unique_name(v, taken, &g->arena),
								 .type = v->type ? v->type : "Layer",
								 .domain = domain, .in = &in[start[i]],
								 .n_in = start[i + 1] - start[i],
								 .out = &made_by[i], .n_out = made_by[i] >= 0,
								 .attr = attr, .n_attr = n_attr });
		if (v->colour >= 0 && first[v->colour] >= 0)
			g->op[op].colocate = first[v->colour];
		else if (v->colour >= 0)
			first[v->colour] = op;
	}
	json_decref(taken);
	rc = dlb_graph_index(g) ? dlb_fail(err, NULL, "a tensor has two producers") : dlb_graph_sort(g, err);
	if (rc == 0)
		rc = dlb_graph_check(g, err);
	free(edge);
	free(made_by);
	free(in);
	free(start);
	free(first);
	return rc;
}

static void make_cluster(const struct dlb_network *net, struct dlb_cluster *cl)
{
	dlb_cluster_init(cl);
	cl->link_model = DLB_LINKS_PORT;
	int box = dlb_cluster_add_group(cl, "box", "host", -1);
	if (net->n_accelerators) {
		int kind = dlb_cluster_add_kind(cl, DLB_KIND_ACCELERATOR, 1);
		cl->kind[kind].memory_bytes = net->memory_bytes;
		for (int i = 0; i < net->n_accelerators; i++)
			dlb_cluster_add_node(cl, kind, box, "box", i);
	}
	if (net->n_hosts) {
		int kind = dlb_cluster_add_kind(cl, DLB_KIND_HOST, 1);
		cl->kind[kind].free_port = true;
		for (int i = 0; i < net->n_hosts; i++)
			dlb_cluster_add_node(cl, kind, box, "box", i);
	}
}

/* Finds the vertex of each op by its unique id: sorting changed the order. */
static int *vertices_of(const struct dlb_network *net, const struct dlb_graph *g)
{
	int *at = dlb_xcalloc((size_t)g->n_ops + 1, sizeof *at);
	json_t *index = json_object();
	char key[32];
	for (int i = 0; i < net->n_vertices; i++) {
		snprintf(key, sizeof key, "%lld", (long long)net->vertex[i].id);
		dlb_set_int(index, key, i);
	}
	for (int i = 0; i < g->n_ops; i++) {
		snprintf(key, sizeof key, "%lld",
			 (long long)dlb_attr_find(g->op[i].attr, g->op[i].n_attr, "id")->i);
		at[i] = (int)json_integer_value(json_object_get(index, key));
	}
	json_decref(index);
	return at;
}

static void make_cost(const struct dlb_network *net, const struct dlb_graph *g, const struct dlb_cluster *cl,
		      struct dlb_cost *c)
{
	*c = (struct dlb_cost){
		.n_ops = g->n_ops, .n_kinds = cl->n_kinds, .n_batches = 1, .graph = g, .cluster = cl
	};
	c->batch = dlb_arena_array(&c->arena, 1, sizeof *c->batch);
	c->batch[0] = 1;
	c->update_scale = 1;
	dlb_cost_make_arrays(c);
	int *at = vertices_of(net, g);
	for (int k = 0; k < c->n_kinds; k++) {
		c->accumulate_Bps[k] = 1e10;
		c->fit_error[k] = c->profile_step_s[k] = c->step_spread[k] = NAN;
		for (int i = 0; i < c->n_ops; i++) {
			const struct dlb_vertex *v = &net->vertex[at[i]];
			c->op_s[k * c->n_ops + i] = cl->kind[k].free_port ? v->host_s : v->accelerator_s;
		}
	}
	for (int i = 0; i < c->n_ops; i++) {
		c->output_s[i] = net->vertex[at[i]].output_s;
		c->resident_bytes[i] = net->vertex[at[i]].size_bytes;
	}
	free(at);
}

int dlb_network_import(const struct dlb_network *net, struct dlb_doc *d, struct dlb_error *err)
{
	static const char *const inputs[] = { "graph", "cluster", NULL };
	struct dlb_graph g;
	struct dlb_cluster cl = { .n_nodes = 0 };
	struct dlb_cost c = { .n_ops = 0 };
	int rc = -1;

	dlb_graph_init(&g);
	if (!net->n_vertices) {
		dlb_fail(err, NULL, "there are no vertices");
		goto out;
	}
	if (!net->n_accelerators && !net->n_hosts) {
		dlb_fail(err, NULL, "there are neither accelerators nor host cores");
		goto out;
	}
	if (make_graph(net, &g, err))
		goto out;
	make_cluster(net, &cl);
	make_cost(net, &g, &cl, &c);
	dlb_doc_set(d, "graph", dlb_graph_write(&g));
	dlb_doc_set(d, "cluster", dlb_cluster_write(&cl));
	json_t *cost = dlb_cost_write(&c);
	json_object_set_new(cost, "inputs", dlb_doc_input_hashes(d, inputs));
	dlb_doc_set(d, "cost", cost);
	rc = 0;
out:
	dlb_cost_release(&c);
	dlb_cluster_release(&cl);
	dlb_graph_release(&g);
	return rc;
}
