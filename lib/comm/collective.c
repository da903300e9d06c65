/* The engine that runs any list of hops. See allreduce.h. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "comm/allreduce.h"
#include "comm/wire.h"
#include "util/hash.h"
#include "util/mem.h"

enum {
	SEGMENT_BYTES = 1 << 18,	/* of one message: it stays in the second-level cache */
	IN_FLIGHT = 4			/* segments under way in each direction */
};

/* A place in the list: segment `seg` of hop `hop`. */
struct place { int hop; int64_t seg; };
/* Messages in one direction: posted in the order of the list, and done in that order. */
struct stream {
	struct place next, done;
	struct dlb_request request[IN_FLIGHT];
	int64_t n_posted, n_done;
	char *slot;			/* [IN_FLIGHT] segments as they travel; NULL: they travel from and to x itself */
};
/* What all members must give alike; each compares its own with that of the member before it. */
struct terms {
	int64_t n;
	uint64_t cuts;
	int how, dtype, wire, n_members;
};
struct dlb_collective {
	struct dlb_comm *c;
	int tag, n_hops, n_chunks;
	char *x;
	int64_t n, segment;		/* elements: of x, of a segment */
	size_t bytes, wire_bytes;	/* of an element in memory, on the wire */
	const struct dlb_wire_loops *loops;
	int64_t *at;
	struct dlb_hop *hop;		/* to, from: ranks of the world */
	int *sent_before;		/* [hop] the last earlier hop that sends what this one's receive replaces, or -1 */
	struct stream send, recv;
	struct terms mine, theirs;
	int before, after;		/* ranks whose terms come here, where mine go; -1: nobody sums here */
	struct dlb_request terms_in, terms_out;
	bool agreed;
	struct dlb_subset *subset;	/* MPI's own: the sum runs in pieces, whose next begins at n_given */
	struct dlb_request piece;
	int64_t n_given, bytes_sent;
};

static bool sends(const struct dlb_hop *h) { return h->to >= 0; }
static bool receives(const struct dlb_hop *h) { return h->from >= 0; }

