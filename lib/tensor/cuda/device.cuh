/* Included by every .cu file. Compiled by nvcc for the device, and by a C++ compiler for the stand-in of the
 * tests (tests/cuda-host), which emulates the threads of a block.
 *
 *     KERNEL(name, args)          without barriers; `a` is the struct args
 *     BLOCK_KERNEL(name, args)    the threads of a block work together: __syncthreads, block_sum
 *     PAIR_KERNEL(name, args)     the same with registers for two blocks on a multiprocessor: 128 a thread
 *
 * All run with any grid: loops run over blockIdx and threadIdx with the grid's stride. A block has
 * CUDA_THREADS threads. Sums are in a fixed order, and reals are never added atomically (except by kernels
 * named fast), so bits depend on shapes alone. */
#ifndef DLB_TENSOR_CUDA_DEVICE_CUH
#define DLB_TENSOR_CUDA_DEVICE_CUH
#include <stdint.h>
#include <string.h>
extern "C" {
#include "tensor/cuda/kernels.h"
}

#ifdef __CUDACC__
#define KERNEL(name, args) extern "C" __global__ void name(const __grid_constant__ struct args a)
#define BLOCK_KERNEL(name, args) extern "C" __global__ void __launch_bounds__(CUDA_THREADS) \
	name(const __grid_constant__ struct args a)
#define PAIR_KERNEL(name, args) extern "C" __global__ void __launch_bounds__(CUDA_THREADS, 2) \
	name(const __grid_constant__ struct args a)
#else
#include "emulate.h"
#define PAIR_KERNEL BLOCK_KERNEL
#endif

/* UNROLL stands before a loop with a constant bound: its arrays then stay in registers. UNROLL_4 unrolls four
 * rounds, so that their loads do not wait for each other. */
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#else
#define UNROLL
#define UNROLL_4
#endif

/* for (EACH(i, n)): this thread's share of i in [0, n), over all threads of the grid. */
#define EACH(i, n) int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
	i += (int64_t)gridDim.x * blockDim.x
/* for (EACH_ROW(r, n)): this block's share of r in [0, n). */
#define EACH_ROW(r, n) int64_t r = blockIdx.x; r < (n); r += gridDim.x
/* for (EACH_OF_ROW(i, n)): this thread's share of i in [0, n) among the threads of its block. */
#define EACH_OF_ROW(i, n) int64_t i = threadIdx.x; i < (n); i += blockDim.x

enum { NEST_OPERANDS = sizeof ((struct cuda_nest *)0)->stride / sizeof ((struct cuda_nest *)0)->stride[0] };

/* Sets at[] to the offsets, in elements, of iteration i of a nest, for all operands that a nest can have.
 * With this constant bound the offsets stay in registers, and the compiler removes unused ones (absent
 * operands have strides 0). Division of 64 bits is slow, so it is avoided; the outermost loop needs none. */
static __device__ inline void seek(const struct cuda_nest &n, int64_t i, int64_t *at)
{
	const bool narrow = n.count <= INT32_MAX;

	for (int o = 0; o < NEST_OPERANDS; o++)
		at[o] = 0;
	for (int d = n.n_dims - 1; d >= 0; d--) {
		const int64_t rest = !d     ? 0 :
				     narrow ? (int64_t)((uint32_t)i / (uint32_t)n.dim[d]) :
					      i / n.dim[d];
		const int64_t pos = d ? i - rest * n.dim[d] : i;

		i = rest;
		for (int o = 0; o < NEST_OPERANDS; o++)
			at[o] += pos * n.stride[o][d];
	}
}

/* i / by; 32 bits are faster. Neither is negative. */
static __device__ inline int64_t quotient(int64_t i, int64_t by)
{
	return (uint64_t)(i | by) <= UINT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)by) : i / by;
}

/* Takes the last index of several from *i: returns *i % n and divides *i by n. */
static __device__ inline int64_t split(int64_t *i, int64_t n)
{
	const int64_t q = quotient(*i, n), r = *i - q * n;

	*i = q;
	return r;
}

/* *q = i / n, *r = i % n. */
static __device__ inline void divide(int64_t i, int64_t n, int64_t *q, int64_t *r)
{
	*r = split(&i, n);
	*q = i;
}

/* bf16: the upper half of a float. Rounds to nearest, ties to even; NaN stays NaN. */
struct bf16 {
	uint16_t bits;

