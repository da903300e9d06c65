/* Every few steps, an allreduce (comm/allreduce.h) replaces the replicas' weights by their mean, with the
 * same bits everywhere. Each replica keeps its own optimizer states. */
#include "exec/state.h"
#include "exec/sync/ways.h"
#include "plan/shares.h"
#include "plan/sharing.h"
#include "util/mem.h"

struct mean { void *buffer; };

void dlb_sync_pack_weights(struct dlb_sync_bucket *b)
{
	const struct dlb_sync_desc *d = &b->sync->d;

	for (int i = 0; i < b->from->n_ops; i++) {
		const int t = dlb_update_weight(d->program->graph, b->from->op[i]);
		const struct dlb_desc x = dlb_tensor_desc(&d->program->graph->tensor[t], 1);

		dlb_pack_add(&b->pack, d->weight ? d->weight[t] : d->state->value[t], dlb_desc_count(&x), -1)
			->class
			= t;
		b->dtype = x.dtype;
	}
	dlb_pack_lay_out(&b->pack, b->from->how->n_chunks(&b->sync->peers), dlb_dtype_bytes(b->dtype));
}

bool dlb_sync_meets(const struct dlb_sync_bucket *b)
{
	return dlb_sharing_meets(&b->sync->plan->sharing, b->sync->step);
}

void dlb_sync_scale(void *x, enum dlb_dtype dtype, int64_t n, double factor)
{
	if (dtype == DLB_F64)
		for (int64_t i = 0; i < n; i++)
			((double *)x)[i] *= factor;
	else
		for (int64_t i = 0; i < n; i++)
			((float *)x)[i] = (float)(((float *)x)[i] * factor);
}

double dlb_sync_dense_bytes(const struct dlb_sync_bucket *b)
{
	const struct dlb_sync *x = b->sync;

	return (double)dlb_allreduce_bytes(b->from->how, &x->peers, x->d.program->replica, b->pack.n,
					   b->pack.at, b->pack.element_bytes, NULL);
}

static int init(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	struct dlb_sync *x = b->sync;
	struct mean *m = b->own = dlb_arena_alloc(&x->arena, sizeof *m);
	struct dlb_collective_desc d = { .how = from->how,
					 .ranks = x->peers,
					 .tag = dlb_tag_of_bucket(b->index) };

	dlb_sync_pack_weights(b);
	m->buffer = dlb_arena_alloc(&x->arena, (size_t)b->pack.n * b->pack.element_bytes + 1);
	x->fixed.dense_bytes[b->cls] += dlb_sync_dense_bytes(b);
	d.dtype = b->dtype;
	d.x = m->buffer;
	d.n = b->pack.n;
	d.at = b->pack.at;
	return dlb_collective_new(&b->sum, x->d.comm, &d, err);
}

static void load(struct dlb_sync_bucket *b)
{
	struct mean *m = b->own;

	dlb_pack_load(&b->pack, m->buffer);
}

static void start(struct dlb_sync_bucket *b)
{
	dlb_collective_start(b->sum);
	b->sync->sent[b->cls] += (double)dlb_collective_bytes_sent(b->sum);
}

static bool test(struct dlb_sync_bucket *b)
{
	return dlb_collective_test(b->sum) && !dlb_comm_broken(b->sync->d.comm);
}

static void take(struct dlb_sync_bucket *b)
{
	struct mean *m = b->own;

	dlb_sync_scale(m->buffer, b->dtype, b->pack.n, 1.0 / b->sync->plan->n_replicas);
	dlb_pack_unload(&b->pack, m->buffer);
}

const struct dlb_sync_ops dlb_sync_mean = {
	.name = "mean",
	.init = init,
	.due = dlb_sync_meets,
	.load = load,
	.start = start,
	.test = test,
	.wait = dlb_sync_poll,
	.take = take,
};
