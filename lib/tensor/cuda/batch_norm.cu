/* Batch normalization. Moments of a chunk are combined from those of its threads, and those of a channel
 * from its chunks (Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
 * variances", 1979), in double. The halves' sums are those of tensor/cpu/batch_norm.c. */
#include <math.h>
#include "tensor/cuda/device.cuh"
#include "tensor/cuda/columns.cuh"
extern "C" {
#include "tensor/cuda/batch_norm.h"
}

/* Number, mean, and sum of squared deviations from it. */
struct moments {
	double n, mean, m2;
};
struct join_moments {
	__device__ moments operator()(moments a, moments b) const
	{
		const double n = a.n + b.n, delta = b.mean - a.mean;

		if (a.n == 0 || b.n == 0)
			return a.n == 0 ? b : a;
		return { n, a.mean + delta * (b.n / n), a.m2 + b.m2 + delta * delta * (a.n * b.n / n) };
	}
};

template <typename T> static __device__ inline T *coefficient(const struct cuda_bn &a, int i)
{
	return (T *)((double *)a.p.scratch + i * a.m.channels);
}

template <typename T> static __device__ inline T *chunks_of(const struct cuda_bn &a)
{
	return (T *)((double *)a.p.scratch + BN_COEFFICIENTS * a.m.channels);
}

/* ---- chunks of sums ---- */
template <typename E> static __device__ void moments_of(const struct cuda_bn &a)
{
	const E *x = (const E *)a.p.in[0];

	for (EACH_ROW(r, a.m.groups * a.m.chunks)) {
		moments mine = { 0, 0, 0 };
		double sum = 0;

		visit_column(a.m, r, [&](int64_t at) {
			sum += load(x[at]);
			mine.n++;
		});
		mine.mean = mine.n > 0 ? sum / mine.n : 0;
		visit_column(a.m, r, [&](int64_t at) {
			const double e = load(x[at]) - mine.mean;

			mine.m2 += e * e;
		});
		put_column(a.m, r, chunks_of<moments>(a), mine, join_moments());
	}
}

/* sum dy and sum dy (x - mean). With Relu, dy counts only where y > 0. */
template <typename E> static __device__ void grad_sums_of(const struct cuda_bn &a)
{
	const E *dy = (const E *)a.p.in[0], *x = (const E *)a.p.in[1],
		*y = a.relu ? (const E *)a.p.in[5] : NULL;

	for (EACH_ROW(r, a.m.groups * a.m.chunks)) {
		const int64_t c = column_channel(a.m, r);
		const double mean = c < a.m.channels ? ((const typename computes<E>::type *)a.p.in[3])[c] : 0;
		two_sums mine = { 0, 0 };

		visit_column(a.m, r, [&](int64_t at) {
			const double g = y && !(load(y[at]) > 0) ? 0 : load(dy[at]);

			mine.a += g;
			mine.b += g * (load(x[at]) - mean);
		});
		put_column(a.m, r, chunks_of<two_sums>(a), mine, add_two());
	}
}

/* ---- channels ---- */
template <typename T>
static __device__ inline void set_coefficients(const struct cuda_bn &a, int64_t c, double mean, double invstd)
{
	coefficient<T>(a, 0)[c] = (T)mean;
	coefficient<T>(a, 1)[c] = (T)(invstd * ((const T *)a.p.in[1])[c]);
	coefficient<T>(a, 2)[c] = ((const T *)a.p.in[2])[c];
}

/* Updates running statistics and writes the inputs of the gradient; var: the biased variance of n elements. */
template <typename T>
static __device__ inline void set_statistics(const struct cuda_bn &a, int64_t c, double n, double mean,
					     double var)
{
	const double m = a.momentum, v = a.unbiased && n > 1 ? var * n / (n - 1) : var;

	if (a.p.out[1])
		((T *)a.p.out[1])[c] = (T)(((const T *)a.p.in[3])[c] * m + mean * (1 - m));
	if (a.p.out[2])
		((T *)a.p.out[2])[c] = (T)(((const T *)a.p.in[4])[c] * m + v * (1 - m));
	if (a.p.out[3])
		((T *)a.p.out[3])[c] = (T)mean;
	if (a.p.out[4])
		((T *)a.p.out[4])[c] = (T)(1 / sqrt(var + a.epsilon));
}

/* Moments of channel c from the sums of all batches. */
static __device__ inline moments moments_from(const struct cuda_bn &a, int64_t c)
{
	const double *sums = (const double *)a.p.in[5], n = sums[0], mean = n > 0 ? sums[1 + c] / n : 0;
	const double var = n > 0 ? sums[1 + a.m.channels + c] / n - mean * mean : 0;

	return { n, mean, var < 0 ? 0 : var * n }; /* keeps NaN */
}

template <typename T> static __device__ void train_of(const struct cuda_bn &a)
{
	for (EACH_ROW(r, a.m.join_blocks)) {
		int64_t c;
		moments s;
		const bool writes = join_column(a.m, r, chunks_of<moments>(a), moments{ 0, 0, 0 },
						join_moments(), &c, &s);

		if (!writes)
			continue;
		if (a.half == DLB_BN_REST)
			s = moments_from(a, c);
		const double var = s.n > 0 ? s.m2 / s.n : 0;
		if (a.half == DLB_BN_SUMS) {
			double *sums = (double *)a.p.out[0];

			if (c == 0)
				sums[0] = s.n;
			sums[1 + c] = s.n * s.mean;
			sums[1 + a.m.channels + c] = s.n * (var + s.mean * s.mean);
			continue;
		}
		set_statistics<T>(a, c, s.n, s.mean, var);
		set_coefficients<T>(a, c, s.mean, 1 / sqrt(var + a.epsilon));
	}
}

