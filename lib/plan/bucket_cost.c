/* Seconds and bytes of the sums of buckets, compressed as planned. See bucket_cost.h. */
#include <math.h>
#include <stdlib.h>
#include "optim/kfac.h"
#include "plan/bucket_cost.h"
#include "plan/bucket_tensors.h"
#include "plan/buckets.h"
#include "plan/by_class.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "plan/sums.h"
#include "util/mem.h"

/* Adds the mean bytes per step that a parameter server sends to part k of every replica. */
static void add_pulled(const struct dlb_program *g, int k, double bytes[DLB_N_SUM_CLASSES])
{
	const struct dlb_plan *p = g->whole;
	const struct dlb_node_program *np = &g->node[p->replica[0][k]];
	for (int b = 0; b < np->n_buckets; b++)
		for (int r = 0; r < p->n_replicas; r++)
			if (p->replica[r][k] != p->sharing.param_server)
				bytes[np->bucket[b].cls] += 4.0 * (double)np->bucket[b].n /
							    (double)dlb_sharing_every(&p->sharing);
}

/* Mean bytes per step that a node sends for a bucket of n elements if weights are averaged. sum_bytes: sent
 * by one sum over all replicas. */
static double averaged_bytes(const struct dlb_plan *p, int node, int64_t n, double sum_bytes)
{
	double every = (double)dlb_sharing_every(&p->sharing);
	if (p->sharing.param_server >= 0)
		return node == p->sharing.param_server ? 0 : 4.0 * (double)n / every;
	return sum_bytes / every +
	       4.0 * p->sharing.gossip * (double)n * (p->n_replicas > 2 ? 2 : 1) * (1 - 1 / every);
}

/* Bytes that a node reads and writes to convert n sums to fewer bits and back, which a sum of floats does not
 * need. An element is rounded (4 bytes read, 2 and 4 written) whenever it is sent, and widened (2 read, 4
 * written) whenever it is received: n (R - 1) / R elements each in both halves of the sum. */
static double rounding_bytes(int n_replicas, int64_t n)
{
	return 2 * (10 + 6) * (double)n * (n_replicas - 1) / n_replicas;
}

/* Number of elements of `a` that are sent in another format than they have in memory. */
static int64_t rounded_elements(const struct dlb_compress_choice *c, const struct dlb_sum_tensor *a, int rank)
{
	if (!rank)
		return dlb_compress_dense_wire(c) == DLB_WIRE_PLAIN ? 0 : a->rows * a->cols;
	return c->thin_wire == DLB_WIRE_PLAIN ? 0 : rank * (a->rows + a->cols);
}

/* Mean seconds per step of summing K-FAC's factors, which happens when an inverse is due. With Cholesky
 * compression, triangles are sent to the owners and factored there, and L is sent back. The saved inversion
 * work is subtracted from preconditioning (dlb_cost_precondition_s). On fast links this sum alone takes
 * longer than a sum of whole factors, but sum and inversion together never do: the busiest owner factors at
 * most as much as every node would otherwise, and at most half of the bytes are sent. So the choice does not
 * depend on link or size. */
static double factors_s(const struct dlb_program *g, const struct dlb_cost *c, int k,
			const struct dlb_bucket *u, const struct dlb_compress_choice *choice)
{
	double s = 0, flops = c->matrix_flops ?
				      c->matrix_flops[c->cluster->node[k].kind] * c->cluster->node[k].speed :
				      0;
	const int R = g->whole->n_replicas;
	if (choice->how == DLB_COMPRESS_NONE || choice->how == DLB_COMPRESS_LOWRANK) {
		s = dlb_plan_sum_s(g->whole, c, u->how, k, u->n, u->element_bytes);
	} else if (choice->how == DLB_COMPRESS_BF16) {
		double Bps = c->accumulate_Bps ?
				     c->accumulate_Bps[c->cluster->node[k].kind] * c->cluster->node[k].speed :
				     0;
		s = dlb_plan_sum_s(g->whole, c, u->how, k, (u->n + 1) / 2, 4) +
		    (Bps > 0 ? rounding_bytes(R, u->n) / Bps : 0);
	} else {
		struct dlb_arena arena = { 0 };
		int n;
		const struct dlb_sum_tensor *a = dlb_bucket_tensors(g->graph, u, &arena, &n);
		double *flop = dlb_xcalloc((size_t)R, sizeof *flop), most = 0, all = 0;
		int *owner = dlb_xcalloc((size_t)n, sizeof *owner);
		int64_t words[2] = { 0, 0 };
		for (int i = 0; i < n; i++) {
			words[0] += a[i].rows * (a[i].rows + 1) / 2;
			words[1] += choice->how == DLB_COMPRESS_PER_HOP ? a[i].rows * (a[i].rows + 1) / 2 :
									  dlb_factor_words(choice, a[i].rows);
		}
		dlb_factor_owners(a, n, R, owner);
		for (int i = 0; i < n; i++) {
			double cube = (double)a[i].rows * (double)a[i].rows * (double)a[i].rows / 3;
			flop[owner[i]] += cube;
			most = fmax(most, flop[owner[i]]);
			all += cube;
		}
		for (int half = 0; half < 2; half++) /* the two halves of a ring */
			s += dlb_plan_sum_s(g->whole, c, u->how, k, words[half], 4) / 2;
		/* every hop restores and factors its share, and all ranks restore the result */
		if (choice->how == DLB_COMPRESS_PER_HOP)
			most = 2 * all * (R - 1) / R + all;
		s += flops > 0 ? most / flops : 0;
		dlb_arena_release(&arena);
		free(flop);
		free(owner);
	}
	return s / (g->whole->inverse_every > 0 ? g->whole->inverse_every : 1);
}

