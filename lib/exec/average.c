/* Averages of weights over the replicas. See average.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "exec/average.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/rng.h"

enum { FIRST_TAG = DLB_TAG_SUM };			/* as exchange.c's, which has none under way then */
enum how { IDLE, GOSSIP, MEAN, PUSH };

/* Tensors of one type that travel together, packed chunk by chunk (exchange.c says why). */
struct flat {
	int n_tensors, n_chunks;
	void **x; int64_t *n; uint64_t *stream;	/* [n_tensors]; stream: of the tensor's mask */
	int64_t count, *at;			/* elements in all; [n_chunks + 1] where chunks begin */
	enum dlb_dtype dtype;
	char *packed;
};
struct average_bucket {
	struct flat flat;
	struct dlb_collective *mean;
	enum dlb_sum_class cls;
	enum how how;				/* IDLE: nothing under way */
	double start_s;
	/* gossip: elements that the mask took, [0] mine, [1], [2] the neighbours'; push: [1] is what is pulled */
	char *part[3];
	int64_t n_part;
	struct dlb_request request[4];
	bool pushed;				/* to ourselves */
};
/* What the server makes of bucket `bucket` of part `part`. */
struct served {
	int part, bucket;
	int64_t n;
	enum dlb_dtype dtype;
	char **from, *mean;			/* [replica] NULL: ourselves */
	struct dlb_request *in, *out;		/* [replica] */
	enum dlb_sum_class cls;
	bool answered;
	const char *own;			/* what we push to ourselves; NULL: not yet, or never */
};
struct dlb_average {
	struct dlb_comm *c;
	struct dlb_state *state;
	const struct dlb_plan *plan;
	int replica, part, left, right, server, node;
	struct dlb_ranks peers;
	uint64_t seed;
	int64_t step, steps;
	struct average_bucket *bucket; int n_buckets;
	struct served *served; int n_served;
	double *share;				/* [replica] of the batch, adds up to 1 */
	double bytes[DLB_N_SUM_CLASSES];	/* sent so far */
	struct dlb_exchange_times times;
	int n_active;
	double since_s;
	struct dlb_arena arena;
};

/* ---- tensors that travel together ---- */

static void flat_init(struct flat *f, int most, int n_chunks, struct dlb_arena *a)
{
	f->n_chunks = n_chunks;
	f->x = dlb_arena_array(a, (size_t)most + 1, sizeof *f->x);
	f->n = dlb_arena_array(a, (size_t)most + 1, sizeof *f->n);
	f->stream = dlb_arena_array(a, (size_t)most + 1, sizeof *f->stream);
	f->at = dlb_arena_array(a, (size_t)n_chunks + 1, sizeof *f->at);
}

static void flat_add(struct flat *f, const struct dlb_tensor *t, void *x)
{
	struct dlb_desc d = dlb_tensor_desc(t, 1);
	int64_t n = dlb_desc_count(&d);

	f->dtype = t->dtype;
	f->x[f->n_tensors] = x;
	f->n[f->n_tensors] = n;
	f->stream[f->n_tensors++] = dlb_hash_str(DLB_HASH_INIT, t->name);
	f->count += n;
	for (int c = 0; c <= f->n_chunks; c++)
		f->at[c] += dlb_chunk_at(n, f->n_chunks, c);
}

static void pack(const struct flat *f, char *packed, bool out)
{
	size_t size = dlb_dtype_bytes(f->dtype);
	char *at = packed;

	for (int c = 0; c < f->n_chunks; c++) {
		for (int i = 0; i < f->n_tensors; i++) {
			int64_t from = dlb_chunk_at(f->n[i], f->n_chunks, c), to = dlb_chunk_at(f->n[i], f->n_chunks, c + 1);
			size_t bytes = (size_t)(to - from) * size;
			char *own = (char *)f->x[i] + (size_t)from * size;

			memcpy(out ? own : at, out ? at : own, bytes);
			at += bytes;
		}
	}
}

