/* Exports a planned step for SimGrid, as an independent check of our simulator: the program as
 * time-independent actions of SMPI's replay, and the cluster as a platform.
 *
 *     smpi      RANK compute FLOPS | irecv PEER TAG BYTES | isend PEER TAG BYTES | wait FROM TO TAG
 *     simgrid   XML: a host for each node, a link for each direction of a link, a route for each pair
 *
 * Hosts compute HOST_FLOPS, so that FLOPS are the predicted seconds of an op on its node. A message waits for
 * its receiver's irecv, as in the program. Over a link that does not overlap with work (shared memory) the
 * sender copies: its message is a computation before a send of no bytes. Sums over replicas, norms of
 * gradients, copies of offloaded tensors and overlapping steps have no actions here; a plan with any of them
 * is refused. */
#include <math.h>
#include <stdlib.h>
#include "convert/formats.h"
#include "convert/planned.h"
#include "plan/schedule.h"
#include "plan/timeline.h"

#define HOST_FLOPS 1e9
enum { MOST_NODES = 1024 };		/* limits the routes, one per pair of nodes */

struct smpi_trace {
	const struct dlb_program *g;
	const struct dlb_cluster *cl;
	const struct dlb_timeline *t;
	struct dlb_text *text;
	int next_span;
};

/* Predicted seconds of a COMPUTE. A node's spans are in the order of its instructions; an instruction that
 * takes no time has no span. */
static double compute_s(struct smpi_trace *x, int node, const struct dlb_instr *in)
{
	const int m = in->micro_batch < 0 ? -1 : in->micro_batch;

	if (x->next_span == x->t->n_spans[node])
		return 0;
	const struct dlb_span *s = &x->t->span[node][x->next_span];
	if (s->op != in->op || s->micro_batch != m)
		return 0;
	x->next_span++;
	return s->end_s - s->start_s;
}

static void write_compute(struct smpi_trace *x, int node, double s)
{
	if (s > 0)
		dlb_text_add(x->text, "%d compute %.17g\n", node, s * HOST_FLOPS);
}

static void write_instr(struct smpi_trace *x, int node, const struct dlb_instr *in)
{
	const struct dlb_program *g = x->g;
	const bool sends = in->verb == DLB_SEND;

	if (in->verb == DLB_COMPUTE) {
		write_compute(x, node, compute_s(x, node, in));
	} else if (in->verb == DLB_WAIT) {
		dlb_text_add(x->text, "%d wait %d %d %d\n", node, in->sent ? node : in->peer,
			     in->sent ? in->peer : node, in->tag);
	} else if (sends || in->verb == DLB_POST) {
		const struct dlb_way way = dlb_cluster_way(x->cl, sends ? node : in->peer,
							   sends ? in->peer : node);
		double bytes = dlb_tensor_bytes(&g->graph->tensor[in->tensor],
						g->size[in->micro_batch < 0 ? 0 : in->micro_batch]);
		if (sends && way.copies)
			write_compute(x, node, bytes / way.Bps);
		if (way.copies)
			bytes = 0;
		dlb_text_add(x->text, "%d %s %d %d %.0f\n", node, sends ? "isend" : "irecv", in->peer,
			     in->tag, bytes);
	}
}

static void write_trace(struct smpi_trace *x)
{
	for (int node = 0; node < x->g->n_nodes; node++) {
		const struct dlb_node_program *np = &x->g->node[node];

		x->next_span = 0;
		dlb_text_add(x->text, "%d init\n", node);
		for (int i = 0; i < np->n_instr; i++)
			write_instr(x, node, &np->instr[i]);
		dlb_text_add(x->text, "%d finalize\n", node);
	}
}

static int check_plan(const struct dlb_planned *p, struct dlb_error *err)
{
	const struct dlb_schedule *s = p->p.schedule ? dlb_schedule_find(p->p.schedule) : NULL;

	if (p->p.n_replicas > 1 || p->p.clip || p->p.offload.n || (s && s->async)) {
		return dlb_fail_no(err, "/plan", "smpi cannot express %s",
				   p->p.n_replicas > 1 ? "sums over replicas" :
				   p->p.clip           ? "a norm of all gradients" :
				   p->p.offload.n      ? "copies of offloaded tensors" :
							 "steps that overlap");
	}
	return 0;
}

