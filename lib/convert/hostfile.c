/* Exports files for Open MPI's launcher; rank i is node i.
 *
 *     hostfile     HOST slots=N            hosts in order of their first node, N nodes each
 *     rankfile     rank 0=HOST slot=0-3    the cores of a node of kind cpu/4
 *
 * Cores of a host are numbered in the order of its nodes of back end cpu. The rank of another device
 * only feeds it and gets no core of its own: it may run on all cores of the host's cpu nodes, because
 * higher core numbers may not exist, and mpirun then ends without a message. On a host without cpu
 * nodes each rank gets one core. */
#include <stdlib.h>
#include <string.h>
#include "convert/formats.h"
#include "convert/planned.h"

static bool has_cores(const struct dlb_cluster *cl, int node)
{
	return !strcmp(cl->kind[cl->node[node].kind].backend, "cpu");
}

/* Number of cores of cpu nodes on node i's host with index below `end`. */
static int cores_before(const struct dlb_cluster *cl, int i, int end)
{
	int n = 0;
	for (int k = 0; k < end; k++)
		if (has_cores(cl, k) && !strcmp(cl->node[k].host, cl->node[i].host))
			n += cl->kind[cl->node[k].kind].threads;
	return n;
}

/* Number of nodes on i's host before i. */
static int nodes_before(const struct dlb_cluster *cl, int i)
{
	int n = 0;
	for (int k = 0; k < i; k++)
		n += !strcmp(cl->node[k].host, cl->node[i].host);
	return n;
}

/* A host name becomes one word of a line, so it must be one. */
static int check_hosts(const struct dlb_cluster *cl, struct dlb_error *err)
{
	for (int d = 0; d < cl->n_nodes; d++) {
		const char *host = cl->node[d].host;
		if (!*host || strpbrk(host, " \t\r\n=#"))
			return dlb_fail(err, "/cluster/nodes", "node %d: '%.80s' is no name of a host", d,
					host);
	}
	return 0;
}

/* Returns the text that `write` makes of the nodes (new); NULL with err if a host has no name. */
static char *export_nodes(const struct dlb_doc *d,
			  void (*write)(const struct dlb_cluster *, struct dlb_text *), size_t *n,
			  struct dlb_error *err)
{
	struct dlb_cluster cl;
	struct dlb_text t = { .n = 0 };
	if (dlb_cluster_read(d, &cl, err))
		return NULL;
	if (check_hosts(&cl, err) == 0)
		write(&cl, &t);
	dlb_cluster_release(&cl);
	*n = t.n;
	return t.s;
}

static void write_hosts(const struct dlb_cluster *cl, struct dlb_text *t)
{
	for (int i = 0; i < cl->n_nodes; i++) {
		int slots = 0;
		bool first = true;
		for (int k = 0; k < cl->n_nodes; k++) {
			bool same = !strcmp(cl->node[k].host, cl->node[i].host);
			first &= !same || k >= i;
			slots += same;
		}
		if (first)
			dlb_text_add(t, "%s slots=%d\n", cl->node[i].host, slots);
	}
}

static void write_ranks(const struct dlb_cluster *cl, struct dlb_text *t)
{
	for (int i = 0; i < cl->n_nodes; i++) {
		const int all = cores_before(cl, i, cl->n_nodes);
		int from = 0, cores = all;
		if (has_cores(cl, i)) {
			from = cores_before(cl, i, i);
			cores = cl->kind[cl->node[i].kind].threads;
		} else if (!all) {
			from = nodes_before(cl, i);
			cores = 1;
		}
		dlb_text_add(t, "rank %d=%s slot=%d", i, cl->node[i].host, from);
		if (cores > 1)
			dlb_text_add(t, "-%d", from + cores - 1);
		dlb_text_add(t, "\n");
	}
}

char *dlb_export_hostfile(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n,
			  struct dlb_error *err)
{
	(void)o;
	return export_nodes(d, write_hosts, n, err);
}

char *dlb_export_rankfile(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n,
			  struct dlb_error *err)
{
	(void)o;
	return export_nodes(d, write_ranks, n, err);
}