/* x *= factor */
static void scale(void *x, enum dlb_dtype dtype, int64_t n, double factor)
{
	if (dtype == DLB_F64)
		for (int64_t i = 0; i < n; i++)
			((double *)x)[i] *= factor;
	else
		for (int64_t i = 0; i < n; i++)
			((float *)x)[i] = (float)(((float *)x)[i] * factor);
}

static int collective_of(struct dlb_average *a, const struct dlb_allreduce *how, const struct flat *f, int tag, struct dlb_collective **out,
			 struct dlb_error *err)
{
	struct dlb_collective_desc d = { .how = how, .ranks = a->peers, .dtype = f->dtype,
					 .x = f->packed, .n = f->count, .at = f->at, .tag = tag };

	return dlb_collective_new(out, a->c, &d, err);
}

/* ---- the mask ---- */

/* Moves what the mask of this step takes of f to `part` (out: back from there): of every tensor a share of gossip of its
 * elements, drawn without putting back, more or less one element by chance, so that small tensors have their turn too.
 * Knuth, The Art of Computer Programming 2, algorithm S. Returns the number of elements. */
static int64_t masked(const struct dlb_average *a, const struct flat *f, char *part, bool out)
{
	size_t size = dlb_dtype_bytes(f->dtype);
	double share = a->plan->sharing.gossip;
	int64_t moved = 0;

	for (int i = 0; i < f->n_tensors; i++) {
		uint64_t key[3] = { a->seed, (uint64_t)a->step, f->stream[i] };
		struct dlb_rng rng;
		int64_t left = f->n[i], wanted;

		dlb_rng_init(&rng, dlb_hash_bytes(DLB_HASH_INIT, key, sizeof key));
		wanted = (int64_t)floor(share * (double)left + dlb_rng_uniform(&rng));
		wanted = wanted > left ? left : wanted;
		for (char *own = f->x[i]; wanted > 0; own += size, left--) {
			if (wanted < left && dlb_rng_uniform(&rng) * (double)left >= (double)wanted)
				continue;
			memcpy(out ? own : part, out ? part : own, size);
			part += size;
			moved++;
			wanted--;
		}
	}
	return moved;
}

static int64_t most_masked(const struct dlb_average *a, const struct flat *f)
{
	int64_t most = 0;

	for (int i = 0; i < f->n_tensors; i++)
		most += (int64_t)(a->plan->sharing.gossip * (double)f->n[i]) + 1;
	return most;
}

/* mine = mean of mine and of the k neighbours'. */
static void mix(struct average_bucket *b, int k)
{
	if (b->flat.dtype == DLB_F64) {
		double *x = (void *)b->part[0], *y = (void *)b->part[1], *z = (void *)b->part[2];

		for (int64_t i = 0; i < b->n_part; i++)
			x[i] = (x[i] + y[i] + (k > 1 ? z[i] : 0.0)) / (k + 1);
	} else {
		float *x = (void *)b->part[0], *y = (void *)b->part[1], *z = (void *)b->part[2];

		for (int64_t i = 0; i < b->n_part; i++)
			x[i] = (float)(((double)x[i] + y[i] + (k > 1 ? z[i] : 0.0)) / (k + 1));
	}
}

/* ---- the server ---- */

static void serve_begin(struct dlb_average *a, struct served *s)
{
	size_t bytes = (size_t)s->n * dlb_dtype_bytes(s->dtype);

	s->answered = false;
	s->own = NULL;
	for (int r = 0; r < a->plan->n_replicas; r++)
		if (s->from[r])
			dlb_comm_irecv(a->c, s->from[r], bytes, a->plan->replica[r][s->part], FIRST_TAG + s->bucket, &s->in[r]);
}

