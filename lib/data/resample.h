/* Resizes images. */
#ifndef DLB_DATA_RESAMPLE_H
#define DLB_DATA_RESAMPLE_H
#include <stdint.h>
#include "data/transform.h"

/* resample.c: resizes each plane of x from (h, w) to (oh, ow), bilinear with antialiasing. Bytes are
 * bit-equal to Pillow; floats use the same filter without rounding. */
void dlb_resample(const struct dlb_image *x, int64_t oh, int64_t ow, void *dst, struct dlb_scratch *s);
#endif
