/* Rows taken from tables, and the sum of their gradients. */
#include "tensor/cuda/ordered.cuh"
#include "tensor/cuda/wide.cuh"
extern "C" {
#include "tensor/cuda/gather.h"
}

/* The table's row for index i, negative indices counted from the end; -1: not in this table. */
static __device__ inline int64_t row_of(const struct cuda_gather &a, int64_t i)
{
	int64_t r = a.d.index == DLB_I64 ? ((const int64_t *)a.p.in[1])[i] : ((const int32_t *)a.p.in[1])[i];

	r = r < 0 ? r + a.d.of : r;
	return r >= a.d.first && r - a.d.first < a.d.rows ? r - a.d.first : -1;
}

template <typename T> static __device__ void take(const struct cuda_gather &a)
{
	const T *x = (const T *)a.p.in[0];
	T *y = (T *)a.p.out[0];

	for (EACH(i, a.d.outer * a.d.n_index * a.d.width)) {
		int64_t outer = i;
		const int64_t column = split(&outer, a.d.width), row = row_of(a, split(&outer, a.d.n_index));

		y[i] = row < 0 ? (T)0 : x[(outer * a.d.rows + row) * a.d.width + column];
	}
}

/* Adds the gradient: a block for each index of each table. */
template <typename T> static __device__ void add(const struct cuda_gather &a)
{
	const T *dy = (const T *)a.p.in[0];

	for (EACH_ROW(i, a.d.outer * a.d.n_index)) {
		const int64_t outer = i / a.d.n_index, own = i % a.d.n_index, row = row_of(a, own);
		T *to = (T *)a.p.out[0] + (outer * a.d.rows + row) * a.d.width;

		if (row < 0 || row + a.d.first == a.d.padding)
			continue;
		in_order(own, a.d.n_index, [&](int64_t j) { return row_of(a, j); }, [&](int64_t j) {
			for (EACH_OF_ROW(c, a.d.width))
				to[c] += dy[(outer * a.d.n_index + j) * a.d.width + c];
		});
	}
}

/* ---- many indices: sorted by row first. Integers are added atomically, so the places of rows and the order
 * of a row's entries in `list` differ between runs; their order in `sorted`, and so the sums, do not. ---- */
struct gather_sorted {
	int32_t *count, *taken;		/* [row] number of its entries; entries of all rows */
	int32_t *base;			/* [row] place of its first entry in list and sorted */
	int32_t *slot, *list, *sorted;	/* [entry] its number in its row, if it has one; entries */
};
static __device__ inline gather_sorted sorted_of(const struct cuda_gather &a)
{
	const int64_t rows = a.d.outer * a.d.rows, n = a.d.outer * a.d.n_index;
	gather_sorted s;

	s.count = (int32_t *)a.p.scratch;
	s.taken = s.count + rows;
	s.base = s.taken + 1;
	s.slot = s.base + rows;
	s.list = s.slot + n;
	s.sorted = s.list + n;
	return s;
}

/* Number, among the rows of all tables, of the row to which entry i is added; -1: none. */
static __device__ inline int64_t target_of(const struct cuda_gather &a, int64_t i)
{
	int64_t outer = i;
	const int64_t row = row_of(a, split(&outer, a.d.n_index));

	return row < 0 || row + a.d.first == a.d.padding ? -1 : outer * a.d.rows + row;
}

/* Calls f(entry, its row) for this thread's entries that have a row. */
template <typename F> static __device__ inline void each_entry(const struct cuda_gather &a, F f)
{
	for (EACH(i, a.d.outer * a.d.n_index)) {
		const int64_t row = target_of(a, i);

		if (row >= 0)
			f((int32_t)i, row);
	}
}

