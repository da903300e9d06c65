/* What rank 0 sends where it reads for all (--feed host): whose share, by way of whom, how many bytes, and what that takes
 * of a step. exec/dispatch.c sends it. */
#include <math.h>
#include <stdlib.h>
#include "plan/flow.h"

enum { ALIGN = 64 };

static size_t aligned(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

int dlb_feed_via(const struct dlb_cluster *c, int n_nodes, int node)
{
	int group = c->node[node].group;
	if (group < 0 || group == c->node[0].group)
		return node;
	for (int i = 0; i < n_nodes; i++)
		if (c->node[i].group == group)
			return i;
	return node;
}

size_t dlb_feed_header_bytes(const struct dlb_program *p)
{
	return aligned(((size_t)p->micro_batches / (size_t)p->steps + 1) * sizeof(double));
}

size_t dlb_feed_bytes(const struct dlb_program *g, int node)
{
	const struct dlb_program *p = dlb_program_of(g, node);
	size_t bytes = dlb_feed_header_bytes(p);
	for (int i = 0; i < p->node[node].n_instr; i++) {
		const struct dlb_instr *in = &p->node[node].instr[i];
		if (p->steps > 1 && in->iteration)		/* written out step by step: of one of them */
			continue;
		if (in->verb == DLB_COPY && in->tensor != p->graph->seed && p->graph->tensor[in->tensor].kind != DLB_T_SEED)
			bytes += aligned((size_t)dlb_tensor_bytes(&p->graph->tensor[in->tensor], p->size[in->micro_batch < 0 ? 0 : in->micro_batch]));
	}
	return bytes;
}

/* A share goes over the links between two nodes. */
static void carry(const struct dlb_cluster *c, struct dlb_feed_load *load, double *link_s, int from, int to, double bytes)
{
	int link[DLB_MAX_ROUTE], n = dlb_cluster_route(c, from, to, link);
	double slowest_s = 0;
	bool copies = false;
	load->bytes[from] += bytes;
	for (int i = 0; i < n; i++) {
		double s = c->link[link[i]].bandwidth_Bps > 0 ? bytes / c->link[link[i]].bandwidth_Bps : 0;
		link_s[link[i]] += s;
		slowest_s = fmax(slowest_s, s);
		copies |= !c->link[link[i]].overlap;
	}
	load->copy_s[from] += copies ? slowest_s : 0;
}

void dlb_feed_load_init(struct dlb_feed_load *load, const struct dlb_program *g, const struct dlb_cluster *c)
{
	double *link_s = dlb_xcalloc((size_t)c->n_links + 1, sizeof *link_s);
	*load = (struct dlb_feed_load){ .bytes = dlb_xcalloc((size_t)g->n_nodes, sizeof *load->bytes),
		.copy_s = dlb_xcalloc((size_t)g->n_nodes, sizeof *load->copy_s) };
	for (int k = 1; k < g->n_nodes; k++) {
		int via = dlb_feed_via(c, g->n_nodes, k);
		double bytes = (double)dlb_feed_bytes(g, k);
		carry(c, load, link_s, 0, via, bytes);
		if (via != k)
			carry(c, load, link_s, via, k, bytes);
	}
	for (int i = 0; i < c->n_links; i++)
		load->least_s = fmax(load->least_s, link_s[i]);
	free(link_s);
}

void dlb_feed_load_release(struct dlb_feed_load *load)
{
	free(load->bytes);
	free(load->copy_s);
}
