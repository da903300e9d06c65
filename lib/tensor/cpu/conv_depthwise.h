/* The weight's gradient of a depthwise convolution, channels-last, float; included by conv.c.
 *
 *     dw[c][tap] = sum over images and outputs o of dy[o][c] x[o at tap][c]
 *
 * oneDNN computes a 1 x 1 product per channel, at a thirtieth of the processor's speed. Here neighbouring
 * channels fill the vectors, with sums in registers for a row of outputs at one tap (several chains of
 * additions hide each other's latency). A row meets all taps while it and the rows of x around it are in
 * cache; the taps' sums are in scratch memory. The last block of channels overlaps the one before to stay
 * full, and stores only its own channels. Sums run over images and rows, then columns, for any number of
 * threads. */
#include "tensor/cpu/level.h"
/* Channels of a block: a multiple of GRAIN, at most MOST, in vectors of the level. */
enum { DW_GRAIN = 16, DW_MOST = VECTOR_BYTES > 16 ? 64 : 32, DW_WIDTH = VECTOR_BYTES / (int)sizeof(float) };
typedef float dw_vector __attribute__((vector_size(VECTOR_BYTES)));

/* sum += dy x over `n` outputs of a row; x elements are xs apart, dy elements ys. `wide` is constant after
 * inlining. */
static inline __attribute__((always_inline)) void dw_row(int wide, int64_t n, const float *x, int64_t xs,
							 const float *dy, int64_t ys, float *sum)
{
	dw_vector s[DW_MOST / DW_WIDTH], a, b;

#pragma GCC unroll 8
	for (int v = 0; v < wide / DW_WIDTH; v++)
		memcpy(&s[v], sum + v * DW_WIDTH, sizeof a);
	for (int64_t i = 0; i < n; i++, x += xs, dy += ys)
#pragma GCC unroll 8
		for (int v = 0; v < wide / DW_WIDTH; v++) {
			memcpy(&a, x + v * DW_WIDTH, sizeof a);
			memcpy(&b, dy + v * DW_WIDTH, sizeof b);
			s[v] += a * b;
		}
#pragma GCC unroll 8
	for (int v = 0; v < wide / DW_WIDTH; v++)
		memcpy(sum + v * DW_WIDTH, &s[v], sizeof s[v]);
}

/* Outputs [*lo, *hi) along dimension i whose kernel position k is inside the input. */
static void dw_span(const struct conv_kernel *c, int i, int64_t k, int64_t *lo, int64_t *hi)
{
	*lo = 0;
	*hi = c->out[i];
	while (*lo < *hi && conv_source(c, i, *lo, k) < 0)
		(*lo)++;
	while (*hi > *lo && conv_source(c, i, *hi - 1, k) < 0)
		(*hi)--;
}

/* Adds the row (d, h) of an image's outputs to the sums of all taps, [tap][channel]; x: the image, dy: the row, both
 * from the block's first channel on. */
static inline __attribute__((always_inline)) void dw_taps(const struct conv_kernel *c, int wide, int64_t d,
							  int64_t h, const float *x, const float *dy,
							  float *sums)
{
	int64_t lo, hi;

	for (int64_t k2 = 0; k2 < c->size[2]; k2++) {
		dw_span(c, 2, k2, &lo, &hi);
		for (int64_t k = 0; lo < hi && k < c->size[0] * c->size[1]; k++) {
			const int64_t from_d = conv_source(c, 0, d, k / c->size[1]),
				      from_h = conv_source(c, 1, h, k % c->size[1]);

			if (from_d >= 0 && from_h >= 0)
				dw_row(wide, hi - lo,
				       x + from_d * c->xs[0] + from_h * c->xs[1] +
					       conv_source(c, 2, lo, k2) * c->xs[2],
				       c->step[2] * c->xs[2], dy + lo * c->yp, c->yp,
				       sums + (k * c->size[2] + k2) * wide);
		}
	}
}

