/* The load of training data that rank 0 reads for all nodes (--feed host): routes and bytes of each node's
 * share, and their seconds per step. exec/dispatch.c sends the shares. */
#include <math.h>
#include <stdlib.h>
#include "plan/feed_load.h"
#include "plan/flow.h"
#include "plan/replica.h"

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
		if (p->steps > 1 && in->iteration)		/* an unrolled program: count one step */
			continue;
		if (in->verb == DLB_COPY && in->tensor != p->graph->seed &&
		    p->graph->tensor[in->tensor].kind != DLB_T_SEED)
			bytes += aligned(
				(size_t)dlb_tensor_bytes(&p->graph->tensor[in->tensor],
							 p->size[in->micro_batch < 0 ? 0 : in->micro_batch]));
	}
	return bytes;
}

/* Adds a share to the load of the directions between two nodes. */
static void carry(const struct dlb_cluster *c, struct dlb_feed_load *load, double *direction_s, int from,
		  int to, double bytes)
{
	struct dlb_direction direction[DLB_MAX_ROUTE];
	struct dlb_way way;
	int n = dlb_cluster_directions(c, from, to, direction, &way);
	load->bytes[from] += bytes;
	for (int i = 0; i < n; i++)
		direction_s[direction[i].id] += bytes / c->link[direction[i].link].bandwidth_Bps;
	load->copy_s[from] += way.copies ? bytes / way.Bps : 0;
}

void dlb_feed_load_init(struct dlb_feed_load *load, const struct dlb_program *g, const struct dlb_cluster *c)
{
	int n_directions = dlb_cluster_n_directions(c);
	double *direction_s = dlb_xcalloc((size_t)n_directions + 1, sizeof *direction_s);
	*load = (struct dlb_feed_load){ .bytes = dlb_xcalloc((size_t)g->n_nodes, sizeof *load->bytes),
		.copy_s = dlb_xcalloc((size_t)g->n_nodes, sizeof *load->copy_s) };
	for (int k = 1; k < g->n_nodes; k++) {
		int via = dlb_feed_via(c, g->n_nodes, k);
		double bytes = (double)dlb_feed_bytes(g, k);
		carry(c, load, direction_s, 0, via, bytes);
		if (via != k)
			carry(c, load, direction_s, via, k, bytes);
	}
	for (int i = 0; i < n_directions; i++)
		load->least_s = fmax(load->least_s, direction_s[i]);
	free(direction_s);
}

void dlb_feed_load_release(struct dlb_feed_load *load)
{
	free(load->bytes);
	free(load->copy_s);
}
