/* Proofs about programs before a run starts. They do not trust the compiler: each proof reads only the
 * instructions and the places.
 *
 *   lifetimes   each node reads and writes places only while they are alive (verify_lifetimes.c)
 *   places      places that are alive together do not overlap (verify_places.c)
 *   messages    messages match, and all arrive: no deadlock (verify_messages.c)
 *   sums        nodes that sum together have equal buckets
 *   memory      arena + scratch + state fit the node
 *
 * Synchronous schedules have no delay between iterations, so one step is checked. Asynchronous programs are
 * unrolled from an empty pipeline to an empty one, to two steps more than the longest delay or the most
 * copies. For weights the proof is that the versions that are read exist, in place or in copies. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "plan/async.h"
#include "plan/flow.h"
#include "plan/offload.h"
#include "plan/print.h"
#include "plan/program_verify.h"
#include "plan/replica.h"
#include "plan/tensors.h"
#include "plan/verify.h"

int dlb_program_find_place(const struct dlb_node_program *p, int tensor, int micro_batch)
{
	int lo = 0, hi = p->n_places;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		const struct dlb_place *x = &p->place[mid];
		if (x->tensor < tensor || (x->tensor == tensor && x->micro_batch < micro_batch))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < p->n_places && p->place[lo].tensor == tensor && p->place[lo].micro_batch == micro_batch ?
		       lo :
		       -1;
}

int dlb_program_place_of(const struct dlb_node_program *np, const struct dlb_graph *g, int t, int m)
{
	int at;
	if (g->tensor[t].kind == DLB_T_WEIGHT || g->tensor[t].kind == DLB_T_BUFFER)
		m = -1;
	at = dlb_program_find_place(np, t, m);
	if (at < 0 && m >= 0)
		at = dlb_program_find_place(np, t, -1);
	if (at < 0 && dlb_graph_view_of(g, t) >= 0)
		at = dlb_program_place_of(np, g, dlb_graph_view_of(g, t), m);
	return at;
}

int dlb_program_root_place(const struct dlb_node_program *np, int tensor, int m)
{
	int k = dlb_program_find_place(np, tensor, m);
	for (int steps = 0; k >= 0 && np->place[k].of >= 0; steps++)
		k = steps > np->n_places ? -1 :
					   dlb_program_find_place(np, np->place[k].of, np->place[k].of_m);
	return k;
}

int dlb_verify_fault(const struct dlb_program *g, int node, int at, struct dlb_error *err, const char *what)
{
	const struct dlb_instr *in = &dlb_program_of(g, node)->node[node].instr[at];
	char where[64];
	snprintf(where, sizeof where, "program of node %d, instruction %d", node, at);
	if (in->op >= 0)
		return dlb_fail(err, where, "%s op %d '%s' of micro-batch %d: %s", dlb_verb_names[in->verb],
				in->op, g->graph->op[in->op].name, in->micro_batch, what);
	if (in->verb == DLB_COLLECTIVE)
		return dlb_fail(err, where, "COLLECTIVE of bucket %d: %s", in->tag, what);
	return dlb_fail(err, where, "%s tensor %d '%s' of micro-batch %d: %s", dlb_verb_names[in->verb],
			in->tensor, in->tensor >= 0 ? g->graph->tensor[in->tensor].name : "", in->micro_batch,
			what);
}

/* Proves that every op that sums over its batch has a bucket. */
static int prove_statistics(const struct dlb_program *g, struct dlb_error *err)
{
	int64_t n_own;
	for (int i = 0; i < g->graph->n_ops; i++) {
		int64_t n = dlb_graph_sums(g->graph, i, &n_own);
		const struct dlb_node_program *np = &g->node[g->plan->placement[i]];
		int b = n ? np->n_buckets - 1 : -1;
		while (b >= 0 && !(np->bucket[b].cls == DLB_SUM_STATISTICS && np->bucket[b].op[0] == i &&
				   np->bucket[b].n == n))
			b--;
		if (n && b < 0)
			return dlb_fail(err, NULL,
					"the statistics of op %d '%s' are not summed over the replicas", i,
					g->graph->op[i].name);
	}
	return 0;
}

