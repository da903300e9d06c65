/* List scheduling: see list.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/list.h"
#include "place/problem.h"
#include "plan/flow.h"
#include "plan/replica.h"
#include "plan/tensors.h"

static int producer_of(const struct dlb_graph *g, int tensor)
{
	return tensor < 0 || dlb_tensor_is_state(&g->tensor[tensor]) ? -1 : g->tensor[tensor].producer;
}

static bool is_first(const struct dlb_problem *p, int op)
{
	return p->group_op[p->group_start[p->group_of[op]]] == op;
}

void dlb_list_init(struct dlb_list *s, const struct dlb_problem *p, int *placement, bool insertion)
{
	const struct dlb_graph *g = p->graph;
	size_t n_nodes = (size_t)p->cluster->n_nodes, n_ops = (size_t)g->n_ops;
	*s = (struct dlb_list){ .p = p, .placement = placement, .insertion = insertion,
				.n = dlb_micro_batch_size(p->batch, p->micro_batches, 0) };
	s->used_bytes = dlb_xcalloc(n_nodes, sizeof *s->used_bytes);
	s->busy = dlb_xcalloc(n_nodes, sizeof *s->busy);
	s->queue_s = dlb_xcalloc(n_nodes, sizeof *s->queue_s);
	s->way = dlb_xcalloc(n_nodes, sizeof *s->way);
	s->has_inputs_of = dlb_xcalloc(n_nodes, sizeof *s->has_inputs_of);
	s->first = dlb_xcalloc(n_ops + 1, sizeof *s->first);
	s->last = dlb_xcalloc(n_ops + 1, sizeof *s->last);
	s->waits = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *s->waits);
	s->ready = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *s->ready);
	for (int i = 0; i < g->n_ops; i++)
		placement[i] = -1;
	for (int t = 0; t < g->n_tensors; t++)
		for (int r = g->reader_start[t]; producer_of(g, t) >= 0 && r < g->reader_start[t + 1]; r++)
			s->waits[p->group_of[g->reader[r]]] += is_first(p, g->reader[r]);
	for (int u = 0; u < p->n_groups; u++)
		if (!s->waits[u])
			s->ready[s->n_ready++] = u;
}

void dlb_list_release(struct dlb_list *s)
{
	for (int d = 0; d < s->p->cluster->n_nodes; d++) {
		free(s->busy[d].span);
		free(s->way[d].latency_s);
	}
	free(s->used_bytes);
	free(s->busy);
	free(s->queue_s);
	free(s->way);
	free(s->has_inputs_of);
	free(s->first);
	free(s->last);
	free(s->waits);
	free(s->ready);
	memset(s, 0, sizeof *s);
}

bool dlb_list_able(const struct dlb_list *s, int unit, double bytes, int node)
{
	return !isinf(dlb_time_s(s->p, unit, node)) &&
	       s->used_bytes[node] + bytes <= s->p->memory_bytes[node];
}

/* Routes from a node, cached: placing needs them from each producer to every node. */
static const struct dlb_ways *ways_from(struct dlb_list *s, int from)
{
	const struct dlb_cluster *c = s->p->cluster;
	struct dlb_ways *w = &s->way[from];
	size_t n = (size_t)c->n_nodes;
	if (w->latency_s)
		return w;
	w->latency_s = dlb_xcalloc(3 * n, sizeof(double));
	w->Bps = w->latency_s + n;
	w->copies = w->Bps + n;
	for (int to = 0; to < c->n_nodes; to++) {
		struct dlb_way way = dlb_cluster_way(c, from, to);
		w->latency_s[to] = way.latency_s;
		w->Bps[to] = way.Bps;
		w->copies[to] = way.copies;
	}
	return w;
}

void dlb_unit_times_init(struct dlb_unit_times *l, int n_nodes)
{
	l->arrives = dlb_xcalloc(3 * (size_t)n_nodes, sizeof(double));
	l->last = l->arrives + n_nodes;
	l->work = l->last + n_nodes;
}

void dlb_unit_times_release(struct dlb_unit_times *l)
{
	free(l->arrives);
}

/* Adds a message of `bytes` to every node; its first micro-batch leaves at `first`, its last at `last`. */
static void look_at(struct dlb_unit_times *l, int n_nodes, const struct dlb_ways *way, double bytes,
		    double first, double last, double M)
{
	double *restrict arrives = l->arrives, *restrict ends = l->last, *restrict work = l->work;
	const double *restrict latency_s = way->latency_s, *restrict Bps = way->Bps,
			       *restrict copies = way->copies;
	for (int d = 0; d < n_nodes; d++) {
		double c = latency_s[d] + bytes / Bps[d];		/* 0 to itself */
		work[d] += copies[d] > 0 ? c * M : 0;
		arrives[d] = first + c > arrives[d] ? first + c : arrives[d];
		ends[d] = last + c > ends[d] ? last + c : ends[d];
	}
}

void dlb_list_times(struct dlb_list *s, int unit, struct dlb_unit_times *l)
{
	const struct dlb_problem *p = s->p;
	const struct dlb_graph *g = p->graph;
	int n_nodes = p->cluster->n_nodes;
	for (int d = 0; d < n_nodes; d++) {
		l->arrives[d] = l->last[d] = 0;
		l->work[d] = dlb_time_s(p, unit, d);
	}
	for (int k = p->group_start[unit]; k < p->group_start[unit + 1]; k++) {
		const struct dlb_op *o = &g->op[p->group_op[k]];
		for (int i = 0; i < o->n_in; i++) {
			int from = producer_of(g, o->in[i]);
			/* the input is training data, or its producer is in this unit or not placed yet */
			if (from < 0 || s->placement[from] < 0)
				continue;
			look_at(l, n_nodes, ways_from(s, s->placement[from]),
				dlb_tensor_bytes(&g->tensor[o->in[i]], s->n), s->first[from], s->last[from],
				p->micro_batches);
		}
	}
}

