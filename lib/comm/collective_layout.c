/* Lays out a sum of several ranks: segments and blocks, links to the peers, and the hops that a hop waits for. See
 * collective.c. */
#define _DEFAULT_SOURCE /* sizes of caches */
#include <stdlib.h>
#include <unistd.h>
#include "comm/collective.h"
#include "util/hash.h"
#include "util/mem.h"

enum {
	IN_FLIGHT_BYTES = 1 << 20, /* of messages under way per direction: a second-level cache */
	LEAST_SLOTS = 2,
	MOST_SLOTS = 64 /* of a shared-memory ring */
};

static bool overlap(struct chunks a, struct chunks b)
{
	return a.first < b.first + b.n && b.first < a.first + a.n;
}

static bool holds(struct chunks a, struct chunks b)
{
	return a.first <= b.first && b.first + b.n <= a.first + a.n;
}

static bool alike(struct chunks a, struct chunks b) { return a.first == b.first && a.n == b.n; }

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

void dlb_collective_choose_blocks(struct dlb_collective *k)
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

	for (int i = 0; i < r->n; i++) /* the result is the same on all members */
		local &= dlb_comm_is_local(k->c, rank_of(r, i));
	k->segment = (local                     ? DLB_LOCAL_SEGMENT_BYTES :
		      eager < DLB_SEGMENT_BYTES ? eager :
						  DLB_SEGMENT_BYTES) /
		     (int64_t)k->bytes;
	k->n_in_flight = IN_FLIGHT_BYTES / (int)(k->segment * (int64_t)k->bytes);
	k->n_in_flight = k->n_in_flight < MOST_IN_FLIGHT ? k->n_in_flight : MOST_IN_FLIGHT;
	k->segment = k->segment < longest ? k->segment : longest;
	n = (most < ring ? most : ring) / ((size_t)k->segment * k->wire_bytes);
	k->n_slots = n < LEAST_SLOTS ? LEAST_SLOTS : n > MOST_SLOTS ? MOST_SLOTS : (uint32_t)n;
	dlb_collective_choose_blocks(k);
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
