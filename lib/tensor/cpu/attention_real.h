/* Attention for type T; included by attention.c. */
#include "tensor/cpu/panel_real.h"
#include "tensor/cpu/sums_real.h"

static int64_t S(attention_take)(int64_t *at, int64_t n)
{
	const int64_t p = *at;

	*at += (n + ATTENTION_ALIGN - 1) / ATTENTION_ALIGN * ATTENTION_ALIGN;
	return p;
}

static struct attention_room S(attention_room)(const struct dlb_attention_desc *d, int64_t rows, int64_t ld)
{
	struct attention_room r = { .bytes = 0 };
	int64_t at = 0;

	r.kt = S(attention_take)(&at, S(panel_count)(d->width, d->keys));
	r.s = S(attention_take)(&at, rows * ld);
	if (d->backward) {
		r.vt = S(attention_take)(&at, S(panel_count)(d->v_width, d->keys));
		r.k = S(attention_take)(&at, S(panel_count)(d->keys, d->width));
		r.q = S(attention_take)(&at, S(panel_count)(rows, d->width));
		r.dy = S(attention_take)(&at, S(panel_count)(rows, d->v_width));
		r.g = S(attention_take)(&at, rows * ld);
		r.slope = d->softcap > 0 ? S(attention_take)(&at, rows * ld) : 0;
	} else {
		r.v = S(attention_take)(&at, S(panel_count)(d->keys, d->v_width));
	}
	r.bytes = (size_t)at * sizeof(T);
	return r;
}

/* Packs keys and values of a head. */
static void S(attention_pack)(const struct attention_part *p, int64_t batch, int64_t head)
{
	const struct dlb_attention_desc *d = p->d;
	const struct attention_room *r = p->room;
	T *base = p->scratch;
	const T *k = (const T *)p->run->in[1] + batch * d->k[0] + head * d->k[1];
	const T *v = (const T *)p->run->in[2] + batch * d->v[0] + head * d->v[1];

	if (!d->backward || !d->whole)
		S(panel_pack_transposed)(d->width, d->keys, k, d->k[2], base + r->kt);
	if (d->backward) {
		S(panel_pack_transposed)(d->v_width, d->keys, v, d->v[2], base + r->vt);
		S(panel_pack)(d->keys, d->width, k, d->k[2], base + r->k);
	} else {
		S(panel_pack)(d->keys, d->v_width, v, d->v[2], base + r->v);
	}
}

/* Copies row i's scores to output `scores` if `stage` is the requested one;
 * keys outside the block get `rest`. */
static void S(attention_tell)(const struct attention_part *p, const struct attention_block *x, int64_t i,
			      enum dlb_scores stage, const T *s, T rest)
{
	const struct dlb_attention_desc *d = p->d;
	T *to = (T *)p->run->out[2];

	if (!to || d->scores != stage)
		return;
	to += ((x->batch * d->heads + x->head) * d->rows + i) * d->keys;
	for (int64_t j = 0; j < d->keys; j++)
		to[j] = j >= x->lo && j < x->lo + x->columns ? s[j - x->lo] : rest;
}

/* c = cap tanh(s / cap); *slope: its derivative (NULL: not wanted). */
static void S(attention_cap)(T cap, int64_t n, T *s, T *slope)
{
	const T by = 1 / cap;

#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		const T t = F(tanh)(s[j] * by);

		s[j] = cap * t;
		if (slope)
			slope[j] = 1 - t * t;
	}
}

/* Adds the mask to row i; masked keys become -inf whatever their score. False: no key is left. */
static bool S(attention_mask)(const struct attention_part *p, const struct attention_block *x, int64_t i,
			      T *s)
{
	const struct dlb_attention_desc *d = p->d;
	int64_t lo, hi;
	bool any = false;

	attention_span(p, x->batch, i, &lo, &hi);
	lo = lo > x->lo ? lo - x->lo : 0;
	hi -= x->lo;
	for (int64_t j = 0; j < lo; j++)
		s[j] = -INFINITY;
	for (int64_t j = hi > lo ? hi : lo; j < x->columns; j++)
		s[j] = -INFINITY;
	if (!p->run->in[3])
		return hi > lo;
	const int64_t at = x->batch * d->mask[0] + x->head * d->mask[1] + i * d->mask[2] + x->lo;
	if (d->mask_type == DLB_BOOL) {
		const uint8_t *m = (const uint8_t *)p->run->in[3] + at;

#pragma omp simd reduction(|:any)
		for (int64_t j = lo; j < hi; j++) {
			s[j] = m[j] ? s[j] : -INFINITY;
			any |= m[j] != 0;
		}
	} else {
		const T *m = (const T *)p->run->in[3] + at;

#pragma omp simd reduction(|:any)
		for (int64_t j = lo; j < hi; j++) {
			s[j] = m[j] == -INFINITY ? -INFINITY : s[j] + m[j];
			any |= m[j] != -INFINITY;
		}
	}
	return any;
}

