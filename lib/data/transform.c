/* What is done to each image, left to right:
 *
 *     scale=A/B         x*A/B (1/255: x divided by 255)     scale=X    x*X
 *     normalise=M/S     (x - M)/S; lists with ':' are one a channel: 0.5:0.4:0.4/0.2:0.2:0.2
 *     pad=P             P rows and columns of zeros on every side
 *     channels=C        a grey image copied C times
 *
 * All in f32. Since every step but pad works on one value alone, a byte's fate is a table of 256
 * values a channel, and the padding's fate one image made beforehand. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/source.h"

/* Reals separated by ':' up to a '/', a ',' or the end; returns how many, -1 for bad text. */
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

static int whole(const char **text, int64_t max, int64_t *out)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(*text, &end, 10);
	if (end == *text || errno || v < 0 || v > max)
		return -1;
	*text = end;
	*out = v;
	return 0;
}

static int step_parse(const char *key, size_t n, const char **text, struct dlb_transform_step *s)
{
	if (n == 5 && !memcmp(key, "scale", 5)) {
		s->kind = DLB_TR_SCALE;
		s->div = 1.0f;
		if (reals(text, &s->mul, 1) != 1)
			return -1;
		if (**text == '/') {
			++*text;
			if (reals(text, &s->div, 1) != 1 || s->div == 0.0f)
				return -1;
		}
	} else if ((n == 9 && !memcmp(key, "normalise", 9)) || (n == 9 && !memcmp(key, "normalize", 9))) {
		s->kind = DLB_TR_NORMALISE;
		s->n = reals(text, s->mean, DLB_MAX_CHANNELS);
		if (s->n < 1 || **text != '/')
			return -1;
		++*text;
		if (reals(text, s->sd, DLB_MAX_CHANNELS) != s->n)
			return -1;
		for (int i = 0; i < s->n; i++)
			if (s->sd[i] == 0.0f)
				return -1;
	} else if (n == 3 && !memcmp(key, "pad", 3)) {
		s->kind = DLB_TR_PAD;
		if (whole(text, 4096, &s->amount))
			return -1;
	} else if (n == 8 && !memcmp(key, "channels", 8)) {
		s->kind = DLB_TR_CHANNELS;
		if (whole(text, DLB_MAX_CHANNELS, &s->amount) || s->amount < 1)
			return -1;
	} else {
		return 1;
	}
	return 0;
}

int dlb_transform_parse(const char *text, struct dlb_transform *t, struct dlb_error *err)
{
	static const char *const names[] = { "scale", "normalise", "pad", "channels" };
	const char *p = text ? text : "";

	memset(t, 0, sizeof *t);
	while (*p) {
		size_t n = strcspn(p, "=,");
		const char *key = p;
		int rc = 1;

		if (t->n_steps == DLB_MAX_TRANSFORMS)
			return dlb_fail(err, NULL, "--transform has more than %d steps", DLB_MAX_TRANSFORMS);
		if (p[n] == '=') {
			p += n + 1;
			rc = step_parse(key, n, &p, &t->step[t->n_steps]);
		}
		if (rc > 0) {
			char word[32];
			const char *near;

			snprintf(word, sizeof word, "%.*s", (int)(n < 31 ? n : 31), key);
			near = dlb_nearest(word, names, DLB_LEN(names));
			dlb_fail(err, NULL, "no transform '%s'", word);
			if (near)
				dlb_hint(err, "did you mean '%s=...'", near);
			else
				dlb_hint(err, "there are scale, normalise, pad and channels");
			return -1;
		}
		if (rc < 0 || (*p && *p != ','))
			return dlb_fail(err, NULL, "bad value in transform '%.*s'", (int)strcspn(key, ","), key);
		t->n_steps++;
		if (*p == ',' && !*++p)
			return dlb_fail(err, NULL, "transform '%s' ends in a comma", text);
	}
	return 0;
}

