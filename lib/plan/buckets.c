/* Buckets of the sums over replicas (compile.c): finds the gradients of each bucket, and the actions at which
 * its sum starts and is waited for. */
#include <stdlib.h>
#include <string.h>
#include "optim/kfac.h"
#include "plan/bucket_tensors.h"
#include "plan/buckets.h"
#include "plan/by_class.h"
#include "plan/compile.h"
#include "plan/replica.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "plan/tensors.h"

int dlb_update_gradient(const struct dlb_graph *g, int update)
{
	const struct dlb_op *o = &g->op[update];
	for (int j = 0; j < o->n_in; j++)
		if (o->in[j] >= 0 && !dlb_tensor_is_state(&g->tensor[o->in[j]]) &&
		    !dlb_tensor_is_fed(&g->tensor[o->in[j]]))
			return o->in[j];
	return -1;
}

bool dlb_gradient_is_own(const struct dlb_graph *g, const int *placement, int update)
{
	int t = dlb_update_gradient(g, update);
	if (t < 0 || placement[g->tensor[t].producer] != placement[update])
		return false;
	for (; t >= 0; t = dlb_graph_view_of(g, t)) {
		if (g->reader_start[t + 1] - g->reader_start[t] != 1 || dlb_tensor_is_fed(&g->tensor[t]) ||
		    t == g->loss)
			return false;
		for (int k = 0; k < g->n_outputs; k++)
			if (g->output[k] == t)
				return false;
	}
	return true;
}

bool dlb_program_sums(const struct dlb_program *g, int update)
{
	return g->micro_batches > g->steps || dlb_kfac_layer_of(g->graph, update) >= 0 ||
	       (g->async && (g->replicated || g->plan->clip)) ||
	       (g->replicated && !dlb_gradient_is_own(g->graph, g->plan->placement, update));
}

bool dlb_program_packs_once(const struct dlb_program *g, int op)
{
	const int kind = g->graph->op[op].kind;

	return kind >= 0 && dlb_op_class_of(kind)->flags & DLB_OP_PACKS &&
	       (g->micro_batches <= g->steps || dlb_program_reads_gathered(g, op));
}

int dlb_program_sum_places(const struct dlb_node_program *np, int update)
{
	for (int k = 0; k < np->n_weights; k++)
		if (np->weight[k].update == update)
			return np->weight[k].sums;
	return 1;
}

/* ---- updates of a bucket ---- */

struct ready { int turn, producer, op, bucket; };	/* turn: the update's half-slot (asynchronous) */

static int by_producer(const void *a, const void *b)
{
	const struct ready *x = a, *y = b;
	if (x->turn != y->turn)
		return x->turn < y->turn ? -1 : 1;
	return x->producer != y->producer ? (x->producer > y->producer) - (x->producer < y->producer) :
					    (x->op > y->op) - (x->op < y->op);
}

static bool is_large(const struct dlb_graph *g, int update)
{
	return dlb_tensor_bytes(&g->tensor[dlb_update_gradient(g, update)], 1) >= DLB_BUCKET_BYTES;
}

/* Sorts the n updates of a node by the producers of their gradients, and assigns buckets: first one bucket to
 * each large gradient, then shared buckets to small gradients. Returns the number of buckets. */
static int share_buckets(const struct dlb_graph *g, struct ready *ready, int n)
{
	int n_buckets = 0;
	qsort(ready, (size_t)n, sizeof *ready, by_producer);
	for (int large = 1; large >= 0; large--) {
		int open = -1, open_turn = 0;
		double open_bytes = 0;
		for (int i = 0; i < n; i++) {
			double bytes = dlb_tensor_bytes(&g->tensor[dlb_update_gradient(g, ready[i].op)], 1);
			if (is_large(g, ready[i].op) != large)
				continue;
			if (large || open < 0 || open_bytes + bytes > DLB_BUCKET_BYTES ||
			    ready[i].turn != open_turn) {
				open = n_buckets++;
				open_turn = ready[i].turn;
				open_bytes = 0;
			}
			ready[i].bucket = open;
			open_bytes += bytes;
		}
	}
	return n_buckets;
}

static int by_bucket(const void *a, const void *b)
{
	const struct ready *x = a, *y = b;
	return x->bucket != y->bucket ? x->bucket - y->bucket : by_producer(a, b);
}

