/* Attention for type T; included by attention.c. */
#include "tensor/cpu/sums_real.h"

/* Scores of a block: s (n, columns) = scale q k^T for queries [row, row + n) and keys [lo, lo + columns). */
static void S(attention_products)(const struct attention_part *p, const struct attention_block *x, const T *q, const T *k, T *s)
{
	const struct dlb_attention_desc *d = p->d;

	S(attention_gemm)(CblasRowMajor, CblasNoTrans, CblasTrans, (int)x->n, (int)x->columns, (int)d->width, (T)d->scale,
			  q + x->row * d->q[2], (int)d->q[2], k + x->lo * d->k[2], (int)d->k[2], 0, s, (int)x->columns);
}

/* Row i's scores where output `scores` wants them, if stage is the one that is asked for; beyond the block: `rest`. */
static void S(attention_tell)(const struct attention_part *p, const struct attention_block *x, int64_t i, enum dlb_scores stage,
			      const T *s, T rest)
{
	const struct dlb_attention_desc *d = p->d;
	T *to = (T *)p->run->out[2];

	if (!to || d->scores != stage)
		return;
	to += ((x->batch * d->heads + x->head) * d->rows + i) * d->keys;
	for (int64_t j = 0; j < d->keys; j++)
		to[j] = j >= x->lo && j < x->lo + x->columns ? s[j - x->lo] : rest;
}

/* c = cap tanh(s / cap); *slope (NULL: not asked) its derivative. */
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

/* Adds the mask to row i; what may not be attended to becomes -inf whatever it was. False: no key may be. */
static bool S(attention_mask)(const struct attention_part *p, const struct attention_block *x, int64_t i, T *s)
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

/* s = exp(s - its largest) and the factor that makes its sum 1; *log_sum the logarithm of the sum of exp(s). A row without
 * keys is zeros, and so it is again where exp(s - *log_sum) is taken. */
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
	const T *q = (const T *)p->run->in[0] + x->batch * d->q[0] + x->head * d->q[1];
	const T *k = (const T *)p->run->in[1] + x->batch * d->k[0] + x->kv_head * d->k[1];
	const T *v = (const T *)p->run->in[2] + x->batch * d->v[0] + x->kv_head * d->v[1];
	T *y = (T *)p->run->out[0] + x->batch * d->y[0] + x->head * d->y[1] + x->row * d->y[2];
	T *log_sum = (T *)p->run->out[1], *s = p->scratch, by[ATTENTION_ROWS];

	if (log_sum)
		log_sum += (x->batch * d->heads + x->head) * d->rows + x->row;
	if (x->columns)
		S(attention_products)(p, x, q, k, s);
	for (int64_t i = 0; i < x->n; i++) {
		T *row = s + i * x->columns, sum;

		S(attention_tell)(p, x, x->row + i, DLB_SCORES_RAW, row, 0);
		if (d->softcap > 0)
			S(attention_cap)((T)d->softcap, x->columns, row, NULL);
		S(attention_tell)(p, x, x->row + i, DLB_SCORES_CAPPED, row, 0);
		const bool any = S(attention_mask)(p, x, x->row + i, row);
		S(attention_tell)(p, x, x->row + i, DLB_SCORES_MASKED, row, -INFINITY);
		by[i] = S(attention_softmax)(x->columns, any, row, &sum);
		if (log_sum)
			log_sum[i] = sum;
		if (d->scores == DLB_SCORES_SOFTMAX) {
			S(attention_scale)(x->columns, by[i], row);
			by[i] = 1;
			S(attention_tell)(p, x, x->row + i, DLB_SCORES_SOFTMAX, row, 0);
		}
	}
	if (x->columns)
		S(attention_gemm)(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)x->n, (int)d->v_width, (int)x->columns, 1, s,
				  (int)x->columns, v + x->lo * d->v[2], (int)d->v[2], 0, y, (int)d->y[2]);
	for (int64_t i = 0; i < x->n; i++)
		if (x->columns)
			S(attention_scale)(d->v_width, by[i], y + i * d->y[2]);
		else
			memset(y + i * d->y[2], 0, (size_t)d->v_width * sizeof *y);
}

