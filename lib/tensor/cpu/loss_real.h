/* Losses for type T; included by loss.c. */
#include "tensor/cpu/sums_real.h"

/* sum_c exp(x[c * stride] - max) of one sample. */
static inline __attribute__((always_inline)) double S(sum_exp)(const T *x, int64_t classes, int64_t stride,
							       T *max)
{
	T m = (T)-INFINITY;
	double lane[16] = { 0 }, s = 0;
	int64_t c = 0;

	if (stride == 1)
		m = S(largest)(x, classes);
	else
		for (int64_t i = 0; i < classes; i++)
			m = (x[i * stride] > m || x[i * stride] != x[i * stride]) ? x[i * stride] : m;
	if (m == (T)-INFINITY || m == (T)INFINITY)
		m = m > 0 ? m : 0;
	for (; c + 16 <= classes; c += 16) {
		T e[16];

#pragma omp simd
		for (int j = 0; j < 16; j++)
			e[j] = F(exp_down)(x[(c + j) * stride] - m);
#pragma omp simd
		for (int j = 0; j < 16; j++)
			lane[j] += e[j];
	}
	for (int j = 0; c + j < classes; j++)
		lane[j] += F(exp_down)(x[(c + j) * stride] - m);
	for (int j = 0; j < 16; j++)
		s += lane[j];
	*max = m;
	return s;
}

/* to = x - max - lse for all classes of one sample; inlined, so that a stride of 1 is a constant for the
 * compiler. */
static inline __attribute__((always_inline)) void S(log_probs)(const T *x, int64_t classes, int64_t stride,
							       T max, T lse, T *to)
{
	for (int64_t c = 0; c < classes; c++)
		to[c * stride] = x[c * stride] - max - lse;
}

/* Sum of the weights of labels that count, in sample order. */
static double S(counted_weight)(const struct dlb_loss_desc *d, const void *t, const T *w)
{
	double sum = 0;

	for (int64_t i = 0; i < d->n * d->inner; i++) {
		int64_t c = label_at(d, t, i);

		if (!ignored(d, c))
			sum += c < 0 || c >= d->classes ? NAN : w ? (double)w[c] : 1;
	}
	return sum;
}

/* -sum_c w_c log p_c of one sample; log p_c = x[c * stride] - norm. */
static double S(loss_of_all)(const T *x, const T *w, int64_t classes, int64_t stride, T norm)
{
	double sum = 0;

	for (int64_t c = 0; c < classes; c++)
		sum -= (w ? (double)w[c] : 1) * (double)(x[c * stride] - norm);
	return sum;
}

/* Adds to dx[c], for each class of one sample, share * (p_c sum_k w_k - w_c): the
 * gradient of share * loss_of_all. */
static void S(grad_of_all)(const T *log_prob, const T *w, int64_t classes, int64_t stride, double share,
			   T *dx)
{
	double sum = w ? 0 : (double)classes;

	for (int64_t c = 0; w && c < classes; c++)
		sum += w[c];
	for (int64_t c = 0; c < classes; c++)
		dx[c * stride] += (T)(share *
				      (sum * (double)F(exp)(log_prob[c * stride]) - (w ? (double)w[c] : 1)));
}

static void S(loss_forward)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_loss_desc *d = &((struct loss_kernel *)k)->d;
	const T *x = r->in[0], *w = d->has_weight ? r->in[2] : NULL;
	const void *t = r->in[1];
	T *y = r->out[0], *log_prob = d->softmax ? r->out[1] : NULL;
	double sum = 0, weight = 0;

	for (int64_t n = 0; n < d->n; n++)
		for (int64_t i = 0; i < d->inner; i++) {
			const T *row = x + n * d->classes * d->inner + i;
			int64_t c = label_at(d, t, n * d->inner + i);
			bool skip = ignored(d, c), wrong = !skip && (c < 0 || c >= d->classes);
			T max = 0, lse = 0, loss = 0;

			if (d->softmax && (log_prob || !skip))
				lse = (T)log(d->inner == 1 ? S(sum_exp)(row, d->classes, 1, &max) :
					     S(sum_exp)(row, d->classes, d->inner, &max));
			if (log_prob && d->inner == 1)
				S(log_probs)(row, d->classes, 1, max, lse, log_prob + (row - x));
			else if (log_prob)
				S(log_probs)(row, d->classes, d->inner, max, lse, log_prob + (row - x));
			if (wrong) {
				loss = NAN;
				weight += NAN;
			} else if (!skip) {
				T scale = w ? w[c] : 1;

				loss = -scale * (row[c * d->inner] - max - lse);
				if (d->smoothing > 0)
					loss = (T)((1 - d->smoothing) * (double)loss +
						   d->smoothing / (double)d->classes *
							   S(loss_of_all)(row, w, d->classes, d->inner,
									  max + lse));
				weight += scale;
			}
			if (d->reduction == DLB_REDUCE_NONE)
				y[n * d->inner + i] = loss;
			sum += loss;
		}
	if (d->reduction == DLB_REDUCE_SUM)
		y[0] = (T)sum;
	else if (d->reduction == DLB_REDUCE_MEAN)
		y[0] = (T)(weight == 0 ? 0 : sum / weight);
}