void dlb_plan_sort_updates(const struct dlb_graph *g, struct dlb_item *update, int n)
{
	struct ready *ready = dlb_xcalloc((size_t)n + 1, sizeof *ready);
	int n_ready = 0, at = 0;
	for (int i = 0; i < n; i++) {
		int t = dlb_update_gradient(g, update[i].op);
		if (t >= 0)
			ready[n_ready++] = (struct ready){ .producer = g->tensor[t].producer,
							   .op = update[i].op };
		else
			update[at++] = update[i];
	}
	int n_buckets = share_buckets(g, ready, n_ready),
	    *last = dlb_xcalloc((size_t)n_buckets + 1, sizeof *last);
	for (int i = 0; i < n_ready; i++)
		last[ready[i].bucket] = ready[i].producer;
	for (int i = 0; i < n_ready; i++)
		ready[i].turn = last[ready[i].bucket];	/* when its sum begins */
	qsort(ready, (size_t)n_ready, sizeof *ready, by_producer);
	for (int i = 0; i < n_ready; i++)
		update[at++] = (struct dlb_item){ ready[i].op, -1 };
	free(last);
	free(ready);
}

int dlb_compile_count_statistics(const struct compiler *c, int node)
{
	int n = 0;
	for (int i = 0; i < c->g->n_ops && c->out->statistics; i++)
		n += c->p->placement[i] == node && c->out->statistics[i] >= 0;
	return n;
}

/* ---- allreduce algorithm of a bucket ----
 *
 * The algorithm depends on size. But another placement within the replicas makes other buckets of small
 * gradients, and must not change the order of any sum. So the size that counts is, for a large gradient, its
 * own; for small gradients, that of all small gradients of the model (at most a full bucket); for factors,
 * that of all factors; for statistics, their own. */

/* Bytes of the message, compressed or not, in which update's gradient is summed. */
static double travels(const struct compiler *c, int update, const struct dlb_compress_choice *choice)
{
	const struct dlb_bucket alone = { .op = &update, .n_ops = 1, .cls = DLB_SUM_GRADIENT };
	struct dlb_arena arena = { 0 };
	int n;

	if (choice->how == DLB_COMPRESS_NONE)
		return dlb_tensor_bytes(&c->g->tensor[dlb_update_gradient(c->g, update)], 1) *
		       dlb_sharing_tensors(&c->p->sharing);
	const struct dlb_sum_tensor *a = dlb_bucket_tensors(c->g, &alone, &arena, &n);
	const struct dlb_compress_volume v = dlb_compress_volume_of(choice, a, n);

	dlb_arena_release(&arena);
	return (double)(v.dense + v.p + v.q);
}

static double small_travel(const struct compiler *c, const struct dlb_compress_choice *choice)
{
	double bytes = 0;
	for (int i = 0; i < c->g->n_ops; i++)
		if (c->g->op[i].phase == DLB_UPDATE && dlb_update_gradient(c->g, i) >= 0 &&
		    !is_large(c->g, i))
			bytes += travels(c, i, choice);
	return bytes < DLB_BUCKET_BYTES ? bytes : DLB_BUCKET_BYTES;
}

int dlb_compile_most_rank(const struct compiler *c)
{
	struct dlb_compress_choice choice = dlb_plan_compress(c->p, DLB_SUM_GRADIENT);
	if (choice.how != DLB_COMPRESS_CHOLESKY)
		choice = dlb_plan_compress(c->p, DLB_SUM_SMALL);
	if (choice.how != DLB_COMPRESS_CHOLESKY || choice.rank || choice.gradients_dense)
		return 0;
	struct dlb_bucket all = { .cls = DLB_SUM_GRADIENT };
	struct dlb_arena arena = { 0 };
	int n, *op = dlb_arena_array(&arena, (size_t)c->g->n_ops + 1, sizeof *op);
	for (int i = 0; i < c->g->n_ops; i++)
		if (c->g->op[i].phase == DLB_UPDATE && dlb_update_gradient(c->g, i) >= 0)
			op[all.n_ops++] = i;
	all.op = op;
	const struct dlb_sum_tensor *a = dlb_bucket_tensors(c->g, &all, &arena, &n);
	const int rank = dlb_compress_budget(&choice, a, n);
	dlb_arena_release(&arena);
	return rank;
}

