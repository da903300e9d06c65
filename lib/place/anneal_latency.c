/* Simulated annealing of latency. A move can change calls all over the graph, so each proposal is
 * evaluated from scratch in O(ops + edges). A proposal moves a class, swaps two, or moves a cluster of
 * neighbours or a stretch of a depth-first order. Where memory is scarce (soft), bytes beyond a node's memory
 * have a rising price; only placements that fit are recorded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/search.h"
#include "util/clock.h"

enum { CLUMP = 60, CHECK = 64 };

struct latency_anneal {
	struct dlb_search *s;
	const struct dlb_port *port;
	struct dlb_calls calls;
	int *at;
	double *used;				/* [node] bytes */
	double value, over_s; /* of at: latency; price of its excess memory */
	int *near_start, *near;			/* classes with an edge between them */
	int changed[CLUMP + 2], before[CLUMP + 2], n;
	int *seen, stamp;
	double price_s; /* of an excess as large as the node's memory */
	/* classes in a depth-first order of their ops, in which a branch is one stretch; [class] its
	 * position */
	int *order, *rank;
};

static int below(struct latency_anneal *a, int n)
{
	return (int)((dlb_rng_next(&a->s->rng) >> 32) * (uint64_t)n >> 32);
}

static void find_near(struct latency_anneal *a)
{
	const struct dlb_port *port = a->port;
	size_t n = (size_t)port->n;
	int n_edges = port->succ_start[port->n_ops], *fill = dlb_xcalloc(n + 1, sizeof *fill);
	a->near_start = dlb_xcalloc(n + 2, sizeof *a->near_start);
	a->near = dlb_xcalloc(2 * (size_t)n_edges + 1, sizeof *a->near);
	for (int turn = 0; turn < 2; turn++) {		/* count, then fill */
		for (int v = 0; v < port->n_ops; v++) {
			for (int k = port->succ_start[v]; k < port->succ_start[v + 1]; k++) {
				int c = port->class_of[v], o = port->class_of[port->succ[k]];
				if (c == o)
					continue;
				if (turn) {
					a->near[a->near_start[c] + fill[c]++] = o;
					a->near[a->near_start[o] + fill[o]++] = c;
				} else {
					a->near_start[c + 1]++;
					a->near_start[o + 1]++;
				}
			}
		}
		for (int c = 0; c < port->n && !turn; c++)
			a->near_start[c + 1] += a->near_start[c];
	}
	free(fill);
}

static int neighbour(struct latency_anneal *a, int c)
{
	int n = a->near_start[c + 1] - a->near_start[c];
	return n ? a->near[a->near_start[c] + below(a, n)] : -1;
}

/* Moves c and records the move; a class moves once per proposal. Memory is checked after all moves. */
static bool push(struct latency_anneal *a, int c, int to)
{
	const struct dlb_port *port = a->port;
	if (a->seen[c] == a->stamp || a->at[c] == to ||
	    isinf(port->work_s[(size_t)c * (size_t)port->n_nodes + (size_t)to]))
		return false;
	a->seen[c] = a->stamp;
	a->changed[a->n] = c;
	a->before[a->n++] = a->at[c];
	a->used[a->at[c]] -= port->bytes[c];
	a->used[to] += port->bytes[c];
	a->at[c] = to;
	return true;
}

static void undo(struct latency_anneal *a)
{
	while (a->n) {
		int c = a->changed[--a->n];
		a->used[a->at[c]] -= a->port->bytes[c];
		a->used[a->before[a->n]] += a->port->bytes[c];
		a->at[c] = a->before[a->n];
	}
}

/* The price of memory beyond the nodes' limits, in seconds. */
static double over_s(const struct latency_anneal *a)
{
	double s = 0;
	for (int d = 0; d < a->port->n_nodes; d++) {
		double room = a->port->room_bytes[d], over = a->used[d] - room;
		s += over > 0 ? a->price_s * (0.02 + over / (room > 0 ? room : 1)) : 0;
	}
	return s;
}

static void clump(struct latency_anneal *a, int c, int to, int want)
{
	int from = a->at[c];
	if (!push(a, c, to))
		return;
	for (int tries = 0; a->n < want && tries < 4 * want; tries++) {
		int o = neighbour(a, a->changed[below(a, a->n)]);
		if (o >= 0 && a->at[o] == from)
			push(a, o, to);
	}
}

/* Moves class c and up to n - 1 classes after it in the order, either all of them or only those on c's node.
 * This moves whole branches, and the cuts between calls. */
