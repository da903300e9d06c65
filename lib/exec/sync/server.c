/* A parameter server: every few steps the replicas push their weights to one node. It computes the mean,
 * weighted by the replicas' shares of the batch and summed in the order of replicas, and sends it back: the
 * same bits everywhere. A server that is itself a node of a replica serves while it computes. */
#include <string.h>
#include "exec/sync/ways.h"
#include "plan/buckets.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "util/mem.h"

/* On the server: bucket `bucket` of part `part`, for all replicas. */
struct dlb_sync_served {
	int part, bucket;
	int64_t n;
	enum dlb_dtype dtype;
	enum dlb_sum_class cls;
	double *weight;			/* [replica] its share of the batch; shared by all served buckets */
	char **pushed, *mean;		/* pushed: [replica] NULL: the server's own */
	struct dlb_request *in, *out;	/* [replica] */
	bool answered;
	const char *own;		/* pushed by the server to itself; NULL: not yet, or no such part */
};
/* A bucket of a replica. */
struct push {
	char *pushed, *pulled;
	struct dlb_sync_served *served;	/* NULL: another node is the server */
	struct dlb_request request[2];
};

/* ---- the server ---- */

static void add_served(struct dlb_sync *x, int part, int bucket, double *weight)
{
	const struct dlb_program *p = x->d.program;
	const struct dlb_bucket *from = &p->node[x->plan->replica[p->replica][part]].bucket[bucket];
	const size_t R = (size_t)x->plan->n_replicas;
	struct dlb_sync_served *s = &x->served[x->n_served++];
	size_t bytes;

	*s = (struct dlb_sync_served){ .part = part,
				       .bucket = bucket,
				       .n = from->n,
				       .cls = from->cls,
				       .weight = weight,
				       .answered = true };
	s->dtype = p->graph->tensor[dlb_update_gradient(p->graph, from->op[0])].dtype;
	bytes = (size_t)s->n * dlb_dtype_bytes(s->dtype) + 1;
	s->pushed = dlb_arena_array(&x->arena, R, sizeof *s->pushed);
	s->in = dlb_arena_array(&x->arena, R, sizeof *s->in);
	s->out = dlb_arena_array(&x->arena, R, sizeof *s->out);
	s->mean = dlb_arena_alloc(&x->arena, bytes);
	for (size_t r = 0; r < R; r++)
		if (x->plan->replica[r][part] != x->d.node)
			s->pushed[r] = dlb_arena_alloc(&x->arena, bytes);
}

/* If this node is the server, makes the served buckets of every part. */
static void open(struct dlb_sync *x)
{
	const struct dlb_program *p = x->d.program;
	const int *node = x->plan->replica[p->replica];		/* [part] -1: no ops */
	double *weight;
	size_t n = 0;

	if (x->d.node != x->plan->sharing.param_server)
		return;
	for (int k = 0; k < x->plan->n_nodes; k++)
		n += node[k] >= 0 ? (size_t)p->node[node[k]].n_buckets : 0;
	x->served = dlb_arena_array(&x->arena, n + 1, sizeof *x->served);
	x->share = dlb_arena_array(&x->arena, (size_t)x->plan->n_replicas, sizeof *x->share);
	weight = dlb_arena_array(&x->arena, (size_t)x->plan->n_replicas, sizeof *weight);
	for (int k = 0; k < x->plan->n_nodes; k++)
		for (int b = 0; node[k] >= 0 && b < p->node[node[k]].n_buckets; b++)
			add_served(x, k, b, weight);
}

static void begin(struct dlb_sync *x, const struct dlb_program *p)
{
	const int R = x->plan->n_replicas;

	if (!x->n_served)
		return;
	dlb_plan_shares(x->plan, p->step_batch, x->share);
	for (int r = 0; r < R; r++)
		x->served->weight[r] = (double)x->share[r] / (double)p->step_batch;
	for (int i = 0; i < x->n_served; i++) {
		struct dlb_sync_served *s = &x->served[i];
		const size_t bytes = (size_t)s->n * dlb_dtype_bytes(s->dtype);

		s->answered = true;
		if (!dlb_sharing_meets(&x->plan->sharing, x->step))
			continue;
		s->answered = false;
		s->own = NULL;
		for (int r = 0; r < R; r++)
			if (s->pushed[r])
				dlb_comm_irecv(x->d.comm, s->pushed[r], bytes, x->plan->replica[r][s->part],
					       dlb_tag_of_bucket(s->bucket), &s->in[r]);
	}
}

