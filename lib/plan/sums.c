/* Seconds of a sum over replicas on their links, and the choice of its algorithm.
 *
 * The algorithm is chosen for each sum by its own size. The choice must not change bits when ops move
 * within the replicas, so it does not depend on the placement: times are those of the slowest of all parts of
 * the replicas, whether it has ops or not. buckets.c defines the size of a sum. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "plan/buckets.h"
#include "plan/program.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "plan/sums.h"

/* ---- a pipeline of segments ----
 *
 * The hops of all lists run at once (comm/allreduce.h). The first segment of each chunk goes through all
 * hops, one after the other. Then the busiest resource limits the rate, as in any pipeline of unequal stages:
 *
 *     walk(n / S) + (S - 1) busiest(n / S)		S: segments of a chunk
 *
 * walk: the time of one segment, hop by hop. Resources are directions and ranks. A direction is busy with the
 * bytes that all ranks send over it. A rank is busy with the longer of sending and receiving, and with
 * adding, because it has one thread. So a tree of two ranks sends up and down at once on duplex links. If
 * ranks copy, elements are read in place (comm/collective.c), and adding is part of reading them.
 * tests/unit/test_links.c compares these times with sums simulated message by message. */

enum { MOST_SUM_SIZES = 32 };			/* sizes of a sum that are walked at once */

/* The route of a rank's sends, usually to one other rank. */
struct sum_route { int to, n_directions; struct dlb_direction direction[DLB_MAX_ROUTE]; struct dlb_way way; };
/* One rank's position in its list of hops, and its busy seconds. */
struct sum_member {
	struct dlb_hop *hop;
	struct sum_route route;
	double out_s, in_s, add_s;
	int n_hops, at;
	bool sent, got;
};
/* Rounds in which every rank sends and receives by its current hop, if the other side is at the matching
 * hop. */
struct rounds {
	const struct dlb_cost *c;
	const int *node;			/* [rank] */
	int n_ranks;
	/* for each size of the sum: bytes of a chunk in a message (chunks differ by at most an element), and
	 * seconds of the slowest transfer of a round; busy seconds are for the first size */
	int n_sizes;
	double chunk_bytes[MOST_SUM_SIZES], slowest_s[MOST_SUM_SIZES];
	bool in_place;				/* elements are read in place if ranks copy */
	struct sum_member *way;			/* [rank] */
	int *to;				/* [rank] receiver of its send in this round; -1: none */
	int *flows;				/* [direction] number of flows in this round */
	double *direction_s;				/* [direction] busy */
	int *link;				/* [direction] its link, if it was busy */
};

static void find_route(const struct rounds *x, int r)
{
	const struct dlb_cluster *c = x->c->cluster;
	struct sum_route *route = &x->way[r].route;

	if (route->to == x->to[r])
		return;
	route->to = x->to[r];
	route->n_directions = dlb_cluster_directions(c, x->node[r], x->node[route->to], route->direction,
						     &route->way);
	if (c->link_model != DLB_LINKS_ROUTES)
		route->n_directions = 0;
}

/* Adds `by` to the flows on the route's links that overlap with work. Only these are shared: if ranks copy,
 * each has its own core. */
static void count_flow(const struct rounds *x, const struct sum_route *route, int by)
{
	for (int i = 0; i < route->n_directions; i++)
		if (x->c->cluster->link[route->direction[i].link].overlap)
			x->flows[route->direction[i].id] += by;
}

static double byte_s(const struct rounds *x, const struct sum_route *route)
{
	double s = 1 / route->way.Bps;

	for (int i = 0; i < route->n_directions; i++) {
		const struct dlb_link *l = &x->c->cluster->link[route->direction[i].link];
		s = fmax(s, (l->overlap ? x->flows[route->direction[i].id] : 1) / l->bandwidth_Bps);
	}
	return s;
}

/* The rank that receives r's current send; -1: r sends nothing now, or the receiver is not ready. */
static int taker(const struct sum_member *way, int r)
{
	const struct sum_member *w = &way[r], *other;
	if (w->at == w->n_hops || w->sent || w->hop[w->at].to < 0)
		return -1;
	other = &way[w->hop[w->at].to];
	return other->at < other->n_hops && !other->got && other->hop[other->at].from == r ?
		       w->hop[w->at].to :
		       -1;
}

