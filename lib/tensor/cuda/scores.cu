/* Softmax of attention's scores where a query sees keys by their positions, and its gradient. Sums are in double: a
 * thread's elements, then the threads of a row in a tree. */
#include <math.h>
#include "tensor/cuda/row_runs.cuh"
#include "tensor/cuda/span.cuh"
extern "C" {
#include "tensor/cuda/scores.h"
}

static __device__ inline span seen_by(const struct cuda_scores &a, int64_t r)
{
	const int64_t at = r - quotient(r, a.rows) * a.rows + a.past;

	return span_at(at, a.keys, a.keys, a.causal, a.left, a.right);
}

/* The key of element j of a thread's run i. */
template <int N> static __device__ inline int64_t key_of(int me, int width, int i, int j)
{
	return (int64_t)(me + i * width) * N + j;
}

template <typename T, int N>
static __device__ inline void softmax_row(const struct cuda_scores &a, int64_t r, int me, const struct group &threads)
{
	const span s = r < a.n ? seen_by(a, r) : span{ 0, 0 };
	const int64_t n = r < a.n ? a.keys : 0;
	row_runs<T, N> in;
	T x[ROW_RUNS][N], most = (T)-INFINITY;
	double sum = 0;

	in.read((const T *)a.p.in[0] + r * a.keys, n, me, threads.width);
	each_of<N>(n, me, threads.width, [&](int i, int j) {
		const int64_t key = key_of<N>(me, threads.width, i, j);

		x[i][j] = key < s.lo || key >= s.hi ? (T)-INFINITY : in.part[i].v[j];
		most = larger()(most, x[i][j]);
	});
	most = threads.join(most, larger());
	each_of<N>(n, me, threads.width, [&](int i, int j) {
		x[i][j] = most == (T)-INFINITY ? 0 : F(exp)(x[i][j] - most);
		sum += x[i][j];
	});
	sum = threads.join(sum, add_them());
	const T by = sum > 0 ? (T)(1 / sum) : sum == 0 ? 0 : (T)sum;
	put_row<T, N>((T *)a.p.out[0] + r * a.keys, n, me, threads.width, [&](int i, int j) { return x[i][j] * by; });
	if (a.p.out[1] && n && me == 0)
		((T *)a.p.out[1])[r] = most == (T)-INFINITY ? most : most + (T)log(sum);
}

template <typename T, int N>
static __device__ inline void grad_row(const struct cuda_scores &a, int64_t r, int me, const struct group &threads)
{
	const span s = r < a.n ? seen_by(a, r) : span{ 0, 0 };
	const int64_t n = r < a.n ? a.keys : 0;
	const bool again = a.p.in[2];
	const T lse = again && n ? ((const T *)a.p.in[2])[r] : 0;
	row_runs<T, N> dp, in;
	T p[ROW_RUNS][N];
	double sum = 0;

	dp.read((const T *)a.p.in[0] + r * a.keys, n, me, threads.width);
	in.read((const T *)a.p.in[1] + r * a.keys, n, me, threads.width);
	each_of<N>(n, me, threads.width, [&](int i, int j) {
		const int64_t key = key_of<N>(me, threads.width, i, j);
		const bool sees = key >= s.lo && key < s.hi;

		p[i][j] = !sees ? 0 : again ? F(exp)(in.part[i].v[j] - lse) : in.part[i].v[j];
		if (sees)
			sum += (double)p[i][j] * (double)dp.part[i].v[j];
	});
	const T mean = (T)threads.join(sum, add_them());
	if (again)
		put_row<T, N>((T *)a.p.out[1] + r * a.keys, n, me, threads.width, [&](int i, int j) { return p[i][j]; });
	put_row<T, N>((T *)a.p.out[0] + r * a.keys, n, me, threads.width, [&](int i, int j) {
		const int64_t key = key_of<N>(me, threads.width, i, j);

		return key >= s.lo && key < s.hi ? p[i][j] * (dp.part[i].v[j] - mean) : 0;
	});
}

template <typename Row> static __device__ inline void each_row(const struct cuda_scores &a, Row row)
{
	const int groups = CUDA_THREADS / a.width, which = (int)threadIdx.x / a.width, me = (int)threadIdx.x % a.width;
	const struct group threads = { a.width };

	for (EACH_ROW(b, (a.n + groups - 1) / groups))
		row(b * groups + which, me, threads);
}

#define SCORES(T, name) \
BLOCK_KERNEL(scores_softmax_##name, cuda_scores) \
{ \
	each_row(a, [&](int64_t r, int me, const struct group &t) { softmax_row<T, 16 / sizeof(T)>(a, r, me, t); }); \
} \
BLOCK_KERNEL(scores_grad_##name, cuda_scores) \
{ \
	each_row(a, [&](int64_t r, int me, const struct group &t) { grad_row<T, 16 / sizeof(T)>(a, r, me, t); }); \
}
SCORES(float, f32)
SCORES(double, f64)
