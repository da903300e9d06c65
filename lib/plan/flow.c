/* Dependencies of (op, micro-batch) pairs under a placement. See flow.h. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/again.h"
#include "plan/flow.h"
#include "plan/replica.h"
#include "plan/tensors.h"

bool dlb_tensor_is_state(const struct dlb_tensor *t)
{
	return t->kind == DLB_T_WEIGHT || t->kind == DLB_T_BUFFER || t->kind == DLB_T_CONSTANT;
}

bool dlb_tensor_is_fed(const struct dlb_tensor *t)
{
	return !dlb_tensor_is_state(t) && t->producer < 0;
}

bool dlb_tensor_goes_only_to(const struct dlb_graph *g, const int *placement, int t, int node)
{
	if (t == g->loss)
		return false;
	for (int i = 0; i < g->n_outputs; i++)
		if (g->output[i] == t)
			return false;
	for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++)
		if (placement[g->reader[r]] != node)
			return false;
	return true;
}

int dlb_graph_home(const struct dlb_graph *g, int tensor)
{
	const struct dlb_tensor *t = &g->tensor[tensor];
	if (t->home >= 0)
		return t->home;
	return g->reader_start[tensor] < g->reader_start[tensor + 1] ? g->reader[g->reader_start[tensor]] :
								       -1;
}

bool dlb_graph_is_view(const struct dlb_graph *g, int op)
{
	const struct dlb_op *o = &g->op[op];
	if (o->kind < 0 || o->n_in < 1 || o->n_out < 1 || o->in[0] < 0 || o->out[0] < 0)
		return false;
	const unsigned flags = dlb_op_class_of(o->kind)->flags;
	if (!(flags & DLB_OP_VIEW))
		return false;
	const struct dlb_tensor *a = &g->tensor[o->in[0]], *b = &g->tensor[o->out[0]];
	const bool moves = a->layout != b->layout && a->n_dims > 2 && b->n_dims > 2 &&
			   !(flags & DLB_OP_RENAMES_LAYOUT);
	if (dlb_tensor_is_state(a) || a->dtype != b->dtype || moves)
		return false;
	return dlb_tensor_bytes(a, 1) == dlb_tensor_bytes(b, 1) &&
	       dlb_tensor_bytes(a, 2) == dlb_tensor_bytes(b, 2);
}

int dlb_graph_view_of(const struct dlb_graph *g, int tensor)
{
	int p = g->tensor[tensor].producer;
	return p >= 0 && g->op[p].out[0] == tensor && dlb_graph_is_view(g, p) ? g->op[p].in[0] : -1;
}

bool dlb_graph_may_overwrite(const struct dlb_graph *g, int op, int k)
{
	const struct dlb_op *o = &g->op[op];
	if (o->kind < 0 || o->n_out < 1 || o->out[0] < 0 || k >= 32 || k >= o->n_in || o->in[k] < 0 ||
	    !(dlb_op_class_of(o->kind)->overwrite >> k & 1))
		return false;
	const struct dlb_tensor *x = &g->tensor[o->in[k]], *y = &g->tensor[o->out[0]];
	if (dlb_tensor_is_state(x) || x->dtype != y->dtype || x->layout != y->layout ||
	    x->n_dims != y->n_dims || x->n_dims < 0)
		return false;
	for (int i = 0; i < x->n_dims; i++)
		if (x->dim[i].mul != y->dim[i].mul || x->dim[i].add != y->dim[i].add)
			return false;
	for (int i = 0; i < o->n_in; i++)
		if (i != k && o->in[i] == o->in[k])
			return false;
	return true;
}

double dlb_flow_s(const struct dlb_flow *f, int op, int m)
{
	return f->op_s[2 * op + (f->g->op[op].phase == DLB_UPDATE ? 0 : dlb_flow_class(f, m))];
}

/* Appends an edge of 0 bytes from p into the op whose edges begin at `first`, unless there is one. */
static int edge_from(int p, int first, int n, int *edge, int *stamp, double *bytes)
{
	if (stamp[p] >= first)
		return n;
	stamp[p] = n;
	edge[n] = p;
	bytes[2 * n] = bytes[2 * n + 1] = 0;
	return n + 1;
}

/* Finds for each op that runs again the first backward op of the graph that needs its second run, directly or
 * through other second runs, and adds the run's seconds to that op. */