static void make_ways(const struct dlb_allreduce *how, const struct dlb_ranks *ranks, struct sum_member *way)
{
	struct dlb_hop *hop = dlb_xcalloc((size_t)dlb_allreduce_most_hops(ranks) + 1, sizeof *hop);
	for (int r = 0; r < ranks->n; r++) {
		int n = how->hops(ranks, r, hop);
		way[r] = (struct sum_member){ .hop = dlb_xcalloc((size_t)n + 1, sizeof *hop),
					      .n_hops = n,
					      .route.to = -1 };
		memcpy(way[r].hop, hop, (size_t)n * sizeof *hop);
	}
	free(hop);
}

/* Seconds of a transfer and of adding its elements, of every size; counts the busy time of ranks and directions. */
static void take_hop(struct rounds *x, int r)
{
	struct sum_member *from = &x->way[r], *to = &x->way[x->to[r]];
	const struct dlb_hop *h = &from->hop[from->at];
	const struct dlb_node *taking = &x->c->cluster->node[x->node[x->to[r]]];
	double Bps = x->c->accumulate_Bps ? x->c->accumulate_Bps[taking->kind] * taking->speed : 0;
	double bytes = x->chunk_bytes[0] * h->n_send, each_s = byte_s(x, &from->route);
	bool read_there = x->in_place && from->route.way.copies;
	bool adds = to->hop[to->at].add && !read_there && Bps > 0;

	from->out_s += bytes / from->route.way.Bps;
	to->in_s += from->route.way.copies ? 0 : bytes / from->route.way.Bps;
	to->add_s += adds ? 3 * bytes / Bps : 0;
	for (int i = 0; i < from->route.n_directions; i++) {
		const struct dlb_link *l = &x->c->cluster->link[from->route.direction[i].link];
		x->direction_s[from->route.direction[i].id] += l->overlap ? bytes / l->bandwidth_Bps : 0;
		x->link[from->route.direction[i].id] = from->route.direction[i].link;
	}
	for (int i = 0; i < x->n_sizes; i++) {
		const double size = x->chunk_bytes[i] * h->n_send;
		const double s = from->route.way.latency_s + size * each_s + (adds ? 3 * size / Bps : 0);
		x->slowest_s[i] = s > x->slowest_s[i] ? s : x->slowest_s[i];
	}
}

static void advance(struct sum_member *w)
{
	if (w->at == w->n_hops || (!w->sent && w->hop[w->at].to >= 0) || (!w->got && w->hop[w->at].from >= 0))
		return;
	w->at++;
	w->sent = w->got = false;
}

/* Goes through one round, which takes as long as its slowest transfer; false: all hops are done. */
static bool take_round(struct rounds *x)
{
	bool any = false;

	for (int i = 0; i < x->n_sizes; i++)
		x->slowest_s[i] = -1;
	for (int r = 0; r < x->n_ranks; r++) {
		x->to[r] = taker(x->way, r);
		if (x->to[r] < 0)
			continue;
		find_route(x, r);
		count_flow(x, &x->way[r].route, 1);
	}
	for (int r = 0; r < x->n_ranks; r++)
		if (x->to[r] >= 0)
			take_hop(x, r);
	for (int r = 0; r < x->n_ranks; r++) {
		if (x->to[r] < 0)
			continue;
		count_flow(x, &x->way[r].route, -1);
		any = true;
		x->way[r].sent = x->way[x->to[r]].got = true;
	}
	for (int r = 0; r < x->n_ranks; r++)
		advance(&x->way[r]);
	return any;
}

static double busiest_s(const struct rounds *x)
{
	double most_s = 0;

	for (int i = 0; i < dlb_cluster_n_directions(x->c->cluster); i++)
		most_s = fmax(most_s, x->direction_s[i]);
	for (int r = 0; r < x->n_ranks; r++)
		most_s = fmax(most_s, fmax(x->way[r].out_s, x->way[r].in_s) + x->way[r].add_s);
	return most_s;
}

/* Bytes of a segment. Segments are shorter if no network is between any rank and the next. */
static double segment_bytes(const struct dlb_cluster *c, const int *node, int n_ranks)
{
	for (int r = 0; r + 1 < n_ranks; r++)
		if (!dlb_cluster_way(c, node[r], node[r + 1]).copies)
			return DLB_SEGMENT_BYTES;
	return DLB_LOCAL_SEGMENT_BYTES;
}

/* Sums over replicas of n[] elements each, one after the other. */
struct summed { const struct dlb_allreduce *how; int n_sizes; const int64_t *n; int element_bytes; };
/* The busy directions, and the fraction of the sum's time in which each is busy. */
struct busy { struct dlb_direction_load *load; int n; };

/* Computes all_s, the seconds of each size, and adds to `busy` the directions for the first size (NULL: not
 * wanted). */
