/* Classification losses: negative log-likelihood of given log-probabilities (nll), and softmax
 * cross-entropy of logits (sce). x is (N, classes, inner) row-major, labels (N, inner).
 *   loss[i] = -w[t_i] log p[i, t_i];  mean: sum loss / sum w[t_i] over labels that are not ignored
 * The formulas and the order of their operations are those of tensor/cpu/loss_real.h; sums are in double. */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/loss.h"
}

/* ---- labels ---- */
static __device__ inline int64_t label_at(const struct cuda_loss &l, const void *t, int64_t i)
{
	return l.label_is_i64 ? ((const int64_t *)t)[i] : ((const int32_t *)t)[i];
}
static __device__ inline bool ignored(const struct cuda_loss &l, int64_t t)
{
	return l.has_ignore && t == l.ignore;
}
static __device__ inline bool inside(const struct cuda_loss &l, int64_t t) { return t >= 0 && t < l.classes; }

/* A sample: its class c is at element at + c inner; at -1: no sample, but the threads take part in joins. */
struct row { int64_t n, i, at; };
static __device__ inline struct row row_of(const struct cuda_loss &l, int64_t r)
{
	struct row w = { 0, 0, -1 };

	if (r < l.n * l.inner) {
		divide(r, l.inner, &w.n, &w.i);
		w.at = w.n * l.classes * l.inner + w.i;
	}
	return w;
}

struct smaller {
	template <typename T> __device__ inline T operator()(T a, T b) const { return a < b ? a : b; }
};

/* sum_c exp(x[c * step] - *max) */
template <typename T, typename Threads>
static __device__ inline double sum_exp(const T *x, int64_t classes, int64_t step, int me, Threads threads,
					T *max)
{
	T m = (T)-INFINITY;
	double sum = 0;

	UNROLL_4
	for (int64_t c = me; c < classes; c += threads.width)
		m = larger()(m, x[c * step]);
	m = threads.join(m, larger());
	if (m == (T)-INFINITY || m == (T)INFINITY)
		m = m > 0 ? m : 0;
	UNROLL_4
	for (int64_t c = me; c < classes; c += threads.width)
		sum += F(exp)(x[c * step] - m);
	*max = m;
	return threads.join(sum, add_them());
}

/* ---- whole ---- */
template <typename T>
static __device__ inline void put_loss(const struct cuda_loss &l, int64_t r, T loss, double weight)
{
	double *sums = (double *)l.p.scratch;

	if (l.reduction == DLB_REDUCE_NONE) {
		((T *)l.p.out[0])[r] = loss;
		return;
	}
	sums[r] = loss;
	sums[l.n * l.inner + r] = weight;
}

/* in {x, t, w}, out {y, log_prob} */
struct whole_forward {
	template <typename T, typename Threads>
	__device__ inline void operator()(const struct cuda_loss &l, int64_t r, int me, Threads threads) const
	{
		const struct row w = row_of(l, r);
		const int64_t n = w.at < 0 ? 0 : l.classes, step = l.inner,
			      c = w.at < 0 ? 0 : label_at(l, l.p.in[1], r);
		const T *x = (const T *)l.p.in[0] + w.at,
			*weights = l.has_weight ? (const T *)l.p.in[2] : NULL;
		T *log_prob = l.softmax ? (T *)l.p.out[1] : NULL, max = 0, lse = 0, loss = 0;
		double of_all = 0, weight = 0;

		if (l.softmax)
			lse = (T)log(sum_exp(x, n, step, me, threads, &max));
		UNROLL_4
		for (int64_t j = me; j < (log_prob ? n : 0); j += threads.width)
			log_prob[w.at + j * step] = x[j * step] - max - lse;
		if (l.smoothing > 0) {
			for (int64_t j = me; j < n; j += threads.width)
				of_all -= (weights ? (double)weights[j] : 1) *
					  (double)(x[j * step] - (max + lse));
			of_all = threads.join(of_all, add_them());
		}
		if (w.at < 0 || me)
			return;
		if (!ignored(l, c) && !inside(l, c)) {
			loss = (T)NAN;
			weight = NAN;
		} else if (!ignored(l, c)) {
			const T scale = weights ? weights[c] : 1;

			loss = -scale * (x[c * step] - max - lse);
			if (l.smoothing > 0)
				loss = (T)((1 - l.smoothing) * (double)loss +
					   l.smoothing / (double)l.classes * of_all);
			weight = scale;
		}
		put_loss(l, r, loss, weight);
	}
};

