/* Pass 2 of the compiler (compile.c): lists each node's actions, its items and sums of gradients, in the
 * order of their keys. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "optim/kfac.h"
#include "plan/buckets.h"
#include "plan/compile.h"
#include "plan/tensors.h"

static int by_key(const void *a, const void *b)
{
	const struct action *x = a, *y = b;
	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	if (x->op != y->op)
		return x->op < y->op ? -1 : 1;
	return x->m != y->m ? x->m - y->m : x->tensor - y->tensor;
}

int64_t dlb_compile_key(const struct compiler *c, int op, int m)		/* m -1: an update */
{
	if (!c->lag)
		return 2 * (int64_t)c->seq[op * c->M + (m < 0 ? 0 : m)];
	return (2 * (int64_t)(m < 0 ? c->M - 1 : m) + c->lag[op]) * c->slot_keys + 2 * (op + 1) +
	       (m < 0 ? c->slot_keys / 2 : 0);
}

int dlb_compile_half_slot(const struct compiler *c, int node, int action)
{
	return (int)(c->code[node].action[action].key / c->slot_keys);
}

/* The key of the sum of a received gradient, which only update op u needs: just before the first item of u's
 * node that starts after the gradient of micro-batch m is expected, but at least `least`; m = M: just before
 * u. edge: from the gradient's op to u. items[n]: the node's items up to and including u. */
static int64_t key_of_arrival(const struct compiler *c, const struct action *items, int n, int edge, int m,
			      int64_t least)
{
	int from = c->f.pred[edge] * c->M + m, lo = 0, hi = n;
	assert(n > 0);
	if (m == c->M)
		return items[n - 1].key - 1;
	double arrival = c->start[from] + dlb_flow_s(&c->f, c->f.pred[edge], m) +
			 c->f.pred_s[2 * edge + dlb_flow_class(&c->f, m)];
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		const struct action *a = &items[mid];
		double start = c->start[a->op * c->M + (a->m < 0 ? 0 : a->m)];
		if (start >= arrival && a->key > 2 * (int64_t)c->seq[from] && a->key - 1 >= least)
			hi = mid;
		else
			lo = mid + 1;
	}
	return items[lo < n ? lo : n - 1].key - 1;
}

/* The same key under an asynchronous schedule: in the half-slot after the one that computes the gradient,
 * before the updates. */
static int64_t key_of_arrival_async(const struct compiler *c, int from, int m, int update)
{
	return (dlb_compile_key(c, from, m) / c->slot_keys + 1) * c->slot_keys + 2 * (update + 1) - 1;
}

static int edge_from(const struct dlb_flow *f, int op, int pred)
{
	for (int e = f->pred_start[op]; e < f->pred_start[op + 1]; e++)
		if (f->pred[e] == pred)
			return e;
	dlb_bug("op %d does not read from op %d", op, pred);
}

/* If updates come last: half of the offset that is added to their keys, and the key of the global norm, which
 * lies between all other actions and the updates. */
static int64_t late(const struct compiler *c) { return (int64_t)c->g->n_ops * c->M + 2; }
static int64_t norm_key(const struct compiler *c) { return 2 * late(c) - 2; }

/* Adds the actions of the global norm under an asynchronous schedule. NORM comes after the other actions of
 * its half-slot and before the updates. SQUARES comes at the same position of the half-slot in which the last
 * gradient is summed. */
static void add_norm_async(const struct compiler *c, struct node_code *l)
{
	const struct dlb_graph *g = c->g;
	int64_t last = 0, update = 0;
	for (int i = 0; i < g->n_ops; i++) {
		if (g->op[i].phase != DLB_UPDATE)
			continue;
		update = 2 * (c->M - 1) + c->lag[i];
		for (int j = 0; j < g->op[i].n_in; j++) {
			int t = g->op[i].in[j],
			    from = t < 0 || dlb_tensor_is_state(&g->tensor[t]) ? -1 : g->tensor[t].producer;
			int64_t summed = from < 0 ? -1 :
						    2 * (c->M - 1) + c->lag[from] +
							    (c->p->placement[from] != c->p->placement[i]);
			last = summed > last ? summed : last;
		}
	}
	l->action[l->n_actions++] = (struct action){
		last * c->slot_keys + c->slot_keys / 2 - 2, -1, -1, -1, SQUARES, false
	};
	l->action[l->n_actions++] = (struct action){
		update * c->slot_keys + c->slot_keys / 2 - 1, -1, -1, -1, NORM, false
	};
}