static void hops_s(const struct dlb_cost *c, const struct dlb_ranks *ranks, const int *node,
		   const struct summed *sum, double *all_s, struct busy *busy)
{
	const struct dlb_allreduce *how = sum->how;
	size_t R = (size_t)ranks->n, n_directions = (size_t)dlb_cluster_n_directions(c->cluster);
	struct rounds x = { .c = c,
			    .node = node,
			    .n_ranks = ranks->n,
			    .n_sizes = sum->n_sizes,
			    .in_place = sum->element_bytes >= 4 && how->in_place,
			    .way = dlb_xcalloc(R, sizeof *x.way),
			    .to = dlb_xcalloc(R, sizeof *x.to),
			    .flows = dlb_xcalloc(n_directions + 1, sizeof *x.flows),
			    .direction_s = dlb_xcalloc(n_directions + 1, sizeof *x.direction_s),
			    .link = dlb_xcalloc(n_directions + 1, sizeof *x.link) };
	double S[MOST_SUM_SIZES], first_s;

	assert(sum->n_sizes <= MOST_SUM_SIZES);
	make_ways(how, ranks, x.way);
	for (int i = 0; i < sum->n_sizes; i++) {
		double chunk_bytes = (double)sum->n[i] * sum->element_bytes / how->n_chunks(ranks);
		S[i] = fmax(1, ceil(chunk_bytes / segment_bytes(c->cluster, node, ranks->n)));
		x.chunk_bytes[i] = chunk_bytes / S[i];
		all_s[i] = 0;
	}
	while (take_round(&x))
		for (int i = 0; i < sum->n_sizes; i++)
			all_s[i] += x.slowest_s[i];
	first_s = busiest_s(&x);
	for (int i = 0; i < sum->n_sizes; i++)
		all_s[i] += (S[i] - 1) * (i ? first_s * (x.chunk_bytes[i] / x.chunk_bytes[0]) : first_s);
	for (int i = 0; busy && i < (int)n_directions; i++)
		if (x.direction_s[i] > 0)
			busy->load[busy->n++] = (struct dlb_direction_load){
				{ x.link[i], i }, fmin(1, S[0] * x.direction_s[i] / all_s[0])
			};
	for (size_t r = 0; r < R; r++)
		free(x.way[r].hop);
	free(x.way);
	free(x.to);
	free(x.flows);
	free(x.direction_s);
	free(x.link);
}

/* ---- of a part ---- */

static void part_s(const struct dlb_plan *p, const struct dlb_cost *c, int k, const struct summed *sum,
		   double *s, struct busy *busy)
{
	int *peer = dlb_xcalloc((size_t)p->n_replicas, sizeof *peer),
	    *group = dlb_xcalloc((size_t)p->n_replicas, sizeof *group);
	struct dlb_ranks ranks = { .n = p->n_replicas, .group = group };
	dlb_plan_peers(p, k, peer);
	dlb_plan_peer_groups(p, c->cluster, k, group);
	hops_s(c, &ranks, peer, sum, s, busy);
	free(peer);
	free(group);
}

/* Seconds of a round of gossip over n elements: a message with the gossip's fraction of them to and from each
 * neighbour. */
static double gossip_s(const struct dlb_plan *p, const struct dlb_cost *c, int k, int64_t n)
{
	double longest = 0, bytes = 4.0 * p->sharing.gossip * (double)n;
	int R = p->n_replicas, *peer = dlb_xcalloc((size_t)R, sizeof *peer);
	dlb_plan_peers(p, k, peer);
	for (int r = 0; r < R; r++) {
		double s = dlb_cost_xfer_s(c, bytes, peer[r], peer[(r + 1) % R]);
		if (R > 2)
			s += dlb_cost_xfer_s(c, bytes, peer[r], peer[(r + R - 1) % R]);
		longest = s > longest ? s : longest;
	}
	free(peer);
	return longest;
}

/* Seconds of push and pull: the server's link carries the messages of all replicas, one after another. */
static double server_s(const struct dlb_plan *p, const struct dlb_cost *c, int k, int64_t n)
{
	double s = 0;
	int server = p->sharing.param_server;
	for (int r = 0; r < p->n_replicas; r++)
		if (p->replica[r][k] != server)
			s += dlb_cost_xfer_s(c, 4.0 * (double)n, p->replica[r][k], server) +
			     dlb_cost_xfer_s(c, 4.0 * (double)n, server, p->replica[r][k]);
	return s;
}

