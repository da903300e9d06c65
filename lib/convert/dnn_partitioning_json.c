/* Files of msr-fiddle/dnn-partitioning (Tarnawski et al., Efficient Algorithms for Device Placement of DNN
 * Graph Operators, NeurIPS 2020).
 *
 *     {"maxSizePerFPGA": bytes, "maxFPGAs": k, "maxCPUs": l,
 *      "nodes": [{"id":1, "name":"conv1", "supportedOnFpga":1, "cpuLatency":ms, "fpgaLatency":ms,
 *                 "isBackwardNode":0, "colorClass":3, "size":bytes}],
 *      "edges": [{"sourceId":1, "destId":2, "cost":ms, "size":bytes}]}
 *
 * An edge's cost belongs to its source: the first edge sets it, and the others must agree within 1e-6.
 * Nodes of one colorClass share a device. A split is {"fpgas":[{"nodes":[ids]}, ...],
 * "cpus":[{"nodes":[ids]}, ...]}. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "convert/formats.h"
#include "convert/planned.h"
#include "plan/plan.h"

enum { MAX_NODES = 4096, MAX_VERTICES = 1 << 22 };

struct network_reader {
	struct dlb_network net;
	struct dlb_arena arena;
	json_t *index, *colours;		/* id, colour (as text) -> index */
	bool *has_cost;
	struct dlb_error *err;
};

/* Reads a boolean written as 1, 0, true or false. */
static int get_flag(struct network_reader *rd, const struct dlb_ref *r, const char *key, bool *out)
{
	struct dlb_ref at = dlb_ref_at(r, key);
	int64_t i = *out;
	if (at.v && json_is_boolean(at.v))
		return dlb_get_bool(r, key, DLB_NEED, out, rd->err);
	if (dlb_get_int(r, key, DLB_OPT, 0, 1, &i, rd->err))
		return -1;
	*out = i != 0;
	return 0;
}

/* Reads an integer that may be written as a real. */
static int get_whole(struct network_reader *rd, const struct dlb_ref *r, const char *key, double least,
		     double most, int64_t *out)
{
	double x = 0;
	struct dlb_ref at = dlb_ref_at(r, key);
	if (dlb_get_real(r, key, DLB_NEED, least, most, &x, rd->err))
		return -1;
	if (x != floor(x))
		return dlb_ref_fail(&at, rd->err, "an integer is expected");
	*out = (int64_t)x;
	return 0;
}

static int read_colour(struct network_reader *rd, const struct dlb_ref *r, int *colour)
{
	struct dlb_ref at = dlb_ref_at(r, "colorClass");
	char number[32], *key = number;
	*colour = -1;
	if (!at.v || json_is_null(at.v))
		return 0;
	if (json_is_string(at.v))
		key = dlb_xprintf("s%s", json_string_value(at.v));
	else if (json_is_number(at.v))
		snprintf(number, sizeof number, "n%.17g", json_number_value(at.v));
	else
		return dlb_ref_fail(&at, rd->err, "a colour is a number or a string");
	json_t *known = json_object_get(rd->colours, key);
	if (!known) {
		known = json_integer((json_int_t)json_object_size(rd->colours));
		json_object_set_new(rd->colours, key, known);
	}
	*colour = (int)json_integer_value(known);
	if (key != number)
		free(key);
	return 0;
}

static int read_vertex(struct network_reader *rd, const struct dlb_ref *r, int i)
{
	struct dlb_vertex *v = &rd->net.vertex[i];
	double cpu_ms, acc_ms;
	const char *name = "";
	bool supported = true;
	char key[32];
	struct dlb_ref at = dlb_ref_at(r, "id");

	if (!json_is_object(r->v))
		return dlb_ref_fail(r, rd->err, "an object is expected");
	if (get_whole(rd, r, "id", -0x1p53, 0x1p53, &v->id) ||
	    dlb_get_real(r, "cpuLatency", DLB_NEED, 0, 1e15, &cpu_ms, rd->err) ||
	    dlb_get_real(r, "fpgaLatency", DLB_NEED, 0, 1e15, &acc_ms, rd->err) ||
	    get_flag(rd, r, "supportedOnFpga", &supported) ||
	    get_flag(rd, r, "isBackwardNode", &v->backward) ||
	    dlb_get_real(r, "size", DLB_OPT, 0, 1e18, &v->size_bytes, rd->err) ||
	    dlb_get_str(r, "name", DLB_OPT, &name, rd->err) || read_colour(rd, r, &v->colour))
		return -1;
	snprintf(key, sizeof key, "%lld", (long long)v->id);
	if (json_object_get(rd->index, key))
		return dlb_ref_fail(&at, rd->err, "the id %s is taken", key);
	dlb_set_int(rd->index, key, i);
	v->name = name;
	v->host_s = cpu_ms / 1e3;
	v->accelerator_s = supported ? acc_ms / 1e3 : INFINITY;
	return 0;
}

static int read_end(struct network_reader *rd, const struct dlb_ref *r, const char *key, int *out)
{
	int64_t id = 0;
	char text[32];
	struct dlb_ref at = dlb_ref_at(r, key);
	if (get_whole(rd, r, key, -0x1p53, 0x1p53, &id))
		return -1;
	snprintf(text, sizeof text, "%lld", (long long)id);
	json_t *v = json_object_get(rd->index, text);
	if (!v)
		return dlb_ref_fail(&at, rd->err, "no node with the id %s", text);
	*out = (int)json_integer_value(v);
	return 0;
}

