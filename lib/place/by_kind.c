/* by-kind: each group of ops goes to the preferred kind of device of its class of work (affinity.h), and
 * there to the node with the least work so far. A group's class is that of its op with the most FLOP, or
 * of an op that the table names together with its fused activation. If the table has no row, or no kind of
 * the row has a kernel and room, the group goes to its fastest kind. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/affinity.h"
#include "place/place.h"
#include "place/problem.h"

struct node_loads { const struct dlb_problem *p; double *used_bytes, *load_s; };

static double time_s(const struct node_loads *s, int group, int node)
{
	return dlb_time_s(s->p, group, node);
}

static bool able(const struct node_loads *s, int group, int node)
{
	return isfinite(time_s(s, group, node)) &&
	       s->used_bytes[node] + dlb_group_bytes(s->p, group) <= s->p->memory_bytes[node];
}

static const struct dlb_affinity_row *row_of(const struct dlb_problem *p, int group)
{
	const struct dlb_op *most = NULL;
	for (int k = p->group_start[group]; k < p->group_start[group + 1]; k++) {
		const struct dlb_op *o = &p->graph->op[p->group_op[k]];
		const struct dlb_affinity_row *row = dlb_affinity_find_fused(p->affinity, o);
		if (row)
			return row;
		if (!most || o->flop > most->flop)
			most = o;
	}
	return dlb_affinity_find(p->affinity, most->type);
}

/* Of the nodes of a kind that have a kernel and room, the one that would finish first; kind NULL: of the
 * fastest nodes; -1: none. */
static int choose(const struct node_loads *s, int group, const char *kind)
{
	const struct dlb_cluster *cl = s->p->cluster;
	double fastest = INFINITY;
	int to = -1;
	for (int d = 0; d < cl->n_nodes && !kind; d++)
		if (able(s, group, d) && time_s(s, group, d) < fastest)
			fastest = time_s(s, group, d);
	for (int d = 0; d < cl->n_nodes; d++) {
		bool meant = kind ? dlb_affinity_means(kind, &cl->kind[cl->node[d].kind]) :
				    time_s(s, group, d) <= fastest;
		if (meant && able(s, group, d) &&
		    (to < 0 || s->load_s[d] + time_s(s, group, d) < s->load_s[to] + time_s(s, group, to)))
			to = d;
	}
	return to;
}

int dlb_place_by_kind(const struct dlb_problem *p, int *placement, struct dlb_error *err)
{
	size_t n_nodes = (size_t)p->cluster->n_nodes;
	struct node_loads s = { p, dlb_xcalloc(n_nodes, sizeof(double)),
				dlb_xcalloc(n_nodes, sizeof(double)) };
	int rc = 0;
	for (int g = 0; g < p->n_groups && rc == 0; g++) {
		const struct dlb_affinity_row *row = p->affinity ? row_of(p, g) : NULL;
		int to = -1;
		for (int k = 0; row && k < row->n && to < 0; k++)
			to = choose(&s, g, row->kind[k]);
		if (to < 0)
			to = choose(&s, g, NULL);
		if (to < 0) {
			rc = dlb_no_room(p, g, err);
			break;
		}
		s.used_bytes[to] += dlb_group_bytes(p, g);
		s.load_s[to] += time_s(&s, g, to);
		for (int k = p->group_start[g]; k < p->group_start[g + 1]; k++)
			placement[p->group_op[k]] = to;
	}
	free(s.used_bytes);
	free(s.load_s);
	return rc;
}
