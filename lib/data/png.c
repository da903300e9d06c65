/* PNG through libpng. Palettes become RGB, 16-bit values 8-bit; alpha is dropped, as by Pillow's
 * convert("RGB"). Gamma and colour profiles are ignored. */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <png.h>
#include "data/image.h"
#include "data/readers.h"
#include "data/source.h"
#include "data/transform.h"
#include "util/mem.h"

struct png_decoder {
	const unsigned char *p;
	size_t n, at;
	char text[128];
	jmp_buf out;
	png_structp png;
	png_infop info;
	png_bytep *row;
};

static void fail(png_structp png, png_const_charp text)
{
	struct png_decoder *d = png_get_error_ptr(png);

	snprintf(d->text, sizeof d->text, "%s", text);
	longjmp(d->out, 1);
}

static void warn(png_structp png, png_const_charp text)
{
	(void)png;
	(void)text;
}

static void get(png_structp png, png_bytep to, size_t n)
{
	struct png_decoder *d = png_get_io_ptr(png);

	if (n > d->n - d->at) {
		d->at = d->n;
		png_error(png, "truncated");
	}
	memcpy(to, d->p + d->at, n);
	d->at += n;
}

/* Converts any PNG format to 8-bit grey or RGB. */
static void convert(struct png_decoder *d)
{
	png_byte type = png_get_color_type(d->png, d->info), depth = png_get_bit_depth(d->png, d->info);

	if (type == PNG_COLOR_TYPE_PALETTE)
		png_set_palette_to_rgb(d->png);
	if (type == PNG_COLOR_TYPE_GRAY && depth < 8)
		png_set_expand_gray_1_2_4_to_8(d->png);
	if (depth == 16)
		png_set_scale_16(d->png);
	if (type & PNG_COLOR_MASK_ALPHA)
		png_set_strip_alpha(d->png);
	png_set_interlace_handling(d->png);
	png_read_update_info(d->png, d->info);
}

static void decode(struct png_decoder *d, int64_t max_pixels, struct dlb_scratch *s, struct dlb_image *x)
{
	size_t row;

	png_set_read_fn(d->png, d, get);
	png_set_user_limits(d->png, 1 << 20, 1 << 20);
	png_set_chunk_malloc_max(d->png, 1 << 20);
	png_set_chunk_cache_max(d->png, 64);
	png_read_info(d->png, d->info);
	x->w = png_get_image_width(d->png, d->info);
	x->h = png_get_image_height(d->png, d->info);
	if (x->w * x->h > max_pixels) {
		snprintf(d->text, sizeof d->text, "an image of %lldx%lld pixels; %lld in all are read",
			 (long long)x->w, (long long)x->h, (long long)max_pixels);
		longjmp(d->out, 1);
	}
	convert(d);
	x->c = png_get_channels(d->png, d->info);
	row = png_get_rowbytes(d->png, d->info);
	if ((x->c != 1 && x->c != 3) || row != (size_t)(x->c * x->w))
		png_error(d->png, "neither grey nor RGB");
	x->p = dlb_scratch(s, DLB_SCRATCH_ROWS, row * (size_t)x->h);
	d->row = dlb_xmalloc((size_t)x->h * sizeof *d->row);
	for (int64_t y = 0; y < x->h; y++)
		d->row[y] = (unsigned char *)x->p + row * (size_t)y;
	png_read_image(d->png, d->row);
	png_read_end(d->png, NULL);
}

int dlb_png_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s,
		   struct dlb_image *x, size_t *at, struct dlb_error *err)
{
	/* on the heap: a local may change across longjmp */
	struct png_decoder *d = dlb_xcalloc(1, sizeof *d);
	int rc = -1;

	d->p = p;
	d->n = n;
	if (setjmp(d->out) == 0) {
		d->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, fail, warn);
		d->info = d->png ? png_create_info_struct(d->png) : NULL;
		if (d->info) {
			decode(d, max_pixels, s, x);
			rc = 0;
		} else {
			snprintf(d->text, sizeof d->text, "libpng does not start");
		}
	}
	if (rc) {
		*at = d->at;
		dlb_fail(err, NULL, "%s", d->text);
	}
	png_destroy_read_struct(&d->png, &d->info, NULL);
	free(d->row);
	free(d);
	return rc;
}