template <typename T> static __device__ inline void loss_sum(const struct cuda_loss &l)
{
	const double *sums = (const double *)l.p.scratch;
	const int64_t rows = l.n * l.inner;

	for (EACH_ROW(one, 1)) {
		double sum = 0, weight = 0;

		for (EACH_OF_ROW(i, rows)) {
			sum += sums[i];
			weight += sums[rows + i];
		}
		sum = block_sum(sum);
		weight = block_sum(weight);
		if (threadIdx.x == 0)
			((T *)l.p.out[0])[one] = (T)(l.reduction == DLB_REDUCE_SUM ? sum :
						     weight == 0 ? 0 : sum / weight);
	}
}

/* Writes the gradient's divisor (the sum of the weights of labels that count; 1 if the loss is no mean), and
 * the sum of all weights. */
template <typename T>
static __device__ inline void loss_divisor(const struct cuda_loss &l, const void *t, const T *w)
{
	for (EACH_ROW(one, 1)) {
		double sum = 0, all = 0;

		for (EACH_OF_ROW(i, l.reduction == DLB_REDUCE_MEAN ? l.n * l.inner : 0)) {
			const int64_t c = label_at(l, t, i);

			if (!ignored(l, c))
				sum += !inside(l, c) ? NAN : w ? (double)w[c] : 1;
		}
		for (EACH_OF_ROW(c, w ? l.classes : 0))
			all += w[c];
		sum = block_sum(sum);
		all = block_sum(all);
		if (threadIdx.x == 0) {
			((double *)l.p.scratch)[one] = l.reduction == DLB_REDUCE_MEAN ? sum : 1;
			((double *)l.p.scratch)[1] = w ? all : (double)l.classes;
		}
	}
}

/* in {dy, x or log_prob, t, w}, out {dx}: a thread for each element. */
template <typename T> static __device__ inline void whole_grad(const struct cuda_loss &l)
{
	const T *dy = (const T *)l.p.in[0], *log_prob = (const T *)l.p.in[1],
		*w = l.has_weight ? (const T *)l.p.in[3] : NULL;
	const double divisor = ((const double *)l.p.scratch)[0],
		     all_weights = ((const double *)l.p.scratch)[1];
	const int64_t count = l.n * l.classes * l.inner;
	T *dx = (T *)l.p.out[0];

	for (EACH(e, count)) {
		int64_t nj, i, n, j;

		divide(e, l.inner, &nj, &i);
		divide(nj, l.classes, &n, &j);
		const int64_t r = n * l.inner + i, c = label_at(l, l.p.in[2], r);
		const bool skip = ignored(l, c), wrong = !skip && !inside(l, c);
		const double up = dy[l.reduction == DLB_REDUCE_NONE ? r : 0], share = up / divisor;
		const T scale = skip || divisor == 0 ? (T)0 : wrong ? (T)NAN :
				(T)((1 - l.smoothing) * up * (w ? (double)w[c] : 1) / divisor);
		const T p = l.softmax && !skip ? F(exp)(log_prob[e]) : 0;
		T v = l.softmax ? p * scale : wrong ? scale : 0;

		if (!skip && j == c)
			v -= scale;
		if (l.smoothing > 0 && !skip && !wrong)
			v += (T)(share * l.smoothing / (double)l.classes *
				 (all_weights * (double)p - (w ? (double)w[j] : 1)));
		dx[e] = skip ? 0 : v;
	}
}

