/* The cluster data structure: adding rows, checking invariants, routes and transfer times. */
#include "cluster/cluster.h"
#include <math.h>
#include <string.h>
#include "op/op.h"

enum { MAX_DEPTH = 8 };		/* of the group tree: a route has at most 7 links up, 1 across and 7 down */

/* Default figures of each class of link, used until measured: shared memory of one host (one copy by the
 * sender, who is busy meanwhile), a 10 Gbit/s switch, a link between sites. */
static const struct dlb_link_class link_classes[] = {
	{ "device", 1e-7, 2e10, false, false },
	{ "socket", 5e-7, 8e9, false, false },
	{ "shm", 1e-6, 6e9, false, false },
	{ "cxl", 1e-6, 2e10, false, false },
	{ "pcie", 5e-6, 1.2e10, true, false },
	{ "nvlink", 3e-6, 1.5e11, true, false },
	{ "host", 1e-6, 6e9, false, false },
	{ "rack", 1e-5, 1.25e9, true, false },
	{ "site", 1e-4, 1.25e9, true, false },
	{ NULL, 0, 0, false, false },
};

/* Default figures of back ends other than cpu (a 2018 data-centre GPU, single precision): with them a plan
 * for a synthetic cluster can be made without the device. They are written into the document and can be
 * edited. */
static const struct { const char *backend; double peak_flops, bandwidth_Bps, memory_bytes; } known_kinds[] = {
	{ "cuda", 1.4e13, 9e11, 16e9 },
};

void dlb_cluster_init(struct dlb_cluster *c)
{
	memset(c, 0, sizeof *c);
}

void dlb_cluster_release(struct dlb_cluster *c)
{
	if (!c)
		return;
	dlb_arena_release(&c->arena);
	memset(c, 0, sizeof *c);
}

const struct dlb_link_class *dlb_link_class_find(const char *name)
{
	for (const struct dlb_link_class *k = link_classes; k->name; k++)
		if (!strcmp(k->name, name))
			return k;
	return NULL;
}

/* Grows an array before adding element n. It is full exactly when n is 0 or a power of two. */
static void *grown(struct dlb_cluster *c, void *p, int n, size_t size)
{
	if (n & (n - 1))
		return p;
	void *q = dlb_arena_array(&c->arena, n ? 2 * (size_t)n : 1, size);
	if (n)
		memcpy(q, p, (size_t)n * size);
	return q;
}

const char *dlb_cluster_kind_name(struct dlb_arena *a, const char *backend, int threads)
{
	return threads == 1 ? dlb_arena_strdup(a, backend) : dlb_arena_printf(a, "%s/%d", backend, threads);
}

int dlb_cluster_add_kind(struct dlb_cluster *c, const char *backend, int threads)
{
	const size_t base = strcspn(backend, "+");	/* "cuda+tf32" is a way to use "cuda" */

	for (int i = 0; i < c->n_kinds; i++)
		if (!strcmp(c->kind[i].backend, backend) && c->kind[i].threads == threads)
			return i;
	c->kind = grown(c, c->kind, c->n_kinds, sizeof *c->kind);
	struct dlb_device_kind *k = &c->kind[c->n_kinds];
	memset(k, 0, sizeof *k);
	k->backend = dlb_arena_strdup(&c->arena, backend);
	k->name = dlb_cluster_kind_name(&c->arena, backend, threads);
	k->threads = threads;
	for (int i = 0; i < DLB_LEN(known_kinds); i++)
		if (strlen(known_kinds[i].backend) == base && !strncmp(known_kinds[i].backend, backend, base)) {
			k->peak_flops = known_kinds[i].peak_flops;
			k->bandwidth_Bps = known_kinds[i].bandwidth_Bps;
			k->memory_bytes = known_kinds[i].memory_bytes;
		}
	return c->n_kinds++;
}

int dlb_cluster_add_node(struct dlb_cluster *c, int kind, int group, const char *host, int device)
{
	c->node = grown(c, c->node, c->n_nodes, sizeof *c->node);
	c->node[c->n_nodes] = (struct dlb_node){ .kind = kind,
						 .group = group,
						 .speed = 1.0,
						 .host = dlb_arena_strdup(&c->arena, host),
						 .device = device };
	return c->n_nodes++;
}

