/* Loads and stores of runs (runs.h). Values do not depend on whether a run is accessed as a whole. */
#ifndef DLB_TENSOR_CUDA_RUNS_CUH
#define DLB_TENSOR_CUDA_RUNS_CUH
#include "tensor/cuda/device.cuh"
extern "C" {
#include "tensor/cuda/runs.h"
}

/* Sets at[] to the offsets of run i, as seek does. There are fewer than 2^31 runs, and at least one loop. */
static __device__ inline void seek_run(const struct cuda_runs &r, int64_t i, int64_t *at)
{
	uint32_t rest = (uint32_t)i;

	for (int o = 0; o < NEST_OPERANDS; o++)
		at[o] = 0;
	for (int d = r.nest.n_dims - 1; d >= 0; d--) {
		const uint32_t outer = d ? rest / (uint32_t)r.nest.dim[d] : 0,
			       pos = rest - outer * (uint32_t)r.nest.dim[d];

		rest = outer;
		for (int o = 0; o < NEST_OPERANDS; o++)
			at[o] += (int64_t)pos * r.nest.stride[o][d];
	}
}

/* Elements of run i. */
template <int N> static __device__ inline int run_length(const struct cuda_runs &r, int64_t i)
{
	const int64_t left = r.count - i * N;

	return left < N ? (int)left : N;
}

/* N neighbours, which one instruction accesses where they are aligned. */
template <typename T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) neighbours { T v[N]; };
template <int N, typename T>
static __device__ inline bool at_once(const struct cuda_runs &r, int o, const T *p, int length)
{
	return length == N && (r.whole >> o & 1) && (uintptr_t)p % alignof(neighbours<T, N>) == 0;
}

/* v[0 .. length) = the run of operand o at offset `at` of p; the rest of v is undefined. */
template <int N, typename T>
static __device__ inline void get_run(const struct cuda_runs &r, int o, const T *p, int64_t at, int length,
				      T *v)
{
	if (at_once<N>(r, o, p, length)) {
		const neighbours<T, N> x = *(const neighbours<T, N> *)(p + at);

		for (int j = 0; j < N; j++)
			v[j] = x.v[j];
	} else if (r.dense >> o & 1) {
		for (int j = 0; j < N; j++)
			v[j] = j < length ? p[at + j] : T();
	} else {
		const T x = p[at];

		for (int j = 0; j < N; j++)
			v[j] = x;
	}
}

/* Stores v as the run that get_run would load; operand o is dense. */
template <int N, typename T>
static __device__ inline void put_run(const struct cuda_runs &r, int o, T *p, int64_t at, int length,
				      const T *v)
{
	if (at_once<N>(r, o, p, length)) {
		neighbours<T, N> x;

		for (int j = 0; j < N; j++)
			x.v[j] = v[j];
		*(neighbours<T, N> *)(p + at) = x;
	} else {
		for (int j = 0; j < N; j++)
			if (j < length)
				p[at + j] = v[j];
	}
}
#endif