static void find_again(struct dlb_flow *f)
{
	const struct dlb_graph *g = f->g;
	f->again_to = dlb_arena_array(&f->arena, (size_t)g->n_ops + 1, sizeof *f->again_to);
	f->again_s = dlb_arena_array(&f->arena, 2 * (size_t)g->n_ops + 1, sizeof *f->again_s);
	for (int op = g->n_ops - 1; op >= 0; op--) {
		int first = g->n_ops;
		for (int k = 0; f->p->again[op] && k < g->op[op].n_out; k++) {
			int t = g->op[op].out[k];
			for (int r = t < 0 ? 0 : g->reader_start[t]; t >= 0 && r < g->reader_start[t + 1];
			     r++) {
				int to = g->reader[r];
				if (!dlb_plan_reads_again(f->p, g, to, f->p->again[to], t))
					continue;
				to = f->p->again[to] ? f->again_to[to] : to;
				first = to >= 0 && to < first ? to : first;
			}
		}
		f->again_to[op] = first < g->n_ops ? first : -1;
		for (int k = 0; k < 2 && first < g->n_ops; k++)
			f->again_s[2 * first + k] += f->op_s[2 * op + k];
	}
}

/* Appends the edges into `op`: distinct predecessors and the bytes of each edge, per size class. stamp[p]
 * is p's edge if it is >= the first new one. Returns the new number of edges. */
static int edges_into(struct dlb_flow *f, int op, int n, int *edge, int *stamp, double *bytes)
{
	const struct dlb_graph *g = f->g;
	const struct dlb_op *o = &g->op[op];
	int first = n;

	for (int i = 0; i < o->n_in; i++) {
		int t = o->in[i];
		if (t < 0)
			continue;
		int p = g->tensor[t].producer;
		bool twice = false;
		for (int j = 0; j < i; j++)
			twice |= o->in[j] == t;
		if (p >= 0 && !dlb_tensor_is_state(&g->tensor[t]) && !twice) {
			n = edge_from(p, first, n, edge, stamp, bytes);
			if (f->placement[p] == f->placement[op]) /* no transfer */
				continue;
			const double large = dlb_tensor_bytes(&g->tensor[t], f->size[0]);
			bytes[2 * stamp[p]] += large;
			bytes[2 * stamp[p] + 1] += f->size[0] == f->size[1] ?
							   large :
							   dlb_tensor_bytes(&g->tensor[t], f->size[1]);
		}
		if (o->phase == DLB_UPDATE && g->tensor[t].kind == DLB_T_WEIGHT) {
			for (int r = g->reader_start[t]; r < g->reader_start[t + 1]; r++) {
				p = g->reader[r];
				if (p == op || f->placement[p] != f->placement[op] ||
				    g->op[p].phase == DLB_UPDATE)
					continue;
				n = edge_from(p, first, n, edge, stamp, bytes);
				if (f->again_to && f->again_to[p] >= 0 && f->again_to[p] != op)
					n = edge_from(f->again_to[p], first, n, edge, stamp, bytes);
			}
		}
	}
	return n;
}

static void build_edges(struct dlb_flow *f)
{
	const struct dlb_graph *g = f->g;
	size_t most = 1;
	for (int i = 0; i < g->n_ops; i++) {
		most += (size_t)g->op[i].n_in;
		for (int j = 0; j < g->op[i].n_in && g->op[i].phase == DLB_UPDATE; j++) {
			int t = g->op[i].in[j];
			if (t >= 0)
				most += (f->again_to ? 2 : 1) *
					(size_t)(g->reader_start[t + 1] - g->reader_start[t]);
		}
	}
	f->pred_start = dlb_arena_array(&f->arena, (size_t)g->n_ops + 1, sizeof(int));
	f->pred = dlb_arena_array(&f->arena, most, sizeof(int));
	f->pred_s = dlb_arena_array(&f->arena, 2 * most, sizeof(double));
	int *stamp = dlb_xmalloc((size_t)(g->n_ops + 1) * sizeof *stamp), n = 0;
	for (int i = 0; i < g->n_ops; i++)
		stamp[i] = -1;
	for (int i = 0; i < g->n_ops; i++) {
		f->pred_start[i] = n;
		n = edges_into(f, i, n, f->pred, stamp, f->pred_s);
		for (int e = f->pred_start[i]; e < n; e++) {		/* bytes become seconds */
			int a = f->placement[f->pred[e]], b = f->placement[i];
			for (int k = 0; k < 2; k++)
				f->pred_s[2 * e + k] = a == b || !f->c || !f->c->cluster ? 0 :
					dlb_cost_xfer_s(f->c, f->pred_s[2 * e + k], a, b);
		}
	}
	f->pred_start[g->n_ops] = n;
	free(stamp);

	f->succ_start = dlb_arena_array(&f->arena, (size_t)g->n_ops + 2, sizeof(int));
	f->succ = dlb_arena_array(&f->arena, (size_t)n + 1, sizeof(int));
	f->succ_edge = dlb_arena_array(&f->arena, (size_t)n + 1, sizeof(int));
	for (int e = 0; e < n; e++)
		f->succ_start[f->pred[e] + 2]++;
	for (int i = 0; i < g->n_ops; i++)
		f->succ_start[i + 2] += f->succ_start[i + 1];
	for (int i = 0; i < g->n_ops; i++) {
		for (int e = f->pred_start[i]; e < f->pred_start[i + 1]; e++) {
			int at = f->succ_start[f->pred[e] + 1]++;
			f->succ[at] = i;
			f->succ_edge[at] = e;
		}
	}
}