/* Start of the first gap of `work` seconds after `arrives`; *before: the span after the gap. */
static double find_gap(const struct dlb_busy *b, double arrives, double work, int *before)
{
	int low = 0, high = b->n;
	while (low < high) {			/* skips spans that end by then */
		int mid = (low + high) / 2;
		if (b->span[mid].end_s <= arrives)
			low = mid + 1;
		else
			high = mid;
	}
	double at = arrives;
	for (; low < b->n && b->span[low].start_s < at + work; low++)
		at = fmax(at, b->span[low].end_s);
	*before = low;
	return at;
}

void dlb_list_finish(const struct dlb_list *s, int unit, int node, const struct dlb_unit_times *l,
		     struct dlb_finish *f)
{
	double one = dlb_time_s(s->p, unit, node) / s->p->micro_batches;
	int before;
	f->arrives = l->arrives[node];
	f->work = l->work[node];
	if (s->insertion)
		f->starts = find_gap(&s->busy[node], f->arrives, f->work, &before);
	else
		f->starts = s->queue_s[node] > f->arrives ? s->queue_s[node] : f->arrives;
	f->ends = f->starts + f->work;
	f->eft = f->ends > l->last[node] + one ? f->ends : l->last[node] + one;
}

static void occupy(struct dlb_list *s, int node, const struct dlb_finish *f)
{
	struct dlb_busy *b = &s->busy[node];
	int at = 0;
	s->queue_s[node] = f->ends;
	if (!s->insertion)
		return;
	find_gap(b, f->arrives, f->work, &at);
	DLB_GROW(b->span, b->n, b->size);
	memmove(b->span + at + 1, b->span + at, (size_t)(b->n - at) * sizeof *b->span);
	b->span[at] = (struct dlb_span_s){ f->starts, f->ends };
	b->n++;
}

void dlb_list_put(struct dlb_list *s, int unit, int node, const struct dlb_finish *f)
{
	const struct dlb_problem *p = s->p;
	const struct dlb_graph *g = p->graph;
	double one = dlb_time_s(p, unit, node) / p->micro_batches;
	occupy(s, node, f);
	s->used_bytes[node] += dlb_group_bytes(p, unit);
	for (int k = p->group_start[unit]; k < p->group_start[unit + 1]; k++) {
		int i = p->group_op[k];
		s->placement[i] = node;
		s->first[i] = f->arrives + one;
		s->last[i] = f->eft;
		for (int j = 0; j < g->op[i].n_out; j++) {
			int t = g->op[i].out[j];
			if (producer_of(g, t) != i)
				continue;
			for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
				int to = p->group_of[g->reader[r]];
				if (is_first(p, g->reader[r]) && --s->waits[to] == 0)
					s->ready[s->n_ready++] = to;
			}
		}
	}
}

/* Marks the nodes that have an input of the unit's first op: they win ties. */
static void find_inputs(struct dlb_list *s, int unit)
{
	const struct dlb_graph *g = s->p->graph;
	const struct dlb_op *o = &g->op[s->p->group_op[s->p->group_start[unit]]];
	for (int i = 0; i < o->n_in; i++) {
		int from = producer_of(g, o->in[i]);
		if (from >= 0 && s->placement[from] >= 0)
			s->has_inputs_of[s->placement[from]] = unit + 1;
	}
}

/* The node of the least EFT + bias; -1: none has kernel and room. */
static int best_node(struct dlb_list *s, int unit, const double *bias, struct dlb_unit_times *l,
		     struct dlb_finish *best)
{
	int to = -1;
	double least = INFINITY, bytes = dlb_group_bytes(s->p, unit);
	dlb_list_times(s, unit, l);
	find_inputs(s, unit);
	for (int d = 0; d < s->p->cluster->n_nodes; d++) {
		struct dlb_finish f;
		if (!dlb_list_able(s, unit, bytes, d))
			continue;
		dlb_list_finish(s, unit, d, l, &f);
		double score = f.eft + (bias ? bias[d] : 0);
		bool tie = to >= 0 && fabs(score - least) <= 1e-12 * least;
		if (to < 0 || (tie ? s->has_inputs_of[d] == unit + 1 && s->has_inputs_of[to] != unit + 1 :
				     score < least)) {
			least = score;
			to = d;
			*best = f;
		}
	}
	return to;
}

int dlb_list_schedule(const struct dlb_problem *p, const double *priority, const double *bias, bool insertion,
		      int *placement, struct dlb_error *err)
{
	struct dlb_list s;
	struct dlb_heap waiting = { .n = 0 };
	struct dlb_unit_times look;
	struct dlb_finish f;
	int rc = 0;
	dlb_unit_times_init(&look, p->cluster->n_nodes);
	dlb_list_init(&s, p, placement, insertion);
	while (rc == 0) {
		while (s.n_ready) {
			int unit = s.ready[--s.n_ready];
			dlb_heap_push(&waiting, -priority[unit], unit);
		}
		if (!waiting.n)
			break;
		int unit = dlb_heap_pop(&waiting).id;
		int to = best_node(&s, unit, bias ? bias + (size_t)unit * (size_t)p->cluster->n_nodes : NULL,
				   &look, &f);
		if (to < 0)
			rc = dlb_no_room(p, unit, err);
		else
			dlb_list_put(&s, unit, to, &f);
	}
	dlb_heap_release(&waiting);
	dlb_list_release(&s);
	dlb_unit_times_release(&look);
	return rc;
}
