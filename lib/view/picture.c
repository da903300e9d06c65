/* Time-lines, gaps and messages for the drawings: see picture.h. */
#include "plan/replica.h"
#include "plan/timeline.h"
#include "view/picture.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double last_end(const struct dlb_source *s)
{
	double end = 0;

	for (int i = 0; i < s->n_nodes; i++)
		for (int k = 0; k < s->n_spans[i]; k++)
			end = fmax(end, s->span[i][k].end_s);
	return end;
}

bool dlb_view_predicted(const struct dlb_view *v, struct dlb_source *s)
{
	if (!v->has_plan || !v->plan.timeline)
		return false;
	*s = (struct dlb_source){ "predicted", v->plan.timeline, v->plan.n_spans, v->plan.n_nodes, 0 };
	s->end_s = last_end(s);
	return s->end_s > 0;
}

bool dlb_view_measured(const struct dlb_view *v, struct dlb_source *s)
{
	if (!v->has_report || !v->report.timeline)
		return false;
	*s = (struct dlb_source){ v->report.dry_run ? "simulated" : "measured", v->report.timeline,
				  v->report.n_spans, v->report.n_nodes, 0 };
	s->end_s = last_end(s);
	return s->end_s > 0;
}

/* Index of (op, m) of replica r in the arrays of w; -1: not part of one step. */
static ptrdiff_t at(const struct dlb_op_spans *w, int r, int op, int m)
{
	if (op < 0 || op >= w->n_ops || m < -1 || m >= w->micro_batches)
		return -1;
	return ((ptrdiff_t)r * w->n_ops + op) * (w->micro_batches + 1) + m + 1;
}

void dlb_op_spans_init(struct dlb_op_spans *w, const struct dlb_view *v, const struct dlb_source *s)
{
	size_t n;

	*w = (struct dlb_op_spans){ .n_ops = v->graph.n_ops, .micro_batches = 1, .n_replicas = 1 };
	if (v->has_plan) {
		w->micro_batches = v->plan.micro_batches;
		w->n_replicas = v->plan.n_replicas > 1 ? v->plan.n_replicas : 1;
		w->plan = &v->plan;
	}
	n = (size_t)w->n_replicas * (size_t)w->n_ops * ((size_t)w->micro_batches + 1) + 1;
	w->start_s = dlb_xmalloc(n * sizeof *w->start_s);
	w->end_s = dlb_xmalloc(n * sizeof *w->end_s);
	w->node = dlb_xmalloc(n * sizeof *w->node);
	for (size_t i = 0; i < n; i++) {
		w->start_s[i] = w->end_s[i] = NAN;
		w->node[i] = -1;
	}
	for (int i = 0; i < s->n_nodes; i++)
		for (int k = 0; k < s->n_spans[i]; k++) {
			int r = w->plan && i < w->plan->n_nodes ? dlb_plan_replica_of(w->plan, i) : 0;
			ptrdiff_t x = at(w, r, s->span[i][k].op, s->span[i][k].micro_batch);

			if (x < 0 || s->span[i][k].again)
				continue;
			if (!(s->span[i][k].start_s >= w->start_s[x]))
				w->start_s[x] = s->span[i][k].start_s;
			if (!(s->span[i][k].end_s <= w->end_s[x]))
				w->end_s[x] = s->span[i][k].end_s;
			w->node[x] = i;
		}
}

void dlb_op_spans_release(struct dlb_op_spans *w)
{
	free(w->start_s);
	free(w->end_s);
	free(w->node);
	memset(w, 0, sizeof *w);
}

/* ---- gaps ---- */

