/* The engine that runs any list of hops. See allreduce.h.
 *
 * Segments travel as MPI messages, or, between ranks of one host that see each other's x, in place: a hop
 * that adds reads the sender's x, and a hop that replaces is a write into the receiver's x, made in the same
 * pass as the addition that produces the value. No acknowledgement is needed: all that a rank sent is part of
 * the sum that comes back to it, so the sum proves that it was read. (This fails where both ends add to what
 * they send, and in the halves of a ring: see `in_place`.) Sums of 64 KB to 256 MB took a quarter to two
 * fifths of the time of shared-memory rings.
 *
 * If an x is not in shared memory, or elements are packed, segments go through a shared-memory ring: slots in
 * the receiver's memory, filled and emptied in turn. A store to a line that another core's cache holds is
 * slow (comm/shared.h), so a ring is nearly as long as a second-level cache: before a slot is reused, other
 * slots and x have evicted it (half or twice the length took up to a third longer). Measured each way:
 * between cores with a common cache 18 GB/s (7 with short rings, 12 past the caches); between others 2, but
 * 12 past the caches. Virtual cores move between the two cases, so each link times both ways of writing at
 * intervals and uses the faster one.
 *
 * Long arrays go block by block: all hops for the first part of every chunk, then all hops for the next part,
 * so that data received in one hop are still in a cache when the next hop sends them. Each element takes the
 * same path as without blocks, so the bits are the same.
 *
 * To and from each rank, segments go in the order of the list. Segments of different ranks do not wait for
 * each other, but only for their own elements: these must be summed, in the order of the list, before they
 * are sent, and must have been sent before they are added to or replaced. */
#define _DEFAULT_SOURCE		/* sizes of caches */
#include <assert.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/allreduce.h"
#include "comm/shared.h"
#include "comm/wire.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/mem.h"

enum {
	/* MPI messages under way per direction: a second-level cache */
	IN_FLIGHT = 16, IN_FLIGHT_BYTES = 1 << 20,
	LEAST_IN_FLIGHT = 2,		/* per link, where many links share these bytes */
	/* Blocks that a rank may send ahead of the block it is still receiving. TCP gives the first sender to
	 * a rank most of its port, and sums wait for the last sender: 4 took a seventh longer (tree, 4 ranks,
	 * 1 Gb/s). */
	AHEAD = 1,
	LEAST_SLOTS = 2, MOST_SLOTS = 64
};

/* A position in the list: segment `seg` of the `chunk`-th chunk of hop `hop` in block `block`; n elements
 * from `from`. */
struct segment_position { int64_t block, seg, from, n; int hop, chunk; };
/* Segments to or from one rank, posted and completed in the order of the list. */
struct stream {
	struct segment_position next, done;
	struct dlb_request request[IN_FLIGHT];
	int64_t n_posted, n_done;
	int depth;			/* most segments that are posted and not done */
	char *slot;	/* [depth] buffers in wire format; NULL: messages are sent from and received into x */
};
/* Segments from one rank to another of this host. One side writes each count. */
struct shm_ring {
	_Alignas(64) _Atomic uint32_t sent;
	_Alignas(64) _Atomic uint32_t taken;	/* out of slots */
	_Alignas(64) char slot[];	/* k->n_slots slots */
};
/* Offsets in the region of the rank that sends this; UINT64_MAX: not there. */
struct region_offsets { uint64_t shm_ring, x; };
/* A link from or to a peer. */
struct link {
	int peer;
	bool in;
	struct shm_ring *shm_ring;		/* NULL: by MPI */
	char *there;	/* the peer's x; NULL: not addressable, so segments go through slots */
	uint32_t n;			/* segments so far, at this end */
	struct region_offsets mine, theirs;
	struct dlb_request told, heard;	/* messages with mine, theirs */
	struct dlb_copy_tuner copy, pass;
	struct stream stream;
};
/* A dependency of a segment on the matching segment of an earlier hop on another link; same: both hops move
 * the same chunks, else all of that hop in the block must be done. */