static void compute_mean(struct dlb_sync_served *s, int n_replicas)
{
	for (int64_t i = 0; i < s->n; i++) {
		double sum = 0.0;

		for (int r = 0; r < n_replicas; r++) {
			const char *x = s->pushed[r] ? s->pushed[r] : s->own;

			sum += s->weight[r] * (s->dtype == DLB_F64 ? ((const double *)(const void *)x)[i] :
							     ((const float *)(const void *)x)[i]);
		}
		if (s->dtype == DLB_F64)
			((double *)(void *)s->mean)[i] = sum;
		else
			((float *)(void *)s->mean)[i] = (float)sum;
	}
}

/* Answers when all replicas have pushed. Returns whether all answers have been sent. */
static bool serve(struct dlb_sync *x, struct dlb_sync_served *s)
{
	const int R = x->plan->n_replicas;
	const size_t bytes = (size_t)s->n * dlb_dtype_bytes(s->dtype);
	bool all = true;

	for (int r = 0; r < R && !s->answered; r++)
		all = (s->pushed[r] ? dlb_comm_test(x->d.comm, &s->in[r]) : s->own != NULL) && all;
	if (!all)
		return false;
	if (!s->answered) {
		compute_mean(s, R);
		for (int r = 0; r < R; r++) {
			if (!s->pushed[r])
				continue;
			dlb_comm_isend(x->d.comm, s->mean, bytes, x->plan->replica[r][s->part],
				       dlb_tag_of_bucket(s->bucket), &s->out[r]);
			x->sent[s->cls] += (double)bytes;
		}
		s->answered = true;
	}
	for (int r = 0; r < R; r++)
		all = (!s->pushed[r] || dlb_comm_test(x->d.comm, &s->out[r])) && all;
	return all;
}

static void nudge(struct dlb_sync *x)
{
	for (int i = 0; i < x->n_served; i++)
		serve(x, &x->served[i]);
}

static int settle(struct dlb_sync *x, struct dlb_error *err)
{
	struct dlb_idle idle = { 0 };
	bool all = false;

	while (!all) {
		all = true;
		for (int i = 0; i < x->n_served; i++)
			all = serve(x, &x->served[i]) && all;
		if (!all && dlb_comm_idle(x->d.comm, &idle, -1, "pushes to the parameter server", err))
			return -1;
	}
	return 0;
}

/* ---- a bucket of a replica ---- */

static int init(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	struct dlb_sync *x = b->sync;
	struct push *p = b->own = dlb_arena_alloc(&x->arena, sizeof *p);

	(void)from;
	(void)err;
	dlb_sync_pack_weights(b);
	x->fixed.dense_bytes[b->cls] += dlb_sync_dense_bytes(b);
	p->pushed = dlb_arena_alloc(&x->arena, (size_t)b->pack.n * b->pack.element_bytes + 1);
	p->pulled = dlb_arena_alloc(&x->arena, (size_t)b->pack.n * b->pack.element_bytes + 1);
	for (int i = 0; i < x->n_served; i++)
		if (x->served[i].part == x->part && x->served[i].bucket == b->index)
			p->served = &x->served[i];
	b->peer = p->served ? -1 : x->plan->sharing.param_server;
	return 0;
}

static void load(struct dlb_sync_bucket *b)
{
	struct push *p = b->own;

	memset(p->request, 0, sizeof p->request);
	dlb_pack_load(&b->pack, p->pushed);
}

static void start(struct dlb_sync_bucket *b)
{
	struct push *p = b->own;
	const size_t bytes = (size_t)b->pack.n * b->pack.element_bytes;
	const int tag = dlb_tag_of_bucket(b->index);

	if (p->served) {
		p->served->own = p->pushed;
		return;
	}
	dlb_comm_irecv(b->sync->d.comm, p->pulled, bytes, b->peer, tag, &p->request[0]);
	dlb_comm_isend(b->sync->d.comm, p->pushed, bytes, b->peer, tag, &p->request[1]);
	b->sync->sent[b->cls] += (double)bytes;
}

static bool test(struct dlb_sync_bucket *b)
{
	struct push *p = b->own;
	bool all = true;

	if (p->served)
		return p->served->answered;
	for (int i = 0; i < DLB_LEN(p->request); i++)
		all = dlb_comm_test(b->sync->d.comm, &p->request[i]) && all;
	return all && !dlb_comm_broken(b->sync->d.comm);
}

static void take(struct dlb_sync_bucket *b)
{
	struct push *p = b->own;

	dlb_pack_unload(&b->pack, p->served ? p->served->mean : p->pulled);
}

const struct dlb_sync_ops dlb_sync_server = {
	.name = "parameter server",
	.init = init,
	.due = dlb_sync_meets,
	.load = load,
	.start = start,
	.test = test,
	.wait = dlb_sync_poll,
	.take = take,
	.open = open,
	.begin = begin,
	.nudge = nudge,
	.settle = settle,
};
