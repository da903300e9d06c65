/* Sums of listed elements along each dimension: padding, resizing, and their gradients. */
#include <stdlib.h>
#include <string.h>

#include "tensor/cpu/cpu.h"

/* The tables of a dimension; tap NULL: the only tap of an index is itself. Positions are multiplied by the
 * stride of x. */
struct table { int64_t stride, *end; struct dlb_tap *tap; };
struct taps_kernel {
	struct dlb_kernel k;
	struct dlb_taps_desc d;
	int last;			/* the last dimension, whose taps are applied to whole rows; -1: none */
	int64_t rows, width;		/* rows of y, and their elements */
	struct table t[DLB_MAX_DIMS];
};

static int64_t begin_of(const struct table *t, int64_t i)
{
	return i ? t->end[i - 1] : 0;
}

/* Splits row i of y into positions; false: one of them has no taps. */
static bool seek(const struct taps_kernel *k, int64_t i, int64_t *pos)
{
	for (int d = k->last - 1; d >= 0; d--) {
		const struct table *t = &k->t[d];

		pos[d] = i % k->d.y[d];
		i /= k->d.y[d];
		if (t->tap && t->end[pos[d]] == begin_of(t, pos[d]))
			return false;
	}
	return true;
}

/* ---- moves ---- */
/* The element of a row of x that index j of a row of y copies; -1: none. */
static inline int64_t copied(const struct table *last, int64_t j)
{
	const int64_t t = last && last->tap ? begin_of(last, j) : 0;

	return !last || !last->tap ? j : t < last->end[j] ? last->tap[t].from : -1;
}

#define ROW(type) \
	for (int64_t j = 0; j < k->width; j++) { \
		const int64_t at = copied(last, j); \
		((type *)y)[j] = from < 0 || at < 0 ? *(const type *)value : ((const type *)x)[from + at]; \
	}

static void move_run(struct dlb_kernel *kernel, const struct dlb_run *r)
{
	const struct taps_kernel *k = (const struct taps_kernel *)kernel;
	const struct table *last = k->last < 0 ? NULL : &k->t[k->last];
	const size_t size = dlb_dtype_bytes(k->d.out);
	const uint64_t zero = 0;
	const void *x = r->in[0], *value = r->in[1] ? r->in[1] : &zero;
	int64_t pos[DLB_MAX_DIMS];

	for (int64_t i = 0; i < k->rows; i++) {
		char *y = (char *)r->out[0] + (size_t)(i * k->width) * size;
		int64_t from = seek(k, i, pos) ? 0 : -1;

		for (int d = 0; d < k->last && from >= 0; d++)
			from += k->t[d].tap ? k->t[d].tap[begin_of(&k->t[d], pos[d])].from : pos[d] * k->t[d].stride;
		switch (size) {
		case 1:
			ROW(uint8_t);
			break;
		case 2:
			ROW(uint16_t);
			break;
		case 4:
			ROW(uint32_t);
			break;
		default:
			ROW(uint64_t);
			break;
		}
	}
}

/* ---- sums ---- */
struct sum { const struct taps_kernel *k; const int64_t *pos; const void *x; void *acc; };

/* Adds w times the row of x at `from` to the sums. */
#define ADD(S, VALUE) \
	do { \
		S *acc = s->acc; \
		for (int64_t j = 0; j < k->width && !(last && last->tap); j++) \
			acc[j] += (S)w * (S)(VALUE(from + j)); \
		for (int64_t j = 0; j < k->width && last && last->tap; j++) \
			for (int64_t t = begin_of(last, j); t < last->end[j]; t++) \
				acc[j] += (S)(w * last->tap[t].w) * (S)(VALUE(from + last->tap[t].from)); \
	} while (0)
#define AS_FLOAT(i) ((const float *)s->x)[i]
#define AS_DOUBLE(i) ((const double *)s->x)[i]
#define AS_ANY(i) dlb_value_real(s->x, k->d.in, i)

