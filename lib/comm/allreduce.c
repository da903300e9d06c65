/* The engine that runs any list of hops, and the table of algorithms. See allreduce.h. */
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "util/mem.h"

enum {
	SEGMENT = 1 << 16,		/* floats a message: a quarter of a megabyte stays in the second-level cache */
	IN_FLIGHT = 4			/* segments under way in each direction */
};

const struct dlb_allreduce *const dlb_allreduces[] = {
	&dlb_allreduce_ring, &dlb_allreduce_tree, &dlb_allreduce_host, &dlb_allreduce_hierarchical, NULL,
};

const struct dlb_allreduce *dlb_allreduce_find(const char *name)
{
	for (int i = 0; dlb_allreduces[i]; i++)
		if (!strcmp(dlb_allreduces[i]->name, name))
			return dlb_allreduces[i];
	return NULL;
}

int dlb_allreduce_most_hops(const struct dlb_ranks *r)
{
	return 4 * r->n + 4;
}

/* A place in the list: segment `seg` of hop `hop`. */
struct place { int hop; int64_t seg; };
/* Messages in one direction: posted in the order of the list, and done in that order. */
struct stream {
	struct place next, done;
	struct dlb_request request[IN_FLIGHT];
	int64_t n_posted, n_done;
};
struct dlb_collective {
	struct dlb_comm *c;
	int tag, n_hops, n_chunks;
	float *x, *scratch;		/* IN_FLIGHT segments that wait to be added */
	int64_t *at;
	struct dlb_hop *hop;
	int *sent_before;		/* [hop] the last earlier hop that sends what this one's receive replaces, or -1 */
	struct stream send, recv;
};

static bool sends(const struct dlb_hop *h) { return h->to >= 0; }
static bool receives(const struct dlb_hop *h) { return h->from >= 0; }

/* Floats [*from, *from + n) of segment s of chunks [chunk, chunk + n_chunks); n = 0: there is none. */
static int64_t segment(const struct dlb_collective *k, int chunk, int n_chunks, int64_t s, int64_t *from)
{
	int64_t begin = k->at[chunk], end = k->at[chunk + n_chunks];

	*from = begin + s * SEGMENT;
	return *from >= end ? 0 : end - *from < SEGMENT ? end - *from : SEGMENT;
}

static int64_t piece(const struct dlb_collective *k, bool sending, struct place p, int64_t *from)
{
	const struct dlb_hop *h = &k->hop[p.hop];

	return sending ? segment(k, h->send, h->n_send, p.seg, from) : segment(k, h->recv, h->n_recv, p.seg, from);
}

/* Moves p to the next segment there is; p.hop = n_hops: none. */
static void settle(const struct dlb_collective *k, bool sending, struct place *p)
{
	int64_t from;

	while (p->hop < k->n_hops && (!(sending ? sends : receives)(&k->hop[p->hop]) || !piece(k, sending, *p, &from)))
		*p = (struct place){ p->hop + 1, 0 };
}

static void advance(const struct dlb_collective *k, bool sending, struct place *p)
{
	p->seg++;
	settle(k, sending, p);
}

/* What hop p.hop sends is complete when all that came before is in; from the hop just before, segment by segment. */
static bool ready_to_send(const struct dlb_collective *k, struct place p)
{
	struct place in = k->recv.done;
	const struct dlb_hop *h = &k->hop[p.hop], *before = h - 1;

	if (in.hop >= p.hop)
		return true;
	return in.hop == p.hop - 1 && before->recv == h->send && before->n_recv == h->n_send && in.seg > p.seg;
}

/* What is replaced must have left. */
static bool ready_to_receive(const struct dlb_collective *k, struct place p)
{
	int g = k->sent_before[p.hop];
	struct place out = k->send.done;

	if (k->hop[p.hop].add || g < 0 || out.hop > g)
		return true;
	return out.hop == g && k->hop[g].send == k->hop[p.hop].recv && k->hop[g].n_send == k->hop[p.hop].n_recv && out.seg > p.seg;
}

static void add(float *restrict x, const float *restrict y, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		x[i] += y[i];
}

static bool receive_more(struct dlb_collective *k)
{
	struct stream *s = &k->recv;
	bool moved = false;
	int64_t from, n;

	while (s->n_done < s->n_posted && dlb_comm_test(k->c, &s->request[s->n_done % IN_FLIGHT])) {
		n = piece(k, false, s->done, &from);
		if (k->hop[s->done.hop].add)
			add(k->x + from, k->scratch + s->n_done % IN_FLIGHT * SEGMENT, n);
		s->n_done++;
		advance(k, false, &s->done);
		moved = true;
	}
	while (s->next.hop < k->n_hops && s->n_posted - s->n_done < IN_FLIGHT && ready_to_receive(k, s->next)) {
		int64_t slot = s->n_posted % IN_FLIGHT;
		const struct dlb_hop *h = &k->hop[s->next.hop];

		n = piece(k, false, s->next, &from);
		dlb_comm_irecv(k->c, h->add ? k->scratch + slot * SEGMENT : k->x + from, (size_t)n * sizeof *k->x, h->from, k->tag,
			       &s->request[slot]);
		s->n_posted++;
		advance(k, false, &s->next);
		moved = true;
	}
	return moved;
}