static double factor_travel(const struct compiler *c)
{
	double bytes = 0;
	for (int i = 0; i < c->g->n_ops; i++) {
		if (c->g->op[i].phase != DLB_UPDATE || dlb_kfac_layer_of(c->g, i) != i)
			continue;
		const struct dlb_kfac_layer l = dlb_kfac_layer_at(c->g, i);
		for (int k = 0; k < DLB_KFAC_FACTORS; k++)
			bytes += l.groups * (double)l.n[k] * (double)l.n[k] *
				 (double)dlb_dtype_bytes(c->g->tensor[l.use[0].x[k]].dtype);
	}
	return bytes;
}

/* Whether the sum of a bucket is only the first half of a ring, which gives each replica its own share in the
 * same order of additions. This is so if each replica needs only its share. With other algorithms, and for
 * norms of whole gradients, sums are completed. */
static bool is_scattered(const struct compiler *c, const struct dlb_bucket *b)
{
	return c->p->n_shares > 1 && c->p->sharing.zero >= 2 && !c->p->clip &&
	       (b->cls == DLB_SUM_GRADIENT || b->cls == DLB_SUM_SMALL) && b->how == &dlb_allreduce_ring &&
	       dlb_plan_compress(c->p, (int)b->cls).how == DLB_COMPRESS_NONE;
}

static void choose_algorithms(const struct compiler *c, struct dlb_node_program *np)
{
	const struct dlb_sharing *s = &c->p->sharing;
	const struct dlb_compress_choice large = dlb_program_compress(c->out, DLB_SUM_GRADIENT),
					 shared = dlb_program_compress(c->out, DLB_SUM_SMALL);
	const bool factored = dlb_plan_compress(c->p, DLB_SUM_FACTOR).how == DLB_COMPRESS_CHOLESKY;
	double small = small_travel(c, &shared);
	for (int i = 0; i < np->n_buckets; i++) {
		struct dlb_bucket *b = &np->bucket[i];
		if (b->cls == DLB_SUM_WEIGHTS) {
			b->how = &dlb_ring_gather;
			continue;
		}
		/* a node has one bucket of factors */
		double bytes = b->cls == DLB_SUM_SMALL      ? small :
			       b->cls == DLB_SUM_FACTOR     ? factor_travel(c) :
			       b->cls == DLB_SUM_STATISTICS ? (double)b->n * b->element_bytes :
							      travels(c, b->op[0], &large);
		b->how = dlb_sharing_sum(s, bytes);
		if (b->cls == DLB_SUM_FACTOR && factored)
			b->how = &dlb_allreduce_ring;		/* Cholesky compression uses its two halves */
		if (is_scattered(c, b))
			b->how = &dlb_ring_scatter;
	}
}

/* Finds where updates read their gradients (enum dlb_kept), that is, which gradients leave their places.
 * Small gradients that are summed whole stay: copies of their shares would take more memory than their
 * places, which are free only at the end of the backward phase. A GPU's buckets are sent from host memory, so
 * its shares have places of their own. */
static void find_leaving(const struct compiler *c, int node, int n)
{
	const struct dlb_node_program *np = &c->out->node[node];
	const struct dlb_cost *cost = c->f.c;
	const bool device = cost && cost->cluster && !dlb_cluster_is_cpu(cost->cluster, node);
	const enum dlb_kept in_buffer = device ? DLB_KEPT_IN_PLACE : DLB_KEPT_IN_BUFFER;

	if (c->p->n_shares < 2 || c->p->sharing.zero < 2)
		return;
	if (!c->out->kept)
		c->out->kept = dlb_arena_array(&c->out->arena, (size_t)c->g->n_ops + 1, sizeof *c->out->kept);
	for (int b = 0; b < n; b++)
		for (int i = 0; i < np->bucket[b].n_ops; i++)
			c->out->kept[np->bucket[b].op[i]] = dlb_program_sums(c->out, np->bucket[b].op[i]) ?
								    DLB_KEPT_WHOLE :
							    dlb_bucket_keeps_shares(&np->bucket[b]) ?
								    in_buffer :
							    np->bucket[b].cls == DLB_SUM_GRADIENT ?
								    DLB_KEPT_IN_PLACE :
								    DLB_KEPT_WHOLE;
}

