/* The device's side of columns.h. V is m.each. */
#ifndef DLB_TENSOR_CUDA_COLUMNS_CUH
#define DLB_TENSOR_CUDA_COLUMNS_CUH
#include "tensor/cuda/groups.cuh"
#include "tensor/cuda/wide.cuh"
extern "C" {
#include "tensor/cuda/columns.h"
}

/* This thread's first channel in block r of the first launch; m.channels or more: none. */
static __device__ inline int64_t column_channel(const struct cuda_columns &m, int64_t r)
{
	return (r % m.groups * m.wide + threadIdx.x % m.wide) * m.each;
}

/* The elements [from, to) of each channel that are in block r. */
struct column_chunk {
	int64_t from, to;
};
static __device__ inline column_chunk chunk_of(const struct cuda_columns &m, int64_t r)
{
	const int64_t from = r / m.groups * m.chunk, to = from + m.chunk;

	return { from, to < m.rows ? to : m.rows };
}

/* The place of an element in its channel, or the distance between two elements. */
struct column_place {
	int64_t plane, at;
};
static __device__ inline column_place column_at(const struct cuda_columns &m, int64_t e)
{
	const int64_t plane = quotient(e, m.s);

	return { plane, e - plane * m.s };
}
static __device__ inline int64_t column_offset(const struct cuda_columns &m, int64_t channel, column_place p)
{
	return (p.plane * m.channels + channel) * m.s + p.at;
}
static __device__ inline void step(const struct cuda_columns &m, column_place *p, column_place by)
{
	p->plane += by.plane;
	p->at += by.at;
	if (p->at >= m.s) {
		p->at -= m.s;
		p->plane++;
	}
}

/* Calls use(load(offset), offset) for this thread's elements of its channels in block r, in order; AHEAD
 * loads begin before the first of them is used. */
template <int AHEAD, typename Load, typename Use>
static __device__ inline void visit_column(const struct cuda_columns &m, int64_t r, Load load, Use use)
{
	const int64_t c = column_channel(m, r), lanes = CUDA_THREADS / m.wide;
	const column_chunk chunk = chunk_of(m, r);
	int64_t e = chunk.from + threadIdx.x / m.wide;
	const column_place by = column_at(m, lanes);
	column_place p = column_at(m, e);

	if (c >= m.channels)
		return;
	for (; e + (AHEAD - 1) * lanes < chunk.to; e += AHEAD * lanes) {
		decltype(load(0)) v[AHEAD];
		int64_t offset[AHEAD];

		for (int i = 0; i < AHEAD; i++) {
			offset[i] = column_offset(m, c, p);
			v[i] = load(offset[i]);
			step(m, &p, by);
		}
		for (int i = 0; i < AHEAD; i++)
			use(v[i], offset[i]);
	}
	for (; e < chunk.to; e += lanes) {
		const int64_t offset = column_offset(m, c, p);

		use(load(offset), offset);
		step(m, &p, by);
	}
}

/* Block r of the first launch: joins the values of the threads of each channel and writes made(value, k) of this
 * thread's kth channel to to[chunk * channels + channel]. */
template <int V, typename T, typename Out, typename Join, typename Made>
static __device__ inline void put_columns(const struct cuda_columns &m, int64_t r, Out *to, T mine[V], Join join,
					  Made made)
{
	const int64_t c = column_channel(m, r);

	column_joins<V>(mine, m.wide, join);
	if ((int)threadIdx.x < m.wide && c < m.channels)
		for (int k = 0; k < V; k++)
			to[r / m.groups * m.channels + c + k] = made(mine[k], k);
}
template <int V, typename T, typename Join>
static __device__ inline void put_columns(const struct cuda_columns &m, int64_t r, T *to, T mine[V], Join join)
{
	put_columns<V>(m, r, to, mine, join, [](T all, int) { return all; });
}

/* Block r of the second launch: sets *all to the joined value of this thread's channel *c; zero if there are
 * no chunks. Returns true for the one thread that writes the results of that channel. */
template <typename T, typename Join>
static __device__ inline bool join_column(const struct cuda_columns &m, int64_t r, const T *from, T zero,
					  Join join, int64_t *c, T *all)
{
	enum { AHEAD = 4 };
	const int64_t lanes = CUDA_THREADS / m.join_wide;
	T mine[1] = { zero };

	*c = r * m.join_wide + threadIdx.x % m.join_wide;
	if (*c < m.channels) {
		int64_t i = threadIdx.x / m.join_wide;

		for (; i + (AHEAD - 1) * lanes < m.chunks; i += AHEAD * lanes) {
			T v[AHEAD];

			for (int k = 0; k < AHEAD; k++)
				v[k] = from[(i + k * lanes) * m.channels + *c];
			for (int k = 0; k < AHEAD; k++)
				mine[0] = join(mine[0], v[k]);
		}
		for (; i < m.chunks; i += lanes)
			mine[0] = join(mine[0], from[i * m.channels + *c]);
	}
	column_joins<1>(mine, m.join_wide, join);
	*all = mine[0];
	return (int)threadIdx.x < m.join_wide && *c < m.channels;
}
#endif
