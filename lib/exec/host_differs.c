/* Compares this host with the one that a plan was made for. See host_differs.h. */
#include "exec/host_differs.h"
#include "cluster/cluster.h"
#include "util/cores.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct planned { int nodes, hosts, cores; double memory_bytes; };

struct dlb_host_resources dlb_host_resources(void)
{
	const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	return (struct dlb_host_resources){ .cores = dlb_cores(),
					    .memory_bytes = pages > 0 && page > 0 ?
								    (double)pages * (double)page :
								    0.0 };
}

int dlb_host_planned_cores(const struct dlb_doc *doc)
{
	struct dlb_cluster c;
	struct dlb_error err;

	if (dlb_cluster_read(doc, &c, &err))
		return 0;
	const int n = dlb_cluster_cores(&c);
	dlb_cluster_release(&c);
	return n;
}

static struct planned planned_for(const struct dlb_cluster *c, const json_t *plan)
{
	const json_t *nodes = json_object_get(plan, "nodes");
	struct planned p = { .nodes = c->n_nodes, .cores = dlb_cluster_cores(c) };

	for (int i = 0; i < c->n_nodes; i++) {
		bool known = !c->node[i].host;

		for (int k = 0; k < i && !known; k++)
			known = c->node[k].host && !strcmp(c->node[k].host, c->node[i].host);
		p.hosts += !known;
		if (!strcmp(c->kind[c->node[i].kind].backend, "cpu"))
			p.memory_bytes += json_number_value(
				json_object_get(json_array_get(nodes, (size_t)i), "peak_bytes"));
	}
	return p;
}

bool dlb_host_differs(const struct dlb_doc *doc, struct dlb_host_resources has, char *text, size_t n)
{
	struct dlb_cluster c;
	struct dlb_error err;
	size_t k = 0;

	text[0] = '\0';
	if (dlb_cluster_read(doc, &c, &err))
		return false;
	const struct planned p = planned_for(&c, dlb_doc_section(doc, "plan"));
	dlb_cluster_release(&c);
	if (p.cores > has.cores)
		k += (size_t)snprintf(text, n,
				      "the plan has %d nodes of %d cores in all, this host has %d: expect "
				      "steps up to about %.2g times the predicted",
				      p.nodes, p.cores, has.cores, (double)p.cores / has.cores);
	if (p.hosts > 1 && k < n)
		k += (size_t)snprintf(text + k, n - k,
				      "%s %d hosts, all nodes run on this one: expect other times of "
				      "transfers than predicted",
				      k ? "; it has" : "the plan has", p.hosts);
	if (has.memory_bytes > 0.0 && p.memory_bytes > has.memory_bytes && k < n)
		k += (size_t)snprintf(
			text + k, n - k,
			"%s %.3g GB of memory, this host has %.3g: expect swapping, or the end of a rank",
			k ? "; it needs" : "the plan needs", p.memory_bytes / 1e9, has.memory_bytes / 1e9);
	return k > 0;
}
