/* Numbers of 8 bits: sign, 4 bits of exponent, 3 of mantissa (OCP 8-bit floating point, E4M3). Normal from
 * 2^-6 to 448, multiples of 2^-9 below. Larger finite numbers become 448; infinities and NaN become NaN. The
 * sender scales first. */
#ifndef DLB_COMM_F8_H
#define DLB_COMM_F8_H
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Rounds to nearest, ties to even. */
static inline uint8_t dlb_f8_round(float x)
{
	uint32_t u, sign;

	memcpy(&u, &x, sizeof u);
	sign = u >> 24 & 0x80;
	u &= 0x7fffffff;
	if (u >= 0x7f800000)
		return (uint8_t)(sign | 0x7f);
	if (u >= 0x43e00000)				/* 448 */
		return (uint8_t)(sign | 0x7e);
	if (u < 0x3c800000)				/* 2^-6: adding 2^14 leaves multiples of 2^-9 */
		return (uint8_t)(sign | (uint32_t)((fabsf(x) + 16384.0f - 16384.0f) * 512.0f));
	u += 0x7ffff + (u >> 20 & 1);
	return (uint8_t)(sign | ((u >> 20) - (120 << 3)));
}

static inline float dlb_f8_widen(uint8_t w)
{
	uint32_t u = (uint32_t)(w & 0x7f) << 20, sign = (uint32_t)(w & 0x80) << 24;
	float x = (float)(w & 7) * 0x1p-9f;

	if ((w & 0x7f) == 0x7f) {
		u = 0x7fc00000;
		memcpy(&x, &u, sizeof x);
	} else if (w & 0x78) {
		u += (uint32_t)120 << 23;
		memcpy(&x, &u, sizeof x);
	}
	memcpy(&u, &x, sizeof u);
	u |= sign;
	memcpy(&x, &u, sizeof x);
	return x;
}
#endif
