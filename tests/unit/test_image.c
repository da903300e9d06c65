/* Images: PNG files of all kinds, and JPEG files, written by libpng and libjpeg from known pixels; files cut
 * short, limits, and files of other kinds. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <png.h>
#include "data/image.h"
#include "data/source.h"
#include "util/rng.h"
#include "check.h"

enum { W = 13, H = 7, MOST = 1 << 16 };

static unsigned char file[MOST];
static size_t n_file;
static struct dlb_scratch scratch;

/* ---- PNG ---- */

static void append(png_structp png, png_bytep p, size_t n)
{
	(void)png;
	assert(IS(n_file + n, <=, sizeof file));
	memcpy(file + n_file, p, n);
	n_file += n;
}

static void nothing(png_structp png) { (void)png; }

/* A kind of PNG: its values for a pixel are of `depth` bits; of a palette, an index. */
static const struct kind {
	int type, depth, values, planes;
} kinds[] = {
	{ PNG_COLOR_TYPE_GRAY, 1, 1, 1 },	 { PNG_COLOR_TYPE_GRAY, 2, 1, 1 },
	{ PNG_COLOR_TYPE_GRAY, 4, 1, 1 },	 { PNG_COLOR_TYPE_GRAY, 8, 1, 1 },
	{ PNG_COLOR_TYPE_GRAY, 16, 1, 1 },	 { PNG_COLOR_TYPE_GRAY_ALPHA, 8, 2, 1 },
	{ PNG_COLOR_TYPE_GRAY_ALPHA, 16, 2, 1 }, { PNG_COLOR_TYPE_RGB, 8, 3, 3 },
	{ PNG_COLOR_TYPE_RGB, 16, 3, 3 },	 { PNG_COLOR_TYPE_RGB_ALPHA, 8, 4, 3 },
	{ PNG_COLOR_TYPE_RGB_ALPHA, 16, 4, 3 },	 { PNG_COLOR_TYPE_PALETTE, 1, 1, 3 },
	{ PNG_COLOR_TYPE_PALETTE, 4, 1, 3 },	 { PNG_COLOR_TYPE_PALETTE, 8, 1, 3 },
};

