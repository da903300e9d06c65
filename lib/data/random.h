/* Random samples. */
#ifndef DLB_DATA_RANDOM_H
#define DLB_DATA_RANDOM_H
#include "tensor/tensor.h"

/* random.c: fills dst with `count` elements of dtype. Reals without a bound are N(0,1); integers, and
 * reals with a bound, are integers in [0, bound), or in {0, 1} if bound is 0. Element j of sample i has
 * counter i*count+j in `stream`. */
void dlb_random_fill(uint64_t seed, uint64_t stream, int64_t sample, int64_t count, enum dlb_dtype dtype,
		     int64_t bound, void *dst);
#endif
