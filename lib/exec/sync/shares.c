/* Replicas that divide the optimizer's state (plan/shares.h). The first half of a ring allreduce sums
 * gradients: it completes the replica's own share of each. After the updates, the second half sends the
 * weights' shares from their owners to all replicas. If several arrays share a bucket, both halves use the
 * same buffer, one after the other. */
#include "exec/sync/ways.h"

/* The chunk that this node owns. */
static int own_chunk(const struct dlb_sync_bucket *b)
{
	const struct dlb_ranks *peers = &b->sync->peers;

	return dlb_ring_chunk(dlb_ranks_member(peers, dlb_comm_rank(b->sync->d.comm)), peers->n);
}

static int init_scatter(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	(void)from;
	dlb_sync_add_summands(b, dlb_sync_gradient);
	return dlb_sync_open_sum_of_step(b, 1, err);
}

/* Shares in a buffer stay there until their updates (dlb_bucket_keeps_shares). */
static void take_nothing(struct dlb_sync_bucket *b)
{
	(void)b;
}

const struct dlb_sync_ops dlb_sync_scatter = {
	.name = "scatter",
	.init = init_scatter,
	.load = dlb_sync_load_sum,
	.start = dlb_sync_start_sum,
	.test = dlb_sync_test_sum,
	.wait = dlb_sync_wait_sum,
	.take = take_nothing,
};

void *dlb_sync_share(const struct dlb_sync *x, int bucket, int i)
{
	const struct dlb_sync_bucket *b = &x->bucket[x->first[bucket]];

	return dlb_pack_at(&b->pack, b->buffer, i, own_chunk(b));
}

static int init_gather(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	struct dlb_sync *x = b->sync;
	struct dlb_collective_desc d = { .how = from->how,
					 .ranks = x->peers,
					 .tag = dlb_tag_of_bucket(b->index) };
	void *buffer = x->bucket[x->first[from->of]].buffer;

	dlb_sync_pack_weights(b);
	b->borrows = buffer && b->pack.n_parts > 1;
	if (b->borrows)
		b->buffer = buffer;
	else if (b->pack.n_parts > 1)
		dlb_sync_make_buffer(b);
	d.dtype = b->dtype;
	d.x = b->buffer ? b->buffer : b->pack.part[0].x;
	d.n = b->pack.n;
	d.at = b->pack.at;
	if (dlb_collective_new(&b->sum, x->d.comm, &d, err))
		return -1;
	b->bytes = (double)dlb_collective_bytes_sent(b->sum);
	x->fixed.bytes[b->cls] += b->bytes;
	x->fixed.dense_bytes[b->cls] += b->bytes;
	return 0;
}

static void load_own_share(struct dlb_sync_bucket *b)
{
	if (b->buffer)
		dlb_pack_load_chunk(&b->pack, b->buffer, own_chunk(b));
}

const struct dlb_sync_ops dlb_sync_gather = {
	.name = "gather",
	.init = init_gather,
	.load = load_own_share,
	.start = dlb_sync_start_sum,
	.test = dlb_sync_test_sum,
	.wait = dlb_sync_wait_sum,
	.take = dlb_sync_take_sum,
};
