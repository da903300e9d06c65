/* Data of the page: the cluster. */
#include "view/page.h"
#include <math.h>

static double known(double x)
{
	return x > 0 ? x : NAN;
}

static void kinds(const struct dlb_cluster *c, struct dlb_emit *e)
{
	dlb_emit_open(e, "kinds", '[');
	for (int i = 0; i < c->n_kinds; i++) {
		const struct dlb_device_kind *k = &c->kind[i];

		dlb_emit_open(e, NULL, '{');
		dlb_emit_str(e, "name", k->name);
		dlb_emit_str(e, "backend", k->backend);
		dlb_emit_int(e, "threads", k->threads);
		dlb_emit_real(e, "peak_flops", known(k->peak_flops));
		dlb_emit_real(e, "bandwidth_Bps", known(k->bandwidth_Bps));
		dlb_emit_real(e, "memory_bytes", known(k->memory_bytes));
		dlb_emit_open(e, "without", '[');
		for (int j = 0; j < k->n_without; j++)
			dlb_emit_str(e, NULL, k->without[j]);
		dlb_emit_close(e, ']');
		dlb_emit_close(e, '}');
	}
	dlb_emit_close(e, ']');
}

static void nodes(const struct dlb_cluster *c, struct dlb_emit *e)
{
	dlb_emit_open(e, "nodes", '[');
	for (int i = 0; i < c->n_nodes; i++) {
		const struct dlb_node *n = &c->node[i];

		dlb_emit_open(e, NULL, '{');
		dlb_emit_int(e, "kind", n->kind);
		dlb_emit_int(e, "group", n->group);
		dlb_emit_real(e, "speed", n->speed);
		dlb_emit_real(e, "memory_bytes", dlb_cluster_node_memory(c, i));
		dlb_emit_str(e, "host", n->host);
		dlb_emit_open(e, "memories", '[');
		for (int k = 0; k < n->n_memories; k++)
			dlb_emit_int(e, NULL, n->memory[k]);
		dlb_emit_close(e, ']');
		dlb_emit_close(e, '}');
	}
	dlb_emit_close(e, ']');
}

static void groups_and_links(const struct dlb_cluster *c, struct dlb_emit *e)
{
	dlb_emit_open(e, "groups", '[');
	for (int i = 0; i < c->n_groups; i++) {
		dlb_emit_open(e, NULL, '{');
		dlb_emit_str(e, "name", c->group[i].name);
		dlb_emit_str(e, "class", c->group[i].cls);
		dlb_emit_int(e, "parent", c->group[i].parent);
		dlb_emit_int(e, "inside", c->group[i].inside);
		dlb_emit_int(e, "up", c->group[i].up);
		dlb_emit_close(e, '}');
	}
	dlb_emit_close(e, ']');
	dlb_emit_open(e, "links", '[');
	for (int i = 0; i < c->n_links; i++) {
		dlb_emit_open(e, NULL, '{');
		dlb_emit_str(e, "name", c->link[i].name);
		dlb_emit_str(e, "class", c->link[i].cls);
		dlb_emit_real(e, "latency_s", c->link[i].latency_s);
		dlb_emit_real(e, "bandwidth_Bps", c->link[i].stated_Bps);
		dlb_emit_bool(e, "overlap", c->link[i].overlap);
		dlb_emit_bool(e, "duplex", c->link[i].duplex);
		dlb_emit_close(e, '}');
	}
	dlb_emit_close(e, ']');
}

static void memories(const struct dlb_cluster *c, struct dlb_emit *e)
{
	dlb_emit_open(e, "memories", '[');
	for (int i = 0; i < c->n_memories; i++) {
		dlb_emit_open(e, NULL, '{');
		dlb_emit_str(e, "name", c->memory[i].name);
		dlb_emit_str(e, "class", c->memory[i].cls);
		dlb_emit_int(e, "group", c->memory[i].group);
		dlb_emit_int(e, "count", c->memory[i].count);
		dlb_emit_real(e, "bytes", known(c->memory[i].bytes));
		dlb_emit_real(e, "bandwidth_Bps", known(c->memory[i].bandwidth_Bps));
		dlb_emit_close(e, '}');
	}
	dlb_emit_close(e, ']');
}

void dlb_page_cluster(const struct dlb_view *v, struct dlb_emit *e)
{
	if (!v->has_cluster)
		return;
	dlb_emit_open(e, "cluster", '{');
	kinds(&v->cluster, e);
	nodes(&v->cluster, e);
	groups_and_links(&v->cluster, e);
	memories(&v->cluster, e);
	dlb_emit_close(e, '}');
}
