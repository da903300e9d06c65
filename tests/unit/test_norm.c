/* Kernels that normalize rows (layer, RMS, instance and group normalization) and their gradients against their
 * definition, computed in double: scale and bias along the row or by channel, short and long rows. */
#include "kernels.h"

/* The entry of scale and bias of element j of a row. */
static int64_t entry_of(const struct dlb_norm_desc *d, int64_t row, int64_t j)
{
	const int64_t channels = d->row_channels ? d->row_channels : 1;

	return d->channels ? (row * channels + j / (d->width / channels)) % d->channels : j;
}

/* The mean (RMS: 0) and 1 / deviation of a row. */
static void statistics(const struct dlb_norm_desc *d, const void *x, int64_t row, double *mean, double *inv)
{
	double sum = 0, squares = 0;

	for (int64_t j = 0; j < d->width && !d->rms; j++)
		sum += dlb_value_real(x, d->dtype, row * d->width + j);
	*mean = sum / (double)d->width;
	for (int64_t j = 0; j < d->width; j++) {
		const double e = dlb_value_real(x, d->dtype, row * d->width + j) - *mean;

		squares += e * e;
	}
	*inv = 1 / sqrt(squares / (double)d->width + d->epsilon);
}

static void near(const struct dlb_norm_desc *d, const char *what, const void *got, int64_t i, double want)
{
	const double v = dlb_value_real(got, d->dtype, i), tolerance = d->dtype == DLB_F32 ? 2e-5 : 1e-12;

	if (fabs(v - want) <= tolerance * (1 + fabs(want)))
		return;
	fprintf(stderr, "%s%s of %lld rows of %lld, %lld channels (%lld a row), %s: element %lld is %.17g, expected %.17g\n",
		d->rms ? "RMS " : "", what, (long long)d->rows, (long long)d->width, (long long)d->channels,
		(long long)d->row_channels, dlb_dtype_name(d->dtype), (long long)i, v, want);
	abort();
}

struct norm_data { void *x, *dy, *scale, *bias, *y, *mean, *inv, *dx, *dscale, *dbias; };

static void run(const struct dlb_norm_desc *d, void *const *in, void *const *out)
{
	struct dlb_kernel *k;

	MUST(be.ops->norm(&be, d, &k, &err_));
	run_plainly(k, in, out);
}

static void forward(const struct dlb_norm_desc *d, const struct norm_data *m)
{
	void *bias = d->has_bias ? m->bias : NULL;

	run(d, (void *const[]){ m->x, m->scale, bias }, (void *const[]){ m->y, d->rms ? NULL : m->mean, m->inv });
	for (int64_t row = 0; row < d->rows; row++) {
		double mean, inv;

		statistics(d, m->x, row, &mean, &inv);
		for (int64_t j = 0; j < d->width; j++) {
			const int64_t at = row * d->width + j, e = entry_of(d, row, j);
			const double x = dlb_value_real(m->x, d->dtype, at);

			near(d, "y", m->y, at,
			     (x - mean) * inv * dlb_value_real(m->scale, d->dtype, e) +
				     (bias ? dlb_value_real(bias, d->dtype, e) : 0));
		}
		near(d, "1 / deviation", m->inv, row, inv);
		if (!d->rms)
			near(d, "mean", m->mean, row, mean);
	}
}

static void backward(const struct dlb_norm_desc *forward, const struct norm_data *m, int64_t n_entries)
{
	struct dlb_norm_desc d = *forward;
	double *dscale = dlb_xcalloc((size_t)n_entries, sizeof *dscale),
	       *dbias = dlb_xcalloc((size_t)n_entries, sizeof *dbias);

	d.backward = true;
	run(&d, (void *const[]){ m->dy, m->x, m->scale, d.rms ? NULL : m->mean, m->inv },
	    (void *const[]){ m->dx, m->dscale, d.rms ? NULL : m->dbias });
	for (int64_t row = 0; row < d.rows; row++) {
		double mean, inv, sum = 0, slope = 0;

		statistics(&d, m->x, row, &mean, &inv);
		for (int64_t j = 0; j < d.width; j++) {
			const int64_t at = row * d.width + j, e = entry_of(&d, row, j);
			const double dy = dlb_value_real(m->dy, d.dtype, at),
				     hat = (dlb_value_real(m->x, d.dtype, at) - mean) * inv,
				     g = dy * dlb_value_real(m->scale, d.dtype, e);

			sum += d.rms ? 0 : g / (double)d.width;
			slope += g * hat / (double)d.width;
			dscale[e] += dy * hat;
			dbias[e] += dy;
		}
		for (int64_t j = 0; j < d.width; j++) {
			const int64_t at = row * d.width + j;
			const double g = dlb_value_real(m->dy, d.dtype, at) *
					 dlb_value_real(m->scale, d.dtype, entry_of(&d, row, j));

			near(&d, "dx", m->dx, at,
			     inv * (g - sum - (dlb_value_real(m->x, d.dtype, at) - mean) * inv * slope));
		}
	}
	for (int64_t e = 0; e < n_entries; e++) {
		near(&d, "dscale", m->dscale, e, dscale[e]);
		if (!d.rms)
			near(&d, "dbias", m->dbias, e, dbias[e]);
	}
	free(dscale), free(dbias);
}

static void check(struct dlb_norm_desc d)
{
	const int64_t n = d.rows * d.width, entries = d.channels ? d.channels : d.width;
	struct norm_data m;
	void **const all[] = { &m.x, &m.dy, &m.y, &m.dx, &m.scale, &m.bias, &m.dscale, &m.dbias, &m.mean, &m.inv };

	d.epsilon = 1e-5;
	for (int i = 0; i < DLB_LEN(all); i++)
		*all[i] = drawn(d.dtype, i < 4 ? n : i < 8 ? entries : d.rows);
	forward(&d, &m);
	backward(&d, &m, entries);
	for (int i = 0; i < DLB_LEN(all); i++)
		free(*all[i]);
}

int main(void)
{
	static const struct { int64_t rows, width, channels, row_channels; } shapes[] = {
		{ 128, 32, 0, 0 }, { 3, 7, 0, 0 }, { 1, 1, 0, 0 }, { 40, 256, 0, 0 }, { 9, 1536, 0, 0 },
		{ 2000, 24, 0, 0 }, { 12, 35, 4, 1 }, { 8, 48, 12, 3 }, { 6, 64, 16, 8 },
	};

	begin_tests(20261128);
	for (int i = 0; i < DLB_LEN(shapes); i++)
		for (int option = 0; option < 6; option++) {
			const int kind = option / 2;		/* without and with a bias, RMS */

			check((struct dlb_norm_desc){ .dtype = option % 2 ? DLB_F64 : DLB_F32,
						      .has_bias = kind == 1,
						      .rms = kind == 2,
						      .rows = shapes[i].rows,
						      .width = shapes[i].width,
						      .channels = shapes[i].channels,
						      .row_channels = shapes[i].row_channels });
		}
	be.ops->close(&be);
	printf("%ld runs agree with their definition\n", n_checks);
	return 0;
}