/* For each (op, m) the first instruction of the node's program that computes it; -1: none. Returns new. */
static int *computes(const struct dlb_op_spans *w, const struct dlb_node_program *np)
{
	size_t n = (size_t)w->n_ops * ((size_t)w->micro_batches + 1) + 1;
	int *where = dlb_xmalloc(n * sizeof *where);

	for (size_t i = 0; i < n; i++)
		where[i] = -1;
	for (int i = 0; i < np->n_instr; i++) {
		ptrdiff_t x = np->instr[i].verb == DLB_COMPUTE ?
				      at(w, 0, np->instr[i].op, np->instr[i].micro_batch) :
				      -1;

		if (x >= 0 && where[x] < 0)
			where[x] = i;
	}
	return where;
}

/* Finds why a node computed nothing between two instructions, from the waits between them. A wait for a
 * message counts if its producer ended after the gap began. */
static void explain(const struct dlb_op_spans *w, const struct dlb_program *p,
		    const struct dlb_node_program *np, int node, int from, int to, struct dlb_gap *gap)
{
	const struct dlb_graph *g = p->graph;
	int r = dlb_plan_replica_of(w->plan, node), nearest = -1;
	bool collective = false, sent = false, received = false;
	double latest = gap->start_s;

	for (int i = from; i < to; i++) {
		const struct dlb_instr *in = &np->instr[i];
		ptrdiff_t x;

		collective |= in->verb == DLB_COLLECTIVE;
		sent |= in->verb == DLB_WAIT && in->sent;
		if (in->verb != DLB_WAIT || in->sent)
			continue;
		received = true;
		nearest = nearest < 0 ? in->peer : nearest;
		x = in->tensor >= 0 && g->tensor[in->tensor].producer >= 0
			? at(w, r, g->tensor[in->tensor].producer, in->micro_batch) : -1;
		if (x >= 0 && w->end_s[x] > latest) {
			latest = w->end_s[x];
			gap->peer = in->peer;
		}
	}
	if (gap->peer >= 0)
		gap->kind = DLB_WAIT_STARVED;
	else if (collective)
		gap->kind = DLB_WAIT_COLLECTIVE;
	else if (sent)
		gap->kind = DLB_WAIT_BACKPRESSURE;
	else if (received) {
		gap->kind = DLB_WAIT_STARVED;
		gap->peer = nearest;
	}
}

int dlb_view_gaps(const struct dlb_view *v, const struct dlb_program *p, const struct dlb_source *s,
		  const struct dlb_op_spans *w, int node, double least_s, struct dlb_gap **out)
{
	const struct dlb_node_program *np = p && v->has_plan && node < v->plan.n_nodes ?
						    &dlb_program_of(p, node)->node[node] :
						    NULL;
	int *where = np ? computes(w, np) : NULL, n = 0, cap = 0, before = 0;
	double now = 0;

	*out = NULL;
	for (int k = 0; k <= s->n_spans[node]; k++) {
		const struct dlb_span *span = k < s->n_spans[node] ? &s->span[node][k] : NULL;
		double start = span ? span->start_s : s->end_s;
		ptrdiff_t x = span && where && !span->again ? at(w, 0, span->op, span->micro_batch) : -1;
		int here = !np ? 0 : !span ? np->n_instr : x >= 0 && where[x] >= 0 ? where[x] : before;

		if (start - now > least_s && start > now) {
			struct dlb_gap gap = { -1, -1, now, start };

			if (np)
				explain(w, dlb_program_of(p, node), np, node, before < here ? before : here,
					here, &gap);
			DLB_GROW(*out, n, cap);
			(*out)[n++] = gap;
		}
		now = span && span->end_s > now ? span->end_s : now;
		before = here + (span && np);
	}
	free(where);
	return n;
}

/* ---- messages ---- */

static int by_bytes(const void *a, const void *b)
{
	const struct dlb_sending *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	if (x->tensor != y->tensor)
		return x->tensor - y->tensor;
	return x->micro_batch != y->micro_batch ? x->micro_batch - y->micro_batch : x->to - y->to;
}

struct sendings { struct dlb_sending *s; int n, cap; };

/* Adds the messages of tensor t and micro-batch m in replica r, whose batch this is: one to each other node that
 * reads it. */
