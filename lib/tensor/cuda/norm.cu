/* Normalization of rows (layer, RMS, instance and group normalization) and its gradient. With x^ = (x -
 * mean) invstd and g = dy scale:   dx = invstd (g - mean(g) - x^ mean(g x^)). If the mean is taken as 0
 * (RMS), mean(g) is left out. Sums are in double. */
#include "tensor/cuda/device.cuh"
#include "tensor/cuda/columns.cuh"
extern "C" {
#include "tensor/cuda/norm.h"
}

/* Index in scale and bias of element j of a row. */
static __device__ inline int64_t entry_of(const struct cuda_norm &a, int64_t row, int64_t j)
{
	if (!a.channels)
		return j;
	int64_t c = row * a.row_channels + quotient(j, a.len);

	return split(&c, a.channels);
}

/* The scale or bias (NULL: 0) of the V elements of a row from j on. */
template <int V, bool ALIGNED, typename T>
static __device__ inline run<T, V> entries(const struct cuda_norm &a, const T *from, int64_t row, int64_t j)
{
	if (!from)
		return {};
	return load_run<V, ALIGNED>(from + (V > 1 ? j : entry_of(a, row, j)));
}

template <typename E, int V, bool ALIGNED> static __device__ void forward(const struct cuda_norm &a)
{
	typedef typename computes<E>::type T;
	const int lane = (int)threadIdx.x % a.lanes, together = CUDA_THREADS / a.lanes;
	const T *scale = (const T *)a.p.in[1], *bias = (const T *)a.p.in[2];
	const double n = (double)a.width;

	for (EACH_ROW(r, (a.rows + together - 1) / together)) {
		const int64_t row = r * together + threadIdx.x / a.lanes, width = row < a.rows ? a.width : 0;
		const E *x = (const E *)a.p.in[0] + row * a.width;
		double sum = 0, squares = 0;
		T mean = 0;

		if (!a.rms) {
			for (int64_t j = lane * V; j < width; j += a.lanes * V) {
				const run<E, V> v = load_run<V, ALIGNED>(x + j);

				for (int k = 0; k < V; k++)
					sum += load(v.v[k]);
			}
			mean = (T)(group_join(sum, a.lanes, add_them()) / n);
		}
		for (int64_t j = lane * V; j < width; j += a.lanes * V) {
			const run<E, V> v = load_run<V, ALIGNED>(x + j);

			for (int k = 0; k < V; k++) {
				const double e = (double)load(v.v[k]) - mean;

				squares += e * e;
			}
		}
		const T inv = (T)(1 / sqrt(group_join(squares, a.lanes, add_them()) / n + a.epsilon));
		for (int64_t j = lane * V; j < width; j += a.lanes * V) {
			const run<E, V> v = load_run<V, ALIGNED>(x + j);
			const run<T, V> s = entries<V, ALIGNED>(a, scale, row, j),
					b = entries<V, ALIGNED>(a, bias, row, j);
			run<E, V> y;

			for (int k = 0; k < V; k++)
				store(&y.v[k], (load(v.v[k]) - mean) * inv * s.v[k] + b.v[k]);
			store_run<V, ALIGNED>((E *)a.p.out[0] + row * a.width + j, y);
		}
		if (lane == 0 && width && a.p.out[1])
			((T *)a.p.out[1])[row] = mean;
		if (lane == 0 && width && a.p.out[2])
			((T *)a.p.out[2])[row] = inv;
	}
}