double dlb_plan_sum_s(const struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_allreduce *how,
		      int k, int64_t n, int size)
{
	const struct summed sum = { how, 1, &n, size };
	double every = (double)dlb_sharing_every(&p->sharing), s;
	if (dlb_sharing_averages(&p->sharing) && p->sharing.param_server >= 0)
		return server_s(p, c, k, n) / every;
	part_s(p, c, k, &sum, &s, NULL);
	if (!dlb_sharing_averages(&p->sharing))
		return s;
	return s / every +
	       (p->sharing.gossip > 0 ? gossip_s(p, c, k, n) * (1 - 1 / every) : 0);
}

int dlb_plan_sum_directions(const struct dlb_plan *p, const struct dlb_cost *c,
			    const struct dlb_allreduce *how, int k, int64_t n, int size,
			    struct dlb_direction_load *busy)
{
	struct busy all = { .load = busy };
	double s;

	if (!dlb_sharing_averages(&p->sharing))
		part_s(p, c, k, &(struct summed){ how, 1, &n, size }, &s, &all);
	return all.n;
}

/* ---- the choice ---- */

/* Whether the peers of all parts have the same groups. If not, the order of a sum inside groups depends on
 * the part. */
static bool groups_agree(const struct dlb_plan *p, const struct dlb_cluster *c)
{
	size_t R = (size_t)p->n_replicas;
	int *first = dlb_xcalloc(R, sizeof *first), *group = dlb_xcalloc(R, sizeof *group), seen = 0;
	bool agree = true;
	for (int k = 0; k < p->n_nodes && agree; k++) {
		if (p->replica[0][k] < 0)
			continue;
		dlb_plan_peer_groups(p, c, k, seen++ ? group : first);
		for (int r = 1; r < p->n_replicas && seen > 1; r++)
			for (int s = 0; s < r; s++)
				agree &= (group[r] == group[s]) == (first[r] == first[s]);
	}
	free(first);
	free(group);
	return agree;
}

/* The algorithms to choose from. If several ranks send to one rank at once, TCP does not share that rank's
 * port fairly, and the sum waits for the last sender. The predicted times leave this out (between 4 hosts a
 * tree took 1 to 7% longer, host 1 to 17%), so times of such an algorithm are multiplied by `unseen`. MPI's
 * own allreduce is not among them: its order of summing depends on the bucket, which changes bits for more
 * than two ranks, and its time does not follow from latency and bandwidth. */
static const struct { const struct dlb_allreduce *how; double unseen; } ways[] = {
	{ &dlb_allreduce_ring, 1 }, { &dlb_allreduce_hierarchical, 1 }, { &dlb_allreduce_doubling, 1 },
	{ &dlb_allreduce_tree, 1.05 }, { &dlb_allreduce_host, 1.05 },
};

/* The sizes are powers of two, in bytes. Smaller and larger sums use the choice for the nearest size. */
enum { LEAST_LOG2 = 8, MOST_LOG2 = 32, N_SUM_SIZES = MOST_LOG2 - LEAST_LOG2 + 1 };

/* Finds longest_s, the seconds of each size in the slowest part. */
static void time_way(const struct dlb_plan *p, const struct dlb_cost *c, int way, double *longest_s)
{
	int64_t n[N_SUM_SIZES];
	double s[N_SUM_SIZES];
	const struct summed sum = { ways[way].how, N_SUM_SIZES, n, 4 };

	for (int i = 0; i < N_SUM_SIZES; i++) {
		n[i] = (INT64_C(1) << (LEAST_LOG2 + i)) / 4;
		longest_s[i] = 0;
	}
	for (int k = 0; k < p->n_nodes; k++) {
		if (p->replica[0][k] < 0)
			continue;
		part_s(p, c, k, &sum, s, NULL);
		for (int i = 0; i < N_SUM_SIZES; i++)
			longest_s[i] = fmax(longest_s[i], ways[way].unseen * s[i]);
	}
}

void dlb_plan_choose_sums(struct dlb_plan *p, const struct dlb_cost *c)
{
	struct dlb_sharing *s = &p->sharing;
	double best_s[N_SUM_SIZES], way_s[N_SUM_SIZES];
	const char *best[N_SUM_SIZES];
	if (p->n_replicas < 2 || strcmp(s->allreduce, DLB_ALLREDUCE_AUTO) || s->n_by_size || !c->cluster)
		return;
	bool agree = groups_agree(p, c->cluster);
	for (int w = 0; w < DLB_LEN(ways); w++) {
		if (ways[w].how == &dlb_allreduce_hierarchical && !agree)
			continue;
		time_way(p, c, w, way_s);
		for (int i = 0; i < N_SUM_SIZES; i++) {
			if (w && way_s[i] >= best_s[i] * (1 - 1e-9))
				continue;
			best_s[i] = way_s[i];
			best[i] = ways[w].how->name;
		}
	}
	for (int i = 0; i < N_SUM_SIZES && s->n_by_size < DLB_MOST_SIZES; i++) {
		struct dlb_by_size row = { s->n_by_size ? INT64_C(1) << (LEAST_LOG2 + i) : 0, best[i] };
		if (!s->n_by_size || row.allreduce != s->by_size[s->n_by_size - 1].allreduce)
			s->by_size[s->n_by_size++] = row;
	}
}

