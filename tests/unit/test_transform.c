/* Chains of random image transforms against plain ones on reals; regions and flips that are drawn; what is
 * refused, word for word. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "data/readers.h"
#include "data/transform.h"
#include "util/rng.h"
#include "check.h"

enum { SIDE = 24, CHANNELS = 4 };

/* Values are exact for bytes; `bytes`: rounded after each step that mixes pixels. near_half: such a value was
 * between two bytes, so that its rounding is not compared. */
struct plain_image {
	bool bytes, near_half;
	int c, h, w;
	double x[CHANNELS][SIDE][SIDE];
};

static int below(struct dlb_rng *r, int n) { return (int)dlb_rng_below(r, (uint64_t)n); }

static double as_byte(struct plain_image *m, double v)
{
	if (!m->bytes)
		return v;
	m->near_half |= fabs(v - floor(v) - 0.5) < 3e-3;
	return floor(v + 0.5);
}

static void plain_pad(struct plain_image *m, int p)
{
	struct plain_image y = {
		.bytes = m->bytes, .near_half = m->near_half, .c = m->c, .h = m->h + 2 * p, .w = m->w + 2 * p
	};

	for (int c = 0; c < m->c; c++)
		for (int i = 0; i < m->h; i++)
			for (int j = 0; j < m->w; j++)
				y.x[c][i + p][j + p] = m->x[c][i][j];
	*m = y;
}

/* As torchvision's CenterCrop: int(round(difference / 2)), where Python rounds halves to even. */
static void plain_crop(struct plain_image *m, int h, int w)
{
	const int top = (int)nearbyint((m->h - h) / 2.0), left = (int)nearbyint((m->w - w) / 2.0);

	for (int c = 0; c < m->c; c++)
		for (int i = 0; i < h; i++)
			for (int j = 0; j < w; j++)
				m->x[c][i][j] = m->x[c][i + top][j + left];
	m->h = h;
	m->w = w;
}

static void plain_flip(struct plain_image *m)
{
	for (int c = 0; c < m->c; c++)
		for (int i = 0; i < m->h; i++)
			for (int j = 0; j < m->w / 2; j++) {
				const double t = m->x[c][i][j];

				m->x[c][i][j] = m->x[c][i][m->w - 1 - j];
				m->x[c][i][m->w - 1 - j] = t;
			}
}

/* The triangle filter, as wide as a step between results, of n values `stride` apart. */
static void plain_line(struct plain_image *m, double *x, int stride, int n, int to)
{
	const double scale = (double)n / to, half = scale < 1 ? 1 : scale;
	double out[SIDE];

	for (int i = 0; n != to && i < to; i++) {
		double sum = 0, weights = 0;

		for (int k = 0; k < n; k++) {
			const double w = 1 - fabs(k + 0.5 - (i + 0.5) * scale) / half;

			sum += w > 0 ? w * x[k * stride] : 0;
			weights += w > 0 ? w : 0;
		}
		out[i] = as_byte(m, sum / weights);
	}
	for (int i = 0; n != to && i < to; i++)
		x[i * stride] = out[i];
}

static void plain_resize(struct plain_image *m, int h, int w)
{
	for (int c = 0; c < m->c; c++) {
		for (int i = 0; i < m->h; i++)
			plain_line(m, m->x[c][i], 1, m->w, w);
		for (int j = 0; j < w; j++)
			plain_line(m, &m->x[c][0][j], SIDE, m->h, h);
	}
	m->h = h;
	m->w = w;
}

static void plain_channels(struct plain_image *m, int to)
{
	for (int i = 0; i < m->h; i++)
		for (int j = 0; j < m->w; j++)
			if (m->c == 1)
				for (int c = 1; c < to; c++)
					m->x[c][i][j] = m->x[0][i][j];
			else if (to == 1)
				m->x[0][i][j] = as_byte(m, 0.299 * m->x[0][i][j] + 0.587 * m->x[1][i][j] +
								   0.114 * m->x[2][i][j]);
	m->c = to;
}

static void plain_values(struct plain_image *m, const double *minus, const double *over)
{
	for (int c = 0; c < m->c; c++)
		for (int i = 0; i < m->h; i++)
			for (int j = 0; j < m->w; j++)
				m->x[c][i][j] = (m->x[c][i][j] - minus[c]) / over[c];
	m->bytes = false;
}

