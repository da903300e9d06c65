/* Dense sums over the replicas. Gradients are summed in place or, if several share a bucket, in a buffer,
 * chunk by chunk (comm/pack.h). Statistics are summed for one micro-batch after another; a replica without
 * samples adds zeros.
 *
 * If the sum of a gradient has several places in turn (dlb_program_sum_places), its bucket is summed in a
 * buffer. */
#include <string.h>
#include "exec/sync/ways.h"
#include "plan/buckets.h"
#include "plan/sharing.h"
#include "util/mem.h"

void dlb_sync_add_summands(struct dlb_sync_bucket *b, dlb_sync_summand_of *of)
{
	const int n = dlb_bucket_n_tensors(b->from);
	struct dlb_sync_place *place = dlb_arena_array(&b->sync->arena, (size_t)n, sizeof *place);

	for (int i = 0; i < n; i++) {
		const struct dlb_sync_summand s = of(b, i);

		dlb_pack_add(&b->pack, s.x, s.n, -1);
		b->dtype = s.dtype;
		place[i] = (struct dlb_sync_place){ .base = s.x, .places = s.places, .stride = s.stride };
		if (s.places > 1)
			b->place = place;
	}
}

void dlb_sync_make_buffer(struct dlb_sync_bucket *b)
{
	const size_t bytes = (size_t)b->pack.n * b->pack.element_bytes;

	b->buffer = dlb_comm_alloc(b->sync->d.comm, bytes);
	if (!b->buffer)
		b->buffer = dlb_arena_alloc(&b->sync->arena, bytes);
}

int dlb_sync_open_sum(struct dlb_sync_bucket *b, double *dense_bytes, struct dlb_error *err)
{
	const struct dlb_ranks *peers = &b->sync->peers;
	const struct dlb_allreduce *how = b->from->how;
	const int member = dlb_ranks_member(peers, dlb_comm_rank(b->sync->d.comm));
	struct dlb_collective_desc d = {
		.how = how, .ranks = *peers, .dtype = b->dtype, .tag = dlb_tag_of_bucket(b->index)
	};

	dlb_pack_lay_out(&b->pack, how->n_chunks(peers), dlb_dtype_bytes(b->dtype));
	if (b->pack.n_parts > 1 || b->place)
		dlb_sync_make_buffer(b);
	d.x = b->buffer ? b->buffer : b->pack.part[0].x;
	d.n = b->pack.n;
	d.at = b->pack.at;
	if (dlb_collective_new(&b->sum, b->sync->d.comm, &d, err))
		return -1;
	b->bytes = (double)dlb_collective_bytes_sent(b->sum);
	*dense_bytes = (double)dlb_allreduce_bytes(how, peers, member, b->pack.n, b->pack.at,
						   b->pack.element_bytes, NULL);
	return 0;
}

int dlb_sync_open_sum_of_step(struct dlb_sync_bucket *b, double times, struct dlb_error *err)
{
	double dense_bytes;

	if (dlb_sync_open_sum(b, &dense_bytes, err))
		return -1;
	b->sync->fixed.bytes[b->cls] += times * b->bytes;
	b->sync->fixed.dense_bytes[b->cls] += times * dense_bytes;
	return 0;
}

struct dlb_sync_summand dlb_sync_gradient(const struct dlb_sync_bucket *b, int i)
{
	const struct dlb_sync_desc *d = &b->sync->d;
	const struct dlb_graph *g = d->program->graph;
	const int op = b->from->op[i];
	const struct dlb_desc x = dlb_tensor_desc(&g->tensor[dlb_update_gradient(g, op)], 1);

	return (struct dlb_sync_summand){ .x = d->summand[op],
					  .n = dlb_desc_count(&x) *
						  dlb_sharing_tensors(&b->sync->plan->sharing),
					  .dtype = x.dtype,
					  .places = dlb_program_sum_places(&d->program->node[d->node], op),
					  .stride = dlb_place_bytes((size_t)dlb_desc_bytes(&x)) };
}

static int init(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	(void)from;
	dlb_sync_add_summands(b, dlb_sync_gradient);
	return dlb_sync_open_sum_of_step(b, 1, err);
}

/* Points the parts of pack to the places of the bucket's step. */
static void aim(struct dlb_sync_bucket *b)
{
	for (int i = 0; b->place && i < b->pack.n_parts; i++) {
		const struct dlb_sync_place *p = &b->place[i];

		b->pack.part[i].x = p->base + (size_t)(b->step % p->places) * p->stride;
	}
}

void dlb_sync_load_sum(struct dlb_sync_bucket *b)
{
	aim(b);
	if (b->buffer)
		dlb_pack_load(&b->pack, b->buffer);
}

void dlb_sync_start_sum(struct dlb_sync_bucket *b) { dlb_collective_start(b->sum); }
bool dlb_sync_test_sum(struct dlb_sync_bucket *b) { return dlb_collective_test(b->sum); }
int dlb_sync_wait_sum(struct dlb_sync_bucket *b, struct dlb_error *err)
{
	return dlb_collective_wait(b->sum, err);
}

void dlb_sync_take_sum(struct dlb_sync_bucket *b)
{
	if (b->buffer)
		dlb_pack_unload(&b->pack, b->buffer);
}

const struct dlb_sync_ops dlb_sync_sum = {
	.name = "sum",
	.init = init,
	.load = dlb_sync_load_sum,
	.start = dlb_sync_start_sum,
	.test = dlb_sync_test_sum,
	.wait = dlb_sync_wait_sum,
	.take = dlb_sync_take_sum,
};

/* ---- statistics over the batch: one array of f64, never in a buffer ---- */

static struct dlb_sync_summand statistics_of(const struct dlb_sync_bucket *b, int i)
{
	return (struct dlb_sync_summand){
		.x = b->sync->d.summand[b->from->op[i]], .n = b->from->n, .dtype = DLB_F64, .places = 1
	};
}

static int init_statistics(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	(void)from;
	dlb_sync_add_summands(b, statistics_of);
	return dlb_sync_open_sum_of_step(b, b->sync->d.program->micro_batches, err);
}

static void load_statistics(struct dlb_sync_bucket *b)
{
	if (b->sync->d.program->weightless)
		memset(b->pack.part[0].x, 0, (size_t)b->pack.n * b->pack.element_bytes);
}

const struct dlb_sync_ops dlb_sync_statistics = {
	.name = "statistics",
	.init = init_statistics,
	.load = load_statistics,
	.start = dlb_sync_start_sum,
	.test = dlb_sync_test_sum,
	.wait = dlb_sync_wait_sum,
	.take = dlb_sync_take_sum,
};
