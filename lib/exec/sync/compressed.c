/* Sums of gradients over the replicas, sent compressed (comm/compress.h). */
#include "exec/kfac.h"
#include "exec/sync/ways.h"
#include "plan/bucket_tensors.h"
#include "util/mem.h"

int dlb_sync_open_compressor(struct dlb_sync_bucket *b, double *dense_bytes, struct dlb_error *err)
{
	struct dlb_sync *x = b->sync;
	const struct dlb_ranks *peers = &x->peers;
	const int member = dlb_ranks_member(peers, dlb_comm_rank(x->d.comm));
	int n;
	struct dlb_sum_tensor *tensor = dlb_bucket_tensors(x->d.program->graph, b->from, &x->arena, &n);
	const struct dlb_compressor_desc d = { .choice = x->choice[b->cls],
					       .how = b->from->how,
					       .ranks = *peers,
					       .tensor = tensor,
					       .n_tensors = n,
					       .tag = dlb_tag_of_bucket(b->index),
					       .state = x->d.compress };

	if (b->dtype != DLB_F32)
		return dlb_fail(err, NULL, "--compress works on float32; gradients are %s",
				dlb_dtype_name(b->dtype));
	/* If a gradient has several places in turn, all arrays are copied to a contiguous buffer. */
	dlb_pack_lay_out(&b->pack, 1, sizeof(float));
	if (b->place)
		b->buffer = dlb_arena_alloc(&x->arena, (size_t)b->pack.n * sizeof(float));
	*dense_bytes = 0;
	for (int i = 0; i < n; i++) {
		const int k = tensor[i].summand;
		float *summand = b->buffer ? dlb_pack_at(&b->pack, b->buffer, k, 0) : b->pack.part[k].x;

		tensor[i].x = summand + tensor[i].at;
		tensor[i].as_factor = tensor[i].factor;
		tensor[i].damping = tensor[i].factor ? dlb_kfac_damping(x->d.kfac) : 0;
	}
	for (int i = 0; i < b->pack.n_parts; i++)
		*dense_bytes += (double)dlb_allreduce_bytes(b->from->how, peers, member, b->pack.part[i].n,
							    NULL, sizeof(float), NULL);
	return dlb_compressor_new(&b->less, x->d.comm, &d, err);
}

static int init(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	double ignored;

	(void)from;
	dlb_sync_add_summands(b, dlb_sync_gradient);
	return dlb_sync_open_compressor(b, &ignored, err);
}

void dlb_sync_start_compressor(struct dlb_sync_bucket *b) { dlb_compressor_start(b->less, b->step); }
bool dlb_sync_test_compressor(struct dlb_sync_bucket *b) { return dlb_compressor_test(b->less); }
int dlb_sync_wait_compressor(struct dlb_sync_bucket *b, struct dlb_error *err)
{
	return dlb_compressor_wait(b->less, err);
}

static void take(struct dlb_sync_bucket *b)
{
	const struct dlb_traffic *t = dlb_compressor_traffic(b->less);
	struct dlb_sync_times *to = b->times;

	b->took_s[b->cls] = 0;
	for (int k = 0; k < DLB_N_TRAFFIC; k++) {
		to->bytes[k] += t->bytes[k] - b->sent[k];
		to->dense_bytes[k] += t->dense_bytes[k] - b->sent_dense[k];
		b->sent[k] = t->bytes[k];
		b->sent_dense[k] = t->dense_bytes[k];
		b->took_s[k] = t->time_s[k];
	}
	dlb_sync_take_sum(b);
}

int dlb_sync_compressor_verdict(const struct dlb_sync_bucket *b, struct dlb_error *err)
{
	return dlb_verdict_error(dlb_compressor_verdict(b->less), err);
}

const struct dlb_sync_ops dlb_sync_compressed = {
	.name = "compressed",
	.init = init,
	.load = dlb_sync_load_sum,
	.start = dlb_sync_start_compressor,
	.test = dlb_sync_test_compressor,
	.wait = dlb_sync_wait_compressor,
	.take = take,
	.verdict = dlb_sync_compressor_verdict,
};
