/* Decodes image files: image.c finds the format; jpeg.c and png.c decode one format each. */
#ifndef DLB_DATA_IMAGE_H
#define DLB_DATA_IMAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "data/transform.h"

#define DLB_MAX_PIXELS (INT64_C(1) << 26)	/* per image: limits the memory that a header can claim */
/* Decodes an image file in memory: grey (c 1) or RGB (c 3), planes in scratch. On error
 * *at is the offset of the fault. */
int dlb_image_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s,
		     struct dlb_image *x, size_t *at, struct dlb_error *err);
bool dlb_image_named(const char *name);		/* ends in .jpg, .jpeg or .png, in either case */
/* One format each: interleaved pixels (h, w, c), in DLB_SCRATCH_ROWS. */
int dlb_jpeg_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s,
		    struct dlb_image *x, size_t *at, struct dlb_error *err);
int dlb_png_decode(const unsigned char *p, size_t n, int64_t max_pixels, struct dlb_scratch *s,
		   struct dlb_image *x, size_t *at, struct dlb_error *err);
#endif
