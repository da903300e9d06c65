/* Explains the node of an op: the step if the op and its colocated ops were on each other node. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "place/place.h"
#include "place/why.h"
#include "place/value.h"
#include "plan/buckets.h"
#include "plan/replica.h"
#include "plan/sharing.h"

static void print_route(const struct dlb_cluster *c, int a, int b, FILE *f)
{
	int link[DLB_MAX_ROUTE], n = dlb_cluster_route(c, a, b, link);
	for (int i = 0; i < n; i++)
		fprintf(f, "%s%s", i ? ", " : " over ",
			c->link[link[i]].cls ? c->link[link[i]].cls : c->link[link[i]].name);
}

/* Bytes that node `here` and every other exchange in a step of one replica: [node]. Returns new. */
static double *traffic(const struct dlb_problem *p, const struct dlb_plan *plan, int here, int64_t batch)
{
	const struct dlb_graph *g = p->graph;
	double *bytes = dlb_xcalloc((size_t)plan->n_nodes, sizeof *bytes);
	bool *seen = dlb_xcalloc((size_t)plan->n_nodes, sizeof *seen);
	for (int t = 0; t < g->n_tensors; t++) {
		int from = g->tensor[t].producer < 0 ? -1 : plan->placement[g->tensor[t].producer];
		memset(seen, 0, (size_t)plan->n_nodes * sizeof *seen);
		for (int r = g->reader_start[t]; from >= 0 && r < g->reader_start[t + 1]; r++) {
			int to = plan->placement[g->reader[r]];
			if (to == from || seen[to] || (to != here && from != here))
				continue;
			seen[to] = true;
			bytes[from == here ? to : from] += dlb_tensor_bytes(&g->tensor[t], batch);
		}
	}
	free(seen);
	return bytes;
}

/* Prints the nodes that `here` exchanges messages with, and the links. */
static void print_talks(const struct dlb_problem *p, const struct dlb_plan *plan, int here, FILE *f)
{
	int64_t *share = dlb_xcalloc((size_t)(plan->n_replicas > 1 ? plan->n_replicas : 1), sizeof *share);
	dlb_plan_shares(plan, plan->batch, share);
	double *bytes = traffic(p, plan, here, share[0]), sums = 0;
	char how[200];
	for (int d = 0; d < plan->n_nodes; d++) {
		if (bytes[d] <= 0)
			continue;
		fprintf(f, "node %d exchanges %.4g MB a step with node %d", here, bytes[d] / 1e6, d);
		print_route(p->cluster, here, d, f);
		fprintf(f, "\n");
	}
	for (int i = 0; i < plan->n_ops; i++) {
		int t = p->graph->op[i].phase == DLB_UPDATE && plan->placement[i] == here ?
				dlb_update_gradient(p->graph, i) :
				-1;
		sums += t < 0 ? 0 : dlb_tensor_bytes(&p->graph->tensor[t], 1);
	}
	for (int r = 1; r < plan->n_replicas; r++) {
		fprintf(f,
			"node %d plays the same part in replica %d; gradients of %.4g MB are summed with it "
			"by %s",
			plan->replica[r][here], r, sums / 1e6,
			dlb_sharing_sums(&plan->sharing, how, sizeof how));
		print_route(p->cluster, here, plan->replica[r][here], f);
		fprintf(f, "\n");
	}
	free(bytes);
	free(share);
}

/* For a shard's forward op: its number, the op it is a part of, and the reason for the split. */
static void say_split(const struct dlb_graph *g, int op, FILE *f)
{
	for (int i = 0; i < g->n_was_split; i++) {
		const struct dlb_was_split *w = &g->was_split[i];
		const size_t n = strlen(w->op);
		if (!strncmp(g->op[op].name, w->op, n) && g->op[op].name[n] == '@' &&
		    g->op[op].phase == DLB_FORWARD)
			fprintf(f, "shard %s of %d of '%s', split by %s: %s\n", g->op[op].name + n + 1,
				w->parts, w->op, w->axis, w->why);
	}
}

int dlb_place_why(const struct dlb_problem *p, const struct dlb_plan *plan, int op, FILE *f,
		  struct dlb_error *err)
{
	const struct dlb_graph *g = p->graph;
	const struct dlb_cluster *cl = p->cluster;
	if (op < 0 || op >= g->n_ops)
		return dlb_fail(err, NULL, "no op %d: the graph has %d ops", op, g->n_ops);
	int group = p->group_of[op], first = p->group_start[group], n = p->group_start[group + 1] - first;
	int *placement = dlb_xmalloc((size_t)g->n_ops * sizeof(int)), here = plan->placement[op];
	memcpy(placement, plan->placement, (size_t)g->n_ops * sizeof(int));
	struct dlb_problem shared = *p;				/* the same problem with its replicas */
	shared.replicas = plan->n_replicas > 1 ? plan : NULL;
	double now = dlb_place_value_s(&shared, placement);
	fprintf(f, "op %d '%s' (%s) is on node %d; placed by %s\n", op, g->op[op].name, g->op[op].type, here,
		plan->winner);
	say_split(g, op, f);
	if (n > 1) {
		fprintf(f, "bound to it:");
		for (int k = 0; k < n && k < 12; k++)
			if (p->group_op[first + k] != op)
				fprintf(f, " %d '%s'", p->group_op[first + k],
					g->op[p->group_op[first + k]].name);
		fprintf(f, n > 12 ? " ...\n" : "\n");
	}
	fprintf(f, "%-5s %-10s %12s %12s %9s\n", "node", "kind", "work (ms)", "step (ms)", "change");
	for (int d = 0; d < cl->n_nodes; d++) {
		if (plan->n_replicas > 1 && plan->replica[0][d] < 0)
			continue;
		double own = dlb_time_s(p, group, d);
		const char *kind = cl->kind[cl->node[d].kind].name;
		if (isinf(own)) {
			fprintf(f, "%-5d %-10s no kernel\n", d, kind);
			continue;
		}
		for (int k = 0; k < n; k++)
			placement[p->group_op[first + k]] = d;
		double value = d == here ? now : dlb_place_value_s(&shared, placement);
		if (isinf(value))
			fprintf(f, "%-5d %-10s %12.4g does not fit\n", d, kind, own * 1e3);
		else
			fprintf(f, "%-5d %-10s %12.4g %12.4g %+8.2f%%%s\n", d, kind, own * 1e3, value * 1e3,
				now > 0 ? (value / now - 1) * 100 : 0, d == here ? "  here" : "");
	}
	print_talks(p, plan, here, f);
	free(placement);
	return 0;
}
