/* Softmax and log-softmax along one axis of (outer, axis, inner), and their gradients.
 *   y = exp(x - max) / sum exp(x - max);   dx = y (dy - sum dy y)
 *   y = x - max - log sum exp(x - max);    dx = dy - exp(y) sum dy
 * Sums run in double: a thread's elements, then the threads of a row in a tree. */
#include "tensor/cuda/row_runs.cuh"
extern "C" {
#include "tensor/cuda/softmax.h"
}

/* The row that begins at element `at`; at -1: none, but the threads join. */
template <typename S, typename Threads>
static __device__ inline void forward(const struct cuda_softmax &s, int64_t at, int me, Threads threads)
{
	typedef typename computes<S>::type T;
	const int64_t n = at < 0 ? 0 : s.axis, step = s.inner;
	const S *x = (const S *)s.p.in[0] + at;
	S *y = (S *)s.p.out[0] + at;
	T most = (T)-INFINITY;
	double sum = 0;

	for (int64_t i = me; i < n; i += threads.width)
		most = larger()(most, (T)x[i * step]);
	most = threads.join(most, larger());
	for (int64_t i = me; i < n; i += threads.width)
		sum += F(exp)((T)x[i * step] - most);
	sum = threads.join(sum, add_them());
	const T by = s.log ? (T)log(sum) : (T)(1 / sum);
	for (int64_t i = me; i < n; i += threads.width) {
		const T v = (T)x[i * step] - most;

		y[i * step] = (S)(s.log ? v - by : F(exp)(v) * by);
	}
}

template <typename S, typename Threads>
static __device__ inline void backward(const struct cuda_softmax &s, int64_t at, int me, Threads threads)
{
	typedef typename computes<S>::type T;
	const int64_t n = at < 0 ? 0 : s.axis, step = s.inner;
	const S *dy = (const S *)s.p.in[0] + at, *y = (const S *)s.p.in[1] + at;
	S *dx = (S *)s.p.out[0] + at;
	double sum = 0;

	for (int64_t i = me; i < n; i += threads.width)
		sum += (double)(T)dy[i * step] * (s.log ? 1 : (double)(T)y[i * step]);
	const T by = (T)threads.join(sum, add_them());
	for (int64_t i = me; i < n; i += threads.width) {
		const T g = (T)dy[i * step], v = (T)y[i * step];

		dx[i * step] = (S)(s.log ? g - F(exp)(v) * by : v * (g - by));
	}
}

template <typename S, typename Threads>
static __device__ inline void one_row(const struct cuda_softmax &s, int64_t row, int me, Threads threads)
{
	const int64_t rows = s.outer * s.inner;
	int64_t o = 0, i = 0;

	if (row < rows)
		divide(row, s.inner, &o, &i);
	const int64_t at = row < rows ? o * s.axis * s.inner + i : -1;
	if (s.backward)
		backward<S>(s, at, me, threads);
	else
		forward<S>(s, at, me, threads);
}

template <typename S> static __device__ inline void by_thread(const struct cuda_softmax &s)
{
	for (EACH(row, s.outer * s.inner))
		one_row<S>(s, row, 0, alone());
}

template <typename S> static __device__ inline void by_group(const struct cuda_softmax &s)
{
	const int groups = CUDA_THREADS / s.width, which = (int)threadIdx.x / s.width,
		  me = (int)threadIdx.x % s.width;
	const struct group threads = { s.width };

	for (EACH_ROW(b, (s.outer * s.inner + groups - 1) / groups))
		one_row<S>(s, b * groups + which, me, threads);
}

/* ---- rows in registers ---- */
template <typename S, int N>
static __device__ inline void forward_row(const struct cuda_softmax &s, int64_t at, int64_t n, int me,
					  const struct group &threads)
{
	typedef typename computes<S>::type T;
	T x[ROW_RUNS][N], most = (T)-INFINITY;
	double sum = 0;
	row_runs<S, N> r;

	r.read((const S *)s.p.in[0] + at, n, me, threads.width);
	each_of<N>(n, me, threads.width, [&](int i, int j) {
		x[i][j] = (T)r.part[i].v[j];
		most = larger()(most, x[i][j]);
	});
	most = threads.join(most, larger());
	each_of<N>(n, me, threads.width, [&](int i, int j) {
		const T v = x[i][j] - most, e = F(exp)(v);

		sum += e;
		x[i][j] = s.log ? v : e;
	});
	sum = threads.join(sum, add_them());
	const T by = s.log ? (T)log(sum) : (T)(1 / sum);
	put_row<S, N>((S *)s.p.out[0] + at, n, me, threads.width,
		      [&](int i, int j) { return s.log ? x[i][j] - by : x[i][j] * by; });
}

template <typename S, int N>
static __device__ inline void backward_row(const struct cuda_softmax &s, int64_t at, int64_t n, int me,
					   const struct group &threads)
{
	typedef typename computes<S>::type T;
	row_runs<S, N> g, y;
	double sum = 0;

	g.read((const S *)s.p.in[0] + at, n, me, threads.width);
	y.read((const S *)s.p.in[1] + at, n, me, threads.width);
	each_of<N>(n, me, threads.width, [&](int i, int j) {
		sum += (double)(T)g.part[i].v[j] * (s.log ? 1 : (double)(T)y.part[i].v[j]);
	});
	const T by = (T)threads.join(sum, add_them());
	put_row<S, N>((S *)s.p.out[0] + at, n, me, threads.width, [&](int i, int j) {
		const T d = (T)g.part[i].v[j], v = (T)y.part[i].v[j];

		return s.log ? d - F(exp)(v) * by : v * (d - by);
	});
}

template <typename S> static __device__ inline void by_row(const struct cuda_softmax &s)
{
	constexpr int N = 16 / sizeof(S);
	const int groups = CUDA_THREADS / s.width, which = (int)threadIdx.x / s.width,
		  me = (int)threadIdx.x % s.width;
	const struct group threads = { s.width };

	for (EACH_ROW(b, (s.outer + groups - 1) / groups)) {
		const int64_t row = b * groups + which, n = row < s.outer ? s.axis : 0;

		if (s.backward)
			backward_row<S, N>(s, row * s.axis, n, me, threads);
		else
			forward_row<S, N>(s, row * s.axis, n, me, threads);
	}
}

#define SOFTMAX(S, name) \
BLOCK_KERNEL(softmax_row_##name, cuda_softmax) { by_row<S>(a); } \
KERNEL(softmax_##name, cuda_softmax) { by_thread<S>(a); } \
BLOCK_KERNEL(softmax_group_##name, cuda_softmax) { by_group<S>(a); }
SOFTMAX(float, f32)
SOFTMAX(double, f64)
SOFTMAX(bf16, bf16)
