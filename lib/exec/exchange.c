/* Sums over the replicas. See exchange.h. Where weights are averaged, average.c does it.
 *
 * A gradient of its own bucket is summed where it lies. Small ones are packed into one array, chunk by chunk: first
 * every tensor's first chunk, then every tensor's second, and so on, so that each *tensor* is cut into as many chunks as
 * the algorithm has, whatever bucket it travels in, and the bits do not depend on who shares a bucket with whom.
 *
 * Where sums of gradients have several places in turn (dlb_program_sum_places) a bucket is summed in one of its own.
 *
 * K-FAC's factors (kfac.h) go out in steps in which a new inverse is due. Compressed as triangles they come back as Cholesky
 * factors, which are inverted as they are.
 *
 * Statistics run once a micro-batch, one after another, and a replica whose sample counts nothing adds zeros. */
#include <stdlib.h>
#include <string.h>
#include "comm/compress.h"
#include "exec/average.h"
#include "exec/exchange.h"
#include "exec/kfac.h"
#include "util/clock.h"
#include "util/mem.h"

enum { FIRST_TAG = DLB_TAG_SUM, TAGS = DLB_COMPRESSOR_TAGS };

_Static_assert((int)DLB_N_TRAFFIC == (int)DLB_SUM_STATISTICS && (int)DLB_TRAFFIC_SMALL == (int)DLB_SUM_SMALL, "classes in one order");

struct exchange_bucket {
	struct dlb_collective *sum;
	struct dlb_compressor *less;		/* in place of sum */
	struct dlb_sum_tensor *tensor;		/* [n_tensors] of it */
	int n_tensors, n_chunks;
	char **x; int64_t *n;			/* [n_tensors] what is summed, its elements */
	int *places; size_t *stride;		/* [n_tensors] of x, one behind the other: step s is in number s mod places */
	int64_t step;				/* that it is of */
	const int *update;			/* of factors: the updates of the layers' weights, one for two summands; else NULL */
	int *group;				/* [of those] as dlb_bucket_group says */
	double bytes, dense_bytes;		/* of factors: sent each time, if not compressed */
	double sent[DLB_N_TRAFFIC], sent_dense[DLB_N_TRAFFIC];	/* compressed: the last time */
	char *packed;				/* of the comm's shared memory, else of x's arena; NULL: one, summed where it lies */
	size_t element_bytes;
	bool counts_nothing;			/* this replica's part is 0 */
	enum dlb_sum_class cls;
	bool active, done, ran;			/* under way; every byte has come; in this step */
	double start_s;
};
struct dlb_exchange {
	struct dlb_average *average;		/* in place of sums, borrowed; NULL: none */
	struct dlb_comm *comm;
	const struct dlb_program *program;
	struct exchange_bucket *bucket;
	int n_buckets, n_active;
	struct dlb_compress_choice choice[DLB_N_COMPRESSED];	/* by class of sum */
	struct dlb_compress_state *compress;
	struct dlb_kfac *kfac;
	int64_t step, every;			/* every: steps from one exchange of factors to the next */
	struct dlb_exchange_times fixed, factors;	/* bytes of each step, known before; of the last exchange of factors */
	double since_s;				/* something is under way since */
	struct dlb_exchange_times times;
	struct dlb_arena arena;
};

/* Copies between the gradients and the packed array. */
static void pack(const struct exchange_bucket *b, bool out)
{
	char *at = b->packed;
	const size_t size = b->element_bytes;

	for (int c = 0; c < b->n_chunks; c++) {
		for (int i = 0; i < b->n_tensors; i++) {
			int64_t from = dlb_chunk_at(b->n[i], b->n_chunks, c), to = dlb_chunk_at(b->n[i], b->n_chunks, c + 1);
			size_t bytes = (size_t)(to - from) * size;
			char *own = b->x[i] + (size_t)(b->step % b->places[i]) * b->stride[i] + (size_t)from * size;

			memcpy(out ? own : at, out ? at : own, bytes);
			at += bytes;
		}
	}
}

static bool moves(const struct exchange_bucket *b)
{
	for (int i = 0; i < b->n_tensors; i++)
		if (b->places[i] > 1)
			return true;
	return false;
}