static void add(char *text, const char *form, ...) __attribute__((format(printf, 2, 3)));
static void add(char *text, const char *form, ...)
{
	const size_t n = strlen(text);
	va_list args;

	va_start(args, form);
	vsnprintf(text + n, 400 - n, form, args);
	va_end(args);
}

/* normalise= with a value for all channels or one each. */
static void add_normalise(struct dlb_rng *r, char *text, struct plain_image *m)
{
	const int n = below(r, 2) ? m->c : 1;
	double v[2][CHANNELS];

	add(text, below(r, 2) ? "normalise=" : "normalize=");
	for (int k = 0; k < 2; k++)
		for (int c = 0; c < m->c; c++) {
			v[k][c] = c < n ? (k ? 0.5 + below(r, 8) : below(r, 9) - 4) : v[k][0];
			if (c < n)
				add(text, "%s%g", c ? ":" : k ? "/" : "", v[k][c]);
		}
	plain_values(m, v[0], v[1]);
}

/* Appends a random step to `text` and applies it to m. */
static void add_step(struct dlb_rng *r, char *text, struct plain_image *m, bool drawn)
{
	static const double zero[CHANNELS];
	const int least = m->h < m->w ? m->h : m->w, s = 1 + below(r, least), h = 1 + below(r, SIDE / 2),
		  w = 1 + below(r, SIDE / 2), p = below(r, 4);
	double over[CHANNELS], a = 1 + below(r, 5), b = 1 + below(r, 5);

	add(text, *text ? "," : "");
	switch (below(r, 8)) {
	case 0:
		if (m->h + 2 * p > SIDE || m->w + 2 * p > SIDE)
			goto flip;
		add(text, "pad=%d", p);
		plain_pad(m, p);
		break;
	case 1:
		add(text, drawn || p ? "crop=%d" : "random-crop=%d", s);
		plain_crop(m, s, s);
		break;
	case 2:
		add(text, drawn || p ? "crop=%dx%d" : "random-crop=%dx%d", h < m->h ? h : m->h,
		    w < m->w ? w : m->w);
		plain_crop(m, h < m->h ? h : m->h, w < m->w ? w : m->w);
		break;
	case 3:
		add(text, "resize=%dx%d", h, w);
		plain_resize(m, h, w);
		break;
	case 4:
		if (s * m->h / least > SIDE || s * m->w / least > SIDE)
			goto flip;
		add(text, "resize=%d", s);
		plain_resize(m, s * m->h / least, s * m->w / least);
		break;
	case 5:
		for (int c = 0; c < CHANNELS; c++)
			over[c] = p ? b / a : 1 / a;
		add(text, p ? "scale=%g/%g" : "scale=%g", a, b);
		plain_values(m, zero, over);
		break;
	case 6:
		add_normalise(r, text, m);
		break;
	default:
		if (m->c == 1 || m->c == 3) {
			const int to = m->c == 1 ? 1 + below(r, CHANNELS) : p ? 3 : 1;

			add(text, "channels=%d", to);
			plain_channels(m, to);
			break;
		}
	flip:
		add(text, "flip=%d", p != 0);
		if (p && drawn)
			plain_flip(m);
	}
}