/* ---- classes split into parts ---- */
/* Index of the label in this part of the classes; if it is not inside(), the label is in another part. */
static __device__ inline int64_t own_label_at(const struct cuda_loss &l, const void *t, int64_t i)
{
	const int64_t c = label_at(l, t, i);

	return c < l.first ? -1 : c - l.first;
}

/* in {x, t}, out {stats} */
struct part_forward {
	template <typename T, typename Threads>
	__device__ inline void operator()(const struct cuda_loss &l, int64_t r, int me, Threads threads) const
	{
		const struct row w = row_of(l, r);
		const T *x = (const T *)l.p.in[0] + w.at;
		T *to = (T *)l.p.out[0] + w.n * DLB_LOSS_STATS * l.inner + w.i, max;
		const double sum = sum_exp(x, w.at < 0 ? 0 : l.classes, l.inner, me, threads, &max);

		if (w.at < 0 || me)
			return;
		const int64_t c = own_label_at(l, l.p.in[1], r);
		to[0] = max;
		to[l.inner] = (T)sum;
		to[2 * l.inner] = inside(l, c) ? x[c * l.inner] : 0;
	}
};

/* in {dstats, x, t, stats}, out {dx}, which may be x. The sum depends on all scores, and both the label's
 * score and the largest score m are among them. `left` is m's gradient minus its share through the sum; it
 * is 0 for a loss, which depends only on m + log(sum). The first of equal largest scores gets it. */
struct part_grad {
	template <typename T, typename Threads>
	__device__ inline void operator()(const struct cuda_loss &l, int64_t r, int me, Threads threads) const
	{
		const struct row w = row_of(l, r);
		const int64_t in = l.inner, n = w.at < 0 ? 0 : l.classes,
			      at = w.n * DLB_LOSS_STATS * in + w.i;
		const T *up = (const T *)l.p.in[0] + at, *stats = (const T *)l.p.in[3] + at,
			*x = (const T *)l.p.in[1] + w.at;
		T *dx = (T *)l.p.out[0] + w.at;
		const T m = n ? stats[0] : 0, by = n ? up[in] : 0, label_up = n ? up[2 * in] : 0,
			left = n ? up[0] - by * stats[in] : 0;
		const int64_t c = n ? own_label_at(l, l.p.in[2], r) : -1;
		int64_t largest = l.classes;

		for (int64_t j = me; left != 0 && j < n && largest == l.classes; j += threads.width)
			largest = x[j * in] == m ? j : largest;
		largest = threads.join(largest, smaller());
		/* 0 even if the scores are not finite */
		const bool zero = by == 0 && label_up == 0 && left == 0;
		for (int64_t j = me; j < n; j += threads.width) {
			T v = zero ? 0 : F(exp)(x[j * in] - m) * by;

			if (j == c && !zero)
				v += label_up;
			if (left != 0 && j == largest)
				v += left;
			dx[j * in] = v;
		}
	}
};

/* in {t, stats of each part}, out {y, norm} */
template <typename T> static __device__ inline void join_forward(const struct cuda_loss &l)
{
	const int64_t in = l.inner;
	T *norm = (T *)l.p.out[1];

	for (EACH(r, l.n * in)) {
		const struct row w = row_of(l, r);
		const int64_t at = w.n * DLB_LOSS_STATS * in + w.i, c = label_at(l, l.p.in[0], r);
		const bool skip = ignored(l, c), wrong = !skip && !inside(l, c);
		T m = ((const T *)l.p.in[1])[at], score = 0;
		double all = 0;

		for (int p = 1; p < l.n_parts; p++)
			m = larger()(m, ((const T *)l.p.in[1 + p])[at]);
		for (int p = 0; p < l.n_parts; p++) {
			const T *stats = (const T *)l.p.in[1 + p] + at;

			all += (double)stats[in] * exp((double)(stats[0] - m));
			score += stats[2 * in];
		}
		const T log_all = (T)log(all);
		if (norm) {
			norm[w.n * DLB_LOSS_NORM * in + w.i] = m;
			norm[(w.n * DLB_LOSS_NORM + 1) * in + w.i] = log_all;
		}
		put_loss(l, r,
			 wrong ? (T)NAN :
			 skip  ? (T)0 :
				 -(score - m - log_all),
			 wrong ? (double)NAN : !skip);
	}
}

