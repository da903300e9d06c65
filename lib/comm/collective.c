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
 * between cores with a common cache 18 GB/s (7 with short rings, 12 past the caches); between other cores 2,
 * but 12 past the caches. Virtual cores move between the two cases, so each link times both ways of writing
 * at intervals and uses the faster one.
 *
 * Long arrays go block by block: all hops for the first part of every chunk, then all hops for the next part,
 * so that data received in one hop are still in a cache when the next hop sends them. Each element takes the
 * same path as without blocks, so the bits are the same.
 *
 * To and from each rank, segments go in the order of the list. Segments of different ranks do not wait for
 * each other, but only for their own elements: these must be summed, in the order of the list, before they
 * are sent, and must have been sent before they are added to or replaced. */
#include <assert.h>
#include <limits.h>
#include <string.h>
#include "comm/collective.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/mem.h"

enum {
	LEAST_IN_FLIGHT = 2, /* messages per link, where many links share MOST_IN_FLIGHT */
	/* Blocks that a rank may send ahead of the block it is still receiving. TCP gives the first sender to
	 * a rank most of its port, and sums wait for the last sender: 4 took a seventh longer (tree, 4 ranks,
	 * 1 Gb/s). */
	AHEAD = 1
};

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

/* lost += sign * the segment of x at p, if this rank counts the loss of rounding before hop `hop`. */
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
	return dlb_comm_test(k->c, &s->request[s->n_done % MOST_IN_FLIGHT]);
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
				       &s->request[s->n_posted % MOST_IN_FLIGHT]);
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
			       &s->request[s->n_posted % MOST_IN_FLIGHT]);
		s->n_posted++;
		advance(k, l, &s->next);
	}
	while (s->n_done < s->n_posted && dlb_comm_test(k->c, &s->request[s->n_done % MOST_IN_FLIGHT])) {
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

/* Whether link l needs buffers: its segments go neither directly from or to x nor through a ring. */
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
		dlb_collective_choose_blocks(k);
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
