/* Reads and writes the cluster section. Rows refer to kinds, groups and links by name, so
 * nodes are easy to add by hand:
 *
 *     {"kinds":   [{"name":"cpu", "backend":"cpu", "threads":1, "peak_flops":..., "bandwidth_Bps":...}],
 *      "links":   [{"name":"shm:h0", "class":"shm", "latency_s":1e-6, "bandwidth_Bps":6e9, "overlap":false}],
 *      "groups":  [{"name":"h0", "class":"host", "parent":"r0", "inside":"shm:h0", "up":"rack:h0"}],
 *      "nodes":   [{"id":0, "kind":"cpu", "group":"h0", "speed":1, "host":"h0", "device":0}],
 *      "memories":[{"name":"dram0", "class":"dram", "group":"h0", "bytes":...}],
 *      "hosts":   [{"name":"h0", "address":"10.0.0.7", "user":"me", "slots":4}]}
 *
 * A file for dlb-costmodel -c may have "kinds" and a text in place of the other lists, which are then made
 * from the text:
 *
 *     {"kinds": [...], "synthetic": "16(rack 8(host cpu/4:2)) link=rack:1e-5,1.25e9"}
 *
 * The writer omits members with default values (0, unknown, none; "duplex" equal to "overlap"). */
#include "cluster/cluster.h"
#include "util/input.h"
#include "util/share.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ROWS = 1 << 20, MAX_CORES = 1 << 16 };

static const char *const link_models[] = { [DLB_LINKS_ROUTES] = "routes", [DLB_LINKS_PORT] = "port", NULL };

static void set_known(json_t *o, const char *key, double x)
{
	if (x > 0)
		dlb_set_number(o, key, x);
}