static void S(loss_grad)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_loss_desc *d = &((struct loss_kernel *)k)->d;
	const T *dy = r->in[0], *log_prob = r->in[1], *w = d->has_weight ? r->in[3] : NULL;
	const void *t = r->in[2];
	T *dx = r->out[0];
	double divisor = d->reduction == DLB_REDUCE_MEAN ? S(counted_weight)(d, t, w) : 1;

	for (int64_t n = 0; n < d->n; n++)
		for (int64_t i = 0; i < d->inner; i++) {
			int64_t at = n * d->classes * d->inner + i, c = label_at(d, t, n * d->inner + i),
				s = d->inner;
			bool skip = ignored(d, c), wrong = !skip && (c < 0 || c >= d->classes);
			double up = dy[d->reduction == DLB_REDUCE_NONE ? n * d->inner + i : 0];
			/* factor of the losses of all classes, with label smoothing */
			const double share = up / divisor;
			T scale = skip || divisor == 0 ? 0 :
				  wrong                ? (T)NAN :
					  (T)((1 - d->smoothing) * up * (w ? (double)w[c] : 1) / divisor);

			if (d->softmax && s == 1) {
#pragma omp simd
				for (int64_t j = 0; j < d->classes; j++)
					dx[at + j] = F(exp)(log_prob[at + j]) * scale;
			} else {
				for (int64_t j = 0; j < d->classes; j++)
					dx[at + j * s] = d->softmax ? F(exp)(log_prob[at + j * s]) * scale :
							 wrong      ? scale :
								      0;
			}
			if (skip)			/* zeros, also if exp(log_prob) is not finite */
				for (int64_t j = 0; j < d->classes; j++)
					dx[at + j * s] = 0;
			else if (!wrong)
				dx[at + c * s] -= scale;
			if (d->smoothing > 0 && !skip && !wrong)
				S(grad_of_all)
				(log_prob + at, w, d->classes, s, share * d->smoothing / (double)d->classes,
				 dx + at);
		}
}

/* -- classes split into parts -- */

static void S(part_forward)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_loss_desc *d = &((struct loss_kernel *)k)->d;
	const int64_t in = d->inner;
	const T *x = r->in[0];
	T *stats = r->out[0];

	for (int64_t n = 0; n < d->n; n++)
		for (int64_t i = 0; i < in; i++) {
			const T *row = x + n * d->classes * in + i;
			T *to = stats + n * DLB_LOSS_STATS * in + i;
			const int64_t c = own_label_at(d, r->in[1], n * in + i);

			to[in] = (T)(in == 1 ? S(sum_exp)(row, d->classes, 1, to) :
					       S(sum_exp)(row, d->classes, in, to));
			to[2 * in] = c >= 0 && c < d->classes ? row[c * in] : 0;
		}
}

/* The sum depends on all scores, and both the label's score and the largest score m are among them. `left` is
 * m's gradient minus its share through the sum; it is 0 for a loss, which depends only on m + log(sum). */
