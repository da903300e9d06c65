/* Normalization of rows and dropout against their definitions, at every level of the cpu's instruction
 * set; and loops divided among threads: the same bits as on one thread (sums over parts: up to
 * rounding). */
#include "check.h"
#include "kernels.h"

static double tol_of(enum dlb_dtype t) { return t == DLB_F32 ? 2e-5 : 1e-12; }

static struct dlb_desc d2(enum dlb_dtype t, int64_t rows, int64_t width)
{
	return desc(t, 0, 2, DIMS(rows, width));
}

/* Normalization by its definition; element j of row r has scale and bias entry_of(r, j). */
static int64_t entry_of(const struct dlb_norm_desc *d, int64_t r, int64_t j)
{
	const int64_t n = d->row_channels ? d->row_channels : 1;

	return d->channels ? (r * n + j / (d->width / n)) % d->channels : j;
}

static void define_norm(const struct dlb_norm_desc *d, const struct arg *in, struct arg *out, struct arg *gin,
			struct arg *gout)
{
	for (int64_t i = 0; i < d->rows; i++) {
		const double *v = in[0].v + i * d->width, *dy = gin[0].v + i * d->width, n = (double)d->width;
		double mean = 0, var = 0, inv, s = 0, q = 0;

		for (int64_t j = 0; j < d->width && !d->rms; j++)
			mean += v[j] / n;
		for (int64_t j = 0; j < d->width; j++)
			var += (v[j] - mean) * (v[j] - mean) / n;
		inv = 1 / sqrt(var + d->epsilon);
		out[1].v[i] = mean;
		out[2].v[i] = inv;
		gin[3].v[i] = mean = rounded(d->dtype, mean);
		gin[4].v[i] = inv = rounded(d->dtype, inv);
		for (int64_t j = 0; j < d->width; j++) {
			const int64_t e = entry_of(d, i, j);

			out[0].v[i * d->width + j] = (v[j] - out[1].v[i]) * out[2].v[i] * in[1].v[e] +
						     (in[2].v ? in[2].v[e] : 0);
			gout[1].v[e] += dy[j] * (v[j] - mean) * inv;
			gout[2].v[e] += dy[j];
			s += d->rms ? 0 : dy[j] * in[1].v[e] / n;
			q += dy[j] * in[1].v[e] * (v[j] - mean) * inv / n;
		}
		for (int64_t j = 0; j < d->width; j++)
			gout[0].v[i * d->width + j] = inv * (dy[j] * in[1].v[entry_of(d, i, j)] - s -
							     (v[j] - mean) * inv * q);
	}
}

static void one_norm(struct dlb_norm_desc d)
{
	const enum dlb_dtype t = d.dtype;
	const int64_t rows = d.rows, width = d.width, entries = d.channels ? d.channels : width;
	struct dlb_desc x = d2(t, rows, width), list = desc(t, 0, 1, &entries), stat = desc(t, 0, 1, &rows);
	struct arg in[3] = { draw(x), draw(list), d.has_bias ? draw(list) : absent() },
		   out[3] = { { x, zeros(rows * width) }, { stat, zeros(rows) }, { stat, zeros(rows) } };
	struct arg gin[5] = { draw(x), in[0], in[1], { stat, zeros(rows) }, { stat, zeros(rows) } };
	struct arg gout[3] = { { x, zeros(rows * width) },
			       { list, zeros(entries) },
			       { list, zeros(entries) } };
	struct dlb_kernel *k;
	char what[100];

	define_norm(&d, in, out, gin, gout);
	snprintf(what, sizeof what, "norm %s %lldx%lld channels %lld/%lld%s", dlb_dtype_name(t),
		 (long long)rows, (long long)width, (long long)d.channels, (long long)d.row_channels,
		 d.rms ? " rms" : "");
	MUST(be.ops->norm(&be, &d, &k, &err_));
	check_run(what, k, in, 3, out, 3, tol_of(t), NULL, NULL);
	d.backward = true;
	MUST(be.ops->norm(&be, &d, &k, &err_));
	check_run(what, k, gin, 5, gout, d.rms ? 2 : 3, tol_of(t), NULL, NULL);
	free(gin[0].v);
	free(gin[3].v);
	free(gin[4].v);
	release(gout, 3);
	release(in, 3);
	release(out, 3);
}

