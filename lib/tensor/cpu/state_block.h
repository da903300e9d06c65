/* Encoding and decoding of one block of an optimizer's state (tensor/state_codec.h), in loops that compilers
 * vectorize: each level of the instruction set has its own. */
#ifndef DLB_TENSOR_CPU_STATE_BLOCK_H
#define DLB_TENSOR_CPU_STATE_BLOCK_H
#include <math.h>
#include <string.h>
#include "tensor/cpu/bf16.h"
#include "tensor/state_codec.h"

static inline float *dlb_state_scales(int64_t n, const void *state)
{
	return (float *)(void *)((char *)state + (n + 3) / 4 * 4);
}

static inline void dlb_decode_8(bool is_signed, const void *from, float scale, int n, float *restrict to)
{
	if (is_signed) {
		const int8_t *code = from;

		for (int i = 0; i < n; i++) {
			const float t = (float)code[i] * (1.0f / 127);

			to[i] = t * fabsf(t) * (t * t) * scale;
		}
		return;
	}
	const uint8_t *code = from;

	for (int i = 0; i < n; i++) {
		const float t = (float)code[i] * (1.0f / 255);

		to[i] = t * t * (t * t) * scale;
	}
}

/* x^(1/4), 0 <= x <= 1, to 5e-5 of it (0 for x < 1e-30): y = x^(-1/4) by two steps of Newton's method,
 * y (5 - x y^4) / 4, from an estimate that divides the exponent by -4; then x y^3. Products alone,
 * which take less time than two square roots. */
static inline float dlb_fourth_root(float x)
{
	const float least = x > 1e-30f ? x : 1e-30f;
	uint32_t u;
	float y;

	memcpy(&u, &least, sizeof u);
	u = 0x4f584615 - (u >> 2);
	memcpy(&y, &u, sizeof y);
	for (int i = 0; i < 2; i++)
		y *= 1.25f - 0.25f * (least * (y * y * (y * y)));
	return x * (y * y * y);
}

/* Returns the scale. */
static inline float dlb_encode_8(bool is_signed, const float *restrict from, int n, void *to)
{
	uint32_t top = 0;

	/* compares bits: in this order NaN is the largest and infinity the next */
	for (int i = 0; i < n; i++) {
		uint32_t u;

		memcpy(&u, &from[i], sizeof u);
		u &= 0x7fffffff;
		top = u > top ? u : top;
	}
	if (top >= 0x7f800000) {
		memset(to, 0, (size_t)n);
		return NAN;
	}
	float scale;

	memcpy(&scale, &top, sizeof scale);
	scale = scale > 0x1p-94f ? scale : 0x1p-94f;
	const float by = 1 / scale;

	if (is_signed) {
		int8_t *code = to;

		for (int i = 0; i < n; i++) {
			const int q = (int)(127 * dlb_fourth_root(fabsf(from[i]) * by) + 0.5f);

			code[i] = (int8_t)(from[i] < 0 ? -q : q);
		}
		return scale;
	}
	uint8_t *code = to;

	for (int i = 0; i < n; i++) {
		const int q = (int)(255 * dlb_fourth_root(fabsf(from[i]) * by) + 0.5f), least = from[i] != 0;

		code[i] = (uint8_t)(q > least ? q : least);
	}
	return scale;
}

/* `n`: of the whole state. */
static inline void dlb_decode_span(enum dlb_state_code code, int64_t n, const void *state,
				   const struct dlb_state_span *s, float *to)
{
	if (code == DLB_CODE_BF16)
		bf16_widen_row(to, (const uint16_t *)state + s->first, s->n);
	else
		dlb_decode_8(code == DLB_CODE_SIGNED_8, (const char *)state + s->first,
			     dlb_state_scales(n, state)[s->block], s->n, to);
}

static inline void dlb_encode_span(enum dlb_state_code code, int64_t n, const float *from,
				   const struct dlb_state_span *s, void *state)
{
	if (code == DLB_CODE_BF16)
		bf16_round_row((uint16_t *)state + s->first, from, s->n);
	else
		dlb_state_scales(n, state)[s->block] = dlb_encode_8(code == DLB_CODE_SIGNED_8, from, s->n,
								    (char *)state + s->first);
}
#endif
