/* Replicas: several groups of nodes run the same plan, each on its share of the batch.
 *
 * Node replica[r][k] does in replica r the work of node k in replica 0. One replica is a plan without
 * replicas (dlb_plan_of_replica), so the scheduler, the compiler and all code for one pipeline ignore
 * replicas. Sums of gradients between the nodes of one part connect the replicas. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/compress.h"
#include "optim/kfac.h"
#include "plan/buckets.h"
#include "plan/by_class.h"
#include "plan/program.h"
#include "plan/replica.h"
#include "plan/schedule.h"
#include "plan/sharing.h"
#include "plan/sums.h"

int64_t dlb_micro_batch_size(int64_t batch, int micro_batches, int m)
{
	int64_t M = micro_batches < batch ? micro_batches : batch;
	if (m >= M)
		return 0;
	return batch / M + (m < batch % M);
}

void dlb_plan_set_replicas(struct dlb_plan *p, int n, const int *replica)
{
	size_t row = (size_t)p->n_nodes;
	p->n_replicas = n;
	p->replica = NULL;
	if (n < 2)
		return;
	p->replica = dlb_arena_array(&p->arena, (size_t)n, sizeof *p->replica);
	for (int r = 0; r < n; r++) {
		p->replica[r] = dlb_arena_array(&p->arena, row, sizeof **p->replica);
		memcpy(p->replica[r], replica + (size_t)r * row, row * sizeof **p->replica);
	}
	p->replica_of = dlb_arena_array(&p->arena, row, sizeof *p->replica_of);
	p->part_of = dlb_arena_array(&p->arena, row, sizeof *p->part_of);
	for (int node = 0; node < p->n_nodes; node++)
		p->replica_of[node] = p->part_of[node] = -1;
	for (int r = n - 1; r >= 0; r--) {
		for (int k = p->n_nodes - 1; k >= 0; k--) {
			if (p->replica[r][k] < 0)
				continue;
			p->replica_of[p->replica[r][k]] = r;
			p->part_of[p->replica[r][k]] = k;
		}
	}
}

int dlb_plan_replica_of(const struct dlb_plan *p, int node)
{
	return p->n_replicas > 1 && p->replica_of[node] >= 0 ? p->replica_of[node] : 0;
}

int dlb_plan_part_of(const struct dlb_plan *p, int node)
{
	return p->n_replicas > 1 ? p->part_of[node] : node;
}

void dlb_plan_placement_of(const struct dlb_plan *p, int r, int *placement)
{
	for (int i = 0; i < p->n_ops; i++)
		placement[i] = p->replica ? p->replica[r][p->placement[i]] : p->placement[i];
}

void dlb_plan_peers(const struct dlb_plan *p, int k, int *peer)
{
	for (int r = 0; r < p->n_replicas; r++)
		peer[r] = p->replica ? p->replica[r][k] : k;
}

struct peer_host {
	const char *host;
	int r;
};

/* Peers without a host come first. */
static int by_host(const void *a, const void *b)
{
	const struct peer_host *x = a, *y = b;
	const int order = x->host && y->host ? strcmp(x->host, y->host) :
					       (x->host != NULL) - (y->host != NULL);
	return order ? order : x->r - y->r;
}

void dlb_plan_peer_groups(const struct dlb_plan *p, const struct dlb_cluster *c, int k, int *group)
{
	const int R = p->n_replicas;
	int *peer = dlb_xcalloc((size_t)R, sizeof *peer);
	struct peer_host *at = dlb_xcalloc((size_t)R, sizeof *at);
	bool hosts = false;
	dlb_plan_peers(p, k, peer);
	for (int r = 0; r < R; r++)
		at[r] = (struct peer_host){ c->node[peer[r]].host, r };
	qsort(at, (size_t)R, sizeof *at, by_host);
	/* the group of a host has the number of its first peer */
	for (int i = 0, first = 0; i < R; i++) {
		const char *host = at[i].host, *of_first = at[first].host;
		if (host != of_first && (!host || !of_first || strcmp(host, of_first)))
			first = i;
		group[at[i].r] = at[first].r;
		hosts |= at[first].r != 0;
	}
	for (int r = 0; r < R && !hosts; r++)
		group[r] = c->node[peer[r]].group;
	free(at);
	free(peer);
}