/* s = exp(s - max); returns the factor that makes its sum 1. *log_sum: logarithm of the sum of exp(s). A row
 * without keys is zeros, also when exp(s - *log_sum) is computed from it. */
static T S(attention_softmax)(int64_t n, bool any, T *s, T *log_sum)
{
	const T m = any ? S(largest)(s, n) : 0;
	double sum;

	if (!any || m == -INFINITY) {
		memset(s, 0, (size_t)n * sizeof *s);
		*log_sum = INFINITY;
		return 0;
	}
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		s[j] = F(exp_down)(s[j] - m);
	sum = S(sum)(s, n);
	*log_sum = m + (T)log(sum);
	return (T)(1 / sum);
}

static void S(attention_scale)(int64_t n, T by, T *x)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		x[j] *= by;
}

/* Queries of one block of one head. */
static void S(attention_forward_block)(const struct attention_part *p, const struct attention_block *x)
{
	const struct dlb_attention_desc *d = p->d;
	T *base = p->scratch, *s = base + p->room->s;
	const T *q = (const T *)p->run->in[0] + x->batch * d->q[0] + x->head * d->q[1] + x->row * d->q[2];
	T *y = (T *)p->run->out[0] + x->batch * d->y[0] + x->head * d->y[1] + x->row * d->y[2];
	T *saved = p->run->out[1], by[ATTENTION_ROWS];
	const int64_t at = (x->batch * d->heads + x->head) * d->rows + x->row;

	S(panel_product)
	(x->n, x->columns, d->width, (T)d->scale, q, d->q[2], 1, base + p->room->kt + x->lo * d->width,
	 d->width, s, p->ld, false);
	for (int64_t i = 0; i < x->n; i++) {
		T *row = s + i * p->ld, sum;

		S(attention_tell)(p, x, x->row + i, DLB_SCORES_RAW, row, 0);
		if (d->softcap > 0)
			S(attention_cap)((T)d->softcap, x->columns, row, NULL);
		S(attention_tell)(p, x, x->row + i, DLB_SCORES_CAPPED, row, 0);
		const bool any = S(attention_mask)(p, x, x->row + i, row);
		S(attention_tell)(p, x, x->row + i, DLB_SCORES_MASKED, row, -INFINITY);
		by[i] = S(attention_softmax)(x->columns, any, row, &sum);
		if (saved && !d->whole)
			saved[at + i] = sum;
		if ((saved && d->whole) || d->scores == DLB_SCORES_SOFTMAX) {
			S(attention_scale)(x->columns, by[i], row);
			by[i] = 1;
			S(attention_tell)(p, x, x->row + i, DLB_SCORES_SOFTMAX, row, 0);
		}
		if (saved && d->whole)		/* columns outside the block are not read */
			memcpy(saved + (at + i) * d->keys + x->lo, row, (size_t)x->columns * sizeof *row);
	}
	S(panel_product)
	(x->n, d->v_width, x->columns, 1, s, p->ld, 1, base + p->room->v + x->lo * PANEL, d->keys, y, d->y[2],
	 false);
	for (int64_t i = 0; i < x->n; i++)
		if (x->columns)
			S(attention_scale)(d->v_width, by[i], y + i * d->y[2]);
		else
			memset(y + i * d->y[2], 0, (size_t)d->v_width * sizeof *y);
}

/* Computes the gradient of the scores of row i from probabilities s, their gradient g and the
 * slope of the cap (NULL: none). */
static void S(attention_row_gradient)(const struct attention_part *p, const struct attention_block *x,
				      int64_t i, const T *s, const T *slope, T *g)
{
	const struct dlb_attention_desc *d = p->d;
	const T mean = (T)S(dot)(s, g, x->columns);
	T *to = (T *)p->run->out[3];

#pragma omp simd
	for (int64_t j = 0; j < x->columns; j++)
		g[j] = s[j] * (g[j] - mean);
	if (to) {
		to += ((x->batch * d->heads + x->head) * d->rows + i) * d->mask_keys;
		for (int64_t j = 0; j < d->mask_keys; j++)
			to[j] = j >= x->lo && j < x->lo + x->columns ? g[j - x->lo] : 0;
	}
	if (slope)
#pragma omp simd
		for (int64_t j = 0; j < x->columns; j++)
			g[j] *= slope[j];
}