/* ---- a bound ---- */

/* Whether nodes of the part copy elements with their own cores. Then no directions are shared. */
static bool part_copies(const struct dlb_plan *p, const struct dlb_cluster *c, int k)
{
	for (int r = 1; r < p->n_replicas; r++)
		if (dlb_cluster_way(c, p->replica[r - 1][k], p->replica[r][k]).copies)
			return true;
	return false;
}

/* Lowers least_s to the busy seconds per element of part k if its sums use `how`: least_s[direction] of each
 * direction, and the last element, least_s[n_directions], of the part's busiest resource. The times of two
 * lengths of whole segments differ only by the time of that resource. */
static void least_of_way(const struct dlb_plan *p, const struct dlb_cost *c, const struct dlb_allreduce *how,
			 int k, double *least_s)
{
	enum { CHUNK = 31 << 16 }; /* bytes: a multiple of both sizes of segments */
	const int n_directions = dlb_cluster_n_directions(c->cluster);
	struct busy all = { .load = dlb_xcalloc((size_t)n_directions + 1, sizeof *all.load) };
	double *s = dlb_xcalloc((size_t)n_directions + 1, sizeof *s), two[2];
	int *group = dlb_xcalloc((size_t)p->n_replicas, sizeof *group);
	const struct dlb_ranks ranks = { .n = p->n_replicas, .group = group };

	dlb_plan_peer_groups(p, c->cluster, k, group);
	const int64_t first = (int64_t)how->n_chunks(&ranks) * (CHUNK / 4), n[2] = { first, 2 * first };
	part_s(p, c, k, &(struct summed){ how, 2, n, 4 }, two, &all);
	for (int i = 0; i < all.n && !part_copies(p, c->cluster, k); i++)
		s[all.load[i].direction.id] = all.load[i].load * two[0] / (double)first;
	s[n_directions] = fmax(0, two[1] - two[0]) / (double)first;
	for (int l = 0; l <= n_directions; l++)
		least_s[l] = fmin(least_s[l], s[l]);
	free(all.load);
	free(group);
	free(s);
}

/* [node] number of 4-byte elements of the gradients that the node sums; new. */
static double *gradients_of(const struct dlb_plan *p, const int *placement)
{
	const struct dlb_graph *g = p->graph;
	double *n = dlb_xcalloc((size_t)p->n_nodes + 1, sizeof *n);

	for (int i = 0; i < g->n_ops; i++) {
		const int x = g->op[i].phase == DLB_UPDATE ? dlb_update_gradient(g, i) : -1;
		if (x >= 0)
			n[placement[i]] += dlb_tensor_bytes(&g->tensor[x], 1) / 4;
	}
	return n;
}

double dlb_plan_sums_bound_s(const struct dlb_plan *p, const struct dlb_cost *c, const int *placement)
{
	const struct dlb_sharing *x = &p->sharing;
	const bool is_auto = !strcmp(x->allreduce, DLB_ALLREDUCE_AUTO);
	const int n_ways = is_auto ? x->n_by_size : 1, n_directions = dlb_cluster_n_directions(c->cluster);
	double *n = gradients_of(p, placement),
	       *busy_s = dlb_xcalloc((size_t)n_directions + 1, sizeof *busy_s), most = 0;
	double *least_s = dlb_xcalloc((size_t)n_directions + 1, sizeof *least_s);

	for (int k = 0; k < p->n_nodes; k++) {
		for (int l = 0; l <= n_directions; l++)
			least_s[l] = n_ways ? INFINITY : 0;
		for (int w = 0; w < n_ways && n[k] > 0; w++)
			least_of_way(p, c,
				     dlb_allreduce_find(is_auto ? x->by_size[w].allreduce : x->allreduce), k,
				     least_s);
		for (int l = 0; l < n_directions && n[k] > 0; l++)
			most = fmax(most, busy_s[l] += n[k] * least_s[l]);
		most = n[k] > 0 ? fmax(most, n[k] * least_s[n_directions]) : most;
	}
	free(n);
	free(busy_s);
	free(least_s);
	return most * (1 - 1e-6);
}
