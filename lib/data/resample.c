/* Bilinear resizing with antialiasing: the triangle filter is as wide as the source step per output pixel, so
 * a shrunk image averages all source pixels. Bytes use 22-bit fixed point, rows first, rounded between the
 * passes: bit-equal to Pillow's Image.resize(BILINEAR) (Resample.c), and so to torchvision's Resize of an
 * image file. Floats use the same filter without rounding. */
#include <math.h>
#include <string.h>
#include "data/readers.h"
#include "data/resample.h"
#include "data/source.h"
#include "data/transform.h"

enum { BITS = 32 - 8 - 2 };

/* For each of `out` places: first source place, number of source places, and `width` weights. */
struct resample_taps { int64_t width; int32_t *from, *n; float *real; int32_t *fixed; };

static size_t taps_bytes(int64_t in, int64_t out, int64_t *width)
{
	double scale = (double)in / (double)out;

	*width = (int64_t)ceil(scale < 1.0 ? 1.0 : scale) * 2 + 1;
	return (size_t)out * (2 * sizeof(int32_t) + (size_t)*width * (sizeof(float) + sizeof(int32_t)));
}

static void taps_make(struct resample_taps *t, int64_t in, int64_t out, void *memory)
{
	double scale = (double)in / (double)out, support = scale < 1.0 ? 1.0 : scale;

	t->from = memory;
	t->n = t->from + out;
	t->fixed = t->n + out;
	t->real = (float *)(t->fixed + out * t->width);
	for (int64_t i = 0; i < out; i++) {
		double centre = ((double)i + 0.5) * scale, sum = 0.0;
		int64_t lo = (int64_t)(centre - support + 0.5), hi = (int64_t)(centre + support + 0.5);

		lo = lo < 0 ? 0 : lo;
		hi = hi > in ? in : hi;
		t->from[i] = (int32_t)lo;
		t->n[i] = (int32_t)(hi - lo);
		for (int pass = 0; pass < 2; pass++)
			for (int64_t k = 0; k < hi - lo; k++) {
				double x = fabs(((double)(k + lo) - centre + 0.5) / support),
				       w = x < 1.0 ? 1.0 - x : 0.0;

				if (pass) {
					w = sum != 0.0 ? w / sum : w;
					t->fixed[i * t->width + k] = (int32_t)(0.5 + w * (1 << BITS));
					t->real[i * t->width + k] = (float)w;
				} else {
					sum += w;
				}
			}
	}
}

static unsigned char clip(int32_t v)
{
	v >>= BITS;
	return (unsigned char)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void rows_bytes(const unsigned char *src, int64_t rows, int64_t in, int64_t out,
		       const struct resample_taps *t, unsigned char *dst)
{
	for (int64_t y = 0; y < rows; y++)
		for (int64_t x = 0; x < out; x++) {
			const unsigned char *p = src + y * in + t->from[x];
			const int32_t *w = t->fixed + x * t->width;
			int32_t sum = 1 << (BITS - 1);

			for (int32_t k = 0; k < t->n[x]; k++)
				sum += p[k] * w[k];
			dst[y * out + x] = clip(sum);
		}
}

static void columns_bytes(const unsigned char *src, int64_t width, int64_t out, const struct resample_taps *t,
			  unsigned char *dst, int32_t *sum)
{
	for (int64_t y = 0; y < out; y++) {
		for (int64_t x = 0; x < width; x++)
			sum[x] = 1 << (BITS - 1);
		for (int32_t k = 0; k < t->n[y]; k++) {
			const unsigned char *p = src + (t->from[y] + k) * width;
			int32_t w = t->fixed[y * t->width + k];

			for (int64_t x = 0; x < width; x++)
				sum[x] += p[x] * w;
		}
		for (int64_t x = 0; x < width; x++)
			dst[y * width + x] = clip(sum[x]);
	}
}

static void rows_floats(const float *src, int64_t rows, int64_t in, int64_t out,
			const struct resample_taps *t, float *dst)
{
	for (int64_t y = 0; y < rows; y++)
		for (int64_t x = 0; x < out; x++) {
			const float *p = src + y * in + t->from[x], *w = t->real + x * t->width;
			float sum = 0.0f;

			for (int32_t k = 0; k < t->n[x]; k++)
				sum += p[k] * w[k];
			dst[y * out + x] = sum;
		}
}

static void columns_floats(const float *src, int64_t width, int64_t out, const struct resample_taps *t,
			   float *dst)
{
	for (int64_t y = 0; y < out; y++) {
		memset(dst + y * width, 0, (size_t)width * sizeof *dst);
		for (int32_t k = 0; k < t->n[y]; k++) {
			const float *p = src + (t->from[y] + k) * width;
			float w = t->real[y * t->width + k];

			for (int64_t x = 0; x < width; x++)
				dst[y * width + x] += p[x] * w;
		}
	}
}

void dlb_resample(const struct dlb_image *x, int64_t oh, int64_t ow, void *dst, struct dlb_scratch *s)
{
	size_t each = x->bytes ? 1 : sizeof(float), across, down, middle = (size_t)(x->h * ow) * each;
	struct resample_taps h, v;
	char *memory;
	int32_t *sum;

	across = taps_bytes(x->w, ow, &h.width);
	down = taps_bytes(x->h, oh, &v.width);
	memory = dlb_scratch(s, DLB_SCRATCH_RESIZE, across + down + (size_t)ow * sizeof *sum + middle);
	taps_make(&h, x->w, ow, memory);
	taps_make(&v, x->h, oh, memory + across);
	sum = (int32_t *)(void *)(memory + across + down);
	memory = (char *)(sum + ow);
	for (int64_t k = 0; k < x->c; k++) {
		const char *plane = (const char *)x->p + (size_t)(k * x->h * x->w) * each;
		char *to = (char *)dst + (size_t)(k * oh * ow) * each;
		/* A pass that would change nothing is skipped. */
		const char *half = x->w == ow ? plane : memory;
		char *first = x->h == oh ? to : memory;

		if (x->w == ow && x->h == oh) {
			memcpy(to, plane, (size_t)(oh * ow) * each);
		} else if (x->bytes) {
			if (x->w != ow)
				rows_bytes((const unsigned char *)plane, x->h, x->w, ow, &h,
					   (unsigned char *)first);
			if (x->h != oh)
				columns_bytes((const unsigned char *)half, ow, oh, &v, (unsigned char *)to,
					      sum);
		} else {
			if (x->w != ow)
				rows_floats((const float *)(const void *)plane, x->h, x->w, ow, &h,
					    (float *)(void *)first);
			if (x->h != oh)
				columns_floats((const float *)(const void *)half, ow, oh, &v,
					       (float *)(void *)to);
		}
	}
}
