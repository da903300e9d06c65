/* Allocates, hashes and checks plans. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/again.h"
#include "plan/plan.h"
#include "plan/program.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/tensors.h"
#include "util/hash.h"

void dlb_plan_init(struct dlb_plan *p, int n_ops, int n_nodes)
{
	*p = (struct dlb_plan){ .n_ops = n_ops,
				.n_nodes = n_nodes,
				.micro_batches = 1,
				.batch = 1,
				.seed = 1,
				.in_place = true,
				.n_replicas = 1 };
	dlb_sharing_init(&p->sharing);
	p->placement = dlb_arena_array(&p->arena, (size_t)n_ops + 1, sizeof *p->placement);
	p->node = dlb_arena_array(&p->arena, (size_t)n_nodes + 1, sizeof *p->node);
	p->algorithm = p->winner = "by hand";
	p->schedule = dlb_schedules[0].name;
	p->optimizer = "sgd";
}

void dlb_plan_release(struct dlb_plan *p)
{
	dlb_arena_release(&p->arena);
	memset(p, 0, sizeof *p);
}

void dlb_plan_hash(struct dlb_plan *p)
{
	uint64_t h = DLB_HASH_INIT;
	for (int i = 0; i < p->n_ops; i++) {
		int32_t node = p->placement[i];
		h = dlb_hash_bytes(h, &node, sizeof node);
	}
	if (p->n_replicas > 1) {
		int64_t *share = dlb_xcalloc((size_t)p->n_replicas, sizeof *share);
		dlb_plan_shares(p, p->batch, share);
		for (int r = 0; r < p->n_replicas; r++)
			h = dlb_hash_bytes(h, p->replica[r], (size_t)p->n_nodes * sizeof(int));
		h = dlb_hash_bytes(h, share, (size_t)p->n_replicas * sizeof *share);
		free(share);
	}
	dlb_hash_hex(h, p->hash);
}

/* Whether op i is placed on an existing node that has a kernel for it, and with the op that must share its
 * node. */
static bool is_placed(const struct dlb_plan *p, const struct dlb_cost *c, int i)
{
	const int node = p->placement[i], with = c->graph->op[i].colocate;

	return node >= 0 && node < p->n_nodes && (with < 0 || p->placement[with] == node) &&
	       !isinf(dlb_cost_op_s(c, i, node, (double)dlb_micro_batch_size(p->batch, p->micro_batches, 0)));
}

static int check_placement(const struct dlb_plan *p, const struct dlb_cost *c, struct dlb_error *err)
{
	const struct dlb_graph *g = c->graph;
	for (int i = 0; i < p->n_ops; i++) {
		char where[64];
		int node = p->placement[i], with = g->op[i].colocate;
		if (is_placed(p, c, i))
			continue;
		snprintf(where, sizeof where, "/plan/placement/%d", i);
		if (node < 0 || node >= p->n_nodes)
			return dlb_fail(err, where, "no node %d: the cluster has %d nodes", node, p->n_nodes);
		if (with >= 0 && p->placement[with] != node)
			return dlb_fail(err, where,
					"op %d '%s' is on node %d, but must share the node of op %d '%s', "
					"which is on node %d",
					i, g->op[i].name, node, with, g->op[with].name, p->placement[with]);
		return dlb_fail(err, where, "node %d (%s) has no kernel for op %d '%s' (%s)", node,
				c->cluster->kind[c->cluster->node[node].kind].name, i, g->op[i].name,
				g->op[i].type);
	}
	for (int t = 0; t < g->n_tensors; t++) {
		int home = g->tensor[t].kind == DLB_T_WEIGHT || g->tensor[t].kind == DLB_T_BUFFER ?
				   dlb_graph_home(g, t) :
				   -1;
		for (int r = g->reader_start[t]; home >= 0 && r < g->reader_start[t + 1]; r++) {
			int op = g->reader[r];
			if (g->op[op].phase == DLB_UPDATE && p->placement[op] != p->placement[home])
				return dlb_fail(err, "/plan/placement",
						"op %d '%s' updates '%s', which lives on node %d", op,
						g->op[op].name, g->tensor[t].name, p->placement[home]);
		}
	}
	return 0;
}

