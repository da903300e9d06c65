/* Gossip: after a step each replica averages a random share of its weights with its two neighbours in the
 * ring of replicas. The random numbers are keyed by seed, step and tensor, so all draw the same share and no
 * indices are sent. Every weight's mean over the replicas stays the same, since each coordinate is mixed by a
 * doubly stochastic matrix (S. Boyd, A. Ghosh, B. Prabhakar, D. Shah, Randomized gossip algorithms, IEEE
 * Trans. Inf. Theory 52, 2006).
 *
 * In the steps in which all replicas meet, mean.c runs instead. */
#include <math.h>
#include <string.h>
#include "exec/sync/ways.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/rng.h"

enum { OWN, FROM_LEFT, FROM_RIGHT, N_SHARES };
struct gossip {
	int left, right;		/* ranks of the neighbours */
	uint64_t *stream;		/* [part] of pack: key of its random numbers */
	char *share[N_SHARES];		/* the elements drawn */
	int64_t n_drawn;
	struct dlb_request request[4];
};

static bool due(const struct dlb_sync_bucket *b)
{
	return !dlb_sync_meets(b);
}

static int init(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	struct dlb_sync *x = b->sync;
	const int R = x->plan->n_replicas, replica = x->d.program->replica;
	struct gossip *g = b->own = dlb_arena_alloc(&x->arena, sizeof *g);
	int64_t most = 0;

	(void)from;
	(void)err;
	dlb_sync_pack_weights(b);
	g->left = x->peers.rank[(replica + R - 1) % R];
	g->right = x->peers.rank[(replica + 1) % R];
	g->stream = dlb_arena_array(&x->arena, (size_t)b->pack.n_parts + 1, sizeof *g->stream);
	for (int i = 0; i < b->pack.n_parts; i++) {
		g->stream[i] =
			dlb_hash_str(DLB_HASH_INIT, x->d.program->graph->tensor[b->pack.part[i].class].name);
		most += (int64_t)(x->plan->sharing.gossip * (double)b->pack.part[i].n) + 1;
	}
	for (int k = 0; k < N_SHARES; k++)
		g->share[k] = dlb_arena_alloc(&x->arena, (size_t)most * b->pack.element_bytes + 1);
	return 0;
}

/* Copies the elements that are drawn in this step from the weights to `share`, or, with `out`, back from
 * `share`. From every tensor, the fraction `gossip` of its elements is drawn without replacement. Their
 * number is rounded up or down at random, so that small tensors take part too. Knuth, The Art of Computer
 * Programming 2, algorithm S. Returns the number of elements. */
static int64_t draw(const struct dlb_sync_bucket *b, char *share, bool out)
{
	const struct gossip *g = b->own;
	const size_t size = b->pack.element_bytes;
	int64_t moved = 0;

	for (int i = 0; i < b->pack.n_parts; i++) {
		const uint64_t key[3] = { b->sync->d.seed, (uint64_t)b->sync->step, g->stream[i] };
		struct dlb_rng rng;
		int64_t left = b->pack.part[i].n, wanted;

		dlb_rng_init(&rng, dlb_hash_bytes(DLB_HASH_INIT, key, sizeof key));
		wanted = (int64_t)floor(b->sync->plan->sharing.gossip * (double)left + dlb_rng_uniform(&rng));
		wanted = wanted > left ? left : wanted;
		for (char *own = b->pack.part[i].x; wanted > 0; own += size, left--) {
			if (wanted < left && dlb_rng_uniform(&rng) * (double)left >= (double)wanted)
				continue;
			memcpy(out ? own : share, out ? share : own, size);
			share += size;
			moved++;
			wanted--;
		}
	}
	return moved;
}

static void load(struct dlb_sync_bucket *b)
{
	struct gossip *g = b->own;

	memset(g->request, 0, sizeof g->request);
	g->n_drawn = draw(b, g->share[OWN], false);
}

static void start(struct dlb_sync_bucket *b)
{
	struct gossip *g = b->own;
	struct dlb_comm *c = b->sync->d.comm;
	const size_t bytes = (size_t)g->n_drawn * b->pack.element_bytes;
	const int tag = dlb_tag_of_bucket(b->index);

	dlb_comm_irecv(c, g->share[FROM_LEFT], bytes, g->left, tag, &g->request[0]);
	dlb_comm_isend(c, g->share[OWN], bytes, g->right, tag, &g->request[1]);
	b->sync->sent[b->cls] += (double)bytes;
	if (g->left == g->right)
		return;
	dlb_comm_irecv(c, g->share[FROM_RIGHT], bytes, g->right, tag, &g->request[2]);
	dlb_comm_isend(c, g->share[OWN], bytes, g->left, tag, &g->request[3]);
	b->sync->sent[b->cls] += (double)bytes;
}

static bool test(struct dlb_sync_bucket *b)
{
	struct gossip *g = b->own;
	bool all = true;

	for (int i = 0; i < DLB_LEN(g->request); i++)
		all = dlb_comm_test(b->sync->d.comm, &g->request[i]) && all;
	return all && !dlb_comm_broken(b->sync->d.comm);
}

/* OWN = mean of OWN and the shares of one or two neighbours */
static void mix(const struct dlb_sync_bucket *b)
{
	const struct gossip *g = b->own;
	const int k = g->left == g->right ? 1 : 2;

	if (b->dtype == DLB_F64) {
		double *x = (void *)g->share[OWN], *y = (void *)g->share[FROM_LEFT],
		       *z = (void *)g->share[FROM_RIGHT];

		for (int64_t i = 0; i < g->n_drawn; i++)
			x[i] = (x[i] + y[i] + (k > 1 ? z[i] : 0.0)) / (k + 1);
	} else {
		float *x = (void *)g->share[OWN], *y = (void *)g->share[FROM_LEFT],
		      *z = (void *)g->share[FROM_RIGHT];

		for (int64_t i = 0; i < g->n_drawn; i++)
			x[i] = (float)(((double)x[i] + y[i] + (k > 1 ? z[i] : 0.0)) / (k + 1));
	}
}

static void take(struct dlb_sync_bucket *b)
{
	struct gossip *g = b->own;

	mix(b);
	draw(b, g->share[OWN], true);
}

const struct dlb_sync_ops dlb_sync_gossip = {
	.name = "gossip",
	.init = init,
	.due = due,
	.load = load,
	.start = start,
	.test = test,
	.wait = dlb_sync_poll,
	.take = take,
};