void dlb_flow_init(struct dlb_flow *f, const struct dlb_plan *p, const struct dlb_cost *c, int64_t batch)
{
	*f = (struct dlb_flow){ .c = c && c->op_s ? c : NULL,
				.g = c && c->graph ? c->graph : p->graph,
				.p = p,
				.placement = p->placement,
				.n_nodes = p->n_nodes,
				.batch = batch };
	const struct dlb_graph *g = f->g;
	assert(g && g->reader_start && batch > 0);
	f->M = p->micro_batches < batch ? p->micro_batches : (int)batch;
	f->n_large = batch % f->M ? (int)(batch % f->M) : f->M;
	f->size[0] = dlb_micro_batch_size(batch, f->M, 0);
	f->size[1] = dlb_micro_batch_size(batch, f->M, f->M - 1);
	f->op_s = dlb_arena_array(&f->arena, 2 * (size_t)g->n_ops + 1, sizeof(double));
	const bool one_size = f->size[0] == f->size[1];
	for (int i = 0; i < g->n_ops; i++) {
		const bool is_view = dlb_graph_is_view(g, i);
		for (int k = 0; k < (one_size ? 1 : 2); k++) {
			double s = f->c ? dlb_cost_op_s(f->c, i, p->placement[i], (double)f->size[k]) : 1;
			f->op_s[2 * i + k] = is_view || !isfinite(s) ? 0 : s;
		}
		f->op_s[2 * i + 1] = f->op_s[2 * i + (one_size ? 0 : 1)];
	}
	if (p->again)
		find_again(f);
	build_edges(f);
}

void dlb_flow_put(struct dlb_flow *f, const struct dlb_program *g)
{
	for (int i = 0; i < f->g->n_ops && f->c; i++) {
		int node = f->placement[i];

		for (int k = 0; k < 2 && g->node[node].use && f->op_s[2 * i + k] > 0; k++)
			f->op_s[2 * i + k] = dlb_cost_use_s(f->c, i, node, (double)f->size[k],
							    g->node[node].use);
	}
}

void dlb_flow_release(struct dlb_flow *f)
{
	dlb_arena_release(&f->arena);
	memset(f, 0, sizeof *f);
}

/* ---- heap ---- */

static bool before(struct dlb_heap_item a, struct dlb_heap_item b)
{
	return a.key < b.key || (a.key == b.key && a.id < b.id);
}

void dlb_heap_push(struct dlb_heap *h, double key, int id)
{
	DLB_GROW(h->item, h->n, h->cap);
	struct dlb_heap_item x = { key, id };
	int i = h->n++;
	for (; i > 0 && before(x, h->item[(i - 1) / 2]); i = (i - 1) / 2)
		h->item[i] = h->item[(i - 1) / 2];
	h->item[i] = x;
}

struct dlb_heap_item dlb_heap_pop(struct dlb_heap *h)
{
	struct dlb_heap_item top = h->item[0], x = h->item[--h->n];
	int i = 0;
	for (int child; (child = 2 * i + 1) < h->n; i = child) {
		if (child + 1 < h->n && before(h->item[child + 1], h->item[child]))
			child++;
		if (!before(h->item[child], x))
			break;
		h->item[i] = h->item[child];
	}
	h->item[i] = x;
	return top;
}

void dlb_heap_release(struct dlb_heap *h)
{
	free(h->item);
	*h = (struct dlb_heap){ 0 };
}

/* ---- the walk ---- */

struct flow_walk {
	const struct dlb_flow *f;
	const struct dlb_plan *p;
	double *start, *finish, *avail;
	int *seq, *head, *next;		/* next[node]: the next node parked at the same item */
	int *parked;			/* [item] -> first node parked; -1: none */
	struct dlb_heap ready;
};

/* Queues the node's next item if its predecessors are done, else parks the node at a predecessor that is
 * not. */