/* If replicas divide the optimizer state, adds for each of the n buckets of gradients a bucket of those of
 * its weights that are kept whole. */
static void find_weights(const struct compiler *c, struct dlb_node_program *np, int n)
{
	for (int b = 0; b < n && c->p->n_shares > 1; b++) {
		const struct dlb_bucket *of = &np->bucket[b];
		int *op = dlb_arena_array(&c->out->arena, (size_t)of->n_ops + 1, sizeof *op);
		struct dlb_bucket w = *of;
		w.n_ops = 0;
		w.n = 0;
		for (int i = 0; i < of->n_ops; i++) {
			const int t = dlb_update_weight(c->g, of->op[i]);
			const struct dlb_desc d = dlb_tensor_desc(&c->g->tensor[t], 1);
			if (dlb_program_gathers(c->out, t))
				continue;
			op[w.n_ops++] = of->op[i];
			w.n += dlb_desc_count(&d);
		}
		w.op = op;
		w.cls = DLB_SUM_WEIGHTS;
		w.of = b;
		if (w.n_ops)
			np->bucket[np->n_buckets++] = w;
	}
}

/* Adds a bucket of statistics for each op of the node that runs in two halves. */
static void find_statistics(struct compiler *c, int node)
{
	struct dlb_node_program *np = &c->out->node[node];
	for (int i = 0; i < c->g->n_ops && c->out->statistics; i++) {
		if (c->p->placement[i] != node || c->out->statistics[i] < 0)
			continue;
		struct dlb_bucket *b = &np->bucket[np->n_buckets];
		int *op = dlb_arena_array(&c->out->arena, 1, sizeof *op);
		*op = i;
		*b = (struct dlb_bucket){
			.op = op, .n_ops = 1, .cls = DLB_SUM_STATISTICS, .element_bytes = sizeof(double)
		};
		b->n = dlb_graph_sums(c->g, i, &b->n_own);
		np->state_bytes += (size_t)(b->n + b->n_own) * sizeof(double);
		c->out->statistics[i] = np->n_buckets++;
	}
}

/* Adds one bucket for K-FAC's factors of all the node's layers, so that ownership is balanced among ranks. */
static void find_factors(struct compiler *c, int node, const struct ready *ready, int n)
{
	const struct dlb_graph *g = c->g;
	struct dlb_node_program *np = &c->out->node[node];
	struct dlb_bucket b = { .cls = DLB_SUM_FACTOR };
	int *op = NULL, cap = 0;
	for (int i = 0; i < n; i++) {
		if (dlb_kfac_layer_of(g, ready[i].op) != ready[i].op)
			continue;
		struct dlb_kfac_layer l = dlb_kfac_layer_at(g, ready[i].op);
		b.element_bytes = (int)dlb_dtype_bytes(g->tensor[l.use[0].x[0]].dtype);
		for (int group = 0; group < l.groups; group++) {
			DLB_GROW(op, b.n_ops, cap);
			op[b.n_ops++] = ready[i].op;
			for (int k = 0; k < DLB_KFAC_FACTORS; k++)
				b.n += l.n[k] * l.n[k];
		}
	}
	int *kept = dlb_arena_array(&c->out->arena, (size_t)b.n_ops + 1, sizeof *kept);
	if (b.n_ops)
		memcpy(kept, op, (size_t)b.n_ops * sizeof *kept);
	free(op);
	b.op = kept;
	if (b.n_ops)
		np->bucket[np->n_buckets++] = b;
}

/* Finds the node's buckets. They depend on the graph and the placement only, so that they are the same in all
 * replicas. Under an asynchronous schedule the updates of a bucket are in one half-slot. */