struct need { int hop, link; bool same; };
struct needs { struct need *need; int n; };
/* Values that must be equal on all members; each compares its own with those of the member before it. */
struct agreed_terms {
	int64_t n;
	uint64_t cuts;
	int how, dtype, wire, n_members;
};
/* Elements below are units (allreduce.h). */
struct dlb_collective {
	struct dlb_comm *c;
	int tag, n_hops, n_chunks;
	uint32_t n_slots;		/* of a shared-memory ring */
	int n_in_flight;		/* of a stream that needs no slots */
	char *x;
	int64_t n, n_most, segment;	/* elements: of x, of x at creation, of a segment */
	int64_t n_blocks, per_block;	/* segments of a chunk in one block; INT64_MAX: there is one block */
	size_t bytes, wire_bytes;	/* of an element in memory, on the wire */
	const struct dlb_wire_loops *loops;
	int64_t *at;
	struct dlb_hop *hop;		/* to, from: world ranks */
	int last_add;			/* the last hop that adds, -1: none */
	int *to, *from;			/* [hop] its links; -1: none */
	float *lost; /* NULL: not wanted */
	/* [hop] whether it is this rank's loss if it rounds before that hop; after the last hop that adds, the
	 * complete sum */
	bool *loses;
	bool *is_added;			/* [hop] the receiver adds what the hop sends; set if in_place */
	bool in_place;			/* near ranks may read and write x */
	struct needs *to_send, *to_write;	/* [hop] dependencies of sending; of adding or replacing */
	struct agreed_terms mine, theirs;
	/* ranks that send their terms to this one, that get mine; -1: nothing to sum here */
	int before, after;
	struct dlb_request terms_in, terms_out;
	struct link *link; int n_links;
	bool agreed;
	/* of MPI's own sum, which runs in pieces; the next one begins at n_given */
	struct dlb_subset *subset;
	struct dlb_request piece;
	int64_t n_given, bytes_sent;
};

static int rank_of(const struct dlb_ranks *r, int member)
{
	return member < 0 || !r->rank ? member : r->rank[member];
}

static bool sends(const struct dlb_hop *h) { return h->to >= 0; }
static bool receives(const struct dlb_hop *h) { return h->from >= 0; }

/* Chunks that a hop sends or receives; n = 0: none. */
struct chunks { int first, n; };
static struct chunks chunks_of(const struct dlb_hop *h, bool sending)
{
	if (!(sending ? sends(h) : receives(h)))
		return (struct chunks){ 0, 0 };
	return sending ? (struct chunks){ h->send, h->n_send } : (struct chunks){ h->recv, h->n_recv };
}

static bool at_end(const struct dlb_collective *k, const struct segment_position *p)
{
	return p->block == k->n_blocks;
}

/* Sets p's elements within chunks c. With several blocks each chunk has its own part in each block; with one
 * block the chunks are treated as one. False: hop p->hop has no more segments in p's block. */
static bool find_elements(const struct dlb_collective *k, struct chunks c, struct segment_position *p)
{
	const bool single = k->n_blocks == 1;
	const int n_parts = single && c.n ? 1 : c.n;

	for (; p->chunk < n_parts; p->chunk++, p->seg = 0) {
		int64_t end = k->at[c.first + (single ? c.n : p->chunk + 1)];

		p->from = k->at[c.first + p->chunk] +
			  ((single ? 0 : p->block * k->per_block) + p->seg) * k->segment;
		p->n = end - p->from < k->segment ? end - p->from : k->segment;
		if (p->seg < k->per_block && p->n > 0)
			return true;
	}
	return false;
}

/* Chunks that a hop moves over link l. */
static struct chunks carried(const struct link *l, const struct dlb_hop *h)
{
	return (l->in ? h->from : h->to) == l->peer ? chunks_of(h, !l->in) : (struct chunks){ 0, 0 };
}

/* Moves p to the first segment of link l at or after p, or to the end. */
static void settle(const struct dlb_collective *k, const struct link *l, struct segment_position *p)
{
	while (!at_end(k, p)) {
		if (find_elements(k, carried(l, &k->hop[p->hop]), p))
			return;
		*p = p->hop + 1 < k->n_hops ?
			     (struct segment_position){ .block = p->block, .hop = p->hop + 1 } :
			     (struct segment_position){ .block = p->block + 1 };
	}
}

static void advance(const struct dlb_collective *k, const struct link *l, struct segment_position *p)
{
	p->seg++;
	settle(k, l, p);
}

/* Whether a stream at position `at` is past the segment of hop `hop` that matches p; if that hop moves other
 * chunks than p's hop (!same), past all of the hop in p's block. */
static bool is_past(const struct segment_position *at, const struct segment_position *p, int hop, bool same)
{
	if (at->block != p->block)
		return at->block > p->block;
	if (at->hop != hop || !same)
		return at->hop > hop;
	return at->chunk > p->chunk || (at->chunk == p->chunk && at->seg > p->seg);
}

static bool are_met(const struct dlb_collective *k, const struct needs *needs,
		    const struct segment_position *p)
{
	for (int i = 0; i < needs->n; i++) {
		const struct need *need = &needs->need[i];

		if (!is_past(&k->link[need->link].stream.done, p, need->hop, need->same))
			return false;
	}
	return true;
}

