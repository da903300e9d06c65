/* Greedy: each group of ops, in topological order, to the node that would finish it first.
 *
 * What is placed is an op for all its M micro-batches, so the work that it adds to a node's queue is that of
 * all M, and the finish that counts is that of the last. With one micro-batch t and all M of them T seconds,
 * first(i) and last(i) the times when op i's first and last micro-batch are there, c the time of a message:
 *
 *     arrives(i,d) = max over inputs p of first(p) + c(p,d)        the pipeline fills
 *     ends(i,d)    = max(queue(d), arrives(i,d)) + T(i,d)          all M in the node's queue
 *     EFT(i,d)     = max(ends(i,d), max over p of last(p) + c(p,d) + t(i,d))
 *
 * Where the receiver itself copies messages (shared memory), M of them are work of its own and are in T.
 * Ties go to where the inputs are. Earliest finish time is HEFT's rule (Topcuoglu, Hariri, Wu, IEEE TPDS
 * 13(3), 2002) without its order. */
#include <math.h>
#include <stdlib.h>
#include "place/place.h"

struct greedy {
	const struct dlb_problem *p;
	const int *placement;
	double *queue, *used_bytes;		/* [node] */
	double *first, *last;			/* [op] */
	int64_t n;				/* samples of the largest micro-batch */
};

static bool receiver_copies(const struct dlb_cluster *c, int from, int to)
{
	int link[16], n = dlb_cluster_route(c, from, to, link);
	for (int i = 0; i < n; i++)
		if (!c->link[link[i]].overlap)
			return true;
	return false;
}

struct finish { double eft, ends, arrives; };

static struct finish try(const struct greedy *s, int group, int d)
{
	const struct dlb_problem *p = s->p;
	const struct dlb_graph *g = p->graph;
	double T = p->time_s[(size_t)group * (size_t)p->cluster->n_nodes + (size_t)d], t = T / p->micro_batches;
	double arrives = 0, last = 0;
	for (int k = p->group_start[group]; k < p->group_start[group + 1]; k++) {
		const struct dlb_op *o = &g->op[p->group_op[k]];
		for (int i = 0; i < o->n_in; i++) {
			int from = o->in[i] < 0 || dlb_tensor_is_state(&g->tensor[o->in[i]]) ? -1 : g->tensor[o->in[i]].producer;
			if (from < 0 || p->group_of[from] >= group)	/* fed, of this group, or not placed yet */
				continue;
			double c = 0;
			if (s->placement[from] != d) {
				c = dlb_cost_xfer_s(p->cost, dlb_tensor_bytes(&g->tensor[o->in[i]], s->n), s->placement[from], d);
				if (receiver_copies(p->cluster, s->placement[from], d))
					T += c * p->micro_batches;
			}
			if (s->first[from] + c > arrives)
				arrives = s->first[from] + c;
			if (s->last[from] + c > last)
				last = s->last[from] + c;
		}
	}
	double ends = (s->queue[d] > arrives ? s->queue[d] : arrives) + T;
	return (struct finish){ ends > last + t ? ends : last + t, ends, arrives };
}

static bool has_inputs(const struct greedy *s, int group, int d)
{
	const struct dlb_graph *g = s->p->graph;
	const struct dlb_op *o = &g->op[s->p->group_op[s->p->group_start[group]]];
	for (int i = 0; i < o->n_in; i++) {
		int from = o->in[i] < 0 ? -1 : g->tensor[o->in[i]].producer;
		if (from >= 0 && s->p->group_of[from] < group && s->placement[from] == d)
			return true;
	}
	return false;
}

int dlb_place_greedy(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	int n_nodes = p->cluster->n_nodes, rc = 0;
	struct greedy s = { .p = p, .placement = placement, .n = dlb_micro_batch_size(p->batch, p->micro_batches, 0) };
	s.queue = dlb_xcalloc((size_t)n_nodes, sizeof(double));
	s.used_bytes = dlb_xcalloc((size_t)n_nodes, sizeof(double));
	s.first = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof(double));
	s.last = dlb_xcalloc((size_t)p->graph->n_ops + 1, sizeof(double));
	for (int g = 0; g < p->n_groups && rc == 0; g++) {
		struct finish best = { INFINITY, 0, 0 };
		int to = -1;
		for (int d = 0; d < n_nodes; d++) {
			if (isinf(p->time_s[(size_t)g * (size_t)n_nodes + (size_t)d]) ||
			    s.used_bytes[d] + dlb_group_bytes(p, g) > p->memory_bytes[d])
				continue;
			struct finish f = try(&s, g, d);
			bool tie = to >= 0 && fabs(f.eft - best.eft) <= 1e-12 * best.eft;
			if (to < 0 || (tie ? has_inputs(&s, g, d) && !has_inputs(&s, g, to) : f.eft < best.eft)) {
				best = f;
				to = d;
			}
		}
		if (to < 0) {
			rc = dlb_no_room(p, g, err);
			break;
		}
		s.queue[to] = best.ends;
		s.used_bytes[to] += dlb_group_bytes(p, g);
		double t = p->time_s[(size_t)g * (size_t)n_nodes + (size_t)to] / p->micro_batches;
		for (int k = p->group_start[g]; k < p->group_start[g + 1]; k++) {
			placement[p->group_op[k]] = to;
			s.first[p->group_op[k]] = best.arrives + t;
			s.last[p->group_op[k]] = best.eft;
		}
	}
	free(s.queue);
	free(s.used_bytes);
	free(s.first);
	free(s.last);
	return rc;
}