static void sendings_of(const struct dlb_view *v, const struct dlb_op_spans *w, int r, int64_t batch, int t,
			int m, struct sendings *out)
{
	const struct dlb_graph *g = &v->graph;
	ptrdiff_t made = at(w, r, g->tensor[t].producer, m);
	int first = out->n;

	if (made < 0 || w->node[made] < 0)
		return;
	for (int k = g->reader_start[t]; k < g->reader_start[t + 1]; k++) {
		ptrdiff_t read = at(w, r, g->reader[k], m);
		int j = first;

		if (read < 0 || w->node[read] < 0 || w->node[read] == w->node[made])
			continue;
		while (j < out->n && out->s[j].to != w->node[read])
			j++;
		if (j < out->n) {
			out->s[j].end_s = fmin(out->s[j].end_s, w->start_s[read]);
			continue;
		}
		DLB_GROW(out->s, out->n, out->cap);
		out->s[out->n++] = (struct dlb_sending){
			w->node[made],
			w->node[read],
			t,
			m,
			w->end_s[made],
			w->start_s[read],
			dlb_tensor_bytes(&g->tensor[t],
					 m < 0 ? 1 : dlb_micro_batch_size(batch, w->micro_batches, m))
		};
	}
}

int dlb_view_sendings(const struct dlb_view *v, const struct dlb_op_spans *w, struct dlb_sending **out)
{
	struct sendings all = { .n = 0 };

	*out = NULL;
	if (!v->has_plan)
		return 0;
	int64_t *batch = dlb_xcalloc((size_t)w->n_replicas, sizeof *batch);

	batch[0] = v->plan.batch;
	if (w->n_replicas > 1)
		dlb_plan_shares(&v->plan, v->plan.batch, batch);
	for (int r = 0; r < w->n_replicas; r++)
		for (int t = 0; t < v->graph.n_tensors; t++)
			for (int m = -1; v->graph.tensor[t].producer >= 0 && m < w->micro_batches; m++)
				sendings_of(v, w, r, batch[r], t, m, &all);
	free(batch);
	if (all.n)
		qsort(all.s, (size_t)all.n, sizeof *all.s, by_bytes);
	*out = all.s;
	return all.n;
}

bool dlb_view_has_sendings(const struct dlb_view *v)
{
	struct dlb_source s;

	if (!v->has_plan || !(dlb_view_predicted(v, &s) || dlb_view_measured(v, &s)))
		return false;
	for (int i = 0; i < v->graph.n_ops; i++)
		for (int k = 0; k < v->graph.op[i].n_in; k++) {
			int t = v->graph.op[i].in[k], from = t < 0 ? -1 : v->graph.tensor[t].producer;

			if (from >= 0 && v->plan.placement[from] != v->plan.placement[i])
				return true;
		}
	return false;
}

/* ---- nodes without work ---- */

bool dlb_view_idle(const struct dlb_view *v, int node)
{
	if (v->has_report && node < v->report.n_nodes && v->report.node[node].busy_s > 0)
		return false;
	if (!v->has_plan || node >= v->plan.n_nodes)
		return v->has_report;
	return v->plan.node[node].n_order == 0;
}

bool dlb_view_idle_nodes(const struct dlb_view *v, int n_nodes, char *buf, size_t n)
{
	size_t used = 0;
	int count = 0;

	buf[0] = '\0';
	for (int i = 0; i < n_nodes; i++) {
		int last = i;

		if (!dlb_view_idle(v, i))
			continue;
		while (last + 1 < n_nodes && dlb_view_idle(v, last + 1))
			last++;
		if (used < n)
			used += (size_t)snprintf(buf + used, n - used, last > i ? "%s%d-%d" : "%s%d",
						 count ? ", " : "", i, last);
		count += last - i + 1;
		i = last;
	}
	if (!count)
		return false;
	char *list = dlb_xstrdup(buf);

	snprintf(buf, n, "node%s %s: no work", count == 1 ? "" : "s", list);
	free(list);
	return true;
}
