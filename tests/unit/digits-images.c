/* Writes the digits as image files, for tests that need a folder of images:
 *     digits-images [-p] [-c] [-f FIRST] DIR COUNT SCALE
 * writes digits FIRST .. FIRST+COUNT-1 as DIR/CLASS/NUMBER.jpg (-p: .png), each pixel SCALE x SCALE, grey
 * 0..15 as 0..255; -c: in colour (one tint per class). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <jpeglib.h>
#include <png.h>
#include "data/idx.h"
#include "data/source.h"

static void write_jpeg(FILE *f, const unsigned char *p, int side, int c)
{
	struct jpeg_compress_struct j;
	struct jpeg_error_mgr errors;

	j.err = jpeg_std_error(&errors);
	jpeg_create_compress(&j);
	jpeg_stdio_dest(&j, f);
	j.image_width = j.image_height = (JDIMENSION)side;
	j.input_components = c;
	j.in_color_space = c == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(&j);
	jpeg_set_quality(&j, 90, TRUE);
	jpeg_start_compress(&j, TRUE);
	for (int y = 0; y < side; y++) {
		JSAMPROW row = (unsigned char *)(uintptr_t)p + y * side * c;

		jpeg_write_scanlines(&j, &row, 1);
	}
	jpeg_finish_compress(&j);
	jpeg_destroy_compress(&j);
}

static void write_png(FILE *f, const unsigned char *p, int side, int c)
{
	png_image image = { .version = PNG_IMAGE_VERSION,
			    .width = (png_uint_32)side,
			    .height = (png_uint_32)side,
			    .format = c == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB };

	if (!png_image_write_to_stdio(&image, f, 0, p, 0, NULL))
		exit(2);
}

int main(int argc, char **argv)
{
	struct dlb_idx images, labels;
	struct dlb_error err;
	int opt, png = 0, c = 1, first = 0, count, scale, side;
	unsigned char *p;

	while ((opt = getopt(argc, argv, "pcf:")) >= 0)
		switch (opt) {
		case 'p': png = 1; break;
		case 'c': c = 3; break;
		case 'f': first = atoi(optarg); break;
		default: return 2;
		}
	if (argc - optind != 3 || dlb_digits_read(&images, &labels, &err))
		return 2;
	count = atoi(argv[optind + 1]);
	scale = atoi(argv[optind + 2]);
	side = 8 * scale;
	p = malloc((size_t)(side * side * c));
	mkdir(argv[optind], 0777);
	for (int i = first; i < first + count && i < images.dim[0]; i++) {
		const unsigned char *digit = (const unsigned char *)images.data + 64 * i;
		int class = (int)dlb_value_int(labels.data, labels.dtype, i);
		char path[512];
		FILE *f;

		for (int y = 0; y < side; y++)
			for (int x = 0; x < side; x++)
				for (int k = 0; k < c; k++) {
					int v = digit[y / scale * 8 + x / scale] * 255 / 16;

					p[(y * side + x) * c + k] = (unsigned char)(c == 1 || (class >> k &
											       1) ?
											    v :
											    v / 2);
				}
		snprintf(path, sizeof path, "%s/%d", argv[optind], class);
		mkdir(path, 0777);
		snprintf(path, sizeof path, "%s/%d/%04d.%s", argv[optind], class, i, png ? "png" : "jpg");
		f = fopen(path, "wb");
		if (!f)
			return 2;
		(png ? write_png : write_jpeg)(f, p, side, c);
		if (fclose(f))
			return 2;
	}
	free(p);
	dlb_idx_release(&images);
	dlb_idx_release(&labels);
	return 0;
}
