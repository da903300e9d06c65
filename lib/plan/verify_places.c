/* Proof of places (verify.h): places that are alive together do not overlap; views and outputs in place have
 * the right offsets. */
#include <stdlib.h>
#include "plan/verify.h"

/* A segment tree: number of places per interval between neighbouring borders, with range add and range
 * maximum. */
struct cover { int n; int *max, *add; };

static int cover_max(const struct cover *c, int v, int lo, int hi, int a, int b)
{
	if (b <= lo || hi <= a)
		return 0;
	if (a <= lo && hi <= b)
		return c->max[v];
	int mid = (lo + hi) / 2, x = cover_max(c, 2 * v, lo, mid, a, b),
	    y = cover_max(c, 2 * v + 1, mid, hi, a, b);
	return (x > y ? x : y) + c->add[v];
}

static void cover_add(struct cover *c, int v, int lo, int hi, int a, int b, int d)
{
	if (b <= lo || hi <= a)
		return;
	if (a <= lo && hi <= b) {
		c->max[v] += d;
		c->add[v] += d;
		return;
	}
	int mid = (lo + hi) / 2;
	cover_add(c, 2 * v, lo, mid, a, b, d);
	cover_add(c, 2 * v + 1, mid, hi, a, b, d);
	c->max[v] = c->add[v] + (c->max[2 * v] > c->max[2 * v + 1] ? c->max[2 * v] : c->max[2 * v + 1]);
}

static int by_size(const void *a, const void *b)
{
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	return (x > y) - (x < y);
}

static int border(const size_t *at, int n, size_t x)
{
	int lo = 0, hi = n;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (at[mid] < x)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct event { int instr, place; bool end; };
static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;
	if (x->instr != y->instr)
		return x->instr < y->instr ? -1 : 1;
	return x->end != y->end ? (x->end ? 1 : -1) : x->place - y->place;	/* starts come before ends */
}

int dlb_verify_places(const struct dlb_program *g, int node, struct dlb_error *err)
{
	const struct dlb_node_program *np = &g->node[node];
	int n = np->n_places, n_at = 0, n_events = 0, rc = 0;
	size_t *at = dlb_xcalloc(2 * (size_t)n + 2, sizeof *at);
	struct event *event = dlb_xcalloc(2 * (size_t)n + 2, sizeof *event);
	for (int k = 0; k < n && rc == 0; k++) {
		const struct dlb_place *x = &np->place[k];
		int r = dlb_program_root_place(np, x->tensor, x->micro_batch);
		if (x->first < 0 || x->last < x->first || x->offset + x->bytes > np->arena_bytes ||
		    x->offset % DLB_PLACE_ALIGN)
			rc = dlb_fail(err, NULL,
				      "program of node %d: the place of tensor %d '%s' is not in the arena",
				      node, x->tensor, g->graph->tensor[x->tensor].name);
		else if (r != k &&
			 (r < 0 || np->place[r].offset != x->offset || np->place[r].bytes < x->bytes ||
			  np->place[r].first > x->first || np->place[r].last < x->last))
			rc = dlb_fail(
				err, NULL,
				"program of node %d: tensor %d '%s' does not lie in the place that it shares",
				node, x->tensor, g->graph->tensor[x->tensor].name);
		else if (r == k) {
			at[n_at++] = x->offset;
			at[n_at++] = x->offset + dlb_place_bytes(x->bytes);
			event[n_events++] = (struct event){ x->first, k, false };
			event[n_events++] = (struct event){ x->last, k, true };
		}
	}
	qsort(at, (size_t)n_at, sizeof *at, by_size);
	qsort(event, (size_t)n_events, sizeof *event, by_time);
	struct cover c = { .n = n_at + 1 };
	c.max = dlb_xcalloc(4 * (size_t)c.n + 4, sizeof(int));
	c.add = dlb_xcalloc(4 * (size_t)c.n + 4, sizeof(int));
	for (int i = 0; i < n_events && rc == 0; i++) {
		const struct dlb_place *x = &np->place[event[i].place];
		int a = border(at, n_at, x->offset),
		    b = border(at, n_at, x->offset + dlb_place_bytes(x->bytes));
		if (!event[i].end && cover_max(&c, 1, 0, c.n, a, b))
			rc = dlb_fail(err, NULL,
				      "program of node %d: the place of tensor %d '%s' of micro-batch %d "
				      "overlaps another",
				      node, x->tensor, g->graph->tensor[x->tensor].name, x->micro_batch);
		cover_add(&c, 1, 0, c.n, a, b, event[i].end ? -1 : 1);
	}
	free(c.max);
	free(c.add);
	free(at);
	free(event);
	return rc;
}
