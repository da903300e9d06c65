/* Binds memory through hwloc. A thread's policy applies to all later allocations, including those in
 * libraries; an area's policy applies to its pages only. */
#include <errno.h>
#include <hwloc.h>
#include <string.h>
#include "cluster/cluster.h"

struct dlb_binder {
	hwloc_topology_t t;
	const struct dlb_cluster *c;		/* borrowed */
	int node;
};

static const struct dlb_memory *memory(const struct dlb_binder *b, int i)
{
	return &b->c->memory[b->c->node[b->node].memory[i]];
}

static int no_such(const struct dlb_memory *m, struct dlb_error *err)
{
	if (m->os_index < 0)
		return dlb_hint((dlb_fail(err, NULL, "memory '%s' has no os_index to bind to", m->name), err),
				"dlb-profile --cluster finds it");
	dlb_fail(err, NULL, "memory '%s' is NUMA node %d, which this host does not have", m->name,
		 m->os_index);
	return dlb_hint(err, "name another one in /cluster/nodes, or none");
}

static hwloc_obj_t numa_of(const struct dlb_binder *b, const struct dlb_memory *m)
{
	return m->os_index < 0 ? NULL : hwloc_get_numanode_obj_by_os_index(b->t, (unsigned)m->os_index);
}

int dlb_binder_open(struct dlb_binder **out, const struct dlb_cluster *c, int node, struct dlb_error *err)
{
	struct dlb_binder *b = dlb_xcalloc(1, sizeof *b);

	*b = (struct dlb_binder){ .c = c, .node = node };
	if (hwloc_topology_init(&b->t)) {
		free(b);
		return dlb_fail(err, NULL, "hwloc does not start");
	}
	if (hwloc_topology_load(b->t)) {
		dlb_binder_free(b);
		return dlb_fail(err, NULL, "hwloc cannot look at this host");
	}
	*out = b;
	return 0;
}

int dlb_binder_new(struct dlb_binder **out, const struct dlb_cluster *c, int node, struct dlb_error *err)
{
	struct dlb_binder *b;
	hwloc_nodeset_t all;
	int rc = 0;

	if (dlb_binder_open(&b, c, node, err))
		return -1;
	all = hwloc_bitmap_alloc();
	for (int i = 0; i < c->node[node].n_memories && !rc; i++) {
		const struct dlb_memory *m = memory(b, i);
		hwloc_obj_t numa = numa_of(b, m);

		if (numa)
			hwloc_bitmap_or(all, all, numa->nodeset);
		else
			rc = no_such(m, err);
	}
	if (!rc &&
	    hwloc_set_membind(b->t, all, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET))
		rc = dlb_fail(err, NULL, "cannot bind to memory '%s': %s", memory(b, 0)->name,
			      strerror(errno));
	hwloc_bitmap_free(all);
	if (rc)
		dlb_binder_free(b);
	else
		*out = b;
	return rc;
}

int dlb_binder_bind(struct dlb_binder *b, int i, void *p, size_t bytes, struct dlb_error *err)
{
	return dlb_binder_bind_to(b, memory(b, i), p, bytes, err);
}

int dlb_binder_bind_to(struct dlb_binder *b, const struct dlb_memory *m, void *p, size_t bytes,
		       struct dlb_error *err)
{
	hwloc_obj_t numa = numa_of(b, m);

	if (!numa)
		return no_such(m, err);
	if (!bytes || !hwloc_set_area_membind(b->t, p, bytes, numa->nodeset, HWLOC_MEMBIND_BIND,
					      HWLOC_MEMBIND_MIGRATE | HWLOC_MEMBIND_BYNODESET))
		return 0;
	return dlb_fail(err, NULL, "cannot bind %zu bytes to memory '%s': %s", bytes, m->name,
			strerror(errno));
}

void dlb_binder_free(struct dlb_binder *b)
{
	if (!b)
		return;
	hwloc_topology_destroy(b->t);
	free(b);
}
