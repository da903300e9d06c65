/* An array cut into chunks of equal size, as a ring sums it and as replicas share it. */
#ifndef DLB_UTIL_CHUNK_H
#define DLB_UTIL_CHUNK_H
#include <stdint.h>

/* First element of chunk k when n elements are cut into `n_chunks` equal chunks; k = n_chunks: n. */
static inline int64_t dlb_chunk_at(int64_t n, int n_chunks, int k)
{
	return n / n_chunks * k + n % n_chunks * k / n_chunks;
}
#endif