static json_t *write_kinds(const struct dlb_cluster *c)
{
	json_t *a = json_array();

	for (int i = 0; i < c->n_kinds; i++) {
		const struct dlb_device_kind *k = &c->kind[i];
		json_t *o = json_object();
		dlb_set_str(o, "name", k->name);
		dlb_set_str(o, "backend", k->backend);
		dlb_set_int(o, "threads", k->threads);
		dlb_set_str(o, "device", k->device);
		set_known(o, "peak_flops", k->peak_flops);
		set_known(o, "peak_bf16_flops", k->peak_bf16_flops);
		set_known(o, "bandwidth_Bps", k->bandwidth_Bps);
		set_known(o, "memory_bytes", k->memory_bytes);
		if (k->free_port)
			json_object_set_new(o, "free_port", json_true());
		set_known(o, "launch_s", k->launch_s);
		if (k->n_efficiency) {
			json_t *e = json_object();
			for (int j = 0; j < k->n_efficiency; j++)
				json_object_set_new(e, k->efficiency[j].work,
						    json_pack("{sfsf}", "flops", k->efficiency[j].flops,
							      "bandwidth", k->efficiency[j].bandwidth));
			json_object_set_new(o, "efficiency", e);
		}
		if (k->n_without) {
			json_t *w = json_array();
			for (int j = 0; j < k->n_without; j++)
				json_array_append_new(w, json_string(k->without[j]));
			json_object_set_new(o, "without", w);
		}
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_links(const struct dlb_cluster *c)
{
	json_t *a = json_array();

	for (int i = 0; i < c->n_links; i++) {
		const struct dlb_link *l = &c->link[i];
		json_t *o = json_object();
		dlb_set_str(o, "name", l->name);
		dlb_set_str(o, "class", l->cls);
		dlb_set_real(o, "latency_s", l->latency_s);
		dlb_set_number(o, "bandwidth_Bps", l->bandwidth_Bps);
		dlb_set_bool(o, "overlap", l->overlap);
		if (l->duplex != l->overlap)
			dlb_set_bool(o, "duplex", l->duplex);
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_groups(const struct dlb_cluster *c)
{
	json_t *a = json_array();

	for (int i = 0; i < c->n_groups; i++) {
		const struct dlb_group *g = &c->group[i];
		json_t *o = json_object();
		dlb_set_str(o, "name", g->name);
		dlb_set_str(o, "class", g->cls);
		dlb_set_str(o, "parent", g->parent < 0 ? NULL : c->group[g->parent].name);
		dlb_set_str(o, "inside", g->inside < 0 ? NULL : c->link[g->inside].name);
		dlb_set_str(o, "up", g->up < 0 ? NULL : c->link[g->up].name);
		dlb_set_str(o, "processor", g->processor);
		if (g->cores)
			dlb_set_int(o, "cores", g->cores);
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_nodes(const struct dlb_cluster *c)
{
	json_t *a = json_array();

	for (int i = 0; i < c->n_nodes; i++) {
		const struct dlb_node *n = &c->node[i];
		json_t *o = json_object();
		dlb_set_int(o, "id", i);
		dlb_set_str(o, "kind", c->kind[n->kind].name);
		dlb_set_str(o, "group", c->group[n->group].name);
		dlb_set_number(o, "speed", n->speed);
		set_known(o, "memory_bytes", n->memory_bytes);
		dlb_set_str(o, "host", n->host);
		dlb_set_int(o, "device", n->device);
		if (n->n_memories == 1)
			dlb_set_str(o, "memory", c->memory[n->memory[0]].name);
		if (n->n_memories > 1) {
			json_t *names = json_array();

			for (int k = 0; k < n->n_memories; k++)
				json_array_append_new(names, json_string(c->memory[n->memory[k]].name));
			json_object_set_new(o, "memory", names);
		}
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_memories(const struct dlb_cluster *c)
{
	json_t *a = json_array();

	for (int i = 0; i < c->n_memories; i++) {
		const struct dlb_memory *m = &c->memory[i];
		json_t *o = json_object();
		dlb_set_str(o, "name", m->name);
		dlb_set_str(o, "class", m->cls);
		dlb_set_str(o, "folder", m->folder);
		dlb_set_str(o, "group", c->group[m->group].name);
		if (m->os_index >= 0)
			dlb_set_int(o, "os_index", m->os_index);
		dlb_set_number(o, "bytes", m->bytes);
		if (m->count != 1)
			dlb_set_int(o, "count", m->count);
		set_known(o, "bandwidth_Bps", m->bandwidth_Bps);
		set_known(o, "latency_s", m->latency_s);
		if (m->link >= 0)
			dlb_set_str(o, "link", c->link[m->link].name);
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *write_hosts(const struct dlb_cluster *c)
{
	json_t *a = json_array();

	for (int i = 0; i < c->n_hosts; i++) {
		json_t *o = json_object();
		dlb_set_str(o, "name", c->host[i].name);
		dlb_set_str(o, "address", c->host[i].address);
		dlb_set_str(o, "user", c->host[i].user);
		dlb_set_int(o, "slots", c->host[i].slots);
		json_array_append_new(a, o);
	}
	return a;
}

json_t *dlb_cluster_write(const struct dlb_cluster *c)
{
	json_t *o = json_object();

	if (c->link_model != DLB_LINKS_ROUTES)
		dlb_set_str(o, "link_model", link_models[c->link_model]);
	json_object_set_new(o, "kinds", write_kinds(c));
	json_object_set_new(o, "links", write_links(c));
	json_object_set_new(o, "groups", write_groups(c));
	json_object_set_new(o, "nodes", write_nodes(c));
	if (c->n_memories)
		json_object_set_new(o, "memories", write_memories(c));
	if (c->n_hosts)
		json_object_set_new(o, "hosts", write_hosts(c));
	return o;
}

/* ---- reading ---- */

struct cluster_reader {
	struct dlb_cluster *c;
	struct dlb_error *err;
	json_t *kinds, *groups, *links;		/* name -> index */
};

/* Gets the array `key` of r and checks its length. An absent array counts as empty. */
static int get_rows(struct cluster_reader *rd, const struct dlb_ref *r, const char *key, int opt,
		    struct dlb_ref *rows, int *n)
{
	*n = 0;
	rows->v = NULL;
	if (dlb_get_array(r, key, opt, rows, n, rd->err))
		return -1;
	if (*n > MAX_ROWS)
		return dlb_ref_fail(rows, rd->err, "more than %d rows", MAX_ROWS);
	return 0;
}

/* Records the name of row i in its table; a repeated name is an error. */
static int note_name(struct cluster_reader *rd, const struct dlb_ref *row, json_t *table, int i,
		     const char **name)
{
	const char *s;

	if (!json_is_object(row->v))
		return dlb_ref_fail(row, rd->err, "an object is expected");
	if (dlb_get_str(row, "name", DLB_NEED, &s, rd->err))
		return -1;
	if (json_object_get(table, s))
		return dlb_ref_fail(row, rd->err, "the name '%s' is taken", s);
	dlb_set_int(table, s, i);
	*name = dlb_arena_strdup(&rd->c->arena, s);
	return 0;
}

/* Turns member `key`, a name in `table`, into its index; leaves -1 if it is absent and optional. */
static int get_name(struct cluster_reader *rd, const struct dlb_ref *row, const char *key, int opt,
		    const json_t *table, const char *what, int *out)
{
	const char *s = NULL;

	*out = -1;
	if (dlb_get_str(row, key, opt, &s, rd->err))
		return -1;
	if (!s)
		return 0;
	json_t *v = json_object_get(table, s);
	if (v) {
		*out = (int)json_integer_value(v);
		return 0;
	}
	struct dlb_ref at = dlb_ref_at(row, key);
	dlb_ref_fail(&at, rd->err, "no %s '%s'", what, s);
	const char *names[64];
	int n = 0;
	if (json_object_size(table) <= DLB_LEN(names))
		for (void *it = json_object_iter((json_t *)table); it;
		     it = json_object_iter_next((json_t *)table, it))
			names[n++] = json_object_iter_key(it);
	return dlb_hint_nearest(rd->err, s, names, n, NULL);
}

static int read_efficiencies(struct cluster_reader *rd, const struct dlb_ref *row, struct dlb_device_kind *k)
{
	static const char *const known[] = { "flops", "bandwidth", NULL };
	struct dlb_ref all = { .v = NULL };
	const char *work;
	json_t *v;

	if (dlb_get_object(row, "efficiency", DLB_OPT, &all, rd->err))
		return -1;
	k->efficiency = dlb_arena_array(&rd->c->arena, json_object_size(all.v) + 1, sizeof *k->efficiency);
	json_object_foreach(all.v, work, v) {
		struct dlb_ref r = dlb_ref_at(&all, work);
		struct dlb_efficiency *e = &k->efficiency[k->n_efficiency];
		if (!strncmp(work, "x-", 2))
			continue;
		if (!json_is_object(v))
			return dlb_ref_fail(&r, rd->err, "an object with flops and bandwidth is expected");
		if (dlb_ref_known(&r, known, rd->err) ||
		    dlb_get_real(&r, "flops", DLB_NEED, 1e-9, 1, &e->flops, rd->err) ||
		    dlb_get_real(&r, "bandwidth", DLB_NEED, 1e-9, 1, &e->bandwidth, rd->err))
			return -1;
		e->work = dlb_arena_strdup(&rd->c->arena, work);
		k->n_efficiency++;
	}
	return 0;
}

static int read_kinds(struct cluster_reader *rd, const struct dlb_ref *r)
{
	static const char *const known[] = { "name",          "backend",      "threads", "peak_flops",
					     "bandwidth_Bps", "memory_bytes", "without", "free_port",
					     "launch_s",      "efficiency",   "device",  "peak_bf16_flops", NULL };
	struct dlb_cluster *c = rd->c;
	struct dlb_ref rows, w;
	int n;

	if (get_rows(rd, r, "kinds", DLB_NEED, &rows, &n))
		return -1;
	c->kind = dlb_arena_array(&c->arena, (size_t)n + 1, sizeof *c->kind);
	for (int i = 0; i < n; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i);
		struct dlb_device_kind *k = &c->kind[i];
		const char *backend = NULL, *device = NULL;
		int64_t threads = 1;
		if (note_name(rd, &row, rd->kinds, i, &k->name) || dlb_ref_known(&row, known, rd->err) ||
		    dlb_get_str(&row, "backend", DLB_OPT, &backend, rd->err) ||
		    dlb_get_int(&row, "threads", DLB_OPT, 1, 1 << 16, &threads, rd->err) ||
		    dlb_get_str(&row, "device", DLB_OPT, &device, rd->err) ||
		    dlb_get_real(&row, "peak_flops", DLB_OPT, 0, 1e24, &k->peak_flops, rd->err) ||
		    dlb_get_real(&row, "peak_bf16_flops", DLB_OPT, 0, 1e24, &k->peak_bf16_flops, rd->err) ||
		    dlb_get_real(&row, "bandwidth_Bps", DLB_OPT, 0, 1e24, &k->bandwidth_Bps, rd->err) ||
		    dlb_get_real(&row, "memory_bytes", DLB_OPT, 0, 1e18, &k->memory_bytes, rd->err) ||
		    dlb_get_bool(&row, "free_port", DLB_OPT, &k->free_port, rd->err))
			return -1;
		/* the default of "backend" is the name up to the slash */
		k->backend = dlb_arena_strdup(&c->arena, backend ? backend : k->name);
		if (!backend)
			*((char *)k->backend + strcspn(k->backend, "/")) = '\0';
		k->threads = (int)threads;
		k->device = device ? dlb_arena_strdup(&c->arena, device) : NULL;
		if (dlb_get_real(&row, "launch_s", DLB_OPT, 0, 1e6, &k->launch_s, rd->err) ||
		    read_efficiencies(rd, &row, k))
			return -1;
		w.v = NULL;
		if (dlb_get_array(&row, "without", DLB_OPT, &w, &k->n_without, rd->err))
			return -1;
		k->without = dlb_arena_array(&c->arena, (size_t)k->n_without + 1, sizeof *k->without);
		for (int j = 0; j < k->n_without; j++) {
			struct dlb_ref e = dlb_ref_index(&w, j);
			if (!json_is_string(e.v))
				return dlb_ref_fail(&e, rd->err, "an op type or a class of work is expected");
			k->without[j] = dlb_arena_strdup(&c->arena, json_string_value(e.v));
		}
	}
	c->n_kinds = n;
	return 0;
}

static int read_links(struct cluster_reader *rd, const struct dlb_ref *r)
{
	static const char *const known[] = { "name",    "class",  "latency_s", "bandwidth_Bps",
					     "overlap", "duplex", NULL };
	struct dlb_cluster *c = rd->c;
	struct dlb_ref rows;
	int n;

	if (get_rows(rd, r, "links", DLB_OPT, &rows, &n))
		return -1;
	c->link = dlb_arena_array(&c->arena, (size_t)n + 1, sizeof *c->link);
	for (int i = 0; i < n; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i);
		struct dlb_link *l = &c->link[i];
		const char *cls = "";
		l->overlap = true;
		if (note_name(rd, &row, rd->links, i, &l->name) || dlb_ref_known(&row, known, rd->err) ||
		    dlb_get_str(&row, "class", DLB_OPT, &cls, rd->err) ||
		    dlb_get_real(&row, "latency_s", DLB_NEED, 0, 1e6, &l->latency_s, rd->err) ||
		    dlb_get_real(&row, "bandwidth_Bps", DLB_NEED, 1e-3, 1e24, &l->bandwidth_Bps, rd->err) ||
		    dlb_get_bool(&row, "overlap", DLB_OPT, &l->overlap, rd->err))
			return -1;
		l->duplex = l->overlap;
		if (dlb_get_bool(&row, "duplex", DLB_OPT, &l->duplex, rd->err))
			return -1;
		l->cls = dlb_arena_strdup(&c->arena, cls);
	}
	c->n_links = n;
	return 0;
}

/* Reads all names first, then the references, because a parent may follow its children in the list. */
static int read_groups(struct cluster_reader *rd, const struct dlb_ref *r)
{
	static const char *const known[] = { "name", "class",     "parent", "inside",
					     "up",   "processor", "cores",  NULL };
	struct dlb_cluster *c = rd->c;
	struct dlb_ref rows;
	int n;

	if (get_rows(rd, r, "groups", DLB_NEED, &rows, &n))
		return -1;
	c->group = dlb_arena_array(&c->arena, (size_t)n + 1, sizeof *c->group);
	for (int i = 0; i < n; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i);
		if (note_name(rd, &row, rd->groups, i, &c->group[i].name))
			return -1;
	}
	for (int i = 0; i < n; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i);
		struct dlb_group *g = &c->group[i];
		const char *cls = "", *processor = NULL;
		int64_t cores = 0;
		if (dlb_ref_known(&row, known, rd->err) ||
		    dlb_get_str(&row, "class", DLB_OPT, &cls, rd->err) ||
		    dlb_get_str(&row, "processor", DLB_OPT, &processor, rd->err) ||
		    dlb_get_int(&row, "cores", DLB_OPT, 1, MAX_CORES, &cores, rd->err) ||
		    get_name(rd, &row, "parent", DLB_OPT, rd->groups, "group", &g->parent) ||
		    get_name(rd, &row, "inside", DLB_OPT, rd->links, "link", &g->inside) ||
		    get_name(rd, &row, "up", DLB_OPT, rd->links, "link", &g->up))
			return -1;
		g->cls = dlb_arena_strdup(&c->arena, cls);
		g->processor = processor ? dlb_arena_strdup(&c->arena, processor) : NULL;
		g->cores = (int)cores;
	}
	c->n_groups = n;
	return 0;
}

static int read_nodes(struct cluster_reader *rd, const struct dlb_ref *r)
{
	static const char *const known[] = { "id",   "kind",   "group",  "speed", "memory_bytes",
					     "host", "device", "memory", NULL };
	struct dlb_cluster *c = rd->c;
	struct dlb_ref rows;
	int n;

	if (get_rows(rd, r, "nodes", DLB_NEED, &rows, &n))
		return -1;
	c->node = dlb_arena_array(&c->arena, (size_t)n + 1, sizeof *c->node);
	for (int i = 0; i < n; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i), at;
		struct dlb_node *d = &c->node[i];
		const char *host = NULL;
		int64_t id = i, device = 0;
		d->speed = 1.0;
		if (!json_is_object(row.v))
			return dlb_ref_fail(&row, rd->err, "an object is expected");
		if (dlb_ref_known(&row, known, rd->err) ||
		    dlb_get_int(&row, "id", DLB_OPT, 0, MAX_ROWS, &id, rd->err) ||
		    get_name(rd, &row, "kind", DLB_NEED, rd->kinds, "kind", &d->kind) ||
		    get_name(rd, &row, "group", DLB_NEED, rd->groups, "group", &d->group) ||
		    dlb_get_real(&row, "speed", DLB_OPT, 1e-9, 1e9, &d->speed, rd->err) ||
		    dlb_get_real(&row, "memory_bytes", DLB_OPT, 0, 1e18, &d->memory_bytes, rd->err) ||
		    dlb_get_str(&row, "host", DLB_OPT, &host, rd->err) ||
		    dlb_get_int(&row, "device", DLB_OPT, 0, MAX_ROWS, &device, rd->err))
			return -1;
		at = dlb_ref_at(&row, "id");
		if (id != i)
			return dlb_ref_fail(&at, rd->err, "node ids count from 0: %d is expected here", i);
		d->host = dlb_arena_strdup(&c->arena, host ? host : c->group[d->group].name);
		d->device = (int)device;
	}
	c->n_nodes = n;
	return 0;
}

static int read_memories(struct cluster_reader *rd, const struct dlb_ref *r)
{
	static const char *const known[] = { "name",      "class", "folder", "group",
					     "os_index",  "bytes", "count",  "bandwidth_Bps",
					     "latency_s", "link",  NULL };
	struct dlb_cluster *c = rd->c;
	struct dlb_ref rows;
	int n;

	if (get_rows(rd, r, "memories", DLB_OPT, &rows, &n))
		return -1;
	c->memory = dlb_arena_array(&c->arena, (size_t)n + 1, sizeof *c->memory);
	for (int i = 0; i < n; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i);
		struct dlb_memory *m = &c->memory[i];
		const char *name = "", *cls = "", *folder = NULL;
		int64_t count = 1, os_index = -1;
		if (!json_is_object(row.v))
			return dlb_ref_fail(&row, rd->err, "an object is expected");
		if (dlb_ref_known(&row, known, rd->err) ||
		    dlb_get_str(&row, "name", DLB_OPT, &name, rd->err) ||
		    dlb_get_str(&row, "class", DLB_OPT, &cls, rd->err) ||
		    dlb_get_str(&row, "folder", DLB_OPT, &folder, rd->err) ||
		    get_name(rd, &row, "group", DLB_NEED, rd->groups, "group", &m->group) ||
		    dlb_get_real(&row, "bytes", DLB_NEED, 0, 1e18, &m->bytes, rd->err) ||
		    dlb_get_int(&row, "count", DLB_OPT, 1, MAX_ROWS, &count, rd->err) ||
		    dlb_get_int(&row, "os_index", DLB_OPT, 0, MAX_ROWS, &os_index, rd->err) ||
		    dlb_get_real(&row, "bandwidth_Bps", DLB_OPT, 0, 1e24, &m->bandwidth_Bps, rd->err) ||
		    dlb_get_real(&row, "latency_s", DLB_OPT, 0, 1e6, &m->latency_s, rd->err) ||
		    get_name(rd, &row, "link", DLB_OPT, rd->links, "link", &m->link))
			return -1;
		m->name = dlb_arena_strdup(&c->arena, name);
		m->cls = dlb_arena_strdup(&c->arena, cls);
		m->folder = folder ? dlb_arena_strdup(&c->arena, folder) : NULL;
		if ((folder != NULL) != !strcmp(cls, DLB_MEMORY_FILE))
			return dlb_ref_fail(&row, rd->err,
					    "a memory of class file, and no other, has a folder");
		m->count = (int)count;
		m->os_index = (int)os_index;
	}
	c->n_memories = n;
	return 0;
}

static int read_home(struct cluster_reader *rd, const struct dlb_ref *at, struct dlb_node *d)
{
	struct dlb_cluster *c = rd->c;
	int k = 0;

	if (!json_is_string(at->v))
		return dlb_ref_fail(at, rd->err, "the name of a memory is expected");
	while (k < c->n_memories && strcmp(c->memory[k].name, json_string_value(at->v)))
		k++;
	if (k == c->n_memories)
		return dlb_ref_fail(at, rd->err, "no memory '%.100s'", json_string_value(at->v));
	if (c->memory[k].folder)
		return dlb_ref_fail(at, rd->err,
				    "memory '%.100s' is a file: buffers do not lie there, but dlb-place "
				    "--offload uses it",
				    c->memory[k].name);
	for (int i = 0; i < d->n_memories; i++)
		if (d->memory[i] == k)
			return dlb_ref_fail(at, rd->err, "memory '%.100s' is named twice",
					    json_string_value(at->v));
	if (d->n_memories == DLB_MAX_MEMORIES)
		return dlb_ref_fail(at, rd->err, "a node has at most %d memories", DLB_MAX_MEMORIES);
	d->memory[d->n_memories++] = k;
	c->memory[k].users++;
	return 0;
}

/* Reads the member "memory" of the nodes: the name of the memory of their buffers, or a list of names. It is
 * read after the memories, which are read after the nodes. */
static int read_homes(struct cluster_reader *rd, const struct dlb_ref *r)
{
	struct dlb_ref rows = dlb_ref_at(r, "nodes");

	for (int i = 0; i < rd->c->n_nodes; i++) {
		struct dlb_ref row = dlb_ref_index(&rows, i), at = dlb_ref_at(&row, "memory");
		int n = json_is_array(at.v) ? (int)json_array_size(at.v) : 0;

		if (at.v && !json_is_array(at.v) && read_home(rd, &at, &rd->c->node[i]))
			return -1;
		for (int k = 0; k < n; k++) {
			struct dlb_ref one = dlb_ref_index(&at, k);

			if (read_home(rd, &one, &rd->c->node[i]))
				return -1;
		}
	}
	return 0;
}

/* Checks a word that is written to mpiexec's host file: it may contain no characters with a meaning there. */
static int check_word(const struct cluster_reader *rd, const struct dlb_ref *row, const char *key,
		      const char *s)
{
	static const char good[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
	const struct dlb_ref at = dlb_ref_at(row, key);

	if (*s && *s != '-' && strspn(s, good) == strlen(s))
		return 0;
	return dlb_ref_fail(&at, rd->err, "letters, digits, dots, colons, - and _ are expected, not '%.80s'",
			    s);
}

static int read_hosts(struct cluster_reader *rd, const struct dlb_ref *r)
{
	static const char *const known[] = { "name", "address", "user", "slots", NULL };
	struct dlb_ref rows;
	int n;

	if (get_rows(rd, r, "hosts", DLB_OPT, &rows, &n))
		return -1;
	for (int i = 0; i < n; i++) {
		const struct dlb_ref row = dlb_ref_index(&rows, i);
		const char *name, *address = NULL, *user = NULL;
		int64_t slots = 1;

		if (!json_is_object(row.v))
			return dlb_ref_fail(&row, rd->err, "an object is expected");
		if (dlb_ref_known(&row, known, rd->err) ||
		    dlb_get_str(&row, "name", DLB_NEED, &name, rd->err) ||
		    dlb_get_str(&row, "address", DLB_OPT, &address, rd->err) ||
		    dlb_get_str(&row, "user", DLB_OPT, &user, rd->err) ||
		    dlb_get_int(&row, "slots", DLB_OPT, 1, MAX_ROWS, &slots, rd->err) ||
		    check_word(rd, &row, "address", address ? address : name) ||
		    (user && check_word(rd, &row, "user", user)))
			return -1;
		dlb_cluster_add_host(rd->c, name, address ? address : name, user, (int)slots);
	}
	return 0;
}

/* If there is a list of hosts, it must contain the host of every node. */
static int check_hosts(struct cluster_reader *rd, const struct dlb_ref *r)
{
	const struct dlb_cluster *c = rd->c;
	const struct dlb_ref at = dlb_ref_at(r, "hosts");

	for (int i = 0; i < c->n_nodes && c->n_hosts; i++) {
		int h = 0;

		while (h < c->n_hosts && strcmp(c->host[h].name, c->node[i].host))
			h++;
		if (h == c->n_hosts) {
			dlb_ref_fail(&at, rd->err, "node %d is on host '%.80s', which is not in the list", i,
				     c->node[i].host);
			return dlb_hint(rd->err, "add it, or remove the list");
		}
	}
	return 0;
}

static int read_link_model(struct cluster_reader *rd, const struct dlb_ref *r)
{
	struct dlb_ref at = dlb_ref_at(r, "link_model");
	const char *s = link_models[DLB_LINKS_ROUTES];
	if (dlb_get_str(r, "link_model", DLB_OPT, &s, rd->err))
		return -1;
	for (int i = 0; i < DLB_N_LINK_MODELS; i++) {
		if (!strcmp(s, link_models[i])) {
			rd->c->link_model = (enum dlb_link_model)i;
			return 0;
		}
	}
	return dlb_ref_fail(&at, rd->err, "no link model '%s'; there are routes and port", s);
}

/* Reads the kinds, then nodes, groups and links from the text. */
static int read_synthetic(struct cluster_reader *rd, const struct dlb_ref *r)
{
	static const char *const known[] = { "kinds", "synthetic", NULL };
	const struct dlb_ref at = dlb_ref_at(r, "synthetic");
	const char *text;

	if (dlb_ref_known(r, known, rd->err))
		return dlb_hint(rd->err, "'synthetic' describes all but the kinds");
	if (dlb_get_str(r, "synthetic", DLB_NEED, &text, rd->err) || read_kinds(rd, r))
		return -1;
	if (!rd->c->n_kinds)
		return dlb_ref_fail(&at, rd->err, "the list of kinds is empty");
	if (!dlb_cluster_build(rd->c, text, rd->err))
		return 0;
	return dlb_error_at(rd->err, r->doc ? r->doc : "document");
}

static int read_lists(struct cluster_reader *rd, const struct dlb_ref *r)
{
	static const char *const known[] = { "link_model", "kinds",    "links", "groups",
					     "nodes",      "memories", "hosts", NULL };

	if (dlb_ref_known(r, known, rd->err) || read_link_model(rd, r) || read_kinds(rd, r) ||
	    read_links(rd, r) || read_groups(rd, r) || read_nodes(rd, r) || read_memories(rd, r) ||
	    read_homes(rd, r) || read_hosts(rd, r) || check_hosts(rd, r))
		return -1;
	if (!dlb_cluster_check(rd->c, rd->err))
		return 0;
	if (r->doc)
		dlb_error_at(rd->err, r->doc);
	return -1;
}

int dlb_cluster_read_section(const struct dlb_ref *r, struct dlb_cluster *c, struct dlb_error *err)
{
	struct cluster_reader rd = {
		.c = c, .err = err, .kinds = json_object(), .groups = json_object(), .links = json_object()
	};
	int rc;

	dlb_cluster_init(c);
	if (!json_is_object(r->v))
		rc = dlb_ref_fail(r, err, "an object is expected");
	else
		rc = json_object_get(r->v, "synthetic") ? read_synthetic(&rd, r) : read_lists(&rd, r);
	json_decref(rd.kinds);
	json_decref(rd.groups);
	json_decref(rd.links);
	if (rc)
		dlb_cluster_release(c);
	return rc;
}

int dlb_cluster_read(const struct dlb_doc *d, struct dlb_cluster *c, struct dlb_error *err)
{
	json_t *section;

	if (dlb_doc_need(d, "cluster", &section, err))
		return -1;
	struct dlb_ref r = dlb_ref_root(d, "cluster"), at = dlb_ref_at(&r, "synthetic");
	if (at.v) {
		dlb_ref_fail(&at, err, "the nodes are not written out");
		return dlb_hint(err, "give the file as dlb-costmodel -c FILE, which does so");
	}
	if (dlb_cluster_read_section(&r, c, err))
		return -1;
	for (int i = 0; i < c->n_links; i++)
		c->link[i].stated_Bps = c->link[i].bandwidth_Bps;
	return 0;
}

int dlb_cluster_correct_links(const struct dlb_doc *d, struct dlb_cluster *c, struct dlb_error *err)
{
	struct dlb_ref balance = dlb_ref_root(d, "balance"), list = { .v = NULL };
	int n = 0;

	for (int i = 0; i < c->n_links; i++)
		c->link[i].bandwidth_Bps = c->link[i].stated_Bps;
	if (!json_is_object(balance.v)) /* dlb_balance_read reports a section of another type */
		return 0;
	if (dlb_get_array(&balance, "links", DLB_OPT, &list, &n, err))
		return -1;
	for (int i = 0; i < n; i++) {
		const struct dlb_ref row = dlb_ref_index(&list, i);
		double factor;
		int64_t link;

		if (dlb_get_int(&row, "link", DLB_NEED, 0, c->n_links - 1, &link, err) ||
		    dlb_get_real(&row, "factor", DLB_NEED, 1e-9, 1e9, &factor, err))
			return -1;
		c->link[link].bandwidth_Bps = c->link[link].stated_Bps * factor;
	}
	return 0;
}

/* Returns the section (new) of a file: a copy of `from`, or if `from` is synthetic, c with the kinds and "x-"
 * members of `from`. The "x-" members of root are added. root: the document that contains the section; NULL:
 * none. */
static json_t *section_of(const struct dlb_cluster *c, json_t *from, json_t *root)
{
	const bool synthetic = json_object_get(from, "synthetic");
	json_t *section = synthetic ? dlb_cluster_write(c) : json_copy(from), *value;
	const char *key;

	if (synthetic)
		json_object_set(section, "kinds", json_object_get(from, "kinds"));
	json_object_foreach(from, key, value) if (synthetic && !strncmp(key, "x-", 2))
		json_object_set(section, key, value);
	json_object_foreach(root, key, value) if (!strncmp(key, "x-", 2) && !json_object_get(section, key))
		json_object_set(section, key, value);
	return section;
}

static int read_document(const char *text, size_t n, const char *path, struct dlb_cluster *c,
			 json_t **section, struct dlb_error *err)
{
	struct dlb_doc d;
	json_t *from;
	int rc;

	if (dlb_doc_parse(&d, text, n, path, err))
		return -1;
	const struct dlb_ref r = dlb_ref_root(&d, "cluster");

	rc = dlb_doc_need(&d, "cluster", &from, err) || dlb_cluster_read_section(&r, c, err) ? -1 : 0;
	if (!rc)
		*section = section_of(c, from, d.root);
	dlb_doc_release(&d);
	return rc;
}

static int read_file(const char *path, struct dlb_cluster *c, json_t **section, struct dlb_error *err)
{
	struct dlb_doc bare = { .root = NULL };
	json_error_t e;
	char where[300];
	char *text;
	size_t n;
	int rc;

	*section = NULL;
	if (dlb_input_read_text(path, '{', &text, &n, err))
		return -1;
	bare.root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
	if (!bare.root) {
		free(text);
		snprintf(where, sizeof where, "%.200s:%d:%d", path, e.line, e.column);
		return dlb_fail(err, where, "%s", e.text);
	}
	if (json_object_get(bare.root, "dlb")) {
		json_decref(bare.root);
		rc = read_document(text, n, path, c, section, err);
		free(text);
		return rc;
	}
	free(text);
	snprintf(bare.name, sizeof bare.name, "%s", path);
	struct dlb_ref r = { .v = bare.root, .index = -1, .doc = bare.name };
	rc = dlb_cluster_read_section(&r, c, err);
	if (!rc)
		*section = section_of(c, bare.root, NULL);
	dlb_doc_release(&bare);
	return rc;
}

int dlb_cluster_from(const char *file_or_text, struct dlb_cluster *c, json_t **section, struct dlb_error *err)
{
	size_t n = strlen(file_or_text);
	bool named_json = n > 5 && !strcmp(file_or_text + n - 5, ".json");

	char path[4096];

	if (!access(file_or_text, R_OK))
		return read_file(file_or_text, c, section, err);
	if (dlb_share_find("clusters", file_or_text, path, sizeof path))
		return read_file(path, c, section, err);
	if (named_json || *file_or_text == '/' || !strncmp(file_or_text, "./", 2) ||
	    !strncmp(file_or_text, "../", 3))
		return dlb_fail(err, NULL, "cannot open '%s': %s", file_or_text, strerror(errno));
	if (dlb_cluster_parse(file_or_text, c, err))
		return -1;
	*section = dlb_cluster_write(c);
	return 0;
}
