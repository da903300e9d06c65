/* The load of training data: the seconds in which each node's samples are prepared, and where rank 0 reads them
 * for all nodes (--feed host), routes and bytes of each node's share, and their seconds per step. exec/feed.c
 * prepares the samples, exec/dispatch.c sends the shares. */
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

/* Whether an instruction takes samples. Of an unrolled program, only those of one step. */
static bool takes_samples(const struct dlb_program *p, const struct dlb_instr *in)
{
	return !(p->steps > 1 && in->iteration) && in->verb == DLB_COPY && in->tensor != p->graph->seed &&
	       p->graph->tensor[in->tensor].kind != DLB_T_SEED;
}

static int64_t samples_of(const struct dlb_program *p, const struct dlb_instr *in)
{
	return p->size[in->micro_batch < 0 ? 0 : in->micro_batch];
}

size_t dlb_feed_bytes(const struct dlb_program *g, int node)
{
	const struct dlb_program *p = dlb_program_of(g, node);
	size_t bytes = dlb_feed_header_bytes(p);
	for (int i = 0; i < p->node[node].n_instr; i++) {
		const struct dlb_instr *in = &p->node[node].instr[i];
		if (takes_samples(p, in))
			bytes += aligned(
				(size_t)dlb_tensor_bytes(&p->graph->tensor[in->tensor], samples_of(p, in)));
	}
	return bytes;
}

/* Seconds in which node `by` prepares the samples of `node`. */
static double prepare_s(const struct dlb_program *g, const struct dlb_cost *c, int node, int by)
{
	const struct dlb_program *p = dlb_program_of(g, node);
	double sum = 0;
	for (int i = 0; i < p->node[node].n_instr; i++) {
		const struct dlb_instr *in = &p->node[node].instr[i];
		if (takes_samples(p, in))
			sum += (double)samples_of(p, in) * dlb_cost_sample_s(c, in->tensor, by);
	}
	return sum;
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

/* The shares that rank 0 sends: the busiest link takes so many seconds. */
static double send_shares(struct dlb_feed_load *load, const struct dlb_program *g,
			  const struct dlb_cluster *c)
{
	int n_directions = dlb_cluster_n_directions(c);
	double *direction_s = dlb_xcalloc((size_t)n_directions + 1, sizeof *direction_s), least_s = 0;
	for (int k = 1; k < g->n_nodes; k++) {
		int via = dlb_feed_via(c, g->n_nodes, k);
		double bytes = (double)dlb_feed_bytes(g, k);
		carry(c, load, direction_s, 0, via, bytes);
		if (via != k)
			carry(c, load, direction_s, via, k, bytes);
	}
	for (int i = 0; i < n_directions; i++)
		least_s = fmax(least_s, direction_s[i]);
	free(direction_s);
	return least_s;
}

void dlb_feed_load_init(struct dlb_feed_load *load, const struct dlb_program *g, const struct dlb_cost *c)
{
	const size_t n = (size_t)g->n_nodes;
	const bool host = g->whole->sharing.feed_host;
	double all_s = 0, link_s;
	*load = (struct dlb_feed_load){ .bytes = dlb_xcalloc(n, sizeof *load->bytes),
					.copy_s = dlb_xcalloc(n, sizeof *load->copy_s),
					.ready_s = dlb_xcalloc(n, sizeof *load->ready_s) };
	link_s = host ? send_shares(load, g, c->cluster) : 0;
	for (int i = 0; i < g->n_nodes && c->sample_s; i++) {
		load->ready_s[i] = prepare_s(g, c, i, host ? 0 : i);
		all_s += load->ready_s[i];
	}
	for (int i = 0; i < g->n_nodes; i++) {
		if (host)
			load->ready_s[i] = i ? fmax(all_s, link_s) : all_s;
		load->least_s = fmax(load->least_s, load->ready_s[i]);
	}
}

void dlb_feed_load_release(struct dlb_feed_load *load)
{
	free(load->bytes);
	free(load->copy_s);
	free(load->ready_s);
}