/* Elements [*from, *from + n) of segment s of chunks [chunk, chunk + n_chunks); n = 0: there is none. */
static int64_t segment(const struct dlb_collective *k, int chunk, int n_chunks, int64_t s, int64_t *from)
{
	int64_t begin = k->at[chunk], end = k->at[chunk + n_chunks];

	*from = begin + s * k->segment;
	return *from >= end ? 0 : end - *from < k->segment ? end - *from : k->segment;
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

static char *slot(const struct dlb_collective *k, const struct stream *s, int64_t i)
{
	return s->slot + (size_t)(i % IN_FLIGHT) * (size_t)k->segment * k->wire_bytes;
}

static char *element(const struct dlb_collective *k, int64_t i)
{
	return k->x + (size_t)i * k->bytes;
}

/* What replaces goes to its place at once where it travels as it lies in memory. */
static bool direct(const struct dlb_collective *k, const struct dlb_hop *h)
{
	return !h->add && !k->loops->pack;
}

static bool receive_more(struct dlb_collective *k)
{
	struct stream *s = &k->recv;
	bool moved = false;
	int64_t from, n;

	while (s->n_done < s->n_posted && dlb_comm_test(k->c, &s->request[s->n_done % IN_FLIGHT])) {
		const struct dlb_hop *h = &k->hop[s->done.hop];

		n = piece(k, false, s->done, &from);
		if (!direct(k, h))
			(h->add ? k->loops->add : k->loops->take)(element(k, from), slot(k, s, s->n_done), n);
		s->n_done++;
		advance(k, false, &s->done);
		moved = true;
	}
	while (s->next.hop < k->n_hops && s->n_posted - s->n_done < IN_FLIGHT && ready_to_receive(k, s->next)) {
		const struct dlb_hop *h = &k->hop[s->next.hop];

		n = piece(k, false, s->next, &from);
		dlb_comm_irecv(k->c, direct(k, h) ? element(k, from) : slot(k, s, s->n_posted), (size_t)n * k->wire_bytes, h->from,
			       k->tag, &s->request[s->n_posted % IN_FLIGHT]);
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
		const char *p;

		n = piece(k, true, s->next, &from);
		p = element(k, from);
		if (k->loops->pack) {
			k->loops->pack(element(k, from), slot(k, s, s->n_posted), n);
			p = slot(k, s, s->n_posted);
		}
		dlb_comm_isend(k->c, p, (size_t)n * k->wire_bytes, k->hop[s->next.hop].to, k->tag, &s->request[s->n_posted % IN_FLIGHT]);
		s->n_posted++;
		advance(k, true, &s->next);
		moved = true;
	}
	return moved;
}

static bool sum_more(struct dlb_collective *k)
{
	int64_t n = k->n - k->n_given;

	if (k->piece.active && !dlb_comm_test(k->c, &k->piece))
		return false;
	if (!n)
		return false;
	n = n < INT_MAX ? n : INT_MAX;
	dlb_comm_isum(k->c, k->subset, element(k, k->n_given), (int)n, k->bytes == sizeof(double), &k->piece);
	k->n_given += n;
	return true;
}

/* Before the first element moves: does the member before this one mean the same? */
static bool agree(struct dlb_collective *k)
{
	const struct terms *a = &k->mine, *b = &k->theirs;

	if (k->agreed)
		return true;
	if (!dlb_comm_test(k->c, &k->terms_in) || !dlb_comm_test(k->c, &k->terms_out))
		return false;
	k->agreed = true;
	if (!memcmp(a, b, sizeof *a))
		return true;
	if (a->n != b->n)
		dlb_comm_break(k->c, "allreduce: rank %d gives %lld elements, rank %d %lld", dlb_comm_rank(k->c), (long long)a->n,
			       k->before, (long long)b->n);
	else
		dlb_comm_break(k->c, "allreduce: ranks %d and %d differ in %s", k->before, dlb_comm_rank(k->c),
			       a->how != b->how ? "the algorithm" : a->dtype != b->dtype || a->wire != b->wire ? "the type of elements" :
			       a->n_members != b->n_members ? "the number of ranks" : "where chunks are cut");
	return false;
}

static bool is_done(const struct dlb_collective *k)
{
	if (k->before < 0)
		return true;
	if (!k->agreed)
		return false;
	if (k->subset)
		return k->n_given == k->n && !k->piece.active;
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

static int rank_of(const struct dlb_ranks *r, int member)
{
	return member < 0 || !r->rank ? member : r->rank[member];
}

/* Hops as this rank runs them, and the memory they need. */
static void lay_out(struct dlb_collective *k, const struct dlb_collective_desc *d, int member)
{
	k->hop = dlb_xcalloc((size_t)dlb_allreduce_most_hops(&d->ranks), sizeof *k->hop);
	k->n_hops = d->how->hops(&d->ranks, member, k->hop);
	for (int i = 0; i < k->n_hops; i++) {
		k->hop[i].to = rank_of(&d->ranks, k->hop[i].to);
		k->hop[i].from = rank_of(&d->ranks, k->hop[i].from);
	}
	k->sent_before = dlb_xcalloc((size_t)k->n_hops + 1, sizeof *k->sent_before);
	for (int i = 0; i < k->n_hops; i++)
		k->sent_before[i] = last_send_of(k, i);
	k->recv.slot = dlb_xmalloc(IN_FLIGHT * (size_t)k->segment * k->wire_bytes);
	if (k->loops->pack)
		k->send.slot = dlb_xmalloc(IN_FLIGHT * (size_t)k->segment * k->wire_bytes);
}

static int index_of(const struct dlb_allreduce *how)
{
	int i = 0;

	while (dlb_allreduces[i] && dlb_allreduces[i] != how)
		i++;
	return i;
}

int dlb_collective_new(struct dlb_collective **out, struct dlb_comm *c, const struct dlb_collective_desc *d, struct dlb_error *err)
{
	const struct dlb_ranks *r = &d->ranks;
	int member = dlb_ranks_member(r, dlb_comm_rank(c));
	struct dlb_collective *k;

	if (!dlb_wire_loops(d->wire, d->dtype))
		return dlb_fail(err, NULL, "allreduce: no sum of %s%s", dlb_dtype_name(d->dtype), d->wire == DLB_WIRE_BF16 ? " sent as bf16" : "");
	if (d->how->foreign && d->wire != DLB_WIRE_PLAIN)
		return dlb_fail(err, NULL, "allreduce '%s' cannot send bf16", d->how->name);
	k = dlb_xcalloc(1, sizeof *k);
	k->c = c;
	k->tag = d->tag;
	k->x = d->x;
	k->n = d->n;
	k->loops = dlb_wire_loops(d->wire, d->dtype);
	k->bytes = dlb_dtype_bytes(d->dtype);
	k->wire_bytes = dlb_wire_bytes(d->wire, d->dtype);
	k->segment = SEGMENT_BYTES / (int64_t)k->bytes;
	k->n_chunks = d->how->n_chunks(r);
	k->at = dlb_xcalloc((size_t)k->n_chunks + 1, sizeof *k->at);
	for (int i = 0; i <= k->n_chunks; i++)
		k->at[i] = d->at ? d->at[i] : dlb_chunk_at(d->n, k->n_chunks, i);
	k->mine = (struct terms){ .n = d->n, .how = index_of(d->how), .dtype = (int)d->dtype, .wire = (int)d->wire, .n_members = r->n };
	k->mine.cuts = dlb_hash_bytes(DLB_HASH_INIT, k->at, ((size_t)k->n_chunks + 1) * sizeof *k->at);
	k->before = k->after = -1;
	if (r->n > 1 && member >= 0) {
		k->before = rank_of(r, (member + r->n - 1) % r->n);
		k->after = rank_of(r, (member + 1) % r->n);
		k->bytes_sent = dlb_allreduce_bytes(d->how, r, member, d->n, k->at, k->wire_bytes, NULL);
		if (!d->how->foreign) {
			lay_out(k, d, member);
		} else if (dlb_subset_new(&k->subset, c, r->rank, r->n, d->tag, err)) {
			dlb_collective_free(k);
			return -1;
		}
	}
	*out = k;
	return 0;
}

void dlb_collective_free(struct dlb_collective *k)
{
	if (!k)
		return;
	dlb_subset_free(k->subset, k->c);
	free(k->recv.slot);
	free(k->send.slot);
	free(k->sent_before);
	free(k->hop);
	free(k->at);
	free(k);
}

static void begin(const struct dlb_collective *k, bool sending, struct stream *s)
{
	*s = (struct stream){ .slot = s->slot };
	settle(k, sending, &s->next);
	settle(k, sending, &s->done);
}

void dlb_collective_start(struct dlb_collective *k)
{
	if (k->before < 0)
		return;
	begin(k, true, &k->send);
	begin(k, false, &k->recv);
	k->n_given = 0;
	if (!k->agreed) {
		dlb_comm_irecv(k->c, &k->theirs, sizeof k->theirs, k->before, k->tag, &k->terms_in);
		dlb_comm_isend(k->c, &k->mine, sizeof k->mine, k->after, k->tag, &k->terms_out);
	}
	dlb_collective_test(k);
}

static bool move(struct dlb_collective *k)
{
	bool received, sent;

	if (!agree(k))
		return false;
	if (k->subset)
		return sum_more(k);
	received = receive_more(k);
	sent = send_more(k);
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
		int peer = !k->agreed ? k->before : in->hop < k->n_hops ? k->hop[in->hop].from : -1;

		if (move(k))
			idle = (struct dlb_idle){ 0 };
		else if (dlb_comm_idle(k->c, &idle, peer, "allreduce", err))
			return -1;
	}
	return 0;
}

int64_t dlb_collective_bytes_sent(const struct dlb_collective *k)
{
	return k->bytes_sent;
}
