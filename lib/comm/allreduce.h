/* Allreduce: the sum of every rank's array, in place, with the same bits on all ranks.
 *
 * An algorithm gives each rank a list of hops, which depends on the number of ranks and their groups alone. A
 * hop says which chunks to send to which rank, which chunks to receive from which rank, and whether received
 * chunks are added or replace. One engine runs any list; predictions, byte counts and listings read the same
 * list. A ring of four ranks, as rank 0 sees its chunks 0 to 3:
 *
 *   hop   0 1 2 | 3 4 5         first half: reduce-scatter, received chunks are added
 *   sends 0 3 2 | 1 0 3         second half: allgather, received chunks replace
 *   gets  3 2 1 | 0 3 2
 *
 * Every chunk is summed once, along one path, and then copied, so all ranks hold the same bits. Some
 * algorithms instead let pairs of ranks add the same two numbers; then only the bits of NaNs may differ. The
 * bits depend on the chunk boundaries, which the caller chooses (per tensor: dlb-document(5)). The engine
 * works in segments, a few in flight in each direction, so that additions overlap with receiving. Segments
 * are forwarded one by one, and long arrays go block by block, so all hops of a list progress at the same
 * time.
 *
 * Everything before dlb_collective_new is plain C over these lists and needs no MPI; predictions use it.
 * P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms, J. Parallel Distrib. Comput. 69, 2009. */
#ifndef DLB_COMM_ALLREDUCE_H
#define DLB_COMM_ALLREDUCE_H
#include <stdint.h>
#include "comm/comm.h"
#include "tensor/tensor.h"
#include "util/chunk.h"

/* The ranks that sum together. Member i is rank rank[i] of the world (NULL: rank i), in any order, in
 * group group[i] (NULL: all in one group). Hops refer to members, not ranks. Ranks that are not members do
 * nothing. */
struct dlb_ranks { int n; const int *group, *rank; };
int dlb_ranks_member(const struct dlb_ranks *r, int rank);	/* member of a world rank; -1: not a member */

/* Sends chunks [send, send + n_send) to member `to` and receives [recv, recv + n_recv) from member `from`;
 * -1: no peer. */
struct dlb_hop {
	int to, from;
	int send, n_send, recv, n_recv;
	bool add;
};
struct dlb_allreduce {
	const char *name, *summary;
	int (*n_chunks)(const struct dlb_ranks *r);
	/* Writes the hops of `member`, at most dlb_allreduce_most_hops; returns their number. */
	int (*hops)(const struct dlb_ranks *r, int member, struct dlb_hop *hop);
	/* Ranks of one host may read and write each other's arrays (collective.c), because all that a rank
	 * sends is part of a sum that comes back to it, and no hop adds to chunks that it also sends. */
	bool in_place;
	/* Whether `member`, before its hop `hop`, holds the same sum as a member of lower number. hop may be
	 * the one after the last hop that adds: the complete sum. NULL: no two members hold the same sum
	 * before it is complete. */
	bool (*holds_copy)(const struct dlb_ranks *r, int member, int hop);
	bool external;	/* MPI's own algorithm: hops are the ring's, for predictions; cuts are ignored */
};
extern const struct dlb_allreduce *const dlb_allreduces[];	/* ring first; ends with NULL */
extern const struct dlb_allreduce dlb_allreduce_ring, dlb_allreduce_tree, dlb_allreduce_host,
	dlb_allreduce_hierarchical, dlb_allreduce_doubling, dlb_allreduce_mpi;
const struct dlb_allreduce *dlb_allreduce_find(const char *name);	/* NULL: unknown */
/* The two halves of a ring as separate collectives (not in dlb_allreduces): the first sums each chunk at its
 * owner, in the order of the ring, and leaves partial sums in the other chunks; the second copies each
 * owner's chunk to all. */
extern const struct dlb_allreduce dlb_ring_scatter, dlb_ring_gather;
/* The chunk that `member` of n owns. */
static inline int dlb_ring_chunk(int member, int n)
{
	return (member + 1) % n;
}
int dlb_allreduce_most_hops(const struct dlb_ranks *r);

/* Format of elements on the wire. Other than DLB_WIRE_PLAIN (f32 arrays only): a rank rounds values before it
 * sends them, keeps the rounded values, and sums in f32. The final values are therefore rounded too, the same
 * on all ranks. NaN stays NaN. DLB_WIRE_BLOCKS: blocks with one scale and 4 bits for each number (blocks.h).
 * A unit is the smallest part that is sent: an element, or a block. */
