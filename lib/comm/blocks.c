/* Writes and reads blocks. See blocks.h. */
#include <stdbool.h>
#include <string.h>
#include "comm/blocks.h"
#include "tensor/cpu/bf16.h"

enum { LEVELS = 16 };
/* In 128ths of the scale. */
static const float level[LEVELS] = { -128, -89, -67, -51, -36, -24, -12, 0, 10, 21, 32, 43, 56, 72, 93, 128 };

/* The least bf16 that is not below v >= 0; infinity and NaN stay as they are. */
static uint16_t round_up(float v)
{
	uint32_t u;

	memcpy(&u, &v, sizeof u);
	return (uint16_t)(u > 0x7f800000 ? 0x7fc0 : (u + 0xffff) >> 16);
}

/* The largest magnitude in the block; NaN if any number is NaN. */
static float largest(const float *x)
{
	uint32_t most = 0;
	float v;

	for (int i = 0; i < DLB_BLOCK; i++) {
		uint32_t u;

		memcpy(&u, &x[i], sizeof u);
		u &= 0x7fffffff;
		most = u > most ? u : most;
	}
	memcpy(&v, &most, sizeof v);
	return v;
}

/* code[i] = the index of the level that is nearest to x[i] / scale. */
static void find_levels(const float *x, float scale, uint8_t *code)
{
	for (int i = 0; i < DLB_BLOCK; i++) {
		const float twice = x[i] / scale * 256.0f;
		int above = 0;

		for (int k = 0; k + 1 < LEVELS; k++) /* twice the middle of two levels */
			above += twice > level[k] + level[k + 1];
		code[i] = (uint8_t)above;
	}
}

static void write_block(const float *x, uint8_t *w)
{
	const uint16_t rounded = round_up(largest(x));
	const float scale = bf16_widen(rounded);
	const bool finite = (rounded & 0x7f80) != 0x7f80, small = scale < 0x1p-120f;
	const uint16_t kept = small ? 0 : rounded;
	uint8_t code[DLB_BLOCK] = { 0 }; /* not finite: read as the scale times the first level */

	if (finite && !small)
		find_levels(x, scale, code);
	memcpy(w, &kept, sizeof kept);
	for (int i = 0; i < DLB_BLOCK / 2; i++)
		w[sizeof kept + (size_t)i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
}

/* Writes the block's numbers, divided by its scale, to part. Returns the scale. */
static float read_block(const uint8_t *w, float *part)
{
	uint16_t scale;

	memcpy(&scale, w, sizeof scale);
	w += sizeof scale;
	for (int i = 0; i < DLB_BLOCK / 2; i++) {
		part[2 * i] = level[w[i] & 15] * 0x1p-7f;
		part[2 * i + 1] = level[w[i] >> 4] * 0x1p-7f;
	}
	return bf16_widen(scale);
}

void dlb_blocks_write(const float *x, uint8_t *w, int64_t n)
{
	for (int64_t b = 0; b < n; b++)
		write_block(x + b * DLB_BLOCK, w + b * DLB_PACKED_BLOCK_BYTES);
}

void dlb_blocks_read(const uint8_t *w, float *x, int64_t n)
{
	float part[DLB_BLOCK];

	for (int64_t b = 0; b < n; b++, x += DLB_BLOCK) {
		const float scale = read_block(w + b * DLB_PACKED_BLOCK_BYTES, part);

		for (int i = 0; i < DLB_BLOCK; i++)
			x[i] = part[i] * scale;
	}
}

void dlb_blocks_add(const uint8_t *w, float *x, int64_t n)
{
	float part[DLB_BLOCK];

	for (int64_t b = 0; b < n; b++, x += DLB_BLOCK) {
		const float scale = read_block(w + b * DLB_PACKED_BLOCK_BYTES, part);

		for (int i = 0; i < DLB_BLOCK; i++)
			x[i] += part[i] * scale;
	}
}
