/* Random numbers: see rng.h. Philox4x32-10: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011; its constants and known answers are theirs. xoshiro256**:
 * D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", 2018; seeded by splitmix64. */
#include "util/rng.h"

#include <math.h>

void dlb_philox(uint64_t seed, uint64_t stream, uint64_t i, uint32_t out[4])
{
	uint32_t c[4] = { (uint32_t)i, (uint32_t)(i >> 32), (uint32_t)stream, (uint32_t)(stream >> 32) };
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * c[0], p1 = (uint64_t)UINT32_C(0xCD9E8D57) * c[2];
		uint32_t c0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, c2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;

		c[0] = c0;
		c[1] = (uint32_t)p1;
		c[2] = c2;
		c[3] = (uint32_t)p0;
		k0 += UINT32_C(0x9E3779B9);
		k1 += UINT32_C(0xBB67AE85);
	}
	for (int j = 0; j < 4; j++)
		out[j] = c[j];
}

static double to_unit(uint32_t high, uint32_t low)
{
	return (double)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

double dlb_philox_uniform(uint64_t seed, uint64_t stream, uint64_t i)
{
	uint32_t x[4];

	dlb_philox(seed, stream, i, x);
	return to_unit(x[0], x[1]);
}

double dlb_philox_normal(uint64_t seed, uint64_t stream, uint64_t i)
{
	static const double two_pi = 6.283185307179586476925286766559;
	uint32_t x[4];

	dlb_philox(seed, stream, i, x);
	/* 1 - u lies in (0,1], so its logarithm is finite. */
	return sqrt(-2 * log(1 - to_unit(x[0], x[1]))) * cos(two_pi * to_unit(x[2], x[3]));
}

void dlb_philox_normal4(uint64_t seed, uint64_t stream, uint64_t i, float out[4])
{
	static const float two_pi = 6.2831853f, unit = 1.0f / 16777216.0f;
	uint32_t x[4];

	dlb_philox(seed, stream, i, x);
	for (int k = 0; k < 4; k += 2) {
		/* 24 bits each; the logarithm's lie in (0,1]. */
		float r = sqrtf(-2 * logf((float)((x[k] >> 8) + 1) * unit)), a = two_pi * (float)(x[k + 1] >> 8) * unit;

		out[k] = r * cosf(a);
		out[k + 1] = r * sinf(a);
	}
}

static uint64_t rotate(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

void dlb_rng_init(struct dlb_rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));

		z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
		r->s[i] = z ^ (z >> 31);
	}
}

uint64_t dlb_rng_next(struct dlb_rng *r)
{
	uint64_t *s = r->s, result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return result;
}

double dlb_rng_uniform(struct dlb_rng *r)
{
	return (double)(dlb_rng_next(r) >> 11) * 0x1p-53;
}

uint64_t dlb_rng_below(struct dlb_rng *r, uint64_t n)
{
	uint64_t least = n ? (0 - n) % n : 0, x;	/* 2^64 mod n values are drawn again */

	if (n < 2)
		return 0;
	do
		x = dlb_rng_next(r);
	while (x < least);
	return x % n;
}