void dlb_plan_shares(const struct dlb_plan *p, int64_t batch, int64_t *share)
{
	int n = p->n_replicas > 1 ? p->n_replicas : 1;
	double sum = 0, *rest = dlb_xcalloc((size_t)n, sizeof *rest);
	int64_t given = 0;
	for (int r = 0; r < n; r++)
		sum += p->power ? p->power[r] : 1;
	for (int r = 0; r < n; r++) {
		double part = (double)batch * (p->power ? p->power[r] : 1) / sum;
		share[r] = (int64_t)floor(part);
		rest[r] = part - floor(part);
		given += share[r];
	}
	for (; given < batch; given++) {
		int best = 0;
		for (int r = 1; r < n; r++)
			if (rest[r] > rest[best])
				best = r;
		share[best]++;
		rest[best] = -1;
	}
	/* every replica gets at least one sample if there are enough */
	for (int r = 0; r < n; r++) {
		int most = 0;
		for (int k = 1; k < n && share[r] == 0; k++)
			if (share[k] > share[most])
				most = k;
		if (share[r] == 0 && share[most] > 1) {
			share[most]--;
			share[r]++;
		}
	}
	free(rest);
}

int dlb_plan_check_replicas(const struct dlb_plan *p, struct dlb_error *err)
{
	char where[64];
	if (p->n_replicas < 2)
		return 0;
	if (p->batch < p->n_replicas)
		return dlb_fail(err, "/plan/replicas", "%d replicas for a batch of %lld", p->n_replicas,
				(long long)p->batch);
	for (int i = 0; i < p->n_ops; i++) {
		snprintf(where, sizeof where, "/plan/placement/%d", i);
		if (p->replica[0][p->placement[i]] < 0)
			return dlb_fail(err, where, "node %d has no part in the replicas", p->placement[i]);
	}
	return dlb_sharing_check(p, err);
}

/* Moves updates to the end, in the order in which their sums begin: the first updates overlap the last
 * sums. */
static void put_last(const struct dlb_graph *g, struct dlb_item *order, int n)
{
	int kept = 0;
	struct dlb_item *updates = dlb_xcalloc((size_t)n + 1, sizeof *updates);
	int n_updates = 0;
	for (int i = 0; i < n; i++)
		if (g->op[order[i].op].phase == DLB_UPDATE)
			updates[n_updates++] = order[i];
		else
			order[kept++] = order[i];
	dlb_plan_sort_updates(g, updates, n_updates);
	memcpy(order + kept, updates, (size_t)n_updates * sizeof *updates);
	free(updates);
}

int dlb_plan_micro_batches(const struct dlb_plan *p, int64_t batch)
{
	int64_t *share, M = p->micro_batches;
	if (!p->sharing.sync_batchnorm && p->sharing.zero != 3 && !dlb_plan_is_async(p))
		return (int)M;
	share = dlb_xcalloc((size_t)(p->n_replicas > 1 ? p->n_replicas : 1), sizeof *share);
	dlb_plan_shares(p, batch, share);
	for (int r = 0; r < p->n_replicas; r++)
		M = share[r] < M ? (share[r] ? share[r] : 1) : M;
	free(share);
	return (int)M;
}

bool dlb_plan_has_one_order(const struct dlb_plan *p)
{
	return p->sharing.sync_batchnorm || p->sharing.zero == 3 ||
	       (p->sharing.zero == 2 && p->micro_batches == 1);
}

