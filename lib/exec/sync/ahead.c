/* Weights of which each replica keeps a share are gathered ahead of their use (plan/gathers.c). The own share
 * is copied to the weight's place in the arena, and the second half of a ring allreduce fills the rest of the
 * place.
 *
 * One collective gathers all weights, one after the other, since the rings of each collective take nearly a
 * second-level cache of shared memory. A gather that starts while another runs waits in line. All replicas
 * start the gathers in the same order. */
#include <string.h>
#include "exec/state.h"
#include "exec/sync/ways.h"
#include "plan/program_verify.h"
#include "plan/shares.h"
#include "util/mem.h"

/* The gathers that have started. first: the one that runs */
struct dlb_sync_line {
	struct dlb_collective *run;
	struct dlb_sync_bucket *first, *last;
};
/* The gather of one bucket into `place`, divided at `at`. own: this replica's share, copied to `to` in the
 * place; NULL: the share is there already. next: the next bucket in line. */
struct gather {
	char *place, *to;
	const void *own;
	size_t own_bytes;
	int64_t *at;
	struct dlb_sync_bucket *next;
	bool in_line;
};

static struct gather *gather_of(const struct dlb_sync_bucket *b) { return b->own; }

static int64_t *cuts(struct dlb_sync *x, int64_t n)
{
	const int n_chunks = x->peers.n;
	int64_t *at = dlb_arena_array(&x->arena, (size_t)n_chunks + 1, sizeof *at);

	for (int i = 0; i <= n_chunks; i++)
		at[i] = dlb_chunk_at(n, n_chunks, i);
	return at;
}

/* Makes the collective, for the largest weight. Bucket b owns it and frees it. */
static int open_line(struct dlb_sync_bucket *b, struct dlb_error *err)
{
	struct dlb_sync *x = b->sync;
	const struct dlb_node_program *np = &x->d.program->node[x->d.node];
	struct dlb_collective_desc d = { .how = b->from->how,
					 .ranks = x->peers,
					 .dtype = DLB_F32,
					 .x = gather_of(b)->place,
					 .tag = dlb_tag_of_bucket(b->index) };

	for (int i = 0; i < np->n_buckets; i++)
		if (np->bucket[i].ahead && np->bucket[i].n > d.n)
			d.n = np->bucket[i].n;
	d.at = cuts(x, d.n);
	if (dlb_collective_new(&b->sum, x->d.comm, &d, err))
		return -1;
	x->line = dlb_arena_alloc(&x->arena, sizeof *x->line);
	*x->line = (struct dlb_sync_line){ .run = b->sum };
	return 0;
}

static int init(struct dlb_sync_bucket *b, const struct dlb_bucket *from, struct dlb_error *err)
{
	struct dlb_sync *x = b->sync;
	const struct dlb_node_program *np = &x->d.program->node[x->d.node];
	const struct dlb_state *s = x->d.state;
	const int place = dlb_program_find_place(np, from->weight, from->life),
		  t = x->d.tensor_of ? x->d.tensor_of[from->weight] : from->weight;
	struct gather *g = b->own = dlb_arena_alloc(&x->arena, sizeof *g);

	b->dtype = DLB_F32;
	*g = (struct gather){ .place = x->d.weight ? x->d.weight[from->weight] :
						     x->d.arena + np->place[place].offset,
			      .own = x->d.weight ? NULL : s->value[t],
			      .own_bytes = dlb_state_value_bytes(s, t),
			      .at = cuts(x, from->n) };
	g->to = g->place + (size_t)dlb_state_held(s, t).first * sizeof(float);
	if (!x->line && open_line(b, err))
		return -1;
	b->bytes = (double)dlb_allreduce_bytes(from->how, &x->peers,
					       dlb_ranks_member(&x->peers, dlb_comm_rank(x->d.comm)), from->n,
					       g->at, sizeof(float), NULL);
	x->fixed.bytes[b->cls] += b->bytes;
	x->fixed.dense_bytes[b->cls] += b->bytes;
	return 0;
}

static void load(struct dlb_sync_bucket *b)
{
	const struct gather *g = gather_of(b);

	if (g->own)
		memcpy(g->to, g->own, g->own_bytes);
}

static void begin(struct dlb_sync_bucket *b)
{
	struct dlb_collective *run = b->sync->line->run;

	dlb_collective_aim(run, gather_of(b)->place);
	dlb_collective_resize(run, gather_of(b)->at);
	dlb_collective_start(run);
}

static void start(struct dlb_sync_bucket *b)
{
	struct dlb_sync_line *l = b->sync->line;

	gather_of(b)->in_line = true;
	gather_of(b)->next = NULL;
	if (l->first)
		gather_of(l->last)->next = b;
	else
		l->first = b;
	l->last = b;
	if (l->first == b)
		begin(b);
}

/* Removes the first in line, which is complete, and begins the next one. */
static void leave(struct dlb_sync *x)
{
	struct dlb_sync_line *l = x->line;

	gather_of(l->first)->in_line = false;
	l->first = gather_of(l->first)->next;
	if (l->first && !dlb_comm_broken(x->d.comm))
		begin(l->first);
}

static bool test(struct dlb_sync_bucket *b)
{
	struct dlb_sync_line *l = b->sync->line;

	if (l->first == b && dlb_collective_test(l->run))
		leave(b->sync);
	return !gather_of(b)->in_line;
}

static int wait(struct dlb_sync_bucket *b, struct dlb_error *err)
{
	struct dlb_sync_line *l = b->sync->line;

	if (dlb_comm_broken(b->sync->d.comm))
		return dlb_collective_wait(l->run, err);
	while (gather_of(b)->in_line) {
		if (dlb_collective_wait(l->run, err))
			return -1;
		leave(b->sync);
	}
	return 0;
}

static void take(struct dlb_sync_bucket *b) { (void)b; }

const struct dlb_sync_ops dlb_sync_ahead = {
	.name = "ahead",
	.init = init,
	.load = load,
	.start = start,
	.test = test,
	.wait = wait,
	.take = take,
};
