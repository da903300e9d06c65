/* JPEG through libjpeg-turbo, by libjpeg's interface, which reports the position in the file. Images are
 * decoded with libjpeg's defaults (exact integer DCT, smooth upsampling), as Pillow does. Damage for which
 * libjpeg would only print a warning (truncated file, broken codes) is an error; stray bytes between markers
 * are accepted. The EXIF orientation is ignored. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <jpeglib.h>
#include <jerror.h>
#include "data/image.h"
#include "data/readers.h"
#include "data/source.h"
#include "data/transform.h"
#include "util/mem.h"

enum { MAX_SCANS = 200 };	/* scans of a progressive image; each is a pass over the whole image */

struct jpeg_decoder {
	struct jpeg_decompress_struct j;
	struct jpeg_error_mgr errors;
	struct jpeg_progress_mgr progress;
	jmp_buf out;
	bool at_end;			/* the failure was at the end of the file */
	char text[JMSG_LENGTH_MAX];
};

static void fail(j_common_ptr j)
{
	struct jpeg_decoder *d = j->client_data;

	j->err->format_message(j, d->text);
	d->at_end = j->err->msg_code == JWRN_JPEG_EOF || j->err->msg_code == JERR_INPUT_EOF ||
		    j->err->msg_code == JERR_INPUT_EMPTY;
	longjmp(d->out, 1);
}

static void message(j_common_ptr j, int level)
{
	static const int harmless[] = { JWRN_EXTRANEOUS_DATA, JWRN_JFIF_MAJOR, JWRN_ADOBE_XFORM,
					JWRN_TOO_MUCH_DATA, JWRN_BOGUS_ICC };

	if (level >= 0)
		return;
	for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
		if (j->err->msg_code == harmless[i])
			return;
	fail(j);
}

static void scans(j_common_ptr j)
{
	struct jpeg_decoder *d = j->client_data;

	if (d->j.input_scan_number <= MAX_SCANS)
		return;
	snprintf(d->text, sizeof d->text, "more than %d scans", MAX_SCANS);
	longjmp(d->out, 1);
}

static void quiet(j_common_ptr j)
{
	(void)j;
}

/* Reads the header and checks size and colour space. */
static int begin(struct jpeg_decoder *d, int64_t max_pixels)
{
	jpeg_read_header(&d->j, TRUE);
	if ((int64_t)d->j.image_width * d->j.image_height > max_pixels)
		snprintf(d->text, sizeof d->text, "an image of %ux%u pixels; %lld in all are read",
			 d->j.image_width, d->j.image_height, (long long)max_pixels);
	else if (d->j.jpeg_color_space == JCS_CMYK || d->j.jpeg_color_space == JCS_YCCK)
		snprintf(d->text, sizeof d->text, "a CMYK image; convert it to RGB");
	else if (d->j.num_components != 1 && d->j.num_components != 3)
		snprintf(d->text, sizeof d->text, "an image of %d components", d->j.num_components);
	else
		return 0;
	return -1;
}

int dlb_jpeg_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s,
		    struct dlb_image *x, size_t *at, struct dlb_error *err)
{
	/* on the heap: a local may change across longjmp */
	struct jpeg_decoder *d = dlb_xcalloc(1, sizeof *d);
	size_t row;

	d->j.err = jpeg_std_error(&d->errors);
	d->j.client_data = d;
	d->errors.error_exit = fail;
	d->errors.emit_message = message;
	d->errors.output_message = quiet;
	d->progress.progress_monitor = scans;
	if (setjmp(d->out))
		goto bad;
	jpeg_create_decompress(&d->j);
	d->j.progress = &d->progress;
	jpeg_mem_src(&d->j, p, (unsigned long)n);
	if (begin(d, max_pixels))
		goto bad;
	d->j.out_color_space = d->j.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_start_decompress(&d->j);
	x->c = d->j.output_components;
	x->h = d->j.output_height;
	x->w = d->j.output_width;
	row = (size_t)(x->c * x->w);
	x->p = dlb_scratch(s, DLB_SCRATCH_ROWS, row * (size_t)x->h);
	while (d->j.output_scanline < d->j.output_height) {
		JSAMPROW to = (unsigned char *)x->p + row * d->j.output_scanline;

		jpeg_read_scanlines(&d->j, &to, 1);
	}
	jpeg_finish_decompress(&d->j);
	jpeg_destroy_decompress(&d->j);
	free(d);
	return 0;
bad:
	/* Position of libjpeg's reader; within compressed data, the start of the current block. */
	*at = n;
	if (!d->at_end && d->j.src && d->j.src->next_input_byte >= p && d->j.src->next_input_byte <= p + n)
		*at = (size_t)(d->j.src->next_input_byte - p);
	jpeg_destroy_decompress(&d->j);
	dlb_fail(err, NULL, "%s%s", *at == n ? "truncated: " : "", d->text);
	free(d);
	return -1;
}
