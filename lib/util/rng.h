/* Random numbers without hidden state: a counter-based generator (Philox 4x32-10; Salmon et al., SC 2011)
 * keyed by (seed, stream), so that any element can be drawn in any order on any node; and a sequential
 * generator (xoshiro256**; Blackman and Vigna, 2018) for search algorithms. */
#ifndef DLB_UTIL_RNG_H
#define DLB_UTIL_RNG_H
#include <stdint.h>

/* Four 32-bit words for counter i of the stream. */
void dlb_philox(uint64_t seed, uint64_t stream, uint64_t i, uint32_t out[4]);
double dlb_philox_uniform(uint64_t seed, uint64_t stream, uint64_t i);	/* [0,1), 53 bits */
double dlb_philox_normal(uint64_t seed, uint64_t stream, uint64_t i);	/* Box-Muller */

/* The stream of a vertex of the graph in a step. */
uint64_t dlb_philox_stream(uint64_t vertex, uint64_t step);

/* Single-precision normals for filling tensors: draws i .. i + n - 1 give four each (two Box-Muller pairs),
 * out[4 n]. The values of a draw do not depend on which other draws are computed. */
void dlb_philox_normals(uint64_t seed, uint64_t stream, uint64_t i, int64_t n, float *out);

struct dlb_rng { uint64_t s[4]; };
void dlb_rng_init(struct dlb_rng *r, uint64_t seed);
uint64_t dlb_rng_next(struct dlb_rng *r);
double dlb_rng_uniform(struct dlb_rng *r);				/* [0,1) */
uint64_t dlb_rng_below(struct dlb_rng *r, uint64_t n);			/* [0,n), unbiased */
#endif
