/* Blocks of numbers with one scale: errors within half a step, the same block again, numbers that are not
 * finite. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "comm/blocks.h"
#include "check.h"
#include "random_matrix.h"
#include "util/rng.h"

static long n_checks;
static struct dlb_rng rng;

/* Half of the largest distance between two neighbouring levels, over the scale. */
static const double half_step = 39.0 / 256;

static float largest(const float *x)
{
	float most = 0;

	for (int i = 0; i < DLB_BLOCK; i++)
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	return most;
}

/* Numbers of all sizes: the scale follows the largest. */
static void errors(void)
{
	for (int e = -118; e <= 120; e += 7) {
		float x[DLB_BLOCK], y[DLB_BLOCK], sum[DLB_BLOCK];
		uint8_t w[DLB_PACKED_BLOCK_BYTES + 1], again[DLB_PACKED_BLOCK_BYTES];

		for (int i = 0; i < DLB_BLOCK; i++)
			x[i] = ldexpf((float)normal(&rng), e);
		w[DLB_PACKED_BLOCK_BYTES] = 0xa5;
		dlb_blocks_write(x, w, 1);
		assert(IS(w[DLB_PACKED_BLOCK_BYTES], ==, 0xa5));
		dlb_blocks_read(w, y, 1);
		/* the scale is at most 2^-7 above the largest number */
		const double scale = (double)largest(x) * (1 + 0x1p-7);
		for (int i = 0; i < DLB_BLOCK; i++)
			assert(IS(fabs((double)x[i] - (double)y[i]), <=, half_step * scale));
		dlb_blocks_write(y, again, 1);
		assert(!memcmp(w, again, DLB_PACKED_BLOCK_BYTES));
		for (int i = 0; i < DLB_BLOCK; i++)
			sum[i] = x[i];
		dlb_blocks_add(w, sum, 1);
		for (int i = 0; i < DLB_BLOCK; i++)
			assert(IS(sum[i], ==, x[i] + y[i]));
		n_checks++;
	}
}

/* Every level is read and written as itself; a block needs its largest level to keep its scale. */
static void codes(void)
{
	for (int code = 0; code < 16; code++) {
		uint8_t w[DLB_PACKED_BLOCK_BYTES] = { 0x80, 0x3f }, again[DLB_PACKED_BLOCK_BYTES];
		float x[DLB_BLOCK];

		for (int b = 2; b < DLB_PACKED_BLOCK_BYTES; b++)
			w[b] = (uint8_t)(15 | code << 4);
		dlb_blocks_read(w, x, 1);
		dlb_blocks_write(x, again, 1);
		assert(!memcmp(w, again, DLB_PACKED_BLOCK_BYTES));
		n_checks++;
	}
}

/* Several blocks, one of them with a number that is not finite; zeros; numbers too small for a scale. */
static void odd(void)
{
	static const float bad[] = { NAN, INFINITY, -INFINITY };
	float x[3 * DLB_BLOCK], y[3 * DLB_BLOCK];
	uint8_t w[3 * DLB_PACKED_BLOCK_BYTES];

	for (int k = 0; k < 3; k++) {
		for (int i = 0; i < 3 * DLB_BLOCK; i++)
			x[i] = (float)normal(&rng);
		x[DLB_BLOCK + 5] = bad[k];
		dlb_blocks_write(x, w, 3);
		dlb_blocks_read(w, y, 3);
		for (int i = 0; i < 3 * DLB_BLOCK; i++)
			assert(IS(isfinite(y[i]) != 0, ==, i / DLB_BLOCK != 1));
	}
	for (int i = 0; i < DLB_BLOCK; i++) {
		x[i] = 0;
		x[DLB_BLOCK + i] = -0x1p-125f;
		x[2 * DLB_BLOCK + i] = i ? 0 : 1;
	}
	dlb_blocks_write(x, w, 3);
	dlb_blocks_read(w, y, 3);
	for (int i = 0; i < 3 * DLB_BLOCK; i++)
		assert(i == 2 * DLB_BLOCK ? fabsf(y[i] - 1) < 0x1p-7f : IS(y[i], ==, 0));
	n_checks += 4;
}

int main(void)
{
	dlb_rng_init(&rng, 5);
	errors();
	codes();
	odd();
	printf("%ld checks of blocks\n", n_checks);
	return 0;
}