void dlb_plan_of_replica(const struct dlb_plan *p, int r, int64_t share, struct dlb_plan *out)
{
	*out = *p;
	memset(&out->arena, 0, sizeof out->arena);
	out->n_replicas = 1;
	out->replica = NULL;
	out->power = NULL;
	out->timeline = NULL;
	out->n_spans = NULL;
	out->batch = share;
	out->n_shares = dlb_sharing_shares(&p->sharing, p->n_replicas);
	out->share = r;
	out->of_replicas = p->n_replicas;
	out->micro_batches = dlb_plan_micro_batches(p, p->batch);
	if (out->micro_batches > share)
		out->micro_batches = (int)share;
	out->placement = dlb_arena_array(&out->arena, (size_t)p->n_ops + 1, sizeof *out->placement);
	dlb_plan_placement_of(p, r, out->placement);
	out->node = dlb_arena_array(&out->arena, (size_t)p->n_nodes + 1, sizeof *out->node);
	for (int k = 0; k < p->n_nodes; k++) {
		int node = p->replica[r][k];
		if (node < 0)
			continue;
		/* all replicas may have to run the order of replica 0 */
		const struct dlb_node_plan *from = &p->node[dlb_plan_has_one_order(p) ? k : node];
		struct dlb_node_plan *to = &out->node[node];
		to->order = dlb_arena_array(&out->arena, (size_t)from->n_order + 1, sizeof *to->order);
		if (from->n_order)
			memcpy(to->order, from->order, (size_t)from->n_order * sizeof *to->order);
		to->n_order = from->n_order;
		if (p->graph)
			put_last(p->graph, to->order, to->n_order);
	}
}

static bool nodes_alike(const struct dlb_cluster *c, const double *node_scale, int a, int b)
{
	const struct dlb_node *x = &c->node[a], *y = &c->node[b];

	return x->kind == y->kind && x->speed == y->speed && x->memory_bytes == y->memory_bytes &&
	       !x->n_memories && !y->n_memories && (!node_scale || node_scale[a] == node_scale[b]);
}

static bool links_alike(const struct dlb_link *x, const struct dlb_link *y)
{
	return x->latency_s == y->latency_s && x->bandwidth_Bps == y->bandwidth_Bps &&
	       x->overlap == y->overlap && x->duplex == y->duplex;
}

/* Whether the routes from a to b in one replica and from x to y in another are alike. to[id]: the other
 * replica's direction that corresponds to direction id; from[id]: the reverse; -1: none yet. */
static bool routes_alike(const struct dlb_cluster *c, int a, int b, int x, int y, int *to, int *from)
{
	struct dlb_direction one[DLB_MAX_ROUTE], two[DLB_MAX_ROUTE];
	struct dlb_way first, second;
	const int n = dlb_cluster_directions(c, a, b, one, &first);

	if (n != dlb_cluster_directions(c, x, y, two, &second) || first.latency_s != second.latency_s ||
	    first.Bps != second.Bps || first.copies != second.copies)
		return false;
	for (int i = 0; i < n; i++) {
		int *t = &to[one[i].id], *f = &from[two[i].id];
		if (!links_alike(&c->link[one[i].link], &c->link[two[i].link]) ||
		    (*t >= 0 && *t != two[i].id) || (*f >= 0 && *f != one[i].id))
			return false;
		*t = two[i].id;
		*f = one[i].id;
	}
	return true;
}

/* Whether replicas q and r are alike. map: room for two ints for each direction of the cluster. */
static bool replicas_alike(const struct dlb_plan *p, const struct dlb_cluster *c, const double *node_scale,
			   int q, int r, int *map)
{
	const int *a = p->replica[q], *b = p->replica[r], n = dlb_cluster_n_directions(c);

	for (int i = 0; i < 2 * n; i++)
		map[i] = -1;
	for (int k = 0; k < p->n_nodes; k++) {
		if (a[k] < 0)
			continue;
		if (!nodes_alike(c, node_scale, a[k], b[k]))
			return false;
		for (int l = 0; l < p->n_nodes; l++)
			if (l != k && a[l] >= 0 &&
			    ((a[k] < a[l]) != (b[k] < b[l]) ||
			     !routes_alike(c, a[k], a[l], b[k], b[l], map, map + n)))
				return false;
	}
	return true;
}

void dlb_plan_alike(const struct dlb_plan *p, const struct dlb_cluster *c, const double *node_scale,
		    int *alike)
{
	int *map = dlb_xcalloc(2 * (size_t)dlb_cluster_n_directions(c) + 1, sizeof *map);

	for (int r = 0; r < p->n_replicas; r++) {
		alike[r] = r;
		for (int q = 0; q < r && alike[r] == r; q++)
			if (alike[q] == q && replicas_alike(p, c, node_scale, q, r, map))
				alike[r] = q;
	}
	free(map);
}