static void add_row(const struct sum *s, int64_t from, double w)
{
	const struct taps_kernel *k = s->k;
	const struct table *last = k->last < 0 ? NULL : &k->t[k->last];

	if (k->d.sum == DLB_F32)
		ADD(float, AS_FLOAT);
	else if (k->d.in == DLB_F32)
		ADD(double, AS_FLOAT);
	else if (k->d.in == DLB_F64)
		ADD(double, AS_DOUBLE);
	else
		ADD(double, AS_ANY);
}

/* Adds the rows of all combinations of taps of dimensions d to last - 1. */
static void add_rows(const struct sum *s, int d, int64_t from, double w)
{
	const struct table *t = &s->k->t[d];

	if (d >= s->k->last)
		add_row(s, from, w);
	else if (!t->tap)
		add_rows(s, d + 1, from + s->pos[d] * t->stride, w);
	else
		for (int64_t i = begin_of(t, s->pos[d]); i < t->end[s->pos[d]]; i++)
			add_rows(s, d + 1, from + t->tap[i].from, w * t->tap[i].w);
}

static void sum_run(struct dlb_kernel *kernel, const struct dlb_run *r)
{
	const struct taps_kernel *k = (const struct taps_kernel *)kernel;
	const struct table *last = k->last < 0 ? NULL : &k->t[k->last];
	const double value = r->in[1] ? dlb_value_real(r->in[1], k->d.out, 0) : 0;
	const bool single = k->d.sum == DLB_F32;
	int64_t pos[DLB_MAX_DIMS];

	for (int64_t i = 0; i < k->rows; i++) {
		const bool any = seek(k, i, pos);

		memset(r->scratch, 0, (size_t)k->width * (single ? sizeof(float) : sizeof(double)));
		if (any)
			add_rows(&(struct sum){ k, pos, r->in[0], r->scratch }, 0, 0, 1);
		for (int64_t j = 0; j < k->width; j++) {
			const bool empty = !any || (last && last->tap && begin_of(last, j) == last->end[j]);
			const double v = single ? (double)((float *)r->scratch)[j] : ((double *)r->scratch)[j];

			dlb_value_set(r->out[0], k->d.out, i * k->width + j, empty ? value : v);
		}
	}
}

static void taps_free(struct dlb_kernel *kernel)
{
	struct taps_kernel *k = (struct taps_kernel *)kernel;

	for (int d = 0; d < DLB_MAX_DIMS; d++) {
		free(k->t[d].end);
		free(k->t[d].tap);
	}
	free(k);
}

static void copy_table(struct table *t, const struct dlb_taps_desc *d, int dim)
{
	const int64_t n = d->y[dim], n_taps = n ? d->end[dim][n - 1] : 0;

	t->end = dlb_xcalloc((size_t)n + 1, sizeof *t->end);
	t->tap = dlb_xcalloc((size_t)n_taps + 1, sizeof *t->tap);
	for (int64_t i = 0; i < n; i++)
		t->end[i] = d->end[dim][i];
	for (int64_t i = 0; i < n_taps; i++)
		t->tap[i] = (struct dlb_tap){ d->tap[dim][i].from * t->stride, d->tap[dim][i].w };
}

int dlb_cpu_taps(struct dlb_backend *b, const struct dlb_taps_desc *d, struct dlb_kernel **k,
		 struct dlb_error *err)
{
	struct taps_kernel *s;
	int64_t stride = 1;

	(void)b, (void)err;
	if (!d->move && d->sum != DLB_F64 && (d->sum != DLB_F32 || d->in != DLB_F32))
		return DLB_NO_KERNEL;
	s = dlb_xcalloc(1, sizeof *s);
	s->d = *d;
	s->last = d->n_dims - 1;
	s->width = d->n_dims ? d->y[s->last] : 1;
	s->rows = 1;
	for (int i = s->last; i >= 0; i--) {
		s->t[i].stride = stride;
		stride *= d->x[i];
		s->rows *= i < s->last ? d->y[i] : 1;
		if (d->tap[i])
			copy_table(&s->t[i], d, i);
	}
	s->k = (struct dlb_kernel){ .run = d->move ? move_run : sum_run,
				    .free = taps_free,
				    .scratch_bytes = d->move ? 0 : (size_t)s->width * sizeof(double) + 64,
				    .impl = "loop" };
	*k = &s->k;
	return 0;
}