int dlb_cluster_add_group(struct dlb_cluster *c, const char *name, const char *cls, int parent)
{
	c->group = grown(c, c->group, c->n_groups, sizeof *c->group);
	c->group[c->n_groups] = (struct dlb_group){ .name = dlb_arena_strdup(&c->arena, name),
						    .cls = dlb_arena_strdup(&c->arena, cls),
						    .parent = parent, .inside = -1, .up = -1 };
	return c->n_groups++;
}

int dlb_cluster_add_link(struct dlb_cluster *c, const char *name, const char *cls)
{
	const struct dlb_link_class *k = dlb_link_class_find(cls);

	c->link = grown(c, c->link, c->n_links, sizeof *c->link);
	c->link[c->n_links] = (struct dlb_link){ .name = dlb_arena_strdup(&c->arena, name),
						 .cls = dlb_arena_strdup(&c->arena, cls) };
	if (k) {
		c->link[c->n_links].latency_s = k->latency_s;
		c->link[c->n_links].bandwidth_Bps = k->bandwidth_Bps;
		c->link[c->n_links].overlap = c->link[c->n_links].duplex = k->overlap;
		c->link[c->n_links].usual = true;
	}
	return c->n_links++;
}

int dlb_cluster_add_memory(struct dlb_cluster *c, int group, const char *name, const char *cls, double bytes)
{
	c->memory = grown(c, c->memory, c->n_memories, sizeof *c->memory);
	c->memory[c->n_memories] = (struct dlb_memory){ .group = group,
							.name = dlb_arena_strdup(&c->arena, name),
							.cls = dlb_arena_strdup(&c->arena, cls),
							.bytes = bytes,
							.count = 1,
							.os_index = -1,
							.link = -1 };
	return c->n_memories++;
}

int dlb_cluster_add_host(struct dlb_cluster *c, const char *name, const char *address, const char *user,
			 int slots)
{
	c->host = grown(c, c->host, c->n_hosts, sizeof *c->host);
	c->host[c->n_hosts] = (struct dlb_host){ .name = dlb_arena_strdup(&c->arena, name),
						 .address = dlb_arena_strdup(&c->arena, address),
						 .user = user ? dlb_arena_strdup(&c->arena, user) : NULL,
						 .slots = slots };
	return c->n_hosts++;
}

/* Depth of group g below the root (0); -1: MAX_DEPTH or more, or a cycle. */
static int depth_of(const struct dlb_cluster *c, int g)
{
	int d = 0;

	for (; c->group[g].parent >= 0; g = c->group[g].parent)
		if (++d >= MAX_DEPTH)
			return -1;
	return d;
}

static int fail_at(struct dlb_error *err, const char *array, int i, const char *member, const char *what)
{
	char where[128];

	snprintf(where, sizeof where, "/cluster/%s/%d%s%s", array, i, *member ? "/" : "", member);
	return dlb_fail(err, where, "%s", what);
}

static bool good(double x, bool zero_too)
{
	return isfinite(x) && (x > 0 || (zero_too && x == 0));
}

static int check_tree(const struct dlb_cluster *c, struct dlb_error *err)
{
	int root = -1;

	for (int i = 0; i < c->n_groups; i++) {
		const struct dlb_group *g = &c->group[i];
		if (g->parent < -1 || g->parent >= c->n_groups || g->parent == i)
			return fail_at(err, "groups", i, "parent", "no such group");
		if (g->inside < -1 || g->inside >= c->n_links)
			return fail_at(err, "groups", i, "inside", "no such link");
		if (g->up < -1 || g->up >= c->n_links)
			return fail_at(err, "groups", i, "up", "no such link");
		if (g->parent == -1 && root >= 0)
			return fail_at(err, "groups", i, "",
				       "a second group without parent: no route leads to it");
		if (g->parent == -1)
			root = i;
	}
	for (int i = 0; i < c->n_groups; i++)
		if (depth_of(c, i) < 0)
			return fail_at(err, "groups", i, "parent",
				       "groups form a cycle or lie more than 8 deep");
	return 0;
}

