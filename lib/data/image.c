/* Decodes an image file: detects its format and separates the channels. */
#include <string.h>
#include <strings.h>
#include "data/image.h"
#include "data/readers.h"
#include "data/source.h"
#include "data/transform.h"

bool dlb_image_named(const char *name)
{
	static const char *const ends[] = { ".jpg", ".jpeg", ".png" };
	const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');

	if (!dot || (slash && dot < slash))
		return false;
	for (int i = 0; i < 3; i++)
		if (!strcasecmp(dot, ends[i]))
			return true;
	return false;
}

int dlb_image_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s,
		     struct dlb_image *x, size_t *at, struct dlb_error *err)
{
	int64_t pixels;
	unsigned char *plane;
	const unsigned char *q;

	*at = 0;
	if (n >= 3 && !memcmp(p, "\xff\xd8\xff", 3)) {
		if (dlb_jpeg_decode(p, n, max_pixels, s, x, at, err))
			return -1;
	} else if (n >= 8 && !memcmp(p, "\x89PNG\r\n\x1a\n", 8)) {
		if (dlb_png_decode(p, n, max_pixels, s, x, at, err))
			return -1;
	} else if (n < 8) {
		*at = n;
		return dlb_fail(err, NULL, "truncated: %zu bytes are no image", n);
	} else {
		return dlb_fail(err, NULL,
				"neither a JPEG nor a PNG file: it begins with %02x %02x %02x %02x", p[0],
				p[1], p[2], p[3]);
	}
	x->bytes = true;
	if (x->c == 1)
		return 0;
	/* From interleaved channels to one plane per channel. */
	pixels = x->h * x->w;
	plane = dlb_scratch(s, DLB_SCRATCH_IMAGE, (size_t)(x->c * pixels));
	q = x->p;
	for (int64_t i = 0; i < pixels; i++, q += 3) {
		plane[i] = q[0];
		plane[pixels + i] = q[1];
		plane[2 * pixels + i] = q[2];
	}
	x->p = plane;
	return 0;
}
