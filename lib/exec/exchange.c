/* Sums of gradients over the replicas. See exchange.h. Where weights are averaged, average.c does it.
 *
 * A gradient of its own bucket is summed where it lies. Small ones are packed into one array, chunk by chunk: first
 * every tensor's first chunk, then every tensor's second, and so on, so that each *tensor* is cut into as many chunks as
 * the algorithm has, whatever bucket it travels in, and the bits do not depend on who shares a bucket with whom. */
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "exec/average.h"
#include "exec/exchange.h"
#include "util/clock.h"
#include "util/mem.h"

enum { FIRST_TAG = 1 << 28 };			/* above those of all messages */

struct bucket {
	struct dlb_collective *sum;
	int n_ops, n_chunks;
	char **x; int64_t *n;			/* [n_ops] gradients, their elements */
	char *packed;				/* NULL: one gradient, summed where it lies */
	enum dlb_sum_class cls;
	bool active, done;				/* under way; every byte has come */
	double start_s;
};
struct dlb_exchange {
	struct dlb_average *average;		/* in place of sums, borrowed; NULL: none */
	const struct dlb_program *program;
	struct bucket *bucket;
	int n_buckets, n_active;
	size_t element_bytes;
	double since_s;				/* something is under way since */
	struct dlb_exchange_times times;
	struct dlb_arena arena;
};

/* Copies between the gradients and the packed array. */
static void pack(const struct bucket *b, size_t size, bool out)
{
	char *at = b->packed;

	for (int c = 0; c < b->n_chunks; c++) {
		for (int i = 0; i < b->n_ops; i++) {
			int64_t from = dlb_chunk_at(b->n[i], b->n_chunks, c), to = dlb_chunk_at(b->n[i], b->n_chunks, c + 1);
			size_t bytes = (size_t)(to - from) * size;
			char *own = b->x[i] + (size_t)from * size;

			memcpy(out ? own : at, out ? at : own, bytes);
			at += bytes;
		}
	}
}

static int new_bucket(struct dlb_exchange *x, struct dlb_comm *c, const struct dlb_program *p, const struct dlb_bucket *from, int index,
		      const struct dlb_ranks *ranks, void *const *gradient, struct dlb_error *err)
{
	struct bucket *b = &x->bucket[index];
	const struct dlb_allreduce *how = dlb_allreduce_find(p->whole->sharing.allreduce);
	struct dlb_collective_desc d = { .how = how, .ranks = *ranks, .n = from->n, .tag = FIRST_TAG + index };
	int64_t *at;
	int rc;

	b->n_ops = from->n_ops;
	b->cls = from->cls;
	b->n_chunks = how->n_chunks(ranks);
	b->x = dlb_arena_array(&x->arena, (size_t)b->n_ops, sizeof *b->x);
	b->n = dlb_arena_array(&x->arena, (size_t)b->n_ops, sizeof *b->n);
	at = dlb_xcalloc((size_t)b->n_chunks + 1, sizeof *at);
	for (int i = 0; i < b->n_ops; i++) {
		const struct dlb_tensor *t = &p->graph->tensor[dlb_update_gradient(p->graph, from->op[i])];
		struct dlb_desc desc = dlb_tensor_desc(t, 1);

		d.dtype = t->dtype;
		b->x[i] = gradient[from->op[i]];
		b->n[i] = dlb_desc_count(&desc);
		for (int k = 0; k <= b->n_chunks; k++)
			at[k] += dlb_chunk_at(b->n[i], b->n_chunks, k);
	}
	x->element_bytes = dlb_dtype_bytes(d.dtype);
	if (b->n_ops > 1)
		b->packed = dlb_arena_alloc(&x->arena, (size_t)from->n * x->element_bytes);
	d.x = b->packed ? b->packed : b->x[0];
	d.at = at;
	rc = dlb_collective_new(&b->sum, c, &d, err);
	if (rc) {
		free(at);
		return -1;
	}
	x->times.bytes[b->cls] += (double)dlb_collective_bytes_sent(b->sum);
	x->times.dense_bytes[b->cls] += (double)dlb_allreduce_bytes(how, ranks, dlb_ranks_member(ranks, dlb_comm_rank(c)), from->n, at,
								    x->element_bytes, NULL);
	free(at);
	return 0;
}