static void find_buckets(struct compiler *c, int node)
{
	const struct dlb_graph *g = c->g;
	struct dlb_node_program *np = &c->out->node[node];
	const struct dlb_node_plan *plan = &c->p->node[node];
	struct ready *ready = dlb_xcalloc((size_t)plan->n_order + 1, sizeof *ready);
	int n = 0;
	for (int i = 0; i < plan->n_order; i++) {
		int op = plan->order[i].op,
		    t = g->op[op].phase == DLB_UPDATE ? dlb_update_gradient(g, op) : -1;
		if (t >= 0)
			ready[n++] = (struct ready){ .turn = c->lag ? c->lag[op] : 0,
						     .producer = g->tensor[t].producer,
						     .op = op };
	}
	np->n_buckets = share_buckets(g, ready, n);
	const int n_gradients = np->n_buckets;
	np->bucket = dlb_arena_array(&c->out->arena,
				     2 * (size_t)np->n_buckets +
					     (size_t)dlb_compile_count_statistics(c, node) +
					     (size_t)dlb_compile_count_gathers_of(c, node) + 2,
				     sizeof *np->bucket);
	int *op = dlb_arena_array(&c->out->arena, (size_t)n + 1, sizeof *op);
	qsort(ready, (size_t)n, sizeof *ready, by_bucket);
	for (int i = 0; i < n; i++) {
		const struct dlb_tensor *x = &g->tensor[dlb_update_gradient(g, ready[i].op)];
		struct dlb_bucket *b = &np->bucket[ready[i].bucket];
		struct dlb_desc d = dlb_tensor_desc(x, 1);
		op[i] = ready[i].op;
		if (!b->n_ops++) {
			b->op = op + i;
			b->cls = is_large(g, op[i]) ? DLB_SUM_GRADIENT : DLB_SUM_SMALL;
			b->element_bytes = (int)dlb_dtype_bytes(x->dtype);
		}
		b->n += dlb_desc_count(&d) * dlb_sharing_tensors(&c->p->sharing);
	}
	qsort(ready, (size_t)n, sizeof *ready, by_producer);
	find_factors(c, node, ready, n);
	free(ready);
	find_weights(c, np, n_gradients);
	dlb_compile_add_gathers(c, node);
	find_statistics(c, node);
	choose_algorithms(c, np);
	find_leaving(c, node, n_gradients);
}

/* The action that adds the last micro-batch to the sum of update op's gradient, or computes its only
 * micro-batch. */
static int last_sum(const struct compiler *c, int node, int op)
{
	const struct node_code *l = &c->code[node];
	int last = c->action_of[c->g->tensor[dlb_update_gradient(c->g, op)].producer * c->M];
	if (!dlb_program_sums(c->out, op))
		return last;
	for (int a = 0; a < l->n_actions; a++)
		if (l->action[a].op == op && l->action[a].tensor >= 0)
			last = a;
	return last;
}

int dlb_compile_first_use(const struct compiler *c, int update)
{
	int at = c->action_of[update * c->M], layer = dlb_kfac_layer_of(c->g, update);
	if (layer >= 0) {
		const struct dlb_kfac_layer l = dlb_kfac_layer_at(c->g, layer);
		const int op[] = { l.update, l.bias_update };
		for (int i = 0; i < DLB_LEN(op); i++)
			if (op[i] >= 0 && c->action_of[op[i] * c->M] < at)
				at = c->action_of[op[i] * c->M];
	}
	return at;
}

/* The action that waits for a bucket's sum that starts at `start` and is read at `norm`. Under an
 * asynchronous schedule it waits at the latest one half-slot after `start`, before the bucket's sum of the
 * next step starts. */
static int before_next(const struct compiler *c, int node, int start, int norm)
{
	int slot = c->lag ? dlb_compile_half_slot(c, node, start) + 2 : 0;
	return c->lag && slot < c->n_ticks && c->code[node].tick[slot] < norm ? c->code[node].tick[slot] :
										norm;
}

/* ---- when sums run ---- */

struct barriers { int computed, norm, trust; };	/* actions; -1: none */

static struct barriers find_barriers(const struct compiler *c, const struct node_code *l)
{
	struct barriers x = { 0, -1, -1 };
	for (int a = l->n_actions - 1; a >= 0; a--) {
		/* the first norm action */
		x.norm = l->action[a].norm == NORM || l->action[a].norm == SQUARES ? a : x.norm;
		x.trust = l->action[a].norm == TRUST ? a : x.trust;
	}
	for (int a = 0; a < l->n_actions; a++)
		if (l->action[a].op >= 0 &&
		    (l->action[a].tensor >= 0 || c->g->op[l->action[a].op].phase != DLB_UPDATE))
			x.computed = a;
	return x;
}

/* Finds when bucket b is exchanged. Weights: from their bucket's last update (updates may read shares of
 * gradients in the same buffer) to the end of the step. Gradients: from the action that completes the last of
 * them to the first update, or to the action that reads all gradients. */