static void norms(void)
{
	static const int64_t widths[] = { 1, 7, 16, 33, 384, 5000 };

	for (int t = DLB_F32; t <= DLB_F64; t++)
		for (int i = 0; i < DLB_LEN(widths); i++) {
			const struct dlb_norm_desc d = {
				.dtype = t, .rows = 70, .width = widths[i], .has_bias = i % 2, .epsilon = 1e-5
			};
			struct dlb_norm_desc e = d;

			/* a row of one element has variance 0, and 1/sqrt(epsilon) magnifies rounding */
			if (widths[i] > 1)
				one_norm(d);
			e.rms = true;
			e.has_bias = false;
			one_norm(e);
			e.rows = 1;
			one_norm(e);
			e = d;
			e.rows = 6;
			e.width = widths[i] + 1;
			e.channels = 3;
			e.has_bias = true;
			one_norm(e);
			e.width = 4 * widths[i];
			e.channels = 12;
			e.row_channels = 4;
			one_norm(e);
		}
}

/* The mask word by word from the generator, also for micro-batches in the middle of a batch. */
static void one_dropout(enum dlb_dtype t, int64_t samples, int64_t per_sample, int64_t first_sample)
{
	struct dlb_dropout_desc d = {
		.dtype = t, .samples = samples, .per_sample = per_sample, .ratio = 0.3, .seed = 11
	};
	struct dlb_run how = { .seed = 5, .step = 17, .vertex = 3, .first_sample = first_sample };
	struct dlb_desc x = d2(t, samples, per_sample), m = d2(DLB_BOOL, samples, per_sample);
	struct arg in[1] = { draw(x) },
		   out[2] = { { x, zeros(samples * per_sample) }, { m, zeros(samples * per_sample) } };
	uint64_t z[2] = { how.vertex, 0 };
	int64_t kept = 0;
	struct dlb_kernel *k;

	for (int i = 0; i < 2; i++) {	/* splitmix64 of the vertex, then of that and the step */
		uint64_t v = (i ? z[0] ^ how.step : z[0]) + 0x9E3779B97F4A7C15u;

		v = (v ^ v >> 30) * 0xBF58476D1CE4E5B9u;
		v = (v ^ v >> 27) * 0x94D049BB133111EBu;
		z[0] = v ^ v >> 31;
	}
	for (int64_t i = 0; i < samples * per_sample; i++) {
		int64_t j = i % per_sample, sample = first_sample + i / per_sample;
		uint32_t w[4];

		dlb_philox(how.seed + 11, z[0], (uint64_t)(sample * ((per_sample + 3) / 4) + j / 4), w);
		out[1].v[i] = w[j % 4] >= (uint32_t)(0.3 * 4294967296.0);
		out[0].v[i] = out[1].v[i] != 0 ? in[0].v[i] / 0.7 : 0;
		kept += out[1].v[i] != 0;
	}
	assert(samples * per_sample < 1000 ||
	       fabs((double)kept / (double)(samples * per_sample) - 0.7) < 0.05);
	MUST(be.ops->dropout(&be, &d, &k, &err_));
	check_run("dropout", k, in, 1, out, 2, 1e-6, &how, NULL);
	release(in, 1);
	release(out, 2);
}