int dlb_cluster_check(const struct dlb_cluster *c, struct dlb_error *err)
{
	if (c->n_nodes < 1)
		return dlb_fail(err, "/cluster/nodes", "a cluster needs at least one node");
	for (int i = 0; i < c->n_kinds; i++) {
		const struct dlb_device_kind *k = &c->kind[i];
		if (k->threads < 1)
			return fail_at(err, "kinds", i, "threads", "at least one thread is needed");
		if (!good(k->peak_flops, true) || !good(k->bandwidth_Bps, true) ||
		    !good(k->memory_bytes, true))
			return fail_at(
				err, "kinds", i, "",
				"peak_flops, bandwidth_Bps and memory_bytes must be finite and not negative");
	}
	for (int i = 0; i < c->n_links; i++)
		if (!good(c->link[i].latency_s, true) || !good(c->link[i].bandwidth_Bps, false))
			return fail_at(err, "links", i, "",
				       "a link needs latency_s >= 0 and bandwidth_Bps > 0");
	if (check_tree(c, err))
		return -1;
	for (int i = 0; i < c->n_nodes; i++) {
		const struct dlb_node *n = &c->node[i];
		if (n->kind < 0 || n->kind >= c->n_kinds)
			return fail_at(err, "nodes", i, "kind", "no such kind");
		if (n->group < 0 || n->group >= c->n_groups)
			return fail_at(err, "nodes", i, "group", "no such group");
		if (!good(n->speed, false))
			return fail_at(err, "nodes", i, "speed", "speed must be positive");
		if (!good(n->memory_bytes, true))
			return fail_at(err, "nodes", i, "memory_bytes", "must be finite and not negative");
	}
	for (int i = 0; i < c->n_memories; i++)
		if (c->memory[i].group < 0 || c->memory[i].group >= c->n_groups ||
		    !good(c->memory[i].bytes, true) || !good(c->memory[i].bandwidth_Bps, true))
			return fail_at(err, "memories", i, "", "group, bytes or bandwidth_Bps out of range");
	return 0;
}

/* ---- routes ---- */

/* Ids of directions: two for each link, then two for each member of a group (child group or node): out of the
 * member into the inside link, and from the inside link to the member. */
static int direction_of_link(const struct dlb_cluster *c, int link, bool inward)
{
	return 2 * link + (c->link[link].duplex && inward);
}

static int direction_of_group(const struct dlb_cluster *c, int group) { return 2 * (c->n_links + group); }
static int direction_of_node(const struct dlb_cluster *c, int node)
{
	return 2 * (c->n_links + c->n_groups + node);
}

int dlb_cluster_n_directions(const struct dlb_cluster *c)
{
	return direction_of_node(c, c->n_nodes);
}

/* A link of a route and the directions of it that the route occupies; direction[1] is -1 if there is only
 * one. */
struct route_step { int link, direction[2]; };

static int walk(const struct dlb_cluster *c, int a, int b, struct route_step step[DLB_MAX_ROUTE])
{
	int ga = c->node[a].group, gb = c->node[b].group, n = 0, n_down = 0;
	int out = direction_of_node(c, a), in = direction_of_node(c, b) + 1;
	struct route_step down[MAX_DEPTH];

	if (a == b)
		return 0;
	if (ga != gb) {
		int da = depth_of(c, ga), db = depth_of(c, gb);
		while (ga != gb) {
			/* Climbs from the deeper group; at equal depth from a's side first. */
			if (da >= db) {
				int up = c->group[ga].up;
				if (up >= 0)
					step[n++] = (struct route_step){
						up, { direction_of_link(c, up, false), -1 }
					};
				out = direction_of_group(c, ga);
				ga = c->group[ga].parent, da--;
			} else {
				int up = c->group[gb].up;
				if (up >= 0)
					down[n_down++] = (struct route_step){
						up, { direction_of_link(c, up, true), -1 }
					};
				in = direction_of_group(c, gb) + 1;
				gb = c->group[gb].parent, db--;
			}
		}
	}
	int inside = c->group[ga].inside;
	if (inside >= 0 && c->link[inside].duplex)
		step[n++] = (struct route_step){ inside, { out, in } };
	else if (inside >= 0)
		step[n++] = (struct route_step){ inside, { direction_of_link(c, inside, false), -1 } };
	while (n_down)
		step[n++] = down[--n_down];
	return n;
}

