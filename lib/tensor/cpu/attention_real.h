/* Attention for type T; included by attention.c. */
#include "tensor/cpu/panel_real.h"
#include "tensor/cpu/sums_real.h"

static int64_t S(attention_take)(int64_t *at, int64_t n)
{
	const int64_t p = *at;

	*at += (n + ATTENTION_ALIGN - 1) / ATTENTION_ALIGN * ATTENTION_ALIGN;
	return p;
}

static struct attention_scratch S(attention_scratch)(const struct dlb_attention_desc *d, int64_t rows,
						     int64_t ld)
{
	struct attention_scratch r = { .bytes = 0 };
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
		r.band = S(attention_take)(&at, 2 * d->keys);	/* of int32_t */
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
	const struct attention_scratch *r = p->room;
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
	const struct attention_range row = attention_row(x, i - x->row);
	int64_t lo, hi;
	bool any = false;

	attention_span(p, x->batch, i, &lo, &hi);
	lo = lo > x->lo ? lo - x->lo : 0;
	hi -= x->lo;
	for (int64_t j = row.from; j < lo; j++)
		s[j] = -INFINITY;
	for (int64_t j = hi > lo ? hi : lo; j < row.end; j++)
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

/* Clears the elements on both sides of a row's range that products read. Stores vectors, because gcc makes a
 * memset of this length a string instruction, which takes longer to start than to run. */
static void S(attention_margin)(struct attention_range row, T *s)
{
	enum { WIDTH = VECTOR_BYTES / sizeof(T) };
	T *before = s + (row.from ? row.from - ATTENTION_MARGIN : row.end), *after = s + row.end;
	const S(vector_t) zero = { 0 };

#pragma GCC unroll 8
	for (int j = 0; j < ATTENTION_MARGIN; j += WIDTH) {
		memcpy(before + j, &zero, sizeof zero);
		memcpy(after + j, &zero, sizeof zero);
	}
}

/* s = exp(s - max); returns the factor that makes its sum 1. *log_sum (NULL: not wanted): logarithm of the
 * sum of exp(s). A row without keys is zeros, also when exp(s - *log_sum) is computed from it. */
static T S(attention_softmax)(int64_t n, bool any, T *s, T *log_sum)
{
	const T m = any ? S(largest)(s, n) : 0;
	double sum;

	if (!any || m == -INFINITY) {
		memset(s, 0, (size_t)n * sizeof *s);
		if (log_sum)
			*log_sum = INFINITY;
		return 0;
	}
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		s[j] = F(exp_down)(s[j] - m);
	sum = S(sum)(s, n);
	if (log_sum)
		*log_sum = m + (T)log(sum);
	return (T)(1 / sum);
}

static void S(attention_scale)(int64_t n, T by, T *x)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		x[j] *= by;
}

/* s = scale q k^T for the block's queries, in its band. */
static void S(attention_scores)(const struct attention_part *p, const struct attention_block *x, T *s)
{
	const struct dlb_attention_desc *d = p->d;

	S(panel_product)
	(&(struct S(panel_operands)){
		.m = x->n,
		.n = x->columns,
		.k = d->width,
		.alpha = (T)d->scale,
		.a = (const T *)p->run->in[0] + x->batch * d->q[0] + x->head * d->q[1] + x->row * d->q[2],
		.row = d->q[2],
		.column = 1,
		.b = (const T *)p->scratch + p->room->kt + x->lo * d->width,
		.k_all = d->width,
		.y = s,
		.ldy = p->ld,
		.wanted = x->seen });
}

/* Keeps the probabilities of row i of the block, with the margin that the backward pass reads. */
static void S(attention_keep)(const struct attention_part *p, const struct attention_block *x, int64_t i,
			      const T *s)
{
	const struct dlb_attention_desc *d = p->d;
	const struct attention_range row = attention_row(x, i);
	const int64_t from = row.from ? row.from - ATTENTION_MARGIN : 0,
		      end = at_most(row.end + ATTENTION_MARGIN, x->columns),
		      at = (x->batch * d->heads + x->head) * d->rows + x->row + i;

	if (end > from)
		memcpy((T *)p->run->out[1] + at * d->keys + x->lo + from, s + from, (size_t)(end - from) * sizeof *s);
}

