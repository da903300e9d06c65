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
		uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * c[0],
			 p1 = (uint64_t)UINT32_C(0xCD9E8D57) * c[2];
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

static uint64_t mix(uint64_t x)			/* finalizer of splitmix64 */
{
	x += 0x9E3779B97F4A7C15u;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

uint64_t dlb_philox_stream(uint64_t vertex, uint64_t step)
{
	return mix(mix(vertex) ^ step);
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

/* ---- many normals ---- */

/* Branch-free loops over a block of draws, which the compiler vectorizes: filling random data must take much
 * less time than a step. Logarithm and sine after S. L. Moshier's Cephes (single precision). */
enum { DRAWS = 64 };

/* Philox of draws i .. i + DRAWS - 1 of a stream; x[k][j]: word k of draw i + j. */
static void draw_block(uint64_t seed, uint64_t stream, uint64_t i, uint32_t x[4][DRAWS])
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

	for (uint64_t j = 0; j < DRAWS; j++) {
		x[0][j] = (uint32_t)(i + j);
		x[1][j] = (uint32_t)((i + j) >> 32);
		x[2][j] = (uint32_t)stream;
		x[3][j] = (uint32_t)(stream >> 32);
	}
	for (int round = 0; round < 10; round++) {
		for (int j = 0; j < DRAWS; j++) {
			uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * x[0][j],
				 p1 = (uint64_t)UINT32_C(0xCD9E8D57) * x[2][j];

			x[0][j] = (uint32_t)(p1 >> 32) ^ x[1][j] ^ k0;
			x[1][j] = (uint32_t)p1;
			x[2][j] = (uint32_t)(p0 >> 32) ^ x[3][j] ^ k1;
			x[3][j] = (uint32_t)p0;
		}
		k0 += UINT32_C(0x9E3779B9);
		k1 += UINT32_C(0xBB67AE85);
	}
}

/* log(k / 2^24) for k in 1 .. 2^24. */
static inline float log_unit(uint32_t k)
{
	union { float f; uint32_t u; } v = { .f = (float)(int32_t)k };
	/* relative to sqrt(1/2): m is in [sqrt(1/2), sqrt(2)) */
	uint32_t above = v.u - 0x3f3504f3u;
	float e = (float)((int32_t)(above >> 23) - 24), m, z, p;

	v.u = (above & 0x7fffff) + 0x3f3504f3u;
	m = v.f - 1;
	z = m * m;
	p = 7.0376836292e-2f * m - 1.1514610310e-1f;
	p = p * m + 1.1676998740e-1f;
	p = p * m - 1.2420140846e-1f;
	p = p * m + 1.4249322787e-1f;
	p = p * m - 1.6668057665e-1f;
	p = p * m + 2.0000714765e-1f;
	p = p * m - 2.4999993993e-1f;
	p = p * m + 3.3333331174e-1f;
	return m + (p * m * z - 2.12194440e-4f * e - 0.5f * z) + 0.693359375f * e;
}

/* Box-Muller: logarithm of a number in (0,1], and a 24-bit angle, whose upper bits are the quadrant. */
static inline void box_muller(uint32_t x, uint32_t y, float *a, float *b)
{
	static const float unit = 6.2831853f / 16777216.0f;
	float r = sqrtf(-2 * log_unit((x >> 8) + 1));
	int32_t k = (int32_t)(y >> 8), q = (k + (1 << 21)) >> 22;
	float t = (float)(k - (q << 22)) * unit, z = t * t;
	float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * t + t;
	float c = ((2.443315712e-5f * z - 1.388731625e-3f) * z + 4.166664568e-2f) * z * z - 0.5f * z + 1;
	float u = q & 1 ? s : c, v = q & 1 ? c : s;

	*a = r * ((q + 1) & 2 ? -u : u);
	*b = r * (q & 2 ? -v : v);
}

void dlb_philox_normals(uint64_t seed, uint64_t stream, uint64_t i, int64_t n, float *out)
{
	uint32_t x[4][DRAWS];
	float z[4][DRAWS];

	for (int64_t at = 0; at < n; at += DRAWS) {
		float *to = out + 4 * at;
		int here = n - at < DRAWS ? (int)(n - at) : DRAWS;

		draw_block(seed, stream, i + (uint64_t)at, x);
		for (int k = 0; k < 4; k += 2)
			for (int j = 0; j < DRAWS; j++)
				box_muller(x[k][j], x[k + 1][j], &z[k][j], &z[k + 1][j]);
		for (int j = 0; j < here; j++)
			for (int k = 0; k < 4; k++)
				to[4 * j + k] = z[k][j];
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
	uint64_t least = n ? (0 - n) % n : 0, x;	/* the 2^64 mod n values below it are redrawn */

	if (n < 2)
		return 0;
	do
		x = dlb_rng_next(r);
	while (x < least);
	return x % n;
}
