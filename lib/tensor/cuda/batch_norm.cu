/* Batch normalization. Moments of a chunk are combined from those of its threads, and those of a channel
 * from its chunks (Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
 * variances", 1979), in double. The halves' sums are those of tensor/cpu/batch_norm.c. */
#include <math.h>
#include "tensor/cuda/device.cuh"
#include "tensor/cuda/columns.cuh"
extern "C" {
#include "tensor/cuda/batch_norm.h"
}

/* Number of values, their mean, and the sum of squared deviations from the mean. */
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

/* Reads the values of the V channels from c on. */
template <int V, bool ALIGNED, typename T>
static __device__ inline void read_channels(T to[V], const T *from, int64_t c)
{
	const run<T, V> r = load_run<V, ALIGNED>(from + c);

	for (int k = 0; k < V; k++)
		to[k] = r.v[k];
}

/* ---- chunks of sums ---- */
/* Memory is read once: sums of the distances d from the chunk's first element, in double. Since the first
 * element is one of the n, sum d^2 is at most n + 1 times the sum of squared deviations from the mean, so the
 * subtraction loses no more than log2(n + 1) of 53 bits; about one if the first element is like the
 * others. */
template <typename E, int V, bool ALIGNED> static __device__ void moments_of(const struct cuda_bn &a)
{
	const E *x = (const E *)a.p.in[0];

	for (EACH_ROW(r, a.m.groups * a.m.chunks)) {
		const int64_t c = column_channel(a.m, r);
		const column_chunk chunk = chunk_of(a.m, r);
		const double n = (double)(chunk.to - chunk.from);
		two_sums mine[V] = {};
		double first[V] = {};

		if (c < a.m.channels) {
			const int64_t at = column_offset(a.m, c, column_at(a.m, chunk.from));
			const run<E, V> v = load_run<V, ALIGNED>(x + at);

			for (int k = 0; k < V; k++) {
				first[k] = load(v.v[k]);
				if (first[k] - first[k] != 0) /* infinite or NaN */
					first[k] = 0;
			}
		}
		const auto read = [&](int64_t at) { return load_run<V, ALIGNED>(x + at); };

		visit_column<ahead(V, ALIGNED, 4)>(a.m, r, read, [&](const run<E, V> &v, int64_t) {
			for (int k = 0; k < V; k++) {
				const double d = load(v.v[k]) - first[k];

				mine[k].a += d;
				mine[k].b += d * d;
			}
		});
		put_columns<V>(a.m, r, chunks_of<moments>(a), mine, add_two(), [&](two_sums s, int k) {
			const double m2 = s.b - s.a * (s.a / n);

			return moments{ n, first[k] + s.a / n, m2 < 0 ? 0 : m2 }; /* keeps NaN */
		});
	}
}

/* dy, x and, with Relu, y of a run. */
template <typename E, int V> struct gradient_run {
	run<E, V> dy, x, y;
};
template <typename E, int V, bool ALIGNED>
static __device__ inline gradient_run<E, V> load_gradient(const struct cuda_bn &a, int64_t at)
{
	gradient_run<E, V> g;

	g.dy = load_run<V, ALIGNED>((const E *)a.p.in[0] + at);
	g.x = load_run<V, ALIGNED>((const E *)a.p.in[1] + at);
	if (a.relu)
		g.y = load_run<V, ALIGNED>((const E *)a.p.in[5] + at);
	return g;
}
/* dy of the run's element k; with Relu, dy counts only where y > 0. */
template <typename E, int V>
static __device__ inline typename computes<E>::type counted(const struct cuda_bn &a, const gradient_run<E, V> &g,
							     int k)
{
	return a.relu && !(load(g.y.v[k]) > 0) ? 0 : load(g.dy.v[k]);
}

