/* Loops between memory format and wire format. See wire.h. */
#include <string.h>
#include "comm/blocks.h"
#include "comm/shared.h"
#include "comm/wire.h"
#include "tensor/cpu/bf16.h"

static void add_f32(void *x, const void *w, int64_t n)
{
	float *restrict to = x;
	const float *restrict from = w;

	for (int64_t i = 0; i < n; i++)
		to[i] += from[i];
}

static void take_f32(void *x, const void *w, int64_t n)
{
	memcpy(x, w, (size_t)n * sizeof(float));
}

static void add_f64(void *x, const void *w, int64_t n)
{
	double *restrict to = x;
	const double *restrict from = w;

	for (int64_t i = 0; i < n; i++)
		to[i] += from[i];
}

static void take_f64(void *x, const void *w, int64_t n)
{
	memcpy(x, w, (size_t)n * sizeof(double));
}

static void pack_bf16(void *x, void *w, int64_t n)
{
	bf16_round_row(w, x, n);
	bf16_widen_row(x, w, n);
}

static void round_bf16(void *x, int64_t n)
{
	float *v = x;

	for (int64_t i = 0; i < n; i++)
		v[i] = bf16_widen(bf16_round(v[i]));
}

static void add_bf16(void *x, const void *w, int64_t n)
{
	float *restrict to = x;
	const uint16_t *restrict from = w;

	for (int64_t i = 0; i < n; i++)
		to[i] += bf16_widen(from[i]);
}

static void take_bf16(void *x, const void *w, int64_t n)
{
	bf16_widen_row(x, w, n);
}

static void pack_blocks(void *x, void *w, int64_t n)
{
	dlb_blocks_write(x, w, n);
	dlb_blocks_read(w, x, n);
}

static void add_blocks(void *x, const void *w, int64_t n) { dlb_blocks_add(w, x, n); }

static void take_blocks(void *x, const void *w, int64_t n) { dlb_blocks_read(w, x, n); }

static void round_blocks(void *x, int64_t n)
{
	uint8_t w[DLB_PACKED_BLOCK_BYTES];

	for (int64_t i = 0; i < n; i++)
		pack_blocks((float *)x + i * DLB_BLOCK, w, 1);
}

static void copy(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

/* Works in blocks that stay in the first-level cache until they are copied. */
static void pass_f32(void *x, const void *w, void *on, int64_t n, bool far)
{
	enum { BLOCK = 2048 };

	for (int64_t i = 0; i < n; i += BLOCK) {
		int64_t k = n - i < BLOCK ? n - i : BLOCK;

		add_f32((float *)x + i, (const float *)w + i, k);
		(far ? dlb_copy_far : copy)((float *)on + i, (const float *)x + i, (size_t)k * sizeof(float));
	}
}

static void pass_f64(void *x, const void *w, void *on, int64_t n, bool far)
{
	enum { BLOCK = 1024 };

	for (int64_t i = 0; i < n; i += BLOCK) {
		int64_t k = n - i < BLOCK ? n - i : BLOCK;

		add_f64((double *)x + i, (const double *)w + i, k);
		(far ? dlb_copy_far : copy)((double *)on + i, (const double *)x + i,
					    (size_t)k * sizeof(double));
	}
}

static const struct dlb_wire_loops f32 = { NULL, add_f32, take_f32, NULL, pass_f32 },
				   f64 = { NULL, add_f64, take_f64, NULL, pass_f64 },
				   bf16 = { pack_bf16, add_bf16, take_bf16, round_bf16, NULL },
				   blocks = { pack_blocks, add_blocks, take_blocks, round_blocks, NULL };

const struct dlb_wire_loops *dlb_wire_loops(enum dlb_wire wire, enum dlb_dtype dtype)
{
	static const struct dlb_wire_loops *const of_floats[] = {
		[DLB_WIRE_PLAIN] = &f32, [DLB_WIRE_BF16] = &bf16, [DLB_WIRE_BLOCKS] = &blocks
	};

	return dtype == DLB_F32 ? of_floats[wire] : dtype == DLB_F64 && wire == DLB_WIRE_PLAIN ? &f64 : NULL;
}
