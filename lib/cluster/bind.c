/* Binding memory through hwloc: by the policy of the thread, so that it holds for whatever is allocated after, by us or by a
 * library, and pages are placed when they are touched first. */
#include <errno.h>
#include <hwloc.h>
#include <string.h>
#include "cluster/cluster.h"

int dlb_memory_bind(const struct dlb_memory *m, struct dlb_error *err)
{
	hwloc_topology_t t;
	hwloc_obj_t numa;
	int rc = 0;

	if (m->os_index < 0)
		return dlb_hint((dlb_fail(err, NULL, "memory '%s' has no os_index to bind to", m->name), err), "dlb-profile --cluster finds it");
	if (hwloc_topology_init(&t))
		return dlb_fail(err, NULL, "hwloc does not start");
	if (hwloc_topology_load(t)) {
		hwloc_topology_destroy(t);
		return dlb_fail(err, NULL, "hwloc cannot look at this host");
	}
	numa = hwloc_get_numanode_obj_by_os_index(t, (unsigned)m->os_index);
	if (!numa) {
		rc = dlb_fail(err, NULL, "memory '%s' is NUMA node %d, which this host does not have", m->name, m->os_index);
		dlb_hint(err, "name another one in /cluster/nodes, or none");
	} else if (hwloc_set_membind(t, numa->nodeset, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET)) {
		rc = dlb_fail(err, NULL, "cannot bind to memory '%s': %s", m->name, strerror(errno));
	}
	hwloc_topology_destroy(t);
	return rc;
}
