/* Runs buckets of replicas from start to end, in the same way for all ways of synchronising. See sync.h. */
#include "exec/sync/sync.h"
#include <stdlib.h>
#include <string.h>
#include "exec/memories.h"
#include "exec/sync/ways.h"
#include "plan/by_class.h"
#include "plan/replica.h"
#include "plan/sharing.h"
#include "util/clock.h"
#include "util/mem.h"

_Static_assert((int)DLB_N_TRAFFIC == (int)DLB_SUM_STATISTICS && (int)DLB_TRAFFIC_SMALL == (int)DLB_SUM_SMALL,
	       "classes in one order");

static const struct dlb_sync_ops *const ways[] = {
	&dlb_sync_sum,
	&dlb_sync_statistics,
	&dlb_sync_compressed,
	&dlb_sync_factors,
	&dlb_sync_compressed_factors,
	&dlb_sync_scatter,
	&dlb_sync_gather,
	&dlb_sync_ahead,
	&dlb_sync_mean,
	&dlb_sync_gossip,
	&dlb_sync_server,
	NULL,
};
enum { MOST_WAYS = 2 };

/* Chooses the ways to synchronise one bucket; no two are due in the same step. Returns their number. */
static int choose(const struct dlb_sync *x, const struct dlb_bucket *from,
		  const struct dlb_sync_ops *way[MOST_WAYS])
{
	static const struct dlb_sync_ops *const sums[DLB_N_SUM_CLASSES][2] = { /* dense, compressed */
		[DLB_SUM_GRADIENT] = { &dlb_sync_sum, &dlb_sync_compressed },
		[DLB_SUM_SMALL] = { &dlb_sync_sum, &dlb_sync_compressed },
		[DLB_SUM_FACTOR] = { &dlb_sync_factors, &dlb_sync_compressed_factors },
		[DLB_SUM_STATISTICS] = { &dlb_sync_statistics, &dlb_sync_statistics },
		[DLB_SUM_WEIGHTS] = { &dlb_sync_gather, &dlb_sync_gather },
	};
	const struct dlb_sharing *s = &x->plan->sharing;
	int n = 0;

	if (!dlb_sharing_averages(s)) {
		way[n++] = from->ahead ? &dlb_sync_ahead :
			   from->how == &dlb_ring_scatter ?
				   &dlb_sync_scatter :
				   sums[from->cls][dlb_sum_is_compressed(from->cls) &&
						   x->choice[from->cls].how != DLB_COMPRESS_NONE];
		return n;
	}
	way[n++] = s->param_server >= 0 ? &dlb_sync_server : &dlb_sync_mean;
	if (s->gossip > 0)
		way[n++] = &dlb_sync_gossip;
	return n;
}

void dlb_sync_find_peers(const struct dlb_plan *p, const struct dlb_cluster *cluster, int part,
			 struct dlb_arena *arena, struct dlb_ranks *peers)
{
	int *peer = dlb_arena_array(arena, (size_t)p->n_replicas, sizeof *peer);
	int *group = dlb_arena_array(arena, (size_t)p->n_replicas, sizeof *group);

	dlb_plan_peers(p, part, peer);
	dlb_plan_peer_groups(p, cluster, part, group);
	*peers = (struct dlb_ranks){ .n = p->n_replicas, .rank = peer, .group = group };
}

static int open_buckets(struct dlb_sync *x, struct dlb_error *err)
{
	const struct dlb_node_program *np = &x->d.program->node[x->d.node];

	x->first = dlb_arena_array(&x->arena, (size_t)np->n_buckets + 1, sizeof *x->first);
	x->bucket = dlb_xcalloc(MOST_WAYS * (size_t)np->n_buckets + 1, sizeof *x->bucket);
	for (int i = 0; i < np->n_buckets; i++) {
		const struct dlb_sync_ops *way[MOST_WAYS];
		const int n_ways = choose(x, &np->bucket[i], way);

		for (int k = 0; k < n_ways; k++) {
			struct dlb_sync_bucket *b = &x->bucket[x->n++];

			*b = (struct dlb_sync_bucket){ .ops = way[k],
						       .sync = x,
						       .from = &np->bucket[i],
						       .index = i,
						       .cls = np->bucket[i].cls,
						       .peer = -1,
						       .times = &x->times };
			if (b->ops->init(b, b->from, err))
				return -1;
		}
		x->first[i + 1] = x->n;
	}
	return 0;
}

