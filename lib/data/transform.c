/* Image transforms, applied left to right:
 *
 *     scale=A/B         x*A/B (1/255: x divided by 255)     scale=X    x*X
 *     normalise=M/S     (x - M)/S; one value per channel, separated by ':': 0.5:0.4:0.4/0.2:0.2:0.2
 *     channels=C        a grey image copied C times; channels=1: RGB to grey, as Pillow's L (ITU-R 601)
 *     pad=P             P rows and columns of zeros on every side
 *     resize=HxW        to that size; resize=S: the shorter side to S, the other in proportion (resample.c)
 *     crop=HxW|S        the centre, as torchvision's CenterCrop
 *     random-crop=HxW|S a region drawn for each sample and epoch
 *     flip[=P]          left and right exchanged, with probability P (0.5)
 *
 * Steps that move pixels keep bytes as bytes; steps that change values turn them into f32. The
 * steps after the last one that moves pixels (the tail, usually scale and normalise) are a
 * table of 256 values per channel. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/image.h"
#include "data/readers.h"
#include "data/resample.h"
#include "data/source.h"
#include "data/transform.h"
#include "util/hash.h"
#include "util/mem.h"
#include "util/rng.h"

enum { MAX_SIDE = 1 << 15 };

static const char *const names[DLB_N_TR] = {
	[DLB_TR_SCALE] = "scale",
	[DLB_TR_NORMALISE] = "normalise",
	[DLB_TR_CHANNELS] = "channels",
	[DLB_TR_PAD] = "pad",
	[DLB_TR_RESIZE] = "resize",
	[DLB_TR_CROP] = "crop",
	[DLB_TR_RANDOM_CROP] = "random-crop",
	[DLB_TR_FLIP] = "flip",
};

/* ---- parsing ---- */

/* Reads reals separated by ':' up to '/', ',' or the end; returns their number, -1 for bad text. */
static int reals(const char **text, float *out, int max)
{
	int n = 0;

	for (;;) {
		char *end;
		double v = strtod(*text, &end);

		if (end == *text || !isfinite(v) || n == max)
			return -1;
		out[n++] = (float)v;
		*text = end;
		if (**text != ':')
			return n;
		++*text;
	}
}

static int whole(const char **text, int64_t min, int64_t max, int64_t *out)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(*text, &end, 10);
	if (end == *text || errno || v < min || v > max)
		return -1;
	*text = end;
	*out = v;
	return 0;
}

static int scale_parse(const char **text, struct dlb_transform_step *s)
{
	s->div = 1.0f;
	if (reals(text, &s->mul, 1) != 1)
		return -1;
	if (**text != '/')
		return 0;
	++*text;
	return reals(text, &s->div, 1) != 1 || s->div == 0.0f ? -1 : 0;
}

static int normalise_parse(const char **text, struct dlb_transform_step *s)
{
	s->n = reals(text, s->mean, DLB_MAX_CHANNELS);
	if (s->n < 1 || **text != '/')
		return -1;
	++*text;
	if (reals(text, s->sd, DLB_MAX_CHANNELS) != s->n)
		return -1;
	for (int i = 0; i < s->n; i++)
		if (s->sd[i] == 0.0f)
			return -1;
	return 0;
}

/* Reads HxW or one number S: w is then 0 for resize, else S. */
static int size_parse(const char **text, struct dlb_transform_step *s)
{
	if (whole(text, 1, MAX_SIDE, &s->h))
		return -1;
	if (**text != 'x') {
		s->w = s->kind == DLB_TR_RESIZE ? 0 : s->h;
		return 0;
	}
	++*text;
	return whole(text, 1, MAX_SIDE, &s->w);
}

static int flip_parse(const char **text, struct dlb_transform_step *s)
{
	char *end;

	s->chance = strtod(*text, &end);
	if (end == *text || !(s->chance >= 0.0 && s->chance <= 1.0))
		return -1;
	*text = end;
	return 0;
}

static int value_parse(const char **text, struct dlb_transform_step *s)
{
	switch (s->kind) {
	case DLB_TR_SCALE:
		return scale_parse(text, s);
	case DLB_TR_NORMALISE:
		return normalise_parse(text, s);
	case DLB_TR_CHANNELS:
		return whole(text, 1, DLB_MAX_CHANNELS, &s->amount);
	case DLB_TR_PAD:
		return whole(text, 0, 4096, &s->amount);
	case DLB_TR_FLIP:
		return flip_parse(text, s);
	default:
		return size_parse(text, s);
	}
}