/* From probabilities s, their gradient g and the slope of the cap (NULL: none) of row i: what the scores' gradient is. */
static void S(attention_row_gradient)(const struct attention_part *p, const struct attention_block *x, int64_t i, const T *s,
				      const T *slope, T *g)
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

/* Adds what the queries of one block of one head give to the gradients of their keys and values. */
static void S(attention_backward_block)(const struct attention_part *p, const struct attention_block *x)
{
	const struct dlb_attention_desc *d = p->d;
	const int n = (int)x->n, columns = (int)x->columns, width = (int)d->width, v_width = (int)d->v_width;
	const int64_t q_at = x->batch * d->q[0] + x->head * d->q[1], k_at = x->batch * d->k[0] + x->kv_head * d->k[1];
	const int64_t v_at = x->batch * d->v[0] + x->kv_head * d->v[1] + x->lo * d->v[2];
	const T *q = (const T *)p->run->in[0] + q_at, *k = (const T *)p->run->in[1] + k_at, *v = (const T *)p->run->in[2] + v_at;
	const T *dy = (const T *)p->run->in[5] + x->batch * d->y[0] + x->head * d->y[1] + x->row * d->y[2];
	const T *log_sum = (const T *)p->run->in[6] + (x->batch * d->heads + x->head) * d->rows + x->row;
	T *dq = p->run->out[0] ? (T *)p->run->out[0] + q_at + x->row * d->q[2] : NULL;
	T *dk = p->run->out[1] ? (T *)p->run->out[1] + k_at + x->lo * d->k[2] : NULL;
	T *dv = p->run->out[2] ? (T *)p->run->out[2] + v_at : NULL, *s = p->scratch, *g = s + x->n * x->columns;
	T *slope = d->softcap > 0 ? g + x->n * x->columns : NULL;

	S(attention_products)(p, x, q, k, s);
	S(attention_gemm)(CblasRowMajor, CblasNoTrans, CblasTrans, n, columns, v_width, 1, dy, (int)d->y[2], v, (int)d->v[2], 0, g,
			  columns);
	for (int64_t i = 0; i < x->n; i++) {
		T *row = s + i * x->columns, *caps = slope ? slope + i * x->columns : NULL, sum = log_sum[i];

		if (slope)
			S(attention_cap)((T)d->softcap, x->columns, row, caps);
		S(attention_mask)(p, x, x->row + i, row);
#pragma omp simd
		for (int64_t j = 0; j < x->columns; j++)
			row[j] = F(exp_down)(row[j] - sum);
		S(attention_row_gradient)(p, x, x->row + i, row, caps, g + i * x->columns);
	}
	if (dv)
		S(attention_gemm)(CblasRowMajor, CblasTrans, CblasNoTrans, columns, v_width, n, 1, s, columns, dy, (int)d->y[2], 1, dv,
				  (int)d->v[2]);
	if (dq)
		S(attention_gemm)(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, width, columns, (T)d->scale, g, columns,
				  k + x->lo * d->k[2], (int)d->k[2], 0, dq, (int)d->q[2]);
	if (dk)
		S(attention_gemm)(CblasRowMajor, CblasTrans, CblasNoTrans, columns, width, n, (T)d->scale, g, columns,
				  q + x->row * d->q[2], (int)d->q[2], 1, dk, (int)d->k[2]);
}

/* The same where no key may be attended to: the queries' gradients are zero. */
static void S(attention_backward_empty)(const struct attention_part *p, const struct attention_block *x)
{
	const struct dlb_attention_desc *d = p->d;
	T *dq = p->run->out[0], *dmask = p->run->out[3];

	for (int64_t i = x->row; i < x->row + x->n; i++) {
		if (dq)
			memset(dq + x->batch * d->q[0] + x->head * d->q[1] + i * d->q[2], 0, (size_t)d->width * sizeof *dq);
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