/* Copies the order of replica q to replica r. */
static void copy_order(struct dlb_plan *p, int q, int r)
{
	for (int k = 0; k < p->n_nodes; k++) {
		if (p->replica[r][k] < 0)
			continue;
		const struct dlb_node_plan *from = &p->node[p->replica[q][k]];
		struct dlb_node_plan *to = &p->node[p->replica[r][k]];
		to->n_order = from->n_order;
		to->order = from->order;
	}
}

/* alike[r]: as dlb_plan_alike, but r itself if replicas divide states, because each has its own share, and
 * without a cluster, because then links are unknown. */
static void find_alike(const struct dlb_plan *p, const struct dlb_cost *c, const double *node_scale,
		       int *alike)
{
	if (c && c->cluster && node_scale && !dlb_sharing_divides(&p->sharing)) {
		dlb_plan_alike(p, c->cluster, node_scale, alike);
		return;
	}
	for (int r = 0; r < p->n_replicas; r++)
		alike[r] = r;
}

double dlb_plan_order(struct dlb_plan *p, const struct dlb_cost *c, const double *node_scale)
{
	const struct dlb_schedule *s = dlb_schedule_find(p->schedule);
	const size_t R = p->n_replicas > 1 ? (size_t)p->n_replicas : 1;
	int64_t *share = dlb_xcalloc(R, sizeof *share);
	int *alike = dlb_xcalloc(R, sizeof *alike);
	double longest = 0;
	if (p->n_replicas < 2)
		longest = dlb_schedule_order(p, c, s, node_scale);
	else
		find_alike(p, c, node_scale, alike);
	dlb_plan_shares(p, p->batch, share);
	for (int r = 0; r < p->n_replicas && p->n_replicas > 1; r++) {
		struct dlb_plan one;
		int q = 0;
		while (q < r && (alike[q] != alike[r] || share[q] != share[r]))
			q++;
		if (q < r) {
			copy_order(p, q, r);
			continue;
		}
		dlb_plan_of_replica(p, r, share[r] ? share[r] : 1, &one);
		double s_r = dlb_schedule_order(&one, c, s, node_scale);
		longest = s_r > longest ? s_r : longest;
		p->most_in_flight = r && p->most_in_flight > one.most_in_flight ? p->most_in_flight :
										  one.most_in_flight;
		for (int k = 0; k < p->n_nodes; k++) {
			int node = p->replica[r][k];
			if (node < 0)
				continue;
			const struct dlb_node_plan *from = r && dlb_plan_has_one_order(p) ? &p->node[k] :
											    &one.node[node];
			struct dlb_node_plan *to = &p->node[node];
			to->n_order = from->n_order;
			to->order = dlb_arena_array(&p->arena, (size_t)to->n_order + 1, sizeof *to->order);
			if (to->n_order)
				memcpy(to->order, from->order, (size_t)to->n_order * sizeof *to->order);
		}
		dlb_plan_release(&one);
	}
	free(share);
	free(alike);
	return longest;
}

const struct dlb_program *dlb_program_of(const struct dlb_program *g, int node)
{
	return g->replica_of && g->replica == 0 ? dlb_program_replica(g, g->replica_of[node]) : g;
}

/* ---- statistics over the batch ---- */

int64_t dlb_graph_sums(const struct dlb_graph *g, int op, int64_t *n_own)
{
	const struct dlb_op_class *cls = dlb_op_class_of(g->op[op].kind);
	struct dlb_arena a = { 0 };
	struct dlb_op_io io;
	*n_own = 0;
	if (!cls || !cls->sums)
		return 0;
	dlb_graph_io(g, op, g->batch > 0 ? g->batch : 1, &a, &io);
	int64_t n = cls->sums(&io, n_own);
	dlb_arena_release(&a);
	return n;
}

const char *dlb_plan_batch_statistics(const struct dlb_plan *p, const struct dlb_graph *g)
{
	int64_t n_own;
	for (int i = 0; i < g->n_ops && p->n_replicas > 1; i++)
		if (dlb_graph_sums(g, i, &n_own))
			return p->sharing.sync_batchnorm ? "all" : "replica";
	return NULL;
}