/* A part of a tensor gets the same part of the mask: `part` elements out of every `whole`. */
static void part_of_dropout(int64_t samples, int64_t per_sample, int64_t part, int64_t whole, int64_t first)
{
	const int64_t all = samples * per_sample, n = all / whole * part,
		      in_rows = whole > per_sample ? whole / per_sample : 1;
	struct dlb_dropout_desc d = { .dtype = DLB_F32,
				      .samples = samples,
				      .per_sample = per_sample,
				      .ratio = 0.3,
				      .seed = 11 },
				p = d;
	struct dlb_run how = { .seed = 5, .step = 17, .vertex = 3, .first_sample = 6 };
	struct dlb_desc x = d2(DLB_F32, samples, per_sample), m = d2(DLB_BOOL, samples, per_sample);
	struct arg in[1] = { draw(x) }, out[2] = { { x, zeros(all) }, { m, zeros(all) } };
	struct dlb_kernel *k;
	float *y = malloc((size_t)all * sizeof *y), *xs = malloc((size_t)all * sizeof *xs);
	unsigned char *mask = malloc((size_t)all), *part_mask = malloc((size_t)n + 1);
	float *px = malloc((size_t)n * sizeof *px + 1), *py = malloc((size_t)n * sizeof *py + 1);

	for (int64_t i = 0; i < all; i++)
		xs[i] = (float)in[0].v[i];
	for (int64_t i = 0; i < n; i++)
		px[i] = xs[i / part * whole + first + i % part];
	p.samples = whole > per_sample ? samples / in_rows * (part / per_sample) : samples;
	p.per_sample = n / p.samples;
	p.part = part;
	p.whole = whole;
	p.first = first;
	p.per_whole = per_sample;
	for (int i = 0; i < 2; i++) {
		struct dlb_run r = how;

		r.in = (void *[]){ i ? px : xs };
		r.out = (void *[]){ i ? py : y, i ? part_mask : mask };
		MUST(be.ops->dropout(&be, i ? &p : &d, &k, &err_));
		k->run(k, &r);
		k->free(k);
	}
	for (int64_t i = 0; i < n; i++) {
		const int64_t there = i / part * whole + first + i % part;

		assert(IS(py[i], ==, y[there]) && IS(part_mask[i], ==, mask[there]));
	}
	free(y), free(xs), free(mask), free(part_mask), free(px), free(py);
	release(in, 1);
	release(out, 2);
}

/* One kernel prepared for one thread and for three, on the same operands. */
static void same_bits(const char *what, int (*prepare)(struct dlb_kernel **), size_t in_bytes,
		      size_t out_bytes, int n_out)
{
	unsigned char *in[3], *out[2][3], *scratch;

	for (int i = 0; i < 3; i++) {
		in[i] = room(in_bytes);
		for (size_t j = 0; j < in_bytes / 4; j++)
			((float *)(void *)in[i])[j] = (float)(0.1 + dlb_rng_uniform(&rng));
		for (int side = 0; side < 2; side++)
			out[side][i] = room(out_bytes);
	}
	for (int side = 0; side < 2; side++) {
		struct dlb_kernel *k = NULL;

		be.n_threads = side ? 3 : 1;
		if (prepare(&k))
			abort();
		scratch = room(k->scratch_bytes + 64);
		k->run(k, &(struct dlb_run){ .in = (void *const *)in,
					     .out = (void *const *)out[side],
					     .scratch = scratch,
					     .step = 4 });
		dlb_kernel_free(k);
		free(scratch);
	}
	be.n_threads = 1;
	for (int i = 0; i < n_out; i++)
		if (memcmp(out[0][i], out[1][i], out_bytes)) {
			fprintf(stderr, "%s: bits of output %d differ between one thread and three\n", what,
				i);
			abort();
		}
	for (int i = 0; i < 3; i++) {
		free(in[i]);
		free(out[0][i]);
		free(out[1][i]);
	}
	n_checks++;
}

enum { ROWS = 601, WIDTH = 257 };
#define PREPARE(name, kind, ...) \
	static int name(struct dlb_kernel **k) \
	{ \
		struct dlb_##kind##_desc d = __VA_ARGS__; \
		struct dlb_error err; \
		return be.ops->name_of_##kind(&be, &d, k, &err); \
	}
