/* The state of a sum that several ranks make, for the files that lay it out (collective_layout.c) and run it
 * (collective.c). Private to these two. */
#ifndef DLB_COMM_COLLECTIVE_H
#define DLB_COMM_COLLECTIVE_H
#include <stdatomic.h>
#include "comm/allreduce.h"
#include "comm/shared.h"
#include "comm/wire.h"

enum { MOST_IN_FLIGHT = 16 }; /* MPI messages under way per direction */

/* A position in the list: segment `seg` of the `chunk`-th chunk of hop `hop` in block `block`; n elements
 * from `from`. */
struct segment_position {
	int64_t block, seg, from, n;
	int hop, chunk;
};
/* Segments to or from one rank, posted and completed in the order of the list. */
struct stream {
	struct segment_position next, done;
	struct dlb_request request[MOST_IN_FLIGHT];
	int64_t n_posted, n_done;
	int depth; /* most segments that are posted and not done */
	char *slot; /* [depth] buffers in wire format; NULL: messages are sent from and received into x */
};
/* Segments from one rank to another of this host. One side writes each count. */
struct shm_ring {
	_Alignas(64) _Atomic uint32_t sent;
	_Alignas(64) _Atomic uint32_t taken; /* out of slots */
	_Alignas(64) char slot[]; /* k->n_slots slots */
};
/* Offsets in the region of the rank that sends this; UINT64_MAX: not there. */
struct region_offsets {
	uint64_t shm_ring, x;
};
/* A link from or to a peer. */
struct link {
	int peer;
	bool in;
	struct shm_ring *shm_ring; /* NULL: by MPI */
	char *there; /* the peer's x; NULL: not addressable, so segments go through slots */
	uint32_t n; /* segments so far, at this end */
	struct region_offsets mine, theirs;
	struct dlb_request told, heard; /* messages with mine, theirs */
	struct dlb_copy_tuner copy, pass;
	struct stream stream;
};
/* A dependency of a segment on the matching segment of an earlier hop on another link; same: both hops move
 * the same chunks, else all of that hop in the block must be done. */
struct need {
	int hop, link;
	bool same;
};
struct needs {
	struct need *need;
	int n;
};
/* Values that must be equal on all members; each member compares its own with those of the member before
 * it. */
struct agreed_terms {
	int64_t n;
	uint64_t cuts;
	int how, dtype, wire, n_members;
};
/* Elements below are units (allreduce.h). */
struct dlb_collective {
	struct dlb_comm *c;
	int tag, n_hops, n_chunks;
	uint32_t n_slots; /* of a shared-memory ring */
	int n_in_flight; /* of a stream that needs no slots */
	char *x;
	int64_t n, n_most, segment; /* elements: of x, of x at creation, of a segment */
	int64_t n_blocks, per_block; /* segments of a chunk in one block; INT64_MAX: there is one block */
	size_t bytes, wire_bytes; /* of an element in memory, on the wire */
	const struct dlb_wire_loops *loops;
	int64_t *at;
	struct dlb_hop *hop; /* to, from: world ranks */
	int last_add; /* the last hop that adds, -1: none */
	int *to, *from; /* [hop] its links; -1: none */
	float *lost; /* NULL: not wanted */
	/* [hop] whether this rank counts the loss of its rounding before that hop; for the hop after the last
	 * one that adds, of rounding the complete sum */
	bool *loses;
	bool *is_added; /* [hop] the receiver adds the elements that the hop sends; set if in_place */
	bool in_place; /* near ranks may read and write x */
	struct needs *to_send, *to_write; /* [hop] dependencies of sending; of adding or replacing */
	struct agreed_terms mine, theirs;
	/* before: the rank whose terms are compared with this one's; after: the rank that gets this one's;
	 * -1: nothing to sum here */
	int before, after;
	struct dlb_request terms_in, terms_out;
	struct link *link;
	int n_links;
	bool agreed;
	/* of MPI's own sum, which runs in pieces; the next piece begins at n_given */
	struct dlb_subset *subset;
	struct dlb_request piece;
	int64_t n_given, bytes_sent;
};

static inline int rank_of(const struct dlb_ranks *r, int member)
{
	return member < 0 || !r->rank ? member : r->rank[member];
}

static inline bool sends(const struct dlb_hop *h) { return h->to >= 0; }
static inline bool receives(const struct dlb_hop *h) { return h->from >= 0; }

/* Chunks that a hop sends or receives; n = 0: none. */
struct chunks {
	int first, n;
};
static inline struct chunks chunks_of(const struct dlb_hop *h, bool sending)
{
	if (!(sending ? sends(h) : receives(h)))
		return (struct chunks){ 0, 0 };
	return sending ? (struct chunks){ h->send, h->n_send } : (struct chunks){ h->recv, h->n_recv };
}

static inline size_t shm_ring_bytes(const struct dlb_collective *k)
{
	return sizeof(struct shm_ring) + k->n_slots * (size_t)k->segment * k->wire_bytes;
}

/* Sets n_blocks and per_block for the present chunks. */
void dlb_collective_choose_blocks(struct dlb_collective *k);
#endif
