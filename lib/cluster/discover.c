/* Describes this host through hwloc: packages, cores, caches, memories with and without cores.
 *
 * The tree of groups is host > package (if several) > NUMA domain (if a package has several); a node belongs
 * to the leaf group that contains its cores. A NUMA memory without cores (CXL expander, persistent memory)
 * belongs to the group to which it is local; its class names its type. */
#include "cluster/cluster.h"
#include <errno.h>
#include <hwloc.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "util/input.h"

enum { MAX_CORES = 1 << 16 };
static const int deadly[] = { SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL };

struct finder {
	hwloc_topology_t t;
	struct dlb_cluster *c;
	int *group_of_pu;			/* OS index of a PU -> leaf group */
	int n_pu;
	int host;
};

/* Adds a group whose medium is shared memory: a link of class shm for the host (between packages), else of
 * class socket. */
static int add_group(struct finder *f, const char *name, const char *cls, int parent)
{
	struct dlb_cluster *c = f->c;
	const char *link = strcmp(cls, "host") ? "socket" : "shm";
	int g = dlb_cluster_add_group(c, name, cls, parent);

	c->group[g].inside = dlb_cluster_add_link(c, dlb_arena_printf(&c->arena, "%s:%s", link, name), link);
	return g;
}

static void claim(struct finder *f, hwloc_const_bitmap_t cpus, int group)
{
	unsigned i;

	hwloc_bitmap_foreach_begin(i, cpus)
		if ((int)i < f->n_pu)
			f->group_of_pu[i] = group;
	hwloc_bitmap_foreach_end();
}

/* Counts the NUMA memories with cores inside `cpus`. */
static int count_numa(hwloc_topology_t t, hwloc_const_bitmap_t cpus)
{
	int n = 0;

	for (hwloc_obj_t m = NULL; (m = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, m));)
		n += !hwloc_bitmap_iszero(m->cpuset) && hwloc_bitmap_isincluded(m->cpuset, cpus);
	return n;
}

static void find_groups(struct finder *f, const char *host)
{
	hwloc_topology_t t = f->t;
	struct dlb_cluster *c = f->c;
	char name[300];
	int n_packages = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE), i = 0;

	f->host = add_group(f, host, "host", -1);
	claim(f, hwloc_topology_get_topology_cpuset(t), f->host);
	for (hwloc_obj_t p = NULL; (p = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PACKAGE, p)); i++) {
		int in = f->host;
		if (n_packages > 1) {
			snprintf(name, sizeof name, "%s.package%d", host, i);
			in = add_group(f, name, "package", f->host);
			claim(f, p->cpuset, in);
		}
		if (count_numa(t, p->cpuset) < 2)
			continue;
		/* Several memories with the same cores (DRAM and HBM) make one group. */
		int k = 0;
		hwloc_bitmap_t seen = hwloc_bitmap_alloc();
		for (hwloc_obj_t m = NULL; (m = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, m));) {
			if (hwloc_bitmap_iszero(m->cpuset) ||
			    !hwloc_bitmap_isincluded(m->cpuset, p->cpuset) ||
			    hwloc_bitmap_isequal(m->cpuset, p->cpuset) ||
			    hwloc_bitmap_intersects(seen, m->cpuset))
				continue;
			hwloc_bitmap_or(seen, seen, m->cpuset);
			snprintf(name, sizeof name, "%s.numa%d", c->group[in].name, k++);
			claim(f, m->cpuset, add_group(f, name, "numa", in));
		}
		hwloc_bitmap_free(seen);
	}
}

/* Records the model name of the first package, if the operating system knows it. */
static void find_processor(struct finder *f)
{
	hwloc_obj_t p = hwloc_get_next_obj_by_type(f->t, HWLOC_OBJ_PACKAGE, NULL);
	const char *model = p ? hwloc_obj_get_info_by_name(p, "CPUModel") : NULL;

	f->c->group[f->host].processor = model ? dlb_arena_strdup(&f->c->arena, model) : NULL;
}

static int group_of(const struct finder *f, hwloc_const_bitmap_t cpus)
{
	int first = hwloc_bitmap_first(cpus);

	return first >= 0 && first < f->n_pu ? f->group_of_pu[first] : f->host;
}

/* Smallest group that contains all of `cpus`: climbs from the leaf of the first CPU to the first group that
 * also contains the last CPU. */
static int common_group(const struct finder *f, hwloc_const_bitmap_t cpus)
{
	int a = group_of(f, cpus), last = hwloc_bitmap_last(cpus);
	int b = last >= 0 && last < f->n_pu ? f->group_of_pu[last] : a;

	for (; a >= 0; a = f->c->group[a].parent)
		for (int g = b; g >= 0; g = f->c->group[g].parent)
			if (g == a)
				return a;
	return f->host;
}