/* Returns the kind of step with the n-letter name at `key`; -1: none. */
static int kind_of(const char *key, size_t n)
{
	for (int i = 0; i < DLB_N_TR; i++)
		if (strlen(names[i]) == n && !memcmp(key, names[i], n))
			return i;
	return n == 9 && !memcmp(key, "normalize", 9) ? DLB_TR_NORMALISE : -1;
}

static int unknown(const char *key, size_t n, struct dlb_error *err)
{
	char word[32];
	const char *near;

	snprintf(word, sizeof word, "%.*s", (int)(n < 31 ? n : 31), key);
	near = dlb_nearest(word, names, DLB_N_TR);
	dlb_fail(err, NULL, "no transform '%s'", word);
	if (near)
		return dlb_hint(err, "did you mean '%s=...'", near);
	return dlb_hint(err, "there are scale, normalise, channels, pad, resize, crop, random-crop and flip");
}

int dlb_transform_parse(const char *text, struct dlb_transform *t, struct dlb_error *err)
{
	const char *p = text ? text : "";

	memset(t, 0, sizeof *t);
	while (*p) {
		size_t n = strcspn(p, "=,");
		const char *key = p;
		int kind = kind_of(key, n);
		struct dlb_transform_step *s = &t->step[t->n_steps];

		if (t->n_steps == DLB_MAX_TRANSFORMS)
			return dlb_fail(err, NULL, "--transform has more than %d steps", DLB_MAX_TRANSFORMS);
		if (kind < 0 || (p[n] != '=' && kind != DLB_TR_FLIP))
			return unknown(key, n, err);
		s->kind = (enum dlb_transform_kind)kind;
		s->chance = 0.5;
		p += n + (p[n] == '=');
		if ((p > key + n && value_parse(&p, s)) || (*p && *p != ','))
			return dlb_fail(err, NULL, "bad value in transform '%.*s'", (int)strcspn(key, ","),
					key);
		t->n_steps++;
		if (*p == ',' && !*++p)
			return dlb_fail(err, NULL, "transform '%s' ends in a comma", text);
	}
	return 0;
}

/* ---- shapes ---- */

/* Applies the value steps in [from, to) to value x of channel c. */
static float value(const struct dlb_transform *t, int from, int to, int64_t c, float x)
{
	for (int i = from; i < to; i++) {
		const struct dlb_transform_step *s = &t->step[i];

		if (s->kind == DLB_TR_SCALE) {
			if (s->mul != 1.0f)
				x *= s->mul;
			if (s->div != 1.0f)
				x /= s->div;
		} else if (s->kind == DLB_TR_NORMALISE) {
			int64_t k = s->n == 1 ? 0 : c;

			x = (x - s->mean[k]) / s->sd[k];
		}
	}
	return x;
}

/* True if step s only changes values independently. Copying a grey plane counts
 * too: copies are made at the end. */
static bool by_value(const struct dlb_transform_step *s)
{
	return s->kind == DLB_TR_SCALE || s->kind == DLB_TR_NORMALISE ||
	       (s->kind == DLB_TR_CHANNELS && s->amount > 1);
}

/* Replaces (c, h, w) by the output shape of step s. -1 with err: s cannot take that shape. */
static int step_shape(const struct dlb_transform_step *s, int64_t *c, int64_t *h, int64_t *w,
		      struct dlb_error *err)
{
	const char *name = names[s->kind];
	int64_t shorter = *h < *w ? *h : *w;

	switch (s->kind) {
	case DLB_TR_SCALE:
	case DLB_TR_FLIP:
		break;
	case DLB_TR_NORMALISE:
		if (s->n != 1 && s->n != *c)
			return dlb_fail(err, NULL, "transform normalise: %d values for %lld channels", s->n,
					(long long)*c);
		break;
	case DLB_TR_CHANNELS:
		if (*c != 1 && *c != s->amount && !(s->amount == 1 && *c == 3))
			return dlb_fail(err, NULL,
					"transform channels=%lld: the data have %lld channels already",
					(long long)s->amount, (long long)*c);
		*c = s->amount;
		break;
	case DLB_TR_PAD:
		*h += 2 * s->amount;
		*w += 2 * s->amount;
		break;
	case DLB_TR_RESIZE:
		/* As torchvision: int(size * long / short). */
		if (s->w) {
			*h = s->h;
			*w = s->w;
		} else {
			*h = s->h * *h / shorter;
			*w = s->h * *w / shorter;
		}
		break;
	default:
		if (s->h > *h || s->w > *w)
			return dlb_hint((dlb_fail(err, NULL, "transform %s=%lldx%lld: the image is %lldx%lld",
						  name, (long long)s->h, (long long)s->w, (long long)*h,
						  (long long)*w),
					 err),
					"resize or pad it first");
		*h = s->h;
		*w = s->w;
	}
	if (*h > MAX_SIDE || *w > MAX_SIDE || *h * *w > DLB_MAX_PIXELS)
		return dlb_fail(err, NULL, "transform %s: an image of %lldx%lld is too large", name,
				(long long)*h, (long long)*w);
	return 0;
}