	bf16() = default;
	__device__ inline explicit bf16(float v)
	{
		uint32_t u;

		memcpy(&u, &v, sizeof u);
		bits = (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 :
								  (u + 0x7fff + (u >> 16 & 1)) >> 16);
	}
	__device__ inline operator float() const
	{
		const uint32_t u = (uint32_t)bits << 16;
		float v;

		memcpy(&v, &u, sizeof v);
		return v;
	}
};
/* The type that values of T are computed in. */
template <typename T> struct computes { typedef T type; };
template <> struct computes<bf16> { typedef float type; };
template <typename T> static __device__ inline typename computes<T>::type load(T v) { return v; }
template <typename T, typename V> static __device__ inline void store(T *to, V v) { *to = T(v); }

enum { WARP_THREADS = 32 };
#ifdef __CUDACC__
/* The value of the thread whose number is this one's ^ by, of the same warp. All threads of the block call it. */
template <typename T> static __device__ inline T of_neighbour(T mine, int by)
{
	static_assert(sizeof(T) % sizeof(uint32_t) == 0, "a shuffle moves words");
	uint32_t word[sizeof(T) / sizeof(uint32_t)];

	memcpy(word, &mine, sizeof mine);
	for (int i = 0; i < (int)(sizeof word / sizeof *word); i++)
		word[i] = __shfl_xor_sync(0xffffffff, word[i], by);
	memcpy(&mine, word, sizeof mine);
	return mine;
}
#endif

/* Joins the values of the `width` threads of each group of neighbours in a block: in a tree within each warp,
 * then warp by warp. Every thread gets the result of its group. width: a power of two up to CUDA_THREADS. All
 * threads of the block call it. */
template <typename T, typename Join> static __device__ inline T group_join(T mine, int width, Join join)
{
	__shared__ T part[CUDA_THREADS / WARP_THREADS];
	const int me = (int)threadIdx.x, warps = width / WARP_THREADS, first = me / WARP_THREADS & ~(warps - 1);

	for (int half = (width < WARP_THREADS ? width : WARP_THREADS) / 2; half; half /= 2) {
		const T other = of_neighbour(mine, half);

		mine = me & half ? join(other, mine) : join(mine, other);
	}
	if (warps < 2)
		return mine;
	__syncthreads();		/* the last result may still be read */
	if (me % WARP_THREADS == 0)
		part[me / WARP_THREADS] = mine;
	__syncthreads();
	mine = part[first];
	for (int i = 1; i < warps; i++)
		mine = join(mine, part[first + i]);
	return mine;
}
/* As group_join, over all threads of a block. */
template <typename T, typename Join> static __device__ inline T block_join(T mine, Join join)
{
	return group_join(mine, CUDA_THREADS, join);
}
struct add_them { template <typename T> __device__ T operator()(T a, T b) const { return a + b; } };
struct larger { template <typename T> __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; } };
template <typename T> static __device__ inline T block_sum(T mine) { return block_join(mine, add_them()); }
template <typename T> static __device__ inline T block_max(T mine) { return block_join(mine, larger()); }

/* Sums and maxima over the `width` threads that share a row. `alone`: each thread has a row of its own, so
 * there is nothing to join, and no barrier. */
struct alone {
	static const int width = 1;
	template <typename T, typename Join> __device__ inline T join(T mine, Join) const { return mine; }
};
struct group {
	int width;
	template <typename T, typename Join> __device__ inline T join(T mine, Join how) const
	{
		return group_join(mine, width, how);
	}
};

/* Mathematical functions F(...) for both real types, by overloading. */
#define REAL_1(name) \
	static __device__ inline float real_##name(float a) { return name##f(a); } \
	static __device__ inline double real_##name(double a) { return name(a); }
REAL_1(sqrt) REAL_1(exp) REAL_1(log) REAL_1(sin) REAL_1(cos) REAL_1(tan) REAL_1(asin) REAL_1(acos) REAL_1(atan)
REAL_1(sinh) REAL_1(cosh) REAL_1(tanh) REAL_1(asinh) REAL_1(acosh) REAL_1(atanh) REAL_1(erf) REAL_1(floor)
REAL_1(ceil) REAL_1(rint) REAL_1(fabs) REAL_1(expm1) REAL_1(log1p)
#undef REAL_1
static __device__ inline float real_sigmoid(float a) { return 1 / (1 + expf(-a)); }
static __device__ inline double real_sigmoid(double a) { return 1 / (1 + exp(-a)); }
static __device__ inline float real_pow(float a, float b) { return powf(a, b); }
static __device__ inline double real_pow(double a, double b) { return pow(a, b); }
static __device__ inline float real_fmod(float a, float b) { return fmodf(a, b); }
static __device__ inline double real_fmod(double a, double b) { return fmod(a, b); }
#define F(name) real_##name
#endif