static int new_compressor(struct dlb_exchange *x, struct exchange_bucket *b, struct dlb_comm *c, const struct dlb_program *p,
			  const struct dlb_bucket *from, const struct dlb_collective_desc *sum, struct dlb_error *err)
{
	struct dlb_compressor_desc d = { .choice = x->choice[b->cls], .how = sum->how, .ranks = sum->ranks, .n_tensors = b->n_tensors, .tag = sum->tag,
					 .state = x->compress };
	int64_t at = 0;

	if (sum->dtype != DLB_F32)
		return dlb_fail(err, NULL, "--compress works on float32; gradients are %s", dlb_dtype_name(sum->dtype));
	b->tensor = dlb_arena_array(&x->arena, (size_t)b->n_tensors, sizeof *b->tensor);
	if (moves(b)) {
		b->element_bytes = sizeof(float);
		b->n_chunks = 1;
		b->packed = dlb_arena_alloc(&x->arena, (size_t)from->n * sizeof(float));
	}
	for (int i = 0; i < b->n_tensors; i++) {
		dlb_bucket_tensor(p->graph, from, i, &b->tensor[i]);
		b->tensor[i].x = b->packed ? (float *)(void *)b->packed + at : (float *)(void *)b->x[i];
		at += b->n[i];
		b->tensor[i].as_factor = b->tensor[i].factor;
		b->tensor[i].damping = b->tensor[i].factor ? dlb_kfac_damping(x->kfac) : 0;
		b->dense_bytes += (double)dlb_allreduce_bytes(sum->how, &sum->ranks, dlb_ranks_member(&sum->ranks, dlb_comm_rank(c)), b->n[i],
							      NULL, sizeof(float), NULL);
	}
	d.tensor = b->tensor;
	return dlb_compressor_new(&b->less, c, &d, err);
}

/* What bucket `from` sums i-th. */
static struct dlb_desc find_summand(struct dlb_exchange *x, const struct dlb_program *p, const struct dlb_bucket *from, int i,
				    void *const *summand, char **at)
{
	const int op = from->op[from->cls == DLB_SUM_FACTOR ? i / DLB_KFAC_FACTORS : i];

	if (from->cls == DLB_SUM_FACTOR) {
		const struct dlb_kfac_layer l = dlb_kfac_layer_at(p->graph, op);
		const int k = i % DLB_KFAC_FACTORS;

		*at = dlb_kfac_summand(x->kfac, op, k, dlb_bucket_group(from, i / DLB_KFAC_FACTORS));
		return (struct dlb_desc){ .dtype = p->graph->tensor[l.use[0].x[k]].dtype, .n_dims = 2, .dim = { l.n[k], l.n[k] } };
	}
	*at = summand[op];
	if (from->cls == DLB_SUM_STATISTICS)
		return (struct dlb_desc){ .dtype = DLB_F64, .n_dims = 1, .dim = { from->n } };
	return dlb_tensor_desc(&p->graph->tensor[dlb_update_gradient(p->graph, op)], 1);
}

/* Where ranks of this host see it. */
static void make_packed(struct dlb_exchange *x, struct exchange_bucket *b, size_t bytes)
{
	b->packed = dlb_comm_alloc(x->comm, bytes);
	if (!b->packed)
		b->packed = dlb_arena_alloc(&x->arena, bytes);
}