/* The forward pass of one block of queries of one head. */
static void S(attention_forward_block)(const struct attention_part *p, const struct attention_block *x)
{
	const struct dlb_attention_desc *d = p->d;
	T *base = p->scratch, *s = base + p->room->s;
	T *y = (T *)p->run->out[0] + x->batch * d->y[0] + x->head * d->y[1] + x->row * d->y[2];
	T *log_sum = d->whole ? NULL : p->run->out[1], by[ATTENTION_ROWS];
	bool any[ATTENTION_ROWS];
	const bool kept = d->whole && p->run->out[1];

	if (log_sum)
		log_sum += (x->batch * d->heads + x->head) * d->rows + x->row;
	S(attention_scores)(p, x, s);
	for (int64_t i = 0; i < x->n; i++) {
		const struct attention_range row = attention_row(x, i);
		T *all = s + i * p->ld, *part = all + row.from;

		S(attention_tell)(p, x, x->row + i, DLB_SCORES_RAW, all, 0);
		if (d->softcap > 0)
			S(attention_cap)((T)d->softcap, row.end - row.from, part, NULL);
		S(attention_tell)(p, x, x->row + i, DLB_SCORES_CAPPED, all, 0);
		any[i] = S(attention_mask)(p, x, x->row + i, all);
		S(attention_tell)(p, x, x->row + i, DLB_SCORES_MASKED, all, -INFINITY);
	}
	/* a loop of its own: vectors are read long after the masked elements in them are written */
	for (int64_t i = 0; i < x->n; i++) {
		const struct attention_range row = attention_row(x, i);
		T *all = s + i * p->ld, *part = all + row.from;

		by[i] = S(attention_softmax)(row.end - row.from, any[i], part, log_sum ? log_sum + i : NULL);
		if (kept || d->scores == DLB_SCORES_SOFTMAX) {
			S(attention_scale)(row.end - row.from, by[i], part);
			by[i] = 1;
			S(attention_tell)(p, x, x->row + i, DLB_SCORES_SOFTMAX, all, 0);
		}
		S(attention_margin)(row, all);
		if (kept)
			S(attention_keep)(p, x, i, all);
	}
	S(panel_product)
	(&(struct S(panel_operands)){ .m = x->n,
				      .n = d->v_width,
				      .k = x->columns,
				      .alpha = 1,
				      .a = s,
				      .row = p->ld,
				      .column = 1,
				      .b = base + p->room->v + x->lo * PANEL,
				      .k_all = d->keys,
				      .y = y,
				      .ldy = d->y[2],
				      .terms = x->seen });
	for (int64_t i = 0; i < x->n && !kept; i++)
		S(attention_scale)(d->v_width, by[i], y + i * d->y[2]);
}

/* Computes the gradient of the scores of row i of the block from probabilities s, their gradient g and the
 * slope of the cap (NULL: none). */
static void S(attention_row_gradient)(const struct attention_part *p, const struct attention_block *x,
				      int64_t i, const T *s, const T *slope, T *g)
{
	const struct dlb_attention_desc *d = p->d;
	const struct attention_range row = attention_row(x, i);
	const int64_t from = row.from, end = at_most(row.end, x->columns);
	const T mean = (T)S(dot)(s + from, g + from, end - from);
	T *to = (T *)p->run->out[3];

#pragma omp simd
	for (int64_t j = from; j < end; j++)
		g[j] = s[j] * (g[j] - mean);
	if (to) {
		to += ((x->batch * d->heads + x->head) * d->rows + x->row + i) * d->mask_keys;
		for (int64_t j = 0; j < d->mask_keys; j++)
			to[j] = j >= x->lo + from && j < x->lo + end ? g[j - x->lo] : 0;
	}
	if (slope)
#pragma omp simd
		for (int64_t j = from; j < end; j++)
			g[j] *= slope[j];
	S(attention_margin)(row, g);
}