/* The mean, weighted by the shares of the batch, in the order of replicas. */
static void serve_mean(const struct dlb_average *a, struct served *s)
{
	for (int64_t i = 0; i < s->n; i++) {
		double sum = 0.0;

		for (int r = 0; r < a->plan->n_replicas; r++) {
			const char *x = s->from[r] ? s->from[r] : s->own;

			sum += a->share[r] * (s->dtype == DLB_F64 ? ((const double *)(const void *)x)[i] : ((const float *)(const void *)x)[i]);
		}
		if (s->dtype == DLB_F64)
			((double *)(void *)s->mean)[i] = sum;
		else
			((float *)(void *)s->mean)[i] = (float)sum;
	}
}

/* Returns whether all have their answer. */
static bool serve(struct dlb_average *a, struct served *s)
{
	size_t bytes = (size_t)s->n * dlb_dtype_bytes(s->dtype);
	bool all = true;

	for (int r = 0; r < a->plan->n_replicas && !s->answered; r++)
		all = (s->from[r] ? dlb_comm_test(a->c, &s->in[r]) : s->own != NULL) && all;
	if (!all)
		return false;
	if (!s->answered) {
		serve_mean(a, s);
		for (int r = 0; r < a->plan->n_replicas; r++) {
			if (!s->from[r])
				continue;
			dlb_comm_isend(a->c, s->mean, bytes, a->plan->replica[r][s->part], FIRST_TAG + s->bucket, &s->out[r]);
			a->bytes[s->cls] += (double)bytes;
		}
		s->answered = true;
	}
	for (int r = 0; r < a->plan->n_replicas; r++)
		all = (!s->from[r] || dlb_comm_test(a->c, &s->out[r])) && all;
	return all;
}

static struct served *served_of(struct dlb_average *a, int part, int bucket)
{
	for (int i = 0; i < a->n_served; i++)
		if (a->served[i].part == part && a->served[i].bucket == bucket)
			return &a->served[i];
	dlb_bug("bucket %d of part %d is not served", bucket, part);
}

static void new_served(struct dlb_average *a, const struct dlb_program *p, int part, int b, struct served *s)
{
	const struct dlb_plan *plan = a->plan;
	const struct dlb_bucket *from = &p->node[plan->replica[p->replica][part]].bucket[b];
	size_t R = (size_t)plan->n_replicas, size;

	*s = (struct served){ .part = part, .bucket = b, .n = from->n, .cls = from->cls };
	s->dtype = p->graph->tensor[dlb_update_gradient(p->graph, from->op[0])].dtype;
	size = (size_t)s->n * dlb_dtype_bytes(s->dtype) + 1;
	s->from = dlb_arena_array(&a->arena, R, sizeof *s->from);
	s->in = dlb_arena_array(&a->arena, R, sizeof *s->in);
	s->out = dlb_arena_array(&a->arena, R, sizeof *s->out);
	s->mean = dlb_arena_alloc(&a->arena, size);
	for (size_t r = 0; r < R; r++)
		if (plan->replica[r][part] != a->node)
			s->from[r] = dlb_arena_alloc(&a->arena, size);
}

/* ---- set-up ---- */

static int weight_of(const struct dlb_graph *g, int update)
{
	const struct dlb_op *o = &g->op[update];

	for (int i = 0; i < o->n_in; i++)
		if (o->in[i] >= 0 && g->tensor[o->in[i]].kind == DLB_T_WEIGHT)
			return o->in[i];
	dlb_bug("op %d updates no weight", update);
}

