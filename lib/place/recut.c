/* See recut.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/contiguous.h"
#include "place/recut.h"

struct position { double mean; int node; };

static int by_position(const void *a, const void *b)
{
	const struct position *x = a, *y = b;

	return x->mean != y->mean ? (x->mean > y->mean ? 1 : -1) : x->node - y->node;
}

/* Sorts the nodes that may work by the mean position of their units, nodes without units last. *n: the number
 * of nodes sorted. Returns the number of those with units; 0: the units of a node do not lie together. */
static int find_order(const struct dlb_problem *p, const struct dlb_units *u, const int *current, int *order,
		      int *n)
{
	const int n_nodes = p->cluster->n_nodes;
	int *node = dlb_xcalloc((size_t)u->n + 1, sizeof *node), used = 0, runs = 0;
	int *units = dlb_xcalloc((size_t)n_nodes + 1, sizeof *units);
	struct position *at = dlb_xcalloc((size_t)n_nodes + 1, sizeof *at);

	for (int g = p->n_groups - 1; g >= 0; g--)	/* the first group's node wins */
		node[u->of_group[g]] = current[p->group_op[p->group_start[g]]];
	for (int i = 0; i < u->n; i++) {
		at[node[i]].mean += i;
		units[node[i]]++;
		runs += !i || node[i] != node[i - 1];
	}
	*n = 0;
	for (int d = 0; d < n_nodes; d++) {
		used += units[d] > 0;
		if (p->free_node[d])
			at[(*n)++] = (struct position){ units[d] ? at[d].mean / units[d] : INFINITY, d };
	}
	qsort(at, (size_t)*n, sizeof *at, by_position);
	for (int k = 0; k < *n; k++)
		order[k] = at[k].node;
	while (used && isinf(at[used - 1].mean))	/* nodes with units may be excluded now */
		used--;
	free(node);
	free(units);
	free(at);
	/* a few units may lie apart, since a search moves single units */
	return runs <= 2 * used ? used : 0;
}

bool dlb_place_recut(const struct dlb_problem *p, const int *current, int *placement)
{
	const size_t n_nodes = (size_t)p->cluster->n_nodes;
	int *order = dlb_xcalloc(n_nodes + 1, sizeof *order), n, used;
	int *start = dlb_xcalloc(n_nodes + 2, sizeof *start);
	struct dlb_units u;
	double least_s = INFINITY;

	dlb_units_init(&u, p);
	used = find_order(p, &u, current, order, &n);
	/* over the nodes that have units, then over all */
	const int turns = !used ? 0 : used < n ? 2 : 1;
	for (int turn = 0; turn < turns; turn++) {
		const struct dlb_parts parts = { .n = turn ? n : used, .node = order };
		double step_s = INFINITY;

		if (isfinite(dlb_units_balance(&u, p, &parts, start)))
			step_s = dlb_units_step_s(&u, p, parts.n, start, order);
		if (step_s < least_s) {
			least_s = step_s;
			dlb_units_place(&u, p, parts.n, start, order, placement);
		}
	}
	dlb_units_release(&u);
	free(order);
	free(start);
	return isfinite(least_s);
}