int dlb_transform_bind(struct dlb_transform *t, int64_t c, int64_t h, int64_t w, struct dlb_error *err)
{
	const int64_t dim[3] = { c, h, w };
	int64_t count = dlb_checked_count(dim, 3);

	if (count < 1 || count > INT64_C(1) << 40)
		return dlb_fail(err, NULL, "images of %lldx%lldx%lld are too large", (long long)c,
				(long long)h, (long long)w);
	t->out_c = c;
	t->out_h = h;
	t->out_w = w;
	t->tail = 0;
	for (int i = 0; i < t->n_steps; i++) {
		if (step_shape(&t->step[i], &t->out_c, &t->out_h, &t->out_w, err))
			return -1;
		if (!by_value(&t->step[i]))
			t->tail = i + 1;
	}
	t->table = dlb_xcalloc((size_t)t->out_c * 256, sizeof *t->table);
	for (int64_t k = 0; k < t->out_c; k++)
		for (int b = 0; b < 256; b++)
			t->table[k * 256 + b] = value(t, t->tail, t->n_steps, k, (float)b);
	return 0;
}

/* ---- applying ---- */

static size_t each(const struct dlb_image *x)
{
	return x->bytes ? 1 : sizeof(float);
}

static void pad(const struct dlb_image *x, int64_t p, void *dst)
{
	int64_t ow = x->w + 2 * p, oh = x->h + 2 * p;
	size_t e = each(x);

	memset(dst, 0, (size_t)(x->c * oh * ow) * e);
	for (int64_t r = 0; r < x->c * x->h; r++)
		memcpy((char *)dst + (size_t)((r / x->h * oh + r % x->h + p) * ow + p) * e,
		       (const char *)x->p + (size_t)(r * x->w) * e, (size_t)x->w * e);
}

static void crop(const struct dlb_image *x, int64_t top, int64_t left, int64_t oh, int64_t ow, void *dst)
{
	size_t e = each(x);

	for (int64_t r = 0; r < x->c * oh; r++)
		memcpy((char *)dst + (size_t)(r * ow) * e,
		       (const char *)x->p + (size_t)((r / oh * x->h + r % oh + top) * x->w + left) * e,
		       (size_t)ow * e);
}

static void mirror(const struct dlb_image *x, void *dst)
{
	for (int64_t r = 0; r < x->c * x->h; r++)
		for (int64_t i = 0; i < x->w; i++) {
			int64_t to = r * x->w + i, from = r * x->w + x->w - 1 - i;

			if (x->bytes)
				((unsigned char *)dst)[to] = ((const unsigned char *)x->p)[from];
			else
				((float *)dst)[to] = ((const float *)x->p)[from];
		}
}

/* Pillow's convert("L"): weights of ITU-R 601 in 16 bits. */
static void grey(const struct dlb_image *x, void *dst)
{
	int64_t n = x->h * x->w;

	if (x->bytes) {
		const unsigned char *p = x->p;

		for (int64_t i = 0; i < n; i++)
			((unsigned char *)dst)[i] = (unsigned char)((p[i] * 19595u + p[n + i] * 38470u +
								     p[2 * n + i] * 7471u + 0x8000u) >>
								    16);
	} else {
		const float *p = x->p;

		for (int64_t i = 0; i < n; i++)
			((float *)dst)[i] = 0.299f * p[i] + 0.587f * p[n + i] + 0.114f * p[2 * n + i];
	}
}

static void to_floats(const struct dlb_transform *t, int i, const struct dlb_image *x, float *dst)
{
	int64_t n = x->h * x->w;

	for (int64_t k = 0; k < x->c; k++)
		for (int64_t j = k * n; j < (k + 1) * n; j++)
			dst[j] = value(t, i, i + 1, k,
				       x->bytes ? (float)((const unsigned char *)x->p)[j] :
						  ((const float *)x->p)[j]);
}

/* Half the difference, rounded to even as in Python: offset of torchvision's CenterCrop. */
static int64_t middle(int64_t difference)
{
	int64_t half = difference / 2;

	return difference % 2 ? half + half % 2 : half;
}

/* Random words of step i: counter-based, keyed by seed, epoch, step and sample. */
static void draw(const struct dlb_sample_seed *c, int i, uint32_t out[4])
{
	const uint64_t key[2] = { (uint64_t)c->epoch, (uint64_t)i };

	dlb_philox(c->seed, dlb_hash_bytes(DLB_HASH_INIT, key, sizeof key), (uint64_t)c->sample, out);
}