static void test_chains(void)
{
	static struct plain_image m;
	struct dlb_scratch scratch = { .cap = { 0 } };
	struct dlb_rng r;
	int compared = 0;

	dlb_rng_init(&r, 5);
	for (int round = 0; round < 4000; round++) {
		const bool drawn = below(&r, 2);
		const struct dlb_sample_seed seed = { .seed = 3, .epoch = round % 7, .sample = round };
		struct dlb_error err = { .what = "" };
		unsigned char bytes[CHANNELS * SIDE * SIDE];
		float reals[CHANNELS * SIDE * SIDE], got[CHANNELS * SIDE * SIDE + 1];
		struct dlb_transform t;
		char text[400] = "";
		int n = 0;

		m = (struct plain_image){ .bytes = below(&r, 2),
					  .c = 1 + below(&r, CHANNELS),
					  .h = 1 + below(&r, SIDE / 2),
					  .w = 1 + below(&r, SIDE / 2) };
		const struct dlb_image x = {
			.bytes = m.bytes, .c = m.c, .h = m.h, .w = m.w, .p = m.bytes ? (void *)bytes : reals
		};
		for (int c = 0; c < m.c; c++)
			for (int i = 0; i < m.h; i++)
				for (int j = 0; j < m.w; j++, n++)
					m.x[c][i][j] = reals[n] = bytes[n] = (unsigned char)below(&r, 256);
		for (int k = below(&r, 7); k > 0; k--)
			add_step(&r, text, &m, drawn);
		if (m.near_half)
			continue;
		compared++;
		assert(IS(dlb_transform_parse(text, &t, &err), ==, 0) &&
		       IS(dlb_transform_bind(&t, x.c, x.h, x.w, &err), ==, 0));
		assert(IS(t.out_c, ==, m.c) && IS(t.out_h, ==, m.h) && IS(t.out_w, ==, m.w));
		got[m.c * m.h * m.w] = 12345;
		assert(IS(dlb_transform_apply(&t, &x, drawn ? &seed : NULL, &scratch, got, &err), ==, 0));
		for (int k = 0; k < m.c * m.h * m.w; k++) {
			const double want = m.x[k / m.w / m.h][k / m.w % m.h][k % m.w];

			if (fabs(got[k] - want) > 1e-4 * fmax(1, fabs(want)))
				fprintf(stderr, "%s, %d: %g, %g\n", text, k, (double)got[k], want);
			assert(IS(fabs(got[k] - want), <=, 1e-4 * fmax(1, fabs(want))));
		}
		assert(IS(got[m.c * m.h * m.w], ==, 12345));
		dlb_transform_release(&t);
	}
	assert(IS(compared, >, 2000));
	dlb_scratch_release(&scratch);
}

/* A region of 2x1 of an image of 5x3 begins at each of 4x3 places, and nowhere else; it depends on the seed,
 * the epoch, the sample and the step. */
static void test_drawn(void)
{
	unsigned char pixel[15];
	const struct dlb_image image = { .bytes = true, .c = 1, .h = 5, .w = 3, .p = pixel };
	struct dlb_scratch scratch = { .cap = { 0 } };
	struct dlb_sample_seed seed = { .seed = 1, .epoch = 1, .sample = 1 };
	int first[15] = { 0 }, differ[3] = { 0 }, flips = 0, apart = 0;
	struct dlb_transform t, twice;
	struct dlb_error err;
	float out[4], other[4];

	for (int i = 0; i < 15; i++)
		pixel[i] = (unsigned char)i;
	assert(IS(dlb_transform_parse("random-crop=2x1", &t, &err), ==, 0) &&
	       IS(dlb_transform_bind(&t, 1, 5, 3, &err), ==, 0));
	for (int i = 0; i < 1200; i++) {
		seed = (struct dlb_sample_seed){ .seed = 1, .epoch = i / 100, .sample = i % 100 };
		assert(IS(dlb_transform_apply(&t, &image, &seed, &scratch, out, &err), ==, 0));
		assert(IS(out[1], ==, out[0] + 3));
		first[(int)out[0]]++;
		for (int k = 0; k < 3; k++) {
			struct dlb_sample_seed s = seed;

			s.seed += k == 0, s.epoch += k == 1, s.sample += k == 2;
			assert(IS(dlb_transform_apply(&t, &image, &s, &scratch, other, &err), ==, 0));
			differ[k] += out[0] != other[0];
		}
	}
	for (int i = 0; i < 15; i++)
		assert(IS(first[i], >=, i < 12 ? 70 : 0) && IS(first[i], <=, i < 12 ? 130 : 0));
	for (int k = 0; k < 3; k++)
		assert(IS(differ[k], >, 1000) && IS(differ[k], <, 1190));
	dlb_transform_release(&t);
	/* the steps draw independently; a flip has the chance that is stated, or a half */
	assert(IS(dlb_transform_parse("crop=2x2,flip=0.25", &t, &err), ==, 0) &&
	       IS(dlb_transform_bind(&t, 1, 5, 3, &err), ==, 0) &&
	       IS(dlb_transform_parse("flip,flip", &twice, &err), ==, 0) &&
	       IS(dlb_transform_bind(&twice, 1, 1, 3, &err), ==, 0));
	const struct dlb_image row = { .bytes = true, .c = 1, .h = 1, .w = 3, .p = pixel };
	for (int i = 0; i < 1200; i++) {
		seed.sample = i;
		assert(IS(dlb_transform_apply(&t, &image, &seed, &scratch, out, &err), ==, 0));
		flips += out[0] > out[1];
		assert(IS(dlb_transform_apply(&twice, &row, &seed, &scratch, other, &err), ==, 0));
		apart += other[0] > other[2];
	}
	assert(IS(flips, >, 250) && IS(flips, <, 350) && IS(apart, >, 530) && IS(apart, <, 670));
	dlb_transform_release(&t);
	dlb_transform_release(&twice);
	dlb_scratch_release(&scratch);
}

