/* Mirrors in host memory of the gradients and weights that replicas exchange, on a node that computes on a
 * device, and the copies of each bucket, which transfers.c queues.
 *
 *     gradients         (or moments) whole to the host; of the sums, all or this replica's share (plan/shares.h)
 *                       to the device
 *     divided weights   this replica's share to the host, the whole weight to the device
 *     averaged weights  whole, in both directions, in the steps in which they are averaged
 *     statistics        the sums over the batch, in both directions */
#include "comm/allreduce.h"
#include "exec/prepare.h"
#include "exec/runtime.h"
#include "exec/state.h"
#include "plan/buckets.h"
#include "plan/program_verify.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "plan/tensors.h"

static int open_gradient(struct dlb_engine *e, int op, void **summand, struct mirror *out, struct mirror *in,
			 struct dlb_error *err)
{
	const int weight = dlb_update_weight(e->graph, op);
	const size_t bytes = (size_t)dlb_tensor_bytes(&e->graph->tensor[weight], 1) *
			     (size_t)dlb_sharing_tensors(&e->view.program->whole->sharing),
		     stride = dlb_place_bytes(bytes);
	const int places = dlb_program_sum_places(e->np, op);
	void *host = dlb_transfers_alloc(e, places > 1 ? (size_t)places * stride : bytes, err);

	if (!host)
		return -1;
	/* the sum's copy waits for nothing: the gradient in its place was read before */
	*out = *in = (struct mirror){ summand[op], host, bytes, DLB_AFTER_NOTHING, places, stride };
	summand[op] = host;
	return 0;
}

/* place: the place of the whole weight on the device; NULL: the state holds the whole weight. */
static int open_weight(struct dlb_engine *e, int t, char *place, void **weight, struct mirror *out,
		       struct mirror *in, struct dlb_error *err)
{
	const struct dlb_program *p = e->view.program;
	const size_t bytes = (size_t)dlb_tensor_bytes(&e->graph->tensor[t], 1),
		     first = dlb_program_share_offset(p, t);
	char *value = e->runtime->state->value[e->tensor_of ? e->tensor_of[t] : t];

	if (!weight[t] && !(weight[t] = dlb_transfers_alloc(e, bytes, err)))
		return -1;
	*out = (struct mirror){ place ? value : value + first,
				(char *)weight[t] + first,
				dlb_program_share_bytes(p, t),
				DLB_AFTER_NOTHING,
				1,
				0 };
	/* the earlier users of the place are done: the share was copied after them */
	*in = (struct mirror){ place ? place : value, weight[t], bytes, DLB_AFTER_NOTHING, 1, 0 };
	return 0;
}

static int open_statistics(struct dlb_engine *e, const struct dlb_bucket *b, void **summand,
			   struct mirrored *k, struct dlb_error *err)
{
	const size_t bytes = (size_t)b->n * sizeof(double);
	void *host = dlb_transfers_alloc(e, bytes, err);

	if (!host)
		return -1;
	k->out[0] = k->in[0] = (struct mirror){ e->sums[b->op[0]], host, bytes, DLB_AFTER_NOTHING, 1, 0 };
	summand[b->op[0]] = host;
	return 0;
}

static int open_bucket(struct dlb_engine *e, const struct dlb_bucket *b, void **summand, void **weight,
		       struct mirrored *k, struct dlb_error *err)
{
	int rc = 0;