int dlb_cluster_route(const struct dlb_cluster *c, int a, int b, int link[DLB_MAX_ROUTE])
{
	struct route_step step[DLB_MAX_ROUTE];
	int n = walk(c, a, b, step);

	for (int i = 0; i < n; i++)
		link[i] = step[i].link;
	return n;
}

static struct dlb_way way_of(const struct dlb_cluster *c, const struct route_step *step, int n)
{
	struct dlb_way way = { .Bps = INFINITY };

	for (int i = 0; i < n; i++) {
		const struct dlb_link *l = &c->link[step[i].link];
		way.latency_s += l->latency_s;
		way.Bps = fmin(way.Bps, l->bandwidth_Bps);
		way.copies |= !l->overlap;
	}
	return way;
}

int dlb_cluster_directions(const struct dlb_cluster *c, int a, int b,
			   struct dlb_direction direction[DLB_MAX_ROUTE], struct dlb_way *way)
{
	struct route_step step[DLB_MAX_ROUTE];
	int n_steps = walk(c, a, b, step), n = 0;

	if (way)
		*way = way_of(c, step, n_steps);
	for (int i = 0; i < 2 * n_steps; i++) {
		int id = step[i / 2].direction[i % 2], k = 0;
		while (k < n && direction[k].id != id)	/* a bus may occur on both sides of the route */
			k++;
		if (id >= 0 && k == n)
			direction[n++] = (struct dlb_direction){ step[i / 2].link, id };
	}
	return n;
}

struct dlb_way dlb_cluster_way(const struct dlb_cluster *c, int a, int b)
{
	struct route_step step[DLB_MAX_ROUTE];
	int n = walk(c, a, b, step);

	return way_of(c, step, n);
}

double dlb_cluster_transfer_s(const struct dlb_cluster *c, double bytes, int a, int b)
{
	struct dlb_way way = dlb_cluster_way(c, a, b);
	return way.latency_s + bytes / way.Bps;		/* no link: bytes / INFINITY = 0 */
}

struct dlb_memory_share dlb_cluster_memory_share(const struct dlb_cluster *c, int m)
{
	const struct dlb_memory *x = &c->memory[m];
	double Bps = x->bandwidth_Bps, latency = x->latency_s;
	int users = x->users > 1 ? x->users : 1;

	if (x->link >= 0) {
		const struct dlb_link *l = &c->link[x->link];

		latency += l->latency_s;
		Bps = Bps > 0 ? fmin(Bps, l->bandwidth_Bps) : l->bandwidth_Bps;
	}
	return (struct dlb_memory_share){ x->bytes > 0 ? x->bytes * x->count / users : INFINITY, Bps / users,
					  latency };
}

double dlb_cluster_node_memory(const struct dlb_cluster *c, int node)
{
	const struct dlb_node *n = &c->node[node];
	double named = 0;

	for (int i = 0; i < n->n_memories; i++)
		named += dlb_cluster_memory_share(c, n->memory[i]).bytes;
	if (named > 0 && isfinite(named))
		return named;
	if (n->memory_bytes > 0)
		return n->memory_bytes;
	return c->kind[n->kind].memory_bytes > 0 ? c->kind[n->kind].memory_bytes : INFINITY;
}

bool dlb_cluster_is_cpu(const struct dlb_cluster *c, int node)
{
	return !strcmp(c->kind[c->node[node].kind].backend, "cpu");
}

int dlb_cluster_cores(const struct dlb_cluster *c)
{
	int n = 0;

	for (int i = 0; i < c->n_nodes; i++)
		n += dlb_cluster_is_cpu(c, i) ? c->kind[c->node[i].kind].threads : 0;
	return n;
}

bool dlb_device_kind_lacks(const struct dlb_device_kind *k, const char *type, int op_kind)
{
	const struct dlb_op_class *class = dlb_op_class_of(op_kind);
	const char *work = dlb_op_work(type);

	if (class && class->flags & DLB_OP_ON_CPU && !strcmp(k->backend, "cuda"))
		return true;
	for (int i = 0; i < k->n_without; i++)
		if (!strcmp(k->without[i], type) || !strcmp(k->without[i], work))
			return true;
	return false;
}
