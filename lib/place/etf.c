/* ETF: of all ready groups and all nodes, places the pair that can start earliest; ties go to the group
 * with the greater upward rank. Hwang, Chow, Anger, Lee, SIAM J. Computing 18(2), 1989.
 *
 * The arrival of a ready group's inputs does not change, and placing another group changes one node's
 * queue. So every ready group keeps its best node, and only groups whose best node was used are evaluated
 * again. */
#include <math.h>
#include <stdlib.h>
#include "place/eft.h"
#include "place/list.h"
#include "place/problem.h"

/* A ready unit and its start on its best node; node -1: none has room. */
struct start { int unit, node; struct dlb_unit_times look; struct dlb_finish f; };

static void choose_node(const struct dlb_list *s, struct start *x)
{
	double bytes = dlb_group_bytes(s->p, x->unit);
	x->node = -1;
	for (int d = 0; d < s->p->cluster->n_nodes; d++) {
		struct dlb_finish f;
		if (!dlb_list_able(s, x->unit, bytes, d))
			continue;
		dlb_list_finish(s, x->unit, d, &x->look, &f);
		double more = x->node < 0 ? -1 : f.starts - x->f.starts;
		if (more < 0 || (more == 0 && f.eft < x->f.eft)) {
			x->node = d;
			x->f = f;
		}
	}
}

static bool earlier(const struct start *a, const struct start *b, const double *rank)
{
	if (a->f.starts != b->f.starts)
		return a->f.starts < b->f.starts;
	if (rank[a->unit] != rank[b->unit])
		return rank[a->unit] > rank[b->unit];
	return a->unit < b->unit;
}

int dlb_place_etf(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	struct dlb_list s;
	struct start *open = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *open);
	double *rank = dlb_xcalloc((size_t)p->n_groups + 1, sizeof *rank);
	int n = 0, rc = 0;
	dlb_upward_rank_s(p, rank);
	dlb_list_init(&s, p, placement, false);
	for (;;) {
		while (s.n_ready && rc == 0) {
			struct start *x = &open[n++];
			*x = (struct start){ .unit = s.ready[--s.n_ready] };
			dlb_unit_times_init(&x->look, p->cluster->n_nodes);
			dlb_list_times(&s, x->unit, &x->look);
			choose_node(&s, x);
			if (x->node < 0)
				rc = dlb_no_room(p, x->unit, err);
		}
		if (!n || rc)
			break;
		int at = 0;
		for (int i = 1; i < n; i++)
			if (earlier(&open[i], &open[at], rank))
				at = i;
		struct start x = open[at];
		open[at] = open[--n];
		dlb_list_put(&s, x.unit, x.node, &x.f);
		dlb_unit_times_release(&x.look);
		for (int i = 0; i < n && rc == 0; i++) {
			if (open[i].node != x.node)
				continue;
			choose_node(&s, &open[i]);
			if (open[i].node < 0)
				rc = dlb_no_room(p, open[i].unit, err);
		}
	}
	while (n)
		dlb_unit_times_release(&open[--n].look);
	free(open);
	free(rank);
	dlb_list_release(&s);
	return rc;
}
