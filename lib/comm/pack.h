/* Several arrays in one message: the buffer holds chunk after chunk, each with its slice of every array in
 * order.
 *
 * Each array is cut into as many chunks as the allreduce has (dlb_chunk_at), so the bits of its sum do not
 * depend on the arrays that travel with it. An array that has an owner is not cut: it lies whole in that
 * chunk. */
#ifndef DLB_COMM_PACK_H
#define DLB_COMM_PACK_H
#include <stddef.h>
#include <stdint.h>

struct dlb_pack_part {
	void *x;			/* borrowed; NULL: the caller uses dlb_pack_at */
	int64_t n;			/* elements */
	int owner;			/* the chunk it lies in; -1: cut into all chunks */
	int class;			/* the caller's */
};
struct dlb_pack {
	struct dlb_pack_part *part; int n_parts, cap_parts;
	size_t element_bytes;
	int64_t n;			/* elements of all parts */
	int n_chunks;
	int64_t *at;			/* [n_chunks + 1] first element of each chunk in the buffer */
};
/* The part added, valid until the next one is added. */
struct dlb_pack_part *dlb_pack_add(struct dlb_pack *p, void *x, int64_t n, int owner);
/* Computes n and at, after all parts were added; once more after parts were given other lengths. Buffers hold
 * n elements. */
void dlb_pack_lay_out(struct dlb_pack *p, int n_chunks, size_t element_bytes);
void dlb_pack_load(const struct dlb_pack *p, void *buffer);		/* arrays -> buffer */
void dlb_pack_unload(const struct dlb_pack *p, void *buffer);	/* buffer -> arrays */
void dlb_pack_load_chunk(const struct dlb_pack *p, void *buffer, int chunk); /* one chunk of them -> buffer */
/* The slice of part i in `chunk` of the buffer. */
void *dlb_pack_at(const struct dlb_pack *p, void *buffer, int i, int chunk);
void dlb_pack_release(struct dlb_pack *p);
#endif