/* in {dy, t, norm, stats}, out {dstats} */
template <typename T> static __device__ inline void join_grad(const struct cuda_loss &l)
{
	const int64_t in = l.inner;
	const T *dy = (const T *)l.p.in[0], *norm = (const T *)l.p.in[2], *stats = (const T *)l.p.in[3];
	const double divisor = ((const double *)l.p.scratch)[0];
	T *to = (T *)l.p.out[0];

	for (EACH(r, l.n * in)) {
		const struct row w = row_of(l, r);
		const int64_t at = w.n * DLB_LOSS_STATS * in + w.i, c = label_at(l, l.p.in[1], r);
		const bool skip = ignored(l, c), wrong = !skip && !inside(l, c);
		const double up = dy[l.reduction == DLB_REDUCE_NONE ? r : 0];
		const T g = skip || divisor == 0 ? (T)0 : wrong ? (T)NAN : (T)(up / divisor);
		const T m = norm[w.n * DLB_LOSS_NORM * in + w.i],
			log_all = norm[(w.n * DLB_LOSS_NORM + 1) * in + w.i];
		const T by = g == 0 ? (T)0 : g * (T)exp((double)(stats[at] - m - log_all));

		to[at] = by * stats[at + in];
		to[at + in] = by;
		to[at + 2 * in] = -g;
	}
}

/* ---- launches ---- */
template <typename T, typename Body>
static __device__ inline void by_thread(const struct cuda_loss &l, Body body)
{
	for (EACH(r, l.n * l.inner))
		body.template operator()<T>(l, r, 0, alone());
}

template <typename T, typename Body>
static __device__ inline void by_group(const struct cuda_loss &l, Body body)
{
	const int groups = CUDA_THREADS / l.width, which = (int)threadIdx.x / l.width,
		  me = (int)threadIdx.x % l.width;
	const struct group threads = { l.width };

	for (EACH_ROW(b, (l.n * l.inner + groups - 1) / groups))
		body.template operator()<T>(l, b * groups + which, me, threads);
}

#define LOSS(T, name) \
KERNEL(loss_forward_##name, cuda_loss) { by_thread<T>(a, whole_forward()); } \
BLOCK_KERNEL(loss_forward_group_##name, cuda_loss) { by_group<T>(a, whole_forward()); } \
KERNEL(loss_part_##name, cuda_loss) { by_thread<T>(a, part_forward()); } \
BLOCK_KERNEL(loss_part_group_##name, cuda_loss) { by_group<T>(a, part_forward()); } \
KERNEL(loss_part_grad_##name, cuda_loss) { by_thread<T>(a, part_grad()); } \
BLOCK_KERNEL(loss_part_grad_group_##name, cuda_loss) { by_group<T>(a, part_grad()); } \
KERNEL(loss_join_##name, cuda_loss) { join_forward<T>(a); } \
BLOCK_KERNEL(loss_sum_##name, cuda_loss) { loss_sum<T>(a); } \
BLOCK_KERNEL(loss_divisor_##name, cuda_loss) \
{ \
	loss_divisor<T>(a, a.p.in[2], a.has_weight ? (const T *)a.p.in[3] : NULL); \
} \
KERNEL(loss_grad_##name, cuda_loss) { whole_grad<T>(a); } \
BLOCK_KERNEL(loss_join_divisor_##name, cuda_loss) { loss_divisor<T>(a, a.p.in[1], NULL); } \
KERNEL(loss_join_grad_##name, cuda_loss) { join_grad<T>(a); }
LOSS(float, f32)
LOSS(double, f64)