/* The receiving link whose next segment is first in the list; NULL: everything has arrived. */
static const struct link *awaited(const struct dlb_collective *k)
{
	const struct link *first = NULL;

	for (const struct link *l = k->link; l < k->link + k->n_links; l++) {
		const struct segment_position *a = &l->stream.done, *b = first ? &first->stream.done : NULL;

		if (l->in && !at_end(k, a) &&
		    (!b || a->block < b->block || (a->block == b->block && a->hop < b->hop)))
			first = l;
	}
	return first;
}

static char *slot(const struct dlb_collective *k, const struct stream *s, int64_t i)
{
	return s->slot + (size_t)(i % s->depth) * (size_t)k->segment * k->wire_bytes;
}

static char *element(const struct dlb_collective *k, int64_t i)
{
	return k->x + (size_t)i * k->bytes;
}

/* lost += sign * the segment of x at p, if the rounding before hop `hop` counts. */
static void count_lost(const struct dlb_collective *k, const struct segment_position *p, int hop, float sign)
{
	const int64_t unit = (int64_t)(k->bytes / sizeof(float)), n = p->n * unit;
	const float *x = (const float *)(const void *)element(k, p->from);

	if (!k->lost || !k->loses[hop])
		return;
	for (int64_t i = 0; i < n; i++)
		k->lost[p->from * unit + i] += sign * x[i];
}

/* Whether a received hop goes directly into x: it replaces, and the wire format is that of memory. */
static bool direct(const struct dlb_collective *k, const struct dlb_hop *h)
{
	return !h->add && !k->loops->pack;
}

static size_t shm_ring_bytes(const struct dlb_collective *k)
{
	return sizeof(struct shm_ring) + k->n_slots * (size_t)k->segment * k->wire_bytes;
}

static char *shm_ring_slot(const struct dlb_collective *k, const struct link *l)
{
	return l->shm_ring->slot + (size_t)(l->n % k->n_slots) * (size_t)k->segment * k->wire_bytes;
}

/* Element i of the peer's x. */
static char *element_there(const struct dlb_collective *k, const struct link *l, int64_t i)
{
	return l->there + (size_t)i * k->bytes;
}

/* Whether the segment at p stays in x, where the receiver reads it. */
static bool is_read_here(const struct dlb_collective *k, const struct link *l,
			 const struct segment_position *p)
{
	return l->there && k->is_added[p->hop];
}

/* Whether the next segment of l has arrived. *w: its address (a slot, or the peer's x); NULL: already in
 * x. */
static bool arrived(struct dlb_collective *k, struct link *l, const char **w)
{
	struct stream *s = &l->stream;
	const struct dlb_hop *h = &k->hop[s->done.hop];

	if (h->add && !are_met(k, &k->to_write[s->done.hop], &s->done))
		return false;
	if (l->shm_ring) {
		*w = !l->there ? shm_ring_slot(k, l) : h->add ? element_there(k, l, s->done.from) : NULL;
		return (int32_t)(atomic_load_explicit(&l->shm_ring->sent, memory_order_acquire) - l->n) > 0;
	}
	*w = direct(k, h) ? NULL : slot(k, s, s->n_done);
	return dlb_comm_test(k->c, &s->request[s->n_done % IN_FLIGHT]);
}

static bool has_room(const struct dlb_collective *k, const struct link *l)
{
	const struct stream *s = &l->stream;

	return s->n_posted - s->n_done < s->depth &&
	       (!l->shm_ring || l->there ||
		l->n - atomic_load_explicit(&l->shm_ring->taken, memory_order_acquire) < k->n_slots);
}

/* Writes p, n elements from `from` on in wire format, into the peer's x or into the next slot. w (may be
 * NULL): elements to add to p first. */
static void write_there(struct dlb_collective *k, struct link *l, char *p, int64_t from, const char *w,
			int64_t n)
{
	char *to = l->there ? element_there(k, l, from) : shm_ring_slot(k, l);
	size_t bytes = (size_t)n * k->wire_bytes;
	enum dlb_copy_way way;
	double start_s;

	if (!w) {
		dlb_copy_there(&l->copy, to, p, bytes);
		return;
	}
	way = dlb_copy_tuner_begin(&l->pass, bytes, &start_s);
	k->loops->pass(p, w, to, n, way == DLB_COPY_FAR);
	dlb_copy_tuner_end(&l->pass, way, bytes, start_s);
}