/* sum dy and sum dy (x - mean). */
template <typename E, int V, bool ALIGNED> static __device__ void grad_sums_of(const struct cuda_bn &a)
{
	typedef typename computes<E>::type T;

	for (EACH_ROW(r, a.m.groups * a.m.chunks)) {
		const int64_t c = column_channel(a.m, r);
		two_sums mine[V] = {};
		T mean[V] = {};

		if (c < a.m.channels)
			read_channels<V, ALIGNED>(mean, (const T *)a.p.in[3], c);
		const auto read = [&](int64_t at) { return load_gradient<E, V, ALIGNED>(a, at); };

		visit_column<ahead(V, ALIGNED, 2)>(a.m, r, read, [&](const gradient_run<E, V> &v, int64_t) {
			for (int k = 0; k < V; k++) {
				const double g = counted(a, v, k);

				mine[k].a += g;
				mine[k].b += g * ((double)load(v.x.v[k]) - (double)mean[k]);
			}
		});
		put_columns<V>(a.m, r, chunks_of<two_sums>(a), mine, add_two());
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

/* Writes this batch's sums of channel c. */
static __device__ inline void put_grad_sums(const struct cuda_bn &a, int64_t c, two_sums own)
{
	double *sums = (double *)a.p.out[0];
	const int64_t n = a.m.channels;

	if (c == 0)
		sums[0] = (double)a.m.rows;
	sums[1 + c] = sums[1 + 2 * n + c] = own.a;
	sums[1 + n + c] = sums[1 + 3 * n + c] = own.b;
}

/* dbias = sum dy and dscale = invstd sum dy (x - mean) of this batch, even if the sums for dx are those of
 * several batches. */
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
/* Calls each(element, channel) for this thread's elements: a block for each plane if a channel's neighbouring
 * elements fill a block, else a thread for each element. */
template <typename Each> static __device__ inline void each_element(const struct cuda_bn &a, Each each)
{
	if (a.plane >= CUDA_THREADS) {
		for (EACH_ROW(r, a.planes)) {
			int64_t plane = r;
			const int64_t c = split(&plane, a.m.channels);

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

/* Calls use(load(offset), offset) for this thread's runs of V elements, after channels(c), where c is the
 * first channel of the runs. */
template <int V, int AHEAD, typename Channels, typename Load, typename Use>
static __device__ inline void each_run(const struct cuda_bn &a, Channels channels, Load load, Use use)
{
	if constexpr (V == 1)
		each_element(a, [&](int64_t i, int64_t c) {
			channels(c);
			use(load(i), i);
		});
	else
		for (EACH_ROW(r, a.pieces)) {
			/* in reverse: the pieces that the sums read last may still be in the cache */
			const int64_t piece = a.pieces - 1 - r, c = column_channel(a.m, piece);

			if (c < a.m.channels)
				channels(c);
			visit_column<AHEAD>(a.m, piece, load, use);
		}
}

/* y = (x - mean) scale + bias */
template <typename E, int V, bool ALIGNED> static __device__ void apply(const struct cuda_bn &a)
{
	typedef typename computes<E>::type T;
	const T least = a.relu ? 0 : (T)-INFINITY;
	const E *x = (const E *)a.p.in[0];
	T mean[V], scale[V], bias[V];

	each_run<V, ahead(V, ALIGNED, 2)>(a, [&](int64_t c) {
		read_channels<V, ALIGNED>(mean, coefficient<T>(a, 0), c);
		read_channels<V, ALIGNED>(scale, coefficient<T>(a, 1), c);
		read_channels<V, ALIGNED>(bias, coefficient<T>(a, 2), c);
	}, [&](int64_t at) {
		return load_run<V, ALIGNED>(x + at);
	}, [&](const run<E, V> &v, int64_t at) {
		run<E, V> y;

		for (int k = 0; k < V; k++) {
			const T value = (load(v.v[k]) - mean[k]) * scale[k] + bias[k];

			store(&y.v[k], value < least ? least : value);
		}
		store_run<V, ALIGNED>((E *)a.p.out[0] + at, y);
	});
}

/* dx = scale invstd (dy - dbias/n - (x - mean) invstd dscale/n) */
template <typename E, int V, bool ALIGNED> static __device__ void grad_apply(const struct cuda_bn &a)
{
	typedef typename computes<E>::type T;
	T mean[V], scale[V], sum[V], dot[V];

	each_run<V, ahead(V, ALIGNED, 2)>(a, [&](int64_t c) {
		read_channels<V, ALIGNED>(mean, coefficient<T>(a, 0), c);
		read_channels<V, ALIGNED>(scale, coefficient<T>(a, 1), c);
		read_channels<V, ALIGNED>(sum, coefficient<T>(a, 2), c);
		read_channels<V, ALIGNED>(dot, coefficient<T>(a, 3), c);
	}, [&](int64_t at) {
		return load_gradient<E, V, ALIGNED>(a, at);
	}, [&](const gradient_run<E, V> &v, int64_t at) {
		run<E, V> dx;

		for (int k = 0; k < V; k++) {
			const T g = counted(a, v, k);

			store(&dx.v[k], scale[k] * (g - sum[k] - (load(v.x.v[k]) - mean[k]) * dot[k]));
		}
		store_run<V, ALIGNED>((E *)a.p.out[0] + at, dx);
	});
}

#define ACTIVATIONS(E, name) \
	BLOCK_KERNEL(bn_moments_##name, cuda_bn) { BY_RUN(E, a.m.each, moments_of, a); } \
	BLOCK_KERNEL(bn_grad_sums_##name, cuda_bn) { BY_RUN(E, a.m.each, grad_sums_of, a); } \
	KERNEL(bn_apply_##name, cuda_bn) { BY_RUN(E, a.m.each, apply, a); } \
	KERNEL(bn_grad_apply_##name, cuda_bn) { BY_RUN(E, a.m.each, grad_apply, a); }
#define CHANNELS(T, name) \
	BLOCK_KERNEL(bn_train_##name, cuda_bn) { train_of<T>(a); } \
	KERNEL(bn_infer_##name, cuda_bn) { infer_of<T>(a); } \
	BLOCK_KERNEL(bn_grad_##name, cuda_bn) { grad_of<T>(a); }
ACTIVATIONS(float, f32)
ACTIVATIONS(double, f64)
ACTIVATIONS(bf16, bf16)
CHANNELS(float, f32)
CHANNELS(double, f64)