/* Lists the node's items; if updates come last, *n_before items precede them. Returns the number of items. */
static int find_items(const struct compiler *c, int node, struct action *items, int *n_before)
{
	const struct dlb_node_plan *np = &c->p->node[node];
	int n = 0;
	for (int last = 0; last <= c->updates_last; last++) {
		*n_before = n;
		for (int i = 0; i < np->n_order; i++) {
			int op = np->order[i].op, m = np->order[i].micro_batch;
			if (m >= c->M || (c->updates_last && (m < 0) != last))
				continue;
			items[n++] = (struct action){ dlb_compile_key(c, op, m) + (last ? 2 * late(c) : 0),
						      op,
						      m,
						      -1,
						      NO_NORM,
						      false };
		}
	}
	return n;
}

/* Finds the keys of second runs: (op, m) runs again just before the first backward op that needs it, directly
 * or through other second runs. */
static void find_again_keys(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	c->again_key = dlb_xcalloc((size_t)g->n_ops * (size_t)c->M + 1, sizeof *c->again_key);
	c->again_of = dlb_xcalloc((size_t)g->n_ops * (size_t)c->M + 1, sizeof *c->again_of);
	for (int op = g->n_ops - 1; op >= 0; op--) {
		for (int m = 0; m < c->M; m++)
			c->again_key[op * c->M + m] = INT64_MAX;
		for (int j = 0; dlb_plan_runs_again(c->p, op) && j < g->op[op].n_out; j++) {
			int t = g->op[op].out[j];
			for (int r = t < 0 ? 0 : g->reader_start[t]; t >= 0 && r < g->reader_start[t + 1];
			     r++) {
				int to = g->reader[r];
				for (int m = 0; m < c->M; m++) {
					int64_t *least = &c->again_key[op * c->M + m], key = INT64_MAX;
					if (dlb_plan_reads_again(c->p, g, to, false, t))
						key = dlb_compile_key(c, to, m) - 1;
					else if (dlb_plan_reads_again(c->p, g, to,
								      dlb_plan_runs_again(c->p, to), t))
						key = c->again_key[to * c->M + m];
					*least = key < *least ? key : *least;
				}
			}
		}
	}
}

/* Adds the second runs of the node's items. */
static void add_again(const struct compiler *c, int node, const struct action *items, int n_items)
{
	struct node_code *l = &c->code[node];
	for (int i = 0; i < n_items; i++) {
		const struct action *x = &items[i];
		const int64_t key = dlb_plan_runs_again(c->p, x->op) ? c->again_key[x->op * c->M + x->m] :
								       INT64_MAX;
		if (key < INT64_MAX)
			l->action[l->n_actions++] = (struct action){ key, x->op, x->m, -1, NO_NORM, true };
	}
}

/* Adds the sums of the gradient that update `op` of a node reads as its input j, one for each micro-batch.
 * Keys of arrival are looked up in the first n of the node's items. */
static void add_sums(const struct compiler *c, int node, const struct action *items, int n, int op, int j)
{
	const struct dlb_graph *g = c->g;
	struct node_code *l = &c->code[node];
	const int t = g->op[op].in[j];
	const bool fed = t >= 0 && dlb_tensor_is_fed(&g->tensor[t]);
	int64_t key = 0;

	if (t < 0 || dlb_tensor_is_state(&g->tensor[t]) || (fed && !dlb_kfac_operand(&g->op[op], j)))
		return;
	/* Training data need no message. Their sum uses the time of the gradient, whose op reads them too. */
	const int from = g->tensor[fed ? dlb_update_gradient(g, op) : t].producer,
		  edge = edge_from(&c->f, op, from);
	/* A received gradient is summed when the next one is expected, so that a late message delays
	 * nothing. */
	for (int m = 0; m < c->M; m++) {
		key = c->p->placement[from] == node ? dlb_compile_key(c, from, m) + 1 :
		      c->lag                        ? key_of_arrival_async(c, from, m, op) :
						      key_of_arrival(c, items, n, edge, m + 1, key);
		if (c->updates_last && key >= norm_key(c))
			key = norm_key(c) - 1;
		l->action[l->n_actions++] = (struct action){ key, op, m, t, NO_NORM, false };
	}
}