static int new_bucket(struct dlb_average *a, const struct dlb_program *p, const struct dlb_bucket *from, int index, struct dlb_error *err)
{
	const struct dlb_allreduce *how = from->how;
	struct average_bucket *b = &a->bucket[index];
	size_t size;

	b->cls = from->cls;
	flat_init(&b->flat, from->n_ops, how->n_chunks(&a->peers), &a->arena);
	for (int i = 0; i < from->n_ops; i++) {
		int t = weight_of(p->graph, from->op[i]);

		flat_add(&b->flat, &p->graph->tensor[t], a->state->value[t]);
	}
	size = dlb_dtype_bytes(b->flat.dtype);
	b->flat.packed = dlb_arena_alloc(&a->arena, (size_t)b->flat.count * size + 1);
	a->times.dense_bytes[b->cls] += (double)dlb_allreduce_bytes(how, &a->peers, a->replica, b->flat.count, b->flat.at, size, NULL);
	for (int k = 0; k < 3 && a->plan->sharing.gossip > 0.0; k++)
		b->part[k] = dlb_arena_alloc(&a->arena, (size_t)most_masked(a, &b->flat) * size + 1);
	if (a->server >= 0) {
		b->part[1] = dlb_arena_alloc(&a->arena, (size_t)b->flat.count * size + 1);
		return 0;
	}
	return collective_of(a, how, &b->flat, FIRST_TAG + index, &b->mean, err);
}

/* Weights are the same everywhere, the moments that they are made of each replica's own. */
static bool states_differ(const struct dlb_plan *p)
{
	return dlb_sharing_tensors(&p->sharing) > 1;
}

static int new_buckets(struct dlb_average *a, const struct dlb_program *p, const struct dlb_cluster *cluster, struct dlb_error *err)
{
	const struct dlb_plan *plan = a->plan;
	const struct dlb_node_program *np = &p->node[a->node];
	int R = plan->n_replicas, rc = 0, *peer = dlb_arena_array(&a->arena, (size_t)R, sizeof *peer);
	int *group = dlb_arena_array(&a->arena, (size_t)R, sizeof *group);

	dlb_plan_peers(plan, a->part, peer);
	dlb_plan_peer_groups(plan, cluster, a->part, group);
	a->peers = (struct dlb_ranks){ .n = R, .rank = peer, .group = group };
	a->left = peer[(a->replica + R - 1) % R];
	a->right = peer[(a->replica + 1) % R];
	a->bucket = dlb_xcalloc((size_t)np->n_buckets + 1, sizeof *a->bucket);
	for (int b = 0; b < np->n_buckets && !rc && dlb_sharing_averages(&plan->sharing); b++) {
		a->n_buckets++;
		rc = new_bucket(a, p, &np->bucket[b], b, err);
	}
	return rc;
}

int dlb_average_new(struct dlb_average **out, struct dlb_comm *c, const struct dlb_program *p, int node,
		    const struct dlb_cluster *cluster, struct dlb_state *state, uint64_t seed, struct dlb_error *err)
{
	const struct dlb_plan *plan = p->whole;
	int part = dlb_plan_part_of(plan, node), server = plan->sharing.param_server, n = 0;
	struct dlb_average *a;

	*out = NULL;
	if (plan->n_replicas < 2 || !(dlb_sharing_averages(&plan->sharing) || states_differ(plan)) || (part < 0 && node != server))
		return 0;
	a = dlb_xcalloc(1, sizeof *a);
	*a = (struct dlb_average){ .c = c, .state = state, .plan = plan, .replica = p->replica, .part = part, .server = server, .node = node,
				   .seed = seed };
	a->share = dlb_arena_array(&a->arena, (size_t)plan->n_replicas + 1, sizeof *a->share);
	if (part >= 0 && new_buckets(a, p, cluster, err)) {
		dlb_average_free(a);
		return -1;
	}
	for (int k = 0; k < plan->n_nodes && node == server; k++)
		if (plan->replica[p->replica][k] >= 0)
			n += p->node[plan->replica[p->replica][k]].n_buckets;
	a->served = dlb_xcalloc((size_t)n + 1, sizeof *a->served);
	for (int k = 0; k < plan->n_nodes && node == server; k++)
		for (int b = 0; plan->replica[p->replica][k] >= 0 && b < p->node[plan->replica[p->replica][k]].n_buckets; b++)
			new_served(a, p, k, b, &a->served[a->n_served++]);
	*out = a;
	return 0;
}