static void write_png(const struct kind *k, const png_color *palette, const int *value, bool interlaced)
{
	png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
	png_infop info = png_create_info_struct(png);
	unsigned char row[W * 4 * 2 + 8], *rows[H];
	const int passes = interlaced ? 7 : 1, per_row = W * k->values;

	n_file = 0;
	png_set_write_fn(png, NULL, append, nothing);
	png_set_IHDR(png, info, W, H, k->depth, k->type, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
		     PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
	if (k->type == PNG_COLOR_TYPE_PALETTE)
		png_set_PLTE(png, info, palette, 1 << k->depth);
	png_write_info(png, info);
	assert(IS(png_set_interlace_handling(png), ==, passes));
	for (int y = 0; y < H; y++) {
		memset(row, 0, sizeof row);
		for (int i = 0; i < per_row; i++) {
			const int v = value[y * per_row + i];

			if (k->depth == 16) {
				row[2 * i] = (unsigned char)(v >> 8);
				row[2 * i + 1] = (unsigned char)(v & 255);
			} else {
				row[i * k->depth / 8] |=
					(unsigned char)(v << (8 - k->depth - i * k->depth % 8));
			}
		}
		rows[y] = malloc(sizeof row);
		memcpy(rows[y], row, sizeof row);
	}
	png_write_image(png, rows);
	png_write_end(png, NULL);
	png_destroy_write_struct(&png, &info);
	for (int y = 0; y < H; y++)
		free(rows[y]);
}

/* The 8 bits that stand for a value of `depth` bits. */
static int eight_bits(int value, int depth)
{
	return (int)((double)value * 255 / (double)((1 << depth) - 1) + 0.5);
}

static void check_png(const struct kind *k, bool interlaced, struct dlb_rng *r)
{
	static const size_t channel[3] = { offsetof(png_color, red), offsetof(png_color, green),
					   offsetof(png_color, blue) };
	struct dlb_error err = { .what = "" };
	struct dlb_image x = { .c = 0 };
	int value[W * H * 4];
	png_color palette[256];
	size_t at;

	for (int i = 0; i < DLB_LEN(palette); i++)
		palette[i] = (png_color){ (png_byte)dlb_rng_below(r, 256), (png_byte)dlb_rng_below(r, 256),
					  (png_byte)dlb_rng_below(r, 256) };
	for (int i = 0; i < W * H * k->values; i++)
		value[i] = (int)dlb_rng_below(r, (uint64_t)1 << k->depth);
	write_png(k, palette, value, interlaced);
	assert(dlb_image_decode(file, n_file, W * H, &scratch, &x, &at, &err) == 0 || SAME(err.what, ""));
	assert(x.bytes && IS(x.c, ==, k->planes) && IS(x.w, ==, W) && IS(x.h, ==, H));
	for (int i = 0; i < W * H; i++)
		for (int c = 0; c < k->planes; c++) {
			const int is = ((const unsigned char *)x.p)[c * W * H + i],
				  v = value[i * k->values + (k->type == PNG_COLOR_TYPE_PALETTE ? 0 : c)],
				  want = k->type == PNG_COLOR_TYPE_PALETTE ?
						 ((const unsigned char *)&palette[v])[channel[c]] :
						 eight_bits(v, k->depth);

			assert(IS(is, ==, want));
		}
}

/* ---- JPEG ---- */

static void write_jpeg(int channels, const unsigned char *pixel)
{
	struct jpeg_compress_struct j;
	struct jpeg_error_mgr errors;
	unsigned char *out = NULL;
	unsigned long n = 0;

	j.err = jpeg_std_error(&errors);
	jpeg_create_compress(&j);
	jpeg_mem_dest(&j, &out, &n);
	j.image_width = W;
	j.image_height = H;
	j.input_components = channels;
	j.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
	jpeg_set_defaults(&j);
	jpeg_set_quality(&j, 100, TRUE);
	for (int c = 0; c < j.num_components; c++)
		j.comp_info[c].h_samp_factor = j.comp_info[c].v_samp_factor = 1;
	jpeg_start_compress(&j, TRUE);
	for (int y = 0; y < H; y++) {
		unsigned char row[W * 4];
		JSAMPROW rows[] = { row };

		memcpy(row, pixel + (size_t)y * W * (size_t)channels, (size_t)W * (size_t)channels);
		jpeg_write_scanlines(&j, rows, 1);
	}
	jpeg_finish_compress(&j);
	jpeg_destroy_compress(&j);
	assert(IS(n, <=, sizeof file));
	memcpy(file, out, n);
	n_file = n;
	free(out);
}

/* A smooth picture, whose channels differ: JPEG keeps it within a few steps of 255. */
static void test_jpeg(void)
{
	for (int channels = 1; channels <= 3; channels += 2) {
		struct dlb_error err = { .what = "" };
		struct dlb_image x = { .c = 0 };
		unsigned char pixel[W * H * 3];
		size_t at;

		for (int i = 0; i < W * H; i++)
			for (int c = 0; c < channels; c++)
				pixel[i * channels + c] =
					(unsigned char)(40 + 70 * c + 6 * (i % W) - 4 * c * (i / W));
		write_jpeg(channels, pixel);
		assert(dlb_image_decode(file, n_file, W * H, &scratch, &x, &at, &err) == 0 ||
		       SAME(err.what, ""));
		assert(x.bytes && IS(x.c, ==, channels) && IS(x.w, ==, W) && IS(x.h, ==, H));
		for (int i = 0; i < W * H; i++)
			for (int c = 0; c < channels; c++) {
				const int is = ((const unsigned char *)x.p)[c * W * H + i];

				assert(IS(abs(is - pixel[i * channels + c]), <=, 3));
			}
	}
}

/* ---- refusals ---- */

static const char *refused(size_t n, int64_t most, size_t *at)
{
	static struct dlb_error err;
	struct dlb_image x = { .c = 0 };
	unsigned char *exact = malloc(n + 1); /* nothing is read behind the end */

	err = (struct dlb_error){ .what = "" };
	memcpy(exact, file, n);
	exact = realloc(exact, n ? n : 1);
	assert(IS(dlb_image_decode(exact, n, most, &scratch, &x, at, &err), ==, -1));
	free(exact);
	return err.what;
}

static void test_refusals(void)
{
	unsigned char pixel[W * H * 4] = { 0 };
	struct dlb_rng r;
	size_t at, whole;

	dlb_rng_init(&r, 3);
	check_png(&kinds[7], false, &r);
	assert(SAME(refused(n_file, W * H - 1, &at), "an image of 13x7 pixels; 90 in all are read"));
	for (whole = n_file; n_file > 8; n_file--)
		if (n_file < whole)
			assert(SAME(refused(n_file, W * H, &at), "truncated") && IS(at, ==, n_file));
	write_jpeg(1, pixel);
	assert(SAME(refused(n_file, W * H - 1, &at), "an image of 13x7 pixels; 90 in all are read"));
	for (whole = n_file; n_file > 3; n_file--)
		if (n_file < whole)
			assert(refused(n_file, W * H, &at)[0] && IS(at, <=, n_file));
	write_jpeg(4, pixel);
	assert(SAME(refused(n_file, W * H, &at), "a CMYK image; convert it to RGB"));
	memcpy(file, "GIF89a12", 8);
	assert(SAME(refused(8, W * H, &at), "neither a JPEG nor a PNG file: it begins with 47 49 46 38"));
	assert(SAME(refused(7, W * H, &at), "truncated: 7 bytes are no image") && IS(at, ==, 7));
	assert(SAME(refused(0, W * H, &at), "truncated: 0 bytes are no image"));
}

static void test_names(void)
{
	static const struct {
		const char *name;
		bool is;
	} row[] = { { "a.jpg", true },	{ "a.JPEG", true }, { "dir.x/a.png", true }, { "a.png/b", false },
		    { "png", false },	{ "a.pngx", false }, { "a.gif", false },     { ".jpg", true },
		    { "a.jpg.txt", false } };

	for (int i = 0; i < DLB_LEN(row); i++)
		assert(IS(dlb_image_named(row[i].name), ==, row[i].is));
}

int main(void)
{
	struct dlb_rng r;

	dlb_rng_init(&r, 1);
	for (int k = 0; k < DLB_LEN(kinds); k++)
		for (int interlaced = 0; interlaced < 2; interlaced++)
			check_png(&kinds[k], interlaced, &r);
	test_jpeg();
	test_refusals();
	test_names();
	dlb_scratch_release(&scratch);
	puts("image: all kinds of PNG, JPEG, files cut short, limits, names");
	return 0;
}
