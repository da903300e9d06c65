/* Compares this host with the hosts that a plan was made for. See host_differs.h. */
#include "exec/host_differs.h"
#include "cluster/cluster.h"
#include <stdio.h>
#include <string.h>

struct planned {
	int nodes, hosts, cores;
};

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

static struct planned planned_for(const struct dlb_cluster *c)
{
	struct planned p = { .nodes = c->n_nodes, .cores = dlb_cluster_cores(c) };

	for (int i = 0; i < c->n_nodes; i++) {
		bool known = !c->node[i].host;

		for (int k = 0; k < i && !known; k++)
			known = c->node[k].host && !strcmp(c->node[k].host, c->node[i].host);
		p.hosts += !known;
	}
	return p;
}

bool dlb_host_differs(const struct dlb_doc *doc, int cores, char *text, size_t n)
{
	struct dlb_cluster c;
	struct dlb_error err;
	size_t k = 0;

	text[0] = '\0';
	if (dlb_cluster_read(doc, &c, &err))
		return false;
	const struct planned p = planned_for(&c);
	dlb_cluster_release(&c);
	if (p.cores > cores)
		k += (size_t)snprintf(text, n,
				      "the plan has %d nodes of %d cores in all, this host has %d: expect "
				      "steps up to about %.2g times the predicted",
				      p.nodes, p.cores, cores, (double)p.cores / cores);
	if (p.hosts > 1 && k < n)
		k += (size_t)snprintf(text + k, n - k,
				      "%s %d hosts, all nodes run on this one: expect other times of "
				      "transfers than predicted",
				      k ? "; it has" : "the plan has", p.hosts);
	return k > 0;
}
