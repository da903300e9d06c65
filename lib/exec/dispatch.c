/* Rank 0 reads samples for all nodes. See dispatch.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "exec/dispatch.h"
#include "exec/feed.h"
#include "exec/runtime.h"
#include "plan/feed_load.h"
#include "plan/replica.h"
#include "util/mem.h"

struct fed_node {
	int via;				/* the rank to which rank 0 sends this node's shares */
	struct dlb_dispatch_share *share;		/* [engine] */
	char **place;	/* [slot] NULL: this rank does not receive the node's shares */
	struct dlb_request *in, *out;		/* [slot] */
};
struct dlb_dispatch {
	struct dlb_comm *c;
	int rank, n_nodes, n_engines, n_slots, levels;
	struct fed_node *node;
	int *which;				/* [slot] */
	/* numbers of shares that were requested, sent, posted and passed on */
	int64_t asked, sent, posted, handed;
	struct dlb_backend *be;			/* allocates the memory of this rank's own shares */
	struct dlb_arena arena;
};

int dlb_dispatch_levels_of(const struct dlb_cluster *c, int n_ranks)
{
	for (int k = 0; k < n_ranks; k++)
		if (dlb_feed_via(c, n_ranks, k) != k)
			return 2;
	return 1;
}

static size_t message_bytes(const struct dlb_dispatch_share *x)
{
	return dlb_feed_header_bytes(x->program) + x->bytes;
}

/* Collects the layouts of all nodes: sizes on all ranks, items on rank 0. */
static int learn(struct dlb_dispatch *d, const struct dlb_program *program, struct dlb_engine *const *e,
		 struct dlb_error *err)
{
	for (int i = 0; i < d->n_engines; i++) {
		const struct dlb_engine_program *v = dlb_engine_view(e[i]);
		uint64_t mine[2] = { v->feed_bytes, (uint64_t)v->n_feed },
			 *all = dlb_arena_array(&d->arena, 2 * (size_t)d->n_nodes, sizeof *all);
		struct dlb_request q = { 0 };

		if (dlb_comm_gather(d->c, mine, sizeof mine, all, 0, err) ||
		    dlb_comm_bcast(d->c, all, 2 * (size_t)d->n_nodes * sizeof *all, 0, err))
			return -1;
		for (int k = 0; k < d->n_nodes; k++)
			d->node[k].share[i] = (struct dlb_dispatch_share){
				.program = dlb_program_of(&program[i], k), .bytes = (size_t)all[2 * k]
			};
		if (d->rank && mine[1]) {
			dlb_comm_isend(d->c, v->feed, (size_t)mine[1] * sizeof *v->feed, 0,
				       DLB_TAG_FEED + d->rank, &q);
			if (dlb_comm_wait(d->c, &q, err))
				return -1;
		}
		for (int k = 1; k < d->n_nodes && !d->rank; k++) {
			struct dlb_dispatch_share *x = &d->node[k].share[i];
			struct dlb_feed_item *item = dlb_arena_array(&d->arena, (size_t)all[2 * k + 1] + 1,
								     sizeof *item);

			x->item = item;
			x->n_items = (int)all[2 * k + 1];
			if (!x->n_items)
				continue;
			dlb_comm_irecv(d->c, item, (size_t)x->n_items * sizeof *item, k, DLB_TAG_FEED + k,
				       &q);
			if (dlb_comm_wait(d->c, &q, err))
				return -1;
		}
	}
	return 0;
}

int dlb_dispatch_new(struct dlb_dispatch **out, struct dlb_comm *c, const struct dlb_cluster *cluster,
		     const struct dlb_fed_engines *fed, struct dlb_error *err)
{
	const int n_engines = fed->n, slots = fed->slots;
	struct dlb_dispatch *d = dlb_xcalloc(1, sizeof *d);

	d->c = c;
	d->rank = dlb_comm_rank(c);
	d->n_nodes = dlb_comm_size(c);
	d->n_engines = n_engines;
	d->n_slots = slots;
	d->be = fed->be;
	d->levels = dlb_dispatch_levels_of(cluster, d->n_nodes);
	d->which = dlb_arena_array(&d->arena, (size_t)slots, sizeof *d->which);
	d->node = dlb_arena_array(&d->arena, (size_t)d->n_nodes, sizeof *d->node);
	for (int k = 0; k < d->n_nodes; k++) {
		struct fed_node *x = &d->node[k];

		x->via = dlb_feed_via(cluster, d->n_nodes, k);
		x->share = dlb_arena_array(&d->arena, (size_t)n_engines, sizeof *x->share);
		x->place = dlb_arena_array(&d->arena, (size_t)slots, sizeof *x->place);
		x->in = dlb_arena_array(&d->arena, (size_t)slots, sizeof *x->in);
		x->out = dlb_arena_array(&d->arena, (size_t)slots, sizeof *x->out);
	}
	*out = d;
	if (learn(d, fed->program, fed->engine, err))
		return -1;
	for (int k = 0; k < d->n_nodes; k++) {
		size_t most = 64;

		if (d->rank && k != d->rank && d->node[k].via != d->rank)
			continue;
		for (int i = 0; i < n_engines; i++)
			most = message_bytes(&d->node[k].share[i]) > most ?
				       message_bytes(&d->node[k].share[i]) :
				       most;
		for (int i = 0; i < slots; i++) {
			d->node[k].place[i] = k == d->rank ? dlb_samples_alloc(d->be, most, err) :
							     memset(dlb_arena_alloc(&d->arena, most), 0, most);
			if (!d->node[k].place[i])
				return -1;
		}
	}
	return 0;
}