enum dlb_wire { DLB_WIRE_PLAIN, DLB_WIRE_BF16, DLB_WIRE_BLOCKS };
int dlb_wire_unit(enum dlb_wire wire); /* elements of a unit */
size_t dlb_wire_bytes(enum dlb_wire wire, enum dlb_dtype dtype); /* of one unit */
/* Units of an array of n elements, whose last unit may be filled in part. */
static inline int64_t dlb_wire_units(enum dlb_wire wire, int64_t n)
{
	return (n + dlb_wire_unit(wire) - 1) / dlb_wire_unit(wire);
}
/* Elements of these units. */
static inline int64_t dlb_wire_room(enum dlb_wire wire, int64_t n)
{
	return dlb_wire_units(wire, n) * dlb_wire_unit(wire);
}

/* Bytes that `member` sends for an array of n units of `wire_bytes` each, cut at `at` (n_chunks + 1 units;
 * NULL: equal chunks). *n_hops (may be NULL): its number of hops, which run one after the other. */
int64_t dlb_allreduce_bytes(const struct dlb_allreduce *how, const struct dlb_ranks *r, int member, int64_t n,
			    const int64_t *at, size_t wire_bytes, int *n_hops);

/* Bytes in memory of a segment, over a network and where all ranks share a host; and of the part of a chunk
 * in one block. Network: a segment and its header are at most as long as the messages that MPI sends over TCP
 * without a handshake (dlb_comm_eager_bytes). Longer ones wait for the handshake, and nothing is added before
 * all of one has arrived. Host: each segment moves counters between the caches of two cores: segments of 16
 * KB took a third longer at 1 to 16 MB; 128 KB took as long as 64. Block: long enough that the next hop's
 * data have arrived when this hop's have been sent. Blocks of 512 KB to 2 MB take .55 to .75 of the time of
 * whole hops (2 ranks, 64 MB: memory is read and written once for two hops); shorter blocks are slower where
 * 4 ranks share 2 cores. */
enum {
	DLB_SEGMENT_BYTES = 124 << 10,
	DLB_SEGMENT_HEADER_BYTES = 4 << 10,
	DLB_LOCAL_SEGMENT_BYTES = 64 << 10,
	DLB_BLOCK_BYTES = 512 << 10
};

/* A collective that can be started repeatedly: sums x (n units, f32 or f64, borrowed) over the ranks, in
 * place. `at` (n_chunks + 1 elements, borrowed during the call): first unit of each chunk; NULL: equal
 * chunks. lost (as x, borrowed; NULL: not wanted; not with DLB_WIRE_PLAIN): the caller sets it to 0 before a
 * start; each element becomes the part that the rounding of this rank took from the sum. The sum of all x
 * given equals the sum received plus `lost` of all ranks, but for rounding to f32. If several ranks round the
 * same sum, only one of them counts the loss. All members must give the same ranks, n, dtype, wire, cuts,
 * algorithm and tag. This is checked at the first start; a member that differs breaks the comm with a message
 * that says so. Collectives that overlap in time need different tags. Members create collectives of `mpi` in
 * the same order. */
struct dlb_collective_desc {
	const struct dlb_allreduce *how;
	struct dlb_ranks ranks;			/* its arrays are borrowed during the call */
	enum dlb_dtype dtype;
	enum dlb_wire wire;
	void *x;
	int64_t n;
	const int64_t *at;
	float *lost;
	int tag;
};
struct dlb_collective;
int dlb_collective_new(struct dlb_collective **out, struct dlb_comm *c, const struct dlb_collective_desc *d,
		       struct dlb_error *err);
void dlb_collective_free(struct dlb_collective *k);
void dlb_collective_start(struct dlb_collective *k);
/* Makes progress without waiting; true: done, or the comm is broken (_wait returns the error). */
bool dlb_collective_test(struct dlb_collective *k);
int dlb_collective_wait(struct dlb_collective *k, struct dlb_error *err);
/* Sets other cuts for the next start. x may have fewer elements than at creation, not more: at[n_chunks]. All
 * members do the same. */
void dlb_collective_resize(struct dlb_collective *k, const int64_t *at);
/* Sets another array for the next start, of an algorithm that is not in_place; call it before
 * dlb_collective_resize. Each member does it for itself. */
void dlb_collective_aim(struct dlb_collective *k, void *x);
int64_t dlb_collective_bytes_sent(const struct dlb_collective *k);	/* by this rank, per run */
#endif