static void sent_in_shm_ring(struct dlb_collective *k, struct link *l)
{
	atomic_store_explicit(&l->shm_ring->sent, ++l->n, memory_order_release);
	l->stream.n_posted++;
	advance(k, l, &l->stream.next);
}

/* The link on which the next hop sends the segment at `here`, which has been added. NULL if another segment
 * is sent first, or if the link is not shared memory. */
static struct link *onward(const struct dlb_collective *k, const struct segment_position *here)
{
	int hop = here->hop + 1;
	struct link *l = hop < k->n_hops && k->to[hop] >= 0 ? &k->link[k->to[hop]] : NULL;
	const struct segment_position *next = l ? &l->stream.next : NULL;

	return k->loops->pass && l && l->shm_ring && next->block == here->block && next->hop == hop &&
			       next->from == here->from && next->n == here->n && !is_read_here(k, l, next) &&
			       has_room(k, l) ?
		       l :
		       NULL;
}

/* Adds the segment at w to x, and forwards the sum in the same pass if possible. */
static void add_segment(struct dlb_collective *k, const char *w, const struct segment_position *here)
{
	struct link *l = onward(k, here);

	if (l) {
		write_there(k, l, element(k, here->from), here->from, w, here->n);
		sent_in_shm_ring(k, l);
	} else {
		k->loops->add(element(k, here->from), w, here->n);
	}
}

static void took_from_shm_ring(struct link *l)
{
	l->n++;
	if (!l->there)
		atomic_store_explicit(&l->shm_ring->taken, l->n, memory_order_release);
}

static bool receive_from(struct dlb_collective *k, struct link *l)
{
	struct stream *s = &l->stream;
	bool moved = false;
	const char *w;

	while (s->n_done < s->n_posted && arrived(k, l, &w)) {
		const struct segment_position *p = &s->done;

		if (k->hop[p->hop].add)
			add_segment(k, w, p);
		if (k->hop[p->hop].add && k->loops->round && p->hop == k->last_add) {
			count_lost(k, p, p->hop + 1, 1);
			k->loops->round(element(k, p->from), p->n);
			count_lost(k, p, p->hop + 1, -1);
		}
		if (!k->hop[p->hop].add && w)
			k->loops->take(element(k, p->from), w, p->n);
		if (l->shm_ring)
			took_from_shm_ring(l);
		s->n_done++;
		advance(k, l, &s->done);
		moved = true;
	}
	while (!at_end(k, &s->next) && s->n_posted - s->n_done < s->depth) {
		const struct dlb_hop *h = &k->hop[s->next.hop];

		if (!h->add && !are_met(k, &k->to_write[s->next.hop], &s->next))
			break;
		if (!l->shm_ring)
			dlb_comm_irecv(k->c,
				       direct(k, h) ? element(k, s->next.from) : slot(k, s, s->n_posted),
				       (size_t)s->next.n * k->wire_bytes, l->peer, k->tag,
				       &s->request[s->n_posted % IN_FLIGHT]);
		s->n_posted++;
		advance(k, l, &s->next);
		moved = true;
	}
	return moved;
}

/* Sends segments up to block `last`; all that are possible if the peer's x is addressable. */
static bool send_to(struct dlb_collective *k, struct link *l, int64_t last)
{
	struct stream *s = &l->stream;
	bool moved = false;

	last = l->there ? k->n_blocks : last;
	while (!at_end(k, &s->next) && s->next.block <= last && has_room(k, l) &&
	       are_met(k, &k->to_send[s->next.hop], &s->next)) {
		int64_t n = s->next.n;
		char *p = element(k, s->next.from);

		moved = true;
		if (k->loops->pack) {
			count_lost(k, &s->next, s->next.hop, 1);
			k->loops->pack(p, slot(k, s, s->n_posted), n);
			count_lost(k, &s->next, s->next.hop, -1);
			p = slot(k, s, s->n_posted);
		}
		if (l->shm_ring) {
			if (!is_read_here(k, l, &s->next))
				write_there(k, l, p, s->next.from, NULL, n);
			sent_in_shm_ring(k, l);
			continue;
		}
		dlb_comm_isend(k->c, p, (size_t)n * k->wire_bytes, l->peer, k->tag,
			       &s->request[s->n_posted % IN_FLIGHT]);
		s->n_posted++;
		advance(k, l, &s->next);
	}
	while (s->n_done < s->n_posted && dlb_comm_test(k->c, &s->request[s->n_done % IN_FLIGHT])) {
		s->n_done++;
		advance(k, l, &s->done);
		moved = true;
	}
	return moved;
}

