/* The source random: inputs of any shape and type from a counter-based generator, equal
 * on every node and in any order. */
#include <string.h>
#include "data/random.h"
#include "data/readers.h"
#include "data/source.h"
#include "util/rng.h"

/* Writes elements at .. at + count - 1 of a stream of normals; element e is number e % 4 of draw e / 4. */
static void fill_normal(uint64_t seed, uint64_t stream, uint64_t at, int64_t count, enum dlb_dtype dtype,
			void *dst)
{
	enum { MOST = 64 };			/* draws at a time */
	float z[4 * MOST];

	for (int64_t done = 0; done < count;) {
		int64_t skip = (int64_t)(at % 4), left = count - done,
			n = left < 4 * MOST - skip ? left : 4 * MOST - skip;

		dlb_philox_normals(seed, stream, at / 4, (skip + n + 3) / 4, z);
		if (dtype == DLB_F32)
			memcpy((float *)dst + done, z + skip, (size_t)n * sizeof *z);
		else
			for (int64_t i = 0; i < n; i++)
				dlb_value_set(dst, dtype, done + i, (double)z[skip + i]);
		done += n;
		at += (uint64_t)n;
	}
}

static void fill_uniform(uint64_t seed, uint64_t stream, uint64_t at, int64_t count, enum dlb_dtype dtype,
			 int64_t top, void *dst)
{
	for (int64_t i = 0; i < count; i++)
		dlb_value_set(dst, dtype, i,
			      (double)(int64_t)(dlb_philox_uniform(seed, stream, at + (uint64_t)i) *
						(double)top));
}

void dlb_random_fill(uint64_t seed, uint64_t stream, int64_t sample, int64_t count, enum dlb_dtype dtype,
		     int64_t bound, void *dst)
{
	uint64_t at = (uint64_t)sample * (uint64_t)count;

	if (dlb_dtype_is_float(dtype) && bound <= 0)
		fill_normal(seed, stream, at, count, dtype, dst);
	else
		fill_uniform(seed, stream, at, count, dtype, bound > 0 && dtype != DLB_BOOL ? bound : 2, dst);
}

static int fit(struct dlb_data *d, const struct dlb_graph *g, struct dlb_error *err)
{
	(void)g;
	(void)err;
	d->count = DLB_DATA_ENDLESS;
	return 0;
}

static int fill(struct dlb_data *d, const struct dlb_fed_tensor *f, int64_t epoch, int64_t sample,
		struct dlb_scratch *s, void *flat, struct dlb_error *err)
{
	(void)epoch;
	(void)s;
	(void)err;
	dlb_random_fill(d->seed, f->stream, sample, f->outer * f->block, f->dtype, f->bound, flat);
	return 0;
}

const struct dlb_source_class dlb_source_random = {
	.name = "random", .form = "random", .endless = true, .many = true, .fit = fit, .fill = fill
};