void dlb_average_free(struct dlb_average *a)
{
	if (!a)
		return;
	for (int b = 0; b < a->n_buckets; b++)
		dlb_collective_free(a->bucket[b].mean);
	free(a->bucket);
	free(a->served);
	dlb_arena_release(&a->arena);
	free(a);
}

/* ---- a step ---- */

void dlb_average_begin(struct dlb_average *a, int64_t step, const struct dlb_program *p)
{
	int64_t *share = dlb_xcalloc((size_t)a->plan->n_replicas, sizeof *share);

	a->step = step;
	a->steps++;
	a->times.time_s = a->times.hidden_s = 0.0;
	memset(a->times.class_s, 0, sizeof a->times.class_s);
	memset(a->times.class_hidden_s, 0, sizeof a->times.class_hidden_s);
	dlb_plan_shares(a->plan, p->step_batch, share);
	for (int r = 0; r < a->plan->n_replicas; r++)
		a->share[r] = (double)share[r] / (double)p->step_batch;
	free(share);
	for (int i = 0; i < a->n_served; i++) {
		a->served[i].answered = true;
		if (dlb_sharing_meets(&a->plan->sharing, step))
			serve_begin(a, &a->served[i]);
	}
}

static void sent(struct dlb_average *a, const struct average_bucket *b, double bytes)
{
	a->bytes[b->cls] += bytes;
}

static void start_push(struct dlb_average *a, struct average_bucket *b, int index)
{
	size_t bytes = (size_t)b->flat.count * dlb_dtype_bytes(b->flat.dtype);

	pack(&b->flat, b->flat.packed, false);
	if (a->server == a->node) {
		served_of(a, a->part, index)->own = b->flat.packed;
		return;
	}
	dlb_comm_irecv(a->c, b->part[1], bytes, a->server, FIRST_TAG + index, &b->request[0]);
	dlb_comm_isend(a->c, b->flat.packed, bytes, a->server, FIRST_TAG + index, &b->request[1]);
	sent(a, b, (double)bytes);
}

static void start_gossip(struct dlb_average *a, struct average_bucket *b, int index)
{
	size_t bytes;

	b->n_part = masked(a, &b->flat, b->part[0], false);
	bytes = (size_t)b->n_part * dlb_dtype_bytes(b->flat.dtype);
	dlb_comm_irecv(a->c, b->part[1], bytes, a->left, FIRST_TAG + index, &b->request[0]);
	dlb_comm_isend(a->c, b->part[0], bytes, a->right, FIRST_TAG + index, &b->request[1]);
	sent(a, b, (double)bytes);
	if (a->left == a->right)
		return;
	dlb_comm_irecv(a->c, b->part[2], bytes, a->right, FIRST_TAG + index, &b->request[2]);
	dlb_comm_isend(a->c, b->part[0], bytes, a->left, FIRST_TAG + index, &b->request[3]);
	sent(a, b, (double)bytes);
}

void dlb_average_start(struct dlb_average *a, int index)
{
	struct average_bucket *b = &a->bucket[index];
	bool meet = dlb_sharing_meets(&a->plan->sharing, a->step);

	b->how = meet ? (a->server >= 0 ? PUSH : MEAN) : a->plan->sharing.gossip > 0.0 ? GOSSIP : IDLE;
	memset(b->request, 0, sizeof b->request);
	if (b->how == IDLE)
		return;
	b->start_s = dlb_clock_s();
	if (a->n_active++ == 0)
		a->since_s = b->start_s;
	if (b->how == PUSH) {
		start_push(a, b, index);
	} else if (b->how == GOSSIP) {
		start_gossip(a, b, index);
	} else {
		pack(&b->flat, b->flat.packed, false);
		dlb_collective_start(b->mean);
		sent(a, b, (double)dlb_collective_bytes_sent(b->mean));
	}
}