template <typename T> static __device__ void infer_of(const struct cuda_bn &a)
{
	for (EACH(c, a.m.channels))
		set_coefficients<T>(a, c, ((const T *)a.p.in[3])[c],
				    1 / sqrt((double)((const T *)a.p.in[4])[c] + a.epsilon));
}

/* Writes the sums of channel c of this batch. */
static __device__ inline void put_grad_sums(const struct cuda_bn &a, int64_t c, two_sums own)
{
	double *sums = (double *)a.p.out[0];
	const int64_t n = a.m.channels;

	if (c == 0)
		sums[0] = (double)a.m.rows;
	sums[1 + c] = sums[1 + 2 * n + c] = own.a;
	sums[1 + n + c] = sums[1 + 3 * n + c] = own.b;
}

/* dbias = sum dy and dscale = invstd sum dy (x - mean) of this batch, even if the sums for dx are over
 * several. */
template <typename T> static __device__ void grad_of(const struct cuda_bn &a)
{
	const int64_t n_c = a.m.channels;
	const bool batch = a.dir == DLB_BN_GRAD;

	for (EACH_ROW(r, a.m.join_blocks)) {
		int64_t c;
		two_sums own;

		if (!join_column(a.m, r, chunks_of<two_sums>(a), two_sums{ 0, 0 }, add_two(), &c, &own))
			continue;
		if (a.half == DLB_BN_SUMS) {
			put_grad_sums(a, c, own);
			continue;
		}
		two_sums all = own;
		double n = (double)a.m.rows;
		if (a.half == DLB_BN_REST) {
			const double *sums = (const double *)a.p.in[5 + a.relu];

			n = sums[0];
			all = { sums[1 + c], sums[1 + n_c + c] };
			own = { sums[1 + 2 * n_c + c], sums[1 + 3 * n_c + c] };
		}
		const double saved = ((const T *)a.p.in[4])[c],
			     invstd = batch ? saved : 1 / sqrt(saved + a.epsilon);
		if (a.p.out[1])
			((T *)a.p.out[1])[c] = (T)(own.b * invstd);
		if (a.p.out[2])
			((T *)a.p.out[2])[c] = (T)own.a;
		coefficient<T>(a, 0)[c] = ((const T *)a.p.in[3])[c];
		coefficient<T>(a, 1)[c] = (T)(invstd * ((const T *)a.p.in[2])[c]);
		coefficient<T>(a, 2)[c] = (T)(batch ? all.a / n : 0);
		coefficient<T>(a, 3)[c] = (T)(batch ? all.b * invstd * invstd / n : 0);
	}
}

/* ---- elements ---- */
/* Calls each(element, channel) for this thread's elements: rows by block if a channel's neighbouring elements
 * fill one, else single elements. */
template <typename Each> static __device__ inline void each_element(const struct cuda_bn &a, Each each)
{
	if (a.plane >= CUDA_THREADS) {
		for (EACH_ROW(r, a.planes)) {
			const int64_t c = r % a.m.channels;

			for (EACH_OF_ROW(i, a.plane))
				each(r * a.plane + i, c);
		}
	} else {
		for (EACH(i, a.count)) {
			int64_t c = quotient(i, a.plane);

			each(i, split(&c, a.m.channels));
		}
	}
}

/* y = (x - mean) scale + bias */
template <typename E> static __device__ void apply(const struct cuda_bn &a)
{
	typedef typename computes<E>::type T;
	const T *mean = coefficient<T>(a, 0), *scale = coefficient<T>(a, 1), *bias = coefficient<T>(a, 2);
	const T least = a.relu ? 0 : (T)-INFINITY;
	const E *x = (const E *)a.p.in[0];

	each_element(a, [&](int64_t i, int64_t c) {
		const T v = (load(x[i]) - mean[c]) * scale[c] + bias[c];

		store((E *)a.p.out[0] + i, v < least ? least : v);
	});
}

/* dx = scale invstd (dy - dbias/n - (x - mean) invstd dscale/n) */
template <typename E> static __device__ void grad_apply(const struct cuda_bn &a)
{
	typedef typename computes<E>::type T;
	const T *mean = coefficient<T>(a, 0), *scale = coefficient<T>(a, 1), *sum = coefficient<T>(a, 2),
		*dot = coefficient<T>(a, 3);
	const E *dy = (const E *)a.p.in[0], *x = (const E *)a.p.in[1],
		*y = a.relu ? (const E *)a.p.in[5] : NULL;

	each_element(a, [&](int64_t i, int64_t c) {
		const T g = y && !(load(y[i]) > 0) ? 0 : load(dy[i]);

		store((E *)a.p.out[0] + i, scale[c] * (g - sum[c] - (load(x[i]) - mean[c]) * dot[c]));
	});
}

#define ACTIVATIONS(E, name) \
	BLOCK_KERNEL(bn_moments_##name, cuda_bn) { moments_of<E>(a); } \
	BLOCK_KERNEL(bn_grad_sums_##name, cuda_bn) { grad_sums_of<E>(a); } \
	KERNEL(bn_apply_##name, cuda_bn) { apply<E>(a); } \
	KERNEL(bn_grad_apply_##name, cuda_bn) { grad_apply<E>(a); }
#define CHANNELS(T, name) \
	BLOCK_KERNEL(bn_train_##name, cuda_bn) { train_of<T>(a); } \
	KERNEL(bn_infer_##name, cuda_bn) { infer_of<T>(a); } \
	BLOCK_KERNEL(bn_grad_##name, cuda_bn) { grad_of<T>(a); }
ACTIVATIONS(float, f32)
ACTIVATIONS(double, f64)
ACTIVATIONS(bf16, bf16)
CHANNELS(float, f32)
CHANNELS(double, f64)