#define TEN "flip,flip,flip,flip,flip,flip,flip,flip,flip,flip,"
#define EIGHT_ONES "1:1:1:1:1:1:1:1"
#define ONES \
	EIGHT_ONES ":" EIGHT_ONES ":" EIGHT_ONES ":" EIGHT_ONES ":" EIGHT_ONES ":" EIGHT_ONES ":" EIGHT_ONES \
		   ":" EIGHT_ONES

static void test_words(void)
{
	static const struct {
		const char *text, *what, *hint;
	} rows[] = {
		{ "", NULL, NULL },
		{ TEN "flip,flip,flip,flip,flip,flip", NULL, NULL },
		{ TEN "flip,flip,flip,flip,flip,flip,flip", "--transform has more than 16 steps", NULL },
		{ "pad=4096,pad=0,crop=32768,crop=1x32768", NULL, NULL },
		{ "channels=64,channels=1,normalise=" ONES "/" ONES, NULL, NULL },
		{ "flip=0,flip=1,flip", NULL, NULL },
		{ "blur=3", "no transform 'blur'",
		  "there are scale, normalise, channels, pad, resize, crop, random-crop and flip" },
		{ "scal=3", "no transform 'scal'", "did you mean 'scale=...'" },
		{ "flip,scale", "no transform 'scale'", "did you mean 'scale=...'" },
		{ "normalizes=1/1", "no transform 'normalizes'", "did you mean 'normalise=...'" },
		{ "pad=1,", "transform 'pad=1,' ends in a comma", NULL },
		{ "flip,pad=x,flip", "bad value in transform 'pad=x'", NULL },
		{ "pad=-1", "bad value in transform 'pad=-1'", NULL },
		{ "pad=4097", "bad value in transform 'pad=4097'", NULL },
		{ "pad=99999999999999999999", "bad value in transform 'pad=99999999999999999999'", NULL },
		{ "channels=65", "bad value in transform 'channels=65'", NULL },
		{ "channels=0", "bad value in transform 'channels=0'", NULL },
		{ "crop=0", "bad value in transform 'crop=0'", NULL },
		{ "crop=32769", "bad value in transform 'crop=32769'", NULL },
		{ "crop=1x32769", "bad value in transform 'crop=1x32769'", NULL },
		{ "resize=4x", "bad value in transform 'resize=4x'", NULL },
		{ "resize=x4", "bad value in transform 'resize=x4'", NULL },
		{ "resize=4x0", "bad value in transform 'resize=4x0'", NULL },
		{ "scale=", "bad value in transform 'scale='", NULL },
		{ "scale=1:2", "bad value in transform 'scale=1:2'", NULL },
		{ "scale=1/2:3", "bad value in transform 'scale=1/2:3'", NULL },
		{ "scale=1/0", "bad value in transform 'scale=1/0'", NULL },
		{ "scale=inf", "bad value in transform 'scale=inf'", NULL },
		{ "normalise=1:2/1", "bad value in transform 'normalise=1:2/1'", NULL },
		{ "normalise=1", "bad value in transform 'normalise=1'", NULL },
		{ "normalise=1x2", "bad value in transform 'normalise=1x2'", NULL },
		{ "scale=1x2", "bad value in transform 'scale=1x2'", NULL },
		{ "normalise=1:2/1:0", "bad value in transform 'normalise=1:2/1:0'", NULL },
		{ "normalise=" ONES ":1/" ONES, "bad value in transform 'normalise=" ONES ":1/" ONES "'",
		  NULL },
		{ "flip=", "bad value in transform 'flip='", NULL },
		{ "flip=1.01", "bad value in transform 'flip=1.01'", NULL },
		{ "flip=0.5x", "bad value in transform 'flip=0.5x'", NULL },
	};

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		struct dlb_error err = { .what = "", .hint = "" };
		struct dlb_transform t;

		assert(IS(dlb_transform_parse(rows[i].text, &t, &err), ==, rows[i].what ? -1 : 0));
		if (rows[i].what)
			assert(SAME(err.what, rows[i].what) &&
			       SAME(err.hint, rows[i].hint ? rows[i].hint : ""));
	}
}

