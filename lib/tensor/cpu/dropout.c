/* Dropout: mask and product in one pass. The mask's words are those of dlb_philox (util/rng.h), for sixteen
 * counters at a time, so that the rounds are vector operations. */
#include "tensor/cpu/cpu.h"
#include "tensor/cpu/threads.h"
#include "util/rng.h"

#define WIDE 16				/* counters at a time */
#define DRAWN (4 * WIDE)		/* elements per WIDE counters */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FOUR(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (d) << 24)
#else
#define FOUR(a, b, c, d) ((a) << 24 | (b) << 16 | (c) << 8 | (d))
#endif

struct dropout_kernel {
	struct dlb_kernel k;
	struct dlb_dropout_desc d;
	int parts;
	int64_t blocks;			/* blocks of DRAWN elements per sample */
};
struct dropout_job { const struct dropout_kernel *k; const struct dlb_run *run; };

/* Philox 4x32-10 of counters [first, first + WIDE): keep[4 i + j] = (word j of counter i >= least). */
static inline void draw(uint64_t seed, uint64_t stream, uint64_t first, uint32_t least, uint8_t keep[DRAWN])
{
	uint32_t c[4][WIDE], four[WIDE], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

	for (int i = 0; i < WIDE; i++) {
		c[0][i] = (uint32_t)(first + (uint64_t)i);
		c[1][i] = (uint32_t)((first + (uint64_t)i) >> 32);
		c[2][i] = (uint32_t)stream;
		c[3][i] = (uint32_t)(stream >> 32);
	}
	for (int round = 0; round < 10; round++) {
#pragma omp simd
		for (int i = 0; i < WIDE; i++) {
			uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * c[0][i],
				 p1 = (uint64_t)UINT32_C(0xCD9E8D57) * c[2][i];
			uint32_t c0 = (uint32_t)(p1 >> 32) ^ c[1][i] ^ k0,
				 c2 = (uint32_t)(p0 >> 32) ^ c[3][i] ^ k1;

			c[0][i] = c0;
			c[1][i] = (uint32_t)p1;
			c[2][i] = c2;
			c[3][i] = (uint32_t)p0;
		}
		k0 += UINT32_C(0x9E3779B9);
		k1 += UINT32_C(0xBB67AE85);
	}
#pragma omp simd
	/* four bytes of a counter as one word, first one lowest */
	for (int i = 0; i < WIDE; i++)
		four[i] = FOUR((uint32_t)(c[0][i] >= least), (uint32_t)(c[1][i] >= least),
			       (uint32_t)(c[2][i] >= least), (uint32_t)(c[3][i] >= least));
	memcpy(keep, four, DRAWN);
}

#define APPLY(T) \
static inline void apply_##T(T *y, const T *x, const uint8_t *keep, double scale, int64_t n) \
{ \
	const T by = (T)scale; \
	_Pragma("omp simd") \
	for (int64_t i = 0; i < n; i++) \
		y[i] = keep[i] ? x[i] * by : 0; \
}
APPLY(float)
APPLY(double)

/* Applies dropout to n elements from `at` on. The words are those drawn for block `block` of the sample (of
 * per_sample elements), from element `skip` of the block on. */
static inline void dropout_block(const struct dropout_job *job, int64_t at, int64_t n, int64_t sample,
				 int64_t per_sample, int64_t block, int64_t skip)
{
	const struct dropout_kernel *k = job->k;
	const struct dlb_run *r = job->run;
	const uint64_t stream = dlb_philox_stream(r->vertex, r->step);
	const uint64_t counters = (uint64_t)(per_sample + 3) / 4;
	const uint32_t least = (uint32_t)(k->d.ratio * 4294967296.0);
	const double scale = 1 / (1 - k->d.ratio);
	uint8_t keep[DRAWN];

	draw(r->seed + (uint64_t)k->d.seed, stream,
	     (uint64_t)(r->first_sample + k->d.first_sample + sample) * counters + (uint64_t)block * WIDE,
	     least, keep);
	if (skip)
		memmove(keep, keep + skip, (size_t)n);
	if (k->d.dtype == DLB_F32)
		apply_float((float *)r->out[0] + at, (const float *)r->in[0] + at, keep, scale, n);
	else
		apply_double((double *)r->out[0] + at, (const double *)r->in[0] + at, keep, scale, n);
	if (r->out[1])
		memcpy((uint8_t *)r->out[1] + at, keep, (size_t)n);
}

static int64_t least_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void dropout_part(const void *ctx, int part, int parts)
{
	const struct dropout_job *job = ctx;
	const struct dropout_kernel *k = job->k;
	const int64_t all = k->d.samples * k->blocks, per_sample = k->d.per_sample;

	for (int64_t i = cpu_cut(all, part, parts), end = cpu_cut(all, part + 1, parts); i < end; i++) {
		const int64_t sample = i / k->blocks, block = i % k->blocks;

		dropout_block(job, sample * per_sample + block * DRAWN,
			      least_of(per_sample - block * DRAWN, DRAWN), sample, per_sample, block, 0);
	}
}

/* A part of a tensor, strip by strip; blocks are cut at the ends of strips and of the whole tensor's
 * samples. */
static void strips_part(const void *ctx, int part, int parts)
{
	const struct dropout_job *job = ctx;
	const struct dlb_dropout_desc *d = &job->k->d;
	const int64_t all = d->samples * d->per_sample / d->part;

	for (int64_t i = cpu_cut(all, part, parts), end = cpu_cut(all, part + 1, parts); i < end; i++)
		for (int64_t e = 0, n; e < d->part; e += n) {
			const int64_t there = i * d->whole + d->first + e, in_sample = there % d->per_whole,
				      skip = in_sample % DRAWN;

			n = least_of(least_of(DRAWN - skip, d->part - e), d->per_whole - in_sample);
			dropout_block(job, i * d->part + e, n, there / d->per_whole, d->per_whole,
				      in_sample / DRAWN, skip);
		}
}

static void dropout_run(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dropout_kernel *d = (const struct dropout_kernel *)k;
	const struct dropout_job job = { d, r };

	dlb_cpu_parallel(d->parts, d->d.part ? strips_part : dropout_part, &job);
}

int dlb_cpu_dropout(struct dlb_backend *b, const struct dlb_dropout_desc *d, struct dlb_kernel **k,
		    struct dlb_error *err)
{
	struct dropout_kernel *n;

	(void)err;
	if (d->dtype != DLB_F32 && d->dtype != DLB_F64)
		return DLB_NO_KERNEL;
	n = dlb_xcalloc(1, sizeof *n);
	n->d = *d;
	n->blocks = (d->per_sample + DRAWN - 1) / DRAWN;
	n->parts = dlb_cpu_parts(b, d->samples * d->per_sample, d->samples * n->blocks);
	n->k = (struct dlb_kernel){ .run = dropout_run, .free = dlb_cpu_kernel_free, .impl = "loop" };
	*k = &n->k;
	return 0;
}
