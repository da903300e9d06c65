/* Why an op is where it is: what the step would have taken had it, and what is bound to it, gone elsewhere. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/place.h"

int dlb_place_why(const struct dlb_problem *p, const struct dlb_plan *plan, int op, FILE *f, struct dlb_error *err)
{
	const struct dlb_graph *g = p->graph;
	const struct dlb_cluster *cl = p->cluster;
	if (op < 0 || op >= g->n_ops)
		return dlb_fail(err, NULL, "no op %d: the graph has %d ops", op, g->n_ops);
	int group = p->group_of[op], first = p->group_start[group], n = p->group_start[group + 1] - first;
	int *placement = dlb_xmalloc((size_t)g->n_ops * sizeof(int)), here = plan->placement[op];
	memcpy(placement, plan->placement, (size_t)g->n_ops * sizeof(int));
	double now = dlb_place_value_s(p, placement);
	fprintf(f, "op %d '%s' (%s) is on node %d; placed by %s\n", op, g->op[op].name, g->op[op].type, here, plan->winner);
	if (n > 1) {
		fprintf(f, "bound to it:");
		for (int k = 0; k < n && k < 12; k++)
			if (p->group_op[first + k] != op)
				fprintf(f, " %d '%s'", p->group_op[first + k], g->op[p->group_op[first + k]].name);
		fprintf(f, n > 12 ? " ...\n" : "\n");
	}
	fprintf(f, "%-5s %-10s %12s %12s %9s\n", "node", "kind", "work (ms)", "step (ms)", "change");
	for (int d = 0; d < cl->n_nodes; d++) {
		double own = p->time_s[(size_t)group * (size_t)cl->n_nodes + (size_t)d];
		const char *kind = cl->kind[cl->node[d].kind].name;
		if (isinf(own)) {
			fprintf(f, "%-5d %-10s no kernel\n", d, kind);
			continue;
		}
		for (int k = 0; k < n; k++)
			placement[p->group_op[first + k]] = d;
		double value = d == here ? now : dlb_place_value_s(p, placement);
		if (isinf(value))
			fprintf(f, "%-5d %-10s %12.4g does not fit\n", d, kind, own * 1e3);
		else
			fprintf(f, "%-5d %-10s %12.4g %12.4g %+8.2f%%%s\n", d, kind, own * 1e3, value * 1e3,
				now > 0 ? (value / now - 1) * 100 : 0, d == here ? "  here" : "");
	}
	free(placement);
	return 0;
}
