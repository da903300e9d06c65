/* Large-neighbourhood search: takes a window of connected classes on the busiest node and on one or two
 * nodes that they exchange messages with, and sets it to the best of all placements of its classes on
 * these nodes; the rest is fixed. */
#include <stdlib.h>
#include <string.h>
#include "place/loads.h"

enum { NODES = 3, CLASSES = 12, PLACEMENTS = 1000, IN_VAIN = 24, TRIES = 64 };

struct window {
	struct dlb_loads *a;
	int node[NODES], n_nodes, class[CLASSES], n;
	int now[CLASSES], best[CLASSES];		/* [class of the window] node */
	double least;					/* energy of the window's nodes in best */
	int64_t looks;
};

static bool has_node(const struct window *w, int d)
{
	for (int i = 0; i < w->n_nodes; i++)
		if (w->node[i] == d)
			return true;
	return false;
}

static bool has_class(const struct window *w, int c)
{
	for (int i = 0; i < w->n; i++)
		if (w->class[i] == c)
			return true;
	return false;
}

/* The largest number of classes, up to CLASSES, that have at most PLACEMENTS placements on n_nodes nodes. */
static int classes_of(int n_nodes)
{
	int n = 0;

	for (int all = 1; n < CLASSES && all * n_nodes <= PLACEMENTS; n++)
		all *= n_nodes;
	return n;
}

/* Grows the window from a class of the busiest node along nets, over the window's nodes. The first border
 * met gives the second node; a third is sometimes drawn. */
static void choose(struct window *w)
{
	struct dlb_loads *a = w->a;
	int busy = dlb_loads_busiest(a), want = CLASSES;

	w->n = 0;
	w->n_nodes = 0;
	if (!a->size[busy])
		return;
	w->node[w->n_nodes++] = busy;
	w->class[w->n++] = a->member[(size_t)busy * (size_t)a->port->n +
				     (size_t)dlb_loads_below(a, a->size[busy])];
	const int most = 2 + (dlb_loads_below(a, 3) == 0);
	for (int tries = 0; w->n < want && tries < TRIES; tries++) {
		int c = dlb_loads_neighbour(a, w->class[dlb_loads_below(a, w->n)]);

		if (c < 0 || has_class(w, c))
			continue;
		if (!has_node(w, a->at[c])) {
			if (w->n_nodes == most)
				continue;
			w->node[w->n_nodes++] = a->at[c];
		}
		w->class[w->n++] = c;
		want = classes_of(w->n_nodes < 2 ? 2 : w->n_nodes);
	}
	while (w->n_nodes < 2 && a->port->n_nodes > 1) {	/* no border near: any other node */
		int d = dlb_loads_below(a, a->port->n_nodes);

		if (!has_node(w, d))
			w->node[w->n_nodes++] = d;
	}
	want = classes_of(w->n_nodes);
	w->n = w->n < want ? w->n : want;
}

static void put(struct dlb_loads *a, int c, int to)
{
	double df, dt;

	if (a->at[c] == to)
		return;
	dlb_loads_gains(a, c, to, &df, &dt);
	dlb_loads_move(a, c, to, df, dt);
}

/* Energy of the window's nodes, summed from scratch: differences of large intermediate energies would lose it
 * to rounding. */
static double energy(const struct window *w)
{
	double sum = 0;

	for (int k = 0; k < w->n_nodes; k++)
		sum += w->a->power[w->node[k]];
	return sum;
}

/* Tries all placements of the window's classes from number i on. */
static void look_through(struct window *w, int i)
{
	int home = w->now[i];

	if (i == w->n) {
		w->looks++;
		double here = energy(w);

		if (here >= w->least)
			return;
		w->least = here;
		for (int k = 0; k < w->n; k++)
			w->best[k] = w->a->at[w->class[k]];
		return;
	}
	for (int k = 0; k < w->n_nodes; k++) {
		if (w->a->at[w->class[i]] != w->node[k] && !dlb_loads_may(w->a, w->class[i], w->node[k]))
			continue;
		put(w->a, w->class[i], w->node[k]);
		look_through(w, i + 1);
	}
	put(w->a, w->class[i], home);
}

void dlb_search_windows(struct dlb_search *s)
{
	int *at = dlb_xmalloc(((size_t)s->port->n + 1) * sizeof *at);
	struct dlb_loads a;
	struct window w = { .a = &a };

	memcpy(at, s->best, (size_t)s->port->n * sizeof *at);
	dlb_loads_init(&a, s, at, false);
	for (int in_vain = 0; in_vain < IN_VAIN && !dlb_search_over(s); in_vain++) {
		/* recomputes loads without accumulated rounding */
		dlb_loads_set_exponent(&a, 7, s->best_s);
		choose(&w);
		if (!w.n)
			break;
		for (int k = 0; k < w.n; k++)
			w.best[k] = w.now[k] = at[w.class[k]];
		w.looks = 0;
		w.least = energy(&w) * (1 - 1e-9);
		look_through(&w, 0);
		s->budget -= w.looks;
		for (int k = 0; k < w.n; k++) {
			in_vain = w.best[k] != w.now[k] ? 0 : in_vain;
			put(&a, w.class[k], w.best[k]);
		}
		dlb_loads_keep_best(&a);
	}
	dlb_loads_release(&a);
	free(at);
}