static void S(part_grad)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_loss_desc *d = &((struct loss_kernel *)k)->d;
	const int64_t in = d->inner;

	for (int64_t n = 0; n < d->n; n++)
		for (int64_t i = 0; i < in; i++) {
			const int64_t at = n * DLB_LOSS_STATS * in + i,
				      c = own_label_at(d, r->in[2], n * in + i);
			const T *up = (const T *)r->in[0] + at, *stats = (const T *)r->in[3] + at,
				*x = (const T *)r->in[1] + n * d->classes * in + i;
			const T m = stats[0], by = up[in], left = up[0] - by * stats[in];
			T *dx = (T *)r->out[0] + n * d->classes * in + i;
			int64_t largest = 0;

			while (left != 0 && largest < d->classes && x[largest * in] != m)
				largest++;
			/* zeros, also if the scores are not finite */
			if (by == 0 && up[2 * in] == 0 && left == 0) {
				for (int64_t j = 0; j < d->classes; j++)
					dx[j * in] = 0;
				continue;
			}
			if (in == 1) {
#pragma omp simd
				for (int64_t j = 0; j < d->classes; j++)
					dx[j] = F(exp_down)(x[j] - m) * by;
			} else {
				for (int64_t j = 0; j < d->classes; j++)
					dx[j * in] = F(exp_down)(x[j * in] - m) * by;
			}
			if (c >= 0 && c < d->classes)
				dx[c * in] += up[2 * in];
			if (left != 0 && largest < d->classes)
				dx[largest * in] += left;
		}
}

static void S(join_forward)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_loss_desc *d = &((struct loss_kernel *)k)->d;
	const int64_t in = d->inner;
	T *y = r->out[0], *norm = r->out[1];
	double sum = 0, weight = 0;

	for (int64_t n = 0; n < d->n; n++)
		for (int64_t i = 0; i < in; i++) {
			const int64_t at = n * DLB_LOSS_STATS * in + i, c = label_at(d, r->in[0], n * in + i);
			const bool skip = ignored(d, c), wrong = !skip && (c < 0 || c >= d->classes);
			T m = ((const T *)r->in[1])[at], score = 0;
			double all = 0;

			for (int p = 1; p < d->n_parts; p++) {
				const T other = ((const T *)r->in[1 + p])[at];
				m = other > m || other != other ? other : m;
			}
			for (int p = 0; p < d->n_parts; p++) {
				const T *stats = (const T *)r->in[1 + p] + at;
				all += (double)stats[in] * exp((double)(stats[0] - m));
				score += stats[2 * in];
			}
			const T log_all = (T)log(all), loss = wrong ? (T)NAN :
							      skip  ? 0 :
								      -(score - m - log_all);
			if (norm) {
				norm[n * DLB_LOSS_NORM * in + i] = m;
				norm[(n * DLB_LOSS_NORM + 1) * in + i] = log_all;
			}
			if (d->reduction == DLB_REDUCE_NONE)
				y[n * in + i] = loss;
			sum += loss;
			weight += wrong ? NAN : !skip;
		}
	if (d->reduction == DLB_REDUCE_SUM)
		y[0] = (T)sum;
	else if (d->reduction == DLB_REDUCE_MEAN)
		y[0] = (T)(weight == 0 ? 0 : sum / weight);
}

static void S(join_grad)(struct dlb_kernel *k, const struct dlb_run *r)
{
	const struct dlb_loss_desc *d = &((struct loss_kernel *)k)->d;
	const int64_t in = d->inner;
	const T *dy = r->in[0], *norm = r->in[2], *stats = r->in[3];
	T *to = r->out[0];
	const double divisor = d->reduction == DLB_REDUCE_MEAN ? S(counted_weight)(d, r->in[1], NULL) : 1;

	for (int64_t n = 0; n < d->n; n++)
		for (int64_t i = 0; i < in; i++) {
			const int64_t at = n * DLB_LOSS_STATS * in + i, c = label_at(d, r->in[1], n * in + i);
			const bool skip = ignored(d, c), wrong = !skip && (c < 0 || c >= d->classes);
			const double up = dy[d->reduction == DLB_REDUCE_NONE ? n * in + i : 0];
			const T g = skip || divisor == 0 ? 0 : wrong ? (T)NAN : (T)(up / divisor);
			const T m = norm[n * DLB_LOSS_NORM * in + i],
				log_all = norm[(n * DLB_LOSS_NORM + 1) * in + i];
			const T by = g == 0 ? 0 : g * (T)exp((double)(stats[at] - m - log_all));

			to[at] = by * stats[at + in];
			to[at + in] = by;
			to[at + 2 * in] = -g;
		}
}
