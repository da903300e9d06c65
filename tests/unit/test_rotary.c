/* Kernels of rotary embeddings against their definition: both layouts of heads, pairs side by side or half a row apart,
 * tables by row, by sample and by position. */
#include "kernels.h"

/* Element e of the row, turned as struct dlb_rotary_desc says. */
static double turned(const struct dlb_rotary_desc *d, const void *x, int64_t at, int64_t e, const void *cosine,
		     const void *sine, int64_t entry)
{
	for (int64_t j = 0; j < d->half; j++) {
		const int64_t first = j * d->step, second = first + d->far;
		const double u = dlb_value_real(x, d->dtype, at + first), v = dlb_value_real(x, d->dtype, at + second);
		double c, s;

		if (e != first && e != second)
			continue;
		if (entry < 0)
			return 0;
		c = dlb_value_real(cosine, d->dtype, entry * d->half + j);
		s = dlb_value_real(sine, d->dtype, entry * d->half + j) * (d->inverse ? -1 : 1);
		return e == first ? u * c - v * s : u * s + v * c;
	}
	return dlb_value_real(x, d->dtype, at + e);
}

static void agrees(const struct dlb_rotary_desc *d, void *const *in, const void *y)
{
	const double tolerance = d->dtype == DLB_F32 ? 1e-6 : 1e-14;
	const int64_t *ids = in[3];

	for (int64_t k = 0; k < d->batch * d->heads * d->rows * d->width; k++) {
		const int64_t e = k % d->width, i = k / d->width % d->rows, h = k / d->width / d->rows % d->heads,
			      b = k / d->width / d->rows / d->heads;
		const int64_t at = b * d->x[0] + h * d->x[1] + i * d->x[2],
			      row = d->by_id ? ids[b * d->rows + i] : (d->one_batch ? 0 : b * d->rows) + i,
			      entry = row < 0 || row >= d->positions ? -1 : row;
		const double got = dlb_value_real(y, d->dtype, at + e),
			     want = turned(d, in[0], at, e, in[1], in[2], entry);

		if (fabs(got - want) <= tolerance)
			continue;
		fprintf(stderr, "head %lld, row %lld, element %lld is %.17g, expected %.17g\n", (long long)h,
			(long long)i, (long long)e, got, want);
		abort();
	}
}

static void check(const struct dlb_rotary_desc *d)
{
	const int64_t count = d->batch * d->heads * d->rows * d->width;
	void *in[4] = { drawn(d->dtype, count), drawn(d->dtype, d->positions * d->half),
			drawn(d->dtype, d->positions * d->half) },
	     *y = drawn(d->dtype, count);
	int64_t *ids = d->by_id ? dlb_xcalloc((size_t)(d->batch * d->rows), sizeof *ids) : NULL;
	struct dlb_kernel *k;

	for (int64_t i = 0; ids && i < d->batch * d->rows; i++)		/* one of them on each side of the table */
		ids[i] = (int64_t)floor(dlb_rng_uniform(&rng) * (double)(d->positions + 2)) - 1;
	in[3] = ids;
	MUST(be.ops->rotary(&be, d, &k, &err_));
	run_plainly(k, in, (void *const[]){ y });
	agrees(d, in, y);
	for (int i = 0; i < 4; i++)
		free(in[i]);
	free(y);
}

int main(void)
{
	enum { BATCH = 3, HEADS = 5, ROWS = 7, WIDTH = 20, HALF = 8 };

	begin_tests(20261128);
	for (int option = 0; option < 96; option++) {
		const bool beside = option & 1, heads_inside = option & 2, whole = option & 4;
		const int64_t half = whole ? WIDTH / 2 : HALF;
		const int table = option / 32;			/* of each sample, of all, by position */
		const struct dlb_rotary_desc d = {
			.dtype = option & 8 ? DLB_F64 : DLB_F32, .batch = BATCH, .heads = HEADS, .rows = ROWS,
			.width = WIDTH, .half = half, .positions = table == 0 ? BATCH * ROWS : table == 1 ? ROWS : 4,
			.x = { HEADS * ROWS * WIDTH, heads_inside ? WIDTH : ROWS * WIDTH,
			       heads_inside ? HEADS * WIDTH : WIDTH },
			.step = beside ? 2 : 1, .far = beside ? 1 : half, .by_id = table == 2,
			.one_batch = table == 1, .inverse = option & 16
		};

		check(&d);
	}
	be.ops->close(&be);
	printf("%ld runs agree with their definition\n", n_checks);
	return 0;
}