void dlb_dispatch_free(struct dlb_dispatch *d)
{
	if (!d)
		return;
	for (int i = 0; i < d->n_slots; i++)
		dlb_samples_free(d->be, d->node[d->rank].place[i]);
	dlb_arena_release(&d->arena);
	free(d);
}

int dlb_dispatch_levels(const struct dlb_dispatch *d) { return d->levels; }
int dlb_dispatch_nodes(const struct dlb_dispatch *d) { return d->n_nodes; }
char *dlb_dispatch_place(const struct dlb_dispatch *d, int node, int slot)
{
	return d->node[node].place[slot];
}
char *dlb_dispatch_own(const struct dlb_dispatch *d, int slot) { return d->node[d->rank].place[slot]; }

const struct dlb_dispatch_share *dlb_dispatch_share(const struct dlb_dispatch *d, int node, int which)
{
	return &d->node[node].share[which];
}

/* receives: whether this rank receives node k's shares; sends: whether it sends them to another rank. */
static bool receives(const struct dlb_dispatch *d, int k)
{
	return d->rank && d->node[k].place[0];
}

static bool sends(const struct dlb_dispatch *d, int k)
{
	return k != d->rank && d->node[k].place[0];
}

int dlb_dispatch_ask(struct dlb_dispatch *d, int which, struct dlb_error *err)
{
	const int at = (int)(d->asked % d->n_slots);

	for (int k = 0; k < d->n_nodes; k++)
		if (d->node[k].out[at].active && dlb_comm_wait(d->c, &d->node[k].out[at], err))
			return -1;
	d->which[at] = which;
	d->asked++;
	return 0;
}

static void send_share(struct dlb_dispatch *d, int64_t n)
{
	const int at = (int)(n % d->n_slots);

	for (int k = 0; k < d->n_nodes; k++)
		assert(!d->node[k].out[at].active); /* dlb_dispatch_ask waited */
	for (int k = 0; k < d->n_nodes; k++)
		if (sends(d, k))
			dlb_comm_isend(d->c, d->node[k].place[at],
				       message_bytes(&d->node[k].share[d->which[at]]),
				       d->rank ? k : d->node[k].via, DLB_TAG_FEED + k, &d->node[k].out[at]);
}

static void post_share(struct dlb_dispatch *d, int64_t n)
{
	const int at = (int)(n % d->n_slots);

	for (int k = 0; k < d->n_nodes; k++)
		if (receives(d, k))
			dlb_comm_irecv(d->c, d->node[k].place[at],
				       message_bytes(&d->node[k].share[d->which[at]]),
				       k == d->rank && d->node[k].via != k ? d->node[k].via : 0,
				       DLB_TAG_FEED + k, &d->node[k].in[at]);
}

/* Tests or waits for all messages of share n that this rank receives; *there: all have arrived. */
static int arrived(struct dlb_dispatch *d, int64_t n, bool wait, bool *there, struct dlb_error *err)
{
	const int at = (int)(n % d->n_slots);

	*there = true;
	for (int k = 0; k < d->n_nodes; k++) {
		struct dlb_request *q = &d->node[k].in[at];

		if (!receives(d, k) || !q->active)
			continue;
		if (wait && dlb_comm_wait(d->c, q, err))
			return -1;
		*there = *there && dlb_comm_test(d->c, q);
	}
	return 0;
}

/* Advances all shares up to `last`; waits for the shares up to `need`. */
static int move(struct dlb_dispatch *d, int64_t need, int64_t last, int64_t filled, struct dlb_error *err)
{
	bool there = true;

	if (last >= d->asked)
		last = d->asked - 1;
	if (!d->rank) {
		for (; d->sent <= last && d->sent < filled; d->sent++)
			send_share(d, d->sent);
		return 0;
	}
	for (; d->posted <= last; d->posted++)
		post_share(d, d->posted);
	while (d->handed <= last && there) {
		if (arrived(d, d->handed, d->handed <= need, &there, err))
			return -1;
		if (there)
			send_share(d, d->handed++);
	}
	return 0;
}

int dlb_dispatch_take(struct dlb_dispatch *d, int64_t n, int64_t filled, struct dlb_error *err)
{
	return move(d, n, n + d->levels, filled, err);
}

int dlb_dispatch_settle(struct dlb_dispatch *d, int64_t filled, struct dlb_error *err)
{
	if (d->asked && move(d, d->asked - 1, d->asked - 1, filled, err))
		return -1;
	for (int k = 0; k < d->n_nodes; k++)
		for (int i = 0; i < d->n_slots; i++)
			if (d->node[k].out[i].active && dlb_comm_wait(d->c, &d->node[k].out[i], err))
				return -1;
	return 0;
}

double dlb_dispatch_bytes(const struct dlb_dispatch *d)
{
	double bytes = 0;

	for (int k = 0; k < d->n_nodes; k++)
		bytes += sends(d, k) ? (double)message_bytes(&d->node[k].share[0]) : 0;
	return bytes;
}