static bool same_bucket(const struct dlb_bucket *a, const struct dlb_bucket *b)
{
	if (a->n != b->n || a->n_ops != b->n_ops || a->ahead != b->ahead)
		return false;
	if (a->ahead)
		return a->weight == b->weight && a->life == b->life;
	return !a->n_ops || !memcmp(a->op, b->op, (size_t)a->n_ops * sizeof(int));
}

/* The first instruction from `at` on that starts or ends a gather ahead of use; n_instr: none. */
static int next_gather(const struct dlb_node_program *np, int at)
{
	for (; at < np->n_instr; at++) {
		const struct dlb_instr *in = &np->instr[at];
		if (in->verb == DLB_COLLECTIVE &&
		    (in->what == DLB_RUN_REDUCE || in->what == DLB_RUN_REDUCED) && in->tag >= 0 &&
		    in->tag < np->n_buckets && np->bucket[in->tag].ahead)
			break;
	}
	return at;
}

/* Proves that `node`, whose program is b, starts and ends its gathers in the order of program a, of a node
 * with the same part, because gathers run one after the other. */
static int prove_gathers(const struct dlb_program *g, int node, const struct dlb_node_program *a,
			 const struct dlb_node_program *b, struct dlb_error *err)
{
	int i = next_gather(a, 0), k = next_gather(b, 0);
	while (i < a->n_instr && k < b->n_instr && a->instr[i].what == b->instr[k].what &&
	       a->instr[i].tag == b->instr[k].tag) {
		i = next_gather(a, i + 1);
		k = next_gather(b, k + 1);
	}
	if (k < b->n_instr)
		return dlb_verify_fault(g, node, k, err, "other replicas do not gather in this order");
	return i == a->n_instr ? 0 :
				 dlb_fail(err, NULL, "node %d gathers fewer weights than other replicas",
					  node);
}

/* Proves that nodes that sum together have the same buckets. */
static int prove_buckets(const struct dlb_program *g, struct dlb_error *err)
{
	for (int r = 0; r < g->n_replicas && g->n_replicas > 1 && g->whole->sharing.sync_batchnorm; r++)
		if (prove_statistics(dlb_program_replica(g, r), err))
			return -1;
	for (int r = 1; r < g->n_replicas; r++) {
		const struct dlb_program *other = dlb_program_replica(g, r);
		if (g->async && (other->depth != g->depth || other->micro_batches != g->micro_batches ||
				 other->staleness != g->staleness))
			return dlb_fail(err, NULL, "replicas 0 and %d do not go round one asynchronous loop",
					r);
		for (int k = 0; k < g->n_nodes; k++) {
			int node = g->whole->replica[r][k];
			if (node < 0)
				continue;
			const struct dlb_node_program *a = &g->node[g->whole->replica[0][k]],
						      *b = &dlb_program_of(g, node)->node[node];
			bool same = a->n_buckets == b->n_buckets;
			for (int i = 0; same && i < a->n_buckets; i++)
				same = same_bucket(&a->bucket[i], &b->bucket[i]);
			if (!same)
				return dlb_fail(
					err, NULL,
					"nodes %d and %d play one part and do not sum the same gradients", k,
					node);
			if (prove_gathers(g, node, a, b, err))
				return -1;
		}
	}
	return 0;
}

/* Bytes that node lacks; 0 or less: none. */
static double lack_bytes(const struct dlb_program *g, const struct dlb_cluster *c, int node)
{
	const struct dlb_node_program *np = &dlb_program_of(g, node)->node[node];

	return (double)np->arena_bytes + (double)np->scratch_bytes + (double)np->state_bytes -
	       dlb_cluster_node_memory(c, node);
}