static void end(struct dlb_average *a, struct average_bucket *b)
{
	double s = dlb_clock_s() - b->start_s;

	if (b->how == GOSSIP) {
		mix(b, a->left == a->right ? 1 : 2);
		masked(a, &b->flat, b->part[0], true);
	} else {
		if (b->how == MEAN)
			scale(b->flat.packed, b->flat.dtype, b->flat.count, 1.0 / a->plan->n_replicas);
		pack(&b->flat, b->how == MEAN ? b->flat.packed : b->part[1], true);
	}
	b->how = IDLE;
	a->times.class_s[b->cls] += s;
	a->times.class_hidden_s[b->cls] += s;
	if (--a->n_active == 0) {
		s = dlb_clock_s() - a->since_s;
		a->times.time_s += s;
		a->times.hidden_s += s;
	}
}

/* Whether everything of bucket b has come and gone. */
static bool come(struct dlb_average *a, struct average_bucket *b, int index)
{
	bool all = true;

	if (b->how == MEAN)
		return dlb_collective_test(b->mean) && !dlb_comm_broken(a->c);
	if (b->how == PUSH && a->server == a->node) {
		struct served *s = served_of(a, a->part, index);

		if (s->answered)
			memcpy(b->part[1], s->mean, (size_t)s->n * dlb_dtype_bytes(s->dtype));
		return s->answered;
	}
	for (int i = 0; i < 4; i++)
		all = dlb_comm_test(a->c, &b->request[i]) && all;
	return all && !dlb_comm_broken(a->c);
}

void dlb_average_nudge(struct dlb_average *a)
{
	for (int i = 0; i < a->n_served; i++)
		serve(a, &a->served[i]);
	for (int b = 0; b < a->n_buckets && a->n_active; b++)
		if (a->bucket[b].how != IDLE && come(a, &a->bucket[b], b))
			end(a, &a->bucket[b]);
}

int dlb_average_wait(struct dlb_average *a, int index, double *waited_s, struct dlb_error *err)
{
	struct average_bucket *b = &a->bucket[index];
	double start_s = dlb_clock_s(), s;
	struct dlb_idle idle = { 0 };
	enum dlb_sum_class cls = b->cls;

	if (b->how == IDLE)
		return 0;
	while (b->how != IDLE) {
		dlb_average_nudge(a);
		if (b->how != IDLE && dlb_comm_idle(a->c, &idle, b->how == PUSH && a->server != a->node ? a->server : -1, "average of weights", err))
			return -1;
	}
	s = dlb_clock_s() - start_s;
	*waited_s += s;
	a->times.hidden_s -= s;
	a->times.class_hidden_s[cls] -= s;
	return 0;
}

int dlb_average_settle(struct dlb_average *a, struct dlb_error *err)
{
	struct dlb_idle idle = { 0 };
	bool all = false;

	while (!all) {
		all = true;
		for (int i = 0; i < a->n_served; i++)
			all = serve(a, &a->served[i]) && all;
		if (!all && dlb_comm_idle(a->c, &idle, -1, "pushes to the parameter server", err))
			return -1;
	}
	for (int k = 0; k < DLB_N_SUM_CLASSES; k++)
		a->times.bytes[k] = a->bytes[k] / (double)a->steps;
	return 0;
}

/* ---- all there is ---- */

static void add_state(const struct dlb_average *a, enum dlb_dtype dtype, struct flat *f)
{
	const struct dlb_state *s = a->state;

	for (int t = 0; t < s->graph->n_tensors; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];

		if (!s->value[t] || x->dtype != dtype)
			continue;
		if (!states_differ(a->plan))
			flat_add(f, x, s->value[t]);
		for (int k = 0; k < s->n_slots; k++)
			if (s->slot[k][t])
				flat_add(f, x, s->slot[k][t]);
	}
}

