/* Rows in the registers of a group of threads. Thread `me` of the group has up to ROW_RUNS runs of N
 * neighbours: runs me, me + width, and so on, of the row. */
#ifndef DLB_TENSOR_CUDA_ROW_RUNS_CUH
#define DLB_TENSOR_CUDA_ROW_RUNS_CUH
#include "tensor/cuda/runs.cuh"
extern "C" {
#include "tensor/cuda/row_runs.h"
}

/* This thread's runs of a row of n elements at p. */
template <typename S, int N> struct row_runs {
	neighbours<S, N> part[ROW_RUNS];

	__device__ inline void read(const S *p, int64_t n, int me, int width)
	{
		const bool whole = (uintptr_t)p % alignof(neighbours<S, N>) == 0;

		UNROLL
		for (int i = 0; i < ROW_RUNS; i++) {
			const int64_t at = (int64_t)(me + i * width) * N;

			if (at < n && whole)
				part[i] = *(const neighbours<S, N> *)(p + at);
			else if (at < n)
				for (int j = 0; j < N; j++)
					part[i].v[j] = p[at + j];
		}
	}
};

/* Calls visit(i, j) for element j of run i, for this thread's elements of a row of n. */
template <int N, typename Visit>
static __device__ inline void each_of(int64_t n, int me, int width, Visit visit)
{
	UNROLL
	for (int i = 0; i < ROW_RUNS; i++)
		if ((int64_t)(me + i * width) * N < n)
			UNROLL
			for (int j = 0; j < N; j++)
				visit(i, j);
}

/* Writes of(i, j) as element j of this thread's run i of the row at p. */
template <typename S, int N, typename Of>
static __device__ inline void put_row(S *p, int64_t n, int me, int width, Of of)
{
	const bool whole = (uintptr_t)p % alignof(neighbours<S, N>) == 0;

	UNROLL
	for (int i = 0; i < ROW_RUNS; i++) {
		const int64_t at = (int64_t)(me + i * width) * N;
		neighbours<S, N> v;

		if (at >= n)
			continue;
		UNROLL
		for (int j = 0; j < N; j++)
			v.v[j] = (S)of(i, j);
		if (whole)
			*(neighbours<S, N> *)(p + at) = v;
		else
			for (int j = 0; j < N; j++)
				p[at + j] = v.v[j];
	}
}
#endif