static int new_bucket(struct dlb_exchange *x, struct dlb_comm *c, const struct dlb_program *p, int node, int index, const struct dlb_ranks *ranks, void *const *summand, struct dlb_error *err)
{
	struct exchange_bucket *b = &x->bucket[index];
	const struct dlb_bucket *from = &p->node[node].bucket[index];
	const struct dlb_allreduce *how = from->how;
	struct dlb_collective_desc d = { .how = how, .ranks = *ranks, .n = from->n, .tag = FIRST_TAG + index * TAGS };
	const bool statistics = from->cls == DLB_SUM_STATISTICS;
	const double times = statistics ? p->micro_batches : 1;		/* a step */
	int64_t *at;
	int rc;

	b->n_tensors = dlb_bucket_n_tensors(from);
	b->update = from->cls == DLB_SUM_FACTOR ? from->op : NULL;
	b->group = dlb_arena_array(&x->arena, (size_t)from->n_ops + 1, sizeof *b->group);
	for (int i = 0; i < from->n_ops && b->update; i++)
		b->group[i] = dlb_bucket_group(from, i);
	b->cls = from->cls;
	b->n_chunks = how->n_chunks(ranks);
	b->x = dlb_arena_array(&x->arena, (size_t)b->n_tensors, sizeof *b->x);
	b->n = dlb_arena_array(&x->arena, (size_t)b->n_tensors, sizeof *b->n);
	b->places = dlb_arena_array(&x->arena, (size_t)b->n_tensors, sizeof *b->places);
	b->stride = dlb_arena_array(&x->arena, (size_t)b->n_tensors, sizeof *b->stride);
	at = dlb_xcalloc((size_t)b->n_chunks + 1, sizeof *at);
	for (int i = 0; i < b->n_tensors; i++) {
		struct dlb_desc desc = find_summand(x, p, from, i, summand, &b->x[i]);

		d.dtype = desc.dtype;
		b->places[i] = b->update || statistics ? 1 : dlb_program_sum_places(&p->node[node], from->op[i]);
		b->stride[i] = dlb_place_bytes((size_t)dlb_desc_bytes(&desc));
		b->n[i] = dlb_desc_count(&desc) * (from->cls == DLB_SUM_GRADIENT || from->cls == DLB_SUM_SMALL ?
						   dlb_sharing_tensors(&p->whole->sharing) : 1);
		for (int k = 0; k <= b->n_chunks; k++)
			at[k] += dlb_chunk_at(b->n[i], b->n_chunks, k);
	}
	if (!statistics && x->choice[from->cls].how != DLB_COMPRESS_NONE) {
		free(at);
		return new_compressor(x, b, c, p, from, &d, err);
	}
	b->element_bytes = dlb_dtype_bytes(d.dtype);
	b->counts_nothing = statistics && p->weightless;
	if (b->n_tensors > 1 || moves(b))
		make_packed(x, b, (size_t)from->n * b->element_bytes);
	d.x = b->packed ? b->packed : b->x[0];
	d.at = at;
	rc = dlb_collective_new(&b->sum, c, &d, err);
	if (rc) {
		free(at);
		return -1;
	}
	b->bytes = (double)dlb_collective_bytes_sent(b->sum);
	b->dense_bytes = (double)dlb_allreduce_bytes(how, ranks, dlb_ranks_member(ranks, dlb_comm_rank(c)), from->n, at, b->element_bytes, NULL);
	if (!b->update) {
		x->fixed.bytes[b->cls] += times * b->bytes;
		x->fixed.dense_bytes[b->cls] += times * b->dense_bytes;
	}
	free(at);
	return 0;
}

int dlb_exchange_new(struct dlb_exchange **out, struct dlb_comm *c, const struct dlb_program *p, int node,
		     const struct dlb_cluster *cluster, void *const *summand, struct dlb_kfac *kfac, struct dlb_average *average,
		     struct dlb_compress_state *compress, int64_t last_step, struct dlb_error *err)
{
	const struct dlb_plan *plan = p->whole;
	int part = dlb_plan_part_of(plan, node), rc = 0;
	struct dlb_ranks ranks = { .n = plan->n_replicas };
	const struct dlb_node_program *np = &p->node[node];
	struct dlb_exchange *x;
	int *peer, *group;

	*out = NULL;
	if (plan->n_replicas > 1 && dlb_sharing_averages(&plan->sharing)) {
		if (!average)
			return 0;
		*out = x = dlb_xcalloc(1, sizeof *x);
		x->average = average;
		x->program = p;
		return 0;
	}
	if (plan->n_replicas < 2 || part < 0 || !np->n_buckets)
		return 0;
	x = dlb_xcalloc(1, sizeof *x);
	x->comm = c;
	x->bucket = dlb_xcalloc((size_t)np->n_buckets, sizeof *x->bucket);
	x->compress = compress;
	x->kfac = kfac;
	x->every = plan->inverse_every > 1 ? plan->inverse_every : 1;
	for (int k = 0; k < DLB_N_COMPRESSED; k++) {
		x->choice[k] = dlb_program_compress(p, k);
		dlb_compress_settle(&x->choice[k], last_step);
	}
	peer = dlb_xcalloc((size_t)ranks.n, sizeof *peer);
	group = dlb_xcalloc((size_t)ranks.n, sizeof *group);
	dlb_plan_peers(plan, part, peer);
	dlb_plan_peer_groups(plan, cluster, part, group);
	ranks.rank = peer;
	ranks.group = group;
	for (int b = 0; b < np->n_buckets && !rc; b++) {
		rc = new_bucket(x, c, p, node, b, &ranks, summand, err);
		x->n_buckets += !rc;
	}
	free(peer);
	free(group);
	if (rc) {
		dlb_exchange_free(x);
		return -1;
	}
	*out = x;
	return 0;
}