static double value_at(const void *x, enum dlb_dtype dtype, int64_t i)
{
	return dtype == DLB_F64 ? ((const double *)x)[i] : ((const float *)x)[i];
}

/* How far the weights were (own) from the means that they are now. */
static void measure(const struct dlb_average *a, enum dlb_dtype dtype, char *const *own, double *apart2, double *norm2)
{
	const struct dlb_state *s = a->state;

	for (int t = 0; t < s->graph->n_tensors; t++) {
		struct dlb_desc d = dlb_tensor_desc(&s->graph->tensor[t], 1);

		for (int64_t i = 0, n = own[t] ? dlb_desc_count(&d) : 0; i < n; i++) {
			double m = value_at(s->value[t], dtype, i), x = value_at(own[t], dtype, i) - m;

			*apart2 += x * x;
			*norm2 += m * m;
		}
	}
}

static char **copy_weights(const struct dlb_average *a, enum dlb_dtype dtype, struct dlb_arena *arena)
{
	const struct dlb_state *s = a->state;
	char **own = dlb_arena_array(arena, (size_t)s->graph->n_tensors + 1, sizeof *own);

	for (int t = 0; t < s->graph->n_tensors; t++) {
		const struct dlb_tensor *x = &s->graph->tensor[t];
		size_t bytes = (size_t)dlb_tensor_bytes(x, 1);

		if (s->value[t] && x->dtype == dtype && x->kind == DLB_T_WEIGHT && !states_differ(a->plan))
			own[t] = memcpy(dlb_arena_alloc(arena, bytes + 1), s->value[t], bytes);
	}
	return own;
}

static int average_of(struct dlb_average *a, enum dlb_dtype dtype, double *apart2, double *norm2, struct dlb_error *err)
{
	const struct dlb_allreduce *how = dlb_sharing_sum(&a->plan->sharing, INFINITY);	/* the same wherever the state lies */
	struct dlb_arena arena = { 0 };
	struct dlb_collective *k;
	struct flat f = { .dtype = dtype };
	char **own = copy_weights(a, dtype, &arena);
	int rc = 0;

	flat_init(&f, (1 + DLB_MAX_STATES) * a->state->graph->n_tensors, how->n_chunks(&a->peers), &arena);
	add_state(a, dtype, &f);
	f.packed = dlb_arena_alloc(&arena, (size_t)f.count * dlb_dtype_bytes(dtype) + 1);
	pack(&f, f.packed, false);
	if (f.count && !(rc = collective_of(a, how, &f, DLB_TAG_WEIGHTS + 1, &k, err))) {
		dlb_collective_start(k);
		rc = dlb_collective_wait(k, err);
		dlb_collective_free(k);
		scale(f.packed, dtype, f.count, 1.0 / a->plan->n_replicas);
		pack(&f, f.packed, true);
	}
	measure(a, dtype, own, apart2, norm2);
	dlb_arena_release(&arena);
	return rc;
}

int dlb_average_all(struct dlb_average *a, struct dlb_comm *c, const struct dlb_plan *p, double *apart, struct dlb_error *err)
{
	double sums[2] = { 0.0 };

	*apart = NAN;
	if (p->n_replicas < 2 || !(dlb_sharing_averages(&p->sharing) || states_differ(p)))
		return 0;
	if (a && a->part >= 0 && (average_of(a, DLB_F32, &sums[0], &sums[1], err) || average_of(a, DLB_F64, &sums[0], &sums[1], err)))
		return -1;
	if (dlb_comm_allreduce_f64(c, sums, 2, DLB_COMM_SUM, err))
		return -1;
	if (dlb_sharing_averages(&p->sharing))
		*apart = sums[1] > 0.0 ? sqrt(sums[0] / sums[1]) : 0.0;		/* both are sums over the replicas */
	return 0;
}

const struct dlb_exchange_times *dlb_average_times(const struct dlb_average *a)
{
	return &a->times;
}