int dlb_sync_new(struct dlb_sync **out, const struct dlb_sync_desc *d, struct dlb_error *err)
{
	const struct dlb_plan *plan = d->program->whole;
	const int part = dlb_plan_part_of(plan, d->node);
	const bool averages = dlb_sharing_averages(&plan->sharing);
	const bool has_part = part >= 0 && (averages || d->program->node[d->node].n_buckets);
	struct dlb_sync *x;

	*out = NULL;
	if (plan->n_replicas < 2 || !(has_part || (averages && d->node == plan->sharing.param_server)))
		return 0;
	x = dlb_xcalloc(1, sizeof *x);
	x->d = *d;
	x->plan = plan;
	x->part = part;
	for (int k = 0; k < DLB_N_COMPRESSED && !averages; k++) {
		x->choice[k] = dlb_program_compress(d->program, k);
		dlb_compress_settle(&x->choice[k], d->last_step);
	}
	for (int i = 0; ways[i]; i++)
		if (ways[i]->open)
			ways[i]->open(x);
	if (has_part) {
		dlb_sync_find_peers(plan, d->cluster, part, &x->arena, &x->peers);
		if (open_buckets(x, err)) {
			dlb_sync_free(x);
			return -1;
		}
	}
	*out = x;
	return 0;
}

void dlb_sync_free(struct dlb_sync *x)
{
	if (!x)
		return;
	for (int i = 0; i < x->n; i++) {
		struct dlb_sync_bucket *b = &x->bucket[i];

		dlb_collective_free(b->sum);
		dlb_compressor_free(b->less);
		dlb_pack_release(&b->pack);
		if (b->buffer && !b->borrows && dlb_comm_offset(x->d.comm, b->buffer) != SIZE_MAX)
			dlb_comm_release(x->d.comm, b->buffer);
	}
	free(x->bucket);
	dlb_arena_release(&x->arena);
	free(x);
}

int dlb_sync_put(const struct dlb_sync *x, struct dlb_memories *m, struct dlb_error *err)
{
	for (int i = 0; x && i < x->n; i++) {
		const struct dlb_sync_bucket *b = &x->bucket[i];

		if (b->buffer && !b->borrows &&
		    dlb_memories_put(m, DLB_BUF_STATE, b->buffer, (size_t)b->pack.n * b->pack.element_bytes,
				     err))
			return -1;
	}
	return 0;
}

void dlb_sync_begin(struct dlb_sync *x, const struct dlb_program *p, int64_t step)
{
	x->step = step;
	x->steps++;
	memcpy(x->times.bytes, x->fixed.bytes, sizeof x->times.bytes);
	memcpy(x->times.dense_bytes, x->fixed.dense_bytes, sizeof x->times.dense_bytes);
	x->times.time_s = x->times.hidden_s = 0.0;
	memset(x->times.class_s, 0, sizeof x->times.class_s);
	memset(x->times.class_hidden_s, 0, sizeof x->times.class_hidden_s);
	for (int i = 0; i < x->n; i++) {
		struct dlb_sync_bucket *b = &x->bucket[i];

		b->ran = false;
		/* until the bucket is complete: the last step's bytes */
		for (int k = 0; k < DLB_N_TRAFFIC; k++) {
			x->times.bytes[k] += b->sent[k];
			x->times.dense_bytes[k] += b->sent_dense[k];
		}
	}
	for (int i = 0; ways[i]; i++)
		if (ways[i]->begin)
			ways[i]->begin(x, p);
}

static bool is_due(const struct dlb_sync_bucket *b) { return !b->ops->due || b->ops->due(b); }

bool dlb_sync_is_due(const struct dlb_sync *x, int bucket)
{
	for (int i = x->first[bucket]; i < x->first[bucket + 1]; i++)
		if (is_due(&x->bucket[i]))
			return true;
	return false;
}