KERNEL(gather_count, cuda_gather)
{
	const gather_sorted s = sorted_of(a);

	each_entry(a, [&](int32_t i, int64_t row) { s.slot[i] = atomicAdd(&s.count[row], 1); });
}
KERNEL(gather_base, cuda_gather)
{
	const gather_sorted s = sorted_of(a);

	each_entry(a, [&](int32_t i, int64_t row) {
		if (s.slot[i] == 0)
			s.base[row] = atomicAdd(s.taken, s.count[row]);
	});
}
KERNEL(gather_list, cuda_gather)
{
	const gather_sorted s = sorted_of(a);

	each_entry(a, [&](int32_t i, int64_t row) { s.list[s.base[row] + s.slot[i]] = i; });
}
KERNEL(gather_rank, cuda_gather)
{
	const gather_sorted s = sorted_of(a);

	each_entry(a, [&](int32_t i, int64_t row) {
		const int32_t *list = s.list + s.base[row], n = s.count[row];
		int32_t rank = 0;

		for (int32_t j = 0; j < n; j++)
			rank += list[j] < i;
		s.sorted[s.base[row] + rank] = i;
	});
}

/* Adds the gradient in the order of sorted entries: a block for each row that has entries. */
template <typename T, int V, bool ALIGNED> static __device__ void add_sorted(const struct cuda_gather &a)
{
	enum { AHEAD = 8 };
	const T *dy = (const T *)a.p.in[0];
	const gather_sorted s = sorted_of(a);

	for (EACH_ROW(place, *s.taken)) {
		const int32_t *entry = s.sorted + place;
		const int64_t row = target_of(a, *entry);

		if (s.base[row] != place)
			continue;
		const int32_t n = s.count[row];
		for (EACH_OF_ROW(c, a.d.width / V)) {
			run<T, V> sum = {};
			int32_t j = 0;

			for (; j + AHEAD <= n; j += AHEAD) {
				run<T, V> v[AHEAD];

				for (int t = 0; t < AHEAD; t++)
					v[t] = load_run<V, ALIGNED>(dy + entry[j + t] * a.d.width + c * V);
				for (int t = 0; t < AHEAD; t++)
					for (int k = 0; k < V; k++)
						sum.v[k] += v[t].v[k];
			}
			for (; j < n; j++) {
				const run<T, V> v = load_run<V, ALIGNED>(dy + entry[j] * a.d.width + c * V);

				for (int k = 0; k < V; k++)
					sum.v[k] += v.v[k];
			}
			store_run<V, ALIGNED>((T *)a.p.out[0] + row * a.d.width + c * V, sum);
		}
	}
}

/* Adds in any order: bits differ between runs. */
template <typename T> static __device__ void add_fast(const struct cuda_gather &a)
{
	const T *dy = (const T *)a.p.in[0];
	T *dx = (T *)a.p.out[0];

	for (EACH(i, a.d.outer * a.d.n_index * a.d.width)) {
		int64_t outer = i;
		const int64_t column = split(&outer, a.d.width), row = row_of(a, split(&outer, a.d.n_index));

		if (row >= 0 && row + a.d.first != a.d.padding)
			atomicAdd(&dx[(outer * a.d.rows + row) * a.d.width + column], dy[i]);
	}
}

KERNEL(gather_1, cuda_gather) { take<uint8_t>(a); }
KERNEL(gather_2, cuda_gather) { take<uint16_t>(a); }
KERNEL(gather_4, cuda_gather) { take<uint32_t>(a); }
KERNEL(gather_8, cuda_gather) { take<uint64_t>(a); }
BLOCK_KERNEL(gather_grad_f32, cuda_gather) { add<float>(a); }
BLOCK_KERNEL(gather_grad_f64, cuda_gather) { add<double>(a); }
#define ADD_SORTED(T, name) KERNEL(gather_grad_sorted_##name, cuda_gather) \
{ \
	if (a.aligned) \
		add_sorted<T, run_of<T>, true>(a); \
	else \
		add_sorted<T, 1, false>(a); \
}
ADD_SORTED(float, f32)
ADD_SORTED(double, f64)
KERNEL(gather_grad_fast_f32, cuda_gather) { add_fast<float>(a); }
KERNEL(gather_grad_fast_f64, cuda_gather) { add_fast<double>(a); }