static void look(struct flow_walk *w, int node)
{
	const struct dlb_flow *f = w->f;
	const struct dlb_node_plan *np = &w->p->node[node];
	while (w->head[node] < np->n_order && np->order[w->head[node]].micro_batch >= f->M)
		w->head[node]++; /* a short last batch has fewer micro-batches */
	if (w->head[node] >= np->n_order)
		return;
	int op = np->order[w->head[node]].op, m = np->order[w->head[node]].micro_batch,
	    at = dlb_flow_from(f, op, m);
	double s = w->avail[node];
	int blocked = -1;
	if (m < 0)
		m = 0;
	if (m > 0 && w->seq[op * f->M + m - 1] < 0)
		blocked = op * f->M + m - 1;
	for (int e = f->pred_start[op]; e < f->pred_start[op + 1] && blocked < 0; e++) {
		int item = f->pred[e] * f->M + (f->g->op[f->pred[e]].phase == DLB_UPDATE ? 0 : at);
		if (w->seq[item] < 0)
			blocked = item;
		else if (w->finish[item] + f->pred_s[2 * e + dlb_flow_class(f, at)] > s)
			s = w->finish[item] + f->pred_s[2 * e + dlb_flow_class(f, at)];
	}
	if (blocked >= 0) {
		w->next[node] = w->parked[blocked];
		w->parked[blocked] = node;
	} else {
		dlb_heap_push(&w->ready, s, node);
	}
}

static int stuck(const struct flow_walk *w, struct dlb_error *err)
{
	const struct dlb_flow *f = w->f;
	for (int n = 0; n < w->p->n_nodes; n++) {
		if (w->head[n] >= w->p->node[n].n_order)
			continue;
		const struct dlb_item *x = &w->p->node[n].order[w->head[n]];
		const struct dlb_op *o = &f->g->op[x->op];
		char where[64];
		snprintf(where, sizeof where, "/plan/nodes/%d/order/%d", n, w->head[n]);
		for (int e = f->pred_start[x->op]; e < f->pred_start[x->op + 1]; e++) {
			int q = f->pred[e], item = q * f->M + (f->g->op[q].phase == DLB_UPDATE ? 0 :
							      dlb_flow_from(f, x->op, x->micro_batch));
			if (w->seq[item] < 0)
				return dlb_fail(
					err, where,
					"the programs would deadlock: node %d stops at op %d '%s', which "
					"waits for op %d '%s' of node %d",
					n, x->op, o->name, q, f->g->op[q].name, f->placement[q]);
		}
		return dlb_fail(err, where,
				"the programs would deadlock: node %d stops at op %d '%s' of micro-batch %d, "
				"whose micro-batches must come in order",
				n, x->op, o->name, x->micro_batch);
	}
	return 0;
}

int dlb_flow_walk(const struct dlb_flow *f, const struct dlb_plan *p, double *start, int *seq,
		  struct dlb_error *err)
{
	int n_items = f->g->n_ops * f->M, done = 0, want = 0;
	struct flow_walk w = { .f = f, .p = p, .start = start, .seq = seq };
	w.finish = dlb_xcalloc((size_t)n_items + 1, sizeof(double));
	w.parked = dlb_xmalloc(((size_t)n_items + 1) * sizeof(int));
	w.avail = dlb_xcalloc((size_t)p->n_nodes, sizeof(double));
	w.head = dlb_xcalloc((size_t)p->n_nodes, sizeof(int));
	w.next = dlb_xcalloc((size_t)p->n_nodes, sizeof(int));
	for (int i = 0; i < n_items; i++)
		seq[i] = w.parked[i] = -1;
	for (int i = 0; i < f->g->n_ops; i++)
		want += dlb_flow_items(f, i);
	for (int n = 0; n < p->n_nodes; n++)
		look(&w, n);
	while (w.ready.n) {
		struct dlb_heap_item x = dlb_heap_pop(&w.ready);
		const struct dlb_item *it = &p->node[x.id].order[w.head[x.id]++];
		int m = it->micro_batch < 0 ? 0 : it->micro_batch, item = it->op * f->M + m;
		start[item] = x.key;
		seq[item] = done++;
		w.avail[x.id] = w.finish[item] = x.key + dlb_flow_item_s(f, it->op, m);
		look(&w, x.id);
		for (int n = w.parked[item]; n >= 0;) {
			int next = w.next[n];
			look(&w, n);
			n = next;
		}
	}
	int rc = done == want ? 0 : stuck(&w, err);
	if (done != want && rc == 0)
		rc = dlb_fail(err, "/plan/nodes", "the order leaves out %d of %d (op, micro-batch) pairs",
			      want - done, want);
	free(w.finish);
	free(w.parked);
	free(w.avail);
	free(w.head);
	free(w.next);
	dlb_heap_release(&w.ready);
	return rc;
}
