/* The device's side of columns.h. */
#ifndef DLB_TENSOR_CUDA_COLUMNS_CUH
#define DLB_TENSOR_CUDA_COLUMNS_CUH
#include "tensor/cuda/groups.cuh"
extern "C" {
#include "tensor/cuda/columns.h"
}

/* This thread's channel in block r of the first launch; not below m.channels: none. */
static __device__ inline int64_t column_channel(const struct cuda_columns &m, int64_t r)
{
	return r % m.groups * m.wide + threadIdx.x % m.wide;
}

/* Calls visit(offset) for this thread's elements of its channel in block r. */
template <typename Visit>
static __device__ inline void visit_column(const struct cuda_columns &m, int64_t r, Visit visit)
{
	const int64_t c = column_channel(m, r), chunk = r / m.groups, lanes = CUDA_THREADS / m.wide;
	const int64_t most = (chunk + 1) * m.chunk, end = most < m.rows ? most : m.rows;
	int64_t e = chunk * m.chunk + threadIdx.x / m.wide, plane = quotient(e, m.s), at = e - plane * m.s;
	const int64_t planes = quotient(lanes, m.s), rest = lanes - planes * m.s;

	if (c >= m.channels)
		return;
	for (; e < end; e += lanes) {
		visit((plane * m.channels + c) * m.s + at);
		plane += planes;
		at += rest;
		if (at >= m.s) {
			at -= m.s;
			plane++;
		}
	}
}

/* Block r of the first launch: joins the values of the threads of each channel and writes them to to[chunk *
 * channels + channel]. */
template <typename T, typename Join>
static __device__ inline void put_column(const struct cuda_columns &m, int64_t r, T *to, T mine, Join join)
{
	const T all = column_join(mine, m.wide, join);
	const int64_t c = column_channel(m, r);

	if ((int)threadIdx.x < m.wide && c < m.channels)
		to[r / m.groups * m.channels + c] = all;
}

/* Block r of the second launch: the joined value of this thread's channel *c; zero if there are no chunks.
 * True for the one thread that writes the results of that channel. */
template <typename T, typename Join>
static __device__ inline bool join_column(const struct cuda_columns &m, int64_t r, const T *from, T zero,
					  Join join, int64_t *c, T *all)
{
	const int64_t lanes = CUDA_THREADS / m.join_wide;
	T mine = zero;

	*c = r * m.join_wide + threadIdx.x % m.join_wide;
	if (*c < m.channels)
		for (int64_t i = threadIdx.x / m.join_wide; i < m.chunks; i += lanes)
			mine = join(mine, from[i * m.channels + *c]);
	*all = column_join(mine, m.join_wide, join);
	return (int)threadIdx.x < m.join_wide && *c < m.channels;
}
#endif