/* Whether item x of node n belongs to an op on that node, and has the op's next micro-batch. */
static bool is_due(const struct dlb_plan *p, const struct dlb_graph *g, int n, const struct dlb_item *x,
		   const int *next)
{
	return x->op >= 0 && x->op < p->n_ops && p->placement[x->op] == n &&
	       x->micro_batch == (g->op[x->op].phase == DLB_UPDATE && next[x->op] == 0 ? -1 : next[x->op]);
}

/* Checks that every (op, m) appears once, on its node, and the micro-batches of an op in index order. */
static int check_order(const struct dlb_plan *p, const struct dlb_graph *g, struct dlb_error *err)
{
	int *next = dlb_xcalloc((size_t)p->n_ops + 1, sizeof(int)), rc = 0;
	int M = p->micro_batches < p->batch ? p->micro_batches : (int)p->batch;
	for (int n = 0; n < p->n_nodes && rc == 0; n++) {
		for (int i = 0; i < p->node[n].n_order && rc == 0; i++) {
			const struct dlb_item *x = &p->node[n].order[i];
			char where[64];
			if (is_due(p, g, n, x, next)) {
				next[x->op]++;
				continue;
			}
			snprintf(where, sizeof where, "/plan/nodes/%d/order/%d", n, i);
			if (x->op < 0 || x->op >= p->n_ops)
				rc = dlb_fail(err, where, "no op %d", x->op);
			else if (p->placement[x->op] != n)
				rc = dlb_fail(err, where, "op %d is placed on node %d", x->op,
					      p->placement[x->op]);
			else
				rc = dlb_fail(err, where,
					      "op %d '%s' runs micro-batch %d where %d is due: an op runs "
					      "its micro-batches in order, an update runs once, as -1",
					      x->op, g->op[x->op].name, x->micro_batch,
					      g->op[x->op].phase == DLB_UPDATE ? -1 : next[x->op]);
		}
	}
	for (int i = 0; i < p->n_ops && rc == 0; i++) {
		int want = g->op[i].phase == DLB_UPDATE ? 1 : M;
		if (next[i] != want)
			rc = dlb_fail(err, "/plan/nodes",
				      "op %d '%s' stands %d times in the order of node %d, not %d times", i,
				      g->op[i].name, next[i], p->placement[i], want);
	}
	free(next);
	return rc;
}

static int check_one(const struct dlb_plan *p, const struct dlb_cost *c, struct dlb_error *err)
{
	return check_placement(p, c, err) || check_order(p, c->graph, err) ? -1 : 0;
}

int dlb_plan_check(const struct dlb_plan *p, const struct dlb_cost *c, struct dlb_error *err)
{
	const struct dlb_graph *g = c->graph;
	if (p->n_ops != g->n_ops)
		return dlb_fail(err, "/plan/placement", "%d ops are placed, the graph has %d", p->n_ops,
				g->n_ops);
	if (p->n_nodes != c->cluster->n_nodes)
		return dlb_fail(err, "/plan/nodes", "%d nodes, the cluster has %d", p->n_nodes,
				c->cluster->n_nodes);
	if (p->micro_batches < 1 || p->batch < 1 || p->micro_batches > p->batch)
		return dlb_fail(err, "/plan/micro_batches", "%d micro-batches for a batch of %lld",
				p->micro_batches, (long long)p->batch);
	if (g->fixed_batch && (p->micro_batches > 1 || p->n_replicas > 1 || p->batch != g->batch))
		return dlb_fail(err, "/plan/micro_batches",
				"the graph takes %lld samples in one micro-batch and one replica, no others",
				(long long)g->batch);
	if (dlb_plan_check_again(p, g, err))
		return -1;
	if (p->n_replicas < 2)
		return check_one(p, c, err);
	int64_t *share = dlb_xcalloc((size_t)p->n_replicas, sizeof *share);
	int rc = dlb_plan_check_replicas(p, err);
	dlb_plan_shares(p, p->batch, share);
	for (int r = 0; r < p->n_replicas && rc == 0; r++) {
		struct dlb_plan one;
		dlb_plan_of_replica(p, r, share[r], &one);
		rc = check_one(&one, c, err);
		dlb_plan_release(&one);
	}
	free(share);
	return rc;
}