int dlb_program_lack_text(const struct dlb_program *g, const struct dlb_cluster *c, char text[DLB_LACK_TEXT])
{
	size_t at = 0;
	int n = 0;

	text[0] = '\0';
	for (int node = 0; node < g->n_nodes; node++) {
		const double lack = lack_bytes(g, c, node);

		if (!(lack > 0))
			continue;
		if (n < 3)
			at += (size_t)snprintf(text + at, DLB_LACK_TEXT - at, "%s%.4g MB more on node %d",
					       n ? ", " : "", ceil(lack / 100) / 1e4, node);
		n++;
	}
	if (n > 3)
		snprintf(text + at, DLB_LACK_TEXT - at, " and more on %d others", n - 3);
	return n;
}

/* Proves that memory suffices; the error names the node with the largest shortage. */
static int prove_memory(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err)
{
	char more[DLB_LACK_TEXT];
	double lacks = 0;
	int worst = -1;
	for (int node = 0; node < g->n_nodes && c && c->cluster; node++) {
		double over = lack_bytes(g, c->cluster, node);
		if (over > lacks) {
			lacks = over;
			worst = node;
		}
	}
	if (worst < 0)
		return c && c->cluster ? dlb_offload_check_room(g, c->cluster, err) : 0;
	const struct dlb_node_program *np = &dlb_program_of(g, worst)->node[worst];
	double has = dlb_cluster_node_memory(c->cluster, worst);
	dlb_fail_no(err, NULL, "node %d (%s) needs %.4g MB of %.4g MB", worst,
		    c->cluster->kind[c->cluster->node[worst].kind].name, (has + lacks) / 1e6, has / 1e6);
	dlb_program_lack_text(g, c->cluster, more);
	return dlb_hint(err,
			"weights and state %.4g MB, activations %.4g MB, scratch %.4g MB; it fits with %s; "
			"try more micro-batches or nodes",
			(double)np->state_bytes / 1e6, (double)np->arena_bytes / 1e6,
			(double)np->scratch_bytes / 1e6, more);
}

static int prove(const struct dlb_program *g, struct dlb_error *err)
{
	int rc = 0;
	if (prove_buckets(g, err) || dlb_verify_messages(g, err))
		return -1;
	struct dlb_lifetimes *lives = dlb_lifetimes_new(g->graph);
	for (int node = 0; node < g->n_nodes && rc == 0; node++) {
		const struct dlb_program *own = dlb_program_of(g, node);
		rc = dlb_verify_lifetimes(lives, own, node, err) || dlb_verify_places(own, node, err) ? -1 :
													0;
	}
	dlb_lifetimes_free(lives);
	return rc;
}

/* The number of steps that cover all cases: the longest delay, and the reuse of every copy. */
static int steps_to_prove(const struct dlb_program *g)
{
	int most = g->depth;
	for (int node = 0; node < g->n_nodes; node++) {
		const struct dlb_node_program *np = &dlb_program_of(g, node)->node[node];
		for (int k = 0; k < np->n_places; k++)
			most = np->place[k].copies > most ? np->place[k].copies : most;
		for (int k = 0; k < np->n_weights; k++)
			most = np->weight[k].n > most ? np->weight[k].n : most;
		for (int k = 0; k < np->n_weights; k++)
			most = np->weight[k].sums > most ? np->weight[k].sums : most;
	}
	return most + 2;
}

int dlb_program_verify(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err)
{
	struct dlb_program steps;
	int rc;
	if (!g->depth) {
		rc = prove(g, err);
	} else {
		dlb_program_unroll(g, steps_to_prove(g), &steps);
		rc = prove(&steps, err);
		dlb_program_release(&steps);
	}
	return rc ? rc : prove_memory(g, c, err);
}

int dlb_program_verify_choices(const struct dlb_program *g, const struct dlb_cost *c, struct dlb_error *err)
{
	if (g->depth)
		return dlb_program_verify(g, c, err);
	return prove_buckets(g, err) ? -1 : prove_memory(g, c, err);
}