/* Adds the actions that are not items: start and end (asynchronous: ticks), barriers, second runs and
 * sums. */
static void add_others(struct compiler *c, int node, const struct action *items, int n_items, int n_before)
{
	const struct dlb_graph *g = c->g;
	struct node_code *l = &c->code[node];
	if (!c->lag)
		l->action[l->n_actions++] = (struct action){ -1, -1, -1, -1, NO_NORM, false };
	for (int i = 0; i < c->n_ticks; i++)
		l->action[l->n_actions++] = (struct action){ i * c->slot_keys, -1, -1, -1, NO_NORM, false };
	if (c->p->clip && c->lag)
		add_norm_async(c, l);
	else if (c->p->clip)
		l->action[l->n_actions++] = (struct action){ norm_key(c), -1, -1, -1, NORM, false };
	if (c->kfac)
		l->action[l->n_actions++] = (struct action){ norm_key(c) + 1, -1, -1, -1, TRUST, false };
	if (dlb_plan_has_again(c->p))
		add_again(c, node, items, n_items);
	for (int i = 0; i < n_items; i++) {
		const int op = items[i].op;
		if (g->op[op].phase != DLB_UPDATE || !dlb_program_sums(c->out, op))
			continue;
		for (int j = 0; j < g->op[op].n_in; j++)
			add_sums(c, node, items, c->updates_last ? n_before + 1 : i + 1, op, j);
	}
	if (!c->lag)
		l->action[l->n_actions++] = (struct action){ INT64_MAX, -1, -1, -1, NO_NORM, false };
}

/* Sorts the node's actions and merges its items into them. The items are many and usually in the order of
 * their keys already, so they are sorted only if they are not. l->action has room for all. */
static void put_in_order(struct node_code *l, struct action *items, int n_items)
{
	int i = n_items, a = l->n_actions;

	for (int k = 1; k < n_items; k++)
		if (by_key(&items[k - 1], &items[k]) > 0) {
			qsort(items, (size_t)n_items, sizeof *items, by_key);
			break;
		}
	qsort(l->action, (size_t)a, sizeof *l->action, by_key);
	l->n_actions += n_items;
	for (int to = l->n_actions; i > 0;) /* merges in place, from the end */
		l->action[--to] = a > 0 && by_key(&l->action[a - 1], &items[i - 1]) > 0 ? l->action[--a] :
											  items[--i];
}

void dlb_compile_actions(struct compiler *c)
{
	const struct dlb_graph *g = c->g;
	if (dlb_plan_has_again(c->p))
		find_again_keys(c);
	for (int node = 0; node < c->p->n_nodes; node++) {
		const struct dlb_node_plan *np = &c->p->node[node];
		struct node_code *l = &c->code[node];
		if (!dlb_compile_is_for(c, node) && !c->lag)
			continue;
		size_t most = (dlb_plan_has_again(c->p) ? 2 : 1) * (size_t)np->n_order + 4 +
			      (size_t)c->n_ticks;
		for (int i = 0; i < np->n_order; i++)
			if (g->op[np->order[i].op].phase == DLB_UPDATE)
				most += (size_t)g->op[np->order[i].op].n_in * (size_t)c->M;
		struct action *items = dlb_xcalloc((size_t)np->n_order + 1, sizeof *items);
		l->action = dlb_xcalloc(most, sizeof *l->action);
		int n_before, n_items = find_items(c, node, items, &n_before);
		add_others(c, node, items, n_items, n_before);
		put_in_order(l, items, n_items);
		for (int a = 0, i = 0; a < l->n_actions && c->lag; a++)
			if (l->action[a].op < 0 && !l->action[a].norm)
				l->tick[i++] = a;
		for (int a = 0; a < l->n_actions; a++)
			if (l->action[a].op >= 0 && l->action[a].tensor < 0)
				(l->action[a].again ?
					 c->again_of :
					 c->action_of)[l->action[a].op * c->M +
						       (l->action[a].m < 0 ? 0 : l->action[a].m)] = a;
		free(items);
	}
}