#define name_of_map map
#define name_of_softmax softmax
#define name_of_copy copy
#define name_of_update update
#define name_of_norm norm
#define name_of_dropout dropout
#define name_of_pool pool
#define name_of_reduce reduce
#define MATRIX { .dtype = DLB_F32, .n_dims = 2, .dim = { ROWS, WIDTH } }
#define LIST { .dtype = DLB_F32, .n_dims = 1, .dim = { WIDTH } }
#define FLAT { .dtype = DLB_F32, .n_dims = 1, .dim = { ROWS * WIDTH } }
#define IMAGES(s) { .dtype = DLB_F32, .layout = DLB_CHANNELS_LAST, .n_dims = 4, .dim = { 5, 32, s, s } }
PREPARE(add_flat, map, { .fn = DLB_MAP_add, .n_in = 2, .in = { FLAT, FLAT }, .out = FLAT })
PREPARE(add_bias, map, { .fn = DLB_MAP_add, .n_in = 2, .in = { MATRIX, LIST }, .out = MATRIX })
PREPARE(softmax_rows, softmax, { .dtype = DLB_F32, .outer = ROWS, .axis = WIDTH, .inner = 1 })
PREPARE(softmax_planes, softmax, { .dtype = DLB_F32, .outer = 7, .axis = 100, .inner = 101 })
PREPARE(transpose, copy,
	{ .in = DLB_F32,
	  .out = DLB_F32,
	  .n_dims = 3,
	  .dim = { 7, 100, 101 },
	  .in_stride = { 10100, 1, 100 },
	  .out_stride = { 10100, 101, 1 } })
PREPARE(swap, copy,
	{ .in = DLB_F32,
	  .out = DLB_F32,
	  .n_dims = 3,
	  .dim = { 30, 20, 60 },
	  .in_stride = { 60, 1800, 1 },
	  .out_stride = { 1200, 60, 1 } })
PREPARE(transpose_one, copy,
	{ .in = DLB_F32,
	  .out = DLB_F32,
	  .n_dims = 2,
	  .dim = { 301, 403 },
	  .in_stride = { 1, 301 },
	  .out_stride = { 403, 1 } })
PREPARE(columns, reduce,
	{ .fn = DLB_REDUCE_FN_SUM,
	  .in = MATRIX,
	  .out = { .dtype = DLB_F32, .n_dims = 2, .dim = { 1, WIDTH } },
	  .axes = 1 })
PREPARE(rows, reduce,
	{ .fn = DLB_REDUCE_FN_MAX,
	  .in = MATRIX,
	  .out = { .dtype = DLB_F32, .n_dims = 2, .dim = { ROWS, 1 } },
	  .axes = 2 })
PREPARE(adam, update,
	{ .dtype = DLB_F32,
	  .count = ROWS * WIDTH,
	  .rule = DLB_RULE_ADAM,
	  .hyper = { [DLB_HYPER_LR] = 0.1,
		     [DLB_HYPER_BETA1] = 0.9,
		     [DLB_HYPER_BETA2] = 0.99,
		     [DLB_HYPER_EPS] = 1e-8 } })
PREPARE(normalize, norm, { .dtype = DLB_F32, .rows = ROWS, .width = WIDTH, .epsilon = 1e-5 })
PREPARE(drop, dropout, { .dtype = DLB_F32, .samples = 5, .per_sample = 30011, .ratio = 0.4 })
PREPARE(pool_max, pool,
	{ .max = true,
	  .x = IMAGES(23),
	  .y = IMAGES(11),
	  .pos = DLB_U8,
	  .kernel = { 3, 3 },
	  .stride = { 2, 2 },
	  .dilation = { 1, 1, 1 } })

static void threads(void)
{
	const size_t bytes = (size_t)ROWS * WIDTH * sizeof(float);

	same_bits("add", add_flat, bytes, bytes, 1);
	same_bits("add a list", add_bias, bytes, bytes, 1);
	same_bits("softmax", softmax_rows, bytes, bytes, 1);
	same_bits("softmax of planes", softmax_planes, bytes, bytes, 1);
	same_bits("transpose", transpose, bytes, bytes, 1);
	same_bits("exchange of loops", swap, bytes, bytes, 1);
	same_bits("transpose of one matrix", transpose_one, bytes, bytes, 1);
	same_bits("column sums", columns, bytes, bytes, 1);
	same_bits("maxima of rows", rows, bytes, bytes, 1);
	same_bits("adam", adam, bytes, bytes, 3);
	same_bits("normalization", normalize, bytes, bytes, 1);
	same_bits("dropout", drop, bytes, bytes, 2);
	same_bits("max pooling", pool_max, bytes, bytes, 2);
}