static struct bucket_sum find_sum(const struct compiler *c, int node, const struct dlb_bucket *b,
				  const struct barriers *at)
{
	const struct node_code *l = &c->code[node];
	const bool weights = dlb_sharing_averages(&c->p->sharing) || b->cls == DLB_SUM_WEIGHTS;
	struct bucket_sum x = { 0, l->n_actions - 1 };
	const struct dlb_bucket *of = b->cls == DLB_SUM_WEIGHTS ? &c->out->node[node].bucket[b->of] : b;
	for (int i = 0; i < of->n_ops && !b->ahead; i++) {
		if (i && of->op[i] == of->op[i - 1])
			continue;
		int sum = last_sum(c, node, of->op[i]), update = dlb_compile_first_use(c, of->op[i]);
		x.start = sum > x.start ? sum : x.start;
		if (weights)
			x.start = update > x.start ? update : x.start;
		else
			x.end = update < x.end ? update : x.end;
	}
	/* the action that reads all gradients */
	int all = at->norm >= 0 && b->cls != DLB_SUM_FACTOR ? at->norm : at->trust;
	if (all >= 0 && !weights)
		x.end = before_next(c, node, x.start, all);
	return x;
}

/* Whether the end of the sum frees a gradient's place. */
static bool frees(const struct compiler *c, const struct dlb_bucket *b)
{
	for (int i = 0; i < b->n_ops && b->cls != DLB_SUM_WEIGHTS; i++)
		if (dlb_program_has_share_place(c->out, b->op[i]))
			return true;
	return false;
}

static int by_start(const void *a, const void *b)
{
	const struct bucket_sum *x = a, *y = b;
	return x->start != y->start ? x->start - y->start : x->end - y->end;
}

/* The most sums that are in progress, or have gradients in places, while the backward phase continues. */
enum { SUMS_AT_ONCE = 2 };

/* Keeps the bucket's gradients in their places. This is done for the last sums: copies of shares would free
 * places that nothing uses. */
static void stay(struct compiler *c, const struct dlb_bucket *b)
{
	for (int i = 0; i < b->n_ops; i++)
		c->out->kept[b->op[i]] = DLB_KEPT_WHOLE;
}

/* Makes each sum of gradients that leave their places end before the second next sum starts. All replicas
 * have the same order of actions (dlb_plan_has_one_order), so none waits for ever. */
static void end_early(struct compiler *c, int node, int n)
{
	const struct dlb_bucket *bucket = c->out->node[node].bucket;
	struct bucket_sum *sum = c->code[node].sum,
			  *order = dlb_xcalloc((size_t)n + 1, sizeof *order);	/* its `end`: the bucket */
	int n_order = 0;
	for (int b = 0; b < n; b++)
		if (frees(c, &bucket[b]))
			order[n_order++] = (struct bucket_sum){ sum[b].start, b };
	qsort(order, (size_t)n_order, sizeof *order, by_start);
	for (int i = 0; i < n_order; i++) {
		int next = i + SUMS_AT_ONCE;
		while (next < n_order && order[next].start <= order[i].start)
			next++;
		if (next < n_order && order[next].start < sum[order[i].end].end)
			sum[order[i].end].end = order[next].start;
		else
			stay(c, &bucket[order[i].end]);
	}
	free(order);
}

void dlb_compile_find_sums(struct compiler *c, int node)
{
	const struct dlb_node_program *np = &c->out->node[node];
	const struct barriers at = find_barriers(c, &c->code[node]);
	int n = 0;
	find_buckets(c, node);
	c->code[node].sum = dlb_xcalloc((size_t)np->n_buckets + 1, sizeof(struct bucket_sum));
	for (; n < np->n_buckets && np->bucket[n].cls != DLB_SUM_STATISTICS; n++) {
		c->code[node].sum[n] = find_sum(c, node, &np->bucket[n], &at);
		if (c->p->sharing.sync && np->bucket[n].cls != DLB_SUM_WEIGHTS)
			c->code[node].sum[n].start = at.computed;
	}
	end_early(c, node, n);
}