int dlb_exchange_new(struct dlb_exchange **out, struct dlb_comm *c, const struct dlb_program *p, int node,
		     const struct dlb_cluster *cluster, void *const *gradient, struct dlb_average *average, struct dlb_error *err)
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
	x->bucket = dlb_xcalloc((size_t)np->n_buckets, sizeof *x->bucket);
	peer = dlb_xcalloc((size_t)ranks.n, sizeof *peer);
	group = dlb_xcalloc((size_t)ranks.n, sizeof *group);
	dlb_plan_peers(plan, part, peer);
	dlb_plan_peer_groups(plan, cluster, part, group);
	ranks.rank = peer;
	ranks.group = group;
	for (int b = 0; b < np->n_buckets && !rc; b++) {
		rc = new_bucket(x, c, p, &np->bucket[b], b, &ranks, gradient, err);
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

void dlb_exchange_free(struct dlb_exchange *x)
{
	if (!x)
		return;
	for (int b = 0; b < x->n_buckets; b++)
		dlb_collective_free(x->bucket[b].sum);
	free(x->bucket);
	dlb_arena_release(&x->arena);
	free(x);
}

void dlb_exchange_begin(struct dlb_exchange *x, int64_t step)
{
	if (x->average)
		dlb_average_begin(x->average, step, x->program);
	x->times.time_s = x->times.hidden_s = 0.0;
	memset(x->times.class_s, 0, sizeof x->times.class_s);
	memset(x->times.class_hidden_s, 0, sizeof x->times.class_hidden_s);
	for (int b = 0; b < x->n_buckets; b++)
		x->bucket[b].active = x->bucket[b].done = false;
}

void dlb_exchange_start(struct dlb_exchange *x, int b)
{
	struct bucket *k = &x->bucket[b];

	if (x->average) {
		dlb_average_start(x->average, b);
		return;
	}
	if (k->packed)
		pack(k, x->element_bytes, false);
	if (x->n_active++ == 0)
		x->since_s = dlb_clock_s();
	k->active = true;
	k->start_s = dlb_clock_s();
	dlb_collective_start(k->sum);
}

static void end(struct dlb_exchange *x, struct bucket *k)
{
	if (k->done)
		return;
	k->done = true;
	x->times.class_s[k->cls] += dlb_clock_s() - k->start_s;
	x->times.class_hidden_s[k->cls] += dlb_clock_s() - k->start_s;
	if (k->packed)
		pack(k, x->element_bytes, true);
	if (--x->n_active == 0) {
		double s = dlb_clock_s() - x->since_s;

		x->times.time_s += s;
		x->times.hidden_s += s;
	}
}

void dlb_exchange_nudge(struct dlb_exchange *x)
{
	if (x->average)
		dlb_average_nudge(x->average);
	for (int b = 0; b < x->n_buckets && x->n_active; b++)
		if (x->bucket[b].active && !x->bucket[b].done && dlb_collective_test(x->bucket[b].sum))
			end(x, &x->bucket[b]);
}

int dlb_exchange_wait(struct dlb_exchange *x, int b, double *waited_s, struct dlb_error *err)
{
	struct bucket *k = &x->bucket[b];
	double start_s = dlb_clock_s(), s;

	if (x->average)
		return dlb_average_wait(x->average, b, waited_s, err);
	if (!k->active)
		return 0;
	if (dlb_collective_wait(k->sum, err))		/* also tells what went wrong in a nudge */
		return -1;
	k->active = false;
	s = dlb_clock_s() - start_s;
	*waited_s += s;
	if (!k->done) {
		x->times.hidden_s -= s;
		x->times.class_hidden_s[k->cls] -= s;
	}
	end(x, k);
	return 0;
}

int dlb_exchange_settle(struct dlb_exchange *x, struct dlb_error *err)
{
	return x->average ? dlb_average_settle(x->average, err) : 0;
}

int dlb_exchange_command(struct dlb_comm *c, double *waited_s, double *command_s, struct dlb_error *err)
{
	double start_s = dlb_clock_s();
	char word = 0, *all = dlb_xcalloc((size_t)dlb_comm_size(c), 1);
	int rc = dlb_comm_gather(c, &word, 1, all, 0, err) || dlb_comm_bcast(c, &word, 1, 0, err) ? -1 : 0;

	free(all);
	*waited_s += dlb_clock_s() - start_s;
	*command_s += dlb_clock_s() - start_s;
	return rc;
}

const struct dlb_exchange_times *dlb_exchange_times(const struct dlb_exchange *x)
{
	return x->average ? dlb_average_times(x->average) : &x->times;
}