int dlb_exchange_put(const struct dlb_exchange *x, struct dlb_memories *m, struct dlb_error *err)
{
	for (int i = 0; x && i < x->n_buckets; i++) {
		const struct exchange_bucket *b = &x->bucket[i];
		int64_t n = 0;

		for (int k = 0; k < b->n_tensors; k++)
			n += b->n[k];
		if (dlb_memories_put(m, DLB_BUF_STATE, b->packed, (size_t)n * b->element_bytes, err))
			return -1;
	}
	return 0;
}

void dlb_exchange_free(struct dlb_exchange *x)
{
	if (!x)
		return;
	for (int b = 0; b < x->n_buckets; b++) {
		dlb_collective_free(x->bucket[b].sum);
		dlb_compressor_free(x->bucket[b].less);
		if (x->bucket[b].packed && dlb_comm_offset(x->comm, x->bucket[b].packed) != SIZE_MAX)
			dlb_comm_release(x->comm, x->bucket[b].packed);
	}
	free(x->bucket);
	dlb_arena_release(&x->arena);
	free(x);
}

void dlb_exchange_begin(struct dlb_exchange *x, int64_t step)
{
	if (x->average)
		dlb_average_begin(x->average, step, x->program);
	x->step = step;
	memcpy(x->times.bytes, x->fixed.bytes, sizeof x->times.bytes);
	memcpy(x->times.dense_bytes, x->fixed.dense_bytes, sizeof x->times.dense_bytes);
	x->times.time_s = x->times.hidden_s = 0.0;
	memset(x->times.class_s, 0, sizeof x->times.class_s);
	memset(x->times.class_hidden_s, 0, sizeof x->times.class_hidden_s);
	for (int b = 0; b < x->n_buckets; b++) {
		x->bucket[b].ran = false;
		for (int i = 0; i < DLB_N_TRAFFIC && !x->bucket[b].update; i++) {	/* until it ends */
			x->times.bytes[i] += x->bucket[b].sent[i];
			x->times.dense_bytes[i] += x->bucket[b].sent_dense[i];
		}
	}
	if (dlb_kfac_due(x->kfac, step))
		memset(&x->factors, 0, sizeof x->factors);
}

void dlb_exchange_start(struct dlb_exchange *x, int b, int64_t step)
{
	struct exchange_bucket *k = &x->bucket[b];

	if (x->average) {
		dlb_average_start(x->average, b);
		return;
	}
	if (k->update && !dlb_kfac_due(x->kfac, x->step))
		return;
	k->step = step;
	if (k->packed)
		pack(k, false);
	if (k->counts_nothing)
		memset(k->x[0], 0, (size_t)k->n[0] * k->element_bytes);
	if (x->n_active++ == 0)
		x->since_s = dlb_clock_s();
	k->active = true;
	k->done = false;
	k->start_s = dlb_clock_s();
	if (k->less)
		dlb_compressor_start(k->less, step);
	else
		dlb_collective_start(k->sum);
}

/* How the factors of bucket k came: as factors, or what went otherwise than it should. */
static void take_factors(struct dlb_exchange *x, struct exchange_bucket *k)
{
	const struct dlb_verdict *v = k->less ? dlb_compressor_verdict(k->less) : NULL;

	for (int i = 0; i < k->n_tensors; i++)
		dlb_kfac_came(x->kfac, k->update[i / DLB_KFAC_FACTORS], i % DLB_KFAC_FACTORS, k->group[i / DLB_KFAC_FACTORS],
			      v && dlb_compressor_factored(k->less, i));
	x->times.factor_exchanges++;
	if (!v)
		return;
	x->times.not_symmetric += v->n_asymmetric;
	x->times.not_definite += v->n_not_definite;
	x->times.shifted += v->n_retries;
	x->times.hops_failed += v->n_hops_failed;
}

static void end(struct dlb_exchange *x, struct exchange_bucket *k)
{
	struct dlb_exchange_times *to = k->update ? &x->factors : &x->times;

	if (k->done)
		return;
	k->done = k->ran = true;
	for (int i = 0; i < DLB_N_TRAFFIC && k->less; i++) {
		const struct dlb_traffic *t = dlb_compressor_traffic(k->less);

		to->bytes[i] += t->bytes[i] - (k->update ? 0 : k->sent[i]);
		to->dense_bytes[i] += t->dense_bytes[i] - (k->update ? 0 : k->sent_dense[i]);
		k->sent[i] = t->bytes[i];
		k->sent_dense[i] = t->dense_bytes[i];
		to->class_s[i] += t->time_s[i];
		to->class_hidden_s[i] += t->time_s[i];
	}
	if (!k->less) {
		to->bytes[k->cls] += k->update ? k->bytes : 0;
		to->class_s[k->cls] += dlb_clock_s() - k->start_s;
		to->class_hidden_s[k->cls] += dlb_clock_s() - k->start_s;
	}
	if (k->packed)
		pack(k, true);
	if (k->update)
		take_factors(x, k);
	if (--x->n_active == 0) {
		double s = dlb_clock_s() - x->since_s;

		x->times.time_s += s;
		x->times.hidden_s += s;
	}
}

