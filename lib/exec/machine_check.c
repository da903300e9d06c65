/* See machine_check.h. */
#include "exec/machine_check.h"
#include "exec/probe.h"
#include "util/stats.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 3 };
static const double speed_apart = 1.2, memory_apart = 1.02;

/* A host, as the nodes of a cluster describe it. */
struct host { const char *name, *processor; int cores, threads; double memory_bytes; };
struct hosts { struct host *host; int n, cap; };
/* stored NULL: the document has no host left to compare with */
struct pair { const struct host *stored, *here; };

static void add_line(struct dlb_machine_check *m, enum dlb_machine_verdict verdict, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void add_line(struct dlb_machine_check *m, enum dlb_machine_verdict verdict, const char *fmt, ...)
{
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	DLB_GROW(m->line, m->n_lines, m->cap_lines);
	m->line[m->n_lines++] = (struct dlb_machine_line){ verdict, dlb_arena_strdup(&m->arena, text) };
	m->n_differences += verdict == DLB_MACHINE_DIFFERS;
}

void dlb_machine_check_release(struct dlb_machine_check *m)
{
	free(m->line);
	dlb_arena_release(&m->arena);
	*m = (struct dlb_machine_check){ .n_lines = 0 };
}

/* -- hosts -- */

static const char *name_of(const struct dlb_cluster *c, int node)
{
	return c->node[node].host ? c->node[node].host : "";
}

static struct host *find_host(const struct hosts *h, const char *name)
{
	for (int i = 0; i < h->n; i++)
		if (!strcmp(h->host[i].name, name))
			return &h->host[i];
	return NULL;
}

/* Maps the groups of node i within its host to `host`, the number of that host, and takes the host's
 * processor and cores from those groups. */
static void take_groups(const struct dlb_cluster *c, int i, int host, struct host *h, int *host_of)
{
	for (int g = c->node[i].group; g >= 0; g = c->group[g].parent) {
		h->processor = h->processor ? h->processor : c->group[g].processor;
		h->cores = h->cores ? h->cores : c->group[g].cores;
		host_of[g] = host;
		if (!strcmp(c->group[g].cls, "host"))
			break;
	}
}

/* Replaces the bytes of a host by the sum of its listed memories, if any: that sum includes the shares of
 * nodes that were deleted from the document. */
static void take_memories(const struct dlb_cluster *c, const int *host_of, struct hosts *all)
{
	double *sum = dlb_xcalloc((size_t)all->n + 1, sizeof *sum);

	for (int i = 0; i < c->n_memories; i++)
		if (host_of[c->memory[i].group] >= 0 &&
		    (!strcmp(c->memory[i].cls, "dram") || !strcmp(c->memory[i].cls, "hbm")))
			sum[host_of[c->memory[i].group]] += c->memory[i].bytes * c->memory[i].count;
	for (int i = 0; i < all->n; i++)
		if (sum[i] > 0)
			all->host[i].memory_bytes = sum[i];
	free(sum);
}

/* The hosts of the cluster, in the order of their first nodes. */
static struct hosts hosts_of(const struct dlb_cluster *c)
{
	int *host_of = dlb_xmalloc(((size_t)c->n_groups + 1) * sizeof *host_of);
	struct hosts all = { .n = 0 };

	for (int g = 0; g < c->n_groups; g++)
		host_of[g] = -1;
	for (int i = 0; i < c->n_nodes; i++) {
		struct host *h = find_host(&all, name_of(c, i));
		if (!h) {
			DLB_GROW(all.host, all.n, all.cap);
			h = &all.host[all.n++];
			*h = (struct host){ .name = name_of(c, i) };
		}
		h->threads += strcmp(c->kind[c->node[i].kind].backend, "cpu") ?
				      0 :
				      c->kind[c->node[i].kind].threads;
		h->memory_bytes += c->node[i].memory_bytes;
		take_groups(c, i, (int)(h - all.host), h, host_of);
	}
	take_memories(c, host_of, &all);
	free(host_of);
	return all;
}

/* Pairs each host here with the host of the document that it is compared with: [here->n] (new). */
static struct pair *pair_hosts(const struct hosts *stored, const struct hosts *here)
{
	struct pair *pair = dlb_xcalloc((size_t)here->n + 1, sizeof *pair);
	int next = 0;

	for (int i = 0; i < here->n; i++) {
		pair[i] = (struct pair){ find_host(stored, here->host[i].name), &here->host[i] };
		while (!pair[i].stored && next < stored->n && find_host(here, stored->host[next].name))
			next++;
		if (!pair[i].stored && next < stored->n)
			pair[i].stored = &stored->host[next++];
	}
	return pair;
}

static bool is_compared(const struct pair *pair, int n, const struct host *stored)
{
	for (int i = 0; i < n; i++)
		if (pair[i].stored == stored)
			return true;
	return false;
}

static bool apart(double a, double b, double factor)
{
	return a > b * factor || b > a * factor;
}

static void compare_cores(const struct pair *p, struct dlb_machine_check *m)
{
	if (p->stored->cores && p->here->cores)
		add_line(m, p->stored->cores == p->here->cores ? DLB_MACHINE_EQUAL : DLB_MACHINE_DIFFERS,
			 "host '%s': %d core%s here, %d in the document", p->here->name, p->here->cores,
			 p->here->cores == 1 ? "" : "s", p->stored->cores);
	else if (p->here->cores)		/* the document only has threads of nodes */
		add_line(m, p->stored->threads <= p->here->cores ? DLB_MACHINE_EQUAL : DLB_MACHINE_DIFFERS,
			 "host '%s': %d core%s here, nodes of %d threads in all in the document",
			 p->here->name, p->here->cores, p->here->cores == 1 ? "" : "s", p->stored->threads);
}

static void compare_host(const struct pair *p, struct dlb_machine_check *m)
{
	const struct host *a = p->stored, *b = p->here;
	const bool named = *a->name && strcmp(a->name, b->name);

	add_line(m, named ? DLB_MACHINE_DIFFERS : DLB_MACHINE_EQUAL, "host '%s' here, '%s' in the document",
		 b->name, a->name);
	if (a->processor && b->processor)
		add_line(m, strcmp(a->processor, b->processor) ? DLB_MACHINE_DIFFERS : DLB_MACHINE_EQUAL,
			 "host '%s': processor '%s' here, '%s' in the document", b->name, b->processor,
			 a->processor);
	compare_cores(p, m);
	if (a->memory_bytes > 0 && b->memory_bytes > 0)
		add_line(m,
			 apart(a->memory_bytes, b->memory_bytes, memory_apart) ? DLB_MACHINE_DIFFERS :
										 DLB_MACHINE_EQUAL,
			 "host '%s': %.3g GB of memory here, %.3g in the document (%.2f times)", b->name,
			 b->memory_bytes / 1e9, a->memory_bytes / 1e9, b->memory_bytes / a->memory_bytes);
}

void dlb_machine_compare_hosts(const struct dlb_cluster *stored, const struct dlb_cluster *here,
			       struct dlb_machine_check *m)
{
	struct hosts a = hosts_of(stored), b = hosts_of(here);
	struct pair *pair = pair_hosts(&a, &b);
	const char *first = NULL;
	int left = 0;

	for (int i = 0; i < b.n; i++) {
		if (pair[i].stored)
			compare_host(&pair[i], m);
		else
			add_line(m, DLB_MACHINE_DIFFERS, "host '%s' is one more than the document has",
				 b.host[i].name);
	}
	for (int i = 0; i < a.n; i++)
		if (!is_compared(pair, b.n, &a.host[i])) {
			first = first ? first : a.host[i].name;
			left++;
		}
	if (left)
		add_line(m, DLB_MACHINE_UNCHECKED,
			 "%d host%s of the document ('%s'%s) %s not checked: this does not run there", left,
			 left == 1 ? "" : "s", first, left == 1 ? "" : " ...", left == 1 ? "is" : "are");
	free(pair);
	free(a.host);
	free(b.host);
}

/* -- speed -- */

/* Of the kind called `name` on the host: *flops, its FLOP/s times the median speed of its nodes, and *Bps,
 * its bytes/s; 0: unknown. */
static void speed_on(const struct dlb_cluster *c, const char *name, const char *host, double *flops,
		     double *Bps)
{
	double *speed = dlb_xcalloc((size_t)c->n_nodes + 1, sizeof *speed);
	int n = 0;

	*flops = *Bps = 0;
	for (int i = 0; i < c->n_nodes; i++) {
		const struct dlb_device_kind *k = &c->kind[c->node[i].kind];
		if (strcmp(k->name, name) || strcmp(name_of(c, i), host))
			continue;
		speed[n++] = c->node[i].speed;
		*flops = k->peak_flops;
		*Bps = k->bandwidth_Bps;
	}
	*flops *= n ? dlb_median(speed, n) : 0;
	free(speed);
}

static void compare_figure(const struct host *here, const char *kind, const char *unit, double mine,
			   double stored, struct dlb_machine_check *m)
{
	if (mine > 0 && stored > 0)
		add_line(m, apart(mine, stored, speed_apart) ? DLB_MACHINE_DIFFERS : DLB_MACHINE_EQUAL,
			 "host '%s': kind %s: %.3g %s here, %.3g in the document (%.2f times)", here->name,
			 kind, mine / 1e9, unit, stored / 1e9, mine / stored);
}

void dlb_machine_compare_speed(const struct dlb_cluster *stored, int kind, const struct dlb_cluster *here,
			       struct dlb_machine_check *m)
{
	const char *name = stored->kind[kind].name;
	struct hosts a = hosts_of(stored), b = hosts_of(here);
	struct pair *pair = pair_hosts(&a, &b);

	for (int i = 0; i < b.n; i++) {
		double flops[2], Bps[2];
		if (!pair[i].stored)
			continue;
		speed_on(stored, name, pair[i].stored->name, &flops[0], &Bps[0]);
		speed_on(here, here->kind[here->node[0].kind].name, b.host[i].name, &flops[1], &Bps[1]);
		compare_figure(&b.host[i], name, "GFLOP/s", flops[1], flops[0], m);
		compare_figure(&b.host[i], name, "GB/s of memory", Bps[1], Bps[0], m);
	}
	free(pair);
	free(a.host);
	free(b.host);
}

/* -- all -- */

/* Whether the cluster was measured on a machine rather than written by hand. */
static bool was_measured(const struct dlb_cluster *c)
{
	for (int i = 0; i < c->n_groups; i++)
		if (c->group[i].cores || c->group[i].processor)
			return true;
	for (int i = 0; i < c->n_kinds; i++)
		if (!strcmp(c->kind[i].backend, "cpu") &&
		    (c->kind[i].peak_flops > 0 || c->kind[i].bandwidth_Bps > 0))
			return true;
	return false;
}

static int check_hosts(const struct dlb_cluster *stored, struct dlb_comm *comm, struct dlb_machine_check *m,
		       struct dlb_error *err)
{
	struct dlb_cluster here;

	if (dlb_cluster_probe(comm, 1, &here, err))
		return -1;
	dlb_machine_compare_hosts(stored, &here, m);
	dlb_cluster_release(&here);
	return 0;
}

static int check_kind(const struct dlb_cluster *stored, int kind, struct dlb_comm *comm,
		      struct dlb_machine_check *m, struct dlb_error *err)
{
	struct dlb_machine_check found = { .n_lines = 0 };

	for (int left = TRIES; left; left--) {
		struct dlb_cluster here;
		if (dlb_cluster_probe(comm, stored->kind[kind].threads, &here, err)) {
			dlb_machine_check_release(&found);
			return -1;
		}
		dlb_machine_check_release(&found);
		dlb_machine_compare_speed(stored, kind, &here, &found);
		dlb_cluster_release(&here);
		if (!found.n_differences)
			break;
	}
	for (int i = 0; i < found.n_lines; i++)
		add_line(m, found.line[i].verdict, "%s", found.line[i].text);
	dlb_machine_check_release(&found);
	return 0;
}

/* Compares the document's devices of a kind with this host's devices, for back ends other than the CPU's. */
static void check_devices(const struct dlb_cluster *stored, int kind, struct dlb_machine_check *m)
{
	const struct dlb_device_kind *k = &stored->kind[kind], *found;
	struct dlb_cluster here;
	struct host host = { .name = NULL };
	struct dlb_error why;
	int n = 0;

	for (int i = 0; i < stored->n_nodes; i++)
		if (stored->node[i].kind == kind) {
			host.name = name_of(stored, i);
			n++;
		}
	if (!n)
		return;
	dlb_cluster_init(&here);
	if (dlb_cluster_add_devices(&here, k->backend, &why)) {
		add_line(m, DLB_MACHINE_DIFFERS, "kind %s: %s", k->name, why.what);
	} else {
		found = &here.kind[0];
		add_line(m, n <= here.n_nodes ? DLB_MACHINE_EQUAL : DLB_MACHINE_DIFFERS,
			 "kind %s: %d here, %d in the document", k->name, here.n_nodes, n);
		compare_figure(&host, k->name, "GFLOP/s", found->peak_flops, k->peak_flops, m);
		compare_figure(&host, k->name, "GB/s of memory", found->bandwidth_Bps, k->bandwidth_Bps, m);
	}
	dlb_cluster_release(&here);
}

int dlb_machine_check(const struct dlb_doc *doc, struct dlb_comm *comm, struct dlb_machine_check *m,
		      struct dlb_error *err)
{
	struct dlb_cluster stored;
	int rc;

	if (dlb_cluster_read(doc, &stored, err))
		return -1;
	if (!was_measured(&stored))
		rc = dlb_refuse(err, "/cluster", "dlb-profile --cluster measures one",
				"no machine was measured for it");
	else
		rc = check_hosts(&stored, comm, m, err);
	if (rc)
		dlb_error_at(err, doc->name);
	for (int k = 0; k < stored.n_kinds && !rc; k++) {
		const struct dlb_device_kind *kind = &stored.kind[k];
		if (strcmp(kind->backend, "cpu") && (!comm || dlb_comm_size(comm) == 1))
			check_devices(&stored, k, m);
		else if (strcmp(kind->backend, "cpu"))
			add_line(m, DLB_MACHINE_UNCHECKED,
				 "kind '%s' is not checked: devices are checked by one process", kind->name);
		else if (kind->peak_flops > 0 || kind->bandwidth_Bps > 0)
			rc = check_kind(&stored, k, comm, m, err);
		else
			add_line(m, DLB_MACHINE_UNCHECKED,
				 "the speed of kind '%s' is not checked: the document has none", kind->name);
	}
	dlb_cluster_release(&stored);
	return rc;
}
