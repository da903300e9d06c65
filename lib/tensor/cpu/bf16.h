/* bf16: the upper half of a float. Rounds to nearest, ties to even; NaN stays NaN (quiet), infinities and
 * denormals are exact. Integer code, so every level and compiler gives the same bits; both loops
 * vectorize. */
#ifndef DLB_TENSOR_CPU_BF16_H
#define DLB_TENSOR_CPU_BF16_H
#include <stdint.h>
#include <string.h>

static inline float bf16_widen(uint16_t h)
{
	uint32_t u = (uint32_t)h << 16;
	float v;

	memcpy(&v, &u, sizeof v);
	return v;
}

static inline uint16_t bf16_round(float v)
{
	uint32_t u, even, nan;

	memcpy(&u, &v, sizeof u);
	even = (u + 0x7fff + (u >> 16 & 1)) >> 16;
	nan = u >> 16 | 0x40;
	return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : even);
}

static inline void bf16_widen_row(float *restrict to, const uint16_t *restrict from, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = bf16_widen(from[i]);
}

static inline void bf16_round_row(uint16_t *restrict to, const float *restrict from, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = bf16_round(from[i]);
}
#endif