char *dlb_export_smpi(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n,
		      struct dlb_error *err)
{
	const struct dlb_simulate_choice choice = { .keep_spans = true };
	struct dlb_text text = { .n = 0 };
	struct dlb_planned p;
	struct dlb_program g;
	struct dlb_timeline t;

	(void)o;
	if (dlb_planned_read(d, &p, err))
		return NULL;
	if (!check_plan(&p, err) && !dlb_program_compile(&p.p, &p.c, p.p.batch, 0, &g, err)) {
		if (!dlb_program_simulate(&g, &p.c, &choice, &t, err)) {
			struct smpi_trace x = { .g = &g, .cl = &p.cl, .t = &t, .text = &text };
			write_trace(&x);
			dlb_timeline_release(&t, g.n_nodes);
		}
		dlb_program_release(&g);
	}
	dlb_planned_release(&p);
	*n = text.n;
	return text.s;
}

/* -- the platform -- */

static void write_links(const struct dlb_cluster *c, struct dlb_text *t)
{
	const int n = dlb_cluster_n_directions(c);
	bool *seen = dlb_xcalloc((size_t)n + 1, sizeof *seen);

	for (int a = 0; a < c->n_nodes; a++)
		for (int b = 0; b < c->n_nodes; b++) {
			struct dlb_direction way[DLB_MAX_ROUTE];
			const int k = a == b ? 0 : dlb_cluster_directions(c, a, b, way, NULL);
			for (int i = 0; i < k; i++) {
				if (seen[way[i].id])
					continue;
				seen[way[i].id] = true;
				dlb_text_add(t,
					     "    <link id=\"d%d\" bandwidth=\"%.17gBps\" "
					     "latency=\"0s\"/>\n",
					     way[i].id, c->link[way[i].link].bandwidth_Bps);
			}
		}
	free(seen);
}

/* The latency of a route is that of an extra link, used by this route only, with unlimited bandwidth. */
static void write_route(const struct dlb_cluster *c, int a, int b, struct dlb_text *routes,
			struct dlb_text *t)
{
	struct dlb_direction direction[DLB_MAX_ROUTE];
	struct dlb_way way;
	const int n = dlb_cluster_directions(c, a, b, direction, &way);

	dlb_text_add(t,
		     "    <link id=\"l%d-%d\" bandwidth=\"1e18Bps\" latency=\"%.17gs\" "
		     "sharing_policy=\"FATPIPE\"/>\n",
		     a, b, way.latency_s);
	dlb_text_add(routes,
		     "    <route src=\"n%d\" dst=\"n%d\" symmetrical=\"NO\"><link_ctn id=\"l%d-%d\"/>", a, b,
		     a, b);
	for (int i = 0; i < n; i++)
		dlb_text_add(routes, "<link_ctn id=\"d%d\"/>", direction[i].id);
	dlb_text_add(routes, "</route>\n");
}

char *dlb_export_simgrid(const struct dlb_doc *d, const struct dlb_convert_options *o, size_t *n,
			 struct dlb_error *err)
{
	struct dlb_text t = { .n = 0 }, routes = { .n = 0 };
	struct dlb_cluster c;

	(void)o;
	if (dlb_cluster_read(d, &c, err))
		return NULL;
	if (dlb_cluster_correct_links(d, &c, err)) {
		dlb_cluster_release(&c);
		return NULL;
	}
	if (c.n_nodes > MOST_NODES) {
		dlb_refuse(err, "/cluster/nodes", "take fewer nodes",
			   "the platform has a route for each pair of nodes, for at most %d nodes",
			   MOST_NODES);
	} else {
		dlb_text_add(&t, "<?xml version=\"1.0\"?>\n<!DOCTYPE platform SYSTEM "
				 "\"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n"
				 "  <zone id=\"cluster\" routing=\"Full\">\n");
		for (int i = 0; i < c.n_nodes; i++)
			dlb_text_add(&t, "    <host id=\"n%d\" speed=\"%gf\"/>\n", i, HOST_FLOPS);
		write_links(&c, &t);
		for (int a = 0; a < c.n_nodes; a++)
			for (int b = 0; b < c.n_nodes; b++)
				if (a != b)
					write_route(&c, a, b, &routes, &t);
		dlb_text_add(&t, "%s  </zone>\n</platform>\n", routes.s ? routes.s : "");
	}
	free(routes.s);
	dlb_cluster_release(&c);
	*n = t.n;
	return t.s;
}