static int read_edge(struct network_reader *rd, const struct dlb_ref *r, int i)
{
	struct dlb_edge *e = &rd->net.edge[i];
	double cost_ms, size = 0;
	struct dlb_ref at = dlb_ref_at(r, "cost");

	if (!json_is_object(r->v))
		return dlb_ref_fail(r, rd->err, "an object is expected");
	if (read_end(rd, r, "sourceId", &e->from) || read_end(rd, r, "destId", &e->to) ||
	    dlb_get_real(r, "cost", DLB_NEED, 0, 1e15, &cost_ms, rd->err) ||
	    dlb_get_real(r, "size", DLB_OPT, 0, 1e18, &size, rd->err))
		return -1;
	struct dlb_vertex *v = &rd->net.vertex[e->from];
	if (!rd->has_cost[e->from]) {
		rd->has_cost[e->from] = true;
		v->output_s = cost_ms / 1e3;
		v->output_bytes = size;
	} else if (fabs(v->output_s * 1e3 - cost_ms) > 1e-6 * (1 + 1e-9)) {
		return dlb_ref_fail(&at, rd->err,
				    "the output of node %lld costs %.9g ms here, %.9g ms in an edge before",
				    (long long)v->id, cost_ms, v->output_s * 1e3);
	}
	return 0;
}

static int read_file(struct network_reader *rd, const struct dlb_ref *r)
{
	struct dlb_ref nodes, edges;
	int64_t k = 0, l = 0;
	int n;

	if (!json_is_object(r->v))
		return dlb_ref_fail(r, rd->err, "an object is expected");
	if (get_whole(rd, r, "maxFPGAs", 0, MAX_NODES, &k) || get_whole(rd, r, "maxCPUs", 0, MAX_NODES, &l) ||
	    dlb_get_real(r, "maxSizePerFPGA", DLB_NEED, 0, 1e18, &rd->net.memory_bytes, rd->err) ||
	    dlb_get_array(r, "nodes", DLB_NEED, &nodes, &n, rd->err))
		return -1;
	if (n > MAX_VERTICES)
		return dlb_ref_fail(&nodes, rd->err, "more than %d nodes", MAX_VERTICES);
	rd->net.n_accelerators = (int)k;
	rd->net.n_hosts = (int)l;
	rd->net.n_vertices = n;
	rd->net.vertex = dlb_arena_array(&rd->arena, (size_t)n + 1, sizeof *rd->net.vertex);
	rd->has_cost = dlb_arena_array(&rd->arena, (size_t)n + 1, sizeof *rd->has_cost);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&nodes, i);
		if (read_vertex(rd, &e, i))
			return -1;
	}
	if (dlb_get_array(r, "edges", DLB_NEED, &edges, &n, rd->err))
		return -1;
	rd->net.n_edges = n;
	rd->net.edge = dlb_arena_array(&rd->arena, (size_t)n + 1, sizeof *rd->net.edge);
	for (int i = 0; i < n; i++) {
		struct dlb_ref e = dlb_ref_index(&edges, i);
		if (read_edge(rd, &e, i))
			return -1;
	}
	return 0;
}

int dlb_import_dnn_partitioning(const char *text, size_t n, const char *name,
				const struct dlb_convert_options *o, struct dlb_doc *d, struct dlb_error *err)
{
	json_error_t e;
	char where[300];
	struct network_reader rd = { .err = err };
	(void)o;
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	if (!root) {
		snprintf(where, sizeof where, "%.200s:%d:%d", name, e.line, e.column);
		return dlb_fail(err, where, "%s", e.text);
	}
	rd.index = json_object();
	rd.colours = json_object();
	struct dlb_ref r = { .v = root, .index = -1, .doc = name };
	int rc = read_file(&rd, &r);
	if (rc == 0 && dlb_network_import(&rd.net, d, err))
		rc = dlb_error_at(err, name);
	json_decref(rd.index);
	json_decref(rd.colours);
	json_decref(root);
	dlb_arena_release(&rd.arena);
	return rc;
}

/* ---- a plan to a split ---- */

static json_t *devices(const struct dlb_plan *p, const struct dlb_graph *g, const struct dlb_cluster *cl,
		       bool host)
{
	json_t *list = json_array();
	int *at = dlb_xcalloc((size_t)cl->n_nodes + 1, sizeof *at), n = 0;
	for (int d = 0; d < cl->n_nodes; d++) {
		if (cl->kind[cl->node[d].kind].free_port != host)
			continue;
		at[d] = ++n;
		json_array_append_new(list, json_pack("{s:[]}", "nodes"));
	}
	for (int i = 0; i < p->n_ops; i++) {
		const struct dlb_attr *id = dlb_attr_find(g->op[i].attr, g->op[i].n_attr, "id");
		int k = at[p->placement[i]];
		if (k)
			json_array_append_new(json_object_get(json_array_get(list, (size_t)k - 1), "nodes"),
					      json_integer(id && id->type == DLB_ATTR_INT ? id->i : i));
	}
	free(at);
	return list;
}

char *dlb_export_dnn_partitioning(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n,
				  struct dlb_error *err)
{
	struct dlb_planned x;
	struct dlb_text t = { .n = 0 };
	(void)o;
	if (dlb_planned_read(d, &x, err))
		return NULL;
	json_t *split = json_object();
	json_object_set_new(split, "fpgas", devices(&x.p, &x.g, &x.cl, false));
	json_object_set_new(split, "cpus", devices(&x.p, &x.g, &x.cl, true));
	char *text = json_dumps(split, JSON_COMPACT);
	dlb_text_add(&t, "%s\n", text);
	free(text);
	json_decref(split);
	dlb_planned_release(&x);
	*n = t.n;
	return t.s;
}
