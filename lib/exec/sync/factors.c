/* Sums of K-FAC's factors (exec/kfac.h) over the replicas, in the steps in which a new inverse is due.
 * With compression, a factor may come back as its Cholesky factor, from which K-FAC computes the inverse.
 * Bytes and seconds of an exchange are divided among the steps up to the next one. */
#include <string.h>
#include "exec/kfac.h"
#include "exec/sync/ways.h"

static bool due(const struct dlb_sync_bucket *b)
{
	return dlb_kfac_due(b->sync->d.kfac, b->sync->step);
}

static struct dlb_sync_summand factor_of(const struct dlb_sync_bucket *b, int i)
{
	const struct dlb_sync_desc *d = &b->sync->d;
	const int op = b->from->op[i / DLB_KFAC_FACTORS], k = i % DLB_KFAC_FACTORS;
	const struct dlb_kfac_layer l = dlb_kfac_layer_at(d->program->graph, op);

	return (struct dlb_sync_summand){
		.x = dlb_kfac_summand(d->kfac, op, k, dlb_bucket_group(b->from, i / DLB_KFAC_FACTORS)),
		.n = l.n[k] * l.n[k],
		.dtype = d->program->graph->tensor[l.use[0].x[k]].dtype,
		.places = 1
	};
}

static int init(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	double dense_bytes;

	(void)from;
	b->times = &b->sync->factors;
	dlb_sync_add_summands(b, factor_of);
	if (dlb_sync_open_sum(b, &dense_bytes, err))
		return -1;
	b->sync->fixed.dense_bytes[DLB_SUM_FACTOR] += dense_bytes;
	return 0;
}

static int init_compressed(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	double dense_bytes;

	(void)from;
	b->times = &b->sync->factors;
	dlb_sync_add_summands(b, factor_of);
	if (dlb_sync_open_compressor(b, &dense_bytes, err))
		return -1;
	b->sync->fixed.dense_bytes[DLB_SUM_FACTOR] += dense_bytes;
	return 0;
}

/* Tells K-FAC in which form factor i came back. */
static void came(struct dlb_sync_bucket *b, int i, bool factored)
{
	const int k = i / DLB_KFAC_FACTORS;

	dlb_kfac_set_received(b->sync->d.kfac, b->from->op[k], i % DLB_KFAC_FACTORS,
			      dlb_bucket_group(b->from, k), factored);
}

static void take(struct dlb_sync_bucket *b)
{
	b->times->bytes[b->cls] += b->bytes;
	dlb_sync_take_sum(b);
	for (int i = 0; i < b->pack.n_parts; i++)
		came(b, i, false);
	b->sync->times.factor_exchanges++;
}

static void take_compressed(struct dlb_sync_bucket *b)
{
	const struct dlb_verdict *v = dlb_compressor_verdict(b->less);
	const struct dlb_traffic *t = dlb_compressor_traffic(b->less);
	struct dlb_sync_times *all = &b->sync->times;

	b->took_s[b->cls] = 0;
	for (int k = 0; k < DLB_N_TRAFFIC; k++) {
		b->times->bytes[k] += t->bytes[k];
		b->took_s[k] = t->time_s[k];
	}
	dlb_sync_take_sum(b);
	for (int i = 0; i < b->pack.n_parts; i++)
		came(b, i, dlb_compressor_factored(b->less, i));
	all->factor_exchanges++;
	all->not_symmetric += v->n_asymmetric;
	all->not_definite += v->n_not_definite;
	all->shifted += v->n_retries;
	all->hops_failed += v->n_hops_failed;
}

/* ---- of the node, for both ways ---- */

static void begin(struct dlb_sync *x, const struct dlb_program *p)
{
	(void)p;
	if (dlb_kfac_due(x->d.kfac, x->step))
		memset(&x->factors, 0, sizeof x->factors);
}

static int settle(struct dlb_sync *x, struct dlb_error *err)
{
	const double every = x->plan->inverse_every > 1 ? (double)x->plan->inverse_every : 1.0;

	(void)err;
	for (int k = 0; k < DLB_N_SUM_CLASSES && x->d.kfac; k++) {
		x->times.bytes[k] += x->factors.bytes[k] / every;
		x->times.class_s[k] += x->factors.class_s[k] / every;
		x->times.class_hidden_s[k] += x->factors.class_hidden_s[k] / every;
	}
	return 0;
}

const struct dlb_sync_ops dlb_sync_factors = {
	.name = "factors",
	.init = init,
	.due = due,
	.load = dlb_sync_load_sum,
	.start = dlb_sync_start_sum,
	.test = dlb_sync_test_sum,
	.wait = dlb_sync_wait_sum,
	.take = take,
	.begin = begin,
	.settle = settle,
};
const struct dlb_sync_ops dlb_sync_compressed_factors = {
	.name = "compressed factors",
	.init = init_compressed,
	.due = due,
	.load = dlb_sync_load_sum,
	.start = dlb_sync_start_compressor,
	.test = dlb_sync_test_compressor,
	.wait = dlb_sync_wait_compressor,
	.take = take_compressed,
	.verdict = dlb_sync_compressor_verdict,
};
