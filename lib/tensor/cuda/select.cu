/* Elements chosen by value along an axis of (outer, n, inner). */
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/select.h"
}

/* at: index along the line; -1: none. */
template <typename T> struct candidate { T v; int64_t at; };

/* Whether a is before b; a strict order of different elements. A NaN is after all numbers, but first if it is
 * the first element of the line: no other element compares as better than it. */
struct before {
	bool largest, last;
	template <typename T> __device__ bool operator()(candidate<T> a, candidate<T> b) const
	{
		const bool no_a = a.v != a.v, no_b = b.v != b.v;

		if (no_a && no_b)
			return a.at < b.at;
		if (no_a || no_b)
			return no_a ? a.at == 0 : b.at != 0;
		if (a.v != b.v)
			return largest ? a.v > b.v : a.v < b.v;
		return last ? a.at > b.at : a.at < b.at;
	}
};
struct better {
	before is_before;
	template <typename T> __device__ candidate<T> operator()(candidate<T> a, candidate<T> b) const
	{
		return b.at < 0 || (a.at >= 0 && is_before(a, b)) ? a : b;
	}
};

/* Element 0 of line l of x (outer, n, inner). */
static __device__ inline int64_t line_at(const struct dlb_select_desc &d, int64_t l, int64_t n)
{
	int64_t o, i;

	divide(l, d.inner, &o, &i);
	return o * n * d.inner + i;
}

template <typename T>
static __device__ inline void put_top(const struct cuda_select &a, int64_t l, int64_t rank, candidate<T> c)
{
	const int64_t to = line_at(a.d, l, a.d.m) + rank * a.d.inner;

	if (a.p.out[0])
		((T *)a.p.out[0])[to] = c.v;
	if (a.p.out[1])
		((int64_t *)a.p.out[1])[to] = c.at;
}

template <typename T> static __device__ void top(const struct cuda_select &a)
{
	const struct dlb_select_desc &d = a.d;
	const before is_before = { d.largest, false };
	const better join = { is_before };

	for (EACH_ROW(l, d.outer * d.inner)) {
		const T *x = (const T *)a.p.in[0] + line_at(d, l, d.n);
		candidate<T> found = { (T)0, -1 };

		for (int64_t rank = 0; rank < d.m; rank++) {
			candidate<T> mine = { (T)0, -1 };

			for (EACH_OF_ROW(i, d.n)) {
				const candidate<T> c = { x[i * d.inner], i };

				if (found.at < 0 || is_before(found, c))
					mine = join(mine, c);
			}
			found = block_join(mine, join);
			if (threadIdx.x == 0)
				put_top(a, l, rank, found);
		}
	}
}

template <typename T> static __device__ void rank(const struct cuda_select &a)
{
	const struct dlb_select_desc &d = a.d;
	const before is_before = { d.largest, false };
	const int64_t lines = d.outer * d.inner;

	for (EACH(e, lines * d.n)) {
		int64_t l, i, n_before = 0;

		divide(e, d.n, &l, &i);
		const T *x = (const T *)a.p.in[0] + line_at(d, l, d.n);
		const candidate<T> mine = { x[i * d.inner], i };

		for (int64_t j = 0; j < d.n; j++)
			n_before += j != i && is_before(candidate<T>{ x[j * d.inner], j }, mine);
		if (n_before < d.m)
			put_top(a, l, n_before, mine);
	}
}

template <typename T, typename Threads>
static __device__ inline void best(const struct cuda_select &a, int64_t l, int me, Threads threads)
{
	const struct dlb_select_desc &d = a.d;
	const bool is_line = l < d.outer * d.inner;
	const int64_t at = is_line ? line_at(d, l, d.n) : 0, n = is_line ? d.n : 0;
	const T *x = (const T *)a.p.in[0] + at;
	const better join = { { d.largest, d.last } };
	candidate<T> mine = { (T)0, -1 };

	for (int64_t i = me; i < n; i += threads.width)
		mine = join(mine, candidate<T>{ x[i * d.inner], i });
	mine = threads.join(mine, join);
	if (d.fn == DLB_SELECT_HARDMAX)
		for (int64_t i = me; i < n; i += threads.width)
			((T *)a.p.out[0])[at + i * d.inner] = (T)(i == mine.at);
	else if (is_line && me == 0)
		((int64_t *)a.p.out[0])[l] = mine.at;
}

template <typename T> static __device__ void by_thread(const struct cuda_select &a)
{
	for (EACH(l, a.d.outer * a.d.inner))
		best<T>(a, l, 0, alone());
}

template <typename T> static __device__ void by_group(const struct cuda_select &a)
{
	const int groups = CUDA_THREADS / a.width, which = (int)threadIdx.x / a.width,
		  me = (int)threadIdx.x % a.width;
	const struct group threads = { a.width };

	for (EACH_ROW(b, (a.d.outer * a.d.inner + groups - 1) / groups))
		best<T>(a, b * groups + which, me, threads);
}

static __device__ inline int64_t index_of(const struct cuda_select &a, int64_t i)
{
	const void *p = a.p.in[0];

	switch (a.d.index) {
	case DLB_I32: return ((const int32_t *)p)[i];
	case DLB_F32: return (int64_t)((const float *)p)[i];
	case DLB_F64: return (int64_t)((const double *)p)[i];
	default: return ((const int64_t *)p)[i];
	}
}

template <typename T> static __device__ void one_hot(const struct cuda_select &a)
{
	const struct dlb_select_desc &d = a.d;
	const T *off_on = (const T *)a.p.in[1];
	const int64_t count = d.outer * d.n * d.inner;

	for (EACH(e, count)) {
		int64_t row, p, o, i;

		divide(e, d.inner, &row, &p);
		divide(row, d.n, &o, &i);
		const int64_t at = index_of(a, o * d.inner + p);

		((T *)a.p.out[0])[e] = off_on[(at < 0 ? at + d.n : at) == i];
	}
}

#define BY_TYPE(T, name) \
BLOCK_KERNEL(select_top_##name, cuda_select) { top<T>(a); } \
KERNEL(select_rank_##name, cuda_select) { rank<T>(a); } \
KERNEL(select_best_##name, cuda_select) { by_thread<T>(a); } \
BLOCK_KERNEL(select_best_group_##name, cuda_select) { by_group<T>(a); }
BY_TYPE(float, f32)
BY_TYPE(double, f64)
BY_TYPE(int32_t, i32)
BY_TYPE(int64_t, i64)
BY_TYPE(uint8_t, u8)
KERNEL(select_one_hot_1, cuda_select) { one_hot<uint8_t>(a); }
KERNEL(select_one_hot_2, cuda_select) { one_hot<uint16_t>(a); }
KERNEL(select_one_hot_4, cuda_select) { one_hot<uint32_t>(a); }
KERNEL(select_one_hot_8, cuda_select) { one_hot<uint64_t>(a); }