static bool moved_all(struct exchange_bucket *k)
{
	return k->less ? dlb_compressor_test(k->less) : dlb_collective_test(k->sum);
}

void dlb_exchange_nudge(struct dlb_exchange *x)
{
	if (x->average)
		dlb_average_nudge(x->average);
	for (int b = 0; b < x->n_buckets && x->n_active; b++)
		if (x->bucket[b].active && !x->bucket[b].done && moved_all(&x->bucket[b]))
			end(x, &x->bucket[b]);
}

/* The seconds that bucket k was waited for are of its class, or of what travels in it by its share of the time. */
static void count_wait(struct dlb_exchange *x, const struct exchange_bucket *k, double s)
{
	struct dlb_exchange_times *to = k->update ? &x->factors : &x->times;
	const struct dlb_traffic *t = k->less ? dlb_compressor_traffic(k->less) : NULL;
	double all = 0;

	if (!t) {
		to->class_hidden_s[k->cls] -= s;
		return;
	}
	for (int i = 0; i < DLB_N_TRAFFIC; i++)
		all += t->time_s[i];
	for (int i = 0; i < DLB_N_TRAFFIC && all > 0; i++)
		to->class_hidden_s[i] -= (s < all ? s : all) * t->time_s[i] / all;
}

int dlb_exchange_wait(struct dlb_exchange *x, int b, double *waited_s, struct dlb_error *err)
{
	struct exchange_bucket *k = &x->bucket[b];
	double start_s = dlb_clock_s(), waited = 0, s;

	if (x->average)
		return dlb_average_wait(x->average, b, waited_s, err);
	if (!k->active)
		return 0;
	if (k->less ? dlb_compressor_wait(k->less, err) : dlb_collective_wait(k->sum, err))	/* also tells what went wrong in a nudge */
		return -1;
	k->active = false;
	s = dlb_clock_s() - start_s;
	*waited_s += s;
	if (!k->done) {
		x->times.hidden_s -= s;
		waited = s;
	}
	end(x, k);
	count_wait(x, k, waited);
	return 0;
}

/* A step's part of what its factors took the last time. */
static void add_factors(struct dlb_exchange *x)
{
	const struct dlb_exchange_times *f = &x->factors;

	for (int b = 0; b < x->n_buckets; b++)
		if (x->bucket[b].update)
			x->times.dense_bytes[DLB_SUM_FACTOR] += x->bucket[b].dense_bytes;
	for (int i = 0; i < DLB_N_SUM_CLASSES; i++) {
		x->times.bytes[i] += f->bytes[i] / (double)x->every;
		x->times.class_s[i] += f->class_s[i] / (double)x->every;
		x->times.class_hidden_s[i] += f->class_hidden_s[i] / (double)x->every;
	}
}

int dlb_exchange_settle(struct dlb_exchange *x, struct dlb_error *err)
{
	if (x->average)
		return dlb_average_settle(x->average, err);
	if (x->kfac)
		add_factors(x);
	return 0;
}

int dlb_exchange_command(struct dlb_comm *c, char *reports, double *waited_s, double *command_s, struct dlb_error *err)
{
	double start_s = dlb_clock_s(), s;
	char word = 0;
	int rc = dlb_comm_gather(c, &word, 1, reports, 0, err) || dlb_comm_bcast(c, &word, 1, 0, err) ? -1 : 0;

	s = dlb_clock_s() - start_s;
	*waited_s += s;
	*command_s += s;
	return rc;
}

const struct dlb_exchange_times *dlb_exchange_times(const struct dlb_exchange *x)
{
	return x->average ? dlb_average_times(x->average) : &x->times;
}

int dlb_exchange_verdict(const struct dlb_exchange *x, struct dlb_error *err)
{
	for (int b = 0; b < x->n_buckets; b++)
		if (x->bucket[b].less && x->bucket[b].ran && dlb_verdict_error(dlb_compressor_verdict(x->bucket[b].less), err))
			return -1;
	return 0;
}