void dlb_sync_start(struct dlb_sync *x, int bucket, int64_t step)
{
	for (int i = x->first[bucket]; i < x->first[bucket + 1]; i++) {
		struct dlb_sync_bucket *b = &x->bucket[i];

		if (!is_due(b))
			continue;
		b->step = step;
		b->ops->load(b);
		b->start_s = dlb_clock_s();
		if (x->n_active++ == 0)
			x->since_s = b->start_s;
		b->active = true;
		b->done = false;
		b->ops->start(b);
	}
}

static void finish(struct dlb_sync_bucket *b)
{
	struct dlb_sync *x = b->sync;

	memset(b->took_s, 0, sizeof b->took_s);
	b->took_s[b->cls] = dlb_clock_s() - b->start_s;
	b->done = b->ran = true;
	b->ops->take(b);
	for (int k = 0; k < DLB_N_SUM_CLASSES; k++) {
		b->times->class_s[k] += b->took_s[k];
		b->times->class_hidden_s[k] += b->took_s[k];
	}
	if (--x->n_active == 0) {
		double s = dlb_clock_s() - x->since_s;

		x->times.time_s += s;
		x->times.hidden_s += s;
	}
}

void dlb_sync_nudge(struct dlb_sync *x)
{
	for (int i = 0; ways[i]; i++)
		if (ways[i]->nudge)
			ways[i]->nudge(x);
	for (int i = 0; i < x->n && x->n_active; i++)
		if (x->bucket[i].active && !x->bucket[i].done && x->bucket[i].ops->test(&x->bucket[i]))
			finish(&x->bucket[i]);
}

int dlb_sync_poll(struct dlb_sync_bucket *b, struct dlb_error *err)
{
	struct dlb_idle idle = { 0 };

	while (!b->done) {
		dlb_sync_nudge(b->sync);
		if (!b->done && dlb_comm_idle(b->sync->d.comm, &idle, b->peer, "average of weights", err))
			return -1;
	}
	return 0;
}

/* Subtracts the s seconds of waiting for bucket b from the hidden seconds: from each class by its share of
 * the bucket's time. */
static void count_wait(const struct dlb_sync_bucket *b, double s)
{
	double all = 0;

	b->sync->times.hidden_s -= s;
	for (int k = 0; k < DLB_N_SUM_CLASSES; k++)
		all += b->took_s[k];
	for (int k = 0; k < DLB_N_SUM_CLASSES && all > 0; k++)
		b->times->class_hidden_s[k] -= (s < all ? s : all) * b->took_s[k] / all;
}

int dlb_sync_wait(struct dlb_sync *x, int bucket, double *waited_s, struct dlb_error *err)
{
	for (int i = x->first[bucket]; i < x->first[bucket + 1]; i++) {
		struct dlb_sync_bucket *b = &x->bucket[i];
		const double start_s = dlb_clock_s();
		const bool was_done = b->done;
		double s;

		if (!b->active)
			continue;
		if (b->ops->wait(b, err))	/* also when done: reports failures of a nudge */
			return -1;
		b->active = false;
		s = dlb_clock_s() - start_s;
		*waited_s += s;
		if (!b->done)
			finish(b);
		if (!was_done)
			count_wait(b, s);
	}
	return 0;
}

int dlb_sync_settle(struct dlb_sync *x, struct dlb_error *err)
{
	for (int i = 0; ways[i]; i++)
		if (ways[i]->settle && ways[i]->settle(x, err))
			return -1;
	for (int k = 0; k < DLB_N_SUM_CLASSES; k++)
		x->times.bytes[k] += x->sent[k] / (double)x->steps;
	return 0;
}

const struct dlb_sync_times *dlb_sync_times(const struct dlb_sync *x)
{
	return &x->times;
}

int dlb_sync_verdict(const struct dlb_sync *x, struct dlb_error *err)
{
	for (int i = 0; i < x->n; i++)
		if (x->bucket[i].ops->verdict && x->bucket[i].ran &&
		    x->bucket[i].ops->verdict(&x->bucket[i], err))
			return -1;
	return 0;
}
