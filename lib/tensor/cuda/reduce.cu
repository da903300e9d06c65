/* Reductions over any axes, in double or 64-bit integers. The order depends on the shape alone: a thread
 * takes every width-th element of a part, the threads of a part join in a tree, then the parts likewise. */
#include "tensor/cuda/columns.cuh"
extern "C" {
#include "tensor/cuda/reduce.h"
}

/* Accumulators; sums and products of integers wrap. */
template <typename T> struct limits;
template <> struct limits<double> {
	static __device__ double least() { return -INFINITY; }
	static __device__ double most() { return INFINITY; }
};
template <> struct limits<int64_t> {
	static __device__ int64_t least() { return INT64_MIN; }
	static __device__ int64_t most() { return INT64_MAX; }
};
template <> struct limits<uint64_t> {
	static __device__ uint64_t least() { return 0; }
	static __device__ uint64_t most() { return UINT64_MAX; }
};
static __device__ inline double plus(double a, double b) { return a + b; }
static __device__ inline double times(double a, double b) { return a * b; }
static __device__ inline uint64_t plus(uint64_t a, uint64_t b) { return a + b; }
static __device__ inline uint64_t times(uint64_t a, uint64_t b) { return a * b; }
static __device__ inline int64_t plus(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static __device__ inline int64_t times(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* The functions; `of` is applied to elements, `operator()` joins. Sums have a struct of their own, because
 * most reductions are sums. */
template <typename A> struct summing {
	__device__ inline A start() const { return 0; }
	__device__ inline A of(A v) const { return v; }
	__device__ inline A operator()(A a, A v) const { return plus(a, v); }
};
template <typename A> struct other {
	int fn;
	__device__ inline A start() const
	{
		return fn == DLB_REDUCE_FN_MAX  ? limits<A>::least() :
		       fn == DLB_REDUCE_FN_MIN  ? limits<A>::most() :
		       fn == DLB_REDUCE_FN_PROD ? (A)1 :
						  (A)0;
	}
	__device__ inline A of(A v) const { return fn == DLB_REDUCE_FN_SUMSQ ? times(v, v) : v; }
	__device__ inline A operator()(A a, A v) const
	{
		return fn == DLB_REDUCE_FN_MAX ? (v > a || v != v ? v : a) :
		       fn == DLB_REDUCE_FN_MIN ? (v < a || v != v ? v : a) :
		       fn == DLB_REDUCE_FN_PROD ? times(a, v) : plus(a, v);
	}
};

template <typename A> static __device__ inline A mean(A sum, int64_t count)
{
	return count ? (A)(sum / (A)count) : (A)0;
}
static __device__ inline double mean(double sum, int64_t count) { return sum / (double)count; }

template <typename Out, typename A>
static __device__ inline void write(const struct cuda_reduce &r, int64_t at, A v)
{
	((Out *)r.p.out[0])[at] = (Out)(typename computes<Out>::type)
		(r.fn == DLB_REDUCE_FN_MEAN ? mean(v, r.reduced.count) : v);
}

/* Threads [0, width) of a group work on one part of one result; `me` is this thread's place among them.
 * Part w / results of result w % results; w beyond the last: nothing, but all threads join. */
template <typename In, typename Out, typename A, typename Fn, typename Threads>
static __device__ inline void one_part(const struct cuda_reduce &r, int64_t w, int me, Fn fn, Threads threads)
{
	const int64_t results = r.kept.count;
	const bool mine = w < results * r.parts;
	int64_t part = 0, result = 0, at[4] = { 0, 0, 0, 0 };
	A sum = fn.start();

	if (mine) {
		divide(w, results, &part, &result);
		seek(r.kept, result, at);
		const In *x = (const In *)r.p.in[0] + at[0];
		const int64_t from = part * r.chunk, end = from + r.chunk < r.reduced.count ? from + r.chunk :
											  r.reduced.count;

		for (int64_t i = from + me; i < end; i += threads.width) {
			int64_t there[4];

			seek(r.reduced, i, there);
			sum = fn(sum, fn.of((A)(typename computes<In>::type)x[there[0]]));
		}
	}
	sum = threads.join(sum, fn);
	if (mine && me == 0) {
		if (r.parts > 1)
			((A *)r.p.scratch)[w] = sum;
		else
			write<Out>(r, at[1], sum);
	}
}

/* A thread for each part: neighbours work on neighbouring results. */
template <typename In, typename Out, typename A, typename Fn>
static __device__ inline void by_thread(const struct cuda_reduce &r, Fn fn)
{
	for (EACH(w, r.kept.count * r.parts))
		one_part<In, Out, A>(r, w, 0, fn, alone());
}

/* `width` threads for each part. */
template <typename In, typename Out, typename A, typename Fn>
static __device__ inline void by_group(const struct cuda_reduce &r, Fn fn)
{
	const int groups = CUDA_THREADS / r.width, which = (int)threadIdx.x / r.width,
		  me = (int)threadIdx.x % r.width;
	const struct group threads = { r.width };

	for (EACH_ROW(b, (r.kept.count * r.parts + groups - 1) / groups))
		one_part<In, Out, A>(r, b * groups + which, me, fn, threads);
}

/* Joins the parts of each result. */
template <typename Out, typename A, typename Fn>
static __device__ inline void join_parts(const struct cuda_reduce &r, Fn fn)
{
	const A *part = (const A *)r.p.scratch;

	for (EACH_ROW(result, r.kept.count)) {
		A sum = fn.start();
		int64_t at[4];

		for (EACH_OF_ROW(i, r.parts))
			sum = fn(sum, part[i * r.kept.count + result]);
		sum = block_join(sum, fn);
		seek(r.kept, result, at);
		if (threadIdx.x == 0)
			write<Out>(r, at[1], sum);
	}
}

/* Chunks of the sums of columns. */
template <typename E, int V, bool ALIGNED> static __device__ void columns_of(const struct cuda_reduce &r)
{
	const E *x = (const E *)r.p.in[0];

	for (EACH_ROW(b, r.m.groups * r.m.chunks)) {
		double mine[V] = {};

		const auto read = [&](int64_t at) { return load_run<V, ALIGNED>(x + at); };

		visit_column<ahead(V, ALIGNED, 4)>(r.m, b, read, [&](const run<E, V> &v, int64_t) {
			for (int k = 0; k < V; k++)
				mine[k] += load(v.v[k]);
		});
		put_columns<V>(r.m, b, (double *)r.p.scratch, mine, add_them());
	}
}

template <typename Out> static __device__ void join_columns(const struct cuda_reduce &r)
{
	for (EACH_ROW(b, r.m.join_blocks)) {
		int64_t c;
		double all;

		if (join_column(r.m, b, (const double *)r.p.scratch, 0.0, add_them(), &c, &all))
			write<Out>(r, c, all);
	}
}

#define BY_FN(call, A) do { \
		if (a.fn == DLB_REDUCE_FN_SUM || a.fn == DLB_REDUCE_FN_MEAN) \
			call(a, summing<A>()); \
		else \
			call(a, other<A>{ a.fn }); \
	} while (0)
#define REDUCE(In, Out, A, name) \
KERNEL(reduce_##name, cuda_reduce) { BY_FN((by_thread<In, Out, A>), A); } \
BLOCK_KERNEL(reduce_group_##name, cuda_reduce) { BY_FN((by_group<In, Out, A>), A); } \
BLOCK_KERNEL(reduce_join_##name, cuda_reduce) { BY_FN((join_parts<Out, A>), A); }
REDUCE(float, float, double, f32)
REDUCE(double, double, double, f64)
REDUCE(bf16, bf16, double, bf16)
REDUCE(bf16, float, double, bf16_f32)
REDUCE(int8_t, int8_t, int64_t, i8)
REDUCE(int16_t, int16_t, int64_t, i16)
REDUCE(int32_t, int32_t, int64_t, i32)
REDUCE(int64_t, int64_t, int64_t, i64)
REDUCE(uint8_t, uint8_t, uint64_t, u8)
REDUCE(uint16_t, uint16_t, uint64_t, u16)
REDUCE(uint32_t, uint32_t, uint64_t, u32)
REDUCE(uint64_t, uint64_t, uint64_t, u64)
#define COLUMNS(E, name) \
BLOCK_KERNEL(reduce_columns_##name, cuda_reduce) { BY_RUN(E, a.m.each, columns_of, a); } \
BLOCK_KERNEL(reduce_columns_join_##name, cuda_reduce) { join_columns<E>(a); }
COLUMNS(float, f32)
COLUMNS(double, f64)
COLUMNS(bf16, bf16)