void dlb_compile_hook_reductions(struct compiler *c, int node)
{
	const struct dlb_node_program *np = &c->out->node[node];
	if (c->p->sharing.sync)
		dlb_compile_add_hook(c, node,
				     (struct hook){ find_barriers(c, &c->code[node]).computed, HOOK_COMPUTED,
						    -1, -1, -1, -1, -1, false, false });
	for (int b = 0; b < np->n_buckets && np->bucket[b].cls != DLB_SUM_STATISTICS; b++) {
		const struct bucket_sum *x = &c->code[node].sum[b];
		if (np->bucket[b].ahead)
			continue;
		dlb_compile_add_hook(c, node,
				     (struct hook){ x->start, HOOK_REDUCE, -1, -1, -1, -1, b, false, false });
		dlb_compile_add_hook(c, node,
				     (struct hook){ x->end, HOOK_REDUCED, -1, -1, -1, -1, b, false, false });
	}
}

static double compressed_bytes(const struct dlb_program *g, const struct dlb_bucket *b,
			       const struct dlb_compress_choice *choice)
{
	struct dlb_arena arena = { 0 };
	int n;
	const struct dlb_sum_tensor *a = dlb_bucket_tensors(g->graph, b, &arena, &n);
	const double bytes = dlb_compress_memory_bytes(choice, g->whole->n_replicas, a, n);
	dlb_arena_release(&arena);
	return bytes;
}

/* Bytes that bucket b of g needs in addition to its gradients (averages: in addition to its weights): message
 * buffers and state of compression. */
static double bucket_bytes(const struct dlb_program *g, const struct dlb_node_program *np,
			   const struct dlb_bucket *b, const struct dlb_compress_choice *choice)
{
	const struct dlb_sharing *s = &g->whole->sharing;
	double own = (double)b->n * b->element_bytes;
	/* the gradient alternates between places, so it is summed in a buffer */
	bool moves = false;
	if (b->cls == DLB_SUM_STATISTICS)
		return 0;				/* counted as state */
	for (int i = 0; i < b->n_ops; i++)
		moves |= dlb_program_sum_places(np, b->op[i]) > 1;
	/* the packed weights; gossip: parts of them, own and of two neighbours; the server's reply */
	if (dlb_sharing_averages(s))
		return own * (1 + 3 * s->gossip + (s->param_server >= 0));
	if (b->cls == DLB_SUM_WEIGHTS)	/* the buffer of the gradients' sum is used if there is one */
		return dlb_bucket_n_tensors(b) > 1 && choice->how != DLB_COMPRESS_NONE ? own : 0;
	if (choice->how != DLB_COMPRESS_NONE)
		return compressed_bytes(g, b, choice) + (moves ? own : 0);
	if (dlb_sharing_tensors(s) > 1)			/* moments have buffers of their own */
		return dlb_bucket_n_tensors(b) > 1 ? 2 * own : own;
	return dlb_bucket_n_tensors(b) > 1 || moves ? own : 0;
}

/* Bytes that a parameter server needs for part k: the data of every other replica, and the mean. */
static double served_bytes(const struct dlb_program *g, int k)
{
	const struct dlb_plan *p = g->whole;
	const struct dlb_node_program *np = &g->node[p->replica[0][k]];
	double all = 0, copies = 1;
	for (int b = 0; b < np->n_buckets; b++)
		all += (double)np->bucket[b].n * np->bucket[b].element_bytes;
	for (int r = 0; r < p->n_replicas; r++)
		copies += p->replica[r][k] != p->sharing.param_server;
	return all * copies;
}

void dlb_compile_count_sums(struct dlb_program *g)
{
	const struct dlb_plan *p = g->whole;
	for (int node = 0; node < p->n_nodes; node++) {
		const struct dlb_program *own = dlb_program_of(g, node);
		struct dlb_node_program *np = &own->node[node];
		double bytes = 0;
		for (int b = 0; b < np->n_buckets; b++) {
			const struct dlb_bucket *of = &np->bucket[b];
			if (of->cls == DLB_SUM_WEIGHTS)
				of = &np->bucket[of->of];
			const struct dlb_compress_choice choice = dlb_program_compress(g, (int)of->cls);
			bytes += bucket_bytes(own, np, &np->bucket[b], &choice);
		}
		for (int k = 0; k < p->n_nodes && node == p->sharing.param_server; k++)
			bytes += p->replica[0][k] >= 0 ? served_bytes(g, k) : 0;
		np->state_bytes += (size_t)bytes;
	}
}
