/* Data of the page: the memory plan of each node, as -f memory draws it. A place is [tensor, micro-batch,
 * class, copies, offset, bytes, first, last]; `alive` is [instruction, bytes alive from it on]. */
#include "plan/replica.h"
#include "view/page.h"
#include "view/places.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PLACES = 30000, MOST_A_NODE = 4000, MOST_POINTS = 1500 };

struct place_area { int place; double area; };

static int by_area(const void *a, const void *b)
{
	const struct place_area *x = a, *y = b;

	if (x->area != y->area)
		return x->area < y->area ? 1 : -1;
	return x->place - y->place;
}

/* Writes the largest places by bytes times instructions; smaller ones would be invisible. */
static void places(const struct dlb_view *v, const struct dlb_node_program *np, int node, int most,
		   struct dlb_emit *e)
{
	struct place_area *r = dlb_xmalloc(((size_t)np->n_places + 1) * sizeof *r);
	int n = 0;

	for (int i = 0; i < np->n_places; i++) {
		const struct dlb_place *x = &np->place[i];
		int from[2], to[2], k = dlb_place_stretches(np, x, from, to), length = 0;

		if (x->of >= 0)
			continue;
		while (k-- > 0)
			length += to[k] - from[k];
		r[n++] = (struct place_area){ i, dlb_place_room(x) * (length + 1) };
	}
	qsort(r, (size_t)n, sizeof *r, by_area);
	dlb_emit_int(e, "left_out", n > most ? n - most : 0);
	dlb_emit_open(e, "places", '[');
	for (int i = 0; i < n && i < most; i++) {
		const struct dlb_place *x = &np->place[r[i].place];

		dlb_emit_int(e, NULL, x->tensor);
		dlb_emit_int(e, NULL, x->micro_batch);
		dlb_emit_int(e, NULL, dlb_place_class(v, x, node));
		dlb_emit_int(e, NULL, x->copies);
		dlb_emit_int(e, NULL, (int64_t)x->offset);
		dlb_emit_int(e, NULL, (int64_t)dlb_place_room(x));
		dlb_emit_int(e, NULL, x->first);
		dlb_emit_int(e, NULL, x->last);
	}
	dlb_emit_close(e, ']');
	free(r);
}

/* Memory alive; in a long program the maximum over each interval of instructions. */
static void alive(const struct dlb_node_program *np, struct dlb_emit *e)
{
	double *live = dlb_places_alive(np), last = -1;
	int stride = (np->n_instr + MOST_POINTS) / MOST_POINTS;

	dlb_emit_open(e, "alive", '[');
	for (int i = 0; i < np->n_instr; i += stride) {
		double most = 0;

		for (int k = i; k < i + stride && k < np->n_instr; k++)
			most = fmax(most, live[k]);
		if (most == last)
			continue;
		dlb_emit_int(e, NULL, i);
		dlb_emit_int(e, NULL, (int64_t)most);
		last = most;
	}
	dlb_emit_close(e, ']');
	free(live);
}

void dlb_page_memory(const struct dlb_view *v, const struct dlb_program *p, struct dlb_emit *e)
{
	int most;

	if (!p)
		return;
	most = MOST_PLACES / p->n_nodes < MOST_A_NODE ? MOST_PLACES / p->n_nodes : MOST_A_NODE;
	dlb_emit_open(e, "memory", '[');
	for (int i = 0; i < p->n_nodes; i++) {
		const struct dlb_node_program *np = &dlb_program_of(p, i)->node[i];

		dlb_emit_open(e, NULL, '{');
		dlb_emit_int(e, "state", (int64_t)np->state_bytes);
		dlb_emit_int(e, "scratch", (int64_t)np->scratch_bytes);
		dlb_emit_int(e, "arena", (int64_t)np->arena_bytes);
		dlb_emit_int(e, "bound", (int64_t)np->bound_bytes);
		dlb_emit_int(e, "instructions", np->n_instr);
		dlb_emit_int(e, "micro_batches", dlb_program_of(p, i)->micro_batches);
		places(v, np, i, most, e);
		alive(np, e);
		dlb_emit_close(e, '}');
	}
	dlb_emit_close(e, ']');
}