/* ---- gradients of rows taken from tables ---- */
/* Two tables, parts of larger ones. Some entries are negative or of the padding row, many are of row 7; sums are in
 * their order. */
static void one_gather_grad(enum dlb_dtype t, enum dlb_dtype index, int64_t n_index, int64_t width)
{
	const struct dlb_gather_desc d = { .dtype = t,
					   .index = index,
					   .backward = true,
					   .outer = 2,
					   .rows = 23,
					   .n_index = n_index,
					   .width = width,
					   .first = 2,
					   .of = 30,
					   .padding = 5 };
	struct arg dy = draw(desc(t, 0, 3, DIMS(d.outer, n_index, width)));
	struct arg at = { desc(index, 0, 1, DIMS(n_index)), zeros(n_index) };
	struct arg dx = { desc(t, 0, 3, DIMS(d.outer, d.rows, width)), zeros(d.outer * d.rows * width) };
	struct dlb_kernel *k;
	char what[100];

	for (int64_t i = 0; i < n_index; i++)
		at.v[i] = i % 3 ? (double)dlb_rng_below(&rng, (uint64_t)(2 * d.of)) - (double)d.of : 7;
	for (int64_t o = 0; o < d.outer; o++)
		for (int64_t i = 0; i < n_index; i++) {
			const int64_t whole = (int64_t)at.v[i] + (at.v[i] < 0 ? d.of : 0),
				      row = whole - d.first;

			if (row < 0 || row >= d.rows || whole == d.padding)
				continue;
			for (int64_t j = 0; j < width; j++) {
				double *to = &dx.v[(o * d.rows + row) * width + j];

				*to = rounded(t, *to + dy.v[(o * n_index + i) * width + j]);
			}
		}
	snprintf(what, sizeof what, "gradient of %lld rows of %lld", (long long)n_index, (long long)width);
	MUST(be.ops->gather(&be, &d, &k, &err_));
	check_run(what, k, (struct arg[]){ dy, at }, 2, &dx, 1, 0, NULL, NULL);
	free(dy.v);
	free(at.v);
	free(dx.v);
}

static void gathers(void)
{
	static const int64_t widths[] = { 1, 8, 9, 12, 1100 };

	for (int t = DLB_F32; t <= DLB_F64; t++)
		for (int i = 0; i < DLB_LEN(widths); i++) {
			one_gather_grad(t, DLB_I64, 40, widths[i]);
			one_gather_grad(t, DLB_I32, 300, widths[i]);
			one_gather_grad(t, DLB_I64, 777, widths[i]);
		}
}

int main(void)
{
	begin_tests(20261121);
	/* every level of the instruction set that this machine has */
	for (int i = 0; use_level(i); i++) {
		norms();
		gathers();
		one_dropout(DLB_F32, 3, 1, 0);
		one_dropout(DLB_F32, 5, 131, 2);
		one_dropout(DLB_F64, 4, 300, 7);
		one_dropout(DLB_F32, 2, 4096, 0);
		part_of_dropout(5, 120, 20, 60, 40);
		part_of_dropout(3, 384, 130, 384, 70);
		part_of_dropout(4, 999, 333, 999, 333);
		part_of_dropout(12, 50, 100, 200, 50);		/* two samples of every four */
		if (!be.ops->is_host_memory)	/* has one thread */
			continue;
		threads();
		for (int n = 2; n < 4; n++) {			/* sums over parts agree up to rounding */
			be.n_threads = n;
			one_norm((struct dlb_norm_desc){ .dtype = DLB_F32,
							 .rows = 300,
							 .width = 200,
							 .has_bias = true,
							 .epsilon = 1e-5 });
			one_norm((struct dlb_norm_desc){ .dtype = DLB_F64,
							 .rows = 300,
							 .width = 200,
							 .channels = 3,
							 .has_bias = true,
							 .epsilon = 1e-5 });
		}
		be.n_threads = 1;
	}
	be.ops->close(&be);
	printf("%ld normalizations, gradients of rows, masks and cut loops agree with their definitions\n",
	       n_checks);
	return 0;
}