static void stretch(struct latency_anneal *a, int c, int to, int n)
{
	const int first = a->rank[c], home = a->at[c], last = first + n < a->port->n ? first + n : a->port->n;
	const bool all = below(a, 2);
	for (int i = first; i < last; i++)
		if (all || a->at[a->order[i]] == home)
			push(a, a->order[i], to);
}

static void propose(struct latency_anneal *a)
{
	const struct dlb_port *port = a->port;
	int kind = below(a, 105), c = below(a, port->n), to = below(a, port->n_nodes), o = neighbour(a, c);
	a->stamp++;
	a->n = 0;
	if (o >= 0 && below(a, 3))
		to = a->at[o];
	if (kind < 45) {
		push(a, c, to);
	} else if (kind < 60) {				/* a swap makes room */
		int from = a->at[c], other = below(a, port->n);
		for (int tries = 0; tries < 8 && a->at[other] != to; tries++)
			other = below(a, port->n);
		if (a->at[other] == to && push(a, c, to))
			push(a, other, from);
	} else if (kind < 85) {
		clump(a, c, to, 2 + below(a, 7));
	} else if (kind < 100) {
		clump(a, c, to, 2 + below(a, CLUMP - 2));
	} else {
		stretch(a, c, to, 1 + below(a, CLUMP));
	}
}

static void find_order(struct latency_anneal *a)
{
	const struct dlb_port *port = a->port;
	int *left = dlb_xcalloc((size_t)port->n_ops + 1, sizeof *left),
	    *stack = dlb_xcalloc((size_t)port->n_ops + 1, sizeof *stack), top = 0, n = 0;
	bool *seen = dlb_xcalloc((size_t)port->n + 1, sizeof *seen);
	a->order = dlb_xcalloc((size_t)port->n + 1, sizeof *a->order);
	for (int v = port->n_ops - 1; v >= 0; v--)
		if (!(left[v] = port->pred_start[v + 1] - port->pred_start[v]))
			stack[top++] = v;
	while (top) {
		int v = stack[--top], c = port->class_of[v];
		if (c >= 0 && !seen[c]) {
			seen[c] = true;
			a->order[n++] = c;
		}
		for (int k = port->succ_start[v + 1] - 1; k >= port->succ_start[v]; k--)
			if (--left[port->succ[k]] == 0)
				stack[top++] = port->succ[k];
	}
	for (int c = 0; c < port->n; c++)
		if (!seen[c])
			a->order[n++] = c;
	a->rank = dlb_xcalloc((size_t)port->n + 1, sizeof *a->rank);
	for (int i = 0; i < n; i++)
		a->rank[a->order[i]] = i;
	free(left);
	free(stack);
	free(seen);
}

void dlb_anneal_latency(struct dlb_search *s, int *from, int64_t proposals, double hot, bool soft)
{
	const struct dlb_port *port = s->port;
	struct latency_anneal a = { .s = s, .port = port, .at = from };
	a.used = dlb_xcalloc((size_t)port->n_nodes, sizeof *a.used);
	a.seen = dlb_xcalloc((size_t)port->n + 1, sizeof *a.seen);
	for (int c = 0; c < port->n; c++)
		a.used[from[c]] += port->bytes[c];
	find_near(&a);
	find_order(&a);
	dlb_calls_init(&a.calls, port);
	a.value = dlb_calls_latency_s(&a.calls, from, NULL);
	a.over_s = 0;
	double cold = 1e-6, t = hot;
	for (int64_t i = 0; i < proposals; i++) {
		if (i % CHECK == 0) {
			t = hot * pow(cold / hot, (double)i / (double)proposals);
			a.price_s = s->best_s * (2 + 3 * (double)i / (double)proposals);
			a.over_s = over_s(&a);
			s->budget -= CHECK;
			if (dlb_search_over(s))
				break;
		}
		propose(&a);
		if (!a.n)
			continue;
		double u = dlb_rng_uniform(&s->rng), over = over_s(&a), value = INFINITY;
		if (!(over > 0) || soft)
			value = dlb_calls_latency_s(&a.calls, from, NULL);
		if (!(value + over <= a.value + a.over_s - t * s->best_s * log(u > 0 ? u : 1e-300))) {
			undo(&a);
			continue;
		}
		a.value = value;
		a.over_s = over;
		if (!(over > 0) && value < s->best_s * (1 - 1e-12)) {
			s->best_s = value;
			memcpy(s->best, from, (size_t)port->n * sizeof *from);
		}
	}
	dlb_calls_release(&a.calls);
	free(a.used);
	free(a.seen);
	free(a.near);
	free(a.near_start);
	free(a.order);
	free(a.rank);
}
