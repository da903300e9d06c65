/* Random inputs of any shape and type, by counter: the same on every node, in any order. */
#include "data/source.h"
#include "util/rng.h"

void dlb_random_fill(uint64_t seed, uint64_t stream, int64_t sample, int64_t count, enum dlb_dtype dtype, int64_t bound,
		     void *dst)
{
	uint64_t at = (uint64_t)sample * (uint64_t)count;
	int64_t top = bound > 0 ? bound : 2;

	for (int64_t i = 0; i < count; i++) {
		if (dlb_dtype_is_float(dtype)) {
			dlb_value_set(dst, dtype, i, dlb_philox_normal(seed, stream, at + (uint64_t)i));
		} else {
			double u = dlb_philox_uniform(seed, stream, at + (uint64_t)i);

			if (dtype == DLB_BOOL && top > 2)
				top = 2;
			dlb_value_set(dst, dtype, i, (double)(int64_t)(u * (double)top));
		}
	}
}