/* True if another memory is local to a part of m's cores, or to the same cores with a lower index: then m is
 * not the memory attached to the memory controllers of these cores. */
static bool is_second(hwloc_topology_t t, hwloc_obj_t m)
{
	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, o));) {
		if (o == m || hwloc_bitmap_iszero(o->cpuset) ||
		    !hwloc_bitmap_isincluded(o->cpuset, m->cpuset))
			continue;
		if (!hwloc_bitmap_isequal(o->cpuset, m->cpuset) || o->os_index < m->os_index)
			return true;
	}
	return false;
}

static const char *memory_class(hwloc_topology_t t, hwloc_obj_t m)
{
	const char *dax = hwloc_obj_get_info_by_name(m, "DAXType");

	if (hwloc_obj_get_info_by_name(m, "CXLDevice") || (m->subtype && strstr(m->subtype, "CXL")))
		return "cxl";
	if (dax && !strcmp(dax, "NVM"))
		return "nvm";
	if (m->subtype && (!strcmp(m->subtype, "HBM") || !strcmp(m->subtype, "MCDRAM")))
		return "hbm";
	/* The memory is attached over a link, not to a memory controller beside cores: on today's servers it
	 * is a CXL expander that the operating system uses as system memory. */
	return hwloc_bitmap_iszero(m->cpuset) || is_second(t, m) ? "cxl" : "dram";
}

/* CPUs to which a memory is local: its own, or if it has none, those of the nearest ancestor with CPUs. */
static hwloc_const_bitmap_t local_cpus(hwloc_obj_t m)
{
	while (m->parent && hwloc_bitmap_iszero(m->cpuset))
		m = m->parent;
	return m->cpuset;
}

static double attribute(hwloc_topology_t t, hwloc_memattr_id_t id, hwloc_obj_t m, double unit)
{
	struct hwloc_location from = { .type = HWLOC_LOCATION_TYPE_CPUSET };
	hwloc_uint64_t v;

	from.location.cpuset = (hwloc_cpuset_t)local_cpus(m);
	return hwloc_memattr_get_value(t, id, m, &from, 0, &v) ? 0 : (double)v * unit;
}

static void find_memories(struct finder *f)
{
	struct dlb_cluster *c = f->c;
	int i = 0;

	for (hwloc_obj_t m = NULL; (m = hwloc_get_next_obj_by_type(f->t, HWLOC_OBJ_NUMANODE, m)); i++) {
		char name[32];
		const char *cls = memory_class(f->t, m);
		snprintf(name, sizeof name, "%s%d", cls, i);
		int k = dlb_cluster_add_memory(c, common_group(f, local_cpus(m)), name, cls,
					       (double)m->attr->numanode.local_memory);
		c->memory[k].os_index = (int)m->os_index;
		c->memory[k].bandwidth_Bps = attribute(f->t, HWLOC_MEMATTR_ID_BANDWIDTH, m, 1048576.0);
		c->memory[k].latency_s = attribute(f->t, HWLOC_MEMATTR_ID_LATENCY, m, 1e-9);
	}
	for (int level = 1; level <= 4; level++) {
		hwloc_obj_type_t type = (hwloc_obj_type_t)(HWLOC_OBJ_L1CACHE + level - 1);
		char cls[8];
		snprintf(cls, sizeof cls, level == 1 ? "l1d" : "l%d", level);
		for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(f->t, type, o));) {
			int g = common_group(f, o->cpuset), k;
			double bytes = (double)o->attr->cache.size;
			for (k = 0; k < c->n_memories; k++)
				if (c->memory[k].group == g && !strcmp(c->memory[k].cls, cls) &&
				    c->memory[k].bytes == bytes)
					break;
			if (k < c->n_memories)
				c->memory[k].count++;
			else if (bytes > 0)
				dlb_cluster_add_memory(c, g, cls, cls, bytes);
		}
	}
}

/* Makes one node for every `threads` cores of a leaf group. If the host has cores for more nodes in total
 * (cores / threads, at least one), the other nodes belong to the host's group: their cores lie in several
 * leaves. Nodes share the memory of classes dram and hbm equally. */