/* What becomes of x in channel c by the steps from `from` on. */
static float value(const struct dlb_transform *t, int from, int64_t c, float x)
{
	for (int i = from; i < t->n_steps; i++) {
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

static int shape(struct dlb_transform *t, struct dlb_error *err)
{
	t->out_c = t->c;
	t->out_h = t->h;
	t->out_w = t->w;
	t->pad = 0;
	for (int i = 0; i < t->n_steps; i++) {
		const struct dlb_transform_step *s = &t->step[i];

		if (s->kind == DLB_TR_PAD) {
			t->out_h += 2 * s->amount;
			t->out_w += 2 * s->amount;
			t->pad += s->amount;
		} else if (s->kind == DLB_TR_CHANNELS) {
			if (t->out_c != 1 && t->out_c != s->amount)
				return dlb_fail(err, NULL, "transform channels=%lld: the data have %lld channels already",
						(long long)s->amount, (long long)t->out_c);
			t->out_c = s->amount;
		} else if (s->kind == DLB_TR_NORMALISE && s->n != 1 && s->n != t->out_c) {
			return dlb_fail(err, NULL, "transform normalise: %d values for %lld channels", s->n, (long long)t->out_c);
		}
	}
	return 0;
}

int dlb_transform_bind(struct dlb_transform *t, int64_t c, int64_t h, int64_t w, struct dlb_error *err)
{
	int64_t dim[3], count, edge = 0;

	t->c = c;
	t->h = h;
	t->w = w;
	if (shape(t, err))
		return -1;
	dim[0] = t->out_c;
	dim[1] = t->out_h;
	dim[2] = t->out_w;
	count = dlb_checked_count(dim, 3);
	if (count < 0 || count > INT64_C(1) << 40)
		return dlb_fail(err, NULL, "images of %lldx%lldx%lld are too large", (long long)dim[0], (long long)dim[1], (long long)dim[2]);
	t->canvas = dlb_xcalloc((size_t)count, sizeof *t->canvas);
	/* The last pad is the outermost frame: paint it first, over everything, then the inner ones. */
	for (int i = t->n_steps - 1; i >= 0; i--) {
		if (t->step[i].kind != DLB_TR_PAD)
			continue;
		for (int64_t k = 0; k < t->out_c; k++)
			for (int64_t y = edge; y < t->out_h - edge; y++)
				for (int64_t x = edge; x < t->out_w - edge; x++)
					t->canvas[(k * t->out_h + y) * t->out_w + x] = value(t, i + 1, k, 0.0f);
		edge += t->step[i].amount;
	}
	t->table = dlb_xcalloc((size_t)t->out_c * 256, sizeof *t->table);
	for (int64_t k = 0; k < t->out_c; k++)
		for (int b = 0; b < 256; b++)
			t->table[k * 256 + b] = value(t, 0, k, (float)b);
	return 0;
}

void dlb_transform_apply(const struct dlb_transform *t, enum dlb_dtype dtype, const void *src, float *dst)
{
	int64_t image = t->out_h * t->out_w;

	if (t->pad)
		memcpy(dst, t->canvas, (size_t)(t->out_c * image) * sizeof *dst);
	for (int64_t k = 0; k < t->out_c; k++) {
		int64_t from = t->c == 1 ? 0 : k * t->h * t->w;
		const float *table = t->table + k * 256;

		for (int64_t y = 0; y < t->h; y++) {
			float *row = dst + k * image + (y + t->pad) * t->out_w + t->pad;
			int64_t at = from + y * t->w;

			if (dtype == DLB_U8) {
				const unsigned char *p = (const unsigned char *)src + at;

				for (int64_t x = 0; x < t->w; x++)
					row[x] = table[p[x]];
			} else {
				for (int64_t x = 0; x < t->w; x++)
					row[x] = value(t, 0, k, (float)dlb_value_real(src, dtype, at + x));
			}
		}
	}
}

void dlb_transform_release(struct dlb_transform *t)
{
	free(t->canvas);
	free(t->table);
	memset(t, 0, sizeof *t);
}