static bool send_more(struct dlb_collective *k)
{
	struct stream *s = &k->send;
	bool moved = false;
	int64_t from, n;

	while (s->n_done < s->n_posted && dlb_comm_test(k->c, &s->request[s->n_done % IN_FLIGHT])) {
		s->n_done++;
		advance(k, true, &s->done);
		moved = true;
	}
	while (s->next.hop < k->n_hops && s->n_posted - s->n_done < IN_FLIGHT && ready_to_send(k, s->next)) {
		n = piece(k, true, s->next, &from);
		dlb_comm_isend(k->c, k->x + from, (size_t)n * sizeof *k->x, k->hop[s->next.hop].to, k->tag,
			       &s->request[s->n_posted % IN_FLIGHT]);
		s->n_posted++;
		advance(k, true, &s->next);
		moved = true;
	}
	return moved;
}

static bool is_done(const struct dlb_collective *k)
{
	return k->recv.done.hop == k->n_hops && k->send.done.hop == k->n_hops;
}

static int last_send_of(const struct dlb_collective *k, int hop)
{
	const struct dlb_hop *h = &k->hop[hop];

	if (!receives(h))
		return -1;
	for (int g = hop - 1; g >= 0; g--)
		if (sends(&k->hop[g]) && k->hop[g].send < h->recv + h->n_recv && h->recv < k->hop[g].send + k->hop[g].n_send)
			return g;
	return -1;
}

int dlb_collective_new(struct dlb_collective **out, struct dlb_comm *c, const struct dlb_allreduce *how, const int *group,
		       float *x, int64_t n, const int64_t *at, int tag, struct dlb_error *err)
{
	const struct dlb_ranks ranks = { dlb_comm_size(c), group };
	struct dlb_collective *k = dlb_xcalloc(1, sizeof *k);

	(void)err;
	k->c = c;
	k->tag = tag;
	k->x = x;
	k->n_chunks = how->n_chunks(&ranks);
	k->at = dlb_xcalloc((size_t)k->n_chunks + 1, sizeof *k->at);
	for (int i = 0; i <= k->n_chunks; i++)
		k->at[i] = at ? at[i] : dlb_chunk_at(n, k->n_chunks, i);
	k->hop = dlb_xcalloc((size_t)dlb_allreduce_most_hops(&ranks), sizeof *k->hop);
	k->n_hops = ranks.n > 1 ? how->hops(&ranks, dlb_comm_rank(c), k->hop) : 0;
	k->sent_before = dlb_xcalloc((size_t)k->n_hops + 1, sizeof *k->sent_before);
	for (int i = 0; i < k->n_hops; i++)
		k->sent_before[i] = last_send_of(k, i);
	k->scratch = dlb_xmalloc((size_t)IN_FLIGHT * SEGMENT * sizeof *k->scratch);
	*out = k;
	return 0;
}

void dlb_collective_free(struct dlb_collective *k)
{
	if (!k)
		return;
	free(k->scratch);
	free(k->sent_before);
	free(k->hop);
	free(k->at);
	free(k);
}

void dlb_collective_start(struct dlb_collective *k)
{
	memset(&k->send, 0, sizeof k->send);
	memset(&k->recv, 0, sizeof k->recv);
	settle(k, true, &k->send.next);
	settle(k, true, &k->send.done);
	settle(k, false, &k->recv.next);
	settle(k, false, &k->recv.done);
	dlb_collective_test(k);
}

static bool move(struct dlb_collective *k)
{
	bool received = receive_more(k), sent = send_more(k);

	return received || sent;
}

bool dlb_collective_test(struct dlb_collective *k)
{
	while (!is_done(k) && move(k))
		;
	return is_done(k) || dlb_comm_broken(k->c);
}

int dlb_collective_wait(struct dlb_collective *k, struct dlb_error *err)
{
	struct dlb_idle idle = { 0 };

	while (!is_done(k)) {
		const struct place *in = &k->recv.done;
		int peer = in->hop < k->n_hops ? k->hop[in->hop].from : -1;

		if (move(k))
			idle = (struct dlb_idle){ 0 };
		else if (dlb_comm_idle(k->c, &idle, peer, "allreduce", err))
			return -1;
	}
	return 0;
}

int64_t dlb_collective_bytes_sent(const struct dlb_collective *k)
{
	int64_t n = 0;

	for (int h = 0; h < k->n_hops; h++)
		if (sends(&k->hop[h]))
			n += k->at[k->hop[h].send + k->hop[h].n_send] - k->at[k->hop[h].send];
	return n * (int64_t)sizeof *k->x;
}