/* Computes the probabilities of a block again, and the slopes of the cap. */
static void S(attention_again)(const struct attention_part *p, const struct attention_block *x, T *s)
{
	const struct dlb_attention_desc *d = p->d;
	const T *log_sum = (const T *)p->run->in[6] + (x->batch * d->heads + x->head) * d->rows + x->row;
	T *slope = p->room->slope ? (T *)p->scratch + p->room->slope : NULL;

	S(attention_scores)(p, x, s);
	for (int64_t i = 0; i < x->n; i++) {
		const struct attention_range row = attention_row(x, i);
		T *all = s + i * p->ld;

		if (slope)
			S(attention_cap)
			((T)d->softcap, row.end - row.from, all + row.from, slope + i * p->ld + row.from);
		S(attention_mask)(p, x, x->row + i, all);
	}
	for (int64_t i = 0; i < x->n; i++) {		/* as in the forward pass */
		const struct attention_range row = attention_row(x, i);
		T *all = s + i * p->ld;

#pragma omp simd
		for (int64_t j = row.from; j < row.end; j++)
			all[j] = F(exp_down)(all[j] - log_sum[i]);
		S(attention_margin)(row, all);
	}
}

/* to (keys, width) += alpha s^T b, for the block's band of s; of_keys: that band by keys
 * (NULL: all). */
static void S(attention_to_keys)(const struct attention_block *x, const struct panel_band *of_keys, T alpha,
				 const T *s, int64_t ld, const T *b, int64_t width, T *to, int64_t stride)
{
	S(panel_product)
	(&(struct S(panel_operands)){ .m = x->columns,
				      .n = width,
				      .k = x->n,
				      .alpha = alpha,
				      .a = s,
				      .row = 1,
				      .column = ld,
				      .b = b,
				      .k_all = x->n,
				      .y = to,
				      .ldy = stride,
				      .add = true,
				      .terms = of_keys });
}

/* Adds the contribution of one block of queries to the gradients of keys and values. */
static void S(attention_backward_block)(const struct attention_part *p, const struct attention_block *x)
{
	const struct dlb_attention_desc *d = p->d;
	const struct attention_scratch *r = p->room;
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
	const struct panel_band by_keys =
		x->seen ? attention_by_keys(x, (int32_t *)(base + r->band)) : (struct panel_band){ 0 };
	const struct panel_band *of_keys = x->seen ? &by_keys : NULL;

	if (!d->whole)
		S(attention_again)(p, x, base + r->s);
	S(panel_product)
	(&(struct S(panel_operands)){ .m = x->n,
				      .n = x->columns,
				      .k = d->v_width,
				      .alpha = 1,
				      .a = dy,
				      .row = d->y[2],
				      .column = 1,
				      .b = base + r->vt + x->lo * d->v_width,
				      .k_all = d->v_width,
				      .y = g,
				      .ldy = p->ld,
				      .wanted = x->seen });
	for (int64_t i = 0; i < x->n; i++)
		S(attention_row_gradient)(p, x, i, s + i * ld, slope ? slope + i * p->ld : NULL, g + i * p->ld);
	if (dq)
		S(panel_product)
		(&(struct S(panel_operands)){ .m = x->n,
					      .n = d->width,
					      .k = x->columns,
					      .alpha = (T)d->scale,
					      .a = g,
					      .row = p->ld,
					      .column = 1,
					      .b = base + r->k + x->lo * PANEL,
					      .k_all = d->keys,
					      .y = dq + q_at,
					      .ldy = d->q[2],
					      .terms = x->seen });
	if (dk) {
		S(panel_pack)(x->n, d->width, q, d->q[2], base + r->q);
		S(attention_to_keys)
		(x, of_keys, (T)d->scale, g, p->ld, base + r->q, d->width,
		 dk + x->batch * d->k[0] + x->kv_head * d->k[1] + x->lo * d->k[2], d->k[2]);
	}
	if (dv) {
		S(panel_pack)(x->n, d->v_width, dy, d->y[2], base + r->dy);
		S(attention_to_keys)
		(x, of_keys, 1, s, ld, base + r->dy, d->v_width,
		 dv + x->batch * d->v[0] + x->kv_head * d->v[1] + x->lo * d->v[2], d->v[2]);
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