/* Whether owners send factors back as L. */
bool dlb_plan_factors_come_factored(const struct dlb_plan *p)
{
	const struct dlb_compress_choice choice = dlb_plan_compress(p, DLB_SUM_FACTOR);
	return p->n_replicas > 1 && choice.how == DLB_COMPRESS_CHOLESKY;
}

double dlb_plan_bucket_s(const struct dlb_program *g, const struct dlb_cost *c, int k, int b)
{
	const struct dlb_program *own = dlb_program_of(g, k);
	const struct dlb_bucket *u = &own->node[k].bucket[b];
	const struct dlb_node *node = &c->cluster->node[k];
	double Bps = c->accumulate_Bps ? c->accumulate_Bps[node->kind] * node->speed : 0, s = 0;
	int64_t passes = 0, rounded = 0;
	struct dlb_arena arena = { 0 };
	int n;
	const struct dlb_compress_choice choice = dlb_program_compress(g, (int)u->cls);
	if (u->cls == DLB_SUM_FACTOR)
		return factors_s(g, c, k, u, &choice);
	if (choice.how == DLB_COMPRESS_NONE || !dlb_sum_is_compressed(u->cls))
		return dlb_plan_sum_s(g->whole, c, u->how, k, u->n, u->element_bytes);
	if (choice.how == DLB_COMPRESS_BF16)
		return dlb_plan_sum_s(g->whole, c, u->how, k, (u->n + 1) / 2, 4) +
		       (Bps > 0 ? rounding_bytes(g->whole->n_replicas, u->n) / Bps : 0);
	const struct dlb_sum_tensor *a = dlb_bucket_tensors(g->graph, u, &arena, &n);
	const struct dlb_compress_volume v = dlb_compress_volume_of(&choice, a, n);
	for (int i = 0; i < n; i++) {
		int rank = dlb_compress_rank(&choice, &a[i]);
		/* bytes read and written by the three passes, and by two copies there and back (middle) */
		passes += rank ? (a[i].middle ? 15 : 7) * 4 * a[i].rows * a[i].cols : 0;
		rounded += rounded_elements(&choice, &a[i], rank);
	}
	dlb_arena_release(&arena);
	/* P is sent together with the dense tensors, over the same links; then Q is sent */
	s = v.dense + v.p > 0 ? dlb_plan_sum_s(g->whole, c, u->how, k, (v.dense + v.p + 3) / 4, 4) : 0;
	s += v.q > 0 ? dlb_plan_sum_s(g->whole, c, u->how, k, (v.q + 3) / 4, 4) : 0;
	return s + (Bps > 0 ? ((double)passes + rounding_bytes(g->whole->n_replicas, rounded)) / Bps : 0);
}

/* Bytes that `member` sends in one sum of bucket b, flags included. */
static struct dlb_traffic_bytes compressed_bytes(const struct dlb_graph *g, const struct dlb_bucket *b,
						 const struct dlb_compress_choice *choice,
						 const struct dlb_ranks *ranks, int member)
{
	struct dlb_arena arena = { 0 };
	int n;
	const struct dlb_sum_tensor *a = dlb_bucket_tensors(g, b, &arena, &n);
	/* all tensors at once, because owners are assigned for all factors together */
	struct dlb_traffic_bytes bytes = dlb_compress_bytes(choice, b->how, ranks, member, a, n);
	bytes.sent[DLB_TRAFFIC_SMALL] += dlb_compress_flag_bytes(b->how, ranks, member);
	dlb_arena_release(&arena);
	return bytes;
}

void dlb_plan_sum_bytes(const struct dlb_program *g, const struct dlb_cluster *c, int node,
			double bytes[DLB_N_SUM_CLASSES], double dense_bytes[DLB_N_SUM_CLASSES])
{
	const struct dlb_program *own = dlb_program_of(g, node);
	const struct dlb_node_program *np = &own->node[node];
	const struct dlb_plan *p = g->whole;
	int k = dlb_plan_part_of(p, node), *group = dlb_xcalloc((size_t)p->n_replicas, sizeof *group);
	struct dlb_ranks ranks = { .n = p->n_replicas, .group = group };
	if (k >= 0)
		dlb_plan_peer_groups(p, c, k, group);
	for (int b = 0; b < np->n_buckets && k >= 0; b++) {
		const struct dlb_bucket *u = &np->bucket[b];
		const struct dlb_allreduce *how = u->how;
		const struct dlb_compress_choice choice = dlb_program_compress(g, (int)u->cls);
		double sum = (double)dlb_allreduce_bytes(how, &ranks, own->replica, u->n, NULL,
							 (size_t)u->element_bytes, NULL);
		double every = u->cls == DLB_SUM_FACTOR && p->inverse_every > 1 ? p->inverse_every : 1;
		sum *= u->cls == DLB_SUM_STATISTICS ? own->micro_batches : 1;
		if (choice.how != DLB_COMPRESS_NONE && dlb_sum_is_compressed(u->cls)) {
			const struct dlb_traffic_bytes sum_bytes = compressed_bytes(g->graph, u, &choice,
										    &ranks, own->replica);
			for (int t = 0; t < DLB_N_TRAFFIC; t++) {
				bytes[t] += sum_bytes.sent[t] / every;
				dense_bytes[t] += sum_bytes.dense[t];
			}
			continue;
		}
		bytes[u->cls] += dlb_sharing_averages(&p->sharing) ? averaged_bytes(p, node, u->n, sum) :
								     sum / every;
		dense_bytes[u->cls] += sum;
	}
	for (int part = 0; part < p->n_nodes && node == p->sharing.param_server; part++)
		if (p->replica[0][part] >= 0)
			add_pulled(g, part, bytes);
	free(group);
}