template <typename E, int V, bool ALIGNED> static __device__ void backward(const struct cuda_norm &a)
{
	typedef typename computes<E>::type T;
	const int lane = (int)threadIdx.x % a.lanes, together = CUDA_THREADS / a.lanes;
	const T *scale = (const T *)a.p.in[2];

	for (EACH_ROW(r, (a.rows + together - 1) / together)) {
		const int64_t row = r * together + threadIdx.x / a.lanes, width = row < a.rows ? a.width : 0;
		const E *dy = (const E *)a.p.in[0] + row * a.width, *x = (const E *)a.p.in[1] + row * a.width;
		const T mean = width && !a.rms ? ((const T *)a.p.in[3])[row] : 0;
		const T inv = width ? ((const T *)a.p.in[4])[row] : 0;
		two_sums sum = { 0, 0 };

		for (int64_t j = lane * V; j < width; j += a.lanes * V) {
			const run<E, V> d = load_run<V, ALIGNED>(dy + j), v = load_run<V, ALIGNED>(x + j);
			const run<T, V> s = entries<V, ALIGNED>(a, scale, row, j);

			for (int k = 0; k < V; k++) {
				const double g = (double)load(d.v[k]) * s.v[k];

				sum.a += g;
				sum.b += g * (load(v.v[k]) - mean) * inv;
			}
		}
		sum = group_join(sum, a.lanes, add_two());
		const T shift = a.rms ? 0 : (T)(sum.a / (double)a.width),
			slope = (T)(sum.b / (double)a.width);
		for (int64_t j = lane * V; j < width; j += a.lanes * V) {
			const run<E, V> d = load_run<V, ALIGNED>(dy + j), v = load_run<V, ALIGNED>(x + j);
			const run<T, V> s = entries<V, ALIGNED>(a, scale, row, j);
			run<E, V> dx;

			for (int k = 0; k < V; k++)
				store(&dx.v[k], inv * (load(d.v[k]) * s.v[k] - shift -
						       (load(v.v[k]) - mean) * inv * slope));
			store_run<V, ALIGNED>((E *)a.p.out[0] + row * a.width + j, dx);
		}
	}
}

/* dy and x of a run, which is in one row, and the row's mean and 1 / deviation. */
template <typename E, int V> struct norm_run {
	run<E, V> dy, x;
	typename computes<E>::type mean, inv;
};

/* Chunks of sum dy x^ and sum dy of each entry. */
template <typename E, int V, bool ALIGNED> static __device__ void sums_of(const struct cuda_norm &a)
{
	typedef typename computes<E>::type T;
	const E *dy = (const E *)a.p.in[0], *x = (const E *)a.p.in[1];
	const T *mean = (const T *)a.p.in[3], *inv = (const T *)a.p.in[4];

	for (EACH_ROW(r, a.m.groups * a.m.chunks)) {
		two_sums mine[V] = {};

		visit_column<ahead(V, ALIGNED, 2)>(a.m, r, [&](int64_t at) {
			norm_run<E, V> v = {};

			if (at >= a.count) /* the last sample may lack channels */
				return v;
			const int64_t row = quotient(at, a.width);
			v.dy = load_run<V, ALIGNED>(dy + at);
			v.x = load_run<V, ALIGNED>(x + at);
			v.mean = a.rms ? 0 : mean[row];
			v.inv = inv[row];
			return v;
		}, [&](const norm_run<E, V> &v, int64_t at) {
			if (at >= a.count)
				return;
			for (int k = 0; k < V; k++) {
				const double g = load(v.dy.v[k]);

				mine[k].a += g * (load(v.x.v[k]) - v.mean) * v.inv;
				mine[k].b += g;
			}
		});
		put_columns<V>(a.m, r, (two_sums *)a.p.scratch, mine, add_two());
	}
}

template <typename T> static __device__ void join_of(const struct cuda_norm &a)
{
	for (EACH_ROW(r, a.m.join_blocks)) {
		int64_t c;
		two_sums all;

		if (!join_column(a.m, r, (const two_sums *)a.p.scratch, two_sums{ 0, 0 }, add_two(), &c,
				 &all))
			continue;
		if (a.p.out[1])
			((T *)a.p.out[1])[c] = (T)all.a;
		if (a.p.out[2])
			((T *)a.p.out[2])[c] = (T)all.b;
	}
}

#define NORMS(E, name) \
	BLOCK_KERNEL(norm_##name, cuda_norm) { BY_RUN(E, a.run, forward, a); } \
	BLOCK_KERNEL(norm_grad_##name, cuda_norm) { BY_RUN(E, a.run, backward, a); } \
	BLOCK_KERNEL(norm_sums_##name, cuda_norm) { BY_RUN(E, a.m.each, sums_of, a); } \
	BLOCK_KERNEL(norm_join_##name, cuda_norm) { join_of<computes<E>::type>(a); }
NORMS(float, f32)
NORMS(double, f64)
NORMS(bf16, bf16)