/* Computes the scores of a block again, for the probabilities, and the slopes of the cap. */
static void S(attention_again)(const struct attention_part *p, const struct attention_block *x, T *s)
{
	const struct dlb_attention_desc *d = p->d;
	const T *q = (const T *)p->run->in[0] + x->batch * d->q[0] + x->head * d->q[1] + x->row * d->q[2];
	const T *log_sum = (const T *)p->run->in[6] + (x->batch * d->heads + x->head) * d->rows + x->row;
	T *base = p->scratch, *slope = p->room->slope ? base + p->room->slope : NULL;

	S(panel_product)
	(x->n, x->columns, d->width, (T)d->scale, q, d->q[2], 1, base + p->room->kt + x->lo * d->width,
	 d->width, s, p->ld, false);
	for (int64_t i = 0; i < x->n; i++) {
		T *row = s + i * p->ld;

		if (slope)
			S(attention_cap)((T)d->softcap, x->columns, row, slope + i * p->ld);
		S(attention_mask)(p, x, x->row + i, row);
#pragma omp simd
		for (int64_t j = 0; j < x->columns; j++)
			row[j] = F(exp_down)(row[j] - log_sum[i]);
	}
}

/* Adds the contribution of one block of queries to the gradients of keys and values. */
static void S(attention_backward_block)(const struct attention_part *p, const struct attention_block *x)
{
	const struct dlb_attention_desc *d = p->d;
	const struct attention_room *r = p->room;
	const int64_t q_at = x->batch * d->q[0] + x->head * d->q[1] + x->row * d->q[2];
	const T *q = (const T *)p->run->in[0] + q_at;
	const T *dy = (const T *)p->run->in[5] + x->batch * d->y[0] + x->head * d->y[1] + x->row * d->y[2];
	T *dq = p->run->out[0], *dk = p->run->out[1], *dv = p->run->out[2];
	T *base = p->scratch, *g = base + r->g, *slope = r->slope ? base + r->slope : NULL;
	const T *s = d->whole ?
			     (const T *)p->run->in[6] +
				     ((x->batch * d->heads + x->head) * d->rows + x->row) * d->keys + x->lo :
			     base + r->s;
	const int64_t ld = d->whole ? d->keys : p->ld;

	if (!d->whole)
		S(attention_again)(p, x, base + r->s);
	S(panel_product)
	(x->n, x->columns, d->v_width, 1, dy, d->y[2], 1, base + r->vt + x->lo * d->v_width, d->v_width, g,
	 p->ld, false);
	for (int64_t i = 0; i < x->n; i++)
		S(attention_row_gradient)
		(p, x, x->row + i, s + i * ld, slope ? slope + i * p->ld : NULL, g + i * p->ld);
	if (dq)
		S(panel_product)
		(x->n, d->width, x->columns, (T)d->scale, g, p->ld, 1, base + r->k + x->lo * PANEL, d->keys,
		 dq + q_at, d->q[2], false);
	if (dk) {
		S(panel_pack)(x->n, d->width, q, d->q[2], base + r->q);
		S(panel_product)
		(x->columns, d->width, x->n, (T)d->scale, g, 1, p->ld, base + r->q, x->n,
		 dk + x->batch * d->k[0] + x->kv_head * d->k[1] + x->lo * d->k[2], d->k[2], true);
	}
	if (dv) {
		S(panel_pack)(x->n, d->v_width, dy, d->y[2], base + r->dy);
		S(panel_product)
		(x->columns, d->v_width, x->n, 1, s, 1, ld, base + r->dy, x->n,
		 dv + x->batch * d->v[0] + x->kv_head * d->v[1] + x->lo * d->v[2], d->v[2], true);
	}
}

/* As above for a block that sees no key: the queries' gradients are zero. */
static void S(attention_backward_empty)(const struct attention_part *p, const struct attention_block *x)
{
	const struct dlb_attention_desc *d = p->d;
	T *dq = p->run->out[0], *dmask = p->run->out[3];

	for (int64_t i = x->row; i < x->row + x->n; i++) {
		if (dq)
			memset(dq + x->batch * d->q[0] + x->head * d->q[1] + i * d->q[2], 0,
			       (size_t)d->width * sizeof *dq);
		if (dmask)
			memset(dmask + ((x->batch * d->heads + x->head) * d->rows + i) * d->mask_keys, 0,
			       (size_t)d->mask_keys * sizeof *dmask);
	}
}

static void S(attention_block)(const struct attention_part *p, const struct attention_block *x)
{
	if (!p->d->backward)
		S(attention_forward_block)(p, x);
	else if (x->columns)
		S(attention_backward_block)(p, x);
	else
		S(attention_backward_empty)(p, x);
}