static void test_shapes(void)
{
	static const struct {
		const char *text;
		int64_t c, h, w;
		const char *what, *hint;
	} rows[] = {
		{ "", 1, 1 << 20, 1 << 20, NULL, NULL },
		{ "", 1, 1 << 20, (1 << 20) + 1, "images of 1x1048576x1048577 are too large", NULL },
		{ "", 0, 1, 1, "images of 0x1x1 are too large", NULL },
		{ "normalise=1:2/1:2", 3, 2, 2, "transform normalise: 2 values for 3 channels", NULL },
		{ "normalise=1/2", 3, 2, 2, NULL, NULL },
		{ "channels=3", 2, 2, 2, "transform channels=3: the data have 2 channels already", NULL },
		{ "channels=1", 2, 2, 2, "transform channels=1: the data have 2 channels already", NULL },
		{ "channels=2", 3, 2, 2, "transform channels=2: the data have 3 channels already", NULL },
		{ "crop=2", 1, 2, 2, NULL, NULL },
		{ "crop=3x2", 1, 2, 2, "transform crop=3x2: the image is 2x2", "resize or pad it first" },
		{ "random-crop=2x3", 1, 2, 2, "transform random-crop=2x3: the image is 2x2",
		  "resize or pad it first" },
		{ "pad=1", 1, 32766, 1, NULL, NULL },
		{ "pad=1", 1, 32767, 1, "transform pad: an image of 32769x3 is too large", NULL },
		{ "pad=1", 1, 1, 32767, "transform pad: an image of 3x32769 is too large", NULL },
		{ "resize=8192x8192", 1, 1, 1, NULL, NULL },
		{ "resize=8192x8193", 1, 1, 1, "transform resize: an image of 8192x8193 is too large", NULL },
	};

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		struct dlb_error err = { .what = "", .hint = "" };
		struct dlb_transform t;

		assert(IS(dlb_transform_parse(rows[i].text, &t, &err), ==, 0));
		assert(IS(dlb_transform_bind(&t, rows[i].c, rows[i].h, rows[i].w, &err), ==,
			  rows[i].what ? -1 : 0));
		if (rows[i].what)
			assert(SAME(err.what, rows[i].what) &&
			       SAME(err.hint, rows[i].hint ? rows[i].hint : ""));
		dlb_transform_release(&t);
	}
}

/* An image that comes out in another shape than the first one. */
static void test_other_shapes(void)
{
	static const struct {
		const char *text;
		int64_t c, h, w;
		const char *what, *hint;
	} rows[] = {
		{ "crop=2", 1, 3, 4, NULL, NULL },
		{ "flip", 1, 2, 3, "becomes 1x2x3, the first one 1x2x2", "add resize=2x2 to --transform" },
		{ "pad=1", 1, 3, 2, "becomes 1x5x4, the first one 1x4x4", "add resize=4x4 to --transform" },
		{ "", 3, 2, 2, "becomes 3x2x2, the first one 1x2x2", "add channels=1 to --transform" },
		{ "crop=2", 1, 1, 2, "transform crop=2x2: the image is 1x2", "resize or pad it first" },
		{ "normalise=1/2,channels=2", 3, 2, 2,
		  "transform channels=2: the data have 3 channels already", NULL },
	};
	unsigned char pixel[12] = { 0 };
	struct dlb_scratch scratch = { .cap = { 0 } };

	for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
		const struct dlb_image x = {
			.bytes = true, .c = rows[i].c, .h = rows[i].h, .w = rows[i].w, .p = pixel
		};
		struct dlb_error err = { .what = "", .hint = "" };
		struct dlb_transform t;
		float out[64];

		assert(IS(dlb_transform_parse(rows[i].text, &t, &err), ==, 0) &&
		       IS(dlb_transform_bind(&t, 1, 2, 2, &err), ==, 0));
		assert(IS(dlb_transform_apply(&t, &x, NULL, &scratch, out, &err), ==, rows[i].what ? -1 : 0));
		if (rows[i].what)
			assert(SAME(err.what, rows[i].what) &&
			       SAME(err.hint, rows[i].hint ? rows[i].hint : ""));
		dlb_transform_release(&t);
	}
	dlb_scratch_release(&scratch);
}

int main(void)
{
	test_chains();
	test_drawn();
	test_words();
	test_shapes();
	test_other_shapes();
	puts("transforms: random chains, drawn regions and flips, refusals");
	return 0;
}