static inline __attribute__((always_inline)) void dw_block(const struct conv_kernel *c, int wide,
							   int64_t block, const struct dlb_run *r,
							   float *sums)
{
	const int64_t own = block * wide, first = own + wide > c->g ? c->g - wide : own;
	float *dw = r->out[0];

	memset(sums, 0, (size_t)(c->taps * wide) * sizeof *sums);
	for (int64_t n = 0; n < c->n; n++)
		for (int64_t d = 0; d < c->out[0]; d++)
			for (int64_t h = 0; h < c->out[1]; h++)
				dw_taps(c, wide, d, h, (const float *)r->in[1] + first + n * c->xn,
					(const float *)r->in[0] + first + n * c->yn +
						(d * c->out[1] + h) * c->out[2] * c->yp,
					sums);
	for (int64_t ch = own; ch < first + wide; ch++)
		for (int64_t tap = 0; tap < c->taps; tap++)
			dw[ch * c->taps + tap] = sums[tap * wide + ch - first];
}

struct depthwise_job {
	const struct conv_kernel *c;
	const struct dlb_run *run;
};

/* Channels of each block: the smallest multiple of DW_GRAIN for which there are no more blocks than with
 * DW_MOST, but no more than there are channels. */
static int64_t dw_wide(const struct conv_kernel *c)
{
	const int64_t blocks = (c->g + DW_MOST - 1) / DW_MOST, share = (c->g + blocks - 1) / blocks,
		      wide = (share + DW_GRAIN - 1) / DW_GRAIN * DW_GRAIN, most = c->g / DW_GRAIN * DW_GRAIN;

	return wide < most ? wide : most;
}

static int64_t dw_blocks(const struct conv_kernel *c) { return (c->g + dw_wide(c) - 1) / dw_wide(c); }

/* Sums of one part. */
static size_t dw_scratch_bytes(const struct conv_kernel *c)
{
	return cpu_round64((size_t)(c->taps * dw_wide(c)) * sizeof(float));
}

static void depthwise_part(const void *ctx, int part, int parts)
{
	const struct depthwise_job *job = ctx;
	const struct conv_kernel *c = job->c;
	const int64_t blocks = dw_blocks(c);
	float *sums = (float *)((char *)job->run->scratch + (size_t)part * dw_scratch_bytes(c));

	for (int64_t b = cpu_cut(blocks, part, parts); b < cpu_cut(blocks, part + 1, parts); b++)
		switch (dw_wide(c)) {
		case 16:
			dw_block(c, 16, b, job->run, sums);
			break;
		case 32:
			dw_block(c, 32, b, job->run, sums);
			break;
#if VECTOR_BYTES > 16
		case 48:
			dw_block(c, 48, b, job->run, sums);
			break;
		case 64:
			dw_block(c, 64, b, job->run, sums);
			break;
#endif
		}
}

static void run_depthwise(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct conv_kernel *c = (struct conv_kernel *)k;
	const struct depthwise_job job = { c, r };
	float *db = c->d.has_bias ? r->out[1] : NULL;

	dlb_cpu_parallel(c->parts, depthwise_part, &job);
	if (!db)
		return;
	memset(db, 0, (size_t)c->g * sizeof *db);
	for (int64_t n = 0; n < c->n; n++)
		for (int64_t p = 0; p < c->positions; p++) {
			const float *dy = (const float *)r->in[0] + n * c->yn + p * c->yp;
			for (int64_t ch = 0; ch < c->g; ch++)
				db[ch] += dy[ch];
		}
}

/* True for a depthwise convolution: one channel per group, channels adjacent in memory. */
static bool is_depthwise(const struct conv_kernel *c)
{
	return c->d.dir == DLB_CONV_GRAD_WEIGHT && c->d.x.dtype == DLB_F32 && c->cg == 1 && c->mg == 1 &&
	       c->g >= DW_GRAIN && c->xc == 1 && c->ym == 1;
}