static bool segments_more(struct dlb_collective *k)
{
	const struct link *late;
	bool moved = false;

	for (int i = 0; i < k->n_links; i++)
		if (k->link[i].in)
			moved |= receive_from(k, &k->link[i]);
	late = awaited(k);
	for (int i = 0; i < k->n_links; i++)
		if (!k->link[i].in)
			moved |= send_to(k, &k->link[i],
					 late ? late->stream.done.block + AHEAD : k->n_blocks);
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

/* Sets up shared memory of link l, after both ends have exchanged their offsets. */
static void join(struct dlb_collective *k, struct link *l)
{
	if (!l->in && l->theirs.shm_ring != UINT64_MAX)
		l->shm_ring = dlb_comm_there(k->c, l->peer, l->theirs.shm_ring);
	if (l->shm_ring && l->mine.x != UINT64_MAX && l->theirs.x != UINT64_MAX)
		l->there = dlb_comm_there(k->c, l->peer, l->theirs.x);
	if (l->shm_ring)
		dlb_region_touch(l->shm_ring, l->there ? sizeof *l->shm_ring : shm_ring_bytes(k));
	if (l->there)
		dlb_region_touch(l->there, (size_t)k->n * k->bytes);
}

/* Whether link l needs buffers: its segments neither go from or to x directly nor through a ring. */
static bool needs_slots(const struct dlb_collective *k, const struct link *l)
{
	if (!l->in)
		return k->loops->pack;
	for (int i = 0; i < k->n_hops && !l->shm_ring; i++)
		if (k->hop[i].from == l->peer && !direct(k, &k->hop[i]))
			return true;
	return false;
}

/* Divides the slots of each direction among its links. */
static void share_slots(struct dlb_collective *k)
{
	int n[2] = { 0, 0 };

	for (int i = 0; i < k->n_links; i++)
		n[k->link[i].in] += needs_slots(k, &k->link[i]);
	for (int i = 0; i < k->n_links; i++) {
		struct stream *s = &k->link[i].stream;

		s->depth = k->n_in_flight;
		if (!needs_slots(k, &k->link[i]))
			continue;
		s->depth = k->n_in_flight / n[k->link[i].in];
		s->depth = s->depth < LEAST_IN_FLIGHT ? LEAST_IN_FLIGHT : s->depth;
		s->slot = dlb_xmalloc((size_t)s->depth * (size_t)k->segment * k->wire_bytes);
	}
}

/* Before the first element moves: compares the terms of the member before this one; true when they agree. */
static bool agree(struct dlb_collective *k)
{
	const struct agreed_terms *a = &k->mine, *b = &k->theirs;

	if (k->agreed)
		return true;
	if (!dlb_comm_test(k->c, &k->terms_in) || !dlb_comm_test(k->c, &k->terms_out))
		return false;
	for (int i = 0; i < k->n_links; i++)
		if (!dlb_comm_test(k->c, &k->link[i].told) || !dlb_comm_test(k->c, &k->link[i].heard))
			return false;
	for (int i = 0; i < k->n_links; i++)
		join(k, &k->link[i]);
	share_slots(k);
	k->agreed = true;
	if (!memcmp(a, b, sizeof *a))
		return true;
	if (a->n != b->n)
		dlb_comm_break(k->c, "allreduce: rank %d gives %lld elements, rank %d %lld",
			       dlb_comm_rank(k->c), (long long)a->n, k->before, (long long)b->n);
	else
		dlb_comm_break(k->c, "allreduce: ranks %d and %d differ in %s", k->before,
			       dlb_comm_rank(k->c),
			       a->how != b->how                           ? "the algorithm" :
			       a->dtype != b->dtype || a->wire != b->wire ? "the type of elements" :
			       a->n_members != b->n_members               ? "the number of ranks" :
									    "where chunks are cut");
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
	for (int i = 0; i < k->n_links; i++)
		if (!at_end(k, &k->link[i].stream.done))
			return false;
	return true;
}

static bool overlap(struct chunks a, struct chunks b)
{
	return a.first < b.first + b.n && b.first < a.first + a.n;
}

static bool holds(struct chunks a, struct chunks b)
{
	return a.first <= b.first && b.first + b.n <= a.first + a.n;
}

static bool alike(struct chunks a, struct chunks b)
{
	return a.first == b.first && a.n == b.n;
}

static void add_need(const struct dlb_collective *k, struct needs *needs, struct chunks c, int hop,
		     bool sending)
{
	struct chunks other = chunks_of(&k->hop[hop], sending);

	if (overlap(other, c))
		needs->need[needs->n++] = (struct need){ hop, sending ? k->to[hop] : k->from[hop],
							 alike(other, c) };
}

/* Finds the earlier hops that a hop's segments wait for. The search ends at the last hop that wrote all of
 * them, since that hop waited for those before it. Elements must be sent before they are overwritten, even by
 * the same hop. */
static struct needs find_needs(const struct dlb_collective *k, int hop, bool sending)
{
	const struct chunks c = chunks_of(&k->hop[hop], sending);
	struct needs needs = { .need = dlb_xcalloc(2 * (size_t)hop + 1, sizeof *needs.need) };
	bool written = false;

	if (!sending)
		add_need(k, &needs, c, hop, true);
	for (int g = hop - 1; g >= 0 && !written; g--) {
		add_need(k, &needs, c, g, false);
		written = receives(&k->hop[g]) && holds(chunks_of(&k->hop[g], false), c);
		if (!sending && !written)
			add_need(k, &needs, c, g, true);
	}
	needs.need = dlb_xrealloc(needs.need, (size_t)needs.n + 1, sizeof *needs.need);
	return needs;
}

static int64_t longest_chunk(const struct dlb_collective *k)
{
	int64_t longest = 1;

	for (int i = 0; i < k->n_chunks; i++)
		longest = k->at[i + 1] - k->at[i] > longest ? k->at[i + 1] - k->at[i] : longest;
	return longest;
}

static void choose_blocks(struct dlb_collective *k)
{
	const int64_t longest = longest_chunk(k);

	k->per_block = DLB_BLOCK_BYTES / (k->segment * (int64_t)k->bytes);
	k->n_blocks = (longest + k->per_block * k->segment - 1) / (k->per_block * k->segment);
	k->per_block = k->n_blocks == 1 ? INT64_MAX : k->per_block;
}

/* Segments are at most as long as the longest chunk; rings take 3/4 of a second-level cache, less for small
 * arrays. */
static void choose_segments(struct dlb_collective *k, const struct dlb_ranks *r, bool external)
{
	long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
	size_t ring = (cache > 0 ? (size_t)cache : (size_t)1 << 20) / 4 * 3,
	       most = 4 * (size_t)k->n * k->wire_bytes, n;
	int64_t longest = longest_chunk(k),
		eager = (int64_t)dlb_comm_eager_bytes() - DLB_SEGMENT_HEADER_BYTES;
	bool local = true;

	for (int i = 0; i < r->n; i++)			/* the result is the same on all members */
		local &= dlb_comm_is_local(k->c, rank_of(r, i));
	k->segment = (local                     ? DLB_LOCAL_SEGMENT_BYTES :
		      eager < DLB_SEGMENT_BYTES ? eager :
						  DLB_SEGMENT_BYTES) /
		     (int64_t)k->bytes;
	k->n_in_flight = IN_FLIGHT_BYTES / (int)(k->segment * (int64_t)k->bytes);
	k->n_in_flight = k->n_in_flight < IN_FLIGHT ? k->n_in_flight : IN_FLIGHT;
	k->segment = k->segment < longest ? k->segment : longest;
	n = (most < ring ? most : ring) / ((size_t)k->segment * k->wire_bytes);
	k->n_slots = n < LEAST_SLOTS ? LEAST_SLOTS : n > MOST_SLOTS ? MOST_SLOTS : (uint32_t)n;
	choose_blocks(k);
	k->n_blocks = external ? 0 : k->n_blocks;
}

/* Index of the link from or to peer; makes it if there is none. The receiver offers a ring to a near
 * sender. */
static int find_link(struct dlb_collective *k, int peer, bool in)
{
	struct link *l;
	int i = 0;

	while (i < k->n_links && (k->link[i].peer != peer || k->link[i].in != in))
		i++;
	if (i < k->n_links)
		return i;
	l = &k->link[k->n_links++];
	*l = (struct link){ .peer = peer, .in = in, .mine = { UINT64_MAX, UINT64_MAX } };
	if (in && dlb_comm_near(k->c, peer))
		l->shm_ring = dlb_comm_alloc(k->c, shm_ring_bytes(k));
	if (l->shm_ring)
		l->mine.shm_ring = dlb_comm_offset(k->c, l->shm_ring);
	if (k->in_place)
		l->mine.x = dlb_comm_offset(k->c, k->x);
	return i;
}

/* Sets is_added of each hop: our j-th hop to a member is that member's j-th hop from us. */
static void find_added(struct dlb_collective *k, const struct dlb_collective_desc *d, int member)
{
	struct dlb_hop *theirs = dlb_xcalloc((size_t)dlb_allreduce_most_hops(&d->ranks), sizeof *theirs);
	int whose = -1, n = 0;

	k->is_added = dlb_xcalloc((size_t)k->n_hops + 1, sizeof *k->is_added);
	for (int i = 0; i < k->n_hops; i++) {
		int h = -1;

		if (!sends(&k->hop[i]))
			continue;
		if (k->hop[i].to != whose)
			n = d->how->hops(&d->ranks, whose = k->hop[i].to, theirs);
		for (int g = 0; g <= i; g++)
			if (k->hop[g].to == k->hop[i].to)
				for (h++; h < n && theirs[h].from != member; h++)
					;
		k->is_added[i] = h < n && theirs[h].add;
	}
	free(theirs);
}

/* Makes this rank's hops, links and dependencies. */
static void lay_out(struct dlb_collective *k, const struct dlb_collective_desc *d, int member)
{
	k->hop = dlb_xcalloc((size_t)dlb_allreduce_most_hops(&d->ranks), sizeof *k->hop);
	k->n_hops = d->how->hops(&d->ranks, member, k->hop);
	k->in_place = !k->loops->pack && d->how->in_place &&
		      dlb_comm_shares(k->c, k->x, (size_t)k->n * k->bytes);
	if (k->in_place)
		find_added(k, d, member);
	for (int i = 0; i < k->n_hops; i++) {
		k->hop[i].to = rank_of(&d->ranks, k->hop[i].to);
		k->hop[i].from = rank_of(&d->ranks, k->hop[i].from);
	}
	k->last_add = -1;
	k->link = dlb_xcalloc(2 * (size_t)k->n_hops + 1, sizeof *k->link);
	k->to = dlb_xcalloc((size_t)k->n_hops + 1, sizeof *k->to);
	k->from = dlb_xcalloc((size_t)k->n_hops + 1, sizeof *k->from);
	k->to_send = dlb_xcalloc((size_t)k->n_hops + 1, sizeof *k->to_send);
	k->to_write = dlb_xcalloc((size_t)k->n_hops + 1, sizeof *k->to_write);
	for (int i = 0; i < k->n_hops; i++) {
		k->from[i] = receives(&k->hop[i]) ? find_link(k, k->hop[i].from, true) : -1;
		k->to[i] = sends(&k->hop[i]) ? find_link(k, k->hop[i].to, false) : -1;
		if (receives(&k->hop[i]) && k->hop[i].add)
			k->last_add = i;
	}
	k->loses = dlb_xcalloc((size_t)k->n_hops + 1, sizeof *k->loses);
	for (int i = 0; i <= k->n_hops; i++)
		k->loses[i] = !d->how->holds_copy || !d->how->holds_copy(&d->ranks, member, i);
	for (int i = 0; i < k->n_hops; i++) {
		k->to_send[i] = find_needs(k, i, true);
		k->to_write[i] = find_needs(k, i, false);
	}
}

static int index_of(const struct dlb_allreduce *how)
{
	int i = 0;

	while (dlb_allreduces[i] && dlb_allreduces[i] != how)
		i++;
	return i;
}

static const char *const wire_names[] = {
	[DLB_WIRE_PLAIN] = "it is", [DLB_WIRE_BF16] = "bf16", [DLB_WIRE_BLOCKS] = "blocks"
};

int dlb_collective_new(struct dlb_collective **out, struct dlb_comm *c, const struct dlb_collective_desc *d,
		       struct dlb_error *err)
{
	const struct dlb_ranks *r = &d->ranks;
	int member = dlb_ranks_member(r, dlb_comm_rank(c));
	struct dlb_collective *k;

	if (!dlb_wire_loops(d->wire, d->dtype))
		return dlb_fail(err, NULL, "allreduce: cannot sum %s sent as %s", dlb_dtype_name(d->dtype),
				wire_names[d->wire]);
	if (d->how->external && d->wire != DLB_WIRE_PLAIN)
		return dlb_fail(err, NULL, "allreduce '%s' cannot send %s", d->how->name,
				wire_names[d->wire]);
	k = dlb_xcalloc(1, sizeof *k);
	k->c = c;
	k->tag = d->tag;
	k->x = d->x;
	k->n = k->n_most = d->n;
	k->loops = dlb_wire_loops(d->wire, d->dtype);
	k->bytes = (size_t)dlb_wire_unit(d->wire) * dlb_dtype_bytes(d->dtype);
	k->lost = d->wire == DLB_WIRE_PLAIN ? NULL : d->lost;
	k->wire_bytes = dlb_wire_bytes(d->wire, d->dtype);
	k->n_chunks = d->how->n_chunks(r);
	k->at = dlb_xcalloc((size_t)k->n_chunks + 1, sizeof *k->at);
	for (int i = 0; i <= k->n_chunks; i++)
		k->at[i] = d->at ? d->at[i] : dlb_chunk_at(d->n, k->n_chunks, i);
	choose_segments(k, r, d->how->external);
	k->mine = (struct agreed_terms){ .n = d->n,
					 .how = index_of(d->how),
					 .dtype = (int)d->dtype,
					 .wire = (int)d->wire,
					 .n_members = r->n };
	k->mine.cuts = dlb_hash_bytes(DLB_HASH_INIT, k->at, ((size_t)k->n_chunks + 1) * sizeof *k->at);
	k->before = k->after = -1;
	if (r->n > 1 && member >= 0) {
		k->before = rank_of(r, (member + r->n - 1) % r->n);
		k->after = rank_of(r, (member + 1) % r->n);
		k->bytes_sent = dlb_allreduce_bytes(d->how, r, member, d->n, k->at, k->wire_bytes, NULL);
		if (!d->how->external) {
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
	for (int i = 0; i < k->n_links; i++) {
		if (k->link[i].in)
			dlb_comm_release(k->c, k->link[i].shm_ring);
		free(k->link[i].stream.slot);
	}
	for (int i = 0; i < k->n_hops; i++) {
		free(k->to_send[i].need);
		free(k->to_write[i].need);
	}
	free(k->to_send);
	free(k->to_write);
	free(k->is_added);
	free(k->loses);
	free(k->to);
	free(k->from);
	free(k->link);
	free(k->hop);
	free(k->at);
	free(k);
}

static void begin(const struct dlb_collective *k, struct link *l)
{
	struct stream *s = &l->stream;

	*s = (struct stream){ .slot = s->slot, .depth = s->depth };
	settle(k, l, &s->next);
	settle(k, l, &s->done);
}

/* Sends our offsets on the links of direction `in` and receives the peers' offsets on the others. */
static void introduce(struct dlb_collective *k, bool in)
{
	for (struct link *l = k->link; l < k->link + k->n_links; l++)
		if (l->in == in)
			dlb_comm_isend(k->c, &l->mine, sizeof l->mine, l->peer, k->tag, &l->told);
		else
			dlb_comm_irecv(k->c, &l->theirs, sizeof l->theirs, l->peer, k->tag, &l->heard);
}

void dlb_collective_start(struct dlb_collective *k)
{
	if (k->before < 0)
		return;
	for (int i = 0; i < k->n_links; i++)
		begin(k, &k->link[i]);
	k->n_given = 0;
	if (!k->agreed) {
		dlb_comm_irecv(k->c, &k->theirs, sizeof k->theirs, k->before, k->tag, &k->terms_in);
		dlb_comm_isend(k->c, &k->mine, sizeof k->mine, k->after, k->tag, &k->terms_out);
		introduce(k, true);
		introduce(k, false);
	}
	dlb_collective_test(k);
}

static bool move(struct dlb_collective *k)
{
	if (!agree(k))
		return false;
	return k->subset ? sum_more(k) : segments_more(k);
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
		const struct link *late = awaited(k);
		int peer = !k->agreed ? k->before : late ? late->peer : -1;

		if (move(k))
			idle = (struct dlb_idle){ 0 };
		else if (dlb_comm_idle(k->c, &idle, peer, "allreduce", err))
			return -1;
	}
	return 0;
}

void dlb_collective_resize(struct dlb_collective *k, const int64_t *at)
{
	assert(is_done(k) || !k->agreed);
	assert(!k->subset && at[k->n_chunks] <= k->n_most);
	memcpy(k->at, at, ((size_t)k->n_chunks + 1) * sizeof *k->at);
	k->n = at[k->n_chunks];
	k->bytes_sent = 0;
	for (int i = 0; i < k->n_hops; i++) {
		const struct chunks c = chunks_of(&k->hop[i], true);

		k->bytes_sent += (k->at[c.first + c.n] - k->at[c.first]) * (int64_t)k->wire_bytes;
	}
	if (k->before >= 0)
		choose_blocks(k);
	if (k->agreed)
		return;
	k->mine.n = k->n;
	k->mine.cuts = dlb_hash_bytes(DLB_HASH_INIT, k->at, ((size_t)k->n_chunks + 1) * sizeof *k->at);
}

void dlb_collective_aim(struct dlb_collective *k, void *x)
{
	assert((is_done(k) || !k->agreed) && !k->in_place && !k->subset);
	k->x = x;
}

int64_t dlb_collective_bytes_sent(const struct dlb_collective *k)
{
	return k->bytes_sent;
}