	k->n = b->cls == DLB_SUM_FACTOR ? 0 : b->cls == DLB_SUM_STATISTICS ? 1 : dlb_bucket_n_tensors(b);
	k->out = dlb_arena_array(&e->arena, (size_t)k->n + 1, sizeof *k->out);
	k->in = dlb_arena_array(&e->arena, (size_t)k->n + 1, sizeof *k->in);
	k->share = dlb_arena_array(&e->arena, (size_t)k->n + 1, sizeof *k->share);
	if (b->ahead)
		return open_weight(e, b->weight,
				   e->runtime->arena +
					   e->np->place[dlb_program_find_place(e->np, b->weight, b->life)]
						   .offset,
				   weight, k->out, k->in, err);
	if (b->cls == DLB_SUM_STATISTICS)
		return open_statistics(e, b, summand, k, err);
	for (int i = 0; i < k->n && !rc; i++)
		rc = b->cls == DLB_SUM_WEIGHTS ?
			     open_weight(e, dlb_update_weight(e->graph, b->op[i]), NULL, weight, &k->out[i],
					 &k->in[i], err) :
			     open_gradient(e, b->op[i], summand, &k->out[i], &k->in[i], err);
	return rc;
}

int dlb_mirrors_open(struct dlb_engine *e, void **summand, void **weight, struct dlb_error *err)
{
	e->mirrored = dlb_arena_array(&e->arena, (size_t)e->np->n_buckets + 1, sizeof *e->mirrored);
	for (int b = 0; b < e->np->n_buckets; b++)
		if (open_bucket(e, &e->np->bucket[b], summand, weight, &e->mirrored[b], err))
			return -1;
	return 0;
}

void dlb_mirrors_open_averages(struct dlb_engine *e)
{
	const struct dlb_runtime *g = e->runtime;

	e->mirrored = dlb_arena_array(&e->arena, (size_t)e->np->n_buckets + 1, sizeof *e->mirrored);
	for (int b = 0; b < e->np->n_buckets; b++) {
		const struct dlb_bucket *from = &e->np->bucket[b];
		struct mirrored *k = &e->mirrored[b];

		k->n = from->n_ops;
		k->out = k->in = dlb_arena_array(&e->arena, (size_t)k->n + 1, sizeof *k->out);
		k->share = dlb_arena_array(&e->arena, (size_t)k->n + 1, sizeof *k->share);
		for (int i = 0; i < k->n; i++) {
			const int t = dlb_update_weight(e->graph, from->op[i]);

			k->out[i] = (struct mirror){ g->state->value[t],
						     g->averaged[t],
						     (size_t)dlb_tensor_bytes(&e->graph->tensor[t], 1),
						     DLB_AFTER_NOTHING,
						     1,
						     0 };
		}
	}
}

/* This replica's share of `whole`, the sum of the gradient of update `op`. */
static struct mirror share_of(const struct dlb_engine *e, int op, const struct mirror *whole)
{
	const struct dlb_program *p = e->view.program;
	const int weight = dlb_update_weight(e->graph, op);
	const size_t first = dlb_program_share_offset(p, weight);
	char *to = e->kept ? e->kept[op].to : NULL;

	return (struct mirror){ to ? to : (char *)whole->device + first, (char *)whole->host + first,
				dlb_program_share_bytes(p, weight),
				/* other tensors had that place until now */
				to ? DLB_AFTER_ALL : DLB_AFTER_NOTHING, 1, 0 };
}

void dlb_mirrors_find_shares(struct dlb_engine *e)
{
	const struct dlb_program *p = e->view.program;

	for (int b = 0; b < e->np->n_buckets && p->plan->n_shares > 1; b++) {
		const struct dlb_bucket *from = &e->np->bucket[b];
		struct mirrored *k = &e->mirrored[b];

		if (from->cls == DLB_SUM_WEIGHTS || from->cls == DLB_SUM_STATISTICS)
			continue;
		/* --clip-norm takes the norm of whole gradients */
		if (p->plan->clip && e->kept)
			k->kept = dlb_arena_array(&e->arena, (size_t)k->n + 1, sizeof *k->kept);
		for (int i = 0; i < k->n; i++) {
			const struct mirror share = share_of(e, from->op[i], &k->in[i]);

			if (!p->plan->clip)
				k->in[i] = share;
			else if (e->kept && e->kept[from->op[i]].to)
				k->kept[i] = share;
			if (dlb_bucket_keeps_shares(from))
				k->share[i] = dlb_sync_share(e->sync, b, i);
		}
	}
}