static int64_t pick(uint32_t word, int64_t n)	/* uniform in 0 .. n-1 */
{
	return (int64_t)(((uint64_t)word * (uint64_t)n) >> 32);
}

/* Applies step i (before the tail) to x. Returns 1 if the result is in scratch `use`, 0 if the step changed
 * nothing, -1 with err. */
static int apply_step(const struct dlb_transform *t, int i, struct dlb_image *x,
		      const struct dlb_sample_seed *seed, struct dlb_scratch *s, enum dlb_scratch_use use,
		      struct dlb_error *err)
{
	const struct dlb_transform_step *step = &t->step[i];
	struct dlb_image y = *x;
	uint32_t word[4] = { 0 };
	int64_t top, left;
	bool moved = true;

	if (step_shape(step, &y.c, &y.h, &y.w, err))
		return -1;
	if (step->kind == DLB_TR_SCALE || step->kind == DLB_TR_NORMALISE)
		y.bytes = false;
	y.p = dlb_scratch(s, use, (size_t)(y.c * y.h * y.w) * each(&y));
	if (seed && (step->kind == DLB_TR_RANDOM_CROP || step->kind == DLB_TR_FLIP))
		draw(seed, i, word);
	switch (step->kind) {
	case DLB_TR_SCALE:
	case DLB_TR_NORMALISE:
		to_floats(t, i, x, y.p);
		break;
	case DLB_TR_CHANNELS:
		if (y.c == x->c)
			moved = false;
		else if (y.c == 1)
			grey(x, y.p);
		else
			for (int64_t k = 0; k < y.c; k++)
				memcpy((char *)y.p + (size_t)(k * x->h * x->w) * each(x), x->p,
				       (size_t)(x->h * x->w) * each(x));
		break;
	case DLB_TR_PAD:
		pad(x, step->amount, y.p);
		break;
	case DLB_TR_RESIZE:
		dlb_resample(x, y.h, y.w, y.p, s);
		break;
	case DLB_TR_FLIP:
		if (seed && word[0] < step->chance * 4294967296.0)
			mirror(x, y.p);
		else
			moved = false;
		break;
	default:
		top = middle(x->h - y.h);
		left = middle(x->w - y.w);
		if (step->kind == DLB_TR_RANDOM_CROP && seed) {
			top = pick(word[0], x->h - y.h + 1);
			left = pick(word[1], x->w - y.w + 1);
		}
		crop(x, top, left, y.h, y.w, y.p);
	}
	if (moved)
		*x = y;
	return moved;
}

int dlb_transform_apply(const struct dlb_transform *t, const struct dlb_image *image,
			const struct dlb_sample_seed *seed, struct dlb_scratch *s, float *dst,
			struct dlb_error *err)
{
	struct dlb_image x = *image;
	int64_t c, h, w, n = t->out_h * t->out_w;
	bool second = false;

	for (int i = 0; i < t->tail; i++) {
		const int moved = apply_step(t, i, &x, seed, s, second ? DLB_SCRATCH_B : DLB_SCRATCH_A, err);
		if (moved < 0)
			return -1;
		second ^= moved;
	}
	c = x.c;
	h = x.h;
	w = x.w;
	for (int i = t->tail; i < t->n_steps; i++)
		if (step_shape(&t->step[i], &c, &h, &w, err))
			return -1;
	if (c != t->out_c || h != t->out_h || w != t->out_w) {
		dlb_fail(err, NULL, "becomes %lldx%lldx%lld, the first one %lldx%lldx%lld", (long long)c,
			 (long long)h, (long long)w, (long long)t->out_c, (long long)t->out_h,
			 (long long)t->out_w);
		if (c != t->out_c)
			return dlb_hint(err, "add channels=%lld to --transform", (long long)t->out_c);
		return dlb_hint(err, "add resize=%lldx%lld to --transform", (long long)t->out_h,
				(long long)t->out_w);
	}
	for (int64_t k = 0; k < c; k++) {
		int64_t from = x.c == 1 ? 0 : k * n;

		if (x.bytes) {
			const unsigned char *p = (const unsigned char *)x.p + from;
			const float *table = t->table + k * 256;

			for (int64_t j = 0; j < n; j++)
				dst[k * n + j] = table[p[j]];
		} else {
			const float *p = (const float *)x.p + from;

			for (int64_t j = 0; j < n; j++)
				dst[k * n + j] = value(t, t->tail, t->n_steps, k, p[j]);
		}
	}
	return 0;
}

void dlb_transform_release(struct dlb_transform *t)
{
	free(t->table);
	memset(t, 0, sizeof *t);
}
