/* What every .cu file includes: compiled by nvcc for the device, and by a C++ compiler for the stand-in of the
 * tests (tests/cuda-host), which emulates the threads of a block.
 *
 *     KERNEL(name, args)          without barriers; `a` is the struct args
 *     BLOCK_KERNEL(name, args)    the threads of a block work together: __syncthreads, block_sum
 *
 * Both run with any grid: loops run over blockIdx and threadIdx with the grid's stride. A block has
 * CUDA_THREADS threads. Sums are in a fixed order and nothing adds atomically, so bits depend on shapes alone.*/
#ifndef DLB_TENSOR_CUDA_DEVICE_CUH
#define DLB_TENSOR_CUDA_DEVICE_CUH
#include <stdint.h>
extern "C" {
#include "tensor/cuda/kernels.h"
}

#ifdef __CUDACC__
#define KERNEL(name, args) extern "C" __global__ void name(const __grid_constant__ struct args a)
#define BLOCK_KERNEL(name, args) extern "C" __global__ void __launch_bounds__(CUDA_THREADS) \
	name(const __grid_constant__ struct args a)
#else
#include "emulate.h"
#endif

/* for (EACH(i, n)): this thread's share of i in [0, n), over all threads of the grid. */
#define EACH(i, n) int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
	i += (int64_t)gridDim.x * blockDim.x
/* for (EACH_ROW(r, n)): this block's share of r in [0, n). */
#define EACH_ROW(r, n) int64_t r = blockIdx.x; r < (n); r += gridDim.x
/* for (EACH_OF_ROW(i, n)): this thread's share of i in [0, n) among the threads of its block. */
#define EACH_OF_ROW(i, n) int64_t i = threadIdx.x; i < (n); i += blockDim.x

/* Offsets in elements of iteration i of a nest. */
static __device__ inline void seek(const struct cuda_nest &n, int64_t i, int64_t *at)
{
	for (int o = 0; o < n.n_operands; o++)
		at[o] = 0;
	for (int d = n.n_dims - 1; d >= 0; d--) {
		const int64_t pos = i % n.dim[d];

		i /= n.dim[d];
		for (int o = 0; o < n.n_operands; o++)
			at[o] += pos * n.stride[o][d];
	}
}

/* Joins the values of a block's threads, in the order of a tree over them; every thread gets the result. All
 * threads of the block call it. */
template <typename T, typename Join> static __device__ inline T block_join(T mine, Join join)
{
	__shared__ T part[CUDA_THREADS];

	__syncthreads();		/* the last result may still be read */
	part[threadIdx.x] = mine;
	for (unsigned half = CUDA_THREADS / 2; half; half /= 2) {
		__syncthreads();
		if (threadIdx.x < half)
			part[threadIdx.x] = join(part[threadIdx.x], part[threadIdx.x + half]);
	}
	__syncthreads();
	return part[0];
}
struct add_them { template <typename T> __device__ T operator()(T a, T b) const { return a + b; } };
struct larger { template <typename T> __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; } };
template <typename T> static __device__ inline T block_sum(T mine) { return block_join(mine, add_them()); }
template <typename T> static __device__ inline T block_max(T mine) { return block_join(mine, larger()); }

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