static void find_nodes(struct finder *f, const char *host, int threads)
{
	struct dlb_cluster *c = f->c;
	int kind = dlb_cluster_add_kind(c, "cpu", threads),
	    *have = dlb_xcalloc((size_t)c->n_groups, sizeof *have);
	int cores = 0;
	double bytes = 0;
	bool by_pu = hwloc_get_nbobjs_by_type(f->t, HWLOC_OBJ_CORE) < 1;

	for (hwloc_obj_t o = NULL;
	     (o = hwloc_get_next_obj_by_type(f->t, by_pu ? HWLOC_OBJ_PU : HWLOC_OBJ_CORE, o));) {
		int g = group_of(f, o->cpuset);
		if (++cores > MAX_CORES)
			break;
		if (++have[g] % threads == 0)
			dlb_cluster_add_node(c, kind, g, host, c->n_nodes);
	}
	free(have);
	c->group[f->host].cores = cores < MAX_CORES ? cores : MAX_CORES;
	for (int i = c->n_nodes; i < (cores < threads ? 1 : cores / threads); i++)
		dlb_cluster_add_node(c, kind, f->host, host, i);
	for (int i = 0; i < c->n_memories; i++)
		if (!strcmp(c->memory[i].cls, "dram") || !strcmp(c->memory[i].cls, "hbm"))
			bytes += c->memory[i].bytes;
	for (int i = 0; i < c->n_nodes; i++)
		c->node[i].memory_bytes = (double)(int64_t)(bytes / c->n_nodes);
}

/* hwloc may crash on invalid XML, so a child process loads it first. */
static bool xml_loads(const char *xml)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		hwloc_topology_t t;
		struct rlimit no_core = { 0, 0 };
		setrlimit(RLIMIT_CORE, &no_core);
		for (int i = 0; i < DLB_LEN(deadly); i++)
			signal(deadly[i], SIG_DFL);
		if (!freopen("/dev/null", "w", stderr) || hwloc_topology_init(&t) ||
		    hwloc_topology_set_xml(t, xml) ||
		    hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) ||
		    hwloc_topology_load(t))
			_exit(1);
		_exit(0);
	}
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return child > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

static int load(hwloc_topology_t t, const char *xml, struct dlb_error *err)
{
	uint64_t bytes;
	const int fd = xml ? dlb_input_open(xml, &bytes, err) : -1;

	if (xml && fd < 0)
		return -1;
	if (xml)
		close(fd);
	if (xml && !xml_loads(xml))
		return dlb_fail(err, xml, "not a topology that hwloc can read");
	if (xml && hwloc_topology_set_xml(t, xml))
		return dlb_fail(err, xml, "not a topology that hwloc can read");
	/* By default hwloc omits instruction caches and groups without structure, and keeps memories without
	 * cores. */
	if (hwloc_topology_set_flags(t, xml ? HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED : 0) ||
	    hwloc_topology_load(t))
		return dlb_fail(err, xml,
				xml ? "not a topology that hwloc can read" : "hwloc cannot read this host");
	return 0;
}

int dlb_cluster_discover(struct dlb_cluster *c, const char *topology, int threads, struct dlb_error *err)
{
	struct finder f = { .c = c };
	char host[256] = "h0";
	int rc = -1;

	dlb_cluster_init(c);
	if (hwloc_topology_init(&f.t))
		return dlb_fail(err, topology, "hwloc cannot start");
	if (load(f.t, topology, err))
		goto out;
	if (!topology && gethostname(host, sizeof host - 1))
		snprintf(host, sizeof host, "h0");
	const char *name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(f.t), "HostName");
	if (topology && name)
		snprintf(host, sizeof host, "%.200s", name);
	f.n_pu = hwloc_bitmap_last(hwloc_topology_get_topology_cpuset(f.t)) + 1;
	if (f.n_pu < 1 || f.n_pu > MAX_CORES) {
		dlb_fail(err, topology, "the topology has no processors");
		goto out;
	}
	const int n_pus = hwloc_get_nbobjs_by_type(f.t, HWLOC_OBJ_PU);
	/* Without a file, dlb-profile has measured a node of this size on this host. */
	if (topology && threads > n_pus) {
		dlb_fail(err, topology, "a node of %d threads on a machine of %d processing unit%s", threads,
			 n_pus, n_pus == 1 ? "" : "s");
		dlb_hint(err, "at most as many threads as it has");
		goto out;
	}
	f.group_of_pu = dlb_xcalloc((size_t)f.n_pu, sizeof *f.group_of_pu);
	find_groups(&f, host);
	find_processor(&f);
	find_memories(&f);
	find_nodes(&f, host, threads > 0 ? threads : 1);
	rc = dlb_cluster_check(c, err);
out:
	free(f.group_of_pu);
	hwloc_topology_destroy(f.t);
	if (rc)
		dlb_cluster_release(c);
	return rc;
}
